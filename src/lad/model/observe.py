"""Observe samples under orders: the expensive half, which runs once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from lad.errors import SampleError
from lad.identifiers import make_identifiers
from lad.model.vlm import VisionLanguageModel
from lad.observations import Observations
from lad.prompts import MATCHING, PromptTemplate
from lad.samples import Sample

BATCH_TOKENS = 8192
"""Tokens of a batch: as many prompts are run together as fit."""


def observe(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    orders: NDArray[np.integer],
    *,
    template: PromptTemplate = MATCHING,
    identifiers: str | Sequence[str] = "digits",
    batch_tokens: int = BATCH_TOKENS,
    progress: Callable[[int], None] | None = None,
) -> Observations:
    """Observe every sample under every order, one forward pass each.

    Which prompts share a batch depends on the samples, the orders and ``batch_tokens`` alone, so the same call
    gives the same numbers to the last digit.

    Args:
        vlm: the model.
        samples: S samples of N candidates each; their images are held in memory until the call returns.
        orders: (T, N), the same for all samples, or (S, T, N); ``orders[..., p]`` is the candidate at position p.
        template: the prompt's wording.
        identifiers: a name of :data:`lad.identifiers.IDENTIFIER_SETS` or a list of your own.
        batch_tokens: upper limit of the tokens in one batch (one prompt is always allowed).
        progress: called with the number of observations just made.

    Returns:
        S * T observations, the orders of a sample one after the other.

    Raises:
        SampleError: no samples, or samples of different N.
        ImageError: an image cannot be read; the sample and the image's index are named.
    """
    if not samples:
        raise SampleError("There are no samples to observe.")
    count = len(samples[0])
    for sample in samples:
        if len(sample) != count:
            raise SampleError(
                f"Has {len(sample)} candidates where the first sample has {count}.", where=f"sample {sample.id!r}"
            )
    names = make_identifiers(identifiers, count)
    views = np.broadcast_to(orders, (len(samples), *np.shape(orders)[-2:]))
    encoded = [vlm.encode(vlm.prepare_sample(sample)) for sample in samples]
    lengths = [
        vlm.prompt_length(sample.caption, images, template, names)
        for sample, images in zip(samples, encoded, strict=True)
    ]
    per_sample = views.shape[1]
    log_probs = np.empty((len(samples) * per_sample, count))
    attention: NDArray[np.float64] | None = None
    for rows in _batches(np.repeat(lengths, per_sample), batch_tokens):
        captions = [samples[row // per_sample].caption for row in rows]
        images = [
            [encoded[row // per_sample][candidate] for candidate in views[row // per_sample, row % per_sample]]
            for row in rows
        ]
        log_probs[rows], seen = vlm.observe(captions, images, template, names)
        if attention is None:
            attention = np.empty((len(log_probs), *seen.shape[1:]))
        attention[rows] = seen
        if progress is not None:
            progress(len(rows))
    assert attention is not None
    return Observations(
        log_probs=log_probs,
        attention=attention,
        orders=views.reshape(-1, count).astype(np.int64),
        answers=np.repeat([-1 if sample.answer is None else sample.answer for sample in samples], per_sample),
        samples=tuple(sample.id for sample in samples for _ in range(per_sample)),
    )


def _batches(lengths: NDArray[np.int64], batch_tokens: int) -> list[NDArray[np.int64]]:
    """Row numbers grouped so that rows of similar length share a batch of at most ``batch_tokens``."""
    batches: list[list[int]] = [[]]
    for row in np.argsort(lengths, kind="stable"):
        # lengths ascend, so the newest row is the longest
        if batches[-1] and (len(batches[-1]) + 1) * lengths[row] > batch_tokens:
            batches.append([])
        batches[-1].append(int(row))
    return [np.array(batch) for batch in batches]
