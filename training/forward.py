"""Forward passes of the stock model, arranged for many small equal images.

The stock vision tower takes its images one after another, the stock text model returns either no attention or
all of it. These functions run the same modules with the same weights; tests hold them to the stock results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn
from transformers import AttentionInterface, Qwen2_5_VLForConditionalGeneration
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.vision_utils import get_vision_position_ids

from lad.benchmarks.scenes import SIDE
from training.batches import PromptBatch
from training.checkpoint import TOKENS_PER_IMAGE

_PATCH, _MERGE = 14, 2
_GRID = SIDE // _PATCH
_MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073])
_STD = torch.tensor([0.26862954, 0.26130258, 0.27577711])
_ATTENTION = "last_row_recorder"


def to_patches(images: NDArray[np.uint8]) -> torch.Tensor:
    """Pictures (n, 56, 56, 3) as normalised patches (n, 16, 588), in the processor's order, one frame each."""
    pixels = (torch.as_tensor(images).float() / 255 - _MEAN) / _STD
    blocks = _GRID // _MERGE
    cut = pixels.reshape(-1, blocks, _MERGE, _PATCH, blocks, _MERGE, _PATCH, 3)
    return cut.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(len(pixels), _GRID * _GRID, 3 * _PATCH * _PATCH)


def encode_images(model: Qwen2_5_VLForConditionalGeneration, patches: torch.Tensor) -> torch.Tensor:
    """Features (n, 4, D) of patches (n, 16, 588): the vision tower, all images at once."""
    tower = model.model.visual
    weight = tower.patch_embed.proj.weight  # (hidden, 3, frames, 14, 14)
    # A still picture is the same frame twice, so the frames' weights may be added first.
    hidden = F.linear(patches, weight.sum(2).reshape(len(weight), -1))
    grid = torch.tensor([[1, _GRID, _GRID]])
    cos, sin = tower.rotary_pos_emb(hidden, get_vision_position_ids(grid, _MERGE, kwargs={}))
    count, tokens, _ = hidden.shape
    for block in tower.blocks:
        attention = block.attn
        parts = attention.qkv(block.norm1(hidden)).view(count, tokens, 3, attention.num_heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        query, key = query * cos + _rotate(query) * sin, key * cos + _rotate(key) * sin
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(count, tokens, -1)
        hidden = hidden + attention.proj(mixed)
        hidden = hidden + block.mlp(block.norm2(hidden))
    return tower.merger(hidden.reshape(count * tokens, -1)).view(count, TOKENS_PER_IMAGE, -1)


def _rotate(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class _Recorder:
    """What the attention function below records at present; nothing while ``last`` is None."""

    last: torch.Tensor | None = None
    layers: Collection[int] = ()
    rows: dict[int, torch.Tensor]


_recorder = _Recorder()


def _attend(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **options: Any
) -> tuple[torch.Tensor, None]:
    output, _ = sdpa_attention_forward(module, query, key, value, mask, **options)
    if _recorder.last is not None and module.layer_idx in _recorder.layers:
        batch, heads = query.shape[:2]
        last = query[torch.arange(batch), :, _recorder.last]  # (B, heads, width)
        keys = key.repeat_interleave(heads // key.shape[1], dim=1)
        scores = torch.einsum("bhd,bhtd->bht", last, keys) * options["scaling"]
        future = torch.arange(key.shape[2]) > _recorder.last[:, None]
        row = scores.masked_fill(future[:, None], float("-inf")).softmax(-1).mean(1)
        _recorder.rows[module.layer_idx] = row
    return output, None


def use_recorder(model: Qwen2_5_VLForConditionalGeneration) -> None:
    """Let the text layers run through the recording attention function."""
    AttentionInterface.register(_ATTENTION, _attend)
    model.set_attn_implementation({"text_config": _ATTENTION, "vision_config": "sdpa"})


@contextmanager
def record_last_rows(last: torch.Tensor, layers: Collection[int]) -> Iterator[dict[int, torch.Tensor]]:
    """Record the head-mean attention row of the token ``last`` (B,) in some layers: layer -> (B, T)."""
    _recorder.last, _recorder.layers, _recorder.rows = last, layers, {}
    try:
        yield _recorder.rows
    finally:
        _recorder.last = None


def embed(model: Qwen2_5_VLForConditionalGeneration, batch: PromptBatch, features: torch.Tensor) -> torch.Tensor:
    """Token embeddings (B, T, D) with image features (B * N, 4, D) in the images' places."""
    hidden = model.model.language_model.embed_tokens(batch.ids)
    places = batch.ids == model.config.image_token_id
    return hidden.masked_scatter(places[..., None], features)


def run_layers(
    model: Qwen2_5_VLForConditionalGeneration,
    hidden: torch.Tensor,
    positions: torch.Tensor,
    first: int = 0,
    end: int | None = None,
) -> torch.Tensor:
    """Text layers ``first`` to ``end`` (left out) on hidden states (B, T, D), causal, right padding allowed."""
    text = model.model.language_model
    rotary = text.rotary_emb(hidden, positions)
    for layer in text.layers[first:end]:
        hidden = layer(hidden, attention_mask=None, position_embeddings=rotary, use_cache=False)
    return hidden


def logits_at(model: Qwen2_5_VLForConditionalGeneration, hidden: torch.Tensor) -> torch.Tensor:
    """Logits of the last layer's hidden states (..., D)."""
    return model.lm_head(model.model.language_model.norm(hidden))
