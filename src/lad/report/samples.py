"""What the browser of samples shows: pictures, captions, and what each method made of every order."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lad.calibration import Calibration
from lad.decisions import DecisionOptions, decide, gather_evidence, picks
from lad.images import image_digest, load_image
from lad.observations import Observations
from lad.samples import ImageSource, Sample

PICTURE_BYTES = 12_000_000
"""What all pictures of a report may take, as written; they are made smaller until they fit."""

SIDES = (224, 160, 128, 96, 72, 56, 40)
"""Longest side of a picture in pixels, the first that fits."""


class PictureBook:
    """Pictures of a report, each kept once."""

    def __init__(self) -> None:
        self._images: dict[str, Image.Image] = {}
        self._numbers: dict[str, int] = {}

    def add(self, digest: str, image: Image.Image) -> int:
        """Keep a picture under its digest; gives its number."""
        if digest not in self._numbers:
            self._numbers[digest] = len(self._numbers)
            self._images[digest] = _smaller(image, SIDES[0])
        return self._numbers[digest]

    def __contains__(self, digest: str) -> bool:
        return digest in self._numbers

    def number(self, digest: str) -> int:
        """The number of a picture that is kept."""
        return self._numbers[digest]

    def addresses(self, limit: int = PICTURE_BYTES) -> tuple[str, ...]:
        """All pictures as data addresses of at most ``limit`` characters together (or at the smallest side)."""
        images = list(self._images.values())
        for side in SIDES:
            encoded = tuple(_address(_smaller(image, side)) for image in images)
            if sum(map(len, encoded)) <= limit:
                break
        return encoded if images else ()


def browsed(
    name: str,
    title: str,
    samples: Sequence[Sample],
    pictures: Sequence[Sequence[int]],
    seen: Observations,
    calibration: Calibration,
    methods: Sequence[str],
    *,
    identifiers: Sequence[str],
    options: DecisionOptions = DecisionOptions(),  # noqa: B008 - frozen, so sharing it is safe
    overlays: Mapping[str, Sequence[NDArray[np.float64]]] | None = None,
) -> dict[str, Any]:
    """One group of samples, as plain JSON values.

    Args:
        name: of the group.
        title: in words.
        samples: S labelled samples.
        pictures: per sample, the numbers of its pictures by candidate, as :meth:`PictureBook.add` gave them.
        seen: at least S * T observations, the T orders of a sample in a row, the samples in their order.
        calibration: for the rules.
        methods: names of decision rules; the first is the one that others are compared with.
        identifiers: the N identifiers.
        options: of the rules.
        overlays: sample id -> per candidate the attention (rows, columns) of its patches, under the identity order.

    Returns:
        Numbers by position are in percent, one decimal.
    """
    total = len(dict.fromkeys(seen.samples))
    orders = len(seen) // total
    shown = seen.take(np.arange(len(samples) * orders))
    by_method = {method: picks(decide(method, shown, calibration, options), shown.orders) for method in methods}
    evidence = gather_evidence(shown, calibration, options)
    looked = evidence.raw_attention / np.maximum(evidence.raw_attention.sum(axis=1, keepdims=True), 1e-20)
    rows = []
    for index, sample in enumerate(samples):
        part = slice(index * orders, (index + 1) * orders)
        row = {
            "id": sample.id,
            "caption": sample.caption,
            "answer": sample.answer,
            "pictures": list(pictures[index]),
            "picks": [by_method[method][part].tolist() for method in methods],
            "said": _percent(np.exp(shown.log_probs[part])),
            "looked": _percent(looked[part]),
            "purified": _percent(evidence.posterior[part]),
        }
        if overlays and sample.id in overlays:
            maps = overlays[sample.id]
            top = max(float(values.max()) for values in maps) or 1.0
            row["patches"] = [np.round(values / top, 3).tolist() for values in maps]
        rows.append(row)
    return {
        "name": name,
        "title": title,
        "methods": list(methods),
        "identifiers": list(identifiers),
        "orders": shown.orders[:orders].tolist(),
        "samples": rows,
    }


def picture_of(book: PictureBook, source: ImageSource) -> int:
    """Keep a sample's picture as it was before any model resized it; gives its number.

    Raises:
        ImageError: it cannot be read.
    """
    if isinstance(source, (str, os.PathLike)):
        # a file is opened once, however many samples show it
        name = os.fspath(source)
        return book.number(name) if name in book else book.add(name, load_image(source))
    image = load_image(source)
    return book.add(image_digest(image), image)


def _percent(values: NDArray[np.float64]) -> list[list[float]]:
    return [[round(float(value), 1) for value in row] for row in 100 * values]


def _smaller(image: Image.Image, side: int) -> Image.Image:
    if max(image.size) <= side:
        return image
    scale = side / max(image.size)
    return image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))), Image.Resampling.BOX)


def _address(image: Image.Image) -> str:
    buffer = io.BytesIO()
    # small pictures are drawings more often than not, and cost little as they are
    small = max(image.size) <= SIDES[-2]
    image.convert("RGB").save(buffer, "WEBP", lossless=small, quality=72, method=4)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
