"""Exact nearest neighbours under constraints, by matrix products over chunks of anchors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

CategoryRule = Literal["contains", "equals", "none"]
Vectors = NDArray[np.float32]

_CHUNK_BYTES = 2**25
_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Mined:
    """What was found for A anchors.

    Attributes:
        neighbors: (A, k) indices into the pool, the most similar first; -1 where there are no more.
        similarities: (A, k) cosine similarities to them; NaN where there are no more.
        eligible: (A,) how many pictures the constraints left.
    """

    neighbors: NDArray[np.int64]
    similarities: NDArray[np.float64]
    eligible: NDArray[np.int64]


class Categories:
    """Which pictures have which categories, for whole pools at once.

    Args:
        sets: the categories of each picture; empty where it has none.
    """

    def __init__(self, sets: Sequence[Iterable[str]]) -> None:
        self._sets = [frozenset(categories) for categories in sets]
        self._sizes = np.array([len(categories) for categories in self._sets], dtype=np.int64)
        places: dict[str, list[int]] = {}
        for index, categories in enumerate(self._sets):
            for category in categories:
                places.setdefault(category, []).append(index)
        self._places = {category: np.array(indices) for category, indices in places.items()}

    def excluded(self, anchor: int, rule: CategoryRule) -> NDArray[np.bool_]:
        """Which pictures (P,) may not stand beside ``anchor``: none where it has no categories."""
        categories = self._sets[anchor]
        if rule == "none" or not categories:
            return np.zeros(len(self._sets), dtype=bool)
        shared = np.zeros(len(self._sets), dtype=np.int64)
        for category in categories:
            shared[self._places[category]] += 1
        contains: NDArray[np.bool_] = shared == len(categories)
        return contains if rule == "contains" else contains & (self._sizes == len(categories))


def mine(
    images: Vectors,
    captions: Vectors,
    anchors: NDArray[np.int64],
    anchor_captions: Vectors,
    count: int,
    *,
    categories: Categories | None = None,
    rule: CategoryRule = "contains",
    caption_limit: float = 0.9,
) -> Mined:
    """The most similar images for each anchor among those that the constraints leave.

    Exact: products in float32 only narrow the choice, by more than their error can be; what is left is ranked by
    similarities in float64, each computed from its two vectors alone. So the result depends neither on the size of
    chunks nor on the linear algebra library. Of equally similar pictures the one with the lower index comes first.

    Args:
        images: (P, D) unit vectors of the pictures of the pool.
        captions: (P, E) unit vectors of their own captions.
        anchors: (A,) indices into the pool.
        anchor_captions: (A, E) unit vectors of the captions that the anchors are asked about with.
        count: k, how many neighbours.
        categories: of the pictures; None puts no constraint.
        rule: pictures whose categories "contains" or "equals" those of the anchor are left out, or "none".
        caption_limit: pictures whose own caption is as similar as this or more to the anchor's are left out.

    Returns:
        See :class:`Mined`.
    """
    pool = len(images)
    found = Mined(
        np.full((len(anchors), count), -1, dtype=np.int64),
        np.full((len(anchors), count), np.nan),
        np.zeros(len(anchors), dtype=np.int64),
    )
    rows = max(1, _CHUNK_BYTES // (4 * max(1, pool)))
    image_error, caption_error = _product_error(images), _product_error(captions)
    for start in range(0, len(anchors), rows):
        chosen = anchors[start : start + rows]
        alike = images[chosen] @ images.T
        told = anchor_captions[start : start + rows] @ captions.T
        for row, anchor in enumerate(chosen):
            excluded = told[row] >= caption_limit
            doubtful = np.flatnonzero(np.abs(told[row] - caption_limit) <= caption_error)
            excluded[doubtful] = similarities(captions, doubtful, anchor_captions[start + row]) >= caption_limit
            if categories is not None:
                excluded |= categories.excluded(int(anchor), rule)
            excluded[anchor] = True
            eligible = np.flatnonzero(~excluded)
            found.eligible[start + row] = len(eligible)
            best, values = _nearest(images, eligible, alike[row][eligible], images[anchor], count, image_error)
            found.neighbors[start + row, : len(best)] = best
            found.similarities[start + row, : len(best)] = values
    return found


def similarities(vectors: Vectors, indices: NDArray[np.int64], other: Vectors) -> NDArray[np.float64]:
    """Dot products in float64 of ``vectors[indices]`` with one vector (D,); equal vectors give equal values."""
    result = np.empty(len(indices))
    for start in range(0, len(indices), _ROWS):
        chosen = vectors[indices[start : start + _ROWS]].astype(np.float64)
        result[start : start + _ROWS] = (chosen * other.astype(np.float64)).sum(axis=1)
    return result


def _nearest(
    images: Vectors, eligible: NDArray[np.int64], rough: Vectors, anchor: Vectors, count: int, error: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The ``count`` best of ``eligible``, whose products ``rough`` are off by at most ``error``."""
    if len(eligible) > count:
        least = np.partition(rough, len(rough) - count)[len(rough) - count]
        eligible = eligible[rough >= least - 2 * error]
    exact = similarities(images, eligible, anchor)
    # eligible is in rising order, so a stable sort puts the lower index first
    best = np.argsort(-exact, kind="stable")[:count]
    return eligible[best], exact[best]


def _product_error(vectors: Vectors) -> float:
    """Bound on the error of a float32 dot product of two unit vectors (Higham 2002, section 3.1)."""
    return float(1.01 * vectors.shape[1] * np.finfo(np.float32).eps / 2)
