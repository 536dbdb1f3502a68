"""A diagnosis from observations: pure numbers, no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lad.calibration import Calibration, CalibrationIdentity, fit_calibration
from lad.decisions import RULES, DecisionOptions, decide, permutation_average, picks
from lad.decisions.evidence import chosen_layers
from lad.diagnose.dependence import Dependence, position_dependence
from lad.errors import CalibrationError
from lad.estimators import floored_log, layer_evidence, observed_profile
from lad.evaluation.metrics import Metrics, compute_metrics
from lad.evaluation.statistics import Interval, MetricIntervals, metric_intervals, paired_difference
from lad.observations import Observations

Verdict = Literal["unbiased", "practically unbiased", "mildly biased", "strongly biased"]

SIGNIFICANCE = 0.01
"""A dependence on position is held to be shown if chance gives it less often than this."""

CALIBRATION_SAMPLES = 5
_SIZES = (1, 2, 5, 10, 20, 50)


@dataclass(frozen=True, eq=False)
class MethodFigures:
    """One method on the samples under all cyclic shifts.

    Attributes:
        method: its name.
        metrics: the figures.
        intervals: 95% bootstrap intervals over samples.
        gain: accuracy beyond vanilla in percentage points, with its 95% interval, paired by sample.
    """

    method: str
    metrics: Metrics
    intervals: MetricIntervals
    gain: tuple[float, Interval]


@dataclass(frozen=True, eq=False)
class Layers:
    """What each decoder layer knows.

    Attributes:
        raw: (L,), percent of observations in which its attention is highest on the answer.
        purified: (L,), the same with the attention prior taken off.
        evidence: (L,), mean log-probability that its purified posterior gives the answer; -log N is nothing.
        chosen: (L,), percent of observations in which it is among the K with most image attention.
    """

    raw: NDArray[np.float64]
    purified: NDArray[np.float64]
    evidence: NDArray[np.float64]
    chosen: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """All that is found out.

    Attributes:
        identity: what it holds for.
        samples: S.
        verdict: on the position bias of what is said.
        dependence: of the scores on position.
        profile: (N, N), mean probability of position j when the answer is at i.
        bias: (N, N), B of Eq. 5 from all samples, in nats.
        methods: vanilla first; rules of one pass, then permutation averaging.
        layers: by layer.
        spread: calibration size -> AGD's accuracies over bootstrap draws.
        pool: calibration samples at hand.
        seen: the observations.
    """

    identity: CalibrationIdentity
    samples: int
    verdict: Verdict
    dependence: Dependence
    profile: NDArray[np.float64]
    bias: NDArray[np.float64]
    methods: tuple[MethodFigures, ...]
    layers: Layers
    spread: dict[int, list[float]]
    pool: int
    seen: Observations

    def find(self, method: str) -> MethodFigures:
        """The figures of a method."""
        return next(figures for figures in self.methods if figures.method == method)

    @property
    def enough(self) -> bool | None:
        """Whether five calibration samples do as well as many, nearly always; None if there are too few to tell."""
        sizes = [size for size in self.spread if size > CALIBRATION_SAMPLES]
        if CALIBRATION_SAMPLES not in self.spread or not sizes:
            return None
        many = float(np.mean(self.spread[max(sizes)]))
        few = self.spread[CALIBRATION_SAMPLES]
        return bool(np.mean(few) >= many - 2 and np.percentile(few, 5) >= many - 5)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "model": self.identity.model,
            "revision": self.identity.revision,
            "candidates": self.identity.candidates,
            "identifiers": list(self.identity.identifiers),
            "samples": self.samples,
            "verdict": self.verdict,
            "p_value": self.dependence.p_value,
            "strength_nats": self.dependence.strength,
            "conditional_share": self.dependence.conditional,
            "effect": self.dependence.effect.tolist(),
            "profile": self.profile.tolist(),
            "bias": self.bias.tolist(),
            "methods": [
                {
                    "method": one.method,
                    **one.metrics.as_dict(),
                    "accuracy_interval": list(one.intervals.accuracy),
                    "gain": one.gain[0],
                    "gain_interval": list(one.gain[1]),
                }
                for one in self.methods
            ],
            "layers": [
                {
                    "layer": layer,
                    "raw_attention": float(self.layers.raw[layer]),
                    "purified_attention": float(self.layers.purified[layer]),
                    "evidence_nats": float(self.layers.evidence[layer]),
                    "chosen": float(self.layers.chosen[layer]),
                }
                for layer in range(len(self.layers.raw))
            ],
            "calibration_samples": self.pool,
            "calibration_spread": {str(size): values for size, values in self.spread.items()},
            "five_are_enough": self.enough,
        }


def diagnose(
    observations: Observations,
    pool: Observations,
    identity: CalibrationIdentity,
    *,
    options: DecisionOptions = DecisionOptions(),  # noqa: B008 - frozen, so sharing it is safe
    draws: int = 30,
    seed: int = 0,
) -> Diagnosis:
    """Find out about a model's position bias, and what its attention knows.

    Args:
        observations: S labelled samples under all N cyclic shifts.
        pool: labelled calibration samples, others than those, under all N cyclic shifts; five at least.
        identity: what the observations were made with.
        options: of the decision rules.
        draws: bootstrap draws of calibration samples, for each size.
        seed: of everything drawn.

    Raises:
        CalibrationError: fewer than five calibration samples, or some that are also to be answered.
        RunError: a sample was not observed under all cyclic shifts.
    """
    names = list(dict.fromkeys(pool.samples))
    if len(names) < CALIBRATION_SAMPLES:
        raise CalibrationError(
            f"There are {len(names)} calibration samples; a diagnosis needs {CALIBRATION_SAMPLES} at least."
        )
    if shared := set(names) & set(observations.samples):
        raise CalibrationError("Is among the calibration samples and those to be answered.", where=sorted(shared)[0])
    dependence = position_dependence(observations, seed=seed)
    calibration = fit_calibration(_rows_of(pool, names[:CALIBRATION_SAMPLES]), identity)
    methods = _measure(observations, calibration, options)
    profile = np.exp(observed_profile(observations.log_probs, observations.answer_positions, average="prob"))
    return Diagnosis(
        identity=identity,
        samples=len(observations) // observations.count,
        verdict=judge(dependence, methods[0].metrics),
        dependence=dependence,
        profile=profile,
        bias=fit_calibration(observations, identity).bias,
        methods=methods,
        layers=_by_layer(observations, calibration, options),
        spread=_spread(observations, pool, names, identity, options, draws, seed),
        pool=len(names),
        seen=observations,
    )


def judge(dependence: Dependence, said: Metrics) -> Verdict:
    """The verdict on what a model says.

    Args:
        dependence: of its scores on position.
        said: figures of its own picks.

    Returns:
        "unbiased" if no dependence is shown; "practically unbiased" if it is, but at most one pick in a hundred moves
        with the order and recall is within 2 points; else by RStd, with 10 points as the border.
    """
    if dependence.p_value >= SIGNIFICANCE:
        return "unbiased"
    spread = said.rstd or 0.0
    if (said.flip_rate or 0.0) <= 1 and spread <= 2:
        return "practically unbiased"
    return "mildly biased" if spread < 10 else "strongly biased"


def _rows_of(pool: Observations, names: Sequence[str]) -> Observations:
    """The observations of some samples, a sample named twice twice."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(pool.samples):
        rows.setdefault(name, []).append(row)
    return pool.take([row for name in names for row in rows[name]])


