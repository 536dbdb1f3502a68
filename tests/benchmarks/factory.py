"""Small datasets on disk, and encoders whose vectors are known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lad.benchmarks.pool import Picture, Pool


def write_picture(path: Path, seed: int, side: int = 8) -> Path:
    """A picture of noise that no other seed gives."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    return path


def make_pictures(folder: Path, count: int, **facts: Any) -> Pool:
    """A pool of ``count`` different pictures; ``facts`` map an index to its categories or captions."""
    categories, captions = facts.get("categories", {}), facts.get("captions", {})
    pictures = [
        Picture(
            f"{index}.png",
            write_picture(folder / f"{index}.png", index),
            tuple(captions.get(index, (f"caption {index}", f"other caption {index}"))),
            frozenset(categories.get(index, ())),
        )
        for index in range(count)
    ]
    return Pool("noise", tuple(pictures))


def write_coco(folder: Path, count: int) -> tuple[Path, Path, Path]:
    """Captions file, instances file and images folder in COCO's format."""
    images = folder / "images"
    entries, notes, boxes = [], [], []
    for index in range(count):
        write_picture(images / f"{index:012d}.jpg", index)
        entries.append({"id": index, "file_name": f"{index:012d}.jpg", "width": 8, "height": 8})
        notes.append({"id": index, "image_id": index, "caption": f"picture number {index}.\n"})
        boxes.append({"id": index, "image_id": index, "category_id": index % 5 + 1, "bbox": [0, 0, 1, 1]})
    captions, instances = folder / "captions.json", folder / "instances.json"
    captions.write_text(json.dumps({"images": entries, "annotations": notes}))
    names = [{"id": number, "name": f"kind {number}"} for number in range(1, 6)]
    instances.write_text(json.dumps({"images": entries, "annotations": boxes, "categories": names}))
    return captions, instances, images


class HashEncoder:
    """Vectors drawn from a hash of what is encoded; counts how often it was asked.

    Args:
        dims: length of the vectors.
        fail_after: raises when more than so many items were encoded.
    """

    name = "hash"

    def __init__(self, dims: int = 16, fail_after: int | None = None) -> None:
        self.key = f"hash {dims}"
        self.encoded = 0
        self._dims, self._fail_after = dims, fail_after

    def encode_images(self, images: Sequence[Image.Image]) -> np.ndarray:
        return self._encode([image.tobytes() for image in images])

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        return self._encode([text.encode() for text in texts])

    def _encode(self, contents: list[bytes]) -> np.ndarray:
        self.encoded += len(contents)
        if self._fail_after is not None and self.encoded > self._fail_after:
            raise KeyboardInterrupt
        seeds = [int.from_bytes(hashlib.sha256(content).digest()[:8], "big") for content in contents]
        return np.stack([np.random.default_rng(seed).standard_normal(self._dims) for seed in seeds]).astype(np.float32)
