"""Figures of accuracy over what was varied: the number of images, calibration size, temperature, layer, position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lad.report.figures.style import FAINT, INK, LOOKS, OTHER_LOOKS, label_of, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Series = Mapping[str, Sequence[Sequence[float]]]
"""Method -> points (x, accuracy, low, high)."""


@styled
def accuracy_over_candidates(panels: Mapping[str, Series]) -> tuple[Figure, NDArray[Any]]:
    """Accuracy over the number of images N (paper, figure 5).

    Args:
        panels: setting -> method -> points (N, accuracy, low, high) in percent.

    Returns:
        The figure and its axes (1, panels).
    """
    fig, axes = new_figure(1, len(panels), (3.9 * len(panels) + 0.3, 3.2), sharey=True)
    for ax, (setting, series) in zip(axes.flat, panels.items(), strict=True):
        seen = sorted({point[0] for points in series.values() for point in points})
        ax.plot(seen, [100 / x for x in seen], color=FAINT, ls=(0, (1, 2)), lw=1.2, label="chance")
        _lines(ax, series)
        ax.set(title=setting, xlabel="images, N", ylim=(0, 103))
        ax.set_xticks(seen, [f"{x:g}" for x in seen])
    axes[0, 0].set_ylabel("accuracy, percent")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return fig, axes


@styled
def calibration_and_temperature(
    by_size: Mapping[str, Series], by_temperature: Mapping[str, Series]
) -> tuple[Figure, NDArray[Any]]:
    """Accuracy over the calibration size, and over tau (paper, figure 6).

    Args:
        by_size: row title -> method -> points (samples, accuracy, low, high); the band is the spread over draws.
        by_temperature: the same over tau; the band is the 95% interval over samples.

    Returns:
        The figure and its axes (rows, 2).
    """
    fig, axes = new_figure(len(by_size), 2, (7.6, 2.5 * len(by_size) + 0.5), sharey="row")
    for row, title in enumerate(by_size):
        left, right = axes[row]
        _lines(left, by_size[title])
        _lines(right, by_temperature[title])
        sizes = sorted({point[0] for points in by_size[title].values() for point in points})
        left.set_xscale("log")
        left.set_xticks(sizes, [f"{x:g}" for x in sizes])
        left.minorticks_off()
        left.set_ylabel(f"{title}\naccuracy, percent")
        taus = sorted({point[0] for points in by_temperature[title].values() for point in points})
        right.set_xticks(taus, [f"{x:g}" for x in taus])
    axes[-1, 0].set_xlabel("calibration samples")
    axes[-1, 1].set_xlabel("temperature tau")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return fig, axes


@styled
def recall_by_position(
    recalls: Mapping[str, Sequence[float | None]], *, identifiers: Sequence[str]
) -> tuple[Figure, NDArray[Any]]:
    """Recall where the truth stands at each position; flat is fair.

    Args:
        recalls: method -> (N,) in percent; None where the truth never stood.
        identifiers: the N identifiers.

    Returns:
        The figure and its axes (1, 1).
    """
    fig, axes = new_figure(1, 1, (3.9, 2.9))
    ax = axes[0, 0]
    places = np.arange(len(identifiers))
    ax.axhline(100 / len(identifiers), color=FAINT, ls=(0, (1, 2)), lw=1.2, label="chance")
    for index, (method, values) in enumerate(recalls.items()):
        color, stroke, marker = _look(method, index)
        line = np.array([np.nan if value is None else value for value in values])
        ax.plot(places, line, color=color, ls=stroke, marker=marker, ms=4.5, lw=1.5, label=label_of(method))
    ax.set_xticks(places, identifiers)
    ax.set(xlabel="true position", ylabel="recall, percent", ylim=(-3, 103))
    ax.grid(axis="y", color="#eeeeee")
    fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return fig, axes


@styled
def accuracy_by_layer(
    raw: ArrayLike, purified: ArrayLike, chosen: ArrayLike, *, said: float, chance: float
) -> tuple[Figure, NDArray[Any]]:
    """How often each layer alone points at the truth, beside what the model says: the divergence.

    Args:
        raw: (L,), percent of observations in which the layer's attention is highest on the truth.
        purified: (L,), the same once the attention prior is taken off.
        chosen: (L,), percent of observations in which the layer is among the K with most image attention.
        said: the model's own accuracy.
        chance: 100 / N.

    Returns:
        The figure and its axes (1, 1).
    """
    fig, axes = new_figure(1, 1, (4.6, 2.9))
    ax = axes[0, 0]
    layers = np.arange(len(np.asarray(raw)))
    ax.bar(layers, np.asarray(chosen), color="#dddddd", width=0.8, label="chosen by mass", zorder=0)
    for name, values in (("raw_attention", raw), ("purified_attention", purified)):
        color, stroke, marker = LOOKS[name]
        ax.plot(layers, np.asarray(values), color=color, ls=stroke, marker=marker, ms=4, lw=1.5, label=label_of(name))
    ax.axhline(said, color=LOOKS["vanilla"][0], lw=1.5, label="what it says")
    ax.axhline(chance, color=FAINT, ls=(0, (1, 2)), lw=1.2, label="chance")
    step = max(1, len(layers) // 12)
    ax.set_xticks(layers[::step])
    ax.set(xlabel="decoder layer", ylabel="percent", ylim=(0, 103))
    fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return fig, axes


@styled
def calibration_spread(sizes: Mapping[str, Sequence[float]], *, without: float) -> tuple[Figure, NDArray[Any]]:
    """AGD's accuracy with many different draws of calibration samples: is a handful enough?

    Args:
        sizes: number of samples -> accuracies of the draws, in percent.
        without: accuracy of the model alone.

    Returns:
        The figure and its axes (1, 1).
    """
    fig, axes = new_figure(1, 1, (3.9, 2.9))
    ax = axes[0, 0]
    color, _, marker = LOOKS["agd"]
    for place, values in enumerate(sizes.values()):
        spread = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
        ax.scatter(place + spread, sorted(values), s=11, color=color, alpha=0.45, marker=marker, lw=0)
        ax.hlines(float(np.mean(list(values))), place - 0.3, place + 0.3, color=INK, lw=1.8)
    ax.axhline(without, color=LOOKS["vanilla"][0], lw=1.5)
    ax.annotate("vanilla", (len(sizes) - 0.6, without), xytext=(0, 3), textcoords="offset points",
                color=LOOKS["vanilla"][0], fontsize=8, ha="right")  # fmt: skip
    ax.set_xticks(range(len(sizes)), list(sizes))
    ax.set(xlabel="calibration samples", ylabel="accuracy of AGD, percent", xlim=(-0.5, len(sizes) - 0.5))
    ax.grid(axis="y", color="#eeeeee")
    return fig, axes


def _look(method: str, index: int) -> tuple[str, str, str]:
    return LOOKS.get(method) or OTHER_LOOKS[index % len(OTHER_LOOKS)]


def _lines(ax: Any, series: Series) -> None:
    for index, (method, points) in enumerate(series.items()):
        color, stroke, marker = _look(method, index)
        x, middle, low, high = np.array(points, dtype=np.float64).T
        ax.fill_between(x, low, high, color=color, alpha=0.15, lw=0)
        ax.plot(x, middle, color=color, ls=stroke, marker=marker, ms=4.5, lw=1.5, label=label_of(method))
    ax.grid(axis="y", color="#eeeeee")
