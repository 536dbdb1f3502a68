"""Observations of invented models: content, a planted bias, attention that knows the answer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lad.identifiers import log_softmax
from lad.observations import Observations
from lad.samples import cyclic_orders


def make_observations(
    seed: int,
    *,
    samples: int = 40,
    count: int = 4,
    noise: float = 0.0,
    signal: float = 2.0,
    bias: NDArray[np.float64] | None = None,
    name: str = "s",
) -> Observations:
    """Samples under all cyclic shifts.

    Args:
        seed: of everything drawn.
        samples: how many.
        count: N.
        noise: of scores, anew in each observation.
        signal: score of the answer above that of other images.
        bias: (N, N) added to the scores, row = true position; None for none.
        name: of the samples.
    """
    rng = np.random.default_rng([seed, samples])
    answers = rng.integers(count, size=samples)
    content = rng.normal(size=(samples, count)) * 0.3 + signal * (np.arange(count) == answers[:, None])
    orders = np.tile(cyclic_orders(count), (samples, 1))
    owners = np.repeat(np.arange(samples), count)
    scores = np.take_along_axis(content[owners], orders, axis=1)
    positions = (orders == answers[owners][:, None]).argmax(axis=1)
    if bias is not None:
        scores = scores + bias[positions]
    scores = scores + noise * rng.normal(size=scores.shape)
    # two layers that know nothing, and one that knows the answer
    attention = rng.uniform(0.01, 0.03, size=(len(orders), 3, count))
    attention[np.arange(len(orders)), 2, positions] += 0.3
    return Observations(
        log_softmax(scores), attention, orders, answers[owners], tuple(f"{name}{index}" for index in owners)
    )
