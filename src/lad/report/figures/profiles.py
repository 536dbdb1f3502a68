"""What single observations say, by position: score profiles, and attention beside log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lad.report.figures.style import FAINT, INK, LOOKS, OTHER_LOOKS, TRUTH, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def conditional_profiles(
    profiles: Sequence[ArrayLike], *, identifiers: Sequence[str], score: str = "log-probability"
) -> tuple[Figure, NDArray[Any]]:
    """For each true position, every sample's scores over positions and their mean (paper, figure 2).

    Where the grey lines of a panel keep together, the bias is stable; where panels differ, it is conditional.

    Args:
        profiles: per true position, (samples, N) scores by position; may be empty.
        identifiers: the N identifiers.
        score: what the scores are.

    Returns:
        The figure and its axes; those beyond N are empty.
    """
    count = len(identifiers)
    columns = min(4, count)
    rows = math.ceil(count / columns)
    fig, axes = new_figure(rows, columns, (2.1 * columns + 0.5, 1.75 * rows + 0.5), sharex=True, sharey=True)
    places = np.arange(count)
    color, stroke, marker = LOOKS["agd"]
    for true, (ax, values) in enumerate(zip(axes.flat, profiles, strict=False)):
        lines = np.asarray(values, dtype=np.float64).reshape(-1, count)
        ax.axvspan(true - 0.4, true + 0.4, color=TRUTH, alpha=0.3, lw=0)
        if len(lines):
            ax.plot(places, lines.T, color=FAINT, lw=0.6, alpha=min(1.0, max(0.25, 12 / len(lines))))
            ax.plot(places, lines.mean(axis=0), color=color, ls=stroke, marker=marker, ms=3.5, lw=1.8)
        ax.set_title(f"truth at {identifiers[true]}", color=INK)
        ax.set_xticks(places, identifiers)
        ax.grid(axis="y", color="#eeeeee")
    for ax in axes.flat[count:]:
        ax.set_axis_off()
    fig.supxlabel("position (shaded: where the truth stands)", fontsize=9)
    fig.supylabel(score, fontsize=9)
    return fig, axes


@styled
def attention_beside_logits(
    log_probs: ArrayLike,
    attention: ArrayLike,
    purified: ArrayLike,
    *,
    answer_position: int,
    identifiers: Sequence[str],
) -> tuple[Figure, NDArray[Any]]:
    """A few samples with the truth at one position: the answer, and where the last token looks (paper, figure 3).

    Args:
        log_probs: (K, N), log-probabilities of the positions.
        attention: (K, N), attention of the chosen layers on the images.
        purified: (K, N), the posterior of purified attention, 0 to 1.
        answer_position: where the truth stands in all of them.
        identifiers: the N identifiers.

    Returns:
        The figure and its axes (1, 3).
    """
    said = np.exp(np.asarray(log_probs, dtype=np.float64))
    looked = np.asarray(attention, dtype=np.float64)
    looked = looked / np.maximum(looked.sum(axis=1, keepdims=True), 1e-20)
    panels = (
        (said, "What it says\n(probability of the answer)"),
        (looked, "Where it looks\n(share of attention on images)"),
        (np.asarray(purified, dtype=np.float64), "Where it looks more than usual\n(purified attention)"),
    )
    fig, axes = new_figure(1, 3, (8.4, 2.9), sharey=True, sharex=True)
    places = np.arange(len(identifiers))
    for ax, (values, title) in zip(axes.flat, panels, strict=True):
        ax.axvspan(answer_position - 0.4, answer_position + 0.4, color=TRUTH, alpha=0.3, lw=0)
        for index, line in enumerate(values):
            color, stroke, marker = OTHER_LOOKS[index % len(OTHER_LOOKS)]
            # equal lines are set apart a little
            apart = places + 0.07 * (index - (len(values) - 1) / 2)
            ax.plot(apart, line, color=color, ls=stroke, marker=marker, ms=4.5, lw=1.2, label=f"sample {index + 1}")
        ax.set_title(title)
        ax.set_xticks(places, identifiers)
        ax.set_xlabel("position")
        ax.set_ylim(-0.03, 1.03)
        ax.grid(axis="y", color="#eeeeee")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(said), fontsize=8)
    return fig, axes
