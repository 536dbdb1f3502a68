"""Qwen2.5-VL of any shape with random weights: time and memory depend on the shapes alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from PIL import Image

from lad.calibration import Calibration, fit_calibration
from lad.identifiers import log_softmax, make_identifiers
from lad.model.loading import Checkpoint, shipped_model
from lad.model.probe import IMPLEMENTATION, register
from lad.model.vlm import VisionLanguageModel
from lad.observations import Observations
from lad.prompts import MATCHING
from lad.samples import Sample, cyclic_orders

_MARKS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")

CELL = 28
"""Pixels, on each side, that become one token."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a Qwen2.5-VL.

    Attributes:
        name: what reports call it.
        hidden: width of the text decoder.
        intermediate: width of its feed-forward layers.
        layers: its depth.
        heads: its query heads.
        groups: its key and value heads.
        vocabulary: its tokens.
        vision_hidden: width of the vision tower.
        vision_intermediate: width of its feed-forward layers.
        vision_layers: its depth.
        vision_heads: its heads.
    """

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    groups: int
    vocabulary: int
    vision_hidden: int
    vision_intermediate: int
    vision_layers: int
    vision_heads: int

    def with_layers(self, text: int, vision: int) -> Shape:
        """The same with fewer layers."""
        return replace(self, layers=text, vision_layers=vision, name=f"{self.name}, {text}+{vision} layers")


QWEN_3B = Shape("Qwen2.5-VL-3B shapes", 2048, 11008, 36, 16, 2, 151936, 1280, 3420, 32, 16)
QWEN_7B = Shape("Qwen2.5-VL-7B shapes", 3584, 18944, 28, 28, 4, 152064, 1280, 3420, 32, 16)
MIDDLE = Shape("middle shapes", 768, 2048, 4, 12, 2, 8192, 384, 1024, 4, 6)
SMALL = Shape("small shapes", 64, 128, 3, 4, 2, 1024, 32, 64, 2, 2)


def random_vlm(
    shape: Shape, *, device: torch.device, dtype: torch.dtype, image_size: tuple[int, int] = (336, 336)
) -> VisionLanguageModel:
    """A model of these sizes, with the shipped model's tokenizer and chat template.

    Args:
        shape: the sizes.
        device: where to make it.
        dtype: of its weights.
        image_size: width and height of images, multiples of 28; every 28 x 28 pixels are a token.
    """
    from transformers import AutoModelForImageTextToText, AutoProcessor, Qwen2_5_VLConfig, Qwen2VLImageProcessor

    register()
    processor = AutoProcessor.from_pretrained(shipped_model())
    processor.image_processor = Qwen2VLImageProcessor(
        patch_size=CELL // 2, merge_size=2, size={"shortest_edge": CELL * CELL, "longest_edge": 4096 * CELL * CELL}
    )
    tokenizer = processor.tokenizer
    size = shape.hidden // shape.heads
    ids = tokenizer.convert_tokens_to_ids(["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"])
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": max(shape.vocabulary, len(tokenizer)),
            "hidden_size": shape.hidden,
            "intermediate_size": shape.intermediate,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.groups,
            "max_position_embeddings": 128000,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                # the published 16, 24, 24 of 64, at any size of head
                "mrope_section": [size // 8, size // 2 - size // 8 - 3 * size // 16, 3 * size // 16],
            },
            "pad_token_id": tokenizer.pad_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "bos_token_id": None,
        },
        vision_config={
            "depth": shape.vision_layers,
            "hidden_size": shape.vision_hidden,
            "intermediate_size": shape.vision_intermediate,
            "num_heads": shape.vision_heads,
            "out_hidden_size": shape.hidden,
            # every eighth layer, or the last, looks at the whole image, as published
            "fullatt_block_indexes": list(range(7, shape.vision_layers, 8)) or [shape.vision_layers - 1],
        },
        **dict(zip(_MARKS, ids, strict=True)),
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model: Any = AutoModelForImageTextToText.from_config(
            config, dtype=dtype, attn_implementation={"text_config": IMPLEMENTATION}
        )
    return VisionLanguageModel(Checkpoint(model.eval(), processor, shape.name, "random"), image_size=image_size)


@contextmanager
def attention(vlm: VisionLanguageModel, name: str) -> Iterator[None]:
    """The text decoder with another of transformers' attention functions, "sdpa" or "eager".

    The name is all that is changed, so that switching takes no time that would count against either.
    """
    config = vlm.model.config.get_text_config()
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = IMPLEMENTATION


def picture(number: int, size: tuple[int, int]) -> Image.Image:
    """A picture of noise, another one for each number."""
    rng = np.random.default_rng(number)
    return Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


def noise_samples(vlm: VisionLanguageModel, count: int, candidates: int, *, first: int = 0) -> list[Sample]:
    """Labelled samples of noise pictures at the model's size, no two pictures alike."""
    size = vlm.image_size
    if isinstance(size, str):
        raise ValueError("noise is made at a fixed image size")
    return [
        Sample(
            caption=f"a picture of {first + index} things",
            images=tuple(picture((first + index) * candidates + place, size) for place in range(candidates)),
            answer=index % candidates,
            id=str(first + index),
        )
        for index in range(count)
    ]


def random_calibration(vlm: VisionLanguageModel, candidates: int) -> Calibration:
    """A calibration of the right shape: what a decision costs does not depend on the numbers in it."""
    rng = np.random.default_rng(0)
    rows = 5 * candidates
    observations = Observations(
        log_probs=log_softmax(rng.normal(size=(rows, candidates))),
        attention=rng.uniform(0.01, 1, size=(rows, vlm.depth, candidates)),
        orders=np.tile(cyclic_orders(candidates), (5, 1)),
        answers=np.repeat(np.arange(5) % candidates, candidates),
        samples=tuple(str(row // candidates) for row in range(rows)),
    )
    return fit_calibration(observations, vlm.identity(MATCHING, make_identifiers("digits", candidates)))
