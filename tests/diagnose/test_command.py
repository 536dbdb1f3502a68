"""`lad diagnose` on the shipped model and on files."""

import json
import sys

import pytest

from lad.benchmarks.benchmark_files import write_benchmark
from lad.benchmarks.scene_benchmark import build_of_scenes
from lad.cli import main


@pytest.fixture
def run(monkeypatch, capfd):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["lad", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = 0 if stop.code is None else int(stop.code)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


def test_the_shipped_model_is_found_biased(run, tmp_path):
    code, printed, _ = run(
        "diagnose", "--candidates", 8, "--limit", 12, "--pool", 5, "--out", tmp_path / "page", "--json"
    )
    assert code == 0
    document = json.loads(printed)
    assert document["verdict"] == "strongly biased"
    assert document["samples"] == 12
    agd = next(row for row in document["methods"] if row["method"] == "agd")
    assert agd["gain_interval"][0] > 0
    assert document["findings"][0].startswith("Strongly position-biased")
    assert (tmp_path / "page" / "report.html").stat().st_size < 2e6


def test_samples_may_come_from_a_folder_or_files(run, tmp_path):
    write_benchmark(tmp_path / "data", build_of_scenes("random", 3, count=4, calibration_samples=5))
    code, printed, _ = run("diagnose", "--data", tmp_path / "data")
    assert code == 0
    assert "Position bias of the model that ships with lad" in printed
    assert "permutation average" in printed
    data = tmp_path / "data"
    files = ("--samples", data / "test.jsonl", "--calibration-samples", data / "calibration.jsonl")
    code, again, _ = run("diagnose", *files)
    assert code == 0
    assert again.splitlines()[-8:] == printed.splitlines()[-8:]


def test_mistakes_end_with_one_message(run, tmp_path):
    write_benchmark(tmp_path / "data", build_of_scenes("random", 3, count=4, calibration_samples=5))
    test = tmp_path / "data" / "test.jsonl"
    for arguments, message in (
        (("--samples", test), "go together"),
        (("--data", tmp_path / "data", "--scenes", "random"), "Give one of"),
        (("--candidates", 13), "2 to 12"),
        (("--samples", test, "--calibration-samples", test), "used in the calibration too"),
        (("--samples", test, "--calibration-samples", test, "--candidates", 5), "no samples of 5 candidates"),
    ):
        code, _, errors = run("diagnose", *arguments)
        assert code == 2, errors
        assert message in errors
