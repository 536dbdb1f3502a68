"""Tiny checkpoints of the families with multi-dimensional positions: Qwen2-VL, Qwen2.5-VL, Qwen3-VL, GLM-4V."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import (
    Glm4vConfig,
    Glm4vImageProcessor,
    Glm4vProcessor,
    Glm4vVideoProcessor,
    Qwen2_5_VLConfig,
    Qwen2_5_VLProcessor,
    Qwen2VLConfig,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from tests.model.checkpoints.parts import byte_level, save, text_config, turns

_QWEN = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|user|>", "<|assistant|>")
_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
_ROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}


def _ids(tokenizer: Any) -> dict[str, int]:
    names = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
    return dict(zip(names, tokenizer.convert_tokens_to_ids(list(_QWEN[:4])), strict=True))


def qwen2_vl(folder: Path) -> Path:
    tokenizer = byte_level(_QWEN)
    size = {"shortest_edge": 28 * 28, "longest_edge": 56 * 56}
    vision = {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2, "patch_size": 14}
    config = Qwen2VLConfig(
        text_config=text_config(tokenizer, rope_parameters=_ROPE), vision_config=vision, **_ids(tokenizer)
    )
    processor = Qwen2VLProcessor(
        Qwen2VLImageProcessor(size=size), tokenizer, Qwen2VLVideoProcessor(size=size), chat_template=turns(_IMAGE)
    )
    return save(folder, config, processor)


def qwen2_5_vl(folder: Path) -> Path:
    tokenizer = byte_level(_QWEN)
    size = {"shortest_edge": 28 * 28, "longest_edge": 56 * 56}
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "patch_size": 14,
        "window_size": 56,
        "out_hidden_size": 32,
        "fullatt_block_indexes": [1],
    }
    config = Qwen2_5_VLConfig(
        text_config=text_config(tokenizer, rope_parameters=_ROPE), vision_config=vision, **_ids(tokenizer)
    )
    processor = Qwen2_5_VLProcessor(
        Qwen2VLImageProcessor(size=size), tokenizer, Qwen2VLVideoProcessor(size=size), chat_template=turns(_IMAGE)
    )
    return save(folder, config, processor)


def qwen3_vl(folder: Path) -> Path:
    tokenizer = byte_level(_QWEN)
    size = {"shortest_edge": 32 * 32, "longest_edge": 64 * 64}
    vision = {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "patch_size": 16,
        "out_hidden_size": 32,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1],
    }
    config = Qwen3VLConfig(
        text_config=text_config(tokenizer, rope_parameters={**_ROPE, "mrope_interleaved": True}),
        vision_config=vision,
        **_ids(tokenizer),
    )
    processor = Qwen3VLProcessor(
        Qwen2VLImageProcessor(size=size, patch_size=16),
        tokenizer,
        Qwen3VLVideoProcessor(),
        chat_template=turns(_IMAGE),
    )
    return save(folder, config, processor)


def glm4v(folder: Path) -> Path:
    names = ("<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>", "<|image|>")
    tokenizer = byte_level((*names, "<|video|>", "<|user|>", "<|assistant|>"))
    size = {"shortest_edge": 2 * 28 * 28, "longest_edge": 2 * 56 * 56}
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "patch_size": 14,
        "image_size": 56,
        "out_hidden_size": 32,
    }
    token = tokenizer.convert_tokens_to_ids
    config = Glm4vConfig(
        text_config=text_config(tokenizer, rope_parameters={**_ROPE, "partial_rotary_factor": 1.0}),
        vision_config=vision,
        image_token_id=token("<|image|>"),
        video_token_id=token("<|video|>"),
        image_start_token_id=token("<|begin_of_image|>"),
        image_end_token_id=token("<|end_of_image|>"),
        video_start_token_id=token("<|begin_of_video|>"),
        video_end_token_id=token("<|end_of_video|>"),
    )
    template = turns("<|begin_of_image|><|image|><|end_of_image|>")
    processor = Glm4vProcessor(
        Glm4vImageProcessor(size=size), tokenizer, Glm4vVideoProcessor(size=size), chat_template=template
    )
    return save(folder, config, processor)
