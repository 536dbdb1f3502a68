"""Raw attention: the image that the chosen layers look at most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lad.calibration import Calibration
from lad.decisions.evidence import chosen_layers
from lad.decisions.options import DecisionOptions
from lad.observations import Observations


def raw_attention(
    observations: Observations, calibration: Calibration | None, options: DecisionOptions
) -> NDArray[np.float64]:
    """Scores (M, N): mean of a[l, :] over the chosen layers.

    Needs a calibration only for ``layer_choice="calibrated"``; the prior plays no part.

    Raises:
        DecisionError: an empty layer range, or no calibration where one is needed.
        CalibrationError: a calibration of another N or L.
    """
    layers = chosen_layers(observations, calibration, options)
    return np.asarray(np.take_along_axis(observations.attention, layers[:, :, None], axis=1).mean(axis=1))
