"""Rank aggregation against exhaustive search."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lad.decisions import permutation_average
from lad.decisions.ranks import KEMENY_LIMIT, borda_scores, kemeny_scores
from lad.errors import DecisionError
from lad.samples import cyclic_orders


def _contradictions(ranking, votes) -> float:
    """Votes against a ranking, pair by pair; a tie is half a vote against."""
    total = 0.0
    for vote in votes:
        for earlier, later in itertools.combinations(ranking, 2):
            total += 1.0 if vote[later] > vote[earlier] else 0.5 if vote[later] == vote[earlier] else 0.0
    return total


@given(
    seed=st.integers(0, 10_000),
    voters=st.integers(1, 6),
    count=st.integers(2, 6),
    levels=st.sampled_from([2, 3, 1000]),
)
def test_kemeny_contradicts_the_fewest_votes_of_all_rankings(seed, voters, count, levels):
    votes = np.random.default_rng(seed).integers(levels, size=(voters, count)).astype(float)
    scores = kemeny_scores(votes)
    assert sorted(scores) == list(range(count))
    found = tuple(int(candidate) for candidate in np.argsort(-scores))
    costs = {ranking: _contradictions(ranking, votes) for ranking in itertools.permutations(range(count))}
    least = min(costs.values())
    # permutations come in lexical order, so the first of the best puts lower candidates first
    assert found == next(ranking for ranking, cost in costs.items() if cost == least)


@given(seed=st.integers(0, 10_000), voters=st.integers(1, 6), count=st.integers(2, 7), levels=st.sampled_from([2, 9]))
def test_borda_counts_the_candidates_that_each_one_beats(seed, voters, count, levels):
    votes = np.random.default_rng(seed).integers(levels, size=(voters, count)).astype(float)
    scores = borda_scores(votes)
    for candidate in range(count):
        beaten = [
            1.0 if vote[candidate] > vote[other] else 0.5 if vote[candidate] == vote[other] else 0.0
            for vote in votes
            for other in range(count)
            if other != candidate
        ]
        assert scores[candidate] == pytest.approx(sum(beaten) / voters)


def test_a_condorcet_winner_that_borda_misses():
    # 3 voters: a > b > c, 2 voters: b > c > a. a beats everyone in pairs, b collects more points.
    votes = np.array([[3, 2, 1]] * 3 + [[1, 3, 2]] * 2, dtype=float)
    assert kemeny_scores(votes).tolist() == [2, 1, 0]
    assert borda_scores(votes).argmax() == 1


def test_leading_axes_are_kept():
    votes = np.random.default_rng(0).normal(size=(2, 3, 5, 4))
    for function in (borda_scores, kemeny_scores):
        whole = function(votes)
        assert whole.shape == (2, 3, 4)
        assert np.array_equal(whole[1, 2], function(votes[1, 2]))


def test_too_many_candidates_for_the_exact_search():
    with pytest.raises(DecisionError, match="Use borda"):
        kemeny_scores(np.zeros((2, KEMENY_LIMIT + 1)))


@pytest.mark.parametrize("combine", ["log", "prob", "borda", "kemeny"])
def test_ways_to_combine_orders(combine):
    rng = np.random.default_rng(3)
    orders = cyclic_orders(5)
    by_position = np.log(rng.dirichlet(np.ones(5), size=5))
    votes = np.empty((5, 5))
    for shift, position in itertools.product(range(5), range(5)):
        votes[shift, orders[shift, position]] = by_position[shift, position]
    wanted = {
        "log": votes.mean(0),
        "prob": np.log(np.exp(votes).mean(0)),
        "borda": borda_scores(votes),
        "kemeny": kemeny_scores(votes),
    }
    assert permutation_average(by_position, orders, combine=combine) == pytest.approx(wanted[combine])


def test_an_unknown_way_to_combine():
    with pytest.raises(DecisionError, match=r"'median'.*log, prob, borda, kemeny"):
        permutation_average(np.zeros((2, 2)), np.array([[0, 1], [1, 0]]), combine="median")
