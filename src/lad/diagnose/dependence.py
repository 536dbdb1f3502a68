"""Does what a model says depend on where the images stand? A test that is exact for models for which it does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lad.errors import RunError
from lad.observations import Observations
from lad.samples import to_candidates


@dataclass(frozen=True, eq=False)
class Dependence:
    """How scores depend on position, content taken off.

    Attributes:
        effect: (N, N), mean score at position j (column) when the answer is at i (row), in nats, beyond what the same
            images get elsewhere.
        strength: root mean square of the effect in nats, chance taken off; 0 if it is within chance.
        conditional: share of the effect's variance that depends on the true position, 0 to 1: what no single prior
            over positions can take off.
        p_value: how often chance alone gives an effect as large.
    """

    effect: NDArray[np.float64]
    strength: float
    conditional: float
    p_value: float


def position_dependence(observations: Observations, *, permutations: int = 999, seed: int = 0) -> Dependence:
    """Compare every image's scores at all positions.

    The effect has two parts, and each is compared with what chance leaves of it:

    * what depends on more than the distance between a position and the true one. If scores follow images, then the
      positions of a sample may be renamed at random without any consequence.
    * what depends on that distance alone ("the one after the right one"). If scores follow images, distances may be
      renamed, provided that the distractors of a sample stand in random order.

    The p-value is that of the clearer part, doubled for having looked at two.

    Args:
        observations: labelled samples, their distractors in random order, each observed under all N cyclic shifts.
        permutations: how many renamings of either kind.
        seed: of the renamings.

    Raises:
        RunError: a sample was not observed with its answer at each position exactly once.
    """
    by_place, by_distance = _residuals(observations)
    samples, count, _ = by_place.shape
    rng = np.random.default_rng(seed)
    rows = np.arange(samples)[:, None, None]

    def renamed_places() -> NDArray[np.float64]:
        names = rng.permuted(np.tile(np.arange(count), (samples, 1)), axis=1)
        return np.asarray(by_place[rows, names[:, :, None], names[:, None, :]].mean(axis=0))

    place, distance = by_place.mean(axis=0), by_distance.mean(axis=0)
    # how much of the matrix's mean square a distance makes up: it is in N of N * N cells
    parts = [
        (float((place**2).mean()), [float((renamed_places() ** 2).mean()) for _ in range(permutations)]),
        (
            float((distance**2).sum() / count),
            [float((rng.permuted(by_distance, axis=1).mean(axis=0) ** 2).sum() / count) for _ in range(permutations)],
        ),
    ]
    effect = place.copy()
    for offset in range(1, count):
        effect[np.arange(count), (np.arange(count) + offset) % count] += distance[offset - 1]
    size = float((effect**2).mean())
    between = float(((effect - effect.mean(axis=0)) ** 2).mean())
    return Dependence(
        effect=effect,
        strength=float(np.sqrt(max(0.0, sum(part - float(np.mean(chance)) for part, chance in parts)))),
        conditional=between / size if size > _ROUNDING else 0.0,
        p_value=min(1.0, 2 * min(_p_value(part, chance) for part, chance in parts)),
    )


_ROUNDING = 1e-20  # mean squares below this are rounding


def _p_value(size: float, by_chance: list[float]) -> float:
    """Share of renamings that give as much, the names as they are among them."""
    # a hair less than the size, so that rounding does not tell equal numbers apart
    least = size * (1 - 1e-9) - _ROUNDING
    return (1 + sum(value >= least for value in by_chance)) / (1 + len(by_chance))


def _residuals(observations: Observations) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scores without what belongs to the images, of each sample.

    Returns:
        (S, N, N): score at position j with the answer at i, minus the mean score of the image that stands there; and
        (S, N - 1): mean score of the distractor at each distance after the answer, minus that of all distractors.
    """
    count = observations.count
    index_of = {name: index for index, name in enumerate(dict.fromkeys(observations.samples))}
    owners = np.array([index_of[name] for name in observations.samples])
    positions = observations.answer_positions
    cells = owners * count + positions
    complete = len(observations) == len(index_of) * count and len(np.unique(cells)) == len(cells)
    if not complete or (positions < 0).any():
        raise RunError(
            "Every sample must be labelled and observed under all cyclic shifts, each once, to tell what position does."
        )
    rows = np.argsort(cells)
    scores = observations.log_probs[rows]
    # a constant of one observation means nothing
    scores = scores - scores.mean(axis=1, keepdims=True)
    orders = observations.orders[rows].reshape(-1, count, count)
    by_candidate = to_candidates(scores.reshape(orders.shape), orders)
    means = by_candidate.mean(axis=1, keepdims=True)
    by_place = np.take_along_axis(by_candidate - means, orders, axis=2)
    # under cyclic shifts, the image at a certain distance after the answer is always the same one
    answer_first = np.take_along_axis(means, orders[:, :1], axis=2)[:, 0]
    distractors = answer_first[:, 1:]
    return np.asarray(by_place), np.asarray(distractors - distractors.mean(axis=1, keepdims=True))
