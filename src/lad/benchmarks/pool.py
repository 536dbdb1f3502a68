"""Pictures with captions: what every dataset is read into before questions are made of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lad.errors import SampleError


@dataclass(frozen=True)
class Picture:
    """One picture of a dataset.

    Attributes:
        name: what its dataset calls it.
        image: its file, or the content of its file.
        captions: at least one, in the dataset's order.
        categories: what is to be seen on it; empty where the dataset does not say.
    """

    name: str
    image: Path | bytes
    captions: tuple[str, ...]
    categories: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Pool:
    """The pictures of a dataset.

    Attributes:
        name: short name of the dataset; sample ids begin with it.
        pictures: in the dataset's order.
        files: the annotation files they were read from.
        left_out: reason -> how many entries of the dataset were not taken.
        read: the options they were read with; JSON values.
    """

    name: str
    pictures: tuple[Picture, ...]
    files: tuple[Path, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)
    read: dict[str, Any] = field(default_factory=dict)


def make_pool(name: str, pictures: Iterable[Picture], *, files: Sequence[Path], left_out: dict[str, int]) -> Pool:
    """A pool of the pictures that can be used: with a caption, and with a file that exists.

    Captions are stripped, their white space becomes single spaces, and repeated ones are dropped.

    Args:
        name: see :class:`Pool`.
        pictures: as read; captions may be empty.
        files: the annotation files.
        left_out: what the reader has left out already.

    Raises:
        SampleError: no picture remains.
    """
    left_out = dict(left_out)
    kept = []
    for picture in pictures:
        captions = tuple(dict.fromkeys(text for caption in picture.captions if (text := " ".join(caption.split()))))
        if not captions:
            _count(left_out, "without a caption")
        elif isinstance(picture.image, Path) and not picture.image.is_file():
            _count(left_out, "file missing")
        else:
            kept.append(replace(picture, captions=captions))
    if not kept:
        reasons = ", ".join(f"{reason}: {number}" for reason, number in left_out.items()) or "it is empty"
        raise SampleError(
            f"Holds no picture that can be used ({reasons}).",
            where=str(files[0]) if files else name,
            hint="Check the folder of images and the annotation files.",
        )
    return Pool(name, tuple(kept), tuple(files), left_out)


def restrict(pool: Pool, listing: str | os.PathLike[str]) -> Pool:
    """Only the pictures that a list names.

    Args:
        pool: the pictures.
        listing: a text file with one picture a line: its name, or as much of the end of its path as is needed.
            Blank lines and lines that begin with ``#`` do not count, nor do lines that name nothing in the pool.

    Raises:
        SampleError: the list cannot be read, or names no picture of the pool.
    """
    try:
        text = Path(listing).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", error)
        raise SampleError(f"Cannot be read ({reason}).", where=str(listing)) from error
    lines = [line.strip() for line in text.splitlines()]
    names = {line for line in lines if line and not line.startswith("#")}
    ends = {Path(name).parts for name in names}
    lengths = {len(end) for end in ends}
    kept = tuple(picture for picture in pool.pictures if picture.name in names or _named(picture, ends, lengths))
    if not kept:
        raise SampleError(
            f"Names none of the {len(pool.pictures)} pictures of {pool.name}.",
            where=str(listing),
            hint="Give one name or path a line, for instance images/000000000042.jpg.",
        )
    left_out = dict(pool.left_out)
    _count(left_out, "not in the list", len(pool.pictures) - len(kept))
    return replace(pool, pictures=kept, files=(*pool.files, Path(listing)), left_out=left_out)


def _named(picture: Picture, ends: set[tuple[str, ...]], lengths: set[int]) -> bool:
    if not isinstance(picture.image, Path):
        return False
    parts = picture.image.absolute().parts
    return any(parts[-length:] in ends for length in lengths)


def _count(left_out: dict[str, int], reason: str, number: int = 1) -> None:
    if number:
        left_out[reason] = left_out.get(reason, 0) + number
