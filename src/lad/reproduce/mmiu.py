"""Table 5: tasks of MMIU."""

from __future__ import annotations

from typing import Any

import numpy as np

from lad.report.exhibits import Column, Table
from lad.reproduce.cells import Ask, Cell
from lad.reproduce.protocol import differences
from lad.reproduce.published import rows_of
from lad.reproduce.results import Results
from lad.reproduce.scope import Scope

_METHODS = ("vanilla", "purified_attention", "agd")


def mmiu_asks(scope: Scope) -> list[Ask]:
    """What table 5 asks for: each task at each N it has."""
    return [ask for cell in scope.data.tasks for ask in scope.ask(cell, *_METHODS)]


def mmiu_table(results: Results) -> list[Table]:
    """Table 5: accuracy by task, and what AGD does to RStd."""
    rows = []
    for theirs in rows_of("mmiu"):
        cells = [cell for cell in results.scope.data.tasks if cell.setting == theirs["task"]]
        row: dict[str, Any] = {"task": theirs["task"], "published_change": theirs["rstd_change"]}
        for method in _METHODS:
            ours = _pooled(results, cells, method)
            row |= {f"published_{method}": theirs[method], f"our_{method}": ours}
            row[f"change_{method}"] = None if ours is None else ours - theirs[method]
        row["our_change"] = _spread_change(results, cells)
        row["samples"] = sum(len(results.cells[cell].samples) for cell in cells) or None
        rows.append(row)
    columns = [Column("task", "task")]
    for method, label in zip(_METHODS, ("vanilla", "purified attention", "AGD"), strict=True):
        columns += [Column(f"published_{method}", f"{label}, published", 1), Column(f"our_{method}", "ours", 1)]
        columns.append(Column(f"change_{method}", "difference", 1, signed=True))
    columns += [Column("published_change", "change of RStd, published", 1, signed=True)]
    columns += [Column("our_change", "ours", 1, signed=True), Column("samples", "samples, ours", 0)]
    notes = differences(results, results.scope.data.tasks)
    notes += (
        "The paper does not say what table 5 was calibrated on; ours is calibrated on samples of the same task and N."
        " Accuracy is over all samples of a task; RStd is the mean over its N, weighted by samples.",
    )
    return [Table("table5", "Table 5: MMIU tasks (percent)", tuple(columns), tuple(rows), notes)]


def _pooled(results: Results, cells: list[Cell], method: str) -> float | None:
    if not cells:
        return None
    measured = [results[Ask(cell, method)] for cell in cells]
    return float(np.average([r.metrics.accuracy for r in measured], weights=[r.samples for r in measured]))


def _spread_change(results: Results, cells: list[Cell]) -> float | None:
    changes, weights = [], []
    for cell in cells:
        before, after = (results[Ask(cell, method)] for method in ("vanilla", "agd"))
        if before.metrics.rstd is not None and after.metrics.rstd is not None:
            changes.append(after.metrics.rstd - before.metrics.rstd)
            weights.append(after.samples)
    return float(np.average(changes, weights=weights)) if changes else None
