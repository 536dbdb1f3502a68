"""Answers in words, and yes/no scores of single images, from the same prompts and image features as observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lad.errors import NumericsError
from lad.identifiers import make_identifiers
from lad.model.features import EncodedImage
from lad.model.scoring import Batch, collate, forget_positions, score
from lad.model.vlm import VisionLanguageModel
from lad.prompts import PromptTemplate

ANSWER_TOKENS = 65536
"""Tokens of a batch, prompts and answers together: as many prompts are answered at once as fit."""


@dataclass(frozen=True)
class Sampling:
    """How several answers to one prompt are drawn.

    Attributes:
        paths: how many.
        temperature: divides the logits.
        top_k: only this many of the likeliest tokens may be drawn.
        seed: same seed and same batches, same answers.
    """

    paths: int = 10
    temperature: float = 0.7
    top_k: int = 40
    seed: int = 0


@dataclass(frozen=True)
class Answer:
    """One answer.

    Attributes:
        text: what was written, without control tokens.
        tokens: how many tokens that took, the end of the turn included.
    """

    text: str
    tokens: int


def answer(
    vlm: VisionLanguageModel,
    captions: Sequence[str],
    images: Sequence[Sequence[EncodedImage]],
    template: PromptTemplate,
    identifiers: Sequence[str],
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    batch_tokens: int = ANSWER_TOKENS,
    progress: Callable[[int], None] | None = None,
) -> list[list[Answer]]:
    """Let the model write, one prefill per prompt however many answers are drawn from it.

    Args:
        vlm: the model.
        captions: B captions.
        images: per caption, N encoded images in the order of their positions.
        template: the prompt's wording.
        identifiers: the N identifiers.
        max_new_tokens: an answer is cut off there.
        sampling: None takes the likeliest token at each step.
        batch_tokens: upper limit of the tokens in one batch (one prompt is always allowed).
        progress: called with the number of prompts just answered.

    Returns:
        Per prompt, one answer, or ``sampling.paths`` of them.

    Raises:
        NumericsError: logits that are not finite.
    """
    texts = [vlm.prompts.render(template, identifiers, caption) for caption in captions]
    prompts = [vlm.prompts.tokenize(text, row) for text, row in zip(texts, images, strict=True)]
    paths = sampling.paths if sampling else 1
    lengths = np.array([(len(prompt.tokens) + max_new_tokens) * paths for prompt in prompts])
    result: list[list[Answer]] = [[] for _ in prompts]
    for rows in batches(lengths, batch_tokens):
        batch = collate([prompts[row] for row in rows], _pad_token(vlm), vlm.device)
        shown = [images[row] for row in rows]
        generator = torch.Generator().manual_seed((sampling.seed if sampling else 0) * 1_000_003 + int(rows[0]))
        written = _write(vlm, batch, shown, max_new_tokens, sampling, generator)
        for index, row in enumerate(rows):
            result[row] = [_decode(vlm, tokens) for tokens in written[index * paths : (index + 1) * paths]]
        if progress is not None:
            progress(len(rows))
    return result


def yes_or_no(
    vlm: VisionLanguageModel,
    captions: Sequence[str],
    images: Sequence[EncodedImage],
    template: PromptTemplate,
    yes: str,
    no: str,
    *,
    batch_tokens: int,
    progress: Callable[[int], None] | None = None,
) -> NDArray[np.float64]:
    """log P(yes) - log P(no) for single images, shape (B,), the two answers scored as identifiers are.

    Args:
        vlm: the model.
        captions: B captions.
        images: B encoded images.
        template: the wording of the question.
        yes: the answer that means yes.
        no: the answer that means no.
        batch_tokens: upper limit of the tokens in one batch.
        progress: called with the number of images just judged.
    """
    texts = [vlm.prompts.render(template, make_identifiers("digits", 1), caption) for caption in captions]
    answers = vlm.prompts.answers(texts[0], (yes, no))
    prompts = [
        vlm.prompts.tokenize(text, [image]).without_last(answers.joined)
        for text, image in zip(texts, images, strict=True)
    ]
    odds = np.empty(len(prompts))
    for rows in batches(np.array([len(prompt.tokens) for prompt in prompts]), batch_tokens):
        batch = collate([prompts[row] for row in rows], _pad_token(vlm), vlm.device)
        log_probs, _ = score(vlm.model, vlm.encoder, batch, [[images[row]] for row in rows], answers.trie)
        odds[rows] = log_probs[:, 0] - log_probs[:, 1]
        if progress is not None:
            progress(len(rows))
    return odds


def batches(lengths: NDArray[np.int64], batch_tokens: int) -> list[NDArray[np.int64]]:
    """Row numbers grouped so that rows of similar length share a batch of at most ``batch_tokens``."""
    grouped: list[list[int]] = [[]]
    for row in np.argsort(lengths, kind="stable"):
        # lengths ascend, so the newest row is the longest
        if grouped[-1] and (len(grouped[-1]) + 1) * lengths[row] > batch_tokens:
            grouped.append([])
        grouped[-1].append(int(row))
    return [np.array(rows) for rows in grouped]


def _write(
    vlm: VisionLanguageModel,
    batch: Batch,
    images: Sequence[Sequence[EncodedImage]],
    limit: int,
    sampling: Sampling | None,
    generator: torch.Generator,
) -> list[list[int]]:
    """Token ids of each answer, the end of the turn included where it was reached."""
    stops = _stop_tokens(vlm)
    paths = sampling.paths if sampling else 1
    logits, state = _prefill(vlm, batch, images)
    if paths > 1:
        every = torch.arange(len(logits), device=logits.device).repeat_interleave(paths)
        logits, state = logits[every], state.of_rows(every, repeats=paths)
    written: list[list[int]] = [[] for _ in range(len(logits))]
    active = list(range(len(logits)))  # the answers that the rows of the cache belong to
    for step in range(limit):
        tokens = _next_tokens(vlm, logits, sampling, generator)
        for index, token in zip(active, tokens.tolist(), strict=True):
            if not (written[index] and written[index][-1] in stops):
                written[index].append(token)
        going = [row for row, index in enumerate(active) if written[index][-1] not in stops]
        if not going or step == limit - 1:
            break
        # finished rows are dropped once they are half, since cutting the cache has a price too
        if len(going) <= len(active) // 2:
            kept = torch.tensor(going, device=logits.device)
            active = [active[row] for row in going]
            tokens, state = tokens[kept.cpu()], state.of_rows(kept)
        logits, state = _step(vlm, tokens.to(logits.device), state)
    return written


@dataclass(frozen=True, eq=False)
class _State:
    """Where B answers stand: cached keys and values, mask (B, T), position (B,) or (3, B) of the next token."""

    cache: Any
    mask: torch.Tensor
    position: torch.Tensor
    further: dict[str, Any]

    def of_rows(self, rows: torch.Tensor, repeats: int = 0) -> _State:
        """The state of some rows; ``repeats`` where every row is wanted so many times."""
        if repeats:
            self.cache.batch_repeat_interleave(repeats)
        else:
            self.cache.batch_select_indices(rows)
        size = len(self.mask)
        further = {
            name: value[rows] if isinstance(value, torch.Tensor) and value.ndim and len(value) == size else value
            for name, value in self.further.items()
        }
        return _State(self.cache, self.mask[rows], self.position[..., rows], further)


def _prefill(
    vlm: VisionLanguageModel, batch: Batch, images: Sequence[Sequence[EncodedImage]]
) -> tuple[torch.Tensor, _State]:
    seen = vlm.encoder.prefill_inputs(batch.inputs["input_ids"], images)
    forget_positions(vlm.model)
    with torch.inference_mode():
        output = vlm.model(**batch.inputs, **seen, use_cache=True, logits_to_keep=1)
    position = batch.next_positions
    if batch.inputs["position_ids"].ndim == 3:
        position = position.expand(batch.inputs["position_ids"].shape[0], -1)
    further = vlm.encoder.step_inputs(seen, 1)
    return output.logits[:, -1], _State(output.cache, batch.inputs["attention_mask"], position, further)


def _step(vlm: VisionLanguageModel, tokens: torch.Tensor, state: _State) -> tuple[torch.Tensor, _State]:
    mask = torch.cat([state.mask, state.mask.new_ones(len(state.mask), 1)], dim=1)
    with torch.inference_mode():
        output = vlm.model(
            input_ids=tokens[:, None],
            attention_mask=mask,
            position_ids=state.position[..., None],
            cache=state.cache,
            use_cache=True,
            logits_to_keep=1,
            **state.further,
        )
    return output.logits[:, -1], _State(output.cache, mask, state.position + 1, state.further)


def _next_tokens(
    vlm: VisionLanguageModel, logits: torch.Tensor, sampling: Sampling | None, generator: torch.Generator
) -> torch.Tensor:
    if not torch.isfinite(logits).all():
        raise NumericsError(
            f"The model produced values that are not finite in {vlm.model.dtype}.",
            where="answer logits",
            hint="Load it with dtype='bfloat16' or dtype='float32'.",
        )
    if sampling is None:
        return logits.argmax(dim=-1).cpu()
    # drawn on the CPU, where one seed means one sequence of numbers
    best, tokens = (logits.double().cpu() / sampling.temperature).topk(min(sampling.top_k, logits.shape[-1]))
    return tokens.gather(1, torch.multinomial(best.softmax(dim=-1), 1, generator=generator))[:, 0]


def _stop_tokens(vlm: VisionLanguageModel) -> set[int]:
    configured = getattr(getattr(vlm.model, "generation_config", None), "eos_token_id", None)
    others = configured if isinstance(configured, (list, tuple)) else [configured]
    return {vlm.prompts.end_token(), *(token for token in others if token is not None)}


def _pad_token(vlm: VisionLanguageModel) -> int:
    tokenizer = vlm.processor.tokenizer
    return next(token for token in (tokenizer.pad_token_id, tokenizer.eos_token_id, 0) if token is not None)


def _decode(vlm: VisionLanguageModel, tokens: Sequence[int]) -> Answer:
    return Answer(str(vlm.processor.tokenizer.decode(tokens, skip_special_tokens=True)).strip(), len(tokens))
