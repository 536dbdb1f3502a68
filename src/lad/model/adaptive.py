"""AGD with an adaptive budget, live: a further cyclic shift is observed only for the queries that are still close."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lad.calibration import Calibration
from lad.decisions import Adaptive, DecisionOptions, decide, far_shifts
from lad.decisions.adaptive import settled
from lad.model.observe import observe
from lad.model.vlm import VisionLanguageModel
from lad.samples import Sample, to_candidates


def observe_adaptively(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    calibration: Calibration,
    theta: float,
    *,
    rule: str = "agd",
    decisions: DecisionOptions = DecisionOptions(),  # noqa: B008 - frozen, so sharing it is safe
    **options: Any,
) -> Adaptive:
    """Scores of each sample's candidates, and the passes each took; see :mod:`lad.decisions.adaptive`.

    Args:
        vlm: the model.
        samples: S samples of the same N, asked in the order of their images.
        calibration: fits the model and N.
        theta: from :func:`lad.decisions.choose_theta`; the larger, the more passes.
        rule: the rule whose scores are averaged.
        decisions: its options.
        options: those of :func:`lad.model.observe.observe`.
    """
    count = len(samples[0])
    totals = np.zeros((len(samples), count))
    passes = np.zeros(len(samples), dtype=np.int64)
    waiting: NDArray[np.int64] = np.arange(len(samples))
    for shift in far_shifts(count):
        order = (np.arange(count) + shift)[None, :] % count
        seen = observe(vlm, [samples[row] for row in waiting], order, **options)
        totals[waiting] += to_candidates(decide(rule, seen, calibration, decisions), seen.orders)
        passes[waiting] += 1
        taken = int(passes[waiting[0]])
        waiting = waiting[~settled(totals[waiting] / taken, taken, theta)]
        if not len(waiting):
            break
    return Adaptive(totals / passes[:, None], passes)
