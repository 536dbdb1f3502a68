"""What pictures show, as digests: the same picture under two names is one picture."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Literal

from lad.benchmarks.disk_cache import DiskCache
from lad.benchmarks.pool import Picture, Pool
from lad.errors import ImageError
from lad.images import image_digest, load_image
from lad.samples import ImageSource

Progress = Callable[[int], None]
"""Told how many more were finished."""
Broken = Literal["refuse", "skip"]
"""What to do about a picture that cannot be read."""

_BATCH = 512


def digest_images(
    images: Sequence[ImageSource],
    *,
    cache: DiskCache | None = None,
    broken: Broken = "refuse",
    progress: Progress = lambda done: None,
) -> list[str | None]:
    """The digest of what each image shows (:func:`lad.images.image_digest` of its upright RGB pixels).

    Args:
        images: any image sources.
        cache: digests of files are kept here under path, size and time of change, and taken from here.
        broken: "refuse" raises on an image that cannot be read, "skip" gives None for it.
        progress: told how many were finished.

    Raises:
        ImageError: an image cannot be read, and ``broken`` is "refuse".
    """

    def digest(image: ImageSource) -> str | None:
        try:
            return image_digest(load_image(image))
        except ImageError:
            if broken == "refuse":
                raise
            return None

    keys = [_key(image) if cache is not None else None for image in images]
    digests: list[str | None] = []
    # decoding leaves the interpreter lock alone, so threads are enough
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as workers:
        for start in range(0, len(images), _BATCH):
            chosen = keys[start : start + _BATCH]
            kept = [cache.get(key) if cache is not None and key is not None else None for key in chosen]
            missing = [index for index, value in enumerate(kept) if value is None]
            made = dict(zip(missing, workers.map(digest, [images[start + index] for index in missing]), strict=True))
            if cache is not None:
                cache.add({key: value.encode() for index, value in made.items() if value and (key := chosen[index])})
            digests += [made[index] if value is None else value.decode() for index, value in enumerate(kept)]
            progress(len(chosen))
    return digests


def distinct(pool: Pool, digests: Sequence[str | None]) -> tuple[Pool, list[str]]:
    """The pool without repeated contents and without pictures that have no digest; and the digests that remain.

    Of several pictures that show the same, the first stays, with the captions and categories of all.
    """
    first: dict[str, Picture] = {}
    broken = sum(digest is None for digest in digests)
    for picture, digest in zip(pool.pictures, digests, strict=True):
        if digest is None:
            continue
        known = first.get(digest)
        first[digest] = picture if known is None else replace(
            known,
            captions=tuple(dict.fromkeys(known.captions + picture.captions)),
            categories=known.categories | picture.categories,
        )  # fmt: skip
    left_out = dict(pool.left_out)
    for reason, number in (("not readable", broken), ("same content", len(pool.pictures) - broken - len(first))):
        if number:
            left_out[reason] = left_out.get(reason, 0) + number
    return replace(pool, pictures=tuple(first.values()), left_out=left_out), list(first)


def without(pool: Pool, digests: Sequence[str], excluded: Iterable[str]) -> tuple[Pool, list[str]]:
    """The pool without the pictures whose digests are in ``excluded``; and the digests that remain."""
    gone = set(excluded)
    kept = [index for index, digest in enumerate(digests) if digest not in gone]
    left_out = dict(pool.left_out)
    if len(kept) < len(digests):
        left_out["excluded"] = left_out.get("excluded", 0) + len(digests) - len(kept)
    pictures = tuple(pool.pictures[index] for index in kept)
    return replace(pool, pictures=pictures, left_out=left_out), [digests[index] for index in kept]


def _key(image: ImageSource) -> str | None:
    """Path, size and time of change of a file; None for what is no file."""
    if not isinstance(image, (str, os.PathLike)):
        return None
    path = Path(image)
    try:
        facts = path.stat()
    except OSError:
        return None
    text = f"{path.resolve()}\n{facts.st_size}\n{facts.st_mtime_ns}"
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
