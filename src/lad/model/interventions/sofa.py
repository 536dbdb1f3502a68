"""SoFA, soft attention among images (Tian et al., CVPR 2025): images see those after them, a little.

Causal attention lets an image see only the images before it, which sets positions apart. In every second decoder layer
the masked attention between image tokens is opened softly, in one of two forms:

* ``mask``: masked pairs get log(sigma) added to their scores in place of minus infinity (the published comparison);
* ``blend``: sigma x bidirectional + (1 - sigma) x causal attention outputs (as its authors describe it);

and in one of two scopes:

* ``all_image_tokens``: every masked pair of image tokens, within one image too (the published comparison);
* ``between_images``: only pairs that belong to different images (as its authors describe it).

Which tokens are image tokens is the model's attention reduction: with "span", the markers too, as published.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lad.errors import DecisionError, ModelError
from lad.model.probe import COLLECTOR_ARGUMENT, IMPLEMENTATION
from lad.model.vlm import VisionLanguageModel

Form = Literal["mask", "blend"]
Scope = Literal["all_image_tokens", "between_images"]


@dataclass(frozen=True)
class SoftAttention:
    """How images see the images after them.

    Attributes:
        sigma: 0 (not at all: the model as it is) to 1 (as if attention were bidirectional).
        form: "mask" or "blend".
        scope: "all_image_tokens" or "between_images".
        every: layers 0, every, 2 * every, ... are changed.

    Raises:
        DecisionError: a value outside its range.
    """

    sigma: float = 0.5
    form: Form = "mask"
    scope: Scope = "all_image_tokens"
    every: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.sigma <= 1:
            raise DecisionError(f"SoFA's sigma must lie between 0 and 1, not at {self.sigma}.")
        if self.form not in ("mask", "blend"):
            raise DecisionError(f"SoFA has no form {self.form!r}.", hint="Choose mask or blend.")
        if self.scope not in ("all_image_tokens", "between_images"):
            raise DecisionError(f"SoFA has no scope {self.scope!r}.", hint="Choose all_image_tokens or between_images.")
        if self.every < 1:
            raise DecisionError(f"SoFA changes every n-th layer with n >= 1, not {self.every}.")


def opened_pairs(visible: torch.Tensor, segments: torch.Tensor, images: int, scope: Scope) -> torch.Tensor:
    """The masked pairs of image tokens that SoFA opens, bool (B, 1, T, T).

    Args:
        visible: (B, 1 or H, T, T) bool, what a layer shows anyway; query x key.
        segments: (B, T), the image of each token; ``images`` for tokens of none.
        images: N.
        scope: see the module.
    """
    pictured = segments < images
    pairs = pictured[:, None, :, None] & pictured[:, None, None, :]
    if scope == "between_images":
        pairs = pairs & (segments[:, None, :, None] != segments[:, None, None, :])
    return pairs & ~visible


@contextmanager
def soft_attention(vlm: VisionLanguageModel, options: SoftAttention) -> Iterator[None]:
    """Observe with SoFA while the context lasts.

    Raises:
        ModelError: at the end, if the model's attention never passed through here.
    """
    stock = ALL_ATTENTION_FUNCTIONS[IMPLEMENTATION]
    modules = {id(module) for module in vlm.model.modules()}
    reached: set[int] = set()

    def attend(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        collector = kwargs.get(COLLECTOR_ARGUMENT)
        layer = getattr(module, "layer_idx", None)
        # A step on cached keys asks from text tokens only, which see all images anyway; cross-attention is not causal.
        whole = collector is not None and query.shape[2] == key.shape[2] == collector.segments.shape[1]
        if collector is None or id(module) not in modules or layer is None or not whole:
            return stock(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]
        reached.add(layer)
        if layer % options.every or options.sigma == 0:
            return stock(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]
        visible = _visible(attention_mask, query, key)
        pairs = opened_pairs(visible, collector.segments, collector.count - 1, options.scope)
        if options.form == "mask":
            soft = _additive(visible, query.dtype).masked_fill(pairs, math.log(options.sigma))
            return stock(module, query, key, value, soft, **kwargs)  # type: ignore[no-any-return]
        causal, weights = stock(module, query, key, value, attention_mask, **kwargs)
        # the last prompt token sees the same either way, so the collector is given one of the two alone
        kwargs.pop(COLLECTOR_ARGUMENT)
        both, _ = stock(module, query, key, value, visible | pairs, **kwargs)
        return causal + options.sigma * (both - causal), weights

    AttentionInterface.register(IMPLEMENTATION, attend)
    try:
        yield
    finally:
        AttentionInterface.register(IMPLEMENTATION, stock)
    if not reached:
        raise ModelError(
            f"SoFA cannot change the attention of {type(vlm.model).__name__}: it does not pass through "
            "transformers' AttentionInterface.",
            hint="Leave the methods 'sofa...' out for this model.",
        )


def _visible(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """What a layer shows, bool (B, 1 or H, T, T), whatever form its mask has."""
    rows, columns = query.shape[2], key.shape[2]
    if mask is None:
        causal = torch.ones(rows, columns, dtype=torch.bool, device=query.device).tril(columns - rows)
        return causal.expand(query.shape[0], 1, rows, columns)
    if mask.dtype == torch.bool:
        return mask
    return mask > torch.finfo(mask.dtype).min / 2


def _additive(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, float("-inf"))
