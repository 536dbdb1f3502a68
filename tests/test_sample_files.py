from __future__ import annotations

import json
import stat
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lad.benchmarks.scenes import scene_samples
from lad.errors import ImageError, SampleError
from lad.images import image_digest, load_image
from lad.sample_files import read_samples, write_samples
from lad.samples import Sample

RECORD = {"caption": "a dog", "images": ["dog.png", "sub/cat.png"], "answer": 1, "id": "d1"}


def png(level: int) -> bytes:
    buffer = BytesIO()
    Image.new("RGB", (2, 2), (level, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def jsonl(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_jsonl(tmp_path: Path) -> None:
    file = jsonl(tmp_path / "pets.jsonl", RECORD, {"caption": "a cat", "images": ["/abs/a.png", "b.png", "b.png"]})
    assert read_samples(file) == [
        Sample("a dog", (tmp_path / "dog.png", tmp_path / "sub/cat.png"), 1, "d1"),
        Sample("a cat", (Path("/abs/a.png"), tmp_path / "b.png", tmp_path / "b.png"), None, "pets:2"),
    ]


def test_other_keys_are_ignored_and_nothing_is_as_good_as_left_out(tmp_path: Path) -> None:
    file = jsonl(tmp_path / "a.jsonl", {**RECORD, "answer": None, "id": None, "source": {"url": "x"}})
    assert read_samples(file) == [Sample("a dog", (tmp_path / "dog.png", tmp_path / "sub/cat.png"), None, "a:1")]


def test_files_as_other_systems_write_them(tmp_path: Path) -> None:
    file = tmp_path / "a.JSONL"
    lines = ["", json.dumps(RECORD), "  ", "", json.dumps({**RECORD, "id": "d2"})]
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert [sample.id for sample in read_samples(file)] == ["d1", "d2"]
    # blank lines count, so that a name leads to its line
    file.write_bytes(b'\r\n\r\n{"caption": "a", "images": ["b", "c"]}')
    assert [sample.id for sample in read_samples(file)] == ["a:3"]


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    record = json.dumps({**RECORD, "caption": "one\u2028two\u0085three"}, ensure_ascii=False)
    file.write_text(record + "\n", encoding="utf-8")
    assert [sample.caption for sample in read_samples(file)] == ["one\u2028two\u0085three"]


def test_paths_hold_in_any_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for name in ("dog.png", "sub/cat.png"):
        (tmp_path / name).write_bytes(png(9))
    jsonl(tmp_path / "a.jsonl", RECORD)
    monkeypatch.chdir(tmp_path)
    samples = read_samples("a.jsonl")
    # a relative path given in Python is relative to the working directory, wherever the file is written
    write_samples("sub/b.jsonl", [Sample("a dog", ("dog.png", Path("sub/cat.png")), 0, "x")])
    monkeypatch.chdir(tmp_path / "elsewhere")
    for sample in [*samples, *read_samples("../sub/b.jsonl")]:
        for image in sample.images:
            assert load_image(image).size == (2, 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "no valid JSON"),
        ("{'caption': 'a'}", "no valid JSON"),
        pytest.param("1" * 5000, "no usable JSON", id="endless number"),
        pytest.param("[" * 100_000, "no usable JSON", id="endless nesting"),
        ("[]", "Must be an object.*not a list"),
        ('"text"', "Must be an object.*not a text"),
        ('{"images": ["a", "b"]}', "key 'caption' is missing"),
        ('{"caption": "a"}', "key 'images' is missing"),
        ('{"caption": 3, "images": ["a", "b"]}', "caption must be a text, not a number"),
        ('{"caption": null, "images": ["a", "b"]}', "caption must be a text, not nothing"),
        ('{"caption": " ", "images": ["a", "b"]}', "caption is empty"),
        ('{"caption": "a", "images": "ab"}', "images must be a list, not a text"),
        ('{"caption": "a", "images": {"0": "a"}}', "images must be a list, not an object"),
        ('{"caption": "a", "images": []}', "Has 0 image"),
        ('{"caption": "a", "images": ["a"]}', "Has 1 image"),
        ('{"caption": "a", "images": ["a", 3]}', "image 1: An image must be given by its path, not by a number"),
        ('{"caption": "a", "images": ["a", null]}', "image 1: .* not by nothing"),
        ('{"caption": "a", "images": ["", "b"]}', "image 0: .* not by an empty text"),
        ('{"caption": "a", "images": ["a", {"path": "b"}]}', "image 1: .* not by an object"),
        ('{"caption": "a", "images": ["https://example.org/a.png", "b"]}', "image 0: Is an address"),
        ('{"caption": "a", "images": ["data:image/png;base64,AA", "b"]}', "image 0: Is an address"),
        ('{"caption": "a", "images": ["a", "b"], "answer": 2}', "answer 2 is out of range"),
        ('{"caption": "a", "images": ["a", "b"], "answer": -1}', "answer -1 is out of range"),
        ('{"caption": "a", "images": ["a", "b"], "answer": "1"}', "must be a whole number, not '1'"),
        ('{"caption": "a", "images": ["a", "b"], "answer": 1.0}', "must be a whole number, not 1.0"),
        ('{"caption": "a", "images": ["a", "b"], "answer": true}', "must be a whole number, not True"),
        ('{"caption": "a", "images": ["a", "b"], "id": 7}', "id must be a text that is not empty, not a number"),
        ('{"caption": "a", "images": ["a", "b"], "id": ""}', "not an empty text"),
        ('{"caption": "a", "images": ["a", "b"], "id": "d1"}', "id 'd1' stands at .*a.jsonl:1 already"),
        ("caf\udce9", "Is not UTF-8"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(f"{json.dumps(RECORD)}\n\n{line}\n".encode(errors="surrogateescape"))
    with pytest.raises(SampleError, match=message) as caught:
        read_samples(file)
    assert str(caught.value).startswith(f"{file}:3")


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_files_without_samples(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    with pytest.raises(SampleError, match="Cannot be read.*No such file") as caught:
        read_samples(file)
    assert caught.value.where == str(file)
    if file.suffix == ".jsonl":
        file.write_text("\n\n")
    else:
        parquet(file, caption=pa.array([], pa.string()), images=pa.array([], pa.list_(pa.string())))
    with pytest.raises(SampleError, match="Holds no samples") as caught:
        read_samples(file)
    assert caught.value.where == str(file)


def test_what_is_no_file_of_samples(tmp_path: Path) -> None:
    for name in ("a.json", "a.csv", "a", "jsonl"):
        with pytest.raises(SampleError, match=r"by its name. Known endings: .jsonl, .parquet"):
            read_samples(tmp_path / name)
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "folder.parquet").mkdir()
    for name in ("folder.jsonl", "folder.parquet"):
        with pytest.raises(SampleError, match="Cannot be read.*Is a directory"):
            read_samples(tmp_path / name)


def test_parquet_with_paths(tmp_path: Path) -> None:
    file = parquet(
        tmp_path / "pets.parquet",
        caption=["a dog", "a cat"],
        images=[["dog.png", "sub/cat.png"], ["/abs/a.png", "b.png", "c.png"]],
        answer=pa.array([1, None], pa.int64()),
        id=["d1", None],
        source=["x", "y"],
    )
    assert read_samples(str(file)) == [
        Sample("a dog", (tmp_path / "dog.png", tmp_path / "sub/cat.png"), 1, "d1"),
        Sample("a cat", (Path("/abs/a.png"), tmp_path / "b.png", tmp_path / "c.png"), None, "pets:2"),
    ]


def test_parquet_with_bytes(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", caption=["a dog"], images=[[png(1), png(2)]])
    assert read_samples(file) == [Sample("a dog", (png(1), png(2)), None, "a:1")]


def test_parquet_with_structs(tmp_path: Path) -> None:
    images = [[{"bytes": png(1), "path": "not-looked-at.png"}, {"bytes": None, "path": "b.png"}]]
    file = parquet(tmp_path / "a.parquet", caption=["a dog"], images=images)
    assert read_samples(file)[0].images == (png(1), tmp_path / "b.png")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"images": [["a", "b"]] * 2}, "row 1: The key 'caption' is missing"),
        ({"caption": ["a", "b"]}, "row 1: The key 'images' is missing"),
        ({"caption": ["a", None], "images": [["a", "b"]] * 2}, "row 2: The caption must be a text, not nothing"),
        ({"caption": ["a", "b"], "images": [["a", "b"], None]}, "row 2: The images must be a list, not nothing"),
        ({"caption": ["a", "b"], "images": ["a", "b"]}, "row 1: The images must be a list, not a text"),
        ({"caption": ["a", "b"], "images": [["a", "b"], ["a"]]}, "row 2: Has 1 image"),
        ({"caption": ["a", "b"], "images": [[1, 2]] * 2}, "row 1, image 0: .* not by a number"),
        (
            {"caption": ["a"], "images": [[{"bytes": None, "path": None}, {"bytes": b"x", "path": None}]]},
            "row 1, image 0: .* not by nothing",
        ),
        ({"caption": ["a", "b"], "images": [["a", "b"]] * 2, "answer": [0, 5]}, "row 2: The answer 5 is out of range"),
        ({"caption": ["a", "b"], "images": [["a", "b"]] * 2, "answer": [0.0, 1.0]}, "row 1: .* a whole number"),
        ({"caption": ["a", "b"], "images": [["a", "b"]] * 2, "id": ["x", "x"]}, "row 2: The id 'x' stands at .*row 1"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    file = parquet(tmp_path / "a.parquet", **columns)
    with pytest.raises(SampleError, match=message) as caught:
        read_samples(file)
    assert str(caught.value).startswith(f"{file}, row ")


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_broken_parquet_files(tmp_path: Path, share: float) -> None:
    file = parquet(tmp_path / "a.parquet", caption=["a"] * 50, images=[["a", "b"]] * 50)
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(SampleError, match="no readable Parquet file") as caught:
        read_samples(file)
    assert caught.value.where == str(file)


names = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=8)
written = st.builds(
    Sample,
    caption=st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip),
    images=st.lists(names.filter(lambda name: name not in (".", "..")).map(Path), min_size=2, max_size=4),
    answer=st.none() | st.integers(0, 1),
    id=st.text(st.characters(codec="utf-8"), min_size=1, max_size=5),
)


@given(st.lists(written, min_size=1, max_size=4, unique_by=lambda sample: sample.id))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, samples: list[Sample]) -> None:
    folder = tmp_path_factory.mktemp("written")
    placed = [
        Sample(sample.caption, tuple(folder / "pictures" / name for name in sample.images), sample.answer, sample.id)  # type: ignore[operator]
        for sample in samples
    ]
    for name in ("a.jsonl", "a.parquet"):
        write_samples(folder / name, placed)
        assert read_samples(folder / name) == placed
        # the same samples give the same bytes
        write_samples(folder / f"again-{name}", placed)
        assert (folder / f"again-{name}").read_bytes() == (folder / name).read_bytes()


def test_the_folder_may_be_moved(tmp_path: Path) -> None:
    (tmp_path / "here" / "pictures").mkdir(parents=True)
    (tmp_path / "here" / "pictures" / "a.png").write_bytes(png(7))
    image = tmp_path / "here" / "pictures" / "a.png"
    write_samples(tmp_path / "here" / "lists" / "a.jsonl", [Sample("a", (image, png(8)))])
    (tmp_path / "here").rename(tmp_path / "there")
    (sample,) = read_samples(tmp_path / "there" / "lists" / "a.jsonl")
    assert [np.asarray(load_image(image))[0, 0, 0] for image in sample.images] == [7, 8]


def test_pictures_in_memory_are_kept_by_what_they_show(tmp_path: Path) -> None:
    file = tmp_path / "new" / "scenes.jsonl"
    samples = scene_samples(3, 4)
    write_samples(file, samples)
    again = read_samples(file)
    for sample, read in zip(samples, again, strict=True):
        assert (read.caption, read.answer, read.id) == (sample.caption, sample.answer, sample.id)
        for image, path in zip(sample.images, read.images, strict=True):
            assert np.array_equal(np.asarray(load_image(path)), np.asarray(image))
            assert path == file.parent / "images" / f"{image_digest(load_image(image))}.png"
    before = {path: path.stat().st_mtime_ns for path in (file.parent / "images").iterdir()}
    assert len(before) == 12
    write_samples(file, [*samples, Sample("twice", (samples[0].images[0], np.asarray(samples[0].images[0])))])
    assert {path: path.stat().st_mtime_ns for path in (file.parent / "images").iterdir()} == before
    twice = read_samples(file)[-1].images
    assert twice[0] == twice[1] == again[0].images[0]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    write_samples(file, [Sample("old", ("a.png", "b.png"))])
    old = file.read_bytes()
    with pytest.raises(ImageError, match="sample 1, image 1: Is not an image"):
        write_samples(file, [Sample("new", ("a.png", "b.png")), Sample("broken", (png(1), b"no image"))])
    assert file.read_bytes() == old
    assert not list(tmp_path.rglob("*.tmp"))


def test_files_are_readable_like_any_other(tmp_path: Path) -> None:
    write_samples(tmp_path / "a.jsonl", [Sample("a", ("a.png", png(1)))])
    (tmp_path / "other").touch()
    usual = stat.S_IMODE((tmp_path / "other").stat().st_mode)
    for path in (tmp_path / "a.jsonl", next((tmp_path / "images").iterdir())):
        assert stat.S_IMODE(path.stat().st_mode) == usual


def test_samples_that_cannot_be_written(tmp_path: Path) -> None:
    sample = Sample("a", ("a.png", "b.png"), id="x")
    cases: list[tuple[str, list[Sample], str]] = [
        ("a.csv", [sample], "names end in .jsonl or .parquet"),
        ("a.jsonl", [], "no samples to write"),
        ("a.jsonl", [sample, sample], "sample 1: The id 'x' is used twice"),
        ("a.jsonl", [Sample("a", ("a.png", "https://example.org/b.png"))], "sample 0, image 1: An address is no image"),
    ]
    for name, samples, message in cases:
        with pytest.raises(SampleError, match=message):
            write_samples(tmp_path / name, samples)
    assert list(tmp_path.iterdir()) == []
    # samples without a name of their own do not stand in each other's way
    write_samples(tmp_path / "a.jsonl", [Sample("a", ("a.png", "b.png"))] * 2)
    assert [each.id for each in read_samples(tmp_path / "a.jsonl")] == ["a:1", "a:2"]
