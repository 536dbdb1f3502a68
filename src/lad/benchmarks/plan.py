"""Everything that decides what a benchmark of pictures looks like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from lad.benchmarks.contents import Broken
from lad.benchmarks.questions import CaptionChoice
from lad.errors import SampleError

Setting = Literal["random", "adversarial"]
CategoryRule = Literal["contains", "equals", "none"]
TooFew = Literal["skip", "refuse"]

DEFAULT_COUNT = 1000
"""Samples in the test split where nothing else is asked for, as in the paper."""


@dataclass(frozen=True)
class BuildPlan:
    """How samples are made of pictures.

    Attributes:
        setting: "random": distractors are drawn uniformly. "adversarial": they are the most similar pictures that the
            constraints leave.
        candidates: N, at least 2.
        count: samples in the test split; None takes 1,000, or as many as there are pictures.
        calibration_samples: samples in the calibration split; 0 makes none.
        calibration_pictures: pictures set apart for the calibration split; None takes a tenth of all, and at least
            ``calibration_samples`` times N. They are never shown in the test split.
        seed: seed of everything drawn. The split does not depend on it.
        caption: which of its captions is a picture's own: the "first", or one drawn at "random".
        repeat: let a picture be the answer more than once: with its next caption, and with other distractors.
        too_few: what to do about a picture with fewer than N - 1 eligible distractors: "skip" it and name it in the
            manifest, or "refuse" to build.
        category_rule: adversarial distractors may not have categories that "contains" those of the anchor (the
            published code) or that "equals" them (the paper); "none" puts no such constraint. Pictures without
            categories are never excluded by it.
        caption_limit: adversarial distractors may not have a caption as similar as this, or more, to the sample's.
        broken: what to do about a picture that cannot be read: "refuse" to build, or "skip" it.

    Raises:
        SampleError: a value that is not possible.
    """

    setting: Setting = "random"
    candidates: int = 4
    count: int | None = None
    calibration_samples: int = 5
    calibration_pictures: int | None = None
    seed: int = 0
    caption: CaptionChoice = "first"
    repeat: bool = False
    too_few: TooFew = "skip"
    category_rule: CategoryRule = "contains"
    caption_limit: float = 0.9
    broken: Broken = "refuse"

    def __post_init__(self) -> None:
        choices = (
            ("setting", Setting), ("caption", CaptionChoice), ("too_few", TooFew), ("category_rule", CategoryRule),
            ("broken", Broken),
        )  # fmt: skip
        for name, choice in choices:
            if getattr(self, name) not in get_args(choice):
                raise SampleError(
                    f"The {name.replace('_', ' ')} {getattr(self, name)!r} does not exist.",
                    hint=f"Choose {' or '.join(get_args(choice))}.",
                )
        least = {"candidates": 2, "count": 1, "calibration_samples": 0, "calibration_pictures": 0}
        for name, limit in least.items():
            value = getattr(self, name)
            if value is not None and value < limit:
                raise SampleError(f"The number of {name.replace('_', ' ')} must be at least {limit}, not {value}.")

    def calibration_size(self, pictures: int) -> int:
        """How many of ``pictures`` pictures are set apart for the calibration split.

        Raises:
            SampleError: too few for a sample, or too few are left for the test split.
        """
        if self.calibration_samples == 0:
            return 0
        size = self.calibration_pictures
        if size is None:
            size = max(self.calibration_samples * self.candidates, pictures // 10)
        if size < self.candidates or pictures - size < self.candidates:
            raise SampleError(
                f"{pictures} pictures are too few: {size} for the calibration split and {pictures - size} for the test"
                f" split, where each needs at least {self.candidates}.",
                hint="Give more pictures, fewer candidates, or another number of calibration pictures.",
            )
        return size
