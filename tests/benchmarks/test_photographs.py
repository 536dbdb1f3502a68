"""Benchmarks of real photographs: COCO and Flickr8k, with the published kind of encoders and with the shipped one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from lad.benchmarks.benchmark_files import write_benchmark
from lad.benchmarks.build import build_benchmark
from lad.benchmarks.coco import read_coco
from lad.benchmarks.contents import digest_images
from lad.benchmarks.disk_cache import DiskCache
from lad.benchmarks.embeddings import Encoders
from lad.benchmarks.flickr8k import read_flickr8k
from lad.benchmarks.plan import BuildPlan
from lad.benchmarks.pool import Pool
from lad.cli import main
from lad.sample_files import read_samples
from lad.samples import Sample
from tests.benchmarks.photo_encoders import EfficientNet, load_sentence_encoder

pytestmark = pytest.mark.photos
Setting = Literal["random", "adversarial"]

# mean cosine similarity between the answer and its distractors: at least so much higher than in the random setting
LEAST_GAIN = {("coco", 4): 0.18, ("coco", 8): 0.15, ("flickr8k", 4): 0.18, ("flickr8k", 8): 0.15}


@pytest.fixture(scope="module")
def pools(photographs: Path) -> dict[str, Pool]:
    coco, flickr = photographs / "coco", photographs / "flickr8k"
    return {
        "coco": read_coco(coco / "captions.json", coco / "images", coco / "instances.json"),
        "flickr8k": read_flickr8k(flickr / "Flickr8k.token.txt", flickr / "images"),
    }


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the caches, shared by the tests of this file."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def encoders(kept: Path) -> Encoders:
    return Encoders(EfficientNet(), load_sentence_encoder(), kept / "embeddings")


@pytest.fixture
def lad(kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """`lad build ... --json` in this process: the document that it prints."""
    monkeypatch.setenv("LAD_CACHE", str(kept))

    def run(*arguments: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["lad", "build", *arguments, "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert not ended.value.code, printed.err
        return json.loads(printed.out)

    return run


def shown(samples: list[Sample], kept: Path) -> set[str | None]:
    return set(
        digest_images([image for sample in samples for image in sample.images], cache=DiskCache(kept / "digests"))
    )


@pytest.mark.parametrize("candidates", [4, 8])
@pytest.mark.parametrize("dataset", ["coco", "flickr8k"])
def test_benchmarks_of_photographs(
    dataset: str, candidates: int, pools: dict[str, Pool], encoders: Encoders, kept: Path, tmp_path: Path
) -> None:
    pool = pools[dataset]
    similarity = {}
    for setting in ("random", "adversarial"):
        plan = BuildPlan(setting=setting, candidates=candidates, calibration_pictures=90, seed=3)  # type: ignore[arg-type]
        built, again = (
            build_benchmark(pool, plan, encoders=encoders, cache=DiskCache(kept / "digests")) for _ in range(2)
        )
        for name, made in (("one", built), ("two", again)):
            write_benchmark(tmp_path / setting / name, made, files=pool.files)
        for file in (tmp_path / setting / "one").iterdir():
            assert file.read_bytes() == (tmp_path / setting / "two" / file.name).read_bytes()
        for split, number in (("test", len(pool.pictures) - 90), ("calibration", 5)):
            samples = read_samples(tmp_path / setting / "one" / f"{split}.jsonl")
            assert len(samples) == number - len(built.facts["splits"][split]["left_out"])
            check_samples(samples, candidates, pool)
            if setting == "adversarial":
                check_constraints(samples, pool, encoders)
        test, calibration = (
            shown(read_samples(tmp_path / setting / "one" / f"{split}.jsonl"), kept)
            for split in ("test", "calibration")
        )
        assert not test & calibration
        manifest = json.loads((tmp_path / setting / "one" / "manifest.json").read_text())
        assert (set(manifest["digests"]["test"]), set(manifest["digests"]["calibration"])) == (test, calibration)
        assert manifest["pictures_in_both_splits"] == 0
        # next to nothing is lost to the constraints
        assert len(built.facts["splits"]["test"]["left_out"]) <= 0.01 * len(pool.pictures)
        similarity[setting] = built.facts["splits"]["test"]["image_similarity"]
    assert similarity["adversarial"] - similarity["random"] >= LEAST_GAIN[dataset, candidates]


def check_samples(samples: list[Sample], candidates: int, pool: Pool) -> None:
    own = {Path(picture.image).resolve(): picture.captions for picture in pool.pictures}  # type: ignore[arg-type]
    for sample in samples:
        assert len(sample) == candidates
        paths = [Path(str(image)).resolve() for image in sample.images]
        assert len(set(paths)) == candidates
        assert sample.answer is not None
        assert sample.caption == own[paths[sample.answer]][0]
        assert not any(sample.caption in own[path] for index, path in enumerate(paths) if index != sample.answer)


def check_constraints(samples: list[Sample], pool: Pool, encoders: Encoders) -> None:
    """No distractor has all categories of the answer, or a caption as similar as 0.9 to the sample's."""
    pictures = {Path(picture.image).resolve(): picture for picture in pool.pictures}  # type: ignore[arg-type]
    texts = encoders.embed_texts([picture.captions[0] for picture in pool.pictures])
    vectors = {picture.captions[0]: vector for picture, vector in zip(pool.pictures, texts, strict=True)}
    for sample in samples:
        assert sample.answer is not None
        found = [pictures[Path(str(image)).resolve()] for image in sample.images]
        answer = found.pop(sample.answer)
        for other in found:
            assert not answer.categories or not answer.categories <= other.categories
            assert float(np.dot(vectors[other.captions[0]], vectors[sample.caption])) < 0.9 + 1e-6


