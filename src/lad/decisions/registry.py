"""The registry of decision rules, and the one way to apply them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lad.calibration import Calibration
from lad.decisions.agd import agd, agd_calibrated_layers
from lad.decisions.options import DecisionOptions
from lad.decisions.pride import pride
from lad.decisions.purified_attention import purified_attention
from lad.decisions.raw_attention import raw_attention
from lad.decisions.vanilla import vanilla
from lad.errors import DecisionError
from lad.identifiers import log_softmax
from lad.observations import Observations
from lad.samples import to_candidates

RuleFunction: TypeAlias = Callable[[Observations, "Calibration | None", DecisionOptions], NDArray[np.float64]]


@dataclass(frozen=True)
class Rule:
    """A decision rule.

    Attributes:
        name: its key in :data:`RULES`.
        function: observations, calibration, options -> scores (M, N) by position.
        needs_calibration: whether it does with the default options.
        passes: forward passes per query.
        description: one line for people.
    """

    name: str
    function: RuleFunction
    needs_calibration: bool
    passes: int
    description: str


RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("vanilla", vanilla, False, 1, "the model's own log-probabilities"),
        Rule("pride", pride, True, 1, "log-probabilities minus the mean bias of each position"),
        Rule("raw_attention", raw_attention, False, 1, "attention of the chosen layers"),
        Rule("purified_attention", purified_attention, True, 1, "attention relative to its prior"),
        Rule("agd", agd, True, 1, "log-probabilities minus the bias expected under the attention"),
        Rule("agd_calibrated_layers", agd_calibrated_layers, True, 1, "AGD with the layers best in calibration"),
    )
}
"""The rules that need one forward pass, by name."""


def decide(
    name: str,
    observations: Observations,
    calibration: Calibration | None = None,
    options: DecisionOptions = DecisionOptions(),  # noqa: B008 - frozen, so sharing it is safe
) -> NDArray[np.float64]:
    """Apply a rule.

    Args:
        name: a key of :data:`RULES`.
        observations: M observations of N candidates.
        calibration: for the rules that need one.
        options: the published ones by default.

    Returns:
        Scores (M, N) by position; the higher the better. See :func:`picks` and :func:`probabilities`.

    Raises:
        DecisionError: an unknown rule, options that do not apply, or a missing calibration.
        CalibrationError: a calibration of another N or L.
    """
    if name not in RULES:
        raise DecisionError(f"There is no decision rule {name!r}.", hint=f"Choose one of: {', '.join(RULES)}.")
    return RULES[name].function(observations, calibration, options)


def probabilities(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Softmax over the last axis."""
    return np.asarray(np.exp(log_softmax(scores)))


def picks(scores: NDArray[np.float64], orders: NDArray[np.int64]) -> NDArray[np.int64]:
    """The candidates with the highest scores; a tie goes to the lowest candidate, wherever it stands.

    Args:
        scores: (..., N) by position.
        orders: (..., N).

    Returns:
        Candidate indices, shape (...).
    """
    return np.asarray(to_candidates(scores, orders).argmax(axis=-1), dtype=np.int64)
