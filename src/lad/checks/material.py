"""What the checks run on: three pictures, two captions, and one pass of ours with everything in it kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from PIL import Image

from lad.checks.reference import Reference
from lad.checks.result import Tolerances
from lad.identifiers import make_identifiers
from lad.images import image_digest
from lad.model.features import EncodedImage
from lad.model.probe import Collector
from lad.model.scoring import collate, prefill
from lad.model.tokenized import TokenizedPrompt
from lad.model.vlm import VisionLanguageModel
from lad.prompts import MATCHING

SHORT = "a red square"
LONG = "a small red square that stands to the left of two blue circles, and nothing else at all"
_SIDE = 224


class RowCollector(Collector):
    """Keeps whole rows, so that they can be compared key by key."""

    def __init__(self, like: Collector) -> None:
        super().__init__(like.segments, like.count, like.layers)
        self.rows: dict[int, torch.Tensor] = {}

    def add(self, layer: int, row: torch.Tensor, visible: torch.Tensor | None = None) -> None:
        """See :meth:`Collector.add`."""
        super().add(layer, row, visible)
        self.rows[layer] = row


class Material:
    """Pictures, prompts and passes that several checks share.

    Args:
        vlm: the model to check.
    """

    def __init__(self, vlm: VisionLanguageModel) -> None:
        self.vlm = vlm
        self.reference = Reference(vlm)
        self.tolerances = Tolerances.of(vlm.model.dtype, vlm.device)
        self.identifiers = make_identifiers("digits", 3)
        self.pictures = [vlm.prepare(picture(seed)) for seed in range(3)]
        self.encoded = self.encode(self.pictures)
        self.prompt = self.tokenize(SHORT, self.encoded)

    def encode(self, pictures: Sequence[Image.Image]) -> list[EncodedImage]:
        """Features of pictures that are at the model's size."""
        return self.vlm.encoder.encode(pictures, [image_digest(picture) for picture in pictures])

    def tokenize(
        self, caption: str, images: Sequence[EncodedImage], identifiers: Sequence[str] | None = None
    ) -> TokenizedPrompt:
        """The prompt of ours for these images in this order."""
        text = self.vlm.prompts.render(MATCHING, identifiers or self.identifiers, caption)
        return self.vlm.prompts.tokenize(text, images)

    def run(
        self, prompt: TokenizedPrompt, images: Sequence[EncodedImage], *, padding: int = 0, probe: bool = True
    ) -> tuple[torch.Tensor, RowCollector]:
        """One pass of ours: next-token logits (V,) in float32, and the rows of every layer."""
        batch = collate([prompt], self.vlm.pad_token, self.vlm.device, padding=padding)
        seen = self.vlm.encoder.prefill_inputs(batch.inputs["input_ids"], [images])
        collector = RowCollector(self.vlm.encoder.collector(batch.segments, [images]))
        output = prefill(self.vlm.model, batch, seen, collector if probe else None)
        return output.logits[0, -1].float(), collector

    @cached_property
    def passed(self) -> tuple[torch.Tensor, RowCollector]:
        """:meth:`run` of the three pictures in their order."""
        return self.run(self.prompt, self.encoded)

    @cached_property
    def plain(self) -> dict[str, torch.Tensor]:
        """The reference's inputs for the same."""
        return self.reference.inputs(SHORT, self.pictures, self.identifiers)


def picture(seed: int) -> Image.Image:
    """A picture of coarse coloured blocks, different for each seed."""
    blocks = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(blocks).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)


def gap(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest absolute difference; of logits, that of their log-probabilities says more."""
    return float((one.double() - other.double()).abs().max())


def score_gap(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference of log-probability among the tokens that either way gives at least e^-10."""
    first, second = one.double().log_softmax(-1), other.double().log_softmax(-1)
    return float((first - second).abs()[(first > -10) | (second > -10)].max())
