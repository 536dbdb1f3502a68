"""Figures as functions of plain arrays; each returns ``(fig, axes)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lad.errors import RunError
from lad.report.exhibits import Drawing
from lad.report.figures.curves import (
    accuracy_by_layer,
    accuracy_over_candidates,
    calibration_and_temperature,
    calibration_spread,
    recall_by_position,
)
from lad.report.figures.matrices import bias_heatmap, confusion_matrices
from lad.report.figures.overlay import attention_overlay, stored_overlay
from lad.report.figures.profiles import attention_beside_logits, conditional_profiles
from lad.report.figures.style import image_of, label_of, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        accuracy_by_layer,
        accuracy_over_candidates,
        attention_beside_logits,
        bias_heatmap,
        calibration_and_temperature,
        calibration_spread,
        conditional_profiles,
        confusion_matrices,
        recall_by_position,
        stored_overlay,
    )
}
"""Figures that a stored report can hold, by name."""

__all__ = [
    "KINDS",
    "accuracy_by_layer",
    "accuracy_over_candidates",
    "attention_beside_logits",
    "attention_overlay",
    "bias_heatmap",
    "calibration_and_temperature",
    "calibration_spread",
    "conditional_profiles",
    "confusion_matrices",
    "draw",
    "image_of",
    "label_of",
    "recall_by_position",
    "save_figure",
    "stored_overlay",
]


def draw(drawing: Drawing) -> tuple[Figure, Any]:
    """Draw what a report holds.

    Raises:
        RunError: there is no such kind of figure.
        DependencyError: matplotlib is not installed.
    """
    if drawing.kind not in KINDS:
        raise RunError(f"There is no kind of figure {drawing.kind!r}.", hint=f"Known: {', '.join(KINDS)}.")
    fig, axes = KINDS[drawing.kind](**drawing.data)
    return fig, axes
