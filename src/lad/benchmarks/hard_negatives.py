"""Adversarial distractors: the most similar pictures that do not fit the caption as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lad.benchmarks.build import ProgressBar
from lad.benchmarks.embeddings import Encoders, Vectors
from lad.benchmarks.mining import Categories, CategoryRule, mine, similarities
from lad.benchmarks.pool import Picture, Pool
from lad.benchmarks.questions import Anchor, Question


@dataclass(frozen=True, eq=False)
class PoolVectors:
    """Unit vectors of a pool.

    Attributes:
        images: (P, D), of the pictures.
        captions: (P, E), of their own captions.
        encoders: what made them.
    """

    images: Vectors
    captions: Vectors
    encoders: Encoders

    def mean_similarity(self, questions: Sequence[Question]) -> float:
        """Mean cosine similarity of pictures between anchors and their distractors."""
        return float(
            np.mean(
                [
                    similarities(self.images, np.array(question.distractors), self.images[question.anchor]).mean()
                    for question in questions
                ]
            )
        )


def embed_pool(
    pool: Pool, digests: Sequence[str], captions: Sequence[Sequence[str]], encoders: Encoders, progress: ProgressBar
) -> PoolVectors:
    """Vectors of the pictures of a pool and of the first of their ``captions``."""
    with progress("Embedding pictures", len(pool.pictures)) as advance:
        images = encoders.embed_images([picture.image for picture in pool.pictures], digests, advance)
    with progress("Embedding captions", len(pool.pictures)) as advance:
        texts = encoders.embed_texts([own[0] for own in captions], advance)
    return PoolVectors(images, texts, encoders)


class HardNegatives:
    """The distractors of the adversarial setting, from the pictures of one split.

    Args:
        indices: the pictures of the split.
        pictures: of the pool.
        vectors: of the pool.
        rule: which categories exclude a picture, see :func:`lad.benchmarks.mining.mine`.
        caption_limit: similarity of captions that excludes a picture.
    """

    def __init__(
        self,
        indices: Sequence[int],
        pictures: Sequence[Picture],
        vectors: PoolVectors,
        rule: CategoryRule,
        caption_limit: float,
    ) -> None:
        self._indices: NDArray[np.int64] = np.array(indices, dtype=np.int64)
        self._place = {index: place for place, index in enumerate(indices)}
        self._images, self._captions = vectors.images[self._indices], vectors.captions[self._indices]
        self._encoders = vectors.encoders
        self._categories = Categories([pictures[index].categories for index in indices])
        self._rule, self._limit = rule, caption_limit

    def draw(self, anchors: Sequence[Anchor], count: int) -> list[tuple[int, ...] | None]:
        """The ``count`` nearest eligible pictures of each anchor, or None where fewer are eligible."""
        found = mine(
            self._images,
            self._captions,
            np.array([self._place[anchor.picture] for anchor in anchors], dtype=np.int64),
            self._encoders.embed_texts([anchor.caption for anchor in anchors]),
            count,
            categories=self._categories,
            rule=self._rule,
            caption_limit=self._limit,
        )
        return [tuple(int(self._indices[place]) for place in row) if row[-1] >= 0 else None for row in found.neighbors]
