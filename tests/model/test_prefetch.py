import threading
import time

import pytest

from lad.model.prefetch import default_workers, prefetched


def test_results_come_in_order_however_long_each_takes():
    def slow_first(item):
        time.sleep(0.02 if item % 3 == 0 else 0)
        return item * 2

    assert list(prefetched(range(10), slow_first, ahead=4, workers=3)) == [item * 2 for item in range(10)]


def test_nothing_to_do():
    assert list(prefetched([], str)) == []


def test_it_works_ahead_of_its_reader_but_not_further_than_told():
    started = []
    reader = prefetched(range(20), lambda item: started.append(item) or item, ahead=3, workers=1)
    assert next(reader) == 0
    deadline = time.monotonic() + 5
    while len(started) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert started == [0, 1, 2, 3]
    assert list(reader) == list(range(1, 20))


def test_the_work_is_done_on_other_threads():
    names = set(prefetched(range(4), lambda item: threading.current_thread().name, workers=2))
    assert names
    assert all(name.startswith("lad-prefetch") for name in names)


def test_an_error_comes_where_its_result_would_have_come_and_ends_the_work():
    asked = []

    def fail_at_two(item):
        asked.append(item)
        if item == 2:
            raise ValueError("broken picture")
        return item

    reader = prefetched(range(100), fail_at_two, ahead=2, workers=1)
    assert [next(reader), next(reader)] == [0, 1]
    with pytest.raises(ValueError, match="broken picture"):
        next(reader)
    assert len(asked) < 10


def test_a_reader_that_stops_leaves_no_threads():
    reader = prefetched(range(100), lambda item: item, ahead=2, workers=2)
    next(reader)
    reader.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lad-prefetch")]


def test_the_number_of_threads_is_small():
    assert 1 <= default_workers() <= 4
