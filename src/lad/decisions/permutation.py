"""Permutation averaging: ask under several orders and let the biases cancel; as many passes as orders."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lad.decisions.ranks import borda_scores, kemeny_scores
from lad.errors import DecisionError
from lad.samples import to_candidates

Combination = Literal["log", "prob", "borda", "kemeny"]


def permutation_average(
    log_probs: NDArray[np.float64], orders: NDArray[np.int64], *, combine: Combination = "log"
) -> NDArray[np.float64]:
    """One score per candidate from S orders of the same candidates.

    With the N cyclic shifts, a cyclic shift of the candidates permutes the result; with all N! orders, any
    permutation does.

    Args:
        log_probs: (..., S, N) by position.
        orders: (..., S, N), or any shape that broadcasts to that.
        combine: "log" averages log-probabilities; "prob" probabilities, and gives the log of the mean; "borda" and
            "kemeny" average ranks, see :mod:`lad.decisions.ranks`.

    Returns:
        Shape (..., N), by candidate.

    Raises:
        DecisionError: shapes that do not fit, no orders, or an unknown way to combine.
    """
    if combine not in get_args(Combination):
        raise DecisionError(
            f"There is no way to combine orders called {combine!r}.",
            hint=f"Choose one of: {', '.join(get_args(Combination))}.",
        )
    shape = np.shape(log_probs)
    if len(shape) < 2 or shape[-2] == 0:
        raise DecisionError(f"Averaging needs log-probabilities of the shape (..., S, N) with S >= 1, not {shape}.")
    try:
        orders = np.broadcast_to(orders, shape)
    except ValueError as error:
        raise DecisionError(f"Orders of the shape {np.shape(orders)} do not fit log-probabilities {shape}.") from error
    votes = to_candidates(np.asarray(log_probs), orders)
    if combine == "borda":
        return borda_scores(votes)
    if combine == "kemeny":
        return kemeny_scores(votes)
    if combine == "prob":
        peaks = votes.max(axis=-2)
        return np.asarray(peaks + np.log(np.exp(votes - peaks[..., None, :]).mean(axis=-2)))
    return np.asarray(votes.mean(axis=-2))


def far_shifts(count: int) -> NDArray[np.int64]:
    """The N cyclic shifts, each as far as can be from those before it: 0, then N // 2, and so on.

    Far means circular distance; ties go to the smaller shift. An image is soon seen early, late and in the middle.
    """
    chosen = [0]
    while len(chosen) < count:
        rest = [shift for shift in range(count) if shift not in chosen]
        distances = [min(min(abs(s - c), count - abs(s - c)) for c in chosen) for s in rest]
        chosen.append(rest[int(np.argmax(distances))])
    return np.array(chosen, dtype=np.int64)
