"""`lad reproduce` and `lad diagnose` on a model that understands photographs, and photographs it has never seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lad.report.stored import read_report

pytestmark = [pytest.mark.long, pytest.mark.photos, pytest.mark.photo_model]


def lad(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "lad", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    source = Path(os.environ["LAD_PHOTO_MODEL"])
    out = tmp_path_factory.mktemp("models") / "photographs"
    subprocess.run([sys.executable, source / "assemble.py", source / "adapter.safetensors", out], check=True)
    return out


@pytest.fixture(scope="module")
def data(tmp_path_factory, photographs):
    coco, out = photographs / "coco", tmp_path_factory.mktemp("data") / "coco-random-4"
    lad(
        "build", "coco", "--captions", coco / "captions.json", "--images", coco / "images", "--instances",
        coco / "instances.json", "--images-list", photographs / "unseen.txt", "--candidates", 4, "--count", 24, "--out",
        out,
    )  # fmt: skip
    return out


def test_table_1_of_photographs(model, data, tmp_path):
    printed = lad(
        "reproduce", "table1", "--model", model, "--data", data, "--samples", 24, "--orders", 3, "--own-samples", 4,
        "--text-samples", 0, "--out", tmp_path / "run",
    )  # fmt: skip
    assert "forward passes in 1 settings" in printed
    report = read_report(tmp_path / "run")
    ours = {(row["setting"], row["method"]): row["our_accuracy"] for row in report.find("table1").rows}
    # far above chance: the photographs and the model fit together
    assert ours["random", "vanilla"] > 50
    assert ours["random", "AGD"] > 50
    assert ours["adversarial", "AGD"] is None
    assert "MS-COCO" in report.find("table1").notes[1]
    assert len(report.groups[0]["samples"]) == 24
    assert (tmp_path / "run" / "report.html").stat().st_size < 20e6


def test_the_page_of_photographs(model, data, tmp_path):
    printed = lad("diagnose", model, "--data", data, "--limit", 12, "--out", tmp_path, "--json")
    document = json.loads(printed)
    assert (document["samples"], document["candidates"], document["calibration_samples"]) == (12, 4, 5)
    assert (tmp_path / "report.html").stat().st_size > 50_000
    best = max(document["layers"], key=lambda row: row["evidence_nats"])
    assert best["purified_attention"] > 50
