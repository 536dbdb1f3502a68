"""Figures 5 and 6 of the paper: accuracy over N, over the calibration size and over tau."""

from __future__ import annotations

from typing import Any

import numpy as np

from lad.evaluation.results import MethodResult
from lad.report.exhibits import Drawing, Exhibit
from lad.reproduce.cells import Ask, Cell
from lad.reproduce.results import Results
from lad.reproduce.scope import Scope
from lad.reproduce.tables import SETTINGS

_TAUS = (1, 3, 5, 7, 9)
_SERIES = ("vanilla", "pride", "agd")


def candidates_asks(scope: Scope) -> list[Ask]:
    """What figure 5 asks for."""
    return [
        ask for setting in SETTINGS for count in range(2, 13) for ask in scope.ask(scope.cell(setting, count), *_SERIES)
    ]


def candidates_figure(results: Results) -> list[Exhibit]:
    """Figure 5: accuracy over N."""
    panels: dict[str, Any] = {}
    cells: list[Cell] = []
    for setting in SETTINGS:
        there = [c for count in range(2, 13) if (c := results.scope.cell(setting, count)) is not None]
        cells += there
        if there:
            panels[setting] = {
                method: [_point(cell.candidates, results[Ask(cell, method)]) for cell in there] for method in _SERIES
            }
    if not panels:
        return []
    notes = _measured_on(results, cells)
    title = "Figure 5: accuracy over the number of images"
    return [Drawing("figure5", title, "accuracy_over_candidates", {"panels": panels}, notes)]


def _point(x: float, result: MethodResult) -> list[float]:
    return [x, *(round(value, 3) for value in (result.metrics.accuracy, *result.intervals.accuracy))]


def _measured_on(results: Results, cells: list[Cell]) -> tuple[str, ...]:
    numbers = sorted({len(results.cells[cell].samples) for cell in cells})
    return (
        f"Ours: {results.facts['model']}, {results.scope.data.describe()}, {' or '.join(map(str, numbers))} samples a"
        f" point, {results.scope.orders} orders each; shaded: 95% intervals.",
        "The paper gives no numbers for this figure.",
    )


def _sizes(scope: Scope, cell: Cell) -> list[tuple[int, int]]:
    """(size, draw) of the calibrations of figure 6 on a cell."""
    available = len(scope.data.calibration(cell, max(scope.sizes)))
    sizes = [size for size in scope.sizes if size <= available]
    return [(size, draw) for size in sizes for draw in range(scope.draws if size < available else 1)]


def sensitivity_asks(scope: Scope) -> list[Ask]:
    """What figure 6 asks for."""
    asks = []
    for count in (4, 8):
        if (cell := scope.cell("adversarial", count)) is not None:
            asks += [Ask(cell, m, size=size, draw=draw) for size, draw in _sizes(scope, cell) for m in ("pride", "agd")]
            asks += [Ask(cell, f"agd:temperature={tau}") for tau in _TAUS]
            asks += [Ask(cell, "pride")]
    return asks


def sensitivity_figure(results: Results) -> list[Exhibit]:
    """Figure 6: accuracy over the calibration size and over tau, adversarial."""
    by_size: dict[str, Any] = {}
    by_tau: dict[str, Any] = {}
    cells = []
    for count in (4, 8):
        cell = results.scope.cell("adversarial", count)
        if cell is None:
            continue
        cells.append(cell)
        pairs = _sizes(results.scope, cell)
        by_size[f"N = {count}"] = {
            method: [
                _spread(size, [results[Ask(cell, method, size=s, draw=d)] for s, d in pairs if s == size])
                for size in sorted({s for s, _ in pairs})
            ]
            for method in ("pride", "agd")
        }
        flat = results[Ask(cell, "pride")]
        by_tau[f"N = {count}"] = {
            "pride": [_point(tau, flat) for tau in _TAUS],
            "agd": [_point(tau, results[Ask(cell, f"agd:temperature={tau}")]) for tau in _TAUS],
        }
    if not by_size:
        return []
    data = {"by_size": by_size, "by_temperature": by_tau}
    notes = (
        *_measured_on(results, cells),
        f"Over the size: mean and range of {results.scope.draws} draws of calibration samples. PriDe knows no tau.",
    )
    title = "Figure 6: calibration size and temperature, adversarial"
    return [Drawing("figure6", title, "calibration_and_temperature", data, notes)]


def _spread(size: int, measured: list[MethodResult]) -> list[float]:
    values = [result.metrics.accuracy for result in measured]
    return [float(size), *(round(value, 3) for value in (float(np.mean(values)), min(values), max(values)))]
