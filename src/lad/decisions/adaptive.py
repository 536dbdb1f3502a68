"""An adaptive budget: ask again, under a further cyclic shift, only while the answer is close.

After s passes the scores of each candidate are averaged over the s shifts; the margin is the lead of the best average
over the second. Noise in an average falls with the square root of s, so a query is settled once

    margin >= theta / sqrt(s)

or all N shifts are used. theta = 0 asks once, theta = infinity N times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lad.errors import DecisionError


@dataclass(frozen=True, eq=False)
class Adaptive:
    """What an adaptive budget came to.

    Attributes:
        scores: (M, N) by candidate, averaged over the shifts that each query took.
        passes: (M,) how many that were.
    """

    scores: NDArray[np.float64]
    passes: NDArray[np.int64]


def running_averages(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Averages over the first 1, 2, ... S shifts, shape (M, S, N), of scores by candidate (M, S, N)."""
    steps = np.arange(1, scores.shape[1] + 1)
    return np.asarray(np.cumsum(scores, axis=1) / steps[:, None])


def lead(averages: NDArray[np.float64]) -> NDArray[np.float64]:
    """The best minus the second best, over the last axis."""
    best = np.sort(averages, axis=-1)
    return np.asarray(best[..., -1] - best[..., -2])


def settled(averages: NDArray[np.float64], shifts: int, theta: float) -> NDArray[np.bool_]:
    """Whether averages (..., N) over ``shifts`` shifts need no further pass."""
    return np.asarray(lead(averages) * np.sqrt(shifts) >= theta)


def adaptive_average(scores: NDArray[np.float64], theta: float) -> Adaptive:
    """Average over as many shifts as each query needs.

    Args:
        scores: (M, S, N) by candidate; axis 1 in the order in which the shifts are observed.
        theta: see the module.

    Raises:
        DecisionError: a negative theta, or not a number.
    """
    if not theta >= 0:
        raise DecisionError(f"theta must not be negative, nor {theta}.")
    averages = running_averages(scores)
    done = np.stack([settled(averages[:, s], s + 1, theta) for s in range(averages.shape[1])], axis=1)
    done[:, -1] = True
    last = done.argmax(axis=1)
    return Adaptive(averages[np.arange(len(averages)), last], last + 1)


def choose_theta(scores: NDArray[np.float64], mean_passes: float) -> float:
    """The largest theta whose mean number of passes over these queries is at most ``mean_passes``.

    Args:
        scores: (M, S, N) as in :func:`adaptive_average`, of calibration samples.
        mean_passes: the budget, at least 1.

    Returns:
        theta; infinity where even N passes everywhere are within the budget.

    Raises:
        DecisionError: a budget below one pass.
    """
    if not mean_passes >= 1:
        raise DecisionError(f"A query takes at least one pass; a mean of {mean_passes} cannot be.")
    shifts = np.sqrt(np.arange(1, scores.shape[1] + 1))
    # A query passes step s when theta exceeds all its scaled leads so far, so the mean is a step function of theta
    # that grows at these values only.
    limits = np.maximum.accumulate(lead(running_averages(scores)) * shifts, axis=1)[:, :-1]
    allowed = int(np.floor((mean_passes - 1) * len(scores) + 1e-9))
    steps = np.sort(limits, axis=None)
    # just at the value of step k, the k smaller ones (and none equal to it) have been passed
    return float("inf") if allowed >= len(steps) else float(steps[allowed])
