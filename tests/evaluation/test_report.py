"""Comparisons, tables and curves of a run."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from lad.errors import RunError
from lad.evaluation.curve import draw_curve
from lad.evaluation.methods import Outcome, parse_method
from lad.evaluation.report import cell_markdown, write_report
from lad.evaluation.results import compare, measure
from lad.evaluation.statistics import paired_difference
from lad.samples import random_orders


def _results():
    rng = np.random.default_rng(0)
    orders, answers = random_orders(4, 3), rng.integers(4, size=40)
    results = []
    for name, skill, samples, passes in (("vanilla", 0.3, 40, 1), ("agd", 0.9, 40, 1), ("pointwise", 0.5, 12, 4)):
        picks = np.where(rng.random((samples, 3)) < skill, answers[:samples, None], rng.integers(4, size=(samples, 3)))
        scores = np.eye(4)[picks]
        results.append(measure(parse_method(name), Outcome(picks, scores, passes), answers[:samples], orders))
    return results


def _cell():
    results = _results()
    return {
        "model": "shipped",
        "dataset": "scenes & more",
        "candidates": 4,
        "identifiers": "digits",
        "samples": 40,
        "orders": 3,
        "calibration_samples": 5,
        "lacks": ["yes_no"],
        "methods": [
            {**one.as_dict(), "lacking": "yes or no" if one.method == "pointwise" else None} for one in results
        ],
        "pairs": compare(results),
    }


def test_all_pairs_are_compared_on_the_samples_they_share():
    vanilla, agd, pointwise = results = _results()
    rows = {(row["method"], row["against"]): row for row in compare(results)}
    assert list(rows) == [("vanilla", "agd"), ("vanilla", "pointwise"), ("agd", "pointwise")]
    for (one, other), number in (((vanilla, agd), 40), ((agd, pointwise), 12)):
        row = rows[one.method, other.method]
        difference, interval = paired_difference(one.hits[:number], other.hits[:number])
        assert row["samples"] == number
        assert row["difference"] == pytest.approx(difference)
        assert row["interval"] == pytest.approx(list(interval))
    assert rows["vanilla", "agd"]["interval"][1] < 0


def test_the_table_says_what_was_measured():
    cell = _cell()
    text = cell_markdown(cell, "figures/x.svg")
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert "pointwise [1] (12 samples)" in rows
    assert "[1] The method needs yes or no, which this model lacks." in text
    agd = cell["methods"][1]
    assert f"| {agd['accuracy']:.1f} ± {agd['accuracy_std']:.1f} |" in rows["agd"]
    pair = cell["pairs"][0]
    assert f"| +{-pair['difference']:.1f} (+{-pair['interval'][1]:.1f} to +{-pair['interval'][0]:.1f}) |" in rows["agd"]
    widths = {line.count("|") for line in rows.values()}
    assert len(widths) == 1


def test_a_curve_is_a_drawing_of_every_method():
    root = ElementTree.fromstring(draw_curve(_cell(), "scenes & more"))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "scenes & more" in texts
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 3
    for name in ("vanilla", "agd", "pointwise"):
        assert any(name in text for text in texts)


def test_a_report_takes_its_place_and_no_more(tmp_path):
    file = tmp_path / "docs" / "methods.md"
    file.parent.mkdir()
    file.write_text("# Before\n\n<!-- lad evaluate: mine -->\nold\n<!-- end of mine -->\n\nAfter\n")
    document = {"name": "mine", "cells": [_cell()]}
    written = write_report(document, file)
    text = file.read_text()
    assert text.startswith("# Before\n\n<!-- lad evaluate: mine -->\n")
    assert text.endswith("<!-- end of mine -->\n\nAfter\n")
    assert "old" not in text
    assert "| agd |" in text
    curve = next(path for path in written if path.suffix == ".svg")
    assert f"(figures/{curve.name})" in text
    assert curve.exists()
    write_report(document, file)
    assert file.read_text() == text
    with pytest.raises(RunError, match="no place for the run 'other'"):
        write_report({"name": "other", "cells": []}, file)
    write_report({"name": "other", "cells": [_cell()]}, tmp_path / "new.md")
    assert "| agd |" in (tmp_path / "new.md").read_text()
