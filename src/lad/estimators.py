"""The estimates that a calibration is made of (paper Eq. 1-5 and 7), as functions of plain arrays."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lad.identifiers import log_softmax

Average = Literal["log", "prob"]

ATTENTION_FLOOR = 1e-20
"""Attention below this counts as this, so that its logarithm is finite."""

EVIDENCE_TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0)
"""Temperatures at which a layer is scored; the best counts. A fixed one would punish layers that are
informative but too sure of themselves. They score layers only: decisions have a temperature of their own."""


def observed_profile(
    scores: NDArray[np.float64], positions: NDArray[np.int64], *, average: Average = "log"
) -> NDArray[np.float64]:
    """S (N, N): mean score of position j over the observations whose answer is at i (Eq. 1).

    Args:
        scores: (M, N) by position.
        positions: (M,) of the answers; every position at least once.
        average: "log" takes the mean of the scores, "prob" the log of the mean of their exponentials.
    """
    rows = []
    for position in range(scores.shape[1]):
        group = scores[positions == position]
        if average == "log":
            rows.append(group.mean(axis=0))
        else:
            peak = group.max(axis=0)
            rows.append(peak + np.log(np.exp(group - peak).mean(axis=0)))
    return np.stack(rows)


def visual_gain(profile: NDArray[np.float64]) -> float:
    """gamma = max over i, j != i of S[i, i] - S[i, j] (Eq. 3-4); never clamped."""
    margins = profile.diagonal()[:, None] - profile
    return float(margins[~np.eye(len(profile), dtype=bool)].max())


def conditional_bias(profile: NDArray[np.float64], gain: float) -> NDArray[np.float64]:
    """B = S - ideal (Eq. 5): the ideal profile has the mean of S, and ``gain`` more at the true position.

    The ideal is mean(S) - gain / N off the diagonal and gain more on it, as in the published code.
    """
    count = len(profile)
    ideal = profile.mean() - gain / count + gain * np.eye(count)
    return np.asarray(profile - ideal, dtype=np.float64)


def layer_evidence(
    attention: NDArray[np.float64], prior: NDArray[np.float64], positions: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How well each layer alone, purified, points at the answer.

    A layer's posterior is softmax over k of T (log a[l, k] - log p[l, k]); its score is the mean over the
    observations of the log-posterior of the true position, at the best T of :data:`EVIDENCE_TEMPERATURES`.

    Args:
        attention: (M, L, N).
        prior: (L, N).
        positions: (M,) of the answers.

    Returns:
        Scores (L,) and the temperatures (L,) that gave them. A layer without information scores -log N.
    """
    purified = floored_log(attention) - floored_log(prior)
    rows = np.arange(len(positions))
    by_temperature = np.stack(
        [log_softmax(t * purified)[rows, :, positions].mean(axis=0) for t in EVIDENCE_TEMPERATURES]
    )
    best = by_temperature.argmax(axis=0)
    return by_temperature.max(axis=0), np.array(EVIDENCE_TEMPERATURES)[best]


def floored_log(attention: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log of attention, with everything under :data:`ATTENTION_FLOOR` taken as the floor."""
    return np.asarray(np.log(np.maximum(attention, ATTENTION_FLOOR)), dtype=np.float64)
