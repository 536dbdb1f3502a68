"""The observations that a diagnosis needs: every image of every sample at every position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from lad.calibration import CalibrationIdentity, fit_calibration
from lad.identifiers import make_identifiers
from lad.model.calibrate import observe_calibration, refuse_calibration_images
from lad.model.observe import observe
from lad.model.vlm import VisionLanguageModel
from lad.observations import Observations
from lad.prompts import MATCHING, PromptTemplate
from lad.samples import Sample, cyclic_orders


def observe_for_diagnosis(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    pool: Sequence[Sample],
    *,
    template: PromptTemplate = MATCHING,
    identifiers: str | Sequence[str] = "digits",
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> tuple[Observations, Observations, CalibrationIdentity]:
    """Observe samples and calibration samples under all N cyclic shifts.

    The images of each sample are shuffled first: a benchmark may list them by similarity, and what looks like an effect
    of position would be one of that.

    Args:
        vlm: the model.
        samples: labelled samples of the same N.
        pool: labelled calibration samples of that N, which share no image with those.
        template: the prompt's wording.
        identifiers: what names the positions in the answer.
        seed: of the shuffles.
        progress: called with the number of passes just made; there are N for each sample.

    Returns:
        Arguments of :func:`lad.diagnose.diagnosis.diagnose`.

    Raises:
        CalibrationError: a sample shares an image with a calibration sample, or one of those is unlabelled.
        SampleError: samples of different N.
    """
    count = len(pool[0])
    names = make_identifiers(identifiers, count)
    shown, facts = observe_calibration(vlm, pool, template=template, identifiers=names, progress=progress)
    known = fit_calibration(shown, vlm.identity(template, names), made_with=facts)
    seen = observe(
        vlm,
        shuffled(samples, seed),
        cyclic_orders(count),
        template=template,
        identifiers=names,
        progress=progress,
        check=lambda sample: refuse_calibration_images([sample], known),
    )
    return seen, shown, known.identity


def shuffled(samples: Sequence[Sample], seed: int) -> list[Sample]:
    """Samples with their images in random order, the answers moved along."""
    rng = np.random.default_rng(seed)
    moved = []
    for sample in samples:
        order = [int(candidate) for candidate in rng.permutation(len(sample))]
        answer = None if sample.answer is None else order.index(sample.answer)
        moved.append(replace(sample, images=tuple(sample.images[candidate] for candidate in order), answer=answer))
    return moved
