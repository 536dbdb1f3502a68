"""Sources: what must be observed for a method, and how. Methods that name the same source share it.

A source covers the first ``samples`` samples and is gathered in groups of samples. What it gives for a group depends on
that group alone, so a group that was lost is made again to the last digit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lad.evaluation.records import Record
from lad.observations import Observations
from lad.prompts import PromptTemplate

if TYPE_CHECKING:
    from lad.model.answering import Sampling
    from lad.model.interventions.sofa import SoftAttention
    from lad.model.vlm import PreparedSample, VisionLanguageModel

Orders: TypeAlias = tuple[tuple[int, ...], ...]
Progress: TypeAlias = Callable[[int], None]


@dataclass(frozen=True)
class Asking:
    """What all sources of a run share.

    Attributes:
        identifiers: the N identifiers.
        batch_tokens: see :func:`lad.model.observe.observe`.
        progress: called with the number of passes just made.
    """

    identifiers: tuple[str, ...]
    batch_tokens: int
    progress: Progress | None = None


class Source(Protocol):
    """Anything that can be observed about a sample."""

    @property
    def name(self) -> str:
        """What its folder is called, before the digest."""

    @property
    def samples(self) -> int:
        """How many of the samples, from the first."""

    @property
    def gives_observations(self) -> bool:
        """Whether it gives observations, or else records."""

    def passes(self, index: int) -> int:
        """Forward passes over a prompt that sample ``index`` takes; 0 leaves it out."""

    def gather(
        self, vlm: VisionLanguageModel, group: Sequence[PreparedSample], first: int, asking: Asking
    ) -> Observations | list[Record]:
        """Observe the samples of a group that take passes; the group's first sample has the number ``first``."""


@dataclass(frozen=True)
class Views:
    """Every sample under the same orders, one pass each.

    Attributes:
        name: the folder's.
        samples: how many samples.
        template: the prompt's wording.
        orders: the V orders.
        chosen: indices of the only samples that are observed; None for all.
        intervention: a change of the attention, or None.
    """

    name: str
    samples: int
    template: PromptTemplate
    orders: Orders
    chosen: tuple[int, ...] | None = None
    intervention: SoftAttention | None = None

    gives_observations: ClassVar[bool] = True

    def passes(self, index: int) -> int:
        """V, or 0 for a sample that was not chosen."""
        return len(self.orders) if self.chosen is None or index in self.chosen else 0

    def gather(
        self, vlm: VisionLanguageModel, group: Sequence[PreparedSample], first: int, asking: Asking
    ) -> Observations:
        """The group under all orders."""
        from lad.model.interventions.sofa import soft_attention
        from lad.model.observe import observe

        with soft_attention(vlm, self.intervention) if self.intervention else nullcontext():
            return observe(
                vlm,
                group,
                np.array(self.orders),
                template=self.template,
                identifiers=asking.identifiers,
                batch_tokens=asking.batch_tokens,
                progress=asking.progress,
            )


@dataclass(frozen=True)
class Sorted:
    """Every sample under each order, its images sorted by attention and asked again ``rounds`` times."""

    name: str
    samples: int
    template: PromptTemplate
    orders: Orders
    rounds: int

    gives_observations: ClassVar[bool] = True

    def passes(self, index: int) -> int:
        """One more than the rounds, for each order."""
        return len(self.orders) * (self.rounds + 1)

    def gather(
        self, vlm: VisionLanguageModel, group: Sequence[PreparedSample], first: int, asking: Asking
    ) -> Observations:
        """The observations after the last round."""
        from lad.model.attention_sorting import observe_sorted

        return observe_sorted(
            vlm,
            group,
            np.array(self.orders),
            rounds=self.rounds,
            template=self.template,
            identifiers=asking.identifiers,
            batch_tokens=asking.batch_tokens,
            progress=asking.progress,
        )


@dataclass(frozen=True)
class Texts:
    """Answers in words: records ``{"sample", "answers": per order a list of texts, "tokens": per order}``."""

    name: str
    samples: int
    template: PromptTemplate
    orders: Orders
    max_new_tokens: int
    sampling: Sampling | None = None

    gives_observations: ClassVar[bool] = False

    def passes(self, index: int) -> int:
        """One prefill for each order, however many answers are drawn from it."""
        return len(self.orders)

    def gather(
        self, vlm: VisionLanguageModel, group: Sequence[PreparedSample], first: int, asking: Asking
    ) -> list[Record]:
        """One record per sample."""
        from lad.model.answering import answer

        encoded = [vlm.encode(sample) for sample in group]
        times = len(self.orders)
        sampling = self.sampling and replace(self.sampling, seed=self.sampling.seed + first)
        written = answer(
            vlm,
            [sample.caption for sample in group for _ in range(times)],
            [[images[candidate] for candidate in order] for images in encoded for order in self.orders],
            self.template,
            asking.identifiers,
            max_new_tokens=self.max_new_tokens,
            sampling=sampling,
            progress=asking.progress,
        )
        return [
            {
                "sample": sample.id,
                "answers": [[answer.text for answer in row] for row in written[k * times : (k + 1) * times]],
                "tokens": [sum(answer.tokens for answer in row) for row in written[k * times : (k + 1) * times]],
            }
            for k, sample in enumerate(group)
        ]


@dataclass(frozen=True)
class SingleImages:
    """Every image alone with the caption, yes or no: records ``{"sample", "odds": one per candidate}``."""

    name: str
    samples: int
    template: PromptTemplate
    yes: str
    no: str
    candidates: int

    gives_observations: ClassVar[bool] = False

    def passes(self, index: int) -> int:
        """N; the order of the images plays no part."""
        return self.candidates

    def gather(
        self, vlm: VisionLanguageModel, group: Sequence[PreparedSample], first: int, asking: Asking
    ) -> list[Record]:
        """One record per sample."""
        from lad.model.answering import yes_or_no

        odds = yes_or_no(
            vlm,
            [sample.caption for sample in group for _ in range(self.candidates)],
            [image for sample in group for image in vlm.encode(sample)],
            self.template,
            self.yes,
            self.no,
            batch_tokens=asking.batch_tokens,
            progress=asking.progress,
        ).reshape(len(group), self.candidates)
        return [{"sample": sample.id, "odds": row.tolist()} for sample, row in zip(group, odds, strict=True)]


def specification(source: Source) -> dict[str, Any]:
    """All that a source's content depends on, as plain JSON values."""
    return {"kind": type(source).__name__, **json.loads(json.dumps(asdict(source)))}  # type: ignore[call-overload]


def folder_name(source: Source) -> str:
    """The folder of a source in a run: another specification, another folder."""
    digest = hashlib.sha256(json.dumps(specification(source), sort_keys=True).encode()).hexdigest()
    return f"{source.name}-{digest[:8]}"


def merged(sources: Sequence[Source]) -> tuple[Source, ...]:
    """Each source once, covering as many samples as any method wants of it, in the order of first mention."""
    found: dict[str, Source] = {}
    for source in sources:
        key = merge_key(source)
        if key not in found or source.samples > found[key].samples:
            found[key] = source
    return tuple(found.values())


def merge_key(source: Source) -> str:
    """Equal for sources that differ in the number of samples alone."""
    return json.dumps({**specification(source), "samples": None}, sort_keys=True)


def as_orders(orders: NDArray[np.int64]) -> Orders:
    """An array (V, N) as tuples, which compare and serialise."""
    return tuple(tuple(int(candidate) for candidate in order) for order in orders)
