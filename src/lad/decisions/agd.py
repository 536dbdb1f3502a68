"""AGD, attention-guided debiasing: take off the bias to expect where attention says the answer is (Eq. 13-14)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lad.calibration import Calibration
from lad.decisions.evidence import fitting, gather_evidence
from lad.decisions.options import DecisionOptions, Mixture
from lad.errors import DecisionError
from lad.observations import Observations


def agd(observations: Observations, calibration: Calibration | None, options: DecisionOptions) -> NDArray[np.float64]:
    """Scores (M, N): log-probabilities minus the expected bias under the attention posterior.

    Raises:
        DecisionError: no calibration, an empty layer range, or ``mixture="prob"`` with scores that are not
            normalised log-probabilities.
        CalibrationError: a calibration of another N or L.
    """
    calibration = fitting(calibration, observations, "The rule 'agd'")
    if options.mixture == "prob":
        _require_normalised(observations, calibration)
    evidence = gather_evidence(observations, calibration, options)
    return np.asarray(observations.log_probs - expected_bias(evidence.log_posterior, calibration.bias, options.mixture))


def agd_calibrated_layers(
    observations: Observations, calibration: Calibration | None, options: DecisionOptions
) -> NDArray[np.float64]:
    """:func:`agd` with the layers that calibration found best, whatever ``layer_choice`` says."""
    return agd(observations, calibration, replace(options, layer_choice="calibrated"))


def expected_bias(
    log_posterior: NDArray[np.float64], bias: NDArray[np.float64], mixture: Mixture = "log"
) -> NDArray[np.float64]:
    """The bias to expect at each position, when the true position is known only by its probability.

    Args:
        log_posterior: (M, N), log pi.
        bias: (N, N), B; row = true position.
        mixture: "log" gives sum_k pi[k] B[k, j] (published code), "prob" log sum_k pi[k] exp(B[k, j]) (Eq. 13).

    Returns:
        Shape (M, N).
    """
    if mixture == "log":
        return np.asarray(np.exp(log_posterior) @ bias)
    terms = log_posterior[:, :, None] + bias[None, :, :]
    peaks = terms.max(axis=1)
    return np.asarray(peaks + np.log(np.exp(terms - peaks[:, None, :]).sum(axis=1)))


def _require_normalised(observations: Observations, calibration: Calibration) -> None:
    # A mean of normalised log-probabilities has a log-sum-exp of at most 0 (Jensen), so this finds calibrations
    # that were fitted to scores with a constant of their own in each row.
    profile = calibration.observed_profile
    peaks = profile.max(axis=1)
    totals = peaks + np.log(np.exp(profile - peaks[:, None]).sum(axis=1))
    if not observations.normalised or (totals > 1e-6).any():
        raise DecisionError(
            "mixture='prob' needs log-probabilities whose exponentials sum to 1, in the observations and in those "
            "the calibration was made from.",
            hint="Use mixture='log' with raw scores.",
        )
