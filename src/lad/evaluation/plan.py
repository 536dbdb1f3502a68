"""What an evaluation consists of, fixed before it starts, so that it can be stopped and resumed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lad.calibration import CalibrationIdentity
from lad.errors import RunError, SampleError
from lad.evaluation.methods import MethodSpec, Setting
from lad.evaluation.prompts import PromptSet
from lad.evaluation.sources import Source, merged
from lad.images import image_digest
from lad.samples import Sample

_METHODS = ("prompts", "methods")


@dataclass(frozen=True)
class Plan:
    """All that decides what a run observes and how that is batched.

    Methods may be added to a run later: what they need besides is observed then, and nothing else changes.

    Attributes:
        identity: model, prompt, identifiers, N, image size, attention reduction.
        dtype: precision of the model's weights.
        samples: digest of the samples, in their order.
        count: how many samples.
        orders: the T orders, the same for all samples and methods.
        seed: of whatever methods draw.
        part_size: samples per part of a store; what is lost at most when a run is killed.
        batch_tokens: see :func:`lad.model.observe.observe`.
        prompts: the wordings of all methods.
        methods: what is to be measured.
    """

    identity: CalibrationIdentity
    dtype: str
    samples: str
    count: int
    orders: tuple[tuple[int, ...], ...]
    seed: int
    part_size: int
    batch_tokens: int
    prompts: PromptSet
    methods: tuple[MethodSpec, ...]

    @property
    def order_array(self) -> NDArray[np.int64]:
        """The orders, shape (T, N)."""
        return np.array(self.orders, dtype=np.int64)

    def setting(self, spec: MethodSpec) -> Setting:
        """What a method is told."""
        return Setting(
            orders=self.order_array,
            samples=min(self.count, spec.samples or self.count),
            seed=self.seed,
            prompts=self.prompts,
            identifiers=self.identity.identifiers,
        )

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """What must be observed for all methods together, each thing once."""
        wanted = (spec.method.sources(self.setting(spec), spec.options) for spec in self.methods)
        return merged([source for sources in wanted for source in sources if source is not None])

    @property
    def passes(self) -> int:
        """Forward passes over a whole prompt of the whole run, calibration left out."""
        return sum(source.passes(index) for source in self.sources for index in range(source.samples))

    def to_dict(self) -> dict[str, Any]:
        """What must be the same for a run to go on, as plain JSON values."""
        values = {key: value for key, value in asdict(self).items() if key not in _METHODS}
        return json.loads(json.dumps(values))  # type: ignore[no-any-return]

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
