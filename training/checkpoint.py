"""The untrained model, its processor, and writing them as an ordinary checkpoint folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import torch
from transformers import (
    GenerationConfig,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2Tokenizer,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

from lad.benchmarks.scenes import SIDE
from training.tokenizer import IMAGE, PAD, TURN_END, VIDEO, VISION_END, VISION_START

TEXT_LAYERS = 6
HIDDEN = 128
TOKENS_PER_IMAGE = 4


def build_config(tokenizer: Qwen2Tokenizer) -> Qwen2_5_VLConfig:
    """The shapes: 2.1 million parameters, every vision block with full attention, 4 tokens an image."""
    token = tokenizer.convert_tokens_to_ids
    return Qwen2_5_VLConfig(
        text_config={
            "vocab_size": -(-len(tokenizer) // 8) * 8,
            "hidden_size": HIDDEN,
            "intermediate_size": 384,
            "num_hidden_layers": TEXT_LAYERS,
            # Two wide heads: rotary frequencies need room, four heads of 32 did not learn to attend by content.
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]},
            "bos_token_id": None,
            "eos_token_id": token(TURN_END),
            "pad_token_id": token(PAD),
            "initializer_range": 0.05,
        },
        vision_config={
            "depth": 3,
            "hidden_size": 96,
            "intermediate_size": 256,
            "num_heads": 3,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 112,
            "out_hidden_size": HIDDEN,
            "fullatt_block_indexes": [0, 1, 2],
            "initializer_range": 0.05,
        },
        image_token_id=token(IMAGE),
        video_token_id=token(VIDEO),
        vision_start_token_id=token(VISION_START),
        vision_end_token_id=token(VISION_END),
        tie_word_embeddings=False,
    )


def build_model(tokenizer: Qwen2Tokenizer, seed: int = 0) -> Qwen2_5_VLForConditionalGeneration:
    """The model with random weights, in float32."""
    torch.manual_seed(seed)
    model = Qwen2_5_VLForConditionalGeneration(build_config(tokenizer)).float()
    token = tokenizer.convert_tokens_to_ids
    model.generation_config = GenerationConfig(do_sample=False, eos_token_id=token(TURN_END), pad_token_id=token(PAD))
    return model


def build_processor(tokenizer: Qwen2Tokenizer) -> Qwen2_5_VLProcessor:
    """The processor: any picture becomes 56 x 56 pixels, or as near as its aspect ratio allows, 4 tokens."""
    size = {"shortest_edge": SIDE * SIDE, "longest_edge": SIDE * SIDE}
    return Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(size=size),
        chat_template=tokenizer.chat_template,
    )


def round_to_stored(model: Qwen2_5_VLForConditionalGeneration) -> None:
    """Round the weights, in place, to what the bfloat16 file holds, so that figures are of the stored model."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16().float())


def save_checkpoint(
    model: Qwen2_5_VLForConditionalGeneration, processor: Qwen2_5_VLProcessor, folder: str | os.PathLike[str]
) -> None:
    """Write weights (bfloat16), configuration, tokenizer, template and processor into a folder.

    Each file is written beside its place first and then moved there, so that a reader never sees half a file.
    Other files in the folder stay.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".checkpoint-", dir=target.parent))
    try:
        stored = Qwen2_5_VLForConditionalGeneration(model.config).to(torch.bfloat16)
        stored.load_state_dict(model.state_dict())
        stored.generation_config = model.generation_config
        stored.save_pretrained(staging)
        processor.save_pretrained(staging)
        for file in sorted(staging.iterdir()):
            file.chmod(0o644)
            file.replace(target / file.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
