"""One vision-language model, seen as a thing that observes."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from lad.calibration import CalibrationIdentity
from lad.errors import ModelError
from lad.images import image_digest, load_image
from lad.model.cross_attention import CrossAttentionEncoder
from lad.model.families import Family, family_of
from lad.model.features import EncodedImage, ImageEncoder
from lad.model.loading import Checkpoint, load_checkpoint
from lad.model.prompting import AttentionReduction, PromptBuilder
from lad.model.scoring import collate, decoder_depth, score
from lad.model.tokenized import Answers, TokenizedPrompt
from lad.prompts import PromptTemplate
from lad.samples import ImageSource, Sample

_ENCODERS: dict[str, type[ImageEncoder]] = {"tokens": ImageEncoder, "cross_attention": CrossAttentionEncoder}

PUBLISHED_SIDE = 336
"""Side of the images behind the published figures, in pixels."""


@dataclass(frozen=True)
class PreparedSample(Sample):
    """A sample whose images are read and at the model's size."""

    images: tuple[Image.Image, ...]

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """Content hash of each image."""
        return tuple(image_digest(image) for image in self.images)


class VisionLanguageModel:
    """A vision-language model that turns a caption and N images into an observation.

    Args:
        checkpoint: the loaded model.
        image_size: width and height in pixels that every image is resized to (bicubic); "native" leaves images to the
            model's own processor; "auto" is "native" where that gives a fixed number of tokens, and else the largest
            square up to 336 x 336 that the processor keeps.
        attention: which tokens count as an image, see :data:`lad.model.prompting.AttentionReduction`.
        tiling: let the processor cut images into tiles, where it does; "auto" then leaves images their size.
        cache_bytes: memory for image features that are kept for reuse.

    Raises:
        ModelError: the model lacks something that observing needs; the message says what.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        image_size: int | tuple[int, int] | str = "auto",
        attention: AttentionReduction = "span",
        tiling: bool = False,
        cache_bytes: int = 2**30,
    ) -> None:
        if attention not in ("span", "features"):
            raise ModelError(f"There is no attention reduction {attention!r}.", hint="Choose 'span' or 'features'.")
        self.model: Any = checkpoint.model
        self.processor: Any = checkpoint.processor
        self.name = checkpoint.name
        self.revision = checkpoint.revision
        self.attention: AttentionReduction = attention
        self.family = family_of(self.model.config.model_type)
        self.tiling = tiling
        self.image_size = _image_size(
            self.processor, "native" if tiling and image_size == "auto" else image_size, self.family
        )
        self.encoder = _ENCODERS[self.family.images](
            self.model, self.processor, self.family, tiling=tiling, cache_bytes=cache_bytes
        )
        self.prompts = PromptBuilder(self.model, self.processor, self.family, attention)
        tokenizer = self.processor.tokenizer
        self.pad_token: int = next(
            token for token in (tokenizer.pad_token_id, tokenizer.eos_token_id, 0) if token is not None
        )

    @classmethod
    def load(cls, source: str | os.PathLike[str] | None = None, **options: Any) -> VisionLanguageModel:
        """Load by hub name or folder; None for the model that comes with the package.

        Args:
            source: see :func:`lad.model.loading.load_checkpoint`.
            options: those of :func:`lad.model.loading.load_checkpoint` and of this class.
        """
        names = ("image_size", "attention", "tiling", "cache_bytes")
        own = {name: options.pop(name) for name in names if name in options}
        return cls(load_checkpoint(source, **options), **own)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device  # type: ignore[no-any-return]

    @property
    def depth(self) -> int:
        """How many layers the text decoder has; the L of observations."""
        return decoder_depth(self.model)

    @property
    def dtype(self) -> str:
        """Precision of the weights, for instance "float32"."""
        return str(self.model.dtype).removeprefix("torch.")

    def identity(self, template: PromptTemplate, identifiers: Sequence[str]) -> CalibrationIdentity:
        """All that a calibration made with this model depends on."""
        size = self.image_size if isinstance(self.image_size, str) else "{}x{}".format(*self.image_size)
        return CalibrationIdentity(
            model=self.name,
            revision=self.revision,
            prompt=template.digest,
            identifiers=tuple(identifiers),
            candidates=len(identifiers),
            image_size=f"{size}, tiles" if self.tiling else size,
            attention=self.attention,
        )

    def prepare(self, source: ImageSource, *, where: str | None = None) -> Image.Image:
        """Read an image and bring it to the model's size.

        Raises:
            ImageError: it cannot be read; ``where`` is named.
        """
        image = load_image(source, where=where)
        if not isinstance(self.image_size, str) and image.size != self.image_size:
            image = image.resize(self.image_size, Image.Resampling.BICUBIC)
        return image

    def prepare_sample(self, sample: Sample) -> PreparedSample:
        """The sample with all its images read and resized; a prepared sample is returned as it is.

        Raises:
            ImageError: an image cannot be read; the sample's id and the image's index are named.
        """
        if isinstance(sample, PreparedSample):
            return sample
        name = f"{sample.id}, " if sample.id else ""
        images = tuple(self.prepare(image, where=f"{name}image {k}") for k, image in enumerate(sample.images))
        return PreparedSample(sample.caption, images, sample.answer, sample.id)

    def encode(self, sample: PreparedSample) -> list[EncodedImage]:
        """Features of a sample's images; each distinct picture is encoded once."""
        return self.encoder.encode(sample.images, sample.digests)

    def prompt_length(
        self, caption: str, images: Sequence[EncodedImage], template: PromptTemplate, identifiers: Sequence[str]
    ) -> int:
        """Tokens of a prompt, images included."""
        return len(self.prompts.tokenize(self.prompts.render(template, identifiers, caption), images).tokens)

    def tokenize(
        self,
        captions: Sequence[str],
        images: Sequence[Sequence[EncodedImage]],
        template: PromptTemplate,
        identifiers: Sequence[str],
    ) -> tuple[list[TokenizedPrompt], Answers]:
        """The prompts of captions, ready to be answered, and how the identifiers are written after them.

        Args:
            captions: B captions.
            images: per caption, N encoded images in the order of their positions.
            template: the prompts' wording.
            identifiers: the N identifiers.
        """
        texts = [self.prompts.render(template, identifiers, caption) for caption in captions]
        answers = self.prompts.answers(texts[0], identifiers)
        prompts = [self.prompts.tokenize(text, row) for text, row in zip(texts, images, strict=True)]
        return [prompt.without_last(answers.joined) for prompt in prompts], answers

    def observe(
        self,
        captions: Sequence[str],
        images: Sequence[Sequence[EncodedImage]],
        template: PromptTemplate,
        identifiers: Sequence[str],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """One forward pass over a batch of prompts (paper Eq. 6 and App. B).

        Args:
            captions: B captions.
            images: per caption, N encoded images in the order of their positions.
            template: the prompt's wording.
            identifiers: the N identifiers.

        Returns:
            Candidate log-probabilities (B, N) and attention per layer and image (B, L, N), by position. Row l is layer
            l of the decoder; it is zero where that layer has no attention (hybrid models) or does not see every token
            of every image (sliding windows), and such a layer is never chosen.

        Raises:
            NumericsError: the model's values are not finite.
        """
        prompts, answers = self.tokenize(captions, images, template, identifiers)
        return score(self.model, self.encoder, collate(prompts, self.pad_token, self.device), images, answers.trie)


def _image_size(processor: Any, wanted: int | tuple[int, int] | str, family: Family) -> tuple[int, int] | str:
    if wanted == "native":
        return "native"
    if isinstance(wanted, int):
        wanted = (wanted, wanted)
    if isinstance(wanted, tuple):
        if len(wanted) != 2 or min(wanted) < 1:
            raise ModelError(f"The image size {wanted!r} is not a width and a height in pixels.")
        return wanted
    if wanted != "auto":
        raise ModelError(f"The image size {wanted!r} is not known.", hint="Give a number, 'native' or 'auto'.")
    image_processor = processor.image_processor
    if "image_grid_thw" not in processor.model_input_names:
        return (PUBLISHED_SIDE, PUBLISHED_SIDE) if family.shape_dependent else "native"
    factor = image_processor.patch_size * image_processor.merge_size
    side = min(PUBLISHED_SIDE, math.isqrt(int(image_processor.size["longest_edge"])))
    side = max(factor, side // factor * factor)
    return side, side
