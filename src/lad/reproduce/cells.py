"""What is observed (cells) and what is asked of it (asks)."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Cell:
    """One combination whose samples are observed together.

    Attributes:
        dataset: its name, for instance "scenes" or "coco".
        setting: "random", "adversarial", or a task.
        candidates: N.
        identifiers: name of the set.
    """

    dataset: str
    setting: str
    candidates: int
    identifiers: str = "digits"

    @property
    def folder(self) -> str:
        """What its folder is called."""
        words = (self.dataset, self.setting, f"n{self.candidates}", self.identifiers)
        return "-".join(re.sub(r"[^\w.]+", "_", word) for word in words)

    def __str__(self) -> str:
        named = "" if self.identifiers == "digits" else f", {self.identifiers}"
        return f"{self.dataset}, {self.setting}, N = {self.candidates}{named}"


CALIBRATION_SAMPLES = 5
"""The published calibration size."""


@dataclass(frozen=True)
class Ask:
    """One row of a table or point of a figure: a method with its options, on a cell, with a calibration.

    Attributes:
        cell: whose samples are answered.
        method: as of :func:`lad.evaluation.methods.parse_method`.
        calibrated_on: the cell whose calibration samples are used; None for its own.
        size: how many of them.
        draw: which of them: 0 the first ones, others are drawn at random.
    """

    cell: Cell
    method: str
    calibrated_on: Cell | None = None
    size: int = CALIBRATION_SAMPLES
    draw: int = 0

    @property
    def calibration_cell(self) -> Cell:
        """The cell whose calibration samples are used."""
        return self.calibrated_on or self.cell

    @property
    def standard(self) -> bool:
        """Whether its calibration is the one that all methods of its cell share."""
        return self.calibrated_on in (None, self.cell) and self.size == CALIBRATION_SAMPLES and self.draw == 0
