"""The suite runs, writes what it found, and says where it misses."""

import json

import pytest
import torch

from perf import forward, gpu, reference, report, reuse
from perf.__main__ import SECTIONS, main
from perf.measure import Spread
from perf.setting import Row, Setting, at_least, at_most, exact

QUICK = Setting.quick(torch.device("cpu"), torch.float32)


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_limits():
    assert at_most("a", "b", "c", exact(1.03), 1.03).met is True
    assert at_most("a", "b", "c", Spread(1.04, 1.0, 1.1), 1.03).met is False
    assert at_least("a", "b", "c", Spread(8.1, 7.0, 9.0), 8).met is True
    assert at_least("a", "b", "c", exact(7.9), 8).met is False


def test_figures_survive_json():
    rows = [at_most("one pass", "T = 5", "time", Spread(1.0, 0.9, 1.2), 1.03, seconds={"a": [1.0]})]
    text = json.dumps(report.document(rows, {"device": "x"}))
    assert report.read_rows(text) == (rows, {"device": "x"})


def test_the_table_shows_what_is_missed():
    rows = [
        at_most("one pass", "T = 5", "time", Spread(1.5, 1.25, 1.75), 1.03),
        Row("gallery", "N = 12", "kept", exact(1234.5), "MiB"),
    ]
    text = report.table(rows)
    assert "| T = 5 | time | 1.500 x | 1.250 to 1.750 | at most 1.03 | **missed** |" in text
    assert "| N = 12 | kept | 1,234 MiB |  |  |  |" in text
    assert text.index("### One pass") < text.index("### Gallery")


def test_a_section_is_run_and_written(tmp_path, capsys):
    assert main(["--quick", "--only", "candidates", "--out", str(tmp_path), "--dtype", "float32"]) == 0
    rows, about = report.read_rows((tmp_path / "performance.json").read_text())
    assert [row.more["x"] for row in rows] == [2, 4, 8, 12, 16, 24, 32]
    assert all(row.value.low > 0 for row in rows)
    assert about["torch"] == torch.__version__
    assert (tmp_path / "performance.md").read_text() == report.table(rows)
    assert (tmp_path / "performance.svg").read_text().startswith("<?xml")
    assert "N = 32" in capsys.readouterr().out


def test_one_pass_compares_the_three_ways():
    rows = {(row.case, row.figure): row for row in forward.one_pass(QUICK)}
    assert len(rows) == 18
    cases = list(dict.fromkeys(case for case, _ in rows))
    memory = "peak memory without the model"
    eager = [rows[case, f"published maps / plain, {memory}"].value.median for case in cases]
    # maps grow with the square of the prompt, rows do not
    assert eager[2] > eager[0] > 1
    assert all(rows[case, f"AGD / plain, {memory}"].value.median < 1.1 for case in cases)


def test_the_observation_equals_the_published_maps():
    from perf.models import SMALL, random_vlm

    vlm = random_vlm(SMALL, device=torch.device("cpu"), dtype=torch.float32, image_size=(56, 56))
    bench = forward.Bench(vlm, 3)
    _, seen = bench.observed()
    maps = bench.eager()[..., :3].double().numpy()
    assert abs(seen - maps).max() < 1e-5


def test_features_are_encoded_once_per_image():
    rows = reuse.features(QUICK)
    counts = [row for row in rows if row.figure == "images encoded / distinct images"]
    assert [row.value.median for row in counts] == [1.0, 1.0]
    assert all(row.met for row in counts)


def test_every_section_has_a_name():
    assert set(SECTIONS) == {
        *("pass", "tokens", "evidence", "features", "gallery", "plan"),
        *("overlap", "precision", "batches", "candidates", "lengths"),
    }


def test_the_gpu_script_runs_dry(capsys):
    assert gpu.main(["--device", "cpu", "--small", "--rounds", "1"]) == 0
    out, err = capsys.readouterr()
    entries = json.loads(out)["entries"]
    assert [entry["candidates"] for entry in entries] == [4, 8, 12]
    for entry in entries:
        assert set(entry["milliseconds"]) == set(entry["peak_mib"]) == {"plain", "probe", "eager"}
        assert entry["memory_ratio"]["eager"] > entry["memory_ratio"]["probe"] >= entry["memory_ratio"]["plain"] == 1
        assert entry["failed"] == {}
    assert "| small shapes | probe |" in err


def test_the_gpu_script_stops_in_time_and_says_what_it_left_out(capsys):
    assert gpu.main(["--device", "cpu", "--small", "--rounds", "1", "--minutes", "0"]) == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert [entry["left_out"] for entry in entries] == ["no time left"] * 3


def test_the_gpu_script_goes_on_where_the_published_way_runs_out_of_memory(capsys, monkeypatch):
    def never(self):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(forward.Bench, "eager", never)
    assert gpu.main(["--device", "cpu", "--small", "--rounds", "1"]) == 0
    out, err = capsys.readouterr()
    entries = json.loads(out)["entries"]
    assert [entry["failed"] for entry in entries] == [{"eager": "out of memory"}] * 3
    assert "| small shapes | eager | - | - | - | - | - | - |" in err


def test_the_gpu_script_says_when_there_is_no_gpu(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 2
    assert "--device cpu --small" in capsys.readouterr().err


CLONE = """
import argparse, json, pathlib
parser = argparse.ArgumentParser()
for name in ("--model-path", "--method", "--mode", "--num-views", "--num-shuffles", "--max-samples", "--result-path"):
    parser.add_argument(name, required=True)
parser.add_argument("--layer-range", nargs=2, type=int, required=True)
options = parser.parse_args()
assert "qwen" in options.model_path and pathlib.Path(options.model_path, "config.json").is_file()
items = json.loads(pathlib.Path(f"data/eval/annotations_{options.num_views}_1_{options.mode}.json").read_text())
assert len(items) == int(options.max_samples)
for item in items:
    assert set(item) == {"id", "image_ids", "index", "caption"} and 0 <= item["index"] < 4
    assert all(pathlib.Path("pictures", f"{one}.jpg").is_file() for one in item["image_ids"])
pathlib.Path(options.result_path).write_text(options.method)
if options.method == "FAILING": raise SystemExit("what went wrong")
"""


@pytest.fixture
def clone(tmp_path):
    folder = tmp_path / "clone"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "evaluate.py").write_text(CLONE)
    (folder / "data").mkdir()
    return folder


def test_a_clone_of_the_published_code_is_run_beside_ours(clone):
    rows = reference.measure(clone, images="pictures/{id}.jpg", samples=2, orders=2)
    figures = {row.figure: row.value.median for row in rows}
    assert set(figures) == {"base, time", "pride, time", "agd, time", "ours, time", "all its methods / ours, time"}
    assert min(figures.values()) > 0
    # nothing was written into it
    assert sorted(path.name for path in clone.rglob("*") if path.is_file()) == ["evaluate.py"]


def test_a_clone_that_fails_says_why(clone, monkeypatch):
    monkeypatch.setattr(reference, "METHODS", ("FAILING",))
    with pytest.raises(RuntimeError, match="what went wrong"):
        reference.measure(clone, images="pictures/{id}.jpg", samples=1, orders=2)


def test_help_is_at_hand(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "--reference" in capsys.readouterr().out
