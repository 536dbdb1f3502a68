"""Vanilla: the model's own log-probabilities, as they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lad.calibration import Calibration
from lad.decisions.options import DecisionOptions
from lad.observations import Observations


def vanilla(
    observations: Observations, calibration: Calibration | None, options: DecisionOptions
) -> NDArray[np.float64]:
    """Scores (M, N): the log-probabilities. Calibration and options play no part."""
    return observations.log_probs.copy()
