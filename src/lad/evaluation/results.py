"""From a method's picks to its figures, and to comparisons between methods."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lad.atomic import write_files
from lad.errors import RunError
from lad.evaluation.methods import MethodSpec, Outcome
from lad.evaluation.metrics import Metrics, compute_metrics
from lad.evaluation.ranking import RankingMetrics, ranking_metrics
from lad.evaluation.statistics import MetricIntervals, metric_intervals, resampled_means


@dataclass(frozen=True, eq=False)
class MethodResult:
    """One method's figures.

    Attributes:
        method: its label.
        samples: how many samples they rest on.
        metrics: the figures.
        intervals: 95% bootstrap intervals over samples.
        spec: the method with its options.
        ranking: figures of the whole ranking, or None where the method gives none.
        tokens: tokens written, mean per query.
        facts: what else the method tells.
        picks: (S, T), candidates; -1 where a text held none.
        hits: (S,), share of the T orders in which the pick was right.
    """

    method: str
    samples: int
    metrics: Metrics
    intervals: MetricIntervals
    spec: MethodSpec
    ranking: RankingMetrics | None
    tokens: float
    facts: Mapping[str, Any]
    picks: NDArray[np.int64]
    hits: NDArray[np.float64]

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values; what a metrics file holds."""
        return {
            "method": self.method,
            "name": self.spec.name,
            "options": {key: value for key, value in self.spec.options.items() if value is not None},
            "needs": self.spec.method.needs,
            "samples": self.samples,
            **self.metrics.as_dict(),
            "tokens": self.tokens,
            "ranking": None if self.ranking is None else self.ranking.as_dict(),
            "accuracy_interval": list(self.intervals.accuracy),
            "rstd_interval": None if self.intervals.rstd is None else list(self.intervals.rstd),
            "consistency_interval": list(self.intervals.consistency),
            "facts": dict(self.facts),
        }


def measure(spec: MethodSpec, outcome: Outcome, answers: NDArray[np.int64], orders: NDArray[np.int64]) -> MethodResult:
    """Figures and intervals of a method.

    Args:
        spec: the method.
        outcome: its picks (S, T).
        answers: (S,).
        orders: (T, N).
    """
    return MethodResult(
        method=spec.label,
        samples=len(outcome.picks),
        metrics=compute_metrics(outcome.picks, answers, orders, passes=outcome.passes),
        intervals=metric_intervals(outcome.picks, answers, orders),
        spec=spec,
        ranking=None if outcome.scores is None else ranking_metrics(outcome.scores, answers),
        tokens=outcome.tokens,
        facts=outcome.facts,
        picks=outcome.picks,
        hits=(outcome.picks == answers[:, None]).mean(axis=1),
    )


def compare(results: Sequence[MethodResult], *, resamples: int = 1000) -> list[dict[str, Any]]:
    """Accuracy of every method minus every later one's, paired by sample, with 95% bootstrap intervals.

    Methods measured on different numbers of samples are compared on those they share, the first ones. The intervals are
    those of :func:`lad.evaluation.statistics.paired_difference`.
    """
    pairs = list(combinations(results, 2))
    rows: list[dict[str, Any]] = [{} for _ in pairs]
    shared = [min(one.samples, other.samples) for one, other in pairs]
    for number in sorted(set(shared)):
        chosen = [index for index, count in enumerate(shared) if count == number]
        differences = np.stack(
            [100 * (a.hits[:number] - b.hits[:number]) for a, b in (pairs[i] for i in chosen)], axis=1
        )
        means = resampled_means(differences, resamples=resamples, seed=0)
        low, high = np.percentile(means, [2.5, 97.5], axis=0)
        for column, index in enumerate(chosen):
            one, other = pairs[index]
            rows[index] = {
                "method": one.method,
                "against": other.method,
                "samples": number,
                "difference": float(differences[:, column].mean()),
                "interval": [float(low[column]), float(high[column])],
            }
    return rows


def write_json(file: Path, value: object) -> None:
    """Write a JSON document, whole or not at all; the same value gives the same bytes.

    Raises:
        RunError: it cannot be written.
    """
    try:
        write_files({file: (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()})
    except OSError as error:
        raise RunError(f"Cannot be written ({error.strerror or error}).", where=str(file)) from error
