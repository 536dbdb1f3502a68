"""From observations to each method's picks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lad.calibration import Calibration
from lad.decisions import RULES, DecisionOptions, decide, permutation_average, picks
from lad.errors import DecisionError
from lad.evaluation.metrics import Metrics, compute_metrics
from lad.evaluation.statistics import MetricIntervals, metric_intervals
from lad.observations import Observations

PERMUTATION_AVERAGE = "permutation_average"

METHODS: tuple[str, ...] = (*RULES, PERMUTATION_AVERAGE)
"""All methods that can be measured, in the order of tables."""


@dataclass(frozen=True, eq=False)
class MethodResult:
    """One method's figures.

    Attributes:
        method: its name.
        samples: how many samples they rest on.
        metrics: the figures.
        intervals: 95% bootstrap intervals over samples.
    """

    method: str
    samples: int
    metrics: Metrics
    intervals: MetricIntervals


def check_methods(methods: Sequence[str]) -> None:
    """Make sure that all methods exist.

    Raises:
        DecisionError: one does not.
    """
    for method in methods:
        if method not in METHODS:
            raise DecisionError(f"There is no method {method!r}.", hint=f"Choose among: {', '.join(METHODS)}.")


def rule_picks(
    method: str,
    observations: Observations,
    orders: NDArray[np.int64],
    calibration: Calibration | None,
    options: DecisionOptions,
) -> NDArray[np.int64]:
    """Picks (S, T) of a single-pass rule from S * T observations, the T orders of a sample in a row."""
    scores = decide(method, observations, calibration, options)
    return picks(scores, observations.orders).reshape(-1, len(orders))


def averaged_picks(observations: Observations, orders: int) -> NDArray[np.int64]:
    """Picks (S, T) of permutation averaging.

    Args:
        observations: S * T * P rows: for each sample and each of its T orders, P permutations of that order.
        orders: T.
    """
    samples = len(dict.fromkeys(observations.samples))
    shape = (samples, orders, -1, observations.count)
    averaged = permutation_average(observations.log_probs.reshape(shape), observations.orders.reshape(shape))
    return np.asarray(averaged.argmax(axis=-1), dtype=np.int64)


def measure(
    method: str, picked: NDArray[np.int64], answers: NDArray[np.int64], orders: NDArray[np.int64], passes: float
) -> MethodResult:
    """Figures and intervals of picks (S, T).

    Args:
        method: its name.
        picked: candidate indices.
        answers: (S,).
        orders: (T, N).
        passes: forward passes per query.
    """
    return MethodResult(
        method=method,
        samples=len(picked),
        metrics=compute_metrics(picked, answers, orders, passes=passes),
        intervals=metric_intervals(picked, answers, orders),
    )
