"""Accuracy over passes, as an SVG drawing: what every method buys for what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _LEFT, _TOP, _PLOT = 860, 52, 40, 400
_ROW = 15
_COLORS = (
    "#1f6fb2", "#d1491b", "#2a8a3e", "#8147a8", "#b0892a", "#c2358a", "#3aa7a3", "#6b4c3b", "#5a6472", "#94a61c",
    "#e08a2c", "#4a53c4",
)  # fmt: skip


def draw_curve(cell: Mapping[str, Any], title: str) -> str:
    """The drawing for one cell of a run's ``metrics.json``.

    The horizontal axis is logarithmic. Points of one method with other options are joined; a vertical line through a
    point is its 95% interval. Numbers refer to the list beside the drawing, which is sorted by accuracy.
    """
    rows = sorted(cell["methods"], key=lambda row: -row["accuracy"])
    height = max(_TOP + _PLOT + 60, _TOP + _ROW * len(rows) + 40)
    most = max(2.0, *(row["passes"] for row in rows))
    low = 10 * math.floor(min(row["accuracy_interval"][0] for row in rows) / 10)
    color = {name: _COLORS[i % len(_COLORS)] for i, name in enumerate(dict.fromkeys(row["name"] for row in rows))}

    def across(passes: float) -> float:
        return float(_LEFT + 24 + (_PLOT - 40) * math.log(passes) / math.log(most))

    def up(accuracy: float) -> float:
        return float(_TOP + _PLOT - _PLOT * (accuracy - low) / max(100 - low, 10))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(_LEFT, 16, title, size=14),
        _text(
            _LEFT + _PLOT / 2,
            _TOP + _PLOT + 42,
            "forward passes a query (points at one place are set side by side)",
            anchor="middle",
        ),
        _text(_LEFT, _TOP - 6, "accuracy, percent"),
    ]
    for accuracy in range(low, 101, 10):
        parts.append(_stroke(_LEFT, up(accuracy), _LEFT + _PLOT, up(accuracy), "#dddddd"))
        parts.append(_text(_LEFT - 6, up(accuracy) + 4, str(accuracy), anchor="end"))
    for passes in (2**power for power in range(int(math.log2(most)) + 1)):
        parts.append(_stroke(across(passes), _TOP, across(passes), _TOP + _PLOT, "#eeeeee"))
        parts.append(_text(across(passes), _TOP + _PLOT + 18, str(passes), anchor="middle"))
    for name in color:
        joined = sorted((row["passes"], row["accuracy"]) for row in rows if row["name"] == name)
        if len(joined) > 1:
            points = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in joined)
            parts.append(f'<polyline points="{points}" fill="none" stroke="{color[name]}" stroke-width="1.5"/>')
    for number, (row, nudge) in enumerate(zip(rows, _nudges(rows), strict=True), start=1):
        x, y = across(row["passes"]) + nudge, up(row["accuracy"])
        bottom, top = (up(bound) for bound in row["accuracy_interval"])
        parts.append(_stroke(x, bottom, x, top, color[row["name"]], 0.5))
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color[row["name"]]}"/>')
        parts.append(_text(x + 5, y - 4, str(number), size=9))
        listed = f"{number}  {row['method']}: {row['accuracy']:.1f} at {row['passes']:.3g}"
        parts.append(_text(_LEFT + _PLOT + 30, _TOP + _ROW * number, listed, color=color[row["name"]]))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _nudges(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Small shifts to the side, so that points at the same place are told apart."""
    taken: dict[tuple[float, float], int] = {}
    shifts = []
    for row in rows:
        place = (round(math.log2(row["passes"]), 1), round(row["accuracy"] / 3))
        taken[place] = taken.get(place, -1) + 1
        shifts.append(9.0 * taken[place])
    return shifts


def _text(x: float, y: float, text: str, *, size: int = 11, anchor: str = "start", color: str = "#222222") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'
    )


def _stroke(x1: float, y1: float, x2: float, y2: float, color: str, width: float = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="{width}"/>'
