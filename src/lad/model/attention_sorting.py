"""Attention sorting (Peysakhovich and Lerer, 2023): put what is attended to most where it is read last, ask again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lad.model.observe import observe
from lad.model.vlm import VisionLanguageModel
from lad.observations import Observations
from lad.samples import Sample


def sorted_orders(observations: Observations) -> NDArray[np.int64]:
    """The orders (M, N) with the images of each observation sorted by attention, the most attended last.

    Attention is the mean over all layers; of equals, the one that stood earlier stays earlier.
    """
    ascending = np.argsort(observations.attention.mean(axis=1), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(observations.orders, ascending, axis=1))


def observe_sorted(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    orders: NDArray[np.integer],
    *,
    rounds: int = 2,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Observations:
    """Observe, sort by attention and observe again, ``rounds`` times.

    Args:
        vlm: the model.
        samples: S samples.
        orders: (T, N), where to begin.
        rounds: how often to sort; rounds + 1 passes a query.
        progress: called with the number of observations just made.
        options: those of :func:`lad.model.observe.observe`.

    Returns:
        The last S * T observations, in the orders that sorting led to.
    """
    shape = (len(samples), -1, np.shape(orders)[-1])
    seen = observe(vlm, samples, orders, progress=progress, **options)
    for _ in range(rounds):
        seen = observe(vlm, samples, sorted_orders(seen).reshape(shape), progress=progress, **options)
    return seen
