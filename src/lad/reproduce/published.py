"""The published figures (arXiv 2605.11591), as data beside this file."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

REFERENCE_MODEL = "LLaVA-OneVision-1.5-8B"
"""The model behind all published figures but two thirds of tables 1 and 6."""

SAMPLES = 1000
"""Published samples per setting."""

# what the published results call a method -> what lad does
METHODS = {"cot": "chain_of_thought"}


@cache
def published() -> dict[str, Any]:
    """All of them."""
    text = files("lad.reproduce").joinpath("published.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def main_rows(table: int) -> list[dict[str, Any]]:
    """The rows of table 1 (N = 4) or 6 (N = 8), of all three models; methods by our names."""
    rows = [row for row in published()["main_results"] if row["table"] == table and row["dataset"] == "coco"]
    return [{**row, "method": METHODS.get(row["method"], row["method"])} for row in rows]


def rows_of(part: str) -> list[dict[str, Any]]:
    """The rows of a part with one table: efficiency, transfer, ablation, mmiu, divergence or alternatives."""
    rows: list[dict[str, Any]] = published()[part]["rows"]
    return rows
