from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lad.benchmarks.contents import digest_images
from lad.benchmarks.groups import Groups, build_of_groups
from lad.benchmarks.hub import Columns, read_hub
from lad.benchmarks.mmiu import TASKS, candidates_of_options, names_a_place, question_text, read_mmiu
from lad.benchmarks.pool import Pool
from lad.errors import DependencyError, ImageError, SampleError
from lad.samples import Sample
from tests.benchmarks.factory import write_picture


def make_samples(folder: Path, count: int, candidates: int = 3, first: int = 0) -> tuple[Sample, ...]:
    """Samples of pictures that are not shared."""
    numbers = range(first, first + count)
    return tuple(
        Sample(
            f"caption {number}",
            tuple(write_picture(folder / f"{number}-{index}.png", number * 100 + index) for index in range(candidates)),
            number % candidates,
            f"sample {number}",
        )
        for number in numbers
    )


def shown(samples: list[Sample]) -> set[str | None]:
    return set(digest_images([image for sample in samples for image in sample.images]))


def test_ready_made_samples_are_parted(tmp_path: Path) -> None:
    samples = make_samples(tmp_path, 12) + make_samples(tmp_path, 8, candidates=2, first=50)
    built = build_of_groups(Groups("x", samples), calibration_samples=3)
    assert [len(sample) for sample in built.calibration] == [3] * 3 + [2] * 3
    assert len(built.test) == 14
    assert set(built.test) | set(built.calibration) == set(samples)
    assert not shown(built.test) & shown(built.calibration)
    # the choice follows from what is shown, not from order or names
    renamed = tuple(replace(sample, id=f"other {sample.id}") for sample in samples[::-1])
    again = build_of_groups(Groups("x", renamed), calibration_samples=3)
    assert shown(again.calibration) == shown(built.calibration)
    only = build_of_groups(Groups("x", samples), candidates=2, count=4, calibration_samples=3)
    assert {len(sample) for sample in (*only.test, *only.calibration)} == {2}
    assert len(only.test) == 4
    assert only.facts["source"]["left_out"] == {"another number of candidates": 12}


def test_samples_that_share_a_picture_with_the_calibration_split_are_left_out(tmp_path: Path) -> None:
    samples = make_samples(tmp_path, 10)
    apart = build_of_groups(Groups("x", samples), calibration_samples=1).calibration[0]
    image = apart.images[0]
    assert isinstance(image, Path)
    copy = tmp_path / "copy.png"
    copy.write_bytes(image.read_bytes())
    near = next(replace(sample, images=(copy, *sample.images[1:])) for sample in samples if sample != apart)
    mixed = tuple(near if sample.id == near.id else sample for sample in samples)
    built = build_of_groups(Groups("x", mixed), calibration_samples=1)
    assert not shown(built.test) & shown(built.calibration)
    assert len(built.test) == 8
    assert built.facts["source"]["left_out"] == {"shares a picture with the calibration split": 1}
    # a split of the dataset's own is not mended but refused
    with pytest.raises(SampleError, match=r"3 picture\(s\) are in both"):
        build_of_groups(Groups("x", mixed, calibration=(replace(apart, id="own"),)))
    own = make_samples(tmp_path, 2, first=80)
    assert build_of_groups(Groups("x", mixed, calibration=own)).calibration == list(own)


def test_samples_that_cannot_be_used(tmp_path: Path) -> None:
    samples = list(make_samples(tmp_path, 6))
    samples[0] = replace(samples[0], answer=None)
    samples[1] = replace(samples[1], images=(samples[1].images[0],) * 3)
    excluded = digest_images(samples[2].images[:1])
    built = build_of_groups(
        Groups("x", tuple(samples)), calibration_samples=1, excluded=[digest for digest in excluded if digest]
    )
    assert len(built.test) == 2
    assert built.facts["source"]["left_out"] == {
        "without an answer": 1,
        "shows the same picture twice": 1,
        "excluded": 1,
    }
    with pytest.raises(SampleError, match="3 samples of 3 candidates are too few to set 3 apart"):
        build_of_groups(Groups("x", tuple(samples[3:])), calibration_samples=3)
    with pytest.raises(SampleError, match=r"No sample is left for the test split \(without an answer: 1\)"):
        build_of_groups(Groups("x", tuple(samples[:1])), calibration_samples=0)


def item(task: str, images: list[str], **facts: Any) -> dict[str, Any]:
    ordinals = "first second third fourth".split()[: len(images)]
    options = "\n".join(f"{letter}: the {ordinal} image" for letter, ordinal in zip("ABCD", ordinals, strict=False))
    return {
        "task": task,
        "visual_input_component": "natural image",
        "source": "made up",
        "options": options,
        "question": "Which image is most likely to be a real photograph?",
        "context": f"You are given the {len(images)} images. Look closely.\n"
        f"Select from the following choices.\n{options}\n",
        "input_image_path": images,
        "output": "B",
        **facts,
    }


