from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lad.benchmarks.coco import read_coco
from lad.benchmarks.flickr8k import read_flickr8k
from lad.benchmarks.folder import read_folder
from lad.benchmarks.pool import Pool, restrict
from lad.errors import SampleError
from tests.benchmarks.factory import make_pictures, write_coco, write_picture


def facts(pool: Pool) -> dict[str, tuple[tuple[str, ...], set[str]]]:
    return {picture.name: (picture.captions, set(picture.categories)) for picture in pool.pictures}


def test_coco(tmp_path: Path) -> None:
    captions, instances, images = write_coco(tmp_path, 7)
    pool = read_coco(captions, images, instances)
    assert facts(pool) == {f"{i:012d}.jpg": ((f"picture number {i}.",), {f"kind {i % 5 + 1}"}) for i in range(7)}
    assert pool.files == (captions, instances)
    assert [picture.image for picture in pool.pictures] == [images / f"{i:012d}.jpg" for i in range(7)]
    assert all(not picture.categories for picture in read_coco(captions, images).pictures)


def test_coco_with_entries_that_lack_something(tmp_path: Path) -> None:
    captions, instances, images = write_coco(tmp_path, 6)
    document = json.loads(captions.read_text())
    document["annotations"][1] = {"id": 1, "image_id": 1, "caption": None}
    document["annotations"][2]["caption"] = "  "
    document["annotations"] += [
        {"id": 90, "image_id": 0, "caption": "picture  number 0."},
        {"id": 91, "image_id": 0, "caption": "a second\tone"},
        {"id": 92, "image_id": 999, "caption": "of an image that is not listed"},
    ]
    captions.write_bytes(b"\xef\xbb\xbf" + json.dumps(document).encode())
    boxes = json.loads(instances.read_text())
    boxes["annotations"] = [
        {"id": 1, "image_id": 0, "category_id": 1, "presence_only": True},
        {"id": 2, "image_id": 0, "category_id": 2},
        {"id": 3, "image_id": 0, "category_id": 2, "bbox": [0, 0, 1, 1], "iscrowd": 1},
        {"id": 4, "image_id": 4},
        {"id": 5, "image_id": 5, "category_id": 77},
        {"id": 6, "image_id": 999, "category_id": 1},
    ]
    instances.write_text(json.dumps(boxes))
    (images / f"{3:012d}.jpg").unlink()
    pool = read_coco(captions, images, instances)
    assert facts(pool) == {
        f"{0:012d}.jpg": (("picture number 0.", "a second one"), {"kind 1", "kind 2"}),
        f"{4:012d}.jpg": (("picture number 4.",), set()),
        f"{5:012d}.jpg": (("picture number 5.",), {"77"}),
    }
    assert pool.left_out == {"without a caption": 2, "file missing": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "must be one object"),
        ("{}", "no list 'annotations'"),
        ('{"annotations": [], "images": []}', r"no picture that can be used \(it is empty\)"),
        ('{"annotations": [3], "images": []}', r"annotations\[0\]: Must be an object"),
        ('{"annotations": [], "images": [{"id": 1}]}', r"images\[0\]: The key 'file_name' is missing"),
        ('{"annotations": [{"caption": "a"}], "images": []}', r"annotations\[0\]: The key 'image_id' is missing"),
        (
            '{"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}], "annotations": []}',
            "1 is used twice",
        ),
        ('{"images": [', r"no valid JSON \(.*line 1"),
        ("\xff", "no valid JSON"),
    ],
)
def test_files_that_are_no_coco(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "captions.json"
    file.write_text(content)
    with pytest.raises(SampleError, match=message) as caught:
        read_coco(file, tmp_path)
    assert str(caught.value).startswith(str(file))


def test_missing_files_are_named(tmp_path: Path) -> None:
    captions, _, images = write_coco(tmp_path, 2)
    for call in (
        lambda: read_coco(tmp_path / "none.json", images),
        lambda: read_coco(captions, images, tmp_path / "none.json"),
        lambda: read_flickr8k(tmp_path / "none.json", images),
    ):
        with pytest.raises(SampleError, match="none.json: Cannot be read"):
            call()
    for call in (lambda: read_coco(captions, tmp_path / "none"), lambda: read_flickr8k(captions, tmp_path / "none")):
        with pytest.raises(SampleError, match="none: Is not a folder of images"):
            call()
    with pytest.raises(SampleError, match=r"no picture that can be used \(file missing: 2\)"):
        read_coco(captions, tmp_path)


def test_flickr8k_in_both_formats(tmp_path: Path) -> None:
    for name, seed in (("a.jpg", 1), ("b.jpg", 2)):
        write_picture(tmp_path / "images" / name, seed)
    tokens = tmp_path / "Flickr8k.token.txt"
    tokens.write_bytes(b'a.jpg#0\tA dog , running .\r\na.jpg#1\tA dog\r\n\r\nb.jpg#0\tA "cat"\r\nc.jpg#0\tgone\r\n')
    table = tmp_path / "captions.csv"
    table.write_bytes(
        b'\xef\xbb\xbfimage,caption\r\na.jpg,"A dog , running ."\r\na.jpg,A dog\r\n\r\nb.jpg,"A ""cat"""\r\n'
        b"c.jpg,gone\r\n"
    )
    expected = {"a.jpg": (("A dog , running .", "A dog"), set()), "b.jpg": (('A "cat"',), set())}
    for file in (tokens, table):
        pool = read_flickr8k(file, tmp_path / "images")
        assert facts(pool) == expected
        assert pool.left_out == {"file missing": 1}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "a.jpg#0\tfine\na.jpg no tab\n", "a.txt:2: Is not of the form NAME#NUMBER"),
        ("a.csv", "picture,text\n", "columns picture, text"),
        ("a.csv", "", "Is empty"),
        ("a.csv", "image,caption\na.jpg\n", "a.csv:2: Has too few cells"),
    ],
)
def test_files_that_are_no_flickr8k(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(SampleError, match=message):
        read_flickr8k(tmp_path / name, tmp_path)


def test_a_folder_with_metadata(tmp_path: Path) -> None:
    for name, seed in (("a.png", 1), ("sub/b.png", 2), ("c.png", 3)):
        write_picture(tmp_path / name, seed)
    records: list[dict[str, Any]] = [
        {"file_name": "a.png", "text": "one", "categories": ["x", 2]},
        {"file_name": "sub/b.png", "text": ["two", "three", "two"]},
        {"file_name": "a.png", "text": "four", "categories": ["y"]},
        {"file_name": "c.png", "text": None},
    ]
    lines = "\r\n\r\n".join(json.dumps(record) for record in records)
    (tmp_path / "metadata.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    pool = read_folder(tmp_path)
    assert facts(pool) == {"a.png": (("one", "four"), {"x", "2", "y"}), "sub/b.png": (("two", "three"), set())}
    assert pool.left_out == {"without a caption": 1}
    assert pool.name == tmp_path.name
    (tmp_path / "metadata.jsonl").unlink()
    (tmp_path / "metadata.csv").write_text("file_name,alt\na.png,one\n")
    assert facts(read_folder(tmp_path, "alt")) == {"a.png": (("one",), set())}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", ":2: Is no valid JSON"),
        ("[]", ":2: Must be an object"),
        ('{"text": "a"}', ":2: The key 'file_name' is missing"),
        ('{"file_name": "a.png", "alt": "a"}', ":2: The key 'caption' is missing.*There are: file_name, alt"),
        ('{"file_name": "a.png", "text": 3}', ":2: The text must be a text or a list"),
        ('{"file_name": "a.png", "text": "a", "categories": "x"}', ":2: The categories must be a list"),
    ],
)
def test_bad_metadata_is_named_by_its_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "a.png", "text": "a"}\n' + line)
    with pytest.raises(SampleError, match=message):
        read_folder(tmp_path)
    with pytest.raises(SampleError, match="no folder with metadata.jsonl or metadata.csv"):
        read_folder(tmp_path / "elsewhere")


def test_only_the_pictures_of_a_list(tmp_path: Path) -> None:
    pool = make_pictures(tmp_path / "set" / "images", 12)
    listing = tmp_path / "list.txt"
    listing.write_bytes(b"# mine\r\n\r\nset/images/3.png\r\n1.png\r\nother/images/5.png\r\nimages/7.png\r\n2.pn\r\n")
    kept = restrict(pool, listing)
    assert [picture.name for picture in kept.pictures] == ["1.png", "3.png", "7.png"]
    assert kept.left_out == {"not in the list": 9}
    listing.write_text("nothing.png\n")
    with pytest.raises(SampleError, match="Names none of the 12 pictures"):
        restrict(pool, listing)
    with pytest.raises(SampleError, match="Cannot be read"):
        restrict(pool, tmp_path / "none.txt")
