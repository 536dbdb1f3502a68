"""The ranker as the service sees it: reads images, ranks batches, and never lets one request spoil another's."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from lad.errors import CalibrationError, ImageError, PromptError, SampleError
from lad.identifiers import make_identifiers
from lad.images import load_image
from lad.samples import Sample
from lad.server.refusal import RefusalError, bad_image
from lad.server.settings import RequestLimits

if TYPE_CHECKING:
    from lad.calibration import Calibration
    from lad.model.vlm import PreparedSample
    from lad.ranker import Ranker, Ranking

_LOG = logging.getLogger("lad.server")


class Engine:
    """Ranks what requests bring.

    Args:
        ranker: a calibrated ranker; it must not be used by anybody else meanwhile.
        limits: what an image may measure.

    Raises:
        CalibrationError: the ranker has no calibration, or one that was made for something else.
    """

    def __init__(self, ranker: Ranker, limits: RequestLimits) -> None:
        if not ranker.calibrations:
            raise CalibrationError(
                "The model has no calibration, so nothing can be ranked.",
                hint="Make one with `lad calibrate` for each number of images, and name its folder.",
            )
        self._ranker = ranker
        self._limits = limits
        self.sizes = tuple(sorted(ranker.calibrations))
        """Numbers of candidates that can be ranked, ascending."""
        self.calibration_ids = {count: calibration_id(ranker.calibration_for(count)) for count in self.sizes}
        """By number of candidates: short content hash of the calibration."""

    @property
    def method(self) -> str:
        """The decision rule."""
        return self._ranker.method

    def read_image(self, content: bytes, index: int) -> Image.Image:
        """Decode an image file and bring it to the model's size.

        Raises:
            RefusalError: it is broken, no image, or outside the limits.
        """
        try:
            image = load_image(content, where=f"document {index}", limits=self._limits.image)
            return self._ranker.vlm.prepare(image, where=f"document {index}")
        except ImageError as error:
            raise bad_image(error.what, index, hint=error.hint) from error

    def prepare(self, query: str, images: Sequence[Image.Image]) -> PreparedSample:
        """A sample ready for :meth:`rank`, two images or more.

        Raises:
            RefusalError: the query holds text that the model reads as a command.
        """
        ranker = self._ranker
        try:
            ranker.vlm.prompts.render(ranker.template, make_identifiers(ranker.identifiers, len(images)), query)
        except PromptError as error:
            raise _refused_query(error) from error
        sample = ranker.vlm.prepare_sample(Sample(query, tuple(images)))
        _ = sample.digests  # computed here, where it holds up nobody
        return sample

    def rank(self, samples: Sequence[PreparedSample]) -> list[Ranking | Exception]:
        """Rank samples of one N together; where that fails, one by one, so that only the one at fault fails."""
        try:
            return list(self._ranker.rank_prepared(samples))
        except Exception as error:
            if len(samples) > 1:
                return [self.rank([sample])[0] for sample in samples]
            if isinstance(error, (PromptError, SampleError)):
                return [_refused_query(error)]
            _LOG.exception("The model could not rank a request.")
            return [error]

    def warm_up(self) -> None:
        """Rank once, so that the first request finds everything set up; a model that cannot rank is found out now."""
        count = self.sizes[0]
        images = [Image.new("RGB", (64, 64), (k % 256, 128, 128)) for k in range(count)]
        [result] = self.rank([self.prepare("a grey square", [self._ranker.vlm.prepare(image) for image in images])])
        if isinstance(result, Exception):
            raise result


def _refused_query(error: PromptError | SampleError) -> RefusalError:
    return RefusalError(error.what, code="invalid_query", hint=error.hint)


def calibration_id(calibration: Calibration) -> str:
    """Short content hash of a calibration: of what it depends on and of its figures."""
    described: dict[str, Any] = {**asdict(calibration.identity), "average": calibration.average}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for values in (calibration.bias, calibration.attention_prior):
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:16]