@pytest.mark.parametrize("candidates", [4, 8])
@pytest.mark.parametrize("setting", ["random", "adversarial"])
@pytest.mark.parametrize("dataset", ["coco", "flickr8k"])
def test_the_command_on_photographs(
    dataset: str,
    setting: Setting,
    candidates: int,
    photographs: Path,
    tmp_path: Path,
    kept: Path,
    lad: Callable[..., Any],
) -> None:
    """As a user without a network would: the shipped encoder, and its caption similarities taken for what they are."""
    folder = photographs / dataset
    source = {
        "coco": ["--captions", folder / "captions.json", "--instances", folder / "instances.json"],
        "flickr8k": ["--captions", folder / "captions.csv"],
    }[dataset]
    options = [
        *source,
        "--images",
        folder / "images",
        "--images-list",
        photographs / "unseen.txt",
        "--out",
        tmp_path / "o",
    ]
    options += ["--setting", setting, "--candidates", candidates, "--count", 60, "--encoder", "shipped"]
    options += ["--caption-limit", 0.999]
    told = lad(dataset, *map(str, options))
    unseen = {"coco": 130, "flickr8k": 220}[dataset]
    assert told["source"]["pictures"] == unseen
    assert told["splits"]["test"]["samples"] == 60
    assert told["splits"]["calibration"]["samples"] == 5
    test, calibration = (read_samples(tmp_path / "o" / f"{split}.jsonl") for split in ("test", "calibration"))
    assert {len(sample) for sample in (*test, *calibration)} == {candidates}
    assert not shown(test, kept) & shown(calibration, kept)
    listed = set((photographs / "unseen.txt").read_text().split())
    for sample in (*test, *calibration):
        assert all(f"{dataset}/images/{Path(str(image)).name}" in listed for image in sample.images)


def test_two_hundred_samples_of_ninety_photographs(photographs: Path, tmp_path: Path, lad: Callable[..., Any]) -> None:
    folder = photographs / "coco"
    told = lad(
        "coco", "--captions", str(folder / "captions.json"), "--images", str(folder / "images"), "--images-list",
        str(photographs / "unseen.txt"), "--candidates", "8", "--count", "200", "--repeat", "--out", str(tmp_path),
    )  # fmt: skip
    assert told["splits"]["test"] == {"pictures": 90, "pictures_shown": 90, "samples": 200, "left_out": []}
    assert told["splits"]["calibration"]["pictures"] == 40
    assert len({(s.caption, s.images) for s in read_samples(tmp_path / "test.jsonl")}) == 200
