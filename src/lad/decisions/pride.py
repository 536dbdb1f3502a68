"""PriDe as the paper adapts it: one bias for all queries, the column mean of the conditional bias matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lad.calibration import Calibration
from lad.decisions.evidence import fitting
from lad.decisions.options import DecisionOptions
from lad.observations import Observations


def pride(observations: Observations, calibration: Calibration | None, options: DecisionOptions) -> NDArray[np.float64]:
    """Scores (M, N): log-probabilities minus the mean of B over true positions.

    Raises:
        DecisionError: no calibration.
        CalibrationError: one of another N or L.
    """
    bias = fitting(calibration, observations, "The rule 'pride'").bias
    return np.asarray(observations.log_probs - bias.mean(axis=0))
