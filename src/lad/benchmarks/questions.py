"""Which picture is asked about with which caption, and among which others: the draws behind a benchmark."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lad.benchmarks.pool import Picture

CaptionChoice = Literal["first", "random"]


@dataclass(frozen=True)
class Question:
    """A caption, the picture it belongs to, and the distractors, as indices of pictures.

    Attributes:
        caption: the text.
        anchor: the right picture.
        distractors: N - 1 others.
    """

    caption: str
    anchor: int
    distractors: tuple[int, ...]


@dataclass(frozen=True)
class Anchor:
    """A picture to be asked about, and the caption to ask with."""

    picture: int
    caption: str


def split_indices(digests: Sequence[str], calibration: int) -> tuple[list[int], list[int]]:
    """Part pictures into those of the test split and ``calibration`` others, both in their order.

    Which picture goes where follows from what it shows alone: not from a seed, its name or its place. So all
    benchmarks made of the same pictures with the same number share one split, whatever their setting and seed, and a
    calibration of one may be used on the test samples of another.

    Args:
        digests: of what each picture shows, without repeats.
        calibration: how many pictures go to the calibration split.
    """
    ranked = sorted(range(len(digests)), key=lambda index: hashlib.sha256(f"split {digests[index]}".encode()).digest())
    chosen = set(ranked[:calibration])
    return [index for index in range(len(digests)) if index not in chosen], sorted(chosen)


def order_captions(pictures: Sequence[Picture], choice: CaptionChoice, seed: int) -> list[tuple[str, ...]]:
    """The captions of each picture, its own one first: as in the dataset, or shuffled."""
    if choice == "first":
        return [picture.captions for picture in pictures]
    ordered = []
    for picture in pictures:
        captions = list(picture.captions)
        random.Random(f"captions {seed} {picture.name}").shuffle(captions)
        ordered.append(tuple(captions))
    return ordered


def draw_anchors(
    indices: Sequence[int], captions: Sequence[Sequence[str]], rng: random.Random, *, rounds: int | None = 1
) -> Iterator[Anchor]:
    """Pictures to ask about, in an order drawn at random.

    In every round each picture comes once, with the next of its captions.

    Args:
        indices: the pictures of the split.
        captions: of every picture of the pool, its own one first.
        rng: draws the order.
        rounds: how many rounds; None for no end, captions then come again.
    """
    number = 0
    while rounds is None or number < rounds:
        for index in rng.sample(indices, len(indices)):
            if number < len(captions[index]) or rounds is None:
                yield Anchor(index, captions[index][number % len(captions[index])])
        number += 1


class RandomDistractors:
    """Distractors drawn uniformly from the other pictures of the split whose own caption is another text."""

    def __init__(self, indices: Sequence[int], own_captions: Sequence[str], rng: random.Random) -> None:
        self._indices = list(indices)
        self._texts = [text.casefold() for text in own_captions]
        self._uses = Counter(self._texts[index] for index in self._indices)
        self._rng = rng

    def eligible(self, anchor: Anchor) -> int:
        """How many pictures may stand beside this one."""
        text = anchor.caption.casefold()
        return len(self._indices) - self._uses[text] - (self._texts[anchor.picture] != text)

    def draw(self, anchors: Sequence[Anchor], count: int) -> list[tuple[int, ...] | None]:
        """``count`` distractors for each anchor, or None where fewer are eligible."""
        return [self._draw(anchor, count) if self.eligible(anchor) >= count else None for anchor in anchors]

    def _draw(self, anchor: Anchor, count: int) -> tuple[int, ...]:
        text = anchor.caption.casefold()
        chosen: dict[int, None] = {}
        while len(chosen) < count:
            index = self._rng.choice(self._indices)
            if index != anchor.picture and self._texts[index] != text:
                chosen.setdefault(index)
        return tuple(chosen)
