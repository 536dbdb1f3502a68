"""One prefill for a batch: identifier logits, and the last row's attention, with the cache reused along the trie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lad.errors import ModelError, NumericsError, PromptError
from lad.identifiers import TokenTrie
from lad.model.caches import fork
from lad.model.features import EncodedImage, ImageEncoder, inner_model
from lad.model.probe import COLLECTOR_ARGUMENT, Collector
from lad.model.tokenized import TokenizedPrompt


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


def collate(prompts: Sequence[TokenizedPrompt], pad_token: int, device: torch.device, *, padding: int = 0) -> Batch:
    """Pad prompts on the left to one length. The attention mask is always given, as are position ids.

    Args:
        prompts: prompts with the same number of images.
        pad_token: fills up.
        device: where the inputs go.
        padding: how much longer than the longest prompt the batch is to be.
    """
    length = max(len(prompt.tokens) for prompt in prompts) + padding

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
        Log-probabilities (B, N) and attention (B, L, N), both float64. Row l is layer l of the decoder; it is zero
        where that layer has no attention or does not see all images (see :class:`lad.model.probe.Collector`).

    Raises:
        NumericsError: logits or attention are not finite.
        ModelError: the decoder's attention did not pass through the probe.
        PromptError: no layer sees all the images.
    """
    collector = encoder.collector(batch.segments, images)
    seen = encoder.prefill_inputs(batch.inputs["input_ids"], images)
    output = prefill(model, batch, seen, collector, use_cache=any(branch.prefix for branch in trie.branches))
    return read_out(model, batch, trie, output, collector, lambda steps: encoder.step_inputs(seen, steps))


def read_out(
    model: Any,
    batch: Batch,
    trie: TokenTrie,
    output: Any,
    collector: Collector,
    further: Callable[[int], dict[str, Any]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What a pass over whole prompts says, after the steps along the trie that are still to be made.

    Args:
        model: the transformers model.
        batch: the B prompts.
        trie: the identifiers' tokens.
        output: of the pass; its cache is used up.
        collector: what the probe received in it.
        further: number of tokens -> what the model takes for them besides.

    Returns:
        See :func:`score`, for the errors too.
    """
    deeper = [branch for branch in trie.branches if branch.prefix]
    with torch.inference_mode():
        logits: dict[tuple[int, ...], torch.Tensor] = {(): output.logits[:, -1]}
        cache = output.cache if deeper else None
        for index, branch in enumerate(deeper):
            # a step extends the cache in place, so every step but the last works on one of its own
            own = cache if index == len(deeper) - 1 else fork(cache)
            logits[branch.prefix] = _continue(model, batch, branch.prefix, own, further(len(branch.prefix)))
    attention = read_attention(model, batch, collector)
    gathered = [logits[branch.prefix][:, list(branch.continuations)].double().cpu().numpy() for branch in trie.branches]
    if not all(np.isfinite(row).all() for row in gathered):
        raise _not_finite(model, "answer logits")
    return trie.log_probs(gathered), attention


def read_attention(model: Any, batch: Batch, collector: Collector) -> NDArray[np.float64]:
    """The attention (B, L, N) that the probe received in a pass over a batch; see :func:`score`, for the errors too."""
    if not collector.sums:
        raise ModelError(
            f"The attention of {type(model).__name__} is closed: it does not pass through transformers' "
            "AttentionInterface, so it cannot be read.",
            hint="Use a model that transformers implements natively.",
        )
    attention: NDArray[np.float64] = collector.stacked(decoder_depth(model))[..., : batch.images].double().cpu().numpy()
    if len(bad := np.flatnonzero(~np.isfinite(attention).all(axis=(0, 2)))):
        raise _not_finite(model, f"attention of layer {bad[0]}")
    if (attention == 0).all(axis=(1, 2)).any():
        raise PromptError(
            f"No layer of {type(model).__name__} sees all {batch.images} images in a prompt of "
            f"{batch.segments.shape[1]} tokens: its attention does not reach back that far.",
            hint="Use fewer images or a smaller image size.",
        )
    return attention


def prefill(
    model: Any, batch: Batch, seen: dict[str, Any], collector: Collector | None = None, *, use_cache: bool = False
) -> Any:
    """The forward pass over a batch of prompts.

    Args:
        model: the transformers model.
        batch: B collated prompts.
        seen: what its encoder gives for the images.
        collector: receives the last row's attention, if the probe is set.
        use_cache: keep keys and values for further tokens.
    """
    forget_positions(model)
    extra = {} if collector is None else {COLLECTOR_ARGUMENT: collector}
    with torch.inference_mode():
        return model(**batch.inputs, **seen, use_cache=use_cache, logits_to_keep=1, **extra)


def decoder_depth(model: Any) -> int:
    """How many layers the text decoder has, those without attention counted too."""
    return int(model.config.get_text_config().num_hidden_layers)


def _continue(model: Any, batch: Batch, prefix: tuple[int, ...], cache: Any, further: dict[str, Any]) -> torch.Tensor:
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
        **further,
    )
    return output.logits[:, -1]  # type: ignore[no-any-return]


def forget_positions(model: Any) -> None:
    """Make a model's next call independent of its last one.

    M-RoPE models keep the last call's offset on the module, and a stale one shifts positions silently.
    """
    inner = inner_model(model)
    if hasattr(inner, "rope_deltas"):
        inner.rope_deltas = None


def _not_finite(model: Any, where: str) -> NumericsError:
    dtype = str(model.dtype).removeprefix("torch.")
    wider = {"float16": "Load it with dtype='bfloat16' or dtype='float32'.", "bfloat16": "Try dtype='float32'."}
    return NumericsError(
        f"The model produced values that are not finite in {dtype}.",
        where=where,
        hint=wider.get(dtype, "Its weights may be damaged: compare them with the published ones."),
    )
