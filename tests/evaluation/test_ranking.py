"""Figures of whole rankings, against sorting by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lad.errors import RunError
from lad.evaluation.ranking import answer_ranks, ranking_metrics
from lad.evaluation.statistics import paired_difference


@given(seed=st.integers(0, 1000), count=st.integers(2, 7), levels=st.sampled_from([2, 100]))
def test_against_sorting(seed, count, levels):
    rng = np.random.default_rng(seed)
    scores = rng.integers(levels, size=(6, 3, count)).astype(float)
    answers = rng.integers(count, size=6)
    ranks = []
    for row, answer in zip(scores, answers, strict=True):
        for values in row:
            ranking = sorted(range(count), key=lambda candidate: (-values[candidate], candidate))
            ranks.append(1 + ranking.index(answer))
    assert answer_ranks(scores, answers).ravel().tolist() == ranks
    found = ranking_metrics(scores, answers)
    assert found.mrr == pytest.approx(np.mean([1 / rank for rank in ranks]))
    assert found.ndcg == pytest.approx(np.mean([1 / math.log2(rank + 1) for rank in ranks]))
    assert found.recall_at.keys() == {k for k in (1, 2, 3, 5) if k < count}
    for k, value in found.recall_at.items():
        assert value == pytest.approx(100 * np.mean([rank <= k for rank in ranks]))
    # the first place is the pick, ties included
    assert found.recall_at[1] == pytest.approx(100 * (scores.argmax(2) == answers[:, None]).mean())


def test_shapes_that_do_not_fit():
    with pytest.raises(RunError, match=r"\(S, T, N\)"):
        answer_ranks(np.zeros((2, 3)), np.zeros(2, dtype=int))


def test_paired_differences():
    rng = np.random.default_rng(0)
    mine = rng.random(300)
    theirs = mine - 0.1
    difference, (low, high) = paired_difference(mine, theirs)
    assert (difference, low, high) == pytest.approx((10, 10, 10))
    noisy = theirs + rng.normal(size=300) * 0.05
    _, (low, high) = paired_difference(mine, noisy)
    assert low < 10 < high
    assert high - low < 2
    with pytest.raises(RunError, match="same samples"):
        paired_difference(mine, theirs[:-1])
