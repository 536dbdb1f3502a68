"""Tiny checkpoints of families that can cut images into tiles: from Idefics3 and SmolVLM to Molmo2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import (
    AyaVisionConfig,
    AyaVisionProcessor,
    Cohere2VisionConfig,
    Cohere2VisionImageProcessor,
    Cohere2VisionProcessor,
    GotOcr2ImageProcessor,
    Idefics3Config,
    Idefics3ImageProcessor,
    Idefics3Processor,
    Lfm2VlConfig,
    Lfm2VlImageProcessor,
    Lfm2VlProcessor,
    Molmo2Config,
    Molmo2ImageProcessor,
    Molmo2Processor,
    Molmo2VideoProcessor,
    Ovis2Config,
    Ovis2ImageProcessor,
    Ovis2Processor,
    SmolVLMConfig,
    SmolVLMImageProcessor,
    SmolVLMProcessor,
    SmolVLMVideoProcessor,
)

from tests.model.checkpoints.parts import byte_level, save, text_config, turns

_CHAT = ("<|user|>", "<|assistant|>")
_SHAPES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 7,
}
_SIZE = {"height": 28, "width": 28}


def _text(tokenizer: Any, kind: str, **changes: Any) -> dict[str, Any]:
    return {"model_type": kind, **text_config(tokenizer, **changes)}


def _splitting() -> tuple[str, ...]:
    places = tuple(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))
    return ("<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>", *places, *_CHAT)


def idefics3(folder: Path) -> Path:
    tokenizer = byte_level(_splitting())
    config = Idefics3Config(
        text_config=_text(tokenizer, "llama"),
        vision_config=_SHAPES,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
    )
    processor = Idefics3Processor(
        Idefics3ImageProcessor(size={"longest_edge": 56}, max_image_size={"longest_edge": 28}),
        tokenizer,
        image_seq_len=4,
        chat_template=turns("<image>"),
    )
    return save(folder, config, processor)


def smolvlm(folder: Path) -> Path:
    tokenizer = byte_level((*_splitting(), "<video>"))
    config = SmolVLMConfig(
        text_config=_text(tokenizer, "llama"),
        vision_config=_SHAPES,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
    )
    processor = SmolVLMProcessor(
        SmolVLMImageProcessor(size={"longest_edge": 56}, max_image_size={"longest_edge": 28}),
        tokenizer,
        SmolVLMVideoProcessor(),
        image_seq_len=4,
        chat_template=turns("<image>"),
    )
    return save(folder, config, processor)


def aya_vision(folder: Path) -> Path:
    """With Cohere2 as its text model: sliding windows in three layers of four."""
    special = ("<image>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>", *_CHAT)
    tokenizer = byte_level((*special, "TILE", "TILE_GLOBAL"))
    config = AyaVisionConfig(
        text_config=_text(tokenizer, "cohere2", sliding_window=48),
        vision_config={"model_type": "siglip_vision_model", **_SHAPES, "vision_use_head": False},
        image_token_index=tokenizer.convert_tokens_to_ids("<|IMG_PATCH|>"),
        downsample_factor=2,
    )
    processor = AyaVisionProcessor(
        GotOcr2ImageProcessor(size=_SIZE),
        tokenizer,
        patch_size=7,
        img_size=28,
        downsample_factor=2,
        chat_template=turns("<image>"),
    )
    return save(folder, config, processor)


def cohere2_vision(folder: Path) -> Path:
    """Sliding windows in three layers of four."""
    tokenizer = byte_level(
        _CHAT,
        boi_token="<|START_OF_IMG|>",
        eoi_token="<|END_OF_IMG|>",
        image_token="<|IMG_PATCH|>",
        img_line_break_token="<|IMG_LINE_BREAK|>",
    )
    config = Cohere2VisionConfig(
        text_config=_text(tokenizer, "cohere2", sliding_window=48),
        vision_config={"model_type": "siglip_vision_model", **_SHAPES, "vision_use_head": False},
        image_token_id=tokenizer.convert_tokens_to_ids("<|IMG_PATCH|>"),
        alignment_intermediate_size=64,
        downsample_factor=2,
    )
    processor = Cohere2VisionProcessor(
        Cohere2VisionImageProcessor(size=_SIZE, patch_size=2), tokenizer, chat_template=turns("<|IMG_PATCH|>")
    )
    return save(folder, config, processor)


def ovis2(folder: Path) -> Path:
    indicators = ("<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>")
    tokenizer = byte_level(("<image>", "<IMG_ATOM>", *indicators, *_CHAT))
    config = Ovis2Config(
        text_config=_text(tokenizer, "qwen2"),
        vision_config={**_SHAPES, "vocab_size": 64, "hidden_stride": 2},
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_ATOM>"),
        visual_indicator_token_ids=tokenizer.convert_tokens_to_ids(list(indicators)),
        vocab_size=len(tokenizer),
        hidden_size=32,
    )
    processor = Ovis2Processor(
        Ovis2ImageProcessor(size=_SIZE), tokenizer, image_seq_length=4, chat_template=turns("<image>\n")
    )
    return save(folder, config, processor)


def lfm2_vl(folder: Path) -> Path:
    """A hybrid: one layer in two has attention, the others are convolutions."""
    places = tuple(f"<|img_row_{row}_col_{column}|>" for row in range(1, 5) for column in range(1, 5))
    tokenizer = byte_level(
        (*places, *_CHAT),
        image_token="<image>",
        image_start_token="<|image_start|>",
        image_end_token="<|image_end|>",
        image_thumbnail="<|img_thumbnail|>",
    )
    shapes = {name: value for name, value in _SHAPES.items() if name != "image_size"}
    config = Lfm2VlConfig(
        text_config=_text(
            tokenizer, "lfm2", layer_types=["conv", "full_attention"] * 2, block_auto_adjust_ff_dim=False
        ),
        vision_config={"model_type": "siglip2_vision_model", **shapes, "num_patches": 64, "vision_use_head": False},
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        projector_hidden_size=48,
    )
    processor = Lfm2VlProcessor(
        Lfm2VlImageProcessor(
            encoder_patch_size=7, tile_size=28, min_image_tokens=1, max_image_tokens=4, size=_SIZE, max_tiles=4
        ),
        tokenizer,
        chat_template=turns("<image>"),
    )
    return save(folder, config, processor)


def molmo2(folder: Path) -> Path:
    """Its features are added to the placeholders' embeddings, and all images see each other."""
    special = ("<im_patch>", "<im_col>", "<im_start>", "<low_res_im_start>", "<frame_start>", "<im_end>")
    tokenizer = byte_level(
        (*special, "<frame_end>", "<im_low>", *_CHAT), image_token="<|image|>", video_token="<|video|>"
    )
    token = tokenizer.convert_tokens_to_ids
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    config = Molmo2Config(
        text_config=text_config(tokenizer, additional_vocab_size=8),
        vision_config={"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, **heads}
        | {"image_size": [28, 28], "patch_size": 7},
        adapter_config={"vision_feature_layer": [-1, -2], "hidden_size": 32, **heads}
        | {"intermediate_size": 48, "text_hidden_size": 32},
        image_start_token_id=token("<im_start>"),
        low_res_image_start_token_id=token("<low_res_im_start>"),
        image_end_token_id=token("<im_end>"),
        image_patch_id=token("<im_patch>"),
        frame_start_token_id=token("<frame_start>"),
        frame_end_token_id=token("<frame_end>"),
    )
    processor = Molmo2Processor(
        Molmo2ImageProcessor(size=_SIZE, patch_size=7, overlap_margins=[0, 0], max_crops=4),
        Molmo2VideoProcessor(),
        tokenizer,
        chat_template=turns("<|image|>"),
    )
    return save(folder, config, processor)
