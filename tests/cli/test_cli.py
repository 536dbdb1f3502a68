"""The command line as a user meets it: documents on standard output, messages on standard error, exit codes."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from lad.benchmarks.scenes import scene_samples
from lad.cli import main
from lad.sample_files import write_samples


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


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    sample = scene_samples(1, 4, seed=5)[0]
    files = []
    for index, image in enumerate(sample.images):
        files.append(folder / f"{index}.png")
        image.save(files[-1])
    return sample, files


def test_help_is_quick():
    best = min(_timed_help() for _ in range(3))
    assert best < 0.5


def _timed_help() -> float:
    # processor time, which a busy machine does not stretch as it stretches time on the clock
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "lad", "--help"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_imports_nothing_heavy():
    code = "import lad.cli, sys; print([m for m in ('torch', 'transformers', 'numpy', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_rank_prints_one_document(run, pictures):
    sample, files = pictures
    code, out, _ = run("rank", sample.caption, *files, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["pick"] == sample.answer
    assert set(document["candidates"][0]) >= {"index", "probability", "attention"}
    assert sum(candidate["probability"] for candidate in document["candidates"]) == pytest.approx(1)
    assert 0 <= document["vanilla_pick"] < 4


def test_rank_prints_a_table(run, pictures):
    sample, files = pictures
    code, out, _ = run("rank", sample.caption, *files)
    assert code == 0
    assert f"pick: {files[sample.answer]}" in out.replace("\n", "")


def test_calibrate_then_rank_and_evaluate_with_it(run, pictures, tmp_path):
    sample, files = pictures
    code, out, _ = run("calibrate", "--scenes", "random", "--candidates", 4, "--out", tmp_path / "made", "--json")
    assert code == 0
    made = json.loads(out)["calibrations"][0]
    assert (made["candidates"], made["samples"], made["passes"]) == (4, 5, 20)
    code, out, _ = run("rank", sample.caption, *files, "--calibration", tmp_path / "made", "--json")
    assert code == 0
    assert json.loads(out)["pick"] == sample.answer
    write_samples(tmp_path / "test.jsonl", scene_samples(6, 4, seed=9))
    arguments = ["--samples", tmp_path / "test.jsonl", "--calibration", tmp_path / "made", "--orders", 2, "--json"]
    code, out, _ = run("evaluate", *arguments, "--out", tmp_path / "run")
    assert code == 0
    first = json.loads(out)
    assert {row["method"] for row in first["rows"]} >= {"vanilla", "pride", "agd", "permutation_average"}
    code, out, _ = run("evaluate", *arguments, "--out", tmp_path / "run")
    again = json.loads(out)
    assert again["passes_made"] == 0
    assert again["rows"] == first["rows"]


def test_demo_small(run):
    code, out, _ = run("demo", "--samples", 6, "--orders", 2, "--permutation-samples", 2, "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    methods = [
        "vanilla",
        "pride",
        "raw_attention",
        "purified_attention",
        "agd",
        "agd_calibrated_layers",
        "permutation_average",
    ]
    cells = [(size, setting) for size in (4, 8) for setting in ("random", "adversarial")]
    assert [(r["candidates"], r["setting"], r["method"]) for r in rows] == [
        (size, setting, method) for size, setting in cells for method in methods
    ]
    for row in rows:
        assert {"accuracy", "rstd", "consistency", "passes"} <= row.keys()
        assert row["passes"] == (row["candidates"] if row["method"] == "permutation_average" else 1)


def test_evaluate_says_when_there_are_fewer_orders_than_asked_for(run, tmp_path):
    code, out, _ = run(
        "evaluate", "--scenes", "random", "--candidates", 2, "--count", 3, "--orders", 5, "--method", "agd"
    )
    assert code == 0
    assert "only 2 orders" in out


def test_every_wrong_call_is_one_message_and_code_2(run, pictures, tmp_path):
    sample, files = pictures
    broken = tmp_path / "broken.jpg"
    Image.new("RGB", (64, 64)).save(broken)
    broken.write_bytes(broken.read_bytes()[:300])
    cut = tmp_path / "cut.jsonl"
    cut.write_text('{"caption": "\\ud83d", "images": ["a.png", "b.png"], "answer": 0}\n')
    prompt = tmp_path / "prompt.json"
    prompt.write_text('{"numbered": "{caption:d}", "listed": "{caption}"}')
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    made = tmp_path / "made"
    assert run("calibrate", "--scenes", "random", "--candidates", 3, "--out", made)[0] == 0
    caption = sample.caption
    calls = {
        "no such file": ("rank", caption, files[0], tmp_path / "none.png"),
        "truncated": ("rank", caption, files[0], broken),
        "folder": ("rank", caption, files[0], tmp_path),
        "at least 2": ("rank", caption, files[0]),
        "caption is empty": ("rank", "  ", *files),
        "control token": ("rank", "see <|image_pad|>", *files),
        "no calibration for 4": ("rank", caption, *files, "--calibration", made),
        "no such folder": ("rank", caption, *files, "--calibration", tmp_path / "none"),
        "identifiers was": ("rank", caption, *files, "--identifiers", "uppercase"),
        "no decision rule": ("rank", caption, *files, "--method", "magic"),
        "no model folder": ("rank", caption, *files, "--model", tmp_path / "none", "--calibration", made),
        "lad calibrate": ("rank", caption, *files, "--model", tmp_path),
        "where the samples come from": ("calibrate", "--out", tmp_path / "x"),
        "no average": ("calibrate", "--scenes", "random", "--average", "odd", "--out", tmp_path / "x"),
        "2 to 12 candidates": ("calibrate", "--scenes", "random", "--candidates", 13, "--out", tmp_path / "x"),
        "layer range": ("evaluate", "--scenes", "random", "--layer-range", "a"),
        "image size": ("rank", caption, *files, "--image-size", "big"),
        "device": ("rank", caption, *files, "--device", "abacus"),
        "dtype": ("rank", caption, *files, "--dtype", "float8"),
        "surrogate": ("calibrate", "--samples", cut, "--out", tmp_path / "x"),
        "nothing behind the name": ("rank", caption, *files, "--prompt", prompt),
        "no valid json": ("rank", caption, *files, "--prompt", deep),
        "revision": ("rank", caption, *files, "--revision", "main"),
        "both --samples and --scenes": ("calibrate", "--samples", cut, "--scenes", "random"),
        "--candidates is for scenes": ("calibrate", "--samples", cut, "--candidates", 3),
        "where a folder": ("calibrate", "--scenes", "random", "--out", broken),
        "cannot be written": ("calibrate", "--scenes", "random", "--out", broken / "x"),
        "not a directory": ("build", "scenes", "--count", 1, "--calibration-samples", 1, "--out", broken / "x"),
    }
    for words, arguments in calls.items():
        code, out, err = run(*arguments)
        assert code == 2, (words, err)
        assert out == "", words
        assert words in err.lower().replace("\n", " "), (words, err)
        assert "Traceback" not in err, words
        assert len(err.strip().splitlines()) <= 3, (words, err)
    assert not (tmp_path / "x").exists()


def test_names_are_printed_as_they_are(run, pictures, tmp_path, monkeypatch):
    sample, files = pictures
    monkeypatch.chdir(tmp_path)
    Path("q[").mkdir()
    odd = ["q[/b].png", "[red]x.png", ":smile:.png", "long" * 40 + ".png"]
    for source, target in zip(files, odd, strict=True):
        Path(target).write_bytes(source.read_bytes())
    code, out, _ = run("rank", sample.caption, *odd)
    assert code == 0
    assert all(name in out for name in odd[:3])
    # a long name is broken over lines; the numbers are not cut
    assert out.splitlines()[0].split() == ["image", "index", "probability", "attention", "vanilla"]
    assert out.count("%") == 12


def test_json_is_valid_in_any_encoding(pictures):
    _, files = pictures
    command = [sys.executable, "-m", "lad", "rank", "röd 猫", *map(str, files), "--json"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, check=True, capture_output=True, env=environment)
    assert json.loads(done.stdout)["caption"] == "röd 猫"


def test_a_run_folder_of_another_plan_is_refused(run, tmp_path):
    arguments = ["evaluate", "--scenes", "random", "--count", 3, "--method", "agd", "--out", tmp_path / "run"]
    assert run(*arguments, "--orders", 2)[0] == 0
    code, _, err = run(*arguments, "--orders", 3)
    assert code == 2
    assert "orders" in err
