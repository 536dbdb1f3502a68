"""Tiny checkpoints of Gemma 3, Gemma 4 and PaliGemma: images attend in both directions; and mllama: images as keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import (
    Gemma3Config,
    Gemma3ImageProcessor,
    Gemma3Processor,
    Gemma4AudioFeatureExtractor,
    Gemma4Config,
    Gemma4ImageProcessor,
    Gemma4Processor,
    Gemma4VideoProcessor,
    MllamaConfig,
    MllamaImageProcessor,
    MllamaProcessor,
    PaliGemmaConfig,
    PaliGemmaProcessor,
    SiglipImageProcessor,
)

from tests.model.checkpoints.parts import byte_level, save, sentence_piece, text_config, turns

_SHAPES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 7,
}
_SIZE = {"height": 28, "width": 28}
_GEMMA = {"before": "<start_of_turn>user\n", "after": "<end_of_turn>\n", "answer": "<start_of_turn>model\n"}


def _text(tokenizer: Any, kind: str, **changes: Any) -> dict[str, Any]:
    return {"model_type": kind, **text_config(tokenizer, **changes)}


def gemma3(folder: Path) -> Path:
    """Sliding windows in all layers but one."""
    tokenizer = sentence_piece(
        ("<start_of_turn>", "<end_of_turn>"),
        boi_token="<start_of_image>",
        eoi_token="<end_of_image>",
        image_token="<image_soft_token>",
    )
    token = tokenizer.convert_tokens_to_ids
    layers = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    config = Gemma3Config(
        text_config=_text(tokenizer, "gemma3_text", sliding_window=40, layer_types=layers),
        vision_config={"model_type": "siglip_vision_model", **_SHAPES, "vision_use_head": False},
        mm_tokens_per_image=4,
        boi_token_index=token("<start_of_image>"),
        eoi_token_index=token("<end_of_image>"),
        image_token_index=token("<image_soft_token>"),
    )
    processor = Gemma3Processor(
        Gemma3ImageProcessor(size=_SIZE),
        tokenizer,
        image_seq_length=4,
        chat_template="{{- bos_token }}" + turns("<start_of_image>", **_GEMMA),
    )
    return save(folder, config, processor)


def gemma4(folder: Path) -> Path:
    """Sliding windows, keys and values shared between layers, inputs per layer, two sizes of head."""
    tokenizer = sentence_piece(
        ("<start_of_turn>", "<end_of_turn>", "<|video|>"),
        boi_token="<|image>",
        eoi_token="<image|>",
        image_token="<|image|>",
        audio_token="<|audio|>",
        boa_token="<|audio>",
        eoa_token="<audio|>",
    )
    token = tokenizer.convert_tokens_to_ids
    layers = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    config = Gemma4Config(
        text_config=_text(
            tokenizer,
            "gemma4_text",
            sliding_window=40,
            layer_types=layers,
            num_kv_shared_layers=2,
            global_head_dim=16,
            vocab_size_per_layer_input=len(tokenizer),
            hidden_size_per_layer_input=8,
            use_bidirectional_attention="vision",
        ),
        vision_config={**_SHAPES, "num_key_value_heads": 2, "head_dim": 16, "pooling_kernel_size": 3}
        | {"position_embedding_size": 64},
        audio_config=None,
        boi_token_id=token("<|image>"),
        eoi_token_id=token("<image|>"),
        image_token_id=token("<|image|>"),
        video_token_id=token("<|video|>"),
        audio_token_id=token("<|audio|>"),
        boa_token_id=token("<|audio>"),
        eoa_token_index=token("<audio|>"),
    )
    processor = Gemma4Processor(
        Gemma4AudioFeatureExtractor(),
        Gemma4ImageProcessor(patch_size=7, max_soft_tokens=70),
        tokenizer,
        Gemma4VideoProcessor(patch_size=7),
        chat_template="{{- bos_token }}" + turns("<|image|>", **_GEMMA),
    )
    return save(folder, config, processor)


def _paligemma(folder: Path, kind: str, **changes: Any) -> Path:
    tokenizer = sentence_piece(("<image>",), bos=False)
    processor = PaliGemmaProcessor(SiglipImageProcessor(size=_SIZE, image_seq_length=16), tokenizer)
    processor.image_processor.image_seq_length = 16
    config = PaliGemmaConfig(
        text_config=_text(tokenizer, kind, **changes),
        vision_config={"model_type": "siglip_vision_model", **_SHAPES, "projection_dim": 32, "vision_use_head": False},
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        projection_dim=32,
        pad_token_id=tokenizer.pad_token_id,
    )
    return save(folder, config, processor)


def paligemma(folder: Path) -> Path:
    """The first version, on Gemma. No chat template, as in the real checkpoints."""
    return _paligemma(folder, "gemma")


def paligemma2(folder: Path) -> Path:
    """The second version, on Gemma 2: attention scores with a soft cap, sliding windows in every other layer."""
    return _paligemma(folder, "gemma2", sliding_window=64, query_pre_attn_scalar=8)


def mllama(folder: Path) -> Path:
    """Two layers of five attend to the images and to nothing else."""
    tokenizer = byte_level(("<|image|>", "<|python_tag|>", "<|user|>", "<|assistant|>"))
    ratios = [[1, 1], [1, 2], [2, 1]]
    config = MllamaConfig(
        text_config=text_config(tokenizer, num_hidden_layers=5, cross_attention_layers=[1, 3]),
        vision_config={
            **_SHAPES,
            "attention_heads": 2,
            "patch_size": 14,
            "num_global_layers": 1,
            "max_num_tiles": 2,
            "supported_aspect_ratios": ratios,
            "intermediate_layers_indices": [0],
            "vision_output_dim": 64,
        },
        image_token_index=tokenizer.convert_tokens_to_ids("<|image|>"),
    )
    processor = MllamaProcessor(
        MllamaImageProcessor(size=_SIZE, max_image_tiles=2),
        tokenizer,
        chat_template="{{- bos_token }}" + turns("<|image|>"),
    )
    return save(folder, config, processor)
