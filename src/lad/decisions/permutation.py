"""Permutation averaging: ask under several orders and let the biases cancel; N times the cost or more."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lad.errors import DecisionError
from lad.samples import to_candidates


def permutation_average(log_probs: NDArray[np.float64], orders: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean log-probability of each candidate over S orders of the same candidates.

    With the N cyclic shifts, a cyclic shift of the candidates permutes the result; with all N! orders, any
    permutation does.

    Args:
        log_probs: (..., S, N) by position.
        orders: (..., S, N), or any shape that broadcasts to that.

    Returns:
        Shape (..., N), by candidate.

    Raises:
        DecisionError: shapes that do not fit, or no orders.
    """
    shape = np.shape(log_probs)
    if len(shape) < 2 or shape[-2] == 0:
        raise DecisionError(f"Averaging needs log-probabilities of the shape (..., S, N) with S >= 1, not {shape}.")
    try:
        orders = np.broadcast_to(orders, shape)
    except ValueError as error:
        raise DecisionError(f"Orders of the shape {np.shape(orders)} do not fit log-probabilities {shape}.") from error
    return np.asarray(to_candidates(np.asarray(log_probs), orders).mean(axis=-2))
