"""Calibrate a model: observe a few labelled samples under all cyclic shifts, and fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lad.calibration import Calibration, fit_calibration
from lad.errors import CalibrationError
from lad.estimators import Average
from lad.identifiers import make_identifiers
from lad.model.observe import BATCH_TOKENS, observe
from lad.model.vlm import PreparedSample, VisionLanguageModel
from lad.observations import Observations
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
    observations, made_with = observe_calibration(
        vlm, samples, template=template, identifiers=identifiers, batch_tokens=batch_tokens, progress=progress
    )
    names = make_identifiers(identifiers, observations.count)
    return fit_calibration(observations, vlm.identity(template, names), average=average, made_with=made_with)


def observe_calibration(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    *,
    template: PromptTemplate = MATCHING,
    identifiers: str | Sequence[str] = "digits",
    batch_tokens: int = BATCH_TOKENS,
    progress: Callable[[int], None] | None = None,
) -> tuple[Observations, dict[str, str]]:
    """The observations that :func:`calibrate` fits to, and the facts that are kept with a calibration.

    Arguments and errors are those of :func:`calibrate`.
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
    prepared = [vlm.prepare_sample(sample) for sample in samples]
    observations = observe(
        vlm,
        prepared,
        cyclic_orders(len(samples[0])),
        template=template,
        identifiers=identifiers,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    digests = {digest[:_DIGEST_LENGTH] for sample in prepared for digest in sample.digests}
    return observations, {"dtype": vlm.dtype, _IMAGES: " ".join(sorted(digests))}


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
