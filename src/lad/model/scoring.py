"""One prefill for a batch: identifier logits, and the last row's attention, with the cache reused along the trie."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lad.errors import ModelError, NumericsError
from lad.identifiers import TokenTrie
from lad.model.features import EncodedImage, ImageEncoder
from lad.model.probe import COLLECTOR_ARGUMENT, Collector
from lad.model.prompting import TokenizedPrompt


@dataclass(frozen=True, eq=False)
class Batch:
    """Left-padded inputs of B prompts with N images each.

    Attributes:
        inputs: keyword arguments of the model's forward, the images' features left out.
        segments: (B, T); N for tokens of no image and for padding.
        next_positions: (B,) position of an answer's first token.
        images: N.
    """

    inputs: dict[str, torch.Tensor]
    segments: torch.Tensor
    next_positions: torch.Tensor
    images: int


def collate(prompts: Sequence[TokenizedPrompt], pad_token: int, device: torch.device) -> Batch:
    """Pad prompts on the left to one length. The attention mask is always given, as are position ids."""
    length = max(len(prompt.tokens) for prompt in prompts)

    def padded(rows: Sequence[torch.Tensor], value: int) -> torch.Tensor:
        out = torch.full((len(rows), *rows[0].shape[:-1], length), value, dtype=torch.long)
        for row, filled in zip(rows, out, strict=True):
            filled[..., length - row.shape[-1] :] = row
        return out.to(device)

    positions = padded([prompt.positions for prompt in prompts], 0)
    inputs = {
        "input_ids": padded([prompt.tokens for prompt in prompts], pad_token),
        "attention_mask": padded([torch.ones_like(prompt.tokens) for prompt in prompts], 0),
        # (B, 3, T) -> (3, B, T) in families with multi-dimensional positions
        "position_ids": positions.movedim(1, 0) if positions.ndim == 3 else positions,
    }
    for name in prompts[0].type_ids:
        inputs[name] = padded([prompt.type_ids[name] for prompt in prompts], 0)
    return Batch(
        inputs=inputs,
        segments=padded([prompt.segments for prompt in prompts], prompts[0].images),
        next_positions=torch.tensor([prompt.next_position for prompt in prompts], device=device),
        images=prompts[0].images,
    )


def score(
    model: Any, encoder: ImageEncoder, batch: Batch, images: Sequence[Sequence[EncodedImage]], trie: TokenTrie
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Candidate log-probabilities and attention of a batch, in one prefill.

    Each trie node below the root that branches costs one step of a few tokens on the cached keys and values.

    Args:
        model: the transformers model, with the probe set on its text decoder.
        encoder: turns encoded images into the model's inputs.
        batch: B collated prompts.
        images: per prompt, its N images in the order of their positions.
        trie: the identifiers' tokens.

    Returns:
        Log-probabilities (B, N) and attention (B, L, N), both float64.

    Raises:
        NumericsError: logits or attention are not finite.
        ModelError: the decoder's attention did not pass through the probe.
    """
    deeper = [branch for branch in trie.branches if branch.prefix]
    collector = Collector(batch.segments, batch.images + 1)
    flat = [image for row in images for image in row]
    grids = {name: torch.cat([image.grid[name] for image in flat]) for name in flat[0].grid}
    _forget_positions(model)
    with torch.inference_mode():
        output = model(
            **batch.inputs,
            **grids,
            mm_encoder_outputs={"image": encoder.encoder_outputs(flat)},
            use_cache=bool(deeper),
            logits_to_keep=1,
            **{COLLECTOR_ARGUMENT: collector},
        )
        logits: dict[tuple[int, ...], torch.Tensor] = {(): output.logits[:, -1]}
        cache = output.cache if deeper else None
        for index, branch in enumerate(deeper):
            # a step extends the cache in place, so every step but the last works on a copy
            own = cache if index == len(deeper) - 1 else copy.deepcopy(cache)
            logits[branch.prefix] = _continue(model, batch, branch.prefix, own)
    if not collector.sums:
        raise ModelError(
            f"The attention of {type(model).__name__} cannot be read: it does not pass through "
            "transformers' AttentionInterface.",
            hint="Use a model that transformers implements natively.",
        )
    gathered = [logits[branch.prefix][:, list(branch.continuations)].double().cpu().numpy() for branch in trie.branches]
    attention = collector.stacked()[..., : batch.images].double().cpu().numpy()
    _check_finite(model, gathered, attention, sorted(collector.sums))
    return trie.log_probs(gathered), attention


def _continue(model: Any, batch: Batch, prefix: tuple[int, ...], cache: Any) -> torch.Tensor:
    """Next-token logits (B, V) after the prompt and ``prefix``."""
    mask = batch.inputs["attention_mask"]
    rows, steps = mask.shape[0], len(prefix)
    positions = batch.next_positions[:, None] + torch.arange(steps, device=mask.device)
    if batch.inputs["position_ids"].ndim == 3:
        positions = positions.expand(batch.inputs["position_ids"].shape[0], rows, steps)
    output = model(
        input_ids=torch.tensor([prefix], device=mask.device).expand(rows, steps),
        attention_mask=torch.cat([mask, mask.new_ones(rows, steps)], dim=1),
        position_ids=positions,
        cache=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return output.logits[:, -1]  # type: ignore[no-any-return]


def _forget_positions(model: Any) -> None:
    # M-RoPE models keep the last call's offset on the module; a stale one shifts positions silently
    if hasattr(model.model, "rope_deltas"):
        model.model.rope_deltas = None


def _check_finite(
    model: Any, logits: Sequence[NDArray[np.float64]], attention: NDArray[np.float64], layers: Sequence[int]
) -> None:
    bad = [layer for index, layer in enumerate(layers) if not np.isfinite(attention[:, index]).all()]
    if not bad and all(np.isfinite(row).all() for row in logits):
        return
    where = f"attention of layer {bad[0]}" if bad else "answer logits"
    raise NumericsError(
        f"The model produced values that are not finite in {model.dtype}.",
        where=where,
        hint="Load it with dtype='bfloat16' or dtype='float32'.",
    )
