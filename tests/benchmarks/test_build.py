from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lad.benchmarks.benchmark_files import write_benchmark
from lad.benchmarks.build import Benchmark, build_benchmark
from lad.benchmarks.contents import digest_images
from lad.benchmarks.embeddings import Encoders
from lad.benchmarks.plan import BuildPlan
from lad.benchmarks.pool import Pool
from lad.benchmarks.preview import write_preview
from lad.errors import ImageError, SampleError
from lad.sample_files import read_samples
from lad.samples import Sample
from tests.benchmarks.factory import HashEncoder, make_pictures, write_picture


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    kinds = ("a", "b", "c", "")
    categories = {i: {kinds[i % 4], kinds[i // 4 % 4]} - {""} for i in range(120)}
    return make_pictures(tmp_path_factory.mktemp("pool"), 120, categories=categories)


def shown(samples: list[Sample]) -> set[str | None]:
    return set(digest_images([image for sample in samples for image in sample.images]))


def hard(**facts: Any) -> BuildPlan:
    return BuildPlan(setting="adversarial", **facts)


@pytest.mark.parametrize("setting", ["random", "adversarial"])
@pytest.mark.parametrize("candidates", [2, 4, 12, 20])
def test_valid_samples_in_disjoint_splits(pool: Pool, setting: Any, candidates: int) -> None:
    plan = BuildPlan(setting=setting, candidates=candidates, calibration_samples=2, calibration_pictures=50)
    built = build_benchmark(pool, plan, encoders=Encoders(HashEncoder()))
    assert len(built.test) == 70
    assert len(built.calibration) == 2
    captions = {picture.image: picture.captions[0] for picture in pool.pictures}
    for sample in (*built.test, *built.calibration):
        assert len(sample) == candidates
        assert len(set(sample.images)) == candidates
        assert sample.answer is not None
        assert captions[sample.images[sample.answer]] == sample.caption
    assert len({sample.caption for sample in built.test}) == 70
    assert len({sample.id for sample in (*built.test, *built.calibration)}) == 72
    assert not shown(built.test) & shown(built.calibration)
    assert set(built.digests["test"]) == shown(built.test)
    assert built.facts["splits"]["test"]["pictures"] == 70
    assert built.facts["splits"]["calibration"]["pictures"] == 50


def test_places_of_answers_and_distractors_are_uniform(pool: Pool) -> None:
    built = build_benchmark(pool, BuildPlan(count=3000, repeat=True, calibration_samples=0))
    places = Counter(sample.answer for sample in built.test)
    # four places of 750 each, standard deviation 24
    assert all(abs(places[place] - 750) < 100 for place in range(4))
    others = Counter(
        image for sample in built.test for index, image in enumerate(sample.images) if index != sample.answer
    )
    # 120 pictures of 75 each, standard deviation 8.6
    assert len(others) == 120
    assert 35 < min(others.values()) <= max(others.values()) < 115
    anchors = Counter(sample.images[sample.answer] for sample in built.test)  # type: ignore[index]
    assert set(anchors.values()) == {25}


def test_repeated_pictures_are_asked_about_in_other_words(pool: Pool) -> None:
    built = build_benchmark(pool, BuildPlan(count=240, repeat=True, calibration_samples=0))
    assert len({sample.caption for sample in built.test}) == 240
    with pytest.raises(SampleError, match="121 samples were asked for, but the test split has 120 pictures"):
        build_benchmark(pool, BuildPlan(count=121, calibration_samples=0))
    encoders = Encoders(HashEncoder())
    assert (
        len(build_benchmark(pool, hard(count=240, repeat=True, calibration_samples=0), encoders=encoders).test) == 240
    )
    with pytest.raises(SampleError, match="Only 240 of 241"):
        build_benchmark(pool, hard(count=241, repeat=True, calibration_samples=0), encoders=encoders)


def test_the_seed_decides_the_draws_and_not_the_split(pool: Pool) -> None:
    plan = BuildPlan(calibration_pictures=40)
    one, same, other = (build_benchmark(pool, replace(plan, seed=seed)) for seed in (0, 0, 1))
    assert one == same
    assert [s.images for s in one.test] != [s.images for s in other.test]
    encoders = Encoders(HashEncoder())
    another = build_benchmark(
        replace(pool, pictures=pool.pictures[::-1]), hard(candidates=8, calibration_pictures=40), encoders=encoders
    )
    assert not shown(other.calibration) & shown(one.test)
    assert not shown(another.calibration) & shown(one.test)
    assert not shown(one.calibration) & shown(another.test)


def test_a_longer_test_split_begins_with_the_shorter(pool: Pool) -> None:
    short, long = (build_benchmark(pool, BuildPlan(count=count)) for count in (10, 60))
    assert long.test[:10] == short.test


def test_captions_may_be_drawn(pool: Pool) -> None:
    first, drawn = (build_benchmark(pool, BuildPlan(caption=choice)) for choice in ("first", "random"))  # type: ignore[arg-type]
    assert not any(sample.caption.startswith("other") for sample in first.test)
    assert 20 < sum(sample.caption.startswith("other") for sample in drawn.test) < 80


def test_a_distractor_never_has_the_same_caption(tmp_path: Path) -> None:
    captions = {index: ["A Dog" if index % 2 else "a dog"] if index < 6 else [f"cat {index}"] for index in range(12)}
    pool = make_pictures(tmp_path, 12, captions=captions)
    built = build_benchmark(pool, BuildPlan(calibration_samples=0))
    dogs = {pool.pictures[index].image for index in range(6)}
    for sample in built.test:
        if sample.caption.lower() == "a dog":
            assert len(dogs & set(sample.images)) == 1


@pytest.mark.parametrize("rule", ["contains", "equals", "none"])
def test_hard_negatives_are_the_nearest_that_the_constraints_leave(pool: Pool, rule: Any) -> None:
    encoders = Encoders(HashEncoder(6))
    limit = 0.6
    built = build_benchmark(
        pool, hard(candidates=4, category_rule=rule, caption_limit=limit, calibration_samples=0), encoders=encoders
    )
    images = encoders.embed_images([p.image for p in pool.pictures], digest_images([p.image for p in pool.pictures]))
    texts = encoders.embed_texts([picture.captions[0] for picture in pool.pictures])
    place = {picture.image: index for index, picture in enumerate(pool.pictures)}
    assert len(built.test) == 120
    for sample in built.test:
        assert sample.answer is not None
        anchor, *_ = [place[sample.images[sample.answer]]]  # type: ignore[index]
        own = pool.pictures[anchor].categories
        eligible = []
        for other, picture in enumerate(pool.pictures):
            theirs = picture.categories
            barred = bool(own) and ((rule == "contains" and own <= theirs) or (rule == "equals" and own == theirs))
            if other != anchor and not barred and texts[other] @ texts[anchor] < limit:
                eligible.append(other)
        nearest = sorted(eligible, key=lambda other: -float(images[other] @ images[anchor]))[:3]
        drawn = {place[image] for index, image in enumerate(sample.images) if index != sample.answer}  # type: ignore[index]
        assert drawn == set(nearest)
    # the same draw, measured in the random setting, has less similar distractors
    random = build_benchmark(pool, BuildPlan(candidates=4, calibration_samples=0), encoders=encoders)
    similarity = [made.facts["splits"]["test"]["image_similarity"] for made in (built, random)]
    assert similarity[0] > similarity[1] + 0.3


def test_pictures_with_too_few_distractors_are_named_or_refused(tmp_path: Path) -> None:
    # "a" is everywhere, so nothing may stand beside 0 and 1; beside 2 to 9 all but their twins may
    categories = {index: {"a"} | ({str(index // 2)} if index > 1 else set()) for index in range(10)}
    pool = make_pictures(tmp_path, 10, categories=categories)
    encoders = Encoders(HashEncoder())
    plan = hard(candidates=4, calibration_samples=0, caption_limit=2.0)
    built = build_benchmark(pool, plan, encoders=encoders)
    assert len(built.test) == 8
    assert all(len(sample) == 4 for sample in built.test)
    left_out = built.facts["splits"]["test"]["left_out"]
    assert sorted(item["picture"] for item in left_out) == ["0.png", "1.png"]
    with pytest.raises(SampleError, match=r"[01].png: Fewer than 3 distractors are eligible for the caption 'caption"):
        build_benchmark(pool, replace(plan, too_few="refuse"), encoders=encoders)
    with pytest.raises(SampleError, match=r"Only 8 of 10 samples.*2 pictures have too few eligible distractors"):
        build_benchmark(pool, replace(plan, count=10), encoders=encoders)
    with pytest.raises(SampleError, match="Only 0 of 10 samples"):
        build_benchmark(pool, replace(plan, caption_limit=-2.0), encoders=encoders)
    same = make_pictures(tmp_path, 10, captions={index: ["one and the same"] for index in range(10)})
    with pytest.raises(SampleError, match="Only 0 of 5 samples can be made in the test split"):
        build_benchmark(same, BuildPlan(count=5, repeat=True, calibration_samples=0))


def test_no_picture_is_in_both_splits_by_content(tmp_path: Path) -> None:
    pool = make_pictures(tmp_path, 40)
    for index in range(20):  # every other picture is a copy under another name, and in another format
        Image.open(tmp_path / f"{index}.png").save(tmp_path / f"copy-{index}.bmp")
    copies = tuple(
        replace(picture, name=f"copy-{index}.bmp", image=tmp_path / f"copy-{index}.bmp")
        for index, picture in enumerate(pool.pictures[:20])
    )
    built = build_benchmark(replace(pool, pictures=pool.pictures + copies), BuildPlan(calibration_samples=3))
    assert built.facts["source"]["pictures"] == 40
    assert built.facts["source"]["left_out"] == {"same content": 20}
    assert not shown(built.test) & shown(built.calibration)
    assert all(len(shown([sample])) == 4 for sample in built.test)
    with pytest.raises(SampleError, match=r"2 picture\(s\) are in both .* first is bb"):
        Benchmark([], [], {}, {"test": ["aa", "cc", "bb"], "calibration": ["cc", "bb"]})


def test_pictures_can_be_kept_out(pool: Pool) -> None:
    other = build_benchmark(pool, BuildPlan(count=4, calibration_samples=0))
    built = build_benchmark(pool, BuildPlan(), excluded=[digest for digest in shown(other.test) if digest])
    assert not shown(built.test) & shown(other.test)
    assert not shown(built.calibration) & shown(other.test)
    assert built.facts["source"]["left_out"] == {"excluded": len(shown(other.test))}


def test_broken_pictures(tmp_path: Path) -> None:
    pool = make_pictures(tmp_path, 30)
    (tmp_path / "7.png").write_bytes(b"no picture")
    with pytest.raises(ImageError, match="7.png"):
        build_benchmark(pool, BuildPlan(calibration_samples=1))
    built = build_benchmark(pool, BuildPlan(calibration_samples=1, broken="skip"))
    assert built.facts["source"]["left_out"] == {"not readable": 1}


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"candidates": 1}, "candidates must be at least 2, not 1"),
        ({"count": 0}, "count must be at least 1"),
        ({"calibration_samples": -1}, "at least 0"),
        ({"setting": "hard"}, "setting 'hard' does not exist. Choose random or adversarial"),
        ({"category_rule": "same"}, "category rule 'same'"),
        ({"too_few": "x"}, "too few 'x'"),
        ({"caption": "last"}, "caption 'last'"),
        ({"broken": "x"}, "broken 'x'"),
    ],
)
def test_plans_that_cannot_be(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(SampleError, match=message):
        BuildPlan(**facts)


def test_too_few_pictures(pool: Pool) -> None:
    few = replace(pool, pictures=pool.pictures[:23])
    assert len(build_benchmark(few, BuildPlan(candidates=3)).test) == 8
    for plan in (BuildPlan(), BuildPlan(calibration_pictures=3), BuildPlan(calibration_pictures=20)):
        with pytest.raises(SampleError, match="23 pictures are too few"):
            build_benchmark(few, plan)
    with pytest.raises(SampleError, match="needs encoders"):
        build_benchmark(pool, hard())


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_files_are_the_same_for_the_same_seed_and_read_from_anywhere(
    pool: Pool, tmp_path: Path, file_format: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build_benchmark(pool, BuildPlan(), encoders=Encoders(HashEncoder()))
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        manifest = write_benchmark(folder, built, files=[], file_format=file_format)
    names = sorted(path.name for path in folders[0].iterdir())
    assert names == [f"calibration.{file_format}", "manifest.json", f"test.{file_format}"]
    for name in names:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    assert json.loads((folders[0] / "manifest.json").read_text()) == manifest
    assert manifest["pictures_in_both_splits"] == 0
    assert manifest["digests"]["test"] == sorted(shown(built.test))  # type: ignore[type-var]
    monkeypatch.chdir(tmp_path)
    again = read_samples(f"one/test.{file_format}")
    monkeypatch.chdir("/")
    assert shown(again) == shown(built.test)
    assert [(s.caption, s.answer, s.id) for s in again] == [(s.caption, s.answer, s.id) for s in built.test]


def test_a_folder_with_copies_stands_alone(tmp_path: Path) -> None:
    pool = make_pictures(tmp_path / "pool", 30)
    built = build_benchmark(pool, BuildPlan(calibration_samples=1))
    expected = shown(built.test)
    write_benchmark(tmp_path / "out", built, copy_images=True)
    shutil.rmtree(tmp_path / "pool")
    (tmp_path / "out").rename(tmp_path / "moved")
    assert shown(read_samples(tmp_path / "moved" / "test.jsonl")) == expected


def test_a_split_that_is_not_made_leaves_no_old_file(tmp_path: Path) -> None:
    pool = make_pictures(tmp_path / "pool", 30)
    write_benchmark(tmp_path, build_benchmark(pool, BuildPlan(calibration_samples=1)))
    assert (tmp_path / "calibration.jsonl").exists()
    write_benchmark(tmp_path, build_benchmark(pool, BuildPlan(calibration_samples=0)))
    assert not (tmp_path / "calibration.jsonl").exists()
    with pytest.raises(SampleError, match="format 'csv'"):
        write_benchmark(tmp_path, build_benchmark(pool, BuildPlan(calibration_samples=1)), file_format="csv")  # type: ignore[arg-type]


def test_preview(tmp_path: Path) -> None:
    pool = make_pictures(tmp_path / "pool", 30, captions={index: [f"<b>{index}</b> 東京"] for index in range(30)})
    write_picture(tmp_path / "pool" / "0.png", 0, side=400)
    built = build_benchmark(pool, BuildPlan(calibration_samples=1))
    write_preview(tmp_path / "preview.html", built, 3)
    page = (tmp_path / "preview.html").read_text(encoding="utf-8")
    assert page.count("<article>") == 4
    assert page.count("<figure") == 16
    assert page.count('<figure class="answer">') == 4
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    for sample in built.test[:3]:
        article = page.split(sample.id)[1].split("</article>")[0]
        figures = article.split("<figure")[1:]
        assert [figure.startswith(' class="answer"') for figure in figures].index(True) == sample.answer


def test_similarity_in_the_facts_is_that_of_the_pictures(pool: Pool) -> None:
    encoders = Encoders(HashEncoder())
    built = build_benchmark(pool, BuildPlan(count=20), encoders=encoders)
    values = []
    for sample in built.test:
        vectors = encoders.embed_images(sample.images, digest_images(sample.images))  # type: ignore[arg-type]
        assert sample.answer is not None
        values += [float(v @ vectors[sample.answer]) for i, v in enumerate(vectors) if i != sample.answer]
    assert built.facts["splits"]["test"]["image_similarity"] == pytest.approx(np.mean(values), abs=1e-6)
