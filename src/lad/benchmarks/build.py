"""Pictures in, a benchmark out: disjoint splits, questions, and the facts that prove them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from lad.benchmarks.contents import digest_images, distinct, without
from lad.benchmarks.disk_cache import DiskCache
from lad.benchmarks.plan import DEFAULT_COUNT, BuildPlan
from lad.benchmarks.pool import Pool
from lad.benchmarks.questions import (
    Anchor,
    Question,
    RandomDistractors,
    draw_anchors,
    order_captions,
    split_indices,
)
from lad.errors import SampleError
from lad.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lad.benchmarks.embeddings import Encoders

ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Called with what is done and how many times; gives what is told how many more were done."""

_ANCHOR_BATCH = 256


@contextmanager
def no_progress(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar that shows nothing."""
    yield lambda done: None


@dataclass(frozen=True)
class Benchmark:
    """Samples of the two splits, and what made them.

    Attributes:
        test: the test split.
        calibration: the calibration split; no picture is in both.
        facts: what the manifest says of it; JSON values.
        digests: split -> digests of all pictures that it shows, sorted.
    """

    test: list[Sample]
    calibration: list[Sample]
    facts: dict[str, Any]
    digests: dict[str, list[str]] = field(repr=False)

    def __post_init__(self) -> None:
        shared = set(self.digests["test"]) & set(self.digests["calibration"])
        if shared:
            raise SampleError(
                f"{len(shared)} picture(s) are in both the test split and the calibration split;"
                f" the digest of the first is {min(shared)}.",
                hint="A calibration must not have seen what it is tested on.",
            )


class Distractors(Protocol):
    """A way to choose distractors."""

    def draw(self, anchors: Sequence[Anchor], count: int) -> list[tuple[int, ...] | None]:
        """``count`` distractors for each anchor, or None where fewer are eligible."""


def build_benchmark(
    pool: Pool,
    plan: BuildPlan,
    *,
    encoders: Encoders | None = None,
    cache: DiskCache | None = None,
    excluded: Iterable[str] = (),
    progress: ProgressBar = no_progress,
) -> Benchmark:
    """Make a benchmark of pictures.

    Args:
        pool: the pictures.
        plan: how.
        encoders: what makes pictures and captions comparable; needed for the adversarial setting. Given in the random
            setting, the facts say how similar its distractors are.
        cache: keeps the digests of files.
        excluded: digests (:func:`lad.benchmarks.contents.digest_images`) of pictures that must not be shown.
        progress: shows how far it is.

    Raises:
        SampleError: too few pictures for the plan, or distractors for a picture where the plan refuses that.
        ImageError: a picture cannot be read where the plan refuses that.
    """
    if plan.setting == "adversarial" and encoders is None:
        raise SampleError("The adversarial setting needs encoders.", hint="Give the name of one, or a folder.")
    with progress("Reading pictures", len(pool.pictures)) as advance:
        found = digest_images(
            [picture.image for picture in pool.pictures], cache=cache, broken=plan.broken, progress=advance
        )
    pool, digests = distinct(pool, found)
    pool, digests = without(pool, digests, excluded)
    apart = plan.calibration_size(len(digests))
    test, calibration = split_indices(digests, apart)
    captions = order_captions(pool.pictures, plan.caption, plan.seed)
    vectors = None
    if encoders is not None:
        from lad.benchmarks.hard_negatives import embed_pool

        vectors = embed_pool(pool, digests, captions, encoders, progress)
    wanted = plan.count or min(DEFAULT_COUNT, len(test))
    samples: dict[str, list[Sample]] = {}
    shown: dict[str, list[str]] = {}
    facts: dict[str, Any] = {}
    for split, indices, count in (("test", test, wanted), ("calibration", calibration, plan.calibration_samples)):
        # one stream for each kind of draw: more samples then begin with the same ones
        drawn_from = f"{split} {plan.setting} {plan.candidates} {plan.seed}"
        order, others, places = (random.Random(f"{kind} {drawn_from}") for kind in ("order", "others", "places"))
        source: Distractors
        if plan.setting == "random":
            source = RandomDistractors(indices, [texts[0] for texts in captions], others)
        else:
            from lad.benchmarks.hard_negatives import HardNegatives

            assert vectors is not None
            source = HardNegatives(indices, pool.pictures, vectors, plan.category_rule, plan.caption_limit)
        exact = plan.count is not None or split == "calibration"
        questions, lacking = _ask(source, indices, captions, order, count, plan, pool, split, exact)
        samples[split] = _to_samples(questions, pool, places, f"{pool.name}-{plan.setting}-{split}", plan)
        used = {index for question in questions for index in (question.anchor, *question.distractors)}
        shown[split] = sorted(digests[index] for index in used)
        facts[split] = {"pictures": len(indices), "pictures_shown": len(used), "samples": len(questions)}
        facts[split]["left_out"] = [
            {"picture": pool.pictures[anchor.picture].name, "caption": anchor.caption} for anchor in lacking
        ]
        if vectors is not None and questions:
            facts[split]["image_similarity"] = vectors.mean_similarity(questions)
    source_facts = {"name": pool.name, "read": pool.read, "pictures": len(digests), "left_out": pool.left_out}
    return Benchmark(
        samples["test"],
        samples["calibration"],
        {
            "source": source_facts,
            "plan": {**asdict(plan), "calibration_pictures": apart},
            "encoders": None if encoders is None else encoders.facts(),
            "splits": facts,
        },
        shown,
    )


def _ask(
    source: Distractors,
    indices: list[int],
    captions: list[tuple[str, ...]],
    rng: random.Random,
    count: int,
    plan: BuildPlan,
    pool: Pool,
    split: str,
    exact: bool,
) -> tuple[list[Question], list[Anchor]]:
    """``count`` questions, and the anchors passed over because too few distractors were eligible."""
    if not plan.repeat and count > len(indices):
        raise SampleError(
            f"{count} samples were asked for, but the {split} split has {len(indices)} pictures.",
            hint="Ask for fewer, or let pictures repeat as answers (repeat).",
        )
    rounds: int | None = 1
    if plan.repeat:  # a hard question asked again in the same words would be the same question
        most = max((len(captions[index]) for index in indices), default=0)
        rounds = None if plan.setting == "random" else most
    anchors = draw_anchors(indices, captions, rng, rounds=rounds)
    questions: list[Question] = []
    lacking: list[Anchor] = []
    fruitless = 0
    # a round without a single question would be followed by others like it
    while len(questions) < count and fruitless < len(indices):
        batch = list(islice(anchors, min(_ANCHOR_BATCH, count - len(questions))))
        if not batch:
            break
        for anchor, distractors in zip(batch, source.draw(batch, plan.candidates - 1), strict=True):
            if distractors is not None:
                questions.append(Question(anchor.caption, anchor.picture, distractors))
                fruitless = 0
                continue
            name = pool.pictures[anchor.picture].name
            if plan.too_few == "refuse":
                raise SampleError(
                    f"Fewer than {plan.candidates - 1} distractors are eligible for the caption {anchor.caption!r}.",
                    where=name,
                    hint="Leave such pictures out (skip), loosen the constraints, or give more pictures.",
                )
            lacking.append(anchor)
            fruitless += 1
    if len(questions) < count and (exact or not questions):
        named = ", ".join(pool.pictures[anchor.picture].name for anchor in lacking[:3])
        reason = f" {len(lacking)} pictures have too few eligible distractors, the first: {named}." if lacking else ""
        raise SampleError(
            f"Only {len(questions)} of {count} samples can be made in the {split} split.{reason}",
            hint="Ask for fewer samples, loosen the constraints, give more pictures"
            + (", or set more apart for calibration." if split == "calibration" else "."),
        )
    return questions, lacking


def _to_samples(
    questions: list[Question], pool: Pool, rng: random.Random, prefix: str, plan: BuildPlan
) -> list[Sample]:
    samples = []
    for number, question in enumerate(questions):
        answer = rng.randrange(plan.candidates)
        order = [*question.distractors[:answer], question.anchor, *question.distractors[answer:]]
        name = f"{prefix}-n{plan.candidates}-s{plan.seed}-{number:05d}"
        images = tuple(pool.pictures[index].image for index in order)
        samples.append(Sample(caption=question.caption, images=images, answer=answer, id=name))
    return samples
