"""Bootstrap intervals: how far a figure would move with other samples of the same kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lad.errors import RunError
from lad.evaluation.metrics import check_picks, recall, recall_std, tally

Interval: TypeAlias = "tuple[float, float]"
Statistic: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]

_DRAWS_AT_ONCE = 4_000_000  # bounds the memory, not the result


@dataclass(frozen=True)
class MetricIntervals:
    """Percentile intervals of the figures of :class:`lad.evaluation.metrics.Metrics`, in percent.

    ``rstd`` is None where hardly any position was visited and no resample defines it.
    """

    accuracy: Interval
    rstd: Interval | None
    consistency: Interval


def metric_intervals(
    picks: NDArray[np.int64],
    answers: NDArray[np.int64],
    orders: NDArray[np.int64],
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> MetricIntervals:
    """Bootstrap intervals of accuracy, RStd and consistency, from the same resamples of the M samples.

    Args:
        picks: (M, T), answers: (M,), orders: (T, N), as in :func:`lad.evaluation.metrics.compute_metrics`.
        answers: see above.
        orders: see above.
        resamples: how many.
        level: share of the resamples that the interval holds.
        seed: same seed, same intervals.

    Raises:
        RunError: arguments that do not fit each other.
    """
    picks, answers, orders = check_picks(picks, answers, orders)
    counts = tally(picks, answers, orders)
    count = orders.shape[1]
    per_sample = np.concatenate(
        [counts.hits.mean(axis=1, keepdims=True), counts.same[:, None], counts.hits_at, counts.visits_at], axis=1
    )
    means = resampled_means(per_sample, resamples=resamples, seed=seed)
    spreads = recall_std(recall(means[:, 2 : 2 + count], means[:, 2 + count :]))
    spreads = spreads[~np.isnan(spreads)]
    return MetricIntervals(
        accuracy=percentile_interval(100 * means[:, 0], level),
        rstd=percentile_interval(spreads, level) if spreads.size else None,
        consistency=percentile_interval(100 * means[:, 1], level),
    )


def bootstrap_interval(
    per_sample: NDArray[np.floating],
    statistic: Statistic = lambda means: means[:, 0],
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of any figure that is a function of means over samples.

    Args:
        per_sample: (M,) or (M, F), the quantities whose means it is a function of.
        statistic: means (R, F) of the R resamples -> figure (R,); by default the first mean itself.
        resamples: R.
        level: share of the resamples that the interval holds.
        seed: same seed, same interval.

    Raises:
        RunError: no samples, no resamples, or a level outside (0, 1).
    """
    return percentile_interval(statistic(resampled_means(per_sample, resamples=resamples, seed=seed)), level)


def resampled_means(per_sample: NDArray[np.floating], *, resamples: int, seed: int) -> NDArray[np.float64]:
    """Means over M samples drawn with replacement, shape (resamples, F), from values (M,) or (M, F)."""
    values = np.asarray(per_sample, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    number = len(values)
    if number < 1 or resamples < 1:
        raise RunError(f"A bootstrap needs samples and resamples, not {number} and {resamples}.")
    rng = np.random.default_rng(seed)
    means = []
    for start in range(0, resamples, block := max(1, _DRAWS_AT_ONCE // number)):
        rows = min(block, resamples - start)
        drawn = rng.integers(number, size=(rows, number)) + number * np.arange(rows)[:, None]
        weights = np.bincount(drawn.reshape(-1), minlength=rows * number).reshape(rows, number)
        means.append(weights @ values / number)
    return np.concatenate(means)


def percentile_interval(values: NDArray[np.float64], level: float) -> Interval:
    """The central ``level`` of the values (R,), as (low, high)."""
    if not 0 < level < 1:
        raise RunError(f"A level must lie between 0 and 1, not at {level}.")
    low, high = np.percentile(values, [50 * (1 - level), 50 * (1 + level)])
    return float(low), float(high)


def paired_difference(
    mine: NDArray[np.floating],
    theirs: NDArray[np.floating],
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, Interval]:
    """Paired bootstrap between two methods measured on the same samples.

    Args:
        mine: (M,), one method's mean per sample, for instance its hits over the T orders.
        theirs: (M,), the other's.
        resamples: how many.
        level: share of the resamples that the interval holds.
        seed: same seed, same interval.

    Returns:
        100 times the mean difference, and its percentile interval: a difference of percent in percentage points.

    Raises:
        RunError: the two were not measured on equally many samples.
    """
    mine, theirs = np.asarray(mine, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if mine.shape != theirs.shape or mine.ndim != 1:
        raise RunError(f"A paired comparison needs the same samples, not {mine.shape} and {theirs.shape}.")
    difference = 100 * (mine - theirs)
    interval = bootstrap_interval(difference, resamples=resamples, level=level, seed=seed)
    return float(difference.mean()), interval
