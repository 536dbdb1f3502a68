"""The registry of decision rules, and the one way to apply them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
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
"""The rules of this package, by name; each needs one forward pass."""

ENTRY_POINTS = "lad.rules"
"""Entry point group by which other packages add rules: the name of an entry point is the rule's, its object the
function. In the package's ``pyproject.toml``::

    [project.entry-points."lad.rules"]
    my_rule = "my_package.rules:my_rule"
"""


@cache
def _offered() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=ENTRY_POINTS):
        known = found.get(point.name)
        if point.name in RULES or (known is not None and known.value != point.value):
            raise DecisionError(
                f"A package adds a decision rule {point.name!r} ({point.value}), but there is one of this name.",
                hint="Let that package choose another name, or uninstall it.",
            )
        found[point.name] = point
    return found


def rule_names() -> tuple[str, ...]:
    """The names of all rules: those of this package, then those that other packages add.

    Raises:
        DecisionError: another package adds a rule under a name that is taken.
    """
    return (*RULES, *sorted(_offered()))


@cache
def find_rule(name: str) -> Rule:
    """The rule of a name, from this package or another.

    Raises:
        DecisionError: there is none, or the package that adds it cannot be imported.
    """
    if name in RULES:
        return RULES[name]
    if name not in _offered():
        raise DecisionError(f"There is no decision rule {name!r}.", hint=f"Choose one of: {', '.join(rule_names())}.")
    point = _offered()[name]
    try:
        function = point.load()
    except Exception as error:  # whatever another package's import raises
        raise DecisionError(
            f"The decision rule {name!r} cannot be loaded from {point.value} ({type(error).__name__}: {error})."
        ) from error
    if not callable(function):
        raise DecisionError(f"The decision rule {name!r} is no function ({point.value}).")
    lines = (inspect.getdoc(function) or point.value).splitlines()
    return Rule(name, function, bool(getattr(function, "needs_calibration", False)), 1, lines[0])


def decide(
    name: str,
    observations: Observations,
    calibration: Calibration | None = None,
    options: DecisionOptions = DecisionOptions(),  # noqa: B008 - frozen, so sharing it is safe
) -> NDArray[np.float64]:
    """Apply a rule.

    Args:
        name: one of :func:`rule_names`.
        observations: M observations of N candidates.
        calibration: for the rules that need one.
        options: the published ones by default.

    Returns:
        Scores (M, N) by position; the higher the better. See :func:`picks` and :func:`probabilities`.

    Raises:
        DecisionError: an unknown rule, options that do not apply, a missing calibration, or a rule of another package
            that gave something else than finite scores (M, N).
        CalibrationError: a calibration of another N or L.
    """
    scores = np.asarray(find_rule(name).function(observations, calibration, options), dtype=np.float64)
    if scores.shape != observations.log_probs.shape or not np.isfinite(scores).all():
        raise DecisionError(
            f"The decision rule {name!r} must give finite scores {observations.log_probs.shape}, "
            f"not {scores.shape}{'' if np.isfinite(scores).all() else ' with values that are not finite'}."
        )
    return scores


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
