"""How a run of the suite is set, and the figures that come out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from perf.measure import Spread
from perf.models import MIDDLE, QWEN_3B, SMALL, Shape


@dataclass(frozen=True)
class Setting:
    """What is measured, and how thoroughly.

    Attributes:
        device: where.
        dtype: of the large models' weights.
        large: the shapes of the forward, reuse and gallery figures.
        middle: the shapes of the whole plan's larger model, in float32.
        rounds: of each comparison.
        samples: of the whole plan.
        counts: N of the whole plan on the shipped model.
        side: of square images of the large model, in pixels.
        lengths: image sizes (width, height) of the three prompt lengths, at N = 4.
    """

    device: torch.device
    dtype: torch.dtype
    large: Shape
    middle: Shape
    rounds: int
    samples: int
    counts: tuple[int, ...]
    side: int
    lengths: tuple[tuple[int, int], ...]

    @classmethod
    def real(cls, device: torch.device, dtype: torch.dtype, layers: int, rounds: int) -> Setting:
        """Layers of the real sizes."""
        # 4 images of 104, 361 and 729 tokens, two markers each, and about 80 tokens of text: T = 500, 1500, 3000
        lengths = ((8 * 28, 13 * 28), (19 * 28, 19 * 28), (27 * 28, 27 * 28))
        return cls(device, dtype, QWEN_3B.with_layers(layers, layers), MIDDLE, rounds, 2, (4, 12), 336, lengths)

    @classmethod
    def quick(cls, device: torch.device, dtype: torch.dtype, rounds: int = 1) -> Setting:
        """Small sizes, to see in seconds that everything runs; its figures say nothing about real models."""
        return cls(device, dtype, SMALL, SMALL, rounds, 1, (4,), 56, ((56, 56), (84, 84), (112, 112)))


@dataclass(frozen=True)
class Row:
    """One measured figure.

    Attributes:
        section: what it belongs to.
        case: of what.
        figure: what was measured.
        value: the figure, with its spread.
        unit: "x" for ratios, "s", "MiB", "".
        limit: what it is to be at most or at least, as text; empty if it is for information.
        met: whether it is; None without a limit.
        more: whatever else belongs to it.
    """

    section: str
    case: str
    figure: str
    value: Spread
    unit: str = "x"
    limit: str = ""
    met: bool | None = None
    more: dict[str, Any] = field(default_factory=dict)


def at_most(section: str, case: str, figure: str, value: Spread, limit: float, **more: Any) -> Row:
    """A ratio that is to be small."""
    return Row(section, case, figure, value, "x", f"at most {limit:g}", value.median <= limit, more)


def at_least(section: str, case: str, figure: str, value: Spread, limit: float, **more: Any) -> Row:
    """A ratio that is to be large."""
    return Row(section, case, figure, value, "x", f"at least {limit:g}", value.median >= limit, more)


def exact(value: float) -> Spread:
    """A figure that is the same every time."""
    return Spread(value, value, value)
