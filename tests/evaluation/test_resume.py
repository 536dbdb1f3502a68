"""A run that is killed at any moment goes on, and ends with the bytes of a run that was left in peace."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lad.errors import RunError
from lad.evaluation.config import read_config
from lad.evaluation.grid import run_grid
from lad.evaluation.methods import parse_methods
from lad.evaluation.records import RecordStore

_RUN = """
import sys
from pathlib import Path
from lad.evaluation.config import read_config
from lad.evaluation.grid import run_grid
from lad.ranker import load
model = load()
print("ready", flush=True)
run_grid(read_config(sys.argv[1]), lambda spec: model, folder=Path(sys.argv[2]))
"""

_CONFIG = """
name: killed
datasets: [{scenes: random}, {scenes: adversarial}]
candidates: 3
orders: 2
limit: 8
part_size: 2
methods:
  - default
  - agd_adaptive
  - pride_authors
  - sofa
  - attention_sorting
  - pointwise
  - vanilla_text
  - {name: self_consistency, paths: 3, max_new_tokens: 4, samples: 5}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    file = tmp_path_factory.mktemp("config") / "killed.yaml"
    file.write_text(_CONFIG)
    return file


@pytest.fixture(scope="module")
def undisturbed(vlm, config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    started = time.monotonic()
    run_grid(read_config(config), lambda spec: vlm, folder=folder)
    return folder, time.monotonic() - started


def _start(config: Path, folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, str(config), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def _contents(folder: Path) -> dict[str, bytes]:
    """All files of a run but the log, which holds times, and what killed writes left behind."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name != "log.jsonl"}


def _kill_and_resume(config, folder, undisturbed, kills, seed):
    wanted, seconds = _contents(undisturbed[0]), undisturbed[1]
    moments = random.Random(seed)
    interrupted, steps = 0, []
    for _ in range(kills):
        process = _start(config, folder)
        # short enough that the run is seldom over before the last of the kills
        time.sleep(moments.uniform(0, 1.6 * seconds / kills))
        process.send_signal(signal.SIGKILL)
        interrupted += process.wait() == -signal.SIGKILL
        steps.append(len(_contents(folder)) if folder.exists() else 0)
    assert interrupted >= kills / 2
    assert _start(config, folder).wait(timeout=300) == 0
    found = _contents(folder)
    assert found.keys() == wanted.keys()
    assert {name for name in wanted if found[name] != wanted[name]} == set()
    assert "metrics.json" in found
    return steps


def test_killed_twice(config, undisturbed, tmp_path):
    steps = _kill_and_resume(config, tmp_path / "run", undisturbed, kills=2, seed=1)
    # at least one of the kills came in the midst of it
    assert any(0 < step < len(_contents(undisturbed[0])) for step in steps)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_killed_at_ten_random_moments(config, undisturbed, tmp_path, seed):
    _kill_and_resume(config, tmp_path / "run", undisturbed, kills=10, seed=seed)


def test_a_finished_run_is_not_observed_again(vlm, config, undisturbed):
    folder = undisturbed[0]
    before = _contents(folder)
    cells = run_grid(read_config(config), lambda spec: vlm, folder=folder)
    assert [cell.observed for cell in cells] == [0, 0]
    assert _contents(folder) == before
    logs = [json.loads(line) for file in sorted(folder.glob("*/log.jsonl")) for line in file.read_text().splitlines()]
    assert [log["passes"] > 0 for log in logs] == [True, False] * 2


def test_methods_may_be_added_to_a_run(vlm, config, undisturbed, tmp_path):
    run = read_config(config)
    folder = tmp_path / "run"
    first = replace(run, methods=parse_methods(["vanilla", "agd"]))
    assert run_grid(first, lambda spec: vlm, folder=folder)[0].observed == 8 * 2
    cells = run_grid(run, lambda spec: vlm, folder=folder)
    assert all(cell.observed > 0 for cell in cells)
    assert _contents(folder) == _contents(undisturbed[0])


def test_a_broken_part_is_named(tmp_path):
    store = RecordStore(tmp_path)
    store.write(3, [{"sample": "a", "odds": [0.1, 1 / 3, -2.5e-17]}])
    assert store.parts() == (3,)
    assert store.read(3) == [{"sample": "a", "odds": [0.1, 1 / 3, -2.5e-17]}]
    with pytest.raises(RunError, match="already written"):
        store.write(3, [])
    whole = store.path(3).read_bytes()
    for damaged in (whole[:-5], whole[: len(whole) // 2], b"", b"\xff", whole.splitlines(keepends=True)[0]):
        store.path(3).write_bytes(damaged)
        with pytest.raises(RunError, match=r"part-00003\.jsonl.*broken.*Delete the file"):
            store.read(3)
    with pytest.raises(RunError, match="part-00004"):
        store.read(4)