@pytest.fixture
def mmiu(tmp_path: Path) -> Path:
    names = [f"./blink/{index}.jpg" for index in range(4)]
    for index, name in enumerate(names):
        write_picture(tmp_path / name, index)
    records = [
        item("forensic_detection_blink", names),
        item(
            "emotion_recognition_expw",
            names[:3],
            output="C: the third image",
            options="A. second picture B. Image 1 C. 3rd photo",
        ),
        item("forensic_detection_blink", names, question="How does the second image differ?"),
        item("forensic_detection_blink", names, context="The last picture is a query."),
        item("forensic_detection_blink", names, options="A: yes B: no"),
        item(
            "forensic_detection_blink",
            names,
            options="A: the first image B: the first image C: the third image D: the fourth image",
        ),
        item(
            "forensic_detection_blink",
            names,
            options="A: the first image is real B: the second image C: the third image D: the fourth image",
        ),
        item("forensic_detection_blink", names[:3], options="A: the first image B: the second image"),
        item("forensic_detection_blink", names, output="E"),
        item("forensic_detection_blink", names, output=None),
        item("forensic_detection_blink", ["gone.jpg", *names[1:]]),
        item("another_task", names),
    ]
    (tmp_path / "all.json").write_text(json.dumps(records))
    return tmp_path / "all.json"


def test_mmiu(mmiu: Path) -> None:
    groups = read_mmiu(mmiu, mmiu.parent, ["forensic_blink", "emotion_recognition_expw"])
    blink, expw = groups.samples
    assert blink.caption == (
        "You are given the 4 images. Look closely. Which image is most likely to be a real photograph?"
    )
    assert blink.images == tuple(mmiu.parent / f"blink/{index}.jpg" for index in range(4))
    assert (blink.answer, blink.id) == (1, "mmiu-forensic_blink-00000")
    assert (expw.answer, len(expw)) == (2, 3)
    assert groups.left_out == {
        "names an image by its place": 2,
        "options do not name each image once": 4,
        "no right option": 2,
        "file missing": 1,
    }
    (short,) = read_mmiu(mmiu, mmiu.parent, ["emotion_expw"], "question").samples
    assert short.caption == "Which image is most likely to be a real photograph?"
    lines = mmiu.with_suffix(".jsonl")
    lines.write_text("\r\n".join(json.dumps(record) for record in json.loads(mmiu.read_text())))
    assert read_mmiu(lines, mmiu.parent, ["forensic_blink"]).samples == (blink,)
    with pytest.raises(SampleError, match="no item of the task 'visual_quality'"):
        read_mmiu(mmiu, mmiu.parent, tuple(TASKS)[-1:])
    with pytest.raises(SampleError, match="no item of the task 'forensic_forgerynet'"):
        read_mmiu(mmiu, mmiu.parent)
    with pytest.raises(SampleError, match="Is not a folder"):
        read_mmiu(mmiu, mmiu)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "Must be a list"),
        ("[3]", r"\[0\]: Must be an object"),
        ('[{"task": "visual_quality"}]', r"\[0\]: The key 'input_image_path' is missing"),
    ],
)
def test_files_that_are_no_mmiu(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(SampleError, match=message):
        read_mmiu(tmp_path / "a.json", tmp_path, ["visual_quality"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("A: the first image\nB: the second image", {"A": 0, "B": 1}),
        ("A: the second image B: the first image", {"A": 1, "B": 0}),
        ("(A) First picture. (B) 2nd photo", {"A": 0, "B": 1}),
        ("A. image 12\nB. Photo three", {"A": 11, "B": 2}),
        ("A: a dog B: a cat", None),
        ("A: the first image of a dog", None),
        ("", None),
        ("the first image", None),
    ],
)
def test_options(options: str, expected: dict[str, int] | None) -> None:
    assert candidates_of_options(options) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("How does the second image differ?", True),
        ("Compare Image 1 with the others.", True),
        ("Which one resembles the last picture?", True),
        ("In the 3rd photograph a dog runs.", True),
        ("Of the following images, which shows a first attempt?", False),
        ("Which of the four images shows two pictures on a wall?", False),
        ("Which image best matches: the second man from the left?", False),
    ],
)
def test_questions_that_name_a_place(text: str, expected: bool) -> None:
    assert names_a_place(text) is expected


def test_question_text_has_no_choices() -> None:
    context = "Look.\nSelect from the following choices.\nA: the first image"
    assert question_text(context, "Which?") == "Look. Which?"
    assert question_text("Look. Which? A: the first image", "Which?") == "Look. Which?"
    assert question_text("", " Which  one? ") == "Which one?"


def encoded(folder: Path, seed: int) -> dict[str, Any]:
    return {"bytes": write_picture(folder / "tmp.png", seed).read_bytes(), "path": None}


