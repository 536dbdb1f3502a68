"""Many clients at once, and more than there are places."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lad.ranker import Ranker
from lad.server.settings import ServiceSettings
from perf.serve_load import compare, measured, scene_bodies, send, server
from tests.server.running import running

CLIENTS = 16


def test_two_hundred_requests_of_sixteen_clients(ranker: Ranker, record_property: pytest.RecordProperty) -> None:
    """All are answered, in batches, and each gets its own answer."""
    bodies = scene_bodies(200, 4, seed=11)
    with running(ranker) as found:
        single = send(found.url, bodies[:10], 1)
        load = send(found.url, bodies, CLIENTS)
        batches = float(found.service.metrics.registry.get_sample_value("lad_batch_requests_count") or 0)
        assert found.service.places.taken == 0
    assert load.statuses == {200: 200}
    # sixteen that wait for one another's batch: ten passes are ten of the lone client, the rest are shared
    assert batches - 10 <= 200 / 3
    alone = [ranker.rank_prepared([ranker.vlm.prepare_sample(sample)])[0].pick for sample in scenes()]
    assert [load.picks[index] for index in range(20)] == alone
    times = {"single": single.percentile(0.5), "p50": load.percentile(0.5), "p95": load.percentile(0.95)}
    for name, value in times.items():
        record_property(name, value)


def scenes() -> Iterator[object]:
    from lad.benchmarks.scenes import scene_samples

    yield from scene_samples(200, 4, seed=11)[:20]


def test_with_the_queue_full_there_are_only_429s_and_memory_stays_flat(calibrations: Path) -> None:
    bodies = scene_bodies(20, 8, seed=12)
    # as large as a body may be, so that one that is kept shows
    padded = [body[:-1] + b', "padding": "' + b"x" * 2_000_000 + b'"}' for body in bodies]
    with server("--device", "cpu", "--calibration", str(calibrations), "--places", "2", "--batch", "1") as (_, url):
        first = send(url, padded * 5, CLIENTS)
        before = measured(url, "process_resident_memory_bytes")
        second = send(url, padded * 10, CLIENTS)
        growth = measured(url, "process_resident_memory_bytes") - before
    for load in (first, second):
        assert set(load.statuses) == {200, 429}
        assert load.statuses[429] > load.statuses[200]
    assert growth < 30 * 2**20


def test_a_server_that_is_only_given_unbatched_requests_answers_them_too(ranker: Ranker) -> None:
    bodies = scene_bodies(16, 4, seed=13)
    with running(ranker, ServiceSettings(batch=1)) as found:
        assert send(found.url, bodies, CLIENTS).statuses == {200: 16}


@pytest.mark.long
def test_batching_pays(calibrations: Path) -> None:
    """Sixteen clients get more with batches than without, and a batched request takes less of the processor.

    The second is measured in processor time, which other work on the machine disturbs least.
    """
    found = compare(["--calibration", str(calibrations)], requests=200, clients=CLIENTS, candidates=4)
    assert all(set(load.statuses) == {200} for loads in found.values() for load in loads)
    (_, unbatched), (_, batched) = found[1], found[8]
    assert batched.rate > unbatched.rate
    assert batched.cpu_seconds <= unbatched.cpu_seconds / 1.3
