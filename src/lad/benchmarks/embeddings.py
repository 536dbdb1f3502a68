"""Pictures and captions as unit vectors, computed once and kept on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lad.benchmarks.disk_cache import DiskCache
from lad.errors import NumericsError
from lad.images import load_image
from lad.samples import ImageSource

Vectors = NDArray[np.float32]

_IMAGE_BATCH, _TEXT_BATCH = 64, 256
_KEPT_AT_ONCE = 1024


class Encoder(Protocol):
    """Turns pictures or texts, or both, into vectors.

    Attributes:
        name: for the manifest.
        key: names the weights and the preprocessing: vectors of the same key are interchangeable.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def key(self) -> str: ...  # noqa: D102

    def encode_images(self, images: Sequence[Image.Image]) -> Vectors:
        """Vectors (B, D) of RGB images, of any length."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Vectors (B, E) of texts, of any length."""
        ...


class Encoders:
    """An encoder of pictures and one of captions, with a cache on disk.

    Vectors are kept under the encoder's key and what the picture shows, or the text. What was computed stays, so a
    build that was broken off goes on where it stood.

    Args:
        image: encodes pictures.
        text: encodes captions; may be the same.
        folder: of the cache; None keeps nothing.
    """

    def __init__(self, image: Encoder, text: Encoder | None = None, folder: Path | None = None) -> None:
        self.image, self.text = image, text or image
        self._folder = folder
        self._caches: dict[Path, DiskCache] = {}

    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "image": {"name": self.image.name, "key": self.image.key},
            "text": {"name": self.text.name, "key": self.text.key},
        }

    def embed_images(
        self, images: Sequence[ImageSource], digests: Sequence[str], progress: Callable[[int], None] = lambda done: None
    ) -> Vectors:
        """Unit vectors (P, D) of pictures whose contents have the given digests."""

        def encode(indices: Sequence[int]) -> Vectors:
            return self.image.encode_images([load_image(images[index]) for index in indices])

        return self._embed(self.image, "images", digests, encode, _IMAGE_BATCH, progress)

    def embed_texts(self, texts: Sequence[str], progress: Callable[[int], None] = lambda done: None) -> Vectors:
        """Unit vectors (P, E) of texts."""

        def encode(indices: Sequence[int]) -> Vectors:
            return self.text.encode_texts([texts[index] for index in indices])

        keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        return self._embed(self.text, "texts", keys, encode, _TEXT_BATCH, progress)

    def _embed(
        self,
        encoder: Encoder,
        kind: str,
        keys: Sequence[str],
        encode: Callable[[Sequence[int]], Vectors],
        batch: int,
        progress: Callable[[int], None],
    ) -> Vectors:
        cache = self._cache(encoder, kind)
        rows: dict[str, Vectors] = {}
        if cache is not None:
            rows = {key: np.frombuffer(kept, dtype="<f4") for key in keys if (kept := cache.get(key)) is not None}
        missing = list({key: index for index, key in enumerate(keys) if key not in rows}.values())
        progress(len(keys) - len(missing))
        for start in range(0, len(missing), _KEPT_AT_ONCE):
            part = missing[start : start + _KEPT_AT_ONCE]
            made: dict[str, Vectors] = {}
            for first in range(0, len(part), batch):
                indices = part[first : first + batch]
                made.update(zip((keys[index] for index in indices), _unit(encode(indices), encoder), strict=True))
                progress(len(indices))
            if cache is not None:
                cache.add({key: row.astype("<f4").tobytes() for key, row in made.items()})
            rows.update(made)
        return np.stack([rows[key] for key in keys]).astype(np.float32, copy=False)

    def _cache(self, encoder: Encoder, kind: str) -> DiskCache | None:
        if self._folder is None:
            return None
        folder = self._folder / hashlib.sha256(encoder.key.encode()).hexdigest()[:32] / kind
        if folder not in self._caches:
            self._caches[folder] = DiskCache(folder)
        return self._caches[folder]


def _unit(vectors: Vectors, encoder: Encoder) -> Vectors:
    vectors = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or (lengths == 0).any():
        raise NumericsError(
            "Gave vectors that are not finite, or zero.", where=encoder.name, hint="Use another encoder or device."
        )
    return np.asarray(vectors / lengths, dtype=np.float32)
