"""Calibrate a model: observe a few labelled samples under all cyclic shifts, and fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lad.calibration import Calibration, fit_calibration
from lad.errors import CalibrationError
from lad.estimators import Average
from lad.identifiers import make_identifiers
from lad.model.observe import BATCH_TOKENS, observe
from lad.model.vlm import PreparedSample, VisionLanguageModel
from lad.prompts import MATCHING, PromptTemplate
from lad.samples import Sample, cyclic_orders

_IMAGES = "images"
_DIGEST_LENGTH = 16


def calibrate(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    *,
    template: PromptTemplate = MATCHING,
    identifiers: str | Sequence[str] = "digits",
    average: Average = "log",
    batch_tokens: int = BATCH_TOKENS,
    progress: Callable[[int], None] | None = None,
) -> Calibration:
    """Calibrate on labelled samples of N candidates each, N forward passes a sample (METHOD: k = 5 samples).

    The digests of the samples' images are kept with the calibration, so that an evaluation on any of them can be
    refused.

    Args:
        vlm: the model.
        samples: labelled samples of the same N, each with an id of its own.
        template: the prompt's wording.
        identifiers: what names the positions in the answer.
        average: see :func:`lad.calibration.fit_calibration`.
        batch_tokens: see :func:`lad.model.observe.observe`.
        progress: called with the number of observations just made; there are ``len(samples) * N``.

    Raises:
        CalibrationError: no samples, one without an answer, or two with the same id.
    """
    if not samples:
        raise CalibrationError("There are no samples to calibrate on.", hint="Five labelled samples are enough.")
    seen_ids: set[str] = set()
    for sample in samples:
        if sample.answer is None:
            raise CalibrationError("Has no answer; calibration needs it.", where=f"sample {sample.id!r}")
        if sample.id in seen_ids:
            raise CalibrationError("Two samples have this id.", where=f"sample {sample.id!r}")
        seen_ids.add(sample.id)
    count = len(samples[0])
    prepared = [vlm.prepare_sample(sample) for sample in samples]
    observations = observe(
        vlm,
        prepared,
        cyclic_orders(count),
        template=template,
        identifiers=identifiers,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    digests = {digest[:_DIGEST_LENGTH] for sample in prepared for digest in sample.digests}
    return fit_calibration(
        observations,
        vlm.identity(template, make_identifiers(identifiers, count)),
        average=average,
        made_with={"dtype": vlm.dtype, _IMAGES: " ".join(sorted(digests))},
    )


def calibration_images(calibration: Calibration) -> frozenset[str]:
    """Short digests of the prepared images that a calibration was made from."""
    return frozenset(calibration.made_with.get(_IMAGES, "").split())


def refuse_calibration_images(samples: Sequence[PreparedSample], calibration: Calibration) -> None:
    """Make sure that no image of prepared samples was used in calibration.

    Raises:
        CalibrationError: one was; names the sample and the image.
    """
    known = calibration_images(calibration)
    for sample in samples:
        for index, digest in enumerate(sample.digests):
            if digest[:_DIGEST_LENGTH] in known:
                raise CalibrationError(
                    "Was used in the calibration too, so the result would flatter.",
                    where=f"sample {sample.id!r}, image {index}",
                    hint="Calibrate on samples that share no image with those evaluated.",
                )
