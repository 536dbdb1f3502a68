"""The evidence of attention: which layers to trust, and what they say about the right image (Eq. 8-12)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lad.calibration import Calibration
from lad.decisions.options import DecisionOptions
from lad.errors import CalibrationError, DecisionError
from lad.estimators import floored_log
from lad.identifiers import log_softmax
from lad.observations import Observations


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the attention of M observations says.

    Attributes:
        layers: (M, K), the chosen layers, best first.
        raw_attention: (M, N), mean attention of the chosen layers.
        log_purified: (M, N), log t of Eq. 11.
        log_posterior: (M, N), log pi of Eq. 12, by position.
    """

    layers: NDArray[np.int64]
    raw_attention: NDArray[np.float64]
    log_purified: NDArray[np.float64]
    log_posterior: NDArray[np.float64]

    @property
    def posterior(self) -> NDArray[np.float64]:
        """(M, N), pi of Eq. 12: the probability, by attention alone, that the answer is at a position."""
        return np.asarray(np.exp(self.log_posterior))


def gather_evidence(observations: Observations, calibration: Calibration | None, options: DecisionOptions) -> Evidence:
    """Chosen layers, raw and purified attention, and the posterior, of each observation.

    Raises:
        DecisionError: a calibration is needed (for the prior, or for calibrated layers) and there is none.
        CalibrationError: the calibration has another N or L than the observations.
    """
    layers = chosen_layers(observations, calibration, options)
    attention = np.take_along_axis(observations.attention, layers[:, :, None], axis=1)
    if options.purification == "log_of_mean":
        log_attention = floored_log(attention.mean(axis=1))
    else:
        log_attention = floored_log(attention).mean(axis=1)
    log_purified = log_attention
    if options.use_prior:
        prior = fitting(calibration, observations, "The attention prior").attention_prior
        log_purified = log_attention - floored_log(prior)[layers].mean(axis=1)
    return Evidence(
        layers=layers,
        raw_attention=attention.mean(axis=1),
        log_purified=log_purified,
        log_posterior=log_softmax(options.temperature * log_purified),
    )


def chosen_layers(
    observations: Observations, calibration: Calibration | None, options: DecisionOptions
) -> NDArray[np.int64]:
    """The layers each observation is judged by, shape (M, K), best first; ties go to the lower layer.

    A layer that never sees the images (all its attention is zero: no attention at all, or a window that does not
    reach them) is not chosen; one that sees them in some observations only comes last under "mass" in the others.

    Where no layer sees them, all are taken: the evidence is then flat.

    Raises:
        DecisionError: an empty layer range, or "calibrated" without a calibration.
        CalibrationError: "calibrated" with a calibration of another N or L.
    """
    in_range = np.array(options.candidate_layers(observations.layers), dtype=np.int64)
    seeing = (observations.attention[:, in_range] > 0).any(axis=(0, 2))
    candidates = in_range[seeing] if seeing.any() else in_range
    everyone = (len(observations), min(options.top_k, len(candidates)))
    if options.layer_choice == "all":
        return np.broadcast_to(candidates, (len(observations), len(candidates)))
    if options.layer_choice == "calibrated":
        evidence = fitting(calibration, observations, "layer_choice='calibrated'").layer_evidence[candidates]
        best = np.argsort(-evidence, kind="stable")
        return np.broadcast_to(candidates[best[: everyone[1]]], everyone)
    mass = observations.attention[:, candidates].sum(axis=2)
    return candidates[np.argsort(-mass, axis=1, kind="stable")[:, : everyone[1]]]


def fitting(calibration: Calibration | None, observations: Observations, user: str) -> Calibration:
    """The calibration, if there is one and its shapes fit.

    Args:
        calibration: perhaps None.
        observations: what it is to be used with.
        user: what needs it, for the message.

    Raises:
        DecisionError: there is none.
        CalibrationError: it has another N or L.
    """
    if calibration is None:
        raise DecisionError(f"{user} needs a calibration.", hint="Make one with: lad calibrate")
    mine = (calibration.candidates, calibration.layers)
    if mine != (observations.count, observations.layers):
        raise CalibrationError(
            f"The calibration is for {mine[0]} candidates and {mine[1]} attention layers; the observations have "
            f"{observations.count} and {observations.layers}.",
            hint="Make one that fits with: lad calibrate",
        )
    return calibration
