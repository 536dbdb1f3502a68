"""Matrices over true and said positions: confusion, and bias in log units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lad.report.figures.style import FAINT, INK, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def confusion_matrices(
    panels: Sequence[Sequence[ArrayLike | None]],
    *,
    row_titles: Sequence[str],
    column_titles: Sequence[str],
    identifiers: Sequence[Sequence[str]],
) -> tuple[Figure, NDArray[Any]]:
    """Confusion matrices in a grid, all on one scale (paper, figures 1 and 8).

    A vertical stripe is a position that is said whatever the truth; a diagonal is what a model should show.

    Args:
        panels: by row and column of the grid, (N, N) in percent, row = true position, column = said position; None
            leaves a panel out.
        row_titles: one per row of the grid.
        column_titles: one per column.
        identifiers: per row of the grid, the N identifiers.

    Returns:
        The figure and its axes (rows, columns).
    """
    rows, columns = len(panels), len(column_titles)
    count = max(len(names) for names in identifiers)
    side = 2.1 if count <= 5 else 3.1
    fig, axes = new_figure(rows, columns, (side * columns + 1.0, (side + 0.15) * rows + 0.45), "compressed")
    shown = None
    for row, (matrices, names) in enumerate(zip(panels, identifiers, strict=True)):
        for column, values in enumerate(matrices):
            ax = axes[row, column]
            if values is None:
                ax.set_axis_off()
                continue
            matrix = np.asarray(values, dtype=np.float64)
            shown = ax.imshow(matrix, cmap="Blues", vmin=0, vmax=100)
            _write_numbers(ax, matrix, limit=60, form="{:.0f}", least=0.95)
            _name_positions(ax, names)
            if row == 0:
                ax.set_title(column_titles[column])
            if column == 0:
                ax.set_ylabel(f"{row_titles[row]}\ntrue position" if row_titles[row] else "true position")
            if row == rows - 1:
                ax.set_xlabel("said position")
    if shown is not None:
        fig.colorbar(shown, ax=axes, label="percent", shrink=0.6, aspect=25)
    return fig, axes


@styled
def bias_heatmap(
    bias: ArrayLike, *, identifiers: Sequence[str], title: str = "Conditional bias"
) -> tuple[Figure, NDArray[Any]]:
    """The conditional bias matrix B in nats (Eq. 5): what a position gains or loses beside its right.

    Args:
        bias: (N, N), row = true position, column = said position.
        identifiers: the N identifiers.
        title: over it.

    Returns:
        The figure and its axes (1, 1).
    """
    matrix = np.asarray(bias, dtype=np.float64)
    side = 2.6 if len(matrix) <= 5 else 3.8
    fig, axes = new_figure(1, 1, (side + 1.1, side + 0.3), "compressed")
    reach = max(0.5, float(np.abs(matrix).max()))
    shown = axes[0, 0].imshow(matrix, cmap="PuOr_r", vmin=-reach, vmax=reach)
    _write_numbers(axes[0, 0], matrix, limit=0.65 * reach, form="{:+.1f}", least=0.0)
    _name_positions(axes[0, 0], identifiers)
    axes[0, 0].set(title=title, xlabel="said position", ylabel="true position")
    fig.colorbar(shown, ax=axes, label="nats", shrink=0.8)
    return fig, axes


def _write_numbers(ax: Any, matrix: NDArray[np.float64], *, limit: float, form: str, least: float) -> None:
    size = 8 if len(matrix) <= 5 else 6.5 if len(matrix) <= 8 else 5
    for (i, j), value in np.ndenumerate(matrix):
        if abs(value) >= least:
            color = "white" if abs(value) > limit else INK
            ax.text(j, i, form.format(value), ha="center", va="center", fontsize=size, color=color)


def _name_positions(ax: Any, names: Sequence[str]) -> None:
    ax.set_xticks(range(len(names)), names)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(length=0, labelsize=8 if len(names) <= 8 else 7)
    for spine in ax.spines.values():
        spine.set_visible(True)
        spine.set_color(FAINT)
