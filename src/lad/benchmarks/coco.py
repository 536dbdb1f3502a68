"""MS-COCO, 2014 and 2017: the captions file, the instances file and the folder of images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lad.benchmarks.annotations import read_json
from lad.benchmarks.pool import Picture, Pool, make_pool
from lad.errors import SampleError


def read_coco(
    captions: str | os.PathLike[str],
    images: str | os.PathLike[str],
    instances: str | os.PathLike[str] | None = None,
) -> Pool:
    """Read MS-COCO.

    Entries that lack what is needed are tolerated: images without a caption or without a file are counted and left
    out, annotations of images that the captions file does not list are passed over, and of an instance only its
    image and its category are read, so boxes may be missing.

    Args:
        captions: ``captions_val2014.json`` or another file of that format.
        images: the folder of its images.
        instances: ``instances_val2014.json``, for the categories; without it no picture has any.

    Raises:
        SampleError: a file is missing, of another format, or no picture can be used.
    """
    captions_file, folder = Path(captions), Path(images)
    if not folder.is_dir():
        raise SampleError("Is not a folder of images.", where=str(images))
    document = _document(captions_file)
    texts: dict[Any, list[str]] = {}
    for place, entry in _entries(captions_file, document, "annotations"):
        caption = entry.get("caption")
        if isinstance(caption, str):
            texts.setdefault(_value(entry, "image_id", place), []).append(caption)
    files = [captions_file]
    categories: dict[Any, set[str]] = {}
    if instances is not None:
        files.append(Path(instances))
        categories = _categories(Path(instances))
    pictures: dict[Any, Picture] = {}
    for place, entry in _entries(captions_file, document, "images"):
        number, name = _value(entry, "id", place), _value(entry, "file_name", place)
        if not isinstance(name, str) or not name:
            raise SampleError(f"The file_name must be a text, not {name!r}.", where=place)
        if number in pictures:
            raise SampleError(f"The image id {number!r} is used twice.", where=place)
        pictures[number] = Picture(
            name, folder / name, tuple(texts.get(number, ())), frozenset(categories.get(number, ()))
        )
    return make_pool("coco", pictures.values(), files=files, left_out={})


def _categories(file: Path) -> dict[Any, set[str]]:
    """Image id -> names of the categories it shows; numbers where the file does not name them."""
    document = _document(file)
    names = {
        _value(entry, "id", place): str(entry.get("name", entry["id"]))
        for place, entry in _entries(file, document, "categories", required=False)
    }
    found: dict[Any, set[str]] = {}
    for place, entry in _entries(file, document, "annotations"):
        category = entry.get("category_id")
        if category is not None:
            found.setdefault(_value(entry, "image_id", place), set()).add(names.get(category, str(category)))
    return found


def _document(file: Path) -> dict[str, Any]:
    document = read_json(file)
    if not isinstance(document, dict):
        raise SampleError("Is no COCO file: it must be one object.", where=str(file))
    return document


def _entries(
    file: Path, document: dict[str, Any], key: str, *, required: bool = True
) -> list[tuple[str, dict[str, Any]]]:
    entries = document.get(key, None if required else [])
    if not isinstance(entries, list):
        raise SampleError(f"Is no COCO file: it has no list {key!r}.", where=str(file))
    placed = [(f"{file}, {key}[{index}]", entry) for index, entry in enumerate(entries)]
    for place, entry in placed:
        if not isinstance(entry, dict):
            raise SampleError(f"Must be an object, not {entry!r:.40}.", where=place)
    return placed


def _value(entry: dict[str, Any], key: str, place: str) -> Any:
    value = entry.get(key)
    if not isinstance(value, (int, str)):
        raise SampleError(f"The key {key!r} is missing or no number or text.", where=place)
    return value
