"""The adaptive budget against a loop that does what its description says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lad.decisions import adaptive_average, choose_theta, far_shifts
from lad.errors import DecisionError


def _one_query(scores, theta):
    total = np.zeros(scores.shape[1])
    for taken, seen in enumerate(scores, start=1):
        total += seen
        best, second = sorted(total / taken, reverse=True)[:2]
        if best - second >= theta / math.sqrt(taken) or taken == len(scores):
            return total / taken, taken
    raise AssertionError


@given(seed=st.integers(0, 10_000), theta=st.floats(0, 6), count=st.integers(2, 6))
def test_against_a_loop(seed, theta, count):
    scores = np.random.default_rng(seed).normal(size=(9, count, count)) * 2
    found = adaptive_average(scores, theta)
    for row, query in enumerate(scores):
        average, taken = _one_query(query, theta)
        assert found.passes[row] == taken
        assert found.scores[row] == pytest.approx(average)


@given(seed=st.integers(0, 10_000), budget=st.floats(1, 6), count=st.integers(2, 6))
def test_theta_is_the_largest_within_the_budget(seed, budget, count):
    scores = np.random.default_rng(seed).normal(size=(11, count, count))
    theta = choose_theta(scores, budget)
    assert adaptive_average(scores, theta).passes.mean() <= budget + 1e-9
    if math.isinf(theta):
        assert budget >= count
    else:
        assert adaptive_average(scores, theta * (1 + 1e-9) + 1e-12).passes.mean() > budget - 1e-9


def test_the_ends_of_the_scale():
    scores = np.random.default_rng(1).normal(size=(20, 5, 5))
    assert (adaptive_average(scores, 0).passes == 1).all()
    everything = adaptive_average(scores, math.inf)
    assert (everything.passes == 5).all()
    assert everything.scores == pytest.approx(scores.mean(1))
    assert choose_theta(scores, 5) == math.inf
    assert (adaptive_average(scores, choose_theta(scores, 1)).passes == 1).all()


def test_wrong_numbers():
    scores = np.zeros((2, 3, 3))
    for theta in (-1.0, math.nan):
        with pytest.raises(DecisionError, match="theta"):
            adaptive_average(scores, theta)
    with pytest.raises(DecisionError, match="at least one pass"):
        choose_theta(scores, 0.9)


def test_far_shifts_come_first():
    assert far_shifts(2).tolist() == [0, 1]
    assert far_shifts(4).tolist() == [0, 2, 1, 3]
    assert far_shifts(8).tolist() == [0, 4, 2, 6, 1, 3, 5, 7]
    for count in range(2, 13):
        shifts = far_shifts(count).tolist()
        assert sorted(shifts) == list(range(count))
        for number in range(1, count):
            distances = {
                shift: min(min((shift - s) % count, (s - shift) % count) for s in shifts[:number])
                for shift in range(count)
            }
            assert distances[shifts[number]] == max(distances.values())
