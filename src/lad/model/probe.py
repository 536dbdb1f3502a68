"""The last-row attention probe: what the last prompt token looks at, for the price of one row.

A T x T attention map is never formed. The stock implementation computes the layer's output; beside it, the
last query row alone is scored against the keys, in float32, and reduced at once to one sum per segment.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

IMPLEMENTATION = "lad_lastrow"
"""Name under which the probe is registered. It must not contain "sdpa", "flash" or "/": transformers gives those a
meaning of their own."""

COLLECTOR_ARGUMENT = "lad_collector"
"""Keyword of ``model(...)`` that carries a :class:`Collector` down to the attention function."""


class Collector:
    """Receives, per decoder layer, the last row's attention summed over segments.

    Args:
        segments: which segment each key belongs to, shape (B, T), values 0..count - 1; the last is for keys of no
            image.
        count: number of segments.
        layers: the layers to receive; None for all that attend.
    """

    def __init__(self, segments: torch.Tensor, count: int, layers: Collection[int] | None = None) -> None:
        self.segments = segments
        self.count = count
        self.layers = layers
        self.sums: dict[int, torch.Tensor] = {}
        """Layer index -> (B, count) float32, mean over heads; the segments of a row add up to 1."""
        self.blind: dict[int, torch.Tensor] = {}
        """Layer index -> (B,) bool: some token of an image is hidden from the row, for instance by a window."""

    def wants(self, layer: int) -> bool:
        """Whether a layer is to be received."""
        return self.layers is None or layer in self.layers

    def add(self, layer: int, row: torch.Tensor, visible: torch.Tensor | None = None) -> None:
        """Take one layer's row.

        Args:
            layer: its index in the decoder.
            row: probabilities (B, T).
            visible: (B, T) bool, the keys that the mask leaves; None for all.
        """
        if row.shape != self.segments.shape:
            raise RuntimeError(f"layer {layer} attends over {tuple(row.shape)}, not {tuple(self.segments.shape)} keys")
        sums = row.new_zeros(row.shape[0], self.count)
        self.sums[layer] = sums.scatter_add_(1, self.segments, row)
        if visible is not None:
            self.blind[layer] = ((self.segments < self.count - 1) & ~visible).any(dim=1)

    def stacked(self, depth: int) -> torch.Tensor:
        """Shape (B, depth, count): layer l of the decoder is row l.

        Rows are zero where a layer has no attention (a convolution, a recurrence), is not received, or does not see
        every token of every image: what such a layer looks at says nothing about the images it cannot see.
        """
        first = next(iter(self.sums.values()))
        out = first.new_zeros(first.shape[0], depth, self.count)
        for layer, sums in self.sums.items():
            blind = self.blind.get(layer)
            out[:, layer] = sums if blind is None else sums.masked_fill(blind[:, None], 0.0)
        return out


def last_row(
    query: torch.Tensor,
    key: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    softcap: float | None = None,
) -> torch.Tensor:
    """Attention probabilities of the last query, mean over heads, in float32.

    Args:
        query: (B, H, Tq, D); only the last row is used.
        key: (B, Hkv, Tk, D) with H a multiple of Hkv (grouped queries).
        attention_mask: None (everything is visible), bool (B, 1 or H, Tq, Tk) with True = visible, or an additive
            float mask of that shape.
        scaling: factor on the dot products.
        softcap: if given, scores are ``tanh(score / softcap) * softcap`` before the mask.

    Returns:
        (B, Tk); each row sums to 1.
    """
    batch, heads, _, size = query.shape
    groups = key.shape[1]
    rows = query[:, :, -1].view(batch, groups, heads // groups, size)
    scores = torch.einsum("bghd,bgtd->bght", rows.float(), key.float()) * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if attention_mask is not None:
        visible = attention_mask[:, :, -1, : key.shape[2]]
        # (B, 1, Tk) is for all heads; (B, H, Tk) must be grouped like the queries
        visible = visible[:, :, None] if visible.shape[1] == 1 else visible.view(batch, groups, heads // groups, -1)
        if visible.dtype == torch.bool:
            scores = scores.masked_fill(~visible, float("-inf"))
        else:
            scores = scores + visible.float()
    return scores.softmax(dim=-1).mean(dim=(1, 2))


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    collector = kwargs.pop(COLLECTOR_ARGUMENT, None)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    softcap = kwargs.get("softcap")
    if softcap is None:
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    else:
        # sdpa has no soft cap, so these layers run as the model's own eager code runs them
        eager = sys.modules[type(module).__module__].eager_attention_forward
        if attention_mask is None and getattr(module, "is_causal", True):
            attention_mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
            attention_mask = attention_mask.tril(key.shape[2] - query.shape[2])[None, None]
        if attention_mask is not None and attention_mask.dtype == torch.bool:
            attention_mask = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill(
                ~attention_mask, torch.finfo(query.dtype).min
            )
        output, _ = eager(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    layer = getattr(module, "layer_idx", None)
    if collector is not None and layer is not None and collector.wants(layer):
        row = last_row(query, key, attention_mask, scaling, softcap)
        collector.add(layer, row, _visible_keys(attention_mask, key.shape[2]))
    return output, None


def _visible_keys(attention_mask: torch.Tensor | None, keys: int) -> torch.Tensor | None:
    """Which keys the last query may see, (B, keys); None for all."""
    if attention_mask is None:
        return None
    last = attention_mask[:, :, -1, :keys]
    # additive masks hide with the most negative number of their kind, or with minus infinity
    shown = last if last.dtype == torch.bool else last > torch.finfo(last.dtype).min / 2
    return shown.any(dim=1)


def register() -> None:
    """Make the probe known to transformers.

    The mask function is registered with it: without one, transformers hands the layer no mask at all and padding,
    sliding windows and cached continuation go wrong silently.
    """
    AttentionInterface.register(IMPLEMENTATION, _attention)
    AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
