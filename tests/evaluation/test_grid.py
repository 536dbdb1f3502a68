"""Whole runs from the command line: several models, datasets, N and sets of identifiers."""

from __future__ import annotations

import json
import sys

import pytest

from lad.benchmarks.scenes import scene_samples
from lad.cli import main
from lad.evaluation.methods import method_names
from lad.model.loading import shipped_model
from lad.sample_files import write_samples


@pytest.fixture
def lad(monkeypatch, capfd):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["lad", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def files(tmp_path):
    """A file of samples with N = 2 and 3, and five of each to calibrate on."""
    for name, split, number in (("mixed", "test", 4), ("five", "calibration", 5)):
        samples = [s for count in (2, 3) for s in scene_samples(number, count, split=split)]
        write_samples(tmp_path / f"{name}.jsonl", samples)
    return tmp_path


def test_from_a_file(lad, files):
    config = files / "everything.yaml"
    config.write_text(
        f"""
name: everything
models:
  - model: null
  - {{model: "{shipped_model()}", name: again, lacks: []}}
datasets:
  - {{name: mixed, samples: mixed.jsonl, calibration: five.jsonl}}
identifiers: [digits, [left, middle, right]]
methods: [vanilla, agd, agd_adaptive, pointwise]
orders: 2
"""
    )
    page = files / "page.md"
    out = files / "run"
    code, text, error = lad("evaluate", "--config", config, "--out", out, "--markdown", page, "--json")
    assert code == 0, error
    rows = json.loads(text)["rows"]
    cells = list(dict.fromkeys((row["model"], row["candidates"], row["identifiers"]) for row in rows))
    names = ("digits", "left,middle,right")
    assert cells == [(model, count, name) for model in ("shipped", "again") for count in (2, 3) for name in names]
    assert {row["samples"] for row in rows} == {4}
    assert all(row["calibration_samples"] == 5 for row in rows)
    assert {(row["model"], row["method"]) for row in rows if row["lacking"]} == {("shipped", "pointwise")}
    # the same weights give the same figures under any name
    figures = {model: [row["accuracy"] for row in rows if row["model"] == model] for model in ("shipped", "again")}
    assert figures["shipped"] == figures["again"]
    document = json.loads((out / "metrics.json").read_text())
    assert [cell["model"] for cell in document["cells"]] == ["shipped"] * 4 + ["again"] * 4
    assert document["cells"][0]["pairs"]
    assert page.read_text().count("### ") == 8
    code, text, _ = lad("evaluate", "--config", config, "--out", out, "--json")
    assert json.loads(text) == {"passes_made": 0, "rows": rows}
    code, text, error = lad("evaluate", "--config", config, "--limit", 2, "--out", files / "two", "--json")
    assert code == 0, error
    assert {row["samples"] for row in json.loads(text)["rows"]} == {2}


def test_from_options(lad, files):
    arguments = ["--scenes", "random", "--scenes", "adversarial", "--candidates", 2, "--candidates", 3, "--limit", 3]
    arguments += ["--identifiers", "digits", "--identifiers", "roman", "--orders", 2]
    arguments += ["--method", "vanilla", "--method", "permutation_random:number=50"]
    code, text, error = lad("evaluate", *arguments)
    assert code == 0, error
    assert text.count("3 samples, N = ") == 8
    assert "50 orders were asked for; there are only 6 of them, all were taken." in " ".join(text.split())
    code, text, error = lad("evaluate", *arguments, "--json")
    assert len(json.loads(text)["rows"]) == 16


def test_the_same_order_asked_again(lad, tmp_path):
    sampled = "self_consistency:paths=1,temperature=2.0,max_new_tokens=1"
    arguments = ["--scenes", "random", "--limit", 12, "--orders", 2, "--method", "vanilla", "--method", sampled]
    code, text, error = lad("evaluate", *arguments, "--control", "--out", tmp_path / "run", "--json")
    assert code == 0, error
    flips = {row["name"]: row["same_order_flips"] for row in json.loads(text)["rows"]}
    assert flips["vanilla"] == 0
    assert flips["self_consistency"] > 0
    code, text, _ = lad("evaluate", *arguments, "--json")
    assert {row["same_order_flips"] for row in json.loads(text)["rows"]} == {None}


def test_n_in_the_name_of_a_file(lad, tmp_path):
    for count in (2, 3):
        write_samples(tmp_path / f"n{count}.jsonl", scene_samples(3, count))
        write_samples(tmp_path / f"five{count}.jsonl", scene_samples(5, count, split="calibration"))
    arguments = ["--samples", tmp_path / "n{candidates}.jsonl", "--method", "agd", "--orders", 2, "--json"]
    arguments += ["--calibration-samples", tmp_path / "five{candidates}.jsonl"]
    code, text, error = lad("evaluate", *arguments, "--candidates", 2, "--candidates", 3)
    assert code == 0, error
    assert [row["candidates"] for row in json.loads(text)["rows"]] == [2, 3]
    code, _, error = lad("evaluate", *arguments)
    assert code == 2
    assert "candidates must be given" in error


def test_the_list_of_methods(lad):
    code, text, _ = lad("evaluate", "--methods")
    assert code == 0
    assert all(f"\n{name} " in text for name in method_names())


def test_what_is_refused(lad, files, tmp_path):
    (tmp_path / "run.yaml").write_text("datasets: {scenes: random}")
    shared = files / "shared.jsonl"
    write_samples(shared, scene_samples(5, 2, split="calibration"))
    known = ("--calibration-samples", files / "five.jsonl")
    calls = {
        "where the samples come from": (),
        "not both": ("--config", tmp_path / "run.yaml", "--scenes", "random"),
        "no method 'magic'": ("--scenes", "random", "--method", "magic"),
        "no samples of 5 candidates": ("--samples", files / "mixed.jsonl", *known, "--candidates", 5),
        "has no calibration yet": (shipped_model(), "--samples", files / "mixed.jsonl"),
        "no such folder of calibrations": ("--scenes", "random", "--calibration", tmp_path / "none"),
        "used in the calibration too": ("--samples", shared, *known),
        "two models": (shipped_model(), shipped_model(), "--scenes", "random"),
        "in the way": ("--scenes", "random", "--limit", 1, "--method", "vanilla", "--out", tmp_path / "taken"),
    }
    (tmp_path / "taken" / "shipped-random-n4-digits").mkdir(parents=True)
    (tmp_path / "taken" / "shipped-random-n4-digits" / "thesis.txt").write_text("mine")
    for words, arguments in calls.items():
        code, out, error = lad("evaluate", *arguments)
        assert code == 2, (words, error)
        assert out == "", words
        assert words in " ".join(error.lower().split()), (words, error)
        assert "Traceback" not in error, words
