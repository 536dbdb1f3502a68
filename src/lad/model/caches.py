"""Keys and values that several continuations start from."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers.cache_utils import DynamicLayer


def fork(cache: Any, rows: int | None = None) -> Any:
    """A cache that goes on from another and leaves it as it is.

    Layers that grow by putting tensors end to end share what they hold so far. Others (windows, recurrences) write
    in place, so they are copied.

    Args:
        cache: the cache of a prefill.
        rows: make so many rows of the one that it has; None for the rows as they are.
    """
    if all(type(layer) is DynamicLayer for layer in cache.layers):
        forked = copy.copy(cache)
        forked.layers = [copy.copy(layer) for layer in cache.layers]
        for layer in forked.layers:
            if rows is not None and layer.is_initialized:
                layer.keys = layer.keys.expand(rows, *layer.keys.shape[1:])
                layer.values = layer.values.expand(rows, *layer.values.shape[1:])
        return forked
    forked = copy.deepcopy(cache)
    if rows is not None:
        forked.reorder_cache(torch.zeros(rows, dtype=torch.long, device=_device(cache)))
    return forked


def cache_bytes(cache: Any) -> int:
    """Memory that the tensors of a cache take."""
    found = {
        id(value): value.numel() * value.element_size()
        for layer in cache.layers
        for value in vars(layer).values()
        if isinstance(value, torch.Tensor)
    }
    return sum(found.values())


def _device(cache: Any) -> torch.device:
    return next(
        value.device for layer in cache.layers for value in vars(layer).values() if isinstance(value, torch.Tensor)
    )
