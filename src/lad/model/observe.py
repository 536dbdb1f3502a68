"""Observe samples under orders: the expensive half, which runs once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lad.errors import SampleError
from lad.identifiers import make_identifiers
from lad.model.features import EncodedImage, Processed
from lad.model.memory import Budget
from lad.model.prefetch import prefetched
from lad.model.vlm import PreparedSample, VisionLanguageModel
from lad.observations import Observations
from lad.prompts import MATCHING, PromptTemplate
from lad.samples import Sample

BATCH_TOKENS = 8192
"""Tokens of a batch: as many prompts are run together as fit."""

WINDOW_BATCHES = 16
"""Prompts are sorted into batches among this many batches' worth of tokens; bounds the features held at a time."""

AHEAD = 8
"""Samples whose images are read and processed while the model is busy; bounds the pictures held at a time."""

Forward: TypeAlias = Callable[
    [Sequence[str], Sequence[Sequence[EncodedImage]]], tuple[NDArray[np.float64], NDArray[np.float64]]
]
"""B captions and B rows of N encoded images -> log-probabilities (B, N) and attention (B, L, N)."""


def observe(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    orders: NDArray[np.integer],
    *,
    template: PromptTemplate = MATCHING,
    identifiers: str | Sequence[str] = "digits",
    batch_tokens: int = BATCH_TOKENS,
    progress: Callable[[int], None] | None = None,
    check: Callable[[PreparedSample], None] | None = None,
) -> Observations:
    """Observe every sample under every order, one forward pass each.

    Images are read and processed on other threads while the model works on the samples before. Only prompts of
    equal length share a batch, so nothing is padded and attention needs no mask. Which prompts share one depends on
    the samples, the orders and ``batch_tokens`` alone, so the same call gives the same numbers to the last digit
    (unless memory runs out: batches are then halved, and nothing is lost but time).

    Args:
        vlm: the model.
        samples: S samples of N candidates each; their images are read as they are needed and then let go.
        orders: (T, N), the same for all samples, or (S, T, N); ``orders[..., p]`` is the candidate at position p.
        template: the prompt's wording.
        identifiers: a name of :data:`lad.identifiers.IDENTIFIER_SETS` or a list of your own.
        batch_tokens: upper limit of the tokens in one batch (one prompt is always allowed).
        progress: called with the number of observations just made.
        check: called with every sample once its images are read; may raise.

    Returns:
        S * T observations, the orders of a sample one after the other.

    Raises:
        SampleError: no samples, or samples of different N.
        ImageError: an image cannot be read; the sample and the image's index are named.
        ModelError: memory runs out with a single prompt.
    """
    names = make_identifiers(identifiers, candidates_of(samples))

    def forward(
        captions: Sequence[str], images: Sequence[Sequence[EncodedImage]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return vlm.observe(captions, images, template, names)

    def length(caption: str, images: Sequence[EncodedImage]) -> int:
        return vlm.prompt_length(caption, images, template, names)

    return run_passes(vlm, samples, orders, forward, length, batch_tokens=batch_tokens, progress=progress, check=check)


def candidates_of(samples: Sequence[Sample]) -> int:
    """N, the same for all samples.

    Raises:
        SampleError: no samples, or samples of different N.
    """
    if not samples:
        raise SampleError("There are no samples to observe.")
    count = len(samples[0])
    for sample in samples:
        if len(sample) != count:
            raise SampleError(
                f"Has {len(sample)} candidates where the first sample has {count}.", where=f"sample {sample.id!r}"
            )
    return count


def run_passes(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    orders: NDArray[np.integer],
    forward: Forward,
    length: Callable[[str, Sequence[EncodedImage]], int],
    *,
    batch_tokens: int = BATCH_TOKENS,
    progress: Callable[[int], None] | None = None,
    check: Callable[[PreparedSample], None] | None = None,
) -> Observations:
    """One forward pass for every sample under every order, whatever a pass is; see :func:`observe`.

    Args:
        vlm: prepares and encodes the images.
        samples: S samples of the same N.
        orders: (T, N) or (S, T, N).
        forward: makes observations of a batch.
        length: tokens of a prompt.
        batch_tokens: as in :func:`observe`.
        progress: as in :func:`observe`.
        check: as in :func:`observe`.
    """
    count = candidates_of(samples)
    views = np.broadcast_to(orders, (len(samples), *np.shape(orders)[-2:]))
    per_sample = views.shape[1]
    budget = Budget(batch_tokens)
    log_probs = np.empty((len(samples) * per_sample, count))
    attention: NDArray[np.float64] | None = None
    for window in _windows(vlm, samples, length, WINDOW_BATCHES * batch_tokens, per_sample, check):

        def run(
            rows: Sequence[int], window: dict[int, _Waiting] = window
        ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            waiting = [window[row // per_sample] for row in rows]
            shown = [
                [one.images[candidate] for candidate in views[row // per_sample, row % per_sample]]
                for row, one in zip(rows, waiting, strict=True)
            ]
            return forward([one.caption for one in waiting], shown)

        for tokens, rows in equal_lengths({index: one.length for index, one in window.items()}, per_sample):
            for some, (scores, seen) in budget.run(rows, tokens, run):
                log_probs[some] = scores
                if attention is None:
                    attention = np.empty((len(log_probs), *seen.shape[1:]))
                attention[some] = seen
                if progress is not None:
                    progress(len(some))
    assert attention is not None
    return Observations(
        log_probs=log_probs,
        attention=attention,
        orders=views.reshape(-1, count).astype(np.int64),
        answers=np.repeat([-1 if sample.answer is None else sample.answer for sample in samples], per_sample),
        samples=tuple(sample.id for sample in samples for _ in range(per_sample)),
    )


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A sample that is encoded and waits for its passes."""

    caption: str
    images: list[EncodedImage]
    length: int


def _windows(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    length: Callable[[str, Sequence[EncodedImage]], int],
    tokens: int,
    per_sample: int,
    check: Callable[[PreparedSample], None] | None,
) -> Iterator[dict[int, _Waiting]]:
    """The samples by number, encoded, in runs of about so many tokens of prompts."""
    asked: set[str] = set()

    def prepare(sample: Sample) -> tuple[PreparedSample, Processed]:
        ready = vlm.prepare_sample(sample)
        # A guess at what the vision tower will be asked for: it saves time where it is right and is ignored elsewhere.
        new = {d: i for d, i in zip(ready.digests, ready.images, strict=True) if d not in asked}
        new = {digest: image for digest, image in new.items() if digest not in vlm.encoder.cache}
        asked.update(new)
        return ready, vlm.encoder.process(list(new.values()), list(new))

    window: dict[int, _Waiting] = {}
    waiting = 0
    for index, (ready, processed) in enumerate(prefetched(samples, prepare, ahead=AHEAD)):
        if check is not None:
            check(ready)
        images = vlm.encoder.encode(ready.images, ready.digests, processed)
        window[index] = _Waiting(ready.caption, images, length(ready.caption, images))
        waiting += window[index].length * per_sample
        if waiting >= tokens:
            yield window
            window, waiting = {}, 0
    if window:
        yield window


def equal_lengths(lengths: dict[int, int], per_sample: int = 1) -> list[tuple[int, list[int]]]:
    """Prompts grouped by their exact length, shortest first.

    Args:
        lengths: tokens of each sample's prompts, by the sample's number.
        per_sample: prompts of a sample; those of sample s have the rows s * per_sample onwards.

    Returns:
        (length, rows), the rows of a group ascending.
    """
    groups: dict[int, list[int]] = {}
    for index, length in lengths.items():
        groups.setdefault(length, []).extend(range(index * per_sample, (index + 1) * per_sample))
    return [(length, sorted(groups[length])) for length in sorted(groups)]
