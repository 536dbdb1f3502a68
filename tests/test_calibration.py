from __future__ import annotations

import copy
import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lad.calibration import CalibrationIdentity, fit_calibration
from lad.errors import CalibrationError
from lad.estimators import EVIDENCE_TEMPERATURES, conditional_bias, visual_gain
from lad.observations import Observations
from lad.samples import cyclic_orders
from tests.decisions.factory import make_calibration, make_calibration_observations, make_identity

_TENSORS = ("observed_profile", "bias", "attention_prior", "layer_evidence", "layer_temperatures")

# --- fitting, against loops that follow the equations -------------------------------------------------------


def _positions(observations: Observations) -> list[int]:
    rows = range(len(observations))
    return [list(observations.orders[row]).index(observations.answers[row]) for row in rows]


@pytest.mark.parametrize("average", ["log", "prob"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), samples=st.integers(1, 4), layers=st.integers(1, 3), count=st.integers(2, 6))
def test_fit_against_loops(average: Any, seed: int, samples: int, layers: int, count: int) -> None:
    observations = make_calibration_observations(seed, samples=samples, layers=layers, count=count)
    calibration = fit_calibration(observations, make_identity(count), average=average)
    positions = _positions(observations)
    profile = [[0.0] * count for _ in range(count)]
    for i in range(count):
        for j in range(count):
            scores = [float(observations.log_probs[m, j]) for m, position in enumerate(positions) if position == i]
            assert len(scores) == samples
            if average == "log":
                profile[i][j] = sum(scores) / samples
            else:
                profile[i][j] = math.log(sum(math.exp(score) for score in scores) / samples)
    gain = max(profile[i][i] - profile[i][j] for i in range(count) for j in range(count) if i != j)
    mean = sum(map(sum, profile)) / count**2
    for i in range(count):
        for j in range(count):
            ideal = mean - gain / count + (gain if i == j else 0.0)
            assert calibration.observed_profile[i, j] == pytest.approx(profile[i][j], abs=1e-12)
            assert calibration.bias[i, j] == pytest.approx(profile[i][j] - ideal, abs=1e-12)
    assert calibration.visual_gain == pytest.approx(gain, abs=1e-12)
    for layer in range(layers):
        for k in range(count):
            prior = sum(float(value) for value in observations.attention[:, layer, k]) / len(observations)
            assert calibration.attention_prior[layer, k] == pytest.approx(prior, abs=1e-15)
    assert (calibration.samples, calibration.average) == (samples, average)
    assert (calibration.candidates, calibration.layers) == (count, layers)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_layer_evidence_against_loops(seed: int) -> None:
    observations = make_calibration_observations(seed, samples=2, layers=3, count=3)
    calibration = fit_calibration(observations, make_identity(3))
    positions = _positions(observations)
    for layer in range(3):
        scores = {}
        for temperature in (0.25, 0.5, 1, 2, 3, 5, 8, 12):
            total = 0.0
            for m, position in enumerate(positions):
                ratios = [
                    max(float(observations.attention[m, layer, k]), 1e-20)
                    / max(float(calibration.attention_prior[layer, k]), 1e-20)
                    for k in range(3)
                ]
                powers = [ratio**temperature for ratio in ratios]
                total += math.log(powers[position] / sum(powers))
            scores[temperature] = total / len(positions)
        best = max(scores, key=lambda temperature: scores[temperature])
        assert calibration.layer_evidence[layer] == pytest.approx(scores[best], abs=1e-9)
        assert calibration.layer_temperatures[layer] == best


def test_evidence_knows_informative_layers_from_blind_ones() -> None:
    observations = make_calibration_observations(3, samples=4, layers=3, count=4)
    attention = observations.attention.copy()
    told = np.full((len(observations), 4), 0.001)
    told[np.arange(len(observations)), observations.answer_positions] = 0.002
    attention[:, 0] = 0.2  # much mass, says nothing
    attention[:, 1] = told  # little mass, says everything
    attention[:, 2] = 0.0  # sees nothing: a sliding window
    calibration = fit_calibration(replace(observations, attention=attention), make_identity(4))
    assert calibration.layer_evidence[[0, 2]] == pytest.approx([-math.log(4)] * 2)
    assert calibration.layer_evidence[1] > -0.01
    assert calibration.layer_temperatures[1] == max(EVIDENCE_TEMPERATURES)


def test_best_temperature_forgives_layers_that_are_too_sure() -> None:
    # Right three times in four and then by a factor 1e6, wrong as surely: at tau = 5 this scores like nonsense.
    observations = make_calibration_observations(5, samples=8, layers=1, count=2)
    attention = np.full((len(observations), 1, 2), 1e-7)
    rng = np.random.default_rng(0)
    said = np.where(
        rng.random(len(observations)) < 0.75, observations.answer_positions, 1 - observations.answer_positions
    )
    attention[np.arange(len(observations)), 0, said] = 0.1
    calibration = fit_calibration(replace(observations, attention=attention), make_identity(2))
    assert calibration.layer_temperatures[0] == min(EVIDENCE_TEMPERATURES)


def test_visual_gain_may_be_negative() -> None:
    assert visual_gain(np.array([[-3.0, -1.0], [-0.5, -2.0]])) == -1.5
    observations = make_calibration_observations(0, samples=2, count=3)
    log_probs = np.full((len(observations), 3), np.log(0.45))
    log_probs[np.arange(len(observations)), observations.answer_positions] = np.log(0.1)
    calibration = fit_calibration(replace(observations, log_probs=log_probs), make_identity(3))
    assert calibration.visual_gain == pytest.approx(np.log(0.1 / 0.45))


