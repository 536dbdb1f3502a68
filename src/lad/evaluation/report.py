"""A run's figures as Markdown, and into a document that has a place for them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lad.atomic import write_files
from lad.errors import RunError
from lad.evaluation.curve import draw_curve

REFERENCE = "vanilla"
"""What tables compare every method with."""

_COLUMNS = (
    "method", "passes", "accuracy", "95% interval", f"against {REFERENCE}", "RStd", "consistency", "flips",
    "recall@3", "MRR", "nDCG", "answered", "tokens",
)  # fmt: skip


def write_report(document: Mapping[str, Any], path: str | os.PathLike[str]) -> list[Path]:
    """Put a run's tables and curves into a Markdown file, between two lines that name the run.

    The lines are ``<!-- lad evaluate: NAME -->`` and ``<!-- end of NAME -->``. What stands between them is replaced,
    all else is kept. A file that does not exist is made.

    Args:
        document: what a run's ``metrics.json`` holds.
        path: the Markdown file; curves go into a folder ``figures`` beside it.

    Returns:
        The files written.

    Raises:
        RunError: the file has no place for the run, or cannot be written.
    """
    file, name = Path(path), str(document["name"])
    start, end = f"<!-- lad evaluate: {name} -->", f"<!-- end of {name} -->"
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else f"{start}\n{end}\n"
    except OSError as error:
        raise RunError(f"Cannot be read ({error.strerror}).", where=str(file)) from error
    if text.count(start) != 1 or text.count(end) != 1 or text.index(start) > text.index(end):
        raise RunError(
            f"There is no place for the run {name!r}.",
            where=str(file),
            hint=f"Put the two lines {start} and {end} where it shall stand.",
        )
    curves = {
        file.parent / "figures" / curve_name(name, cell): draw_curve(cell, title(cell)) for cell in document["cells"]
    }
    body = "\n\n".join(cell_markdown(cell, f"figures/{curve_name(name, cell)}") for cell in document["cells"])
    before, after = text.split(start)[0], text.split(end)[1]
    contents = {path: svg.encode() for path, svg in curves.items()}
    contents[file] = f"{before}{start}\n\n{body}\n\n{end}{after}".encode()
    try:
        write_files(contents)
    except OSError as error:
        raise RunError(f"Cannot be written ({error.strerror}).", where=str(file)) from error
    return list(contents)


def curve_name(run: str, cell: Mapping[str, Any]) -> str:
    """The file of a cell's curve."""
    words = f"{run}-{cell['model']}-{cell['dataset']}-n{cell['candidates']}-{cell['identifiers']}"
    return "".join(c if c.isalnum() or c in "-._" else "_" for c in words) + ".svg"


def title(cell: Mapping[str, Any]) -> str:
    """A cell in words."""
    identifiers = "" if cell["identifiers"] == "digits" else f", identifiers {cell['identifiers']}"
    return f"{cell['model']}, {cell['dataset']}, N = {cell['candidates']}{identifiers}"


def cell_markdown(cell: Mapping[str, Any], curve: str) -> str:
    """One cell: a heading, a table, its notes and its curve."""
    facts = f"{cell['samples']} samples, {cell['orders']} orders each"
    if cell["calibration_samples"]:
        facts += f", {cell['calibration_samples']} calibration samples"
    lines = [
        f"### {title(cell)}",
        "",
        f"{facts}.",
        "",
        _line(_COLUMNS),
        _line(["---", *["---:"] * (len(_COLUMNS) - 1)]),
    ]
    marks: dict[str, int] = {}
    notes = []
    for row in cell["methods"]:
        mark = ""
        if row["lacking"]:
            mark = f" [{marks.setdefault(row['lacking'], len(marks) + 1)}]"
        if row["samples"] < cell["samples"]:
            mark += f" ({row['samples']} samples)"
        lines.append(_line([f"{row['method']}{mark}", *_cells(row, _against(cell["pairs"], row["method"]))]))
        if note := row["facts"].get("note"):
            notes.append(f"{row['method']}: {note}")
    notes = [
        f"[{number}] The method needs {ability}, which this model lacks." for ability, number in marks.items()
    ] + notes
    return "\n".join([*lines, "", *(f"{note}  " for note in notes), "", f"![Accuracy over passes]({curve})"])


def _cells(row: Mapping[str, Any], against: str) -> list[str]:
    ranking = row["ranking"] or {}
    low, high = row["accuracy_interval"]
    spread = "" if row["accuracy_std"] is None else f" ± {row['accuracy_std']:.1f}"
    return [
        f"{row['passes']:.4g}",
        f"{row['accuracy']:.1f}{spread}",
        f"{low:.1f} to {high:.1f}",
        against,
        _number(row["rstd"], ".1f"),
        f"{row['consistency']:.1f}",
        _flips(row),
        _number(ranking.get("recall@3"), ".1f"),
        _number(ranking.get("mrr"), ".3f"),
        _number(ranking.get("ndcg"), ".3f"),
        f"{row['answered']:.0f}",
        _number(row["tokens"] or None, ".1f"),
    ]


def _against(pairs: Sequence[Mapping[str, Any]], method: str) -> str:
    for pair in pairs:
        if (pair["method"], pair["against"]) in ((REFERENCE, method), (method, REFERENCE)):
            sign = -1 if pair["method"] == REFERENCE else 1
            low, high = sorted(sign * bound for bound in pair["interval"])
            return f"{_signed(sign * pair['difference'])} ({_signed(low)} to {_signed(high)})"
    return ""


def _signed(value: float) -> str:
    rounded = round(value, 1)
    return "0.0" if rounded == 0 else f"{rounded:+.1f}"


def _flips(row: Mapping[str, Any]) -> str:
    control = row.get("same_order_flips")
    return _number(row["flip_rate"], ".1f") + ("" if control is None else f" (same order: {control:.1f})")


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
