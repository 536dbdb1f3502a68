"""PriDe as its authors have it: the prior of the positions, from a few samples asked under all cyclic shifts.

No labels are needed, and one prior serves all queries; unlike the bias matrix of AGD it knows no true position.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lad.errors import DecisionError
from lad.identifiers import log_softmax


def position_prior(log_probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The prior (N,): mean over samples of softmax over positions of the log-probabilities averaged over shifts.

    Args:
        log_probs: (K, N, N), by sample, cyclic shift and position.

    Returns:
        Probabilities (N,) that add up to 1.

    Raises:
        DecisionError: no samples, or not N shifts of N positions.
    """
    values = np.asarray(log_probs, dtype=np.float64)
    if values.ndim != 3 or len(values) == 0 or values.shape[1] != values.shape[2]:
        raise DecisionError(
            f"A position prior is made from log-probabilities (K, N, N) of the N cyclic shifts, not {values.shape}."
        )
    return np.asarray(np.exp(log_softmax(values.mean(axis=1))).mean(axis=0))


def without_prior(log_probs: NDArray[np.float64], prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores (..., N) by position: log-probabilities minus the log of the prior (N,).

    Raises:
        DecisionError: the prior is not N positive numbers.
    """
    prior = np.asarray(prior, dtype=np.float64)
    if prior.shape != (np.shape(log_probs)[-1],) or not (np.isfinite(prior).all() and (prior > 0).all()):
        raise DecisionError(f"A position prior must be {np.shape(log_probs)[-1]} positive numbers.")
    return np.asarray(log_probs - np.log(prior / prior.sum()))