def _measure(seen: Observations, calibration: Calibration, options: DecisionOptions) -> tuple[MethodFigures, ...]:
    count = seen.count
    orders = seen.orders[:count]
    answers = seen.answers.reshape(-1, count)[:, 0]
    chosen = {name: picks(decide(name, seen, calibration, options), seen.orders).reshape(-1, count) for name in RULES}
    averaged = permutation_average(seen.log_probs.reshape(-1, count, count), seen.orders.reshape(-1, count, count))
    # whichever order one starts with, its cyclic shifts are the same
    chosen["permutation_average"] = np.repeat(averaged.argmax(axis=1)[:, None], count, axis=1)
    base = (chosen["vanilla"] == answers[:, None]).mean(axis=1)
    return tuple(
        MethodFigures(
            method=name,
            metrics=compute_metrics(some, answers, orders, passes=count if name == "permutation_average" else 1),
            intervals=metric_intervals(some, answers, orders),
            gain=paired_difference((some == answers[:, None]).mean(axis=1), base),
        )
        for name, some in chosen.items()
    )


def _by_layer(seen: Observations, calibration: Calibration, options: DecisionOptions) -> Layers:
    positions = seen.answer_positions
    purified = floored_log(seen.attention) - floored_log(calibration.attention_prior)
    layers = chosen_layers(seen, calibration, options)
    chosen = np.bincount(layers.reshape(-1), minlength=seen.layers) / len(seen)
    # a layer without attention says nothing, not "the first"
    sees = (seen.attention > 0).any(axis=2)

    def found(values: NDArray[np.float64]) -> NDArray[np.float64]:
        right = (values.argmax(axis=2) == positions[:, None]) & sees
        return np.asarray(100 * right.mean(axis=0))

    return Layers(
        raw=found(seen.attention),
        purified=found(purified),
        evidence=layer_evidence(seen.attention, calibration.attention_prior, positions)[0],
        chosen=100 * chosen,
    )


def _spread(
    seen: Observations,
    pool: Observations,
    names: Sequence[str],
    identity: CalibrationIdentity,
    options: DecisionOptions,
    draws: int,
    seed: int,
) -> dict[int, list[float]]:
    """AGD's accuracy with calibration samples drawn with replacement from the pool."""
    rng = np.random.default_rng(seed)
    spread: dict[int, list[float]] = {}
    for size in (size for size in _SIZES if size <= len(names)):
        accuracies = []
        for _ in range(draws):
            drawn = [names[index] for index in rng.integers(len(names), size=size)]
            calibration = fit_calibration(_rows_of(pool, drawn), identity)
            picked = picks(decide("agd", seen, calibration, options), seen.orders)
            accuracies.append(float(100 * (picked == seen.answers).mean()))
        spread[size] = accuracies
    return spread
