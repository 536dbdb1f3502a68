from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lad.benchmarks.mining import Categories, CategoryRule, mine, similarities


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def brute_force(
    images: np.ndarray,
    captions: np.ndarray,
    anchors: np.ndarray,
    anchor_captions: np.ndarray,
    count: int,
    sets: list[set[str]],
    rule: str,
    limit: float,
) -> list[list[int]]:
    found = []
    for number, anchor in enumerate(anchors):
        ranked = []
        for other in range(len(images)):
            told = sum(float(a) * float(b) for a, b in zip(captions[other], anchor_captions[number], strict=True))
            if other == anchor or told >= limit:
                continue
            mine_, theirs = sets[anchor], sets[other]
            if mine_ and ((rule == "contains" and mine_ <= theirs) or (rule == "equals" and mine_ == theirs)):
                continue
            alike = (images[other].astype(np.float64) * images[anchor].astype(np.float64)).sum()
            ranked.append((-alike, other))
        found.append([other for _, other in sorted(ranked)[:count]])
    return found


@given(st.integers(0, 10_000), st.sampled_from(["contains", "equals", "none"]), st.integers(1, 12))
def test_equal_to_brute_force_with_ties(seed: int, rule: CategoryRule, count: int) -> None:
    rng = np.random.default_rng(seed)
    pool = int(rng.integers(2, 40))
    # few different vectors, so that pictures tie and captions repeat
    images = unit(rng.standard_normal((max(1, pool // 3), 6)))[rng.integers(0, max(1, pool // 3), pool)]
    captions = unit(rng.standard_normal((max(1, pool // 2), 5)))[rng.integers(0, max(1, pool // 2), pool)]
    sets = [set(rng.choice(list("abcd"), rng.integers(0, 4), replace=False).tolist()) for _ in range(pool)]
    anchors = rng.integers(0, pool, 7)
    anchor_captions = captions[anchors]
    expected = brute_force(images, captions, anchors, anchor_captions, count, sets, rule, 0.9)
    found = mine(
        images, captions, anchors, anchor_captions, count, categories=Categories(sets), rule=rule, caption_limit=0.9
    )
    for row, (indices, values) in enumerate(zip(found.neighbors, found.similarities, strict=True)):
        kept = [int(index) for index in indices if index >= 0]
        assert kept == expected[row]
        assert list(indices[len(kept) :]) == [-1] * (count - len(kept))
        assert np.isnan(values[len(kept) :]).all()
        assert (np.diff(values[: len(kept)]) <= 0).all()
        assert (found.eligible[row] >= count) == (len(kept) == count)


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    images, captions = unit(rng.standard_normal((500, 64))), unit(rng.standard_normal((500, 64)))
    images[250:] = images[:250]
    anchors = np.arange(60)
    whole = mine(images, captions, anchors, captions[anchors], 11)
    monkeypatch.setattr("lad.benchmarks.mining._CHUNK_BYTES", 4 * 500 * 7)
    monkeypatch.setattr("lad.benchmarks.mining._ROWS", 3)
    parts = mine(images, captions, anchors, captions[anchors], 11)
    assert np.array_equal(whole.neighbors, parts.neighbors)
    assert np.array_equal(whole.similarities, parts.similarities)
    # the copy of an anchor is its nearest neighbour, and of two copies the earlier comes first
    assert (whole.neighbors[:, 0] == anchors + 250).all()
    assert (whole.neighbors[:, 1] + 250 == whole.neighbors[:, 2]).all()


def test_a_caption_exactly_at_the_limit_is_left_out() -> None:
    captions = np.array([[1, 0], [0.6, 0.8], [0.8, 0.6], [0, 1]], dtype=np.float32)
    images = unit(np.ones((4, 3)))
    limit = float(similarities(captions, np.array([1]), captions[0])[0])
    found = mine(images, captions, np.array([0]), captions[:1], 3, caption_limit=limit)
    assert found.neighbors.tolist() == [[3, -1, -1]]
    above = mine(images, captions, np.array([0]), captions[:1], 3, caption_limit=np.nextafter(limit, 1))
    assert above.neighbors.tolist() == [[1, 3, -1]]


def test_categories() -> None:
    categories = Categories([{"a", "b"}, {"a", "b", "c"}, {"a"}, {"a", "b"}, set(), {"c"}])
    assert categories.excluded(0, "contains").tolist() == [True, True, False, True, False, False]
    assert categories.excluded(0, "equals").tolist() == [True, False, False, True, False, False]
    for rule in ("contains", "equals"):
        assert not categories.excluded(4, rule).any()
    assert not categories.excluded(0, "none").any()


_SCALE = """
import resource, sys, time
import numpy as np
from lad.benchmarks.mining import Categories, mine
rng = np.random.default_rng(0)
def unit():
    vectors = rng.standard_normal((40_000, 768), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors
images, captions = unit(), unit()
sets = [set(map(str, rng.choice(80, rng.integers(0, 6), replace=False))) for _ in range(40_000)]
anchors = rng.choice(40_000, 1_000, replace=False)
start = time.monotonic()
found = mine(images, captions, anchors, captions[anchors], 11, categories=Categories(sets))
print(time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, found.neighbors.min())
"""


def test_a_large_pool_takes_seconds_and_little_memory() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _SCALE],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    seconds, gigabytes, least = map(float, run.stdout.split())
    assert least >= 0
    # measured on two cores: 3 s and 0.4 GiB; the limits leave room for a machine that is busy with other things
    assert seconds < 60
    assert gigabytes < 2
