"""How good the whole ranking is, not only its first place: recall@k, MRR and nDCG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lad.errors import RunError

RECALL_AT = (1, 2, 3, 5)
"""The k of recall@k; those below N are reported."""


@dataclass(frozen=True)
class RankingMetrics:
    """Figures of the rank of the one right candidate, means over samples and orders.

    Attributes:
        recall_at: k -> percent of queries whose answer is among the first k.
        mrr: mean reciprocal rank, 0 to 1.
        ndcg: mean normalised discounted cumulative gain, 0 to 1; with one right candidate 1 / log2(1 + rank).
    """

    recall_at: dict[int, float]
    mrr: float
    ndcg: float

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        recalls = {f"recall@{k}": value for k, value in self.recall_at.items()}
        return {**recalls, "mrr": self.mrr, "ndcg": self.ndcg}


def answer_ranks(scores: NDArray[np.float64], answers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rank of the answer, from 1, shape (S, T). Of equal scores the lower candidate ranks first, as in picks.

    Args:
        scores: (S, T, N) by candidate.
        answers: (S,).

    Raises:
        RunError: shapes that do not fit.
    """
    if scores.ndim != 3 or answers.shape != scores.shape[:1]:
        raise RunError(f"Scores must be (S, T, N) and answers (S,), not {scores.shape} and {answers.shape}.")
    right = np.take_along_axis(scores, answers[:, None, None], axis=2)
    lower = np.arange(scores.shape[2]) < answers[:, None, None]
    return np.asarray(1 + ((scores > right) | ((scores == right) & lower)).sum(axis=2), dtype=np.int64)


def ranking_metrics(scores: NDArray[np.float64], answers: NDArray[np.int64]) -> RankingMetrics:
    """All figures of scores (S, T, N) by candidate."""
    ranks = answer_ranks(scores, answers)
    return RankingMetrics(
        recall_at={k: float(100 * (ranks <= k).mean()) for k in RECALL_AT if k < scores.shape[2]},
        mrr=float((1 / ranks).mean()),
        ndcg=float((1 / np.log2(1 + ranks)).mean()),
    )
