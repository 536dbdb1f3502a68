"""Combining rankings: S orders of the same candidates vote, and only who stands before whom counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lad.errors import DecisionError

KEMENY_LIMIT = 14
"""The exact search looks at all 2^N sets of candidates."""


def borda_scores(votes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean number of candidates that each candidate beats (Borda); a tie counts half.

    Args:
        votes: (..., S, N), scores by candidate, the higher the better.

    Returns:
        Shape (..., N), between 0 and N - 1.
    """
    # without the half point for the tie with oneself
    return np.asarray(preferences(votes).sum(axis=-1) - 0.5)


def preferences(votes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of the S votes that put candidate a before b, shape (..., N, N); ties count half, as does the diagonal."""
    ahead, behind = votes[..., :, :, None], votes[..., :, None, :]
    return np.asarray(((ahead > behind) + 0.5 * (ahead == behind)).mean(axis=-3))


def kemeny_scores(votes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The ranking that contradicts the fewest pairwise preferences of the S votes (Kemeny), found exactly.

    Held-Karp over sets of candidates: the best way to rank a set is the best choice of its last member. Of equally
    good rankings, the one that puts lower candidates first is taken.

    Args:
        votes: (..., S, N), scores by candidate, the higher the better.

    Returns:
        Shape (..., N): N - 1 for the first of the ranking, 0 for the last.

    Raises:
        DecisionError: more than :data:`KEMENY_LIMIT` candidates.
    """
    count = votes.shape[-1]
    if count > KEMENY_LIMIT:
        raise DecisionError(
            f"The exact Kemeny ranking of {count} candidates takes too long; the limit is {KEMENY_LIMIT}.",
            hint="Use borda.",
        )
    shape = votes.shape[:-2]
    # in whole numbers (twice the votes), so that equally good rankings tie exactly
    against = np.rint(2 * votes.shape[-2] * preferences(votes)).astype(np.int64).reshape(-1, count, count)
    rows = np.arange(len(against))
    # cost[set]: least contradiction among the set's own members, were the set the tail of the ranking
    cost = np.zeros((1 << count, len(against)), dtype=np.int64)
    first = np.zeros((1 << count, len(against)), dtype=np.int64)
    for members in range(1, 1 << count):
        inside = [candidate for candidate in range(count) if members >> candidate & 1]
        totals = np.stack(
            [cost[members & ~(1 << head)] + against[:, inside, head].sum(axis=1) for head in inside]
        )  # others before the head are contradicted; the head against itself is the same for every choice
        best = totals.argmin(axis=0)
        cost[members] = totals[best, rows]
        first[members] = np.array(inside)[best]
    scores = np.empty((len(against), count))
    left = np.full(len(against), (1 << count) - 1)
    for score in range(count - 1, -1, -1):
        heads = first[left, rows]
        scores[rows, heads] = score
        left = left & ~(1 << heads)
    return scores.reshape(*shape, count)
