from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from lad.benchmarks.contents import digest_images, distinct, without
from lad.benchmarks.disk_cache import DiskCache, default_cache
from lad.benchmarks.pool import Picture
from lad.errors import ImageError, RunError
from lad.images import image_digest, load_image
from tests.benchmarks.factory import make_pictures, write_picture


def test_digests_are_of_what_is_shown(tmp_path: Path) -> None:
    first = write_picture(tmp_path / "a.png", 1)
    Image.open(first).save(tmp_path / "b.bmp")
    third = write_picture(tmp_path / "c.png", 2)
    one, two, three, four = digest_images([first, tmp_path / "b.bmp", third, first.read_bytes()])
    assert one == two == four == image_digest(load_image(first))
    assert three != one


def test_digests_of_files_are_kept_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [write_picture(tmp_path / f"{number}.png", number) for number in range(5)]
    told: list[int] = []
    made = digest_images(files, cache=DiskCache(tmp_path / "cache"), progress=told.append)
    assert sum(told) == 5
    monkeypatch.setattr("lad.benchmarks.contents.load_image", lambda image: pytest.fail("was read again"))
    cache = DiskCache(tmp_path / "cache")
    assert len(cache) == 5
    assert digest_images(files, cache=cache) == made
    monkeypatch.undo()
    write_picture(files[2], 99, side=9)
    again = digest_images(files, cache=cache)
    assert [a == b for a, b in zip(again, made, strict=True)] == [True, True, False, True, True]


def test_a_broken_picture_is_refused_by_name_or_skipped(tmp_path: Path) -> None:
    good, bad = write_picture(tmp_path / "a.png", 1), tmp_path / "bad.png"
    bad.write_bytes(good.read_bytes()[:60])
    with pytest.raises(ImageError, match="bad.png"):
        digest_images([good, bad])
    assert digest_images([good, bad], broken="skip", cache=DiskCache(tmp_path / "cache"))[1] is None


def test_equal_contents_become_one_picture(tmp_path: Path) -> None:
    pool = make_pictures(tmp_path, 4, categories={0: ["a"], 3: ["b"]}, captions={0: ["x"], 3: ["y", "x"]})
    shutil.copy(tmp_path / "0.png", tmp_path / "3.png")
    pool = replace(pool, left_out={"file missing": 2})
    digests = digest_images([picture.image for picture in pool.pictures])
    single, kept = distinct(pool, [*digests[:1], None, *digests[2:]])
    assert single.pictures == (
        Picture("0.png", tmp_path / "0.png", ("x", "y"), frozenset("ab")),
        pool.pictures[2],
    )
    assert kept == [digests[0], digests[2]]
    assert single.left_out == {"file missing": 2, "not readable": 1, "same content": 1}
    rest, left = without(single, kept, {digests[0], "another"})
    assert (rest.pictures, left) == ((pool.pictures[2],), [digests[2]])
    assert rest.left_out["excluded"] == 1


def test_the_cache_keeps_everything_ever_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    one, two = DiskCache(folder), DiskCache(folder)
    for number in range(10):
        (one if number % 2 else two).add({f"key {number}": bytes([number])})
    one.add({})
    monkeypatch.setattr("lad.benchmarks.disk_cache._MERGE_PARTS", 5)
    for _ in range(2):  # the first merges the parts, the second reads what was merged
        assert {f"key {n}": DiskCache(folder).get(f"key {n}") for n in range(10)} == {
            f"key {n}": bytes([n]) for n in range(10)
        }
    assert len(list(folder.iterdir())) == 1
    assert DiskCache(folder).get("another") is None


def test_a_broken_part_is_named(tmp_path: Path) -> None:
    DiskCache(tmp_path).add({"key": b"value"})
    (part,) = tmp_path.iterdir()
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(RunError, match=f"{part.name}: Is no readable part.*Delete it"):
        DiskCache(tmp_path)


def test_where_the_cache_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAD_CACHE", str(tmp_path))
    assert default_cache() == tmp_path
    monkeypatch.delenv("LAD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "lad"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache() == Path.home() / ".cache" / "lad"
