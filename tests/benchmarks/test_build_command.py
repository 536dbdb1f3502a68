from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from lad.benchmarks.contents import digest_images
from lad.cli import main
from lad.sample_files import read_samples
from lad.samples import Sample
from tests.benchmarks.factory import write_coco, write_picture


class Lad:
    """`lad build`, run in a folder: gives what it printed and what it said on standard error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, folder: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
        self._monkeypatch.chdir(folder)
        self._monkeypatch.setattr(sys, "argv", ["lad", "build", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = self._capsys.readouterr()
        assert (ended.value.code or 0) == code, printed.err
        return printed.out, printed.err


@pytest.fixture
def lad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lad:
    monkeypatch.setenv("LAD_CACHE", str(tmp_path / "cache"))
    return Lad(monkeypatch, capsys)


def shown(samples: list[Sample]) -> set[str | None]:
    return set(digest_images([image for sample in samples for image in sample.images]))


def check(folder: Path) -> dict[str, Any]:
    """The manifest of a benchmark whose splits were found to be disjoint and whole."""
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    splits = {name: read_samples(folder / file) for name in ("test", "calibration") for file in [f"{name}.jsonl"]}
    for name, samples in splits.items():
        assert len(samples) == manifest["splits"][name]["samples"]
        assert shown(samples) == set(manifest["digests"][name])
    assert not shown(splits["test"]) & shown(splits["calibration"])
    return manifest


def test_coco_from_files_to_samples(lad: Lad, tmp_path: Path) -> None:
    write_coco(tmp_path / "coco", 60)
    source = ("--captions", "coco/captions.json", "--instances", "coco/instances.json", "--images", "coco/images")
    out, _ = lad(tmp_path, "coco", *source, "--out", "random", "--preview", "3", "--copy-images")
    assert "No picture is in both splits" in out
    manifest = check(tmp_path / "random")
    assert manifest["splits"]["test"]["samples"] == 40
    assert [file["name"] for file in manifest["annotation_files"]] == ["captions.json", "instances.json"]
    assert (tmp_path / "random" / "preview.html").exists()
    (tmp_path / "list.txt").write_text("".join(f"images/{index:012d}.jpg\n" for index in range(50)))
    hard = ("--setting", "adversarial", "--encoder", "shipped", "--caption-limit", "1.5", "--candidates", "3")
    options = ("--count", "10", "--calibration-samples", "2", "--images-list", "list.txt", "--json")
    out, _ = lad(
        tmp_path, "coco", *source, *hard, *options, "--disjoint-from", "random/calibration.jsonl", "--out", "hard"
    )
    told = json.loads(out)
    manifest = check(tmp_path / "hard")
    assert told == {key: value for key, value in manifest.items() if key != "digests"}
    assert manifest["plan"]["setting"] == "adversarial"
    assert manifest["encoders"]["image"]["name"] == "shipped"
    assert manifest["source"]["left_out"]["not in the list"] == 10
    written = hashlib.sha256((tmp_path / "random" / "calibration.jsonl").read_bytes()).hexdigest()
    assert manifest["disjoint_from"] == [{"name": "calibration.jsonl", "sha256": written}]
    calibration = shown(read_samples(tmp_path / "random" / "calibration.jsonl"))
    assert not calibration & shown(read_samples(tmp_path / "hard" / "test.jsonl"))
    assert manifest["source"]["left_out"]["excluded"] > 0
    # the same again, from another working directory
    out, _ = lad(
        tmp_path / "coco", "coco", "--captions", "captions.json", "--instances", "instances.json", "--images", "images",
        *hard, *options[:4], "--images-list", "../list.txt", "--disjoint-from", "../random/calibration.jsonl",
        "--out", "../again",
    )  # fmt: skip
    for name in ("test.jsonl", "calibration.jsonl", "manifest.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "hard" / name).read_bytes()


def test_the_other_sources(lad: Lad, tmp_path: Path) -> None:
    names = [f"{index}.png" for index in range(40)]
    for index, name in enumerate(names):
        write_picture(tmp_path / "own" / name, index)
    lines = [json.dumps({"file_name": name, "text": f"caption {name}"}) for name in names]
    (tmp_path / "own" / "metadata.jsonl").write_text("\n".join(lines))
    lad(tmp_path, "folder", "own", "--out", "folder", "--format", "parquet")
    assert len(read_samples(tmp_path / "folder" / "test.parquet")) == 20
    (tmp_path / "tokens.txt").write_text("".join(f"{name}#0\tcaption {name}\n" for name in names))
    lad(tmp_path, "flickr8k", "--captions", "tokens.txt", "--images", "own", "--out", "flickr")
    # the same pictures and captions under another name of the dataset
    assert [(s.caption, s.answer) for s in read_samples(tmp_path / "flickr" / "test.jsonl")] == [
        (s.caption, s.answer) for s in read_samples(tmp_path / "folder" / "test.parquet")
    ]
    lad(tmp_path, "scenes", "--setting", "adversarial", "--candidates", "5", "--count", "6", "--out", "scenes")
    assert check(tmp_path / "scenes")["plan"]["candidates"] == 5
    items = [
        {
            "task": "text2image_retrieval", "options": "A: the first image B: the second image", "output": "A",
            "question": f"Which image fits: thing {index}?", "context": "",
            "input_image_path": [names[2 * index], names[2 * index + 1]],
        }
        for index in range(8)
    ]  # fmt: skip
    (tmp_path / "mmiu.json").write_text(json.dumps(items))
    options = ("--annotations", "mmiu.json", "--images", "own", "--task", "text2image_retrieval")
    lad(tmp_path, "mmiu", *options, "--calibration-samples", "2", "--out", "mmiu")
    manifest = check(tmp_path / "mmiu")
    assert manifest["splits"]["test"]["samples"] == 6
    assert manifest["source"]["read"] == {"tasks": ["text2image_retrieval"], "text": "context+question"}


def test_images_in_parquet_become_files_and_only_those_shown_stay(lad: Lad, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    contents = [write_picture(tmp_path / "tmp.png", index).read_bytes() for index in range(40)]
    pq.write_table(pa.table({"image": contents, "caption": [f"c {i}" for i in range(40)]}), tmp_path / "one.parquet")
    lad(tmp_path, "hf", "one.parquet", "--count", "3", "--calibration-samples", "1", "--out", "one")
    used = {
        image
        for split in ("test", "calibration")
        for s in read_samples(tmp_path / f"one/{split}.jsonl")
        for image in s.images
    }
    assert used == set((tmp_path / "one" / "images").iterdir())
    rows = {
        "images": [contents[4 * i : 4 * i + 4] for i in range(10)],
        "caption": ["c"] * 10,
        "answer": [i % 4 for i in range(10)],
    }
    pq.write_table(pa.table(rows), tmp_path / "lists.parquet")
    lad(tmp_path, "hf", "lists.parquet", "--calibration-samples", "3", "--out", "lists")
    assert check(tmp_path / "lists")["splits"]["test"]["samples"] == 7
    _, told = lad(
        tmp_path, "hf", "lists.parquet", "--setting", "adversarial", "--encoder", "shipped", "--out", "x", code=2
    )
    assert "their distractors are not chosen anew" in told
    assert not list((tmp_path / "x" / "images").iterdir())


def test_errors_are_one_message(lad: Lad, tmp_path: Path) -> None:
    write_coco(tmp_path, 12)
    source = ("--captions", "captions.json", "--images", "images")
    cases = [
        (("coco", *source, "--out", "captions.json"), "captions.json: Is a file; a folder is needed"),
        (("coco", *source, "--out", "out"), "12 pictures are too few"),
        (
            ("coco", *source, "--setting", "adversarial", "--out", "out"),
            "clip-vit-large-patch14: The encoder cannot be loaded",
        ),
        (("coco", "--captions", "none.json", "--images", "images", "--out", "out"), "none.json: Cannot be read"),
        (("folder", "images", "--out", "out"), "images: Is no folder with metadata.jsonl or metadata.csv"),
        (("hf", "none.parquet", "--out", "out"), "none.parquet: Is no readable Parquet file"),
    ]
    for arguments, message in cases:
        _, told = lad(tmp_path, *arguments, code=2)
        assert message in " ".join(told.split())
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize("verb", ["coco", "flickr8k", "mmiu", "folder", "hf", "scenes"])
def test_help(lad: Lad, tmp_path: Path, verb: str) -> None:
    out, _ = lad(tmp_path, verb, "--help")
    assert "--preview" in out