def test_parquet_with_lists_of_images(tmp_path: Path) -> None:
    rows = {
        "text": [f"caption {row}" for row in range(8)],
        "images": [[encoded(tmp_path, row * 10 + index) for index in range(3)] for row in range(8)],
        "target": [row % 3 for row in range(8)],
    }
    pq.write_table(pa.table(rows), tmp_path / "sets.parquet")
    groups = read_hub(tmp_path / "sets.parquet", tmp_path / "images", columns=Columns(answer="target"))
    assert isinstance(groups, Groups)
    assert [sample.answer for sample in groups.samples] == rows["target"]
    assert [sample.caption for sample in groups.samples] == rows["text"]
    first = groups.samples[0].images[1]
    assert isinstance(first, Path)
    # as stored, byte by byte
    assert first.read_bytes() == rows["images"][0][1]["bytes"]
    assert first.suffix == ".png"
    assert len(build_of_groups(groups, calibration_samples=2).test) == 6


def test_parquet_with_paths_or_single_images(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png", 1)
    rows = {"image": ["a.png", None], "caption": ["one", "two"], "categories": [["x"], []]}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    with pytest.raises(SampleError, match="a.parquet, row 1: Has no image"):
        read_hub(tmp_path / "a.parquet", tmp_path / "images")
    pq.write_table(pa.table(rows).slice(0, 1), tmp_path / "a.parquet")
    pool = read_hub(tmp_path / "a.parquet", tmp_path / "images")
    assert isinstance(pool, Pool)
    (picture,) = pool.pictures
    assert (picture.image, picture.captions, picture.categories) == (tmp_path / "a.png", ("one",), {"x"})
    assert not (tmp_path / "images").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"caption": ["a"]}, "The column 'image' is missing.*There are: caption"),
        ({"image": ["a.png"]}, "The key 'caption' is missing"),
        ({"image": [b"no picture"], "caption": ["a"]}, "row 0: Is not an image"),
        ({"images": [["a", "b"]], "caption": ["a"], "answer": ["b"]}, "answer must be a whole number"),
        ({"images": [["a", "b"]], "caption": ["a"], "answer": [2]}, "row 0: The answer 2 is out of range"),
        ({"images": [["a", "b"]], "caption": [["a", "b"]]}, "row 0: Needs one caption, not 2"),
        ({"image": pa.array([], pa.string()), "caption": pa.array([], pa.string())}, "Has no rows"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path: Path, rows: dict[str, Any], message: str) -> None:
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    with pytest.raises((SampleError, ImageError), match=message):
        read_hub(tmp_path / "a.parquet", tmp_path / "images")


def test_datasets_folders_and_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def part(first: int, count: int) -> datasets.Dataset:
        rows = [
            {
                "images": [str(write_picture(tmp_path / f"{n}-{i}.png", n * 10 + i)) for i in range(2)],
                "caption": f"caption {n}",
                "answer": n % 2,
            }
            for n in range(first, first + count)
        ]
        features = datasets.Features(
            {
                "images": datasets.List(datasets.Image()),
                "caption": datasets.Value("string"),
                "answer": datasets.Value("int64"),
            }
        )
        return datasets.Dataset.from_list(rows, features=features)

    both = datasets.DatasetDict({"test": part(0, 6), "few": part(20, 2)})
    both.save_to_disk(tmp_path / "saved")
    for split in both:
        both[split].to_parquet(tmp_path / "parquet" / "data" / f"{split}-00000.parquet")
    (tmp_path / "parquet" / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n"
        "  - {split: test, path: data/test-*}\n  - {split: few, path: data/few-*}\n---\n"
    )
    read = [
        read_hub(tmp_path / name, tmp_path / f"images {name}", calibration_split="few") for name in ("saved", "parquet")
    ]
    for groups in read:
        assert isinstance(groups, Groups)
        assert len(groups.samples) == 6
        built = build_of_groups(groups)
        assert [sample.caption for sample in built.calibration] == ["caption 20", "caption 21"]
        assert shown(built.test) == set(digest_images([tmp_path / f"{n}-{i}.png" for n in range(6) for i in range(2)]))
    # a folder that has changed is read anew, not from a copy
    part(0, 3).to_parquet(tmp_path / "parquet" / "data" / "test-00000.parquet")
    changed = read_hub(tmp_path / "parquet", tmp_path / "images")
    assert isinstance(changed, Groups)
    assert len(changed.samples) == 3
    with pytest.raises(SampleError, match="saved: The split 'none' cannot be loaded"):
        read_hub(tmp_path / "saved", tmp_path / "images", split="none")
    with pytest.raises(SampleError, match="someone/nothing: The split 'test' cannot be loaded"):
        read_hub("someone/nothing", tmp_path / "images")
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(DependencyError, match=r"lad-vlm\[datasets\]"):
        read_hub(tmp_path / "saved", tmp_path / "images")
