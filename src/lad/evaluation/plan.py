"""What an evaluation consists of, fixed before it starts, so that it can be stopped and resumed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lad.calibration import CalibrationIdentity
from lad.errors import RunError, SampleError
from lad.images import image_digest
from lad.samples import Sample, cyclic_orders, random_orders

Permutations = Literal["cyclic", "random"]


@dataclass(frozen=True)
class Plan:
    """All that decides which observations a run makes and how they are batched.

    Attributes:
        identity: model, prompt, identifiers, N, image size, attention reduction.
        dtype: precision of the model's weights.
        samples: digest of the samples, in their order.
        count: how many samples.
        orders: the T orders, the same for all samples and methods.
        permutations: the orders that permutation averaging composes with each of the T; empty if it is left out.
        permutation_count: how many of the samples, from the first, permutation averaging is measured on.
        part_size: samples per part of the store; what is lost at most when a run is killed.
        batch_tokens: see :func:`lad.model.observe.observe`.
    """

    identity: CalibrationIdentity
    dtype: str
    samples: str
    count: int
    orders: tuple[tuple[int, ...], ...]
    permutations: tuple[tuple[int, ...], ...]
    permutation_count: int
    part_size: int
    batch_tokens: int

    @property
    def order_array(self) -> NDArray[np.int64]:
        """The orders, shape (T, N)."""
        return np.array(self.orders, dtype=np.int64)

    @property
    def permuted_orders(self) -> NDArray[np.int64]:
        """Every permutation of every order, shape (T * P, N); row t * P + p shows ``orders[t][permutations[p]]``."""
        composed = self.order_array[:, np.array(self.permutations, dtype=np.int64)]
        return composed.reshape(-1, composed.shape[-1])

    @property
    def passes(self) -> int:
        """Forward passes of the whole run, calibration left out."""
        averaged = self.permutation_count * len(self.orders) * len(self.permutations)
        return self.count * len(self.orders) + averaged

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    def require_same(self, stored: dict[str, Any], where: str) -> None:
        """Make sure that a stored plan is this one.

        Raises:
            RunError: it is not; names what differs.
        """
        mine = self.to_dict()
        if differing := sorted(key for key in mine.keys() | stored.keys() if mine.get(key) != stored.get(key)):
            raise RunError(
                f"This folder holds another run: {', '.join(differing)} differ.",
                where=where,
                hint="Give the same arguments to resume it, or name another folder.",
            )


def make_permutations(kind: Permutations, candidates: int, number: int, seed: int) -> NDArray[np.int64]:
    """The permutations of permutation averaging, the identity first.

    Args:
        kind: "cyclic" for the N cyclic shifts, "random" for distinct random ones.
        candidates: N.
        number: how many, for "random"; at most N! are made.
        seed: for "random".
    """
    return cyclic_orders(candidates) if kind == "cyclic" else random_orders(candidates, number, seed)


def samples_digest(samples: Sequence[Sample]) -> str:
    """Content hash of samples: captions, answers, ids, and of the images the bytes (files) or pixels.

    Raises:
        SampleError: an image file is missing.
    """
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(json.dumps([sample.id, sample.caption, sample.answer, len(sample)]).encode())
        for index, image in enumerate(sample.images):
            digest.update(_image_content(image, f"sample {sample.id!r}, image {index}"))
    return digest.hexdigest()[:16]


def _image_content(image: Any, where: str) -> bytes:
    if isinstance(image, (str, os.PathLike)):
        try:
            return hashlib.sha256(Path(image).read_bytes()).digest()
        except OSError as error:
            raise SampleError(f"{image} cannot be read ({error.strerror}).", where=where) from error
    if isinstance(image, bytes):
        return hashlib.sha256(image).digest()
    if isinstance(image, np.ndarray):
        return hashlib.sha256(f"{image.shape} {image.dtype}".encode() + image.tobytes()).digest()
    return image_digest(image).encode()
