"""Figures as JSON, as a Markdown table, and as a plot."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers

from perf.measure import Spread
from perf.scaling import BATCHES, CANDIDATES, LENGTHS
from perf.setting import Row


def machine(device: torch.device) -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def document(rows: Sequence[Row], about: dict[str, Any]) -> dict[str, Any]:
    """Everything, as plain JSON values."""
    return {**about, "rows": [asdict(row) for row in rows]}


def read_rows(text: str) -> tuple[list[Row], dict[str, Any]]:
    """The opposite of :func:`document`, from its JSON text."""
    data = json.loads(text)
    rows = [Row(**{**row, "value": Spread(**row["value"])}) for row in data.pop("rows")]
    return rows, data


def table(rows: Sequence[Row]) -> str:
    """A Markdown table of each section."""
    parts = []
    for section in dict.fromkeys(row.section for row in rows):
        lines = [f"### {section[0].upper()}{section[1:]}", "", "| case | figure | median | spread | wanted | |"]
        lines.append("| --- | --- | ---: | ---: | --- | --- |")
        for row in rows:
            if row.section == section:
                met = {None: "", True: "met", False: "**missed**"}[row.met]
                lines.append(
                    f"| {row.case} | {row.figure} | {number(row.value.median)} {row.unit} | {spread(row)} "
                    f"| {row.limit} | {met} |"
                )
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def spread(row: Row) -> str:
    """Smallest to largest; empty for figures that are the same every time."""
    value = row.value
    return "" if value.low == value.high else f"{number(value.low)} to {number(value.high)}"


def number(value: float) -> str:
    """Three or four significant digits, no exponent."""
    if value >= 1000:
        return f"{value:,.0f}"
    digits = 3 if 0.9 <= abs(value) < 2 else 2 if abs(value) >= 2 else 4
    return f"{value:.{digits}f}"


def plot(rows: Sequence[Row], file: Path) -> None:
    """Throughput over batch size, and cost over N and over T, as one picture.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "lad"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for axis, section, across, up in (
        (axes[0], BATCHES, "tokens of a batch", "queries a second"),
        (axes[1], CANDIDATES, "candidates N", "seconds a query"),
        (axes[2], LENGTHS, "tokens of the prompt T", "seconds a query"),
    ):
        chosen = [row for row in rows if row.section == section]
        for series in dict.fromkeys(row.more["series"] for row in chosen):
            points = [row for row in chosen if row.more["series"] == series]
            across_values = [row.more["x"] for row in points]
            axis.plot(across_values, [row.value.median for row in points], marker="o", label=series)
            axis.fill_between(
                across_values, [row.value.low for row in points], [row.value.high for row in points], alpha=0.2
            )
        axis.set_xlabel(across)
        axis.set_ylabel(up)
        axis.set_title(section)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        if chosen:
            axis.legend(frameon=False)
        if section == BATCHES:
            axis.set_xscale("log", base=2)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot.close(figure)
