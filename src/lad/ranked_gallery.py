"""Rank the same images by many captions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lad.model.gallery import Gallery
from lad.ranking import Ranking, rankings
from lad.samples import ImageSource, Sample

if TYPE_CHECKING:
    from lad.ranker import Ranker


class RankedGallery:
    """N images that a ranker has read; made by :meth:`lad.ranker.Ranker.gallery`.

    Args:
        ranker: its model, calibration, method and options are used.
        images: N images.

    Raises:
        LadError: an unreadable image, no calibration for N candidates, or a model whose images attend to the text.
    """

    def __init__(self, ranker: Ranker, images: Sequence[ImageSource]) -> None:
        self._ranker = ranker
        self._calibration = ranker.calibration_for(len(images))
        # the caption is of no account: only the images are prepared
        sample = ranker.vlm.prepare_sample(Sample("gallery", tuple(images)))
        self._digests = sample.digests
        self.kept = Gallery(
            ranker.vlm, ranker.vlm.encode(sample), template=ranker.template, identifiers=ranker.identifiers
        )
        """The images' keys and values."""

    def __len__(self) -> int:
        """N, the number of images."""
        return len(self.kept)

    def rank(self, caption: str) -> Ranking:
        """Rank the images by how well a caption describes them.

        Raises:
            PromptError: a caption that the model cannot take.
        """
        return self.rank_many([caption])[0]

    def rank_many(self, captions: Sequence[str]) -> list[Ranking]:
        """One ranking per caption, in order; captions of equal length share passes.

        Raises:
            PromptError: a caption that the model cannot take.
        """
        if not captions:
            return []
        seen = self.kept.observe(captions)
        digests = [self._digests] * len(captions)
        return rankings(seen, digests, self._calibration, self._ranker.method, self._ranker.options)
