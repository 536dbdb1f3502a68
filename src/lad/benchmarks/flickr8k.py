"""Flickr8k: the token file or the table of captions, and the folder of images."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from lad.benchmarks.annotations import read_table, read_text
from lad.benchmarks.pool import Picture, Pool, make_pool
from lad.errors import SampleError

# "1000268201_693b08cb0e.jpg#0<tab>A child in a pink dress ..."
_TOKEN_LINE = re.compile(r"(?P<name>[^\t]+)#(?P<number>\d+)\t(?P<caption>.*)")


def read_flickr8k(captions: str | os.PathLike[str], images: str | os.PathLike[str]) -> Pool:
    """Read Flickr8k; Flickr30k has the same format.

    Args:
        captions: ``Flickr8k.token.txt`` (name#number, tab, caption), or a ``.csv`` with the columns ``image`` and
            ``caption``.
        images: the folder of its images.

    Raises:
        SampleError: a file is missing or of another format, or no picture can be used.
    """
    file, folder = Path(captions), Path(images)
    if not folder.is_dir():
        raise SampleError("Is not a folder of images.", where=str(images))
    texts: dict[str, list[str]] = {}
    for name, caption in (_rows if file.suffix.lower() == ".csv" else _token_lines)(file):
        texts.setdefault(name, []).append(caption)
    pictures = (Picture(name, folder / name, tuple(found)) for name, found in texts.items())
    return make_pool("flickr8k", pictures, files=[file], left_out={})


def _token_lines(file: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        if not line.strip():
            continue
        found = _TOKEN_LINE.fullmatch(line)
        if found is None:
            raise SampleError(
                "Is not of the form NAME#NUMBER, tab, caption.",
                where=f"{file}:{number}",
                hint="A table of captions must have a name that ends in .csv.",
            )
        yield found["name"].strip(), found["caption"]


def _rows(file: Path) -> Iterator[tuple[str, str]]:
    header, rows = read_table(file)
    try:
        image, caption = header.index("image"), header.index("caption")
    except ValueError as error:
        raise SampleError(
            f"Has the columns {', '.join(header)}; the columns image and caption are needed.", where=str(file)
        ) from error
    for place, cells in rows:
        if len(cells) <= max(image, caption) or not cells[image].strip():
            raise SampleError("Has too few cells.", where=place)
        yield cells[image].strip(), cells[caption]