def test_a_model_without_bias_has_none() -> None:
    profile = np.full((4, 4), -3.0) + 2.5 * np.eye(4)
    assert conditional_bias(profile, visual_gain(profile)) == pytest.approx(np.zeros((4, 4)), abs=1e-12)


def test_the_mean_of_probabilities_survives_underflow() -> None:
    observations = make_calibration_observations(0, samples=2, count=2)
    log_probs = np.where(np.arange(2) == 0, 0.0, -900.0) * np.ones((len(observations), 1))
    calibration = fit_calibration(replace(observations, log_probs=log_probs), make_identity(2), average="prob")
    assert calibration.observed_profile == pytest.approx(np.array([[0.0, -900.0], [0.0, -900.0]]))


def test_rows_may_come_in_any_sequence() -> None:
    observations = make_calibration_observations(8)
    shuffled = observations.take(np.random.default_rng(1).permutation(len(observations)))
    first, second = (fit_calibration(given_rows, make_identity(4)) for given_rows in (observations, shuffled))
    for name in _TENSORS:
        assert getattr(first, name) == pytest.approx(getattr(second, name), abs=1e-13)


def test_samples_without_an_id_are_counted_all_the_same() -> None:
    observations = make_calibration_observations(0, samples=3)
    calibration = fit_calibration(replace(observations, samples=("",) * len(observations)), make_identity(4))
    assert calibration.samples == 3


def test_calibrations_can_be_copied() -> None:
    calibration = replace(make_calibration(0), made_with={"dtype": "float32"})
    arrived = copy.deepcopy(calibration)
    assert arrived.identity == calibration.identity
    assert arrived.made_with == calibration.made_with
    assert np.array_equal(arrived.bias, calibration.bias)


# --- what cannot be calibrated on ----------------------------------------------------------------------------


def test_unlabelled_and_unbalanced_samples_are_named() -> None:
    observations = make_calibration_observations(0)
    row = observations.samples.index("c1")
    answers = observations.answers.copy()
    answers[row] = -1
    with pytest.raises(CalibrationError, match="sample 'c1': Has no answer"):
        fit_calibration(replace(observations, answers=answers), make_identity(4))
    kept = np.arange(len(observations)) != row
    with pytest.raises(CalibrationError, match=r"sample 'c1': Its answer visits .* not all equally often"):
        fit_calibration(observations.take(kept), make_identity(4))
    # balanced over all samples together is not enough
    two = Observations(
        log_probs=np.full((4, 2), np.log(0.5)),
        attention=np.full((4, 1, 2), 0.1),
        orders=np.tile(cyclic_orders(2)[0], (4, 1)),
        answers=np.array([0, 0, 1, 1]),
        samples=("x", "x", "y", "y"),
    )
    with pytest.raises(CalibrationError, match=r"sample 'x': .*\[2, 0\] times"):
        fit_calibration(two, make_identity(2))


def test_other_unusable_observations() -> None:
    observations = make_calibration_observations(0)
    with pytest.raises(CalibrationError, match="no observations"):
        fit_calibration(observations.take([]), make_identity(4))
    with pytest.raises(CalibrationError, match="Observations of 4 candidates cannot calibrate 5"):
        fit_calibration(observations, make_identity(5))
    with pytest.raises(CalibrationError, match="no average 'median'"):
        fit_calibration(observations, make_identity(4), average="median")  # type: ignore[arg-type]
    raw = replace(observations, log_probs=observations.log_probs + 3.0)
    fit_calibration(raw, make_identity(4))
    with pytest.raises(CalibrationError, match="sum to 1"):
        fit_calibration(raw, make_identity(4), average="prob")


# --- what it belongs to --------------------------------------------------------------------------------------

_OTHER: dict[str, object] = {
    "model": "other",
    "revision": "r2",
    "prompt": "p2",
    "identifiers": ("A", "B", "C", "D"),
    "image_size": "336x336",
    "attention": "features",
}


@pytest.mark.parametrize("name", list(_OTHER))
def test_refusal_names_the_field_and_both_values(name: str) -> None:
    calibration = make_calibration(0)
    calibration.require(make_identity(4))
    other = make_identity(4, **{name: _OTHER[name]})
    assert calibration.identity.difference(other) == [(name, getattr(make_identity(4), name), _OTHER[name])]
    with pytest.raises(CalibrationError) as refusal:
        calibration.require(other)
    assert f"{name} was {getattr(make_identity(4), name)!r}, is now {_OTHER[name]!r}" in str(refusal.value)
    assert "lad calibrate" in str(refusal.value)
    for unchanged in _OTHER.keys() - {name}:
        assert f"{unchanged} was" not in str(refusal.value)


def test_refusal_names_every_field() -> None:
    with pytest.raises(CalibrationError) as refusal:
        make_calibration(0).require(make_identity(5, **{**_OTHER, "identifiers": tuple("ABCDE")}))
    for item in fields(CalibrationIdentity):
        assert f"{item.name} was" in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"identifiers": ("1", "2")}, "2 identifiers for 4 candidates"),
        ({"candidates": 1, "identifiers": ("1",)}, "1 identifiers for 1 candidates"),
        ({"attention": "pixels"}, "no attention reduction 'pixels'"),
    ],
)
def test_identities_that_make_no_sense(change: dict[str, object], message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        make_identity(4, **change)


@pytest.mark.parametrize("name", _TENSORS)
def test_calibrations_of_impossible_numbers(name: str) -> None:
    calibration = make_calibration(0)
    with pytest.raises(CalibrationError, match=f"{name} is not finite"):
        replace(calibration, **{name: np.full_like(getattr(calibration, name), np.nan)})
    with pytest.raises(CalibrationError, match=f"{name} must have the shape"):
        replace(calibration, **{name: np.zeros(3)})
