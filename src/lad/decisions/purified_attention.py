"""Purified attention: attention relative to what each position draws anyway (Eq. 10-12)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lad.calibration import Calibration
from lad.decisions.evidence import gather_evidence
from lad.decisions.options import DecisionOptions
from lad.observations import Observations


def purified_attention(
    observations: Observations, calibration: Calibration | None, options: DecisionOptions
) -> NDArray[np.float64]:
    """Scores (M, N): tau * log t, so that their softmax is the posterior pi of Eq. 12.

    Raises:
        DecisionError: an empty layer range, or no calibration where one is needed.
        CalibrationError: a calibration of another N or L.
    """
    return np.asarray(options.temperature * gather_evidence(observations, calibration, options).log_purified)
