import time

import pytest
import torch

from perf.measure import Spread, Times, model_bytes, peak_bytes, take_times

CPU = torch.device("cpu")


def test_ratios_are_taken_round_by_round():
    times = Times({"mine": [2.0, 6.0, 3.0], "base": [1.0, 2.0, 3.0]})
    assert times.ratio("mine", "base") == Spread(2.0, 1.0, 3.0)
    assert times.of("base") == Spread(2.0, 1.0, 3.0)


def test_ways_take_turns_and_each_round_begins_with_another():
    asked = []
    ways = {name: lambda name=name: asked.append(name) for name in "abc"}
    times = take_times(ways, 3, device=CPU)
    assert "".join(asked) == "abc" + "abc" + "bca" + "cab"
    assert {len(seconds) for seconds in times.seconds.values()} == {3}


def test_a_longer_way_takes_longer():
    ways = {"long": lambda: time.sleep(0.03), "short": lambda: time.sleep(0.01)}
    times = take_times(ways, 2, device=CPU, waiting=True)
    assert times.seconds["long"][0] >= 0.03
    assert times.ratio("long", "short").low > 1


def test_on_a_cpu_only_work_counts():
    times = take_times({"idle": lambda: time.sleep(0.05)}, 2, device=CPU)
    assert max(times.seconds["idle"]) < 0.03


def test_peak_memory_is_what_is_held_at_a_time():
    def call():
        first = torch.zeros(1000, 250)
        second = first + 1
        del first
        return torch.cat([second, second])  # 1 MB and 2 MB

    assert peak_bytes(call, CPU) == pytest.approx(3_000_000, rel=0.01)


def test_freed_memory_does_not_count_twice():
    def call():
        for _ in range(5):
            torch.zeros(250_000)

    assert peak_bytes(call, CPU) == pytest.approx(1_000_000, rel=0.01)


def test_peak_memory_of_nothing_is_an_error():
    with pytest.raises(RuntimeError, match="no memory events"):
        peak_bytes(lambda: None, CPU)


def test_tied_weights_are_counted_once():
    layer = torch.nn.Linear(10, 10, bias=False)
    tied = torch.nn.ModuleList([layer, layer])
    assert model_bytes(tied) == 400
