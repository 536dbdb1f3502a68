"""How much of each thing is measured, and on what data."""

from __future__ import annotations

from dataclasses import dataclass

from lad.errors import RunError
from lad.reproduce.cells import Ask, Cell
from lad.reproduce.data import Data


@dataclass(frozen=True, eq=False)
class Scope:
    """What all plans of a reproduction share.

    Attributes:
        data: where samples come from.
        samples: of each cell with N = 4 or 8 and digits; half as many of all others.
        orders: T.
        own_samples: samples that methods with passes of their own are measured on; None for half of ``samples``.
        permutation_samples: samples that permutation averaging is measured on, which costs N passes a query.
        text_samples: samples that methods with reasoning in words are measured on; 0 leaves these methods out.
        text_tokens: most tokens they may write; None for the published 1,024 and 512.
        sizes: calibration sizes of figure 6.
        draws: how many sets of calibration samples of a size are drawn for figure 6.
        timed: samples that time and memory are measured on.
        overlays: samples of each browsed cell whose attention is kept patch by patch.
        seed: of orders, draws and scenes.

    Raises:
        RunError: a number that is too small.
    """

    data: Data
    samples: int = 200
    orders: int = 5
    own_samples: int | None = None
    permutation_samples: int = 40
    text_samples: int = 10
    text_tokens: int | None = None
    sizes: tuple[int, ...] = (1, 5, 10, 20, 50, 100)
    draws: int = 5
    timed: int = 24
    overlays: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("samples", "permutation_samples", "draws", "timed"):
            if getattr(self, name) < 1:
                raise RunError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.orders < 2:
            raise RunError(f"At least 2 orders are needed to see what the order does, not {self.orders}.")
        if self.text_samples < 0 or self.overlays < 0:
            raise RunError("A number of samples cannot be negative.")

    def cell(self, setting: str, candidates: int, identifiers: str = "digits", dataset: int = 0) -> Cell | None:
        """A cell of the first (or second) dataset; None where there are no samples for it."""
        if dataset >= len(self.data.datasets):
            return None
        cell = Cell(self.data.datasets[dataset], setting, candidates, identifiers)
        return cell if self.data.offers(cell) else None

    def count(self, cell: Cell) -> int:
        """How many samples of a cell are wanted; the data may hold fewer."""
        main = cell.candidates in (4, 8) and cell.identifiers == "digits"
        return self.samples if main else max(1, self.samples // 2)

    def own(self, name: str) -> str:
        """A method that makes observations of its own (another prompt, another attention), as a method."""
        number = self.own_samples if self.own_samples is not None else max(1, self.samples // 2)
        return f"{name}:samples={min(number, self.samples)}"

    def permutations(self) -> str:
        """Permutation averaging, as a method."""
        return f"permutation_average:samples={self.permutation_samples}"

    def texts(self, name: str) -> str | None:
        """A method that reasons in words, as a method; None if such methods are left out."""
        if not self.text_samples:
            return None
        tokens = "" if self.text_tokens is None else f",max_new_tokens={self.text_tokens}"
        return f"{name}:samples={self.text_samples}{tokens}"

    def ask(self, cell: Cell | None, *methods: str | None) -> list[Ask]:
        """The asks of some methods on a cell; none where the cell or a method is None."""
        return [] if cell is None else [Ask(cell, method) for method in methods if method is not None]
