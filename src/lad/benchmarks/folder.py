"""A folder of pictures with ``metadata.jsonl`` or ``metadata.csv``: the ImageFolder convention of `datasets`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from lad.benchmarks.annotations import read_json_lines, read_table
from lad.benchmarks.pool import Picture, Pool, make_pool
from lad.errors import SampleError

METADATA = ("metadata.jsonl", "metadata.csv")
CAPTION_KEYS = ("caption", "captions", "text")


def read_folder(folder: str | os.PathLike[str], caption_key: str | None = None) -> Pool:
    """Read a folder of captioned pictures.

    ``metadata.jsonl`` has one object a line with ``file_name`` (relative to it), a caption or a list of them, and
    perhaps ``categories``, a list of texts. A file may come in several lines; its captions are then joined.

    Args:
        folder: holds the metadata file and, at any depth, the pictures.
        caption_key: the key of the captions; if left out, the first of ``caption``, ``captions`` and ``text`` there is.

    Raises:
        SampleError: there is no metadata file, or a line of it cannot be used.
    """
    root = Path(folder)
    file = next((root / name for name in METADATA if (root / name).is_file()), None)
    if file is None:
        raise SampleError(f"Is no folder with {' or '.join(METADATA)}.", where=str(folder))
    found: dict[str, Picture] = {}
    for place, record in read_json_lines(file) if file.suffix == ".jsonl" else _table_records(file):
        name = record.get("file_name")
        if not isinstance(name, str) or not name:
            raise SampleError("The key 'file_name' is missing or no text.", where=place)
        captions = captions_of(record, caption_key, place)
        categories = categories_of(record, place)
        known = found.get(name)
        if known is not None:
            captions, categories = known.captions + captions, known.categories | categories
        found[name] = Picture(name, root / name, captions, categories)
    pool = make_pool(root.absolute().name, found.values(), files=[file], left_out={})
    return replace(pool, read={"caption_key": caption_key})


def captions_of(record: dict[str, Any], key: str | None, place: str) -> tuple[str, ...]:
    """The captions of a record: a text or a list of texts, or none where the value is null.

    Raises:
        SampleError: the key is missing, or its value is something else.
    """
    chosen = key or next((name for name in CAPTION_KEYS if name in record), None)
    if chosen is None or chosen not in record:
        raise SampleError(
            f"The key {chosen or 'caption'!r} is missing.", where=place, hint=f"There are: {', '.join(record)}."
        )
    value = record[chosen]
    captions = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(captions, list) or not all(isinstance(caption, str) for caption in captions):
        raise SampleError(f"The {chosen} must be a text or a list of texts, not {value!r:.60}.", where=place)
    return tuple(captions)


def categories_of(record: dict[str, Any], place: str) -> frozenset[str]:
    """The categories of a record; none where it has no such key.

    Raises:
        SampleError: something else than a list of texts or numbers.
    """
    value = record.get("categories")
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(isinstance(item, (str, int)) for item in value):
        raise SampleError(f"The categories must be a list of texts, not {value!r:.60}.", where=place)
    return frozenset(map(str, value))


def _table_records(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    header, rows = read_table(file)
    for place, cells in rows:
        yield place, dict(zip(header, cells, strict=False))
