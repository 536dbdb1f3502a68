"""What a check says, and how exact is exact."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class CheckResult:
    """One check's outcome.

    Attributes:
        name: which check.
        difference: what was measured: the largest difference between two ways that must agree, or how many things
            were wrong.
        tolerance: how much may be measured.
        detail: what was compared, and what was found.
    """

    name: str
    difference: float
    tolerance: float
    detail: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "difference", float(self.difference))
        object.__setattr__(self, "tolerance", float(self.tolerance))

    @property
    def passed(self) -> bool:
        """Whether the difference is within the tolerance; one that is no number is not."""
        return self.difference <= self.tolerance


@dataclass(frozen=True)
class Tolerances:
    """How far two ways to the same numbers may differ by rounding alone.

    Attributes:
        scores: log-probabilities.
        rows: attention, between 0 and 1.
    """

    scores: float
    rows: float

    @staticmethod
    def of(dtype: torch.dtype, device: torch.device) -> Tolerances:
        """Those of a precision. Half precisions round each layer's output to 8 or 11 bits."""
        if dtype == torch.float32:
            return Tolerances(1e-5, 1e-5) if device.type == "cpu" else Tolerances(1e-4, 1e-4)
        return Tolerances(2e-2, 2e-3) if dtype == torch.float16 else Tolerances(1e-1, 1e-2)
