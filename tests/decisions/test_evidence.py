from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lad.calibration import Calibration, fit_calibration
from lad.decisions import DecisionOptions, chosen_layers, decide, gather_evidence, picks
from lad.errors import CalibrationError, DecisionError
from lad.observations import Observations
from tests.decisions.factory import (
    make_calibration,
    make_calibration_observations,
    make_identity,
    make_observations,
)

_FLOOR = 1e-20


def _chosen_by_loops(attention: Any, calibration: Calibration, options: DecisionOptions, depth: int) -> list[int]:
    first, last = (0, depth - 1) if options.layer_range is None else options.layer_range
    layers = [layer for layer in range(depth) if first <= layer <= last]
    if options.layer_choice == "all":
        return layers
    if options.layer_choice == "mass":
        worth = {layer: sum(float(mass) for mass in attention[layer]) for layer in layers}
    else:
        worth = {layer: float(calibration.layer_evidence[layer]) for layer in layers}
    return sorted(layers, key=lambda layer: (-worth[layer], layer))[: options.top_k]


def _posterior_by_loops(
    attention: Any, layers: list[int], prior: Any, options: DecisionOptions
) -> tuple[list[float], list[float], list[float]]:
    raw, log_t = [], []
    for k in range(attention.shape[1]):
        masses = [float(attention[layer, k]) for layer in layers]
        log_priors = [math.log(max(float(prior[layer, k]), _FLOOR)) if options.use_prior else 0.0 for layer in layers]
        raw.append(sum(masses) / len(layers))
        if options.purification == "log_of_mean":
            log_t.append(math.log(max(raw[-1], _FLOOR)) - sum(log_priors) / len(layers))
        else:
            ratios = [math.log(max(mass, _FLOOR)) - log for mass, log in zip(masses, log_priors, strict=True)]
            log_t.append(sum(ratios) / len(layers))
    peak = max(log_t)
    powers = [math.exp(options.temperature * (value - peak)) for value in log_t]
    return raw, log_t, [power / sum(powers) for power in powers]


_OPTIONS = st.builds(
    DecisionOptions,
    top_k=st.integers(1, 8),
    temperature=st.sampled_from([0.5, 1.0, 5.0, 9.0]),
    layer_range=st.sampled_from([None, (0, 0), (1, 3), (2, 99), (4, 4)]),
    layer_choice=st.sampled_from(["mass", "all", "calibrated"]),
    purification=st.sampled_from(["log_of_mean", "mean_of_log"]),
    mixture=st.sampled_from(["log", "prob"]),
    use_prior=st.booleans(),
)


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 1000), options=_OPTIONS, zeros=st.booleans())
def test_every_option_against_loops(seed: int, options: DecisionOptions, zeros: bool) -> None:
    observations, calibration = make_observations(seed, rows=3), make_calibration(seed + 1)
    if zeros:
        thin = observations.attention * (np.random.default_rng(seed).random(observations.attention.shape) < 0.6)
        observations = replace(observations, attention=thin)
    evidence = gather_evidence(observations, calibration, options)
    for row in range(3):
        attention = observations.attention[row]
        layers = _chosen_by_loops(attention, calibration, options, depth=5)
        assert evidence.layers[row].tolist() == layers
        raw, log_t, posterior = _posterior_by_loops(attention, layers, calibration.attention_prior, options)
        np.testing.assert_allclose(evidence.raw_attention[row], raw, rtol=1e-12)
        np.testing.assert_allclose(evidence.log_purified[row], log_t, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(evidence.posterior[row], posterior, rtol=1e-9, atol=1e-12)

        purified = decide("purified_attention", observations, calibration, options)[row]
        np.testing.assert_allclose(purified, options.temperature * np.array(log_t), rtol=1e-12, atol=1e-12)
        assert decide("raw_attention", observations, calibration, options)[row] == pytest.approx(raw, abs=1e-15)
        for j in range(4):
            bias = [float(calibration.bias[k, j]) for k in range(4)]
            if options.mixture == "log":
                expected = sum(posterior[k] * bias[k] for k in range(4))
            else:
                expected = math.log(sum(posterior[k] * math.exp(bias[k]) for k in range(4)))
            score = decide("agd", observations, calibration, options)[row, j]
            assert score == pytest.approx(float(observations.log_probs[row, j]) - expected, abs=1e-9)


def _with_attention(attention: list[list[list[float]]]) -> Observations:
    array = np.array(attention)
    rows, _, count = array.shape
    return Observations(
        log_probs=np.full((rows, count), -np.log(count)),
        attention=array,
        orders=np.tile(np.arange(count), (rows, 1)),
        answers=np.full(rows, -1),
        samples=tuple(map(str, range(rows))),
    )


def test_mass_is_chosen_anew_for_each_observation() -> None:
    observations = _with_attention([[[0.1, 0.1], [0.4, 0.1], [0.2, 0.2]], [[0.5, 0.1], [0.0, 0.1], [0.2, 0.2]]])
    assert chosen_layers(observations, None, DecisionOptions()).tolist() == [[1, 2], [0, 2]]
    assert chosen_layers(observations, None, DecisionOptions(top_k=1)).tolist() == [[1], [0]]


def test_ties_go_to_the_lower_layer() -> None:
    observations = _with_attention([[[0.2, 0.2], [0.3, 0.1], [0.1, 0.3], [0.5, 0.1]]])
    assert chosen_layers(observations, None, DecisionOptions(top_k=3)).tolist() == [[3, 0, 1]]


@pytest.mark.parametrize("top_k", [3, 4, 1000])
def test_more_than_there_are_means_all(top_k: int) -> None:
    observations = _with_attention([[[0.1, 0.1], [0.4, 0.1], [0.2, 0.2]]])
    assert chosen_layers(observations, None, DecisionOptions(top_k=top_k)).tolist() == [[1, 2, 0]]


def test_layers_that_see_no_image_are_chosen_last_and_do_no_harm() -> None:
    blind, seeing = [0.0, 0.0, 0.0], [1e-9, 3e-9, 1e-9]
    observations = _with_attention([[blind, seeing, blind, [1e-9, 2e-9, 1e-9]]])
    assert chosen_layers(observations, None, DecisionOptions()).tolist() == [[1, 3]]
    prior = np.array([blind, [1e-9] * 3, blind, [1e-9] * 3])
    calibration = replace(
        make_calibration(0, layers=4, count=3), attention_prior=prior, layer_evidence=np.array([-2.0, -1.0, -2.0, -1.0])
    )
    for purification in ("log_of_mean", "mean_of_log"):
        for top_k in (1, 2, 4):
            for choice in ("mass", "all", "calibrated"):
                options = DecisionOptions(top_k=top_k, layer_choice=choice, purification=purification)  # type: ignore[arg-type]
                evidence = gather_evidence(observations, calibration, options)
                assert np.isfinite(evidence.log_posterior).all()
                assert evidence.posterior.argmax() == 1
                assert evidence.posterior.sum() == pytest.approx(1.0)


def test_attention_of_zero_everywhere_is_no_evidence_and_no_nan() -> None:
    observations = _with_attention([[[0.0, 0.0], [0.0, 0.0]]])
    evidence = gather_evidence(observations, None, DecisionOptions(use_prior=False))
    assert evidence.posterior.tolist() == [[0.5, 0.5]]
    assert evidence.log_purified == pytest.approx(np.full((1, 2), math.log(_FLOOR)))


def test_the_posterior_stays_finite_where_probabilities_vanish() -> None:
    observations = _with_attention([[[0.5, 0.0, 0.0]]])
    evidence = gather_evidence(observations, None, DecisionOptions(use_prior=False, temperature=500.0))
    assert np.isfinite(evidence.log_posterior).all()
    assert evidence.posterior.tolist() == [[1.0, 0.0, 0.0]]


def test_calibrated_layers_prefer_information_to_mass() -> None:
    count, layers = 4, 6
    observations = make_calibration_observations(11, samples=5, layers=layers, count=count)
    rng = np.random.default_rng(2)

    def attend(seen: Observations) -> Observations:
        attention = 0.2 * rng.random((len(seen), layers, count))  # heavy and meaningless
        attention[:, 2] = 0.0005 * (1 + rng.random((len(seen), count)))  # light, and it knows
        attention[np.arange(len(seen)), 2, seen.answer_positions] *= 4
        return replace(seen, attention=attention)

    calibration = fit_calibration(attend(observations), make_identity(count))
    tested = attend(make_observations(3, rows=60, layers=layers, count=count))
    published, ours = DecisionOptions(top_k=1), DecisionOptions(top_k=1, layer_choice="calibrated")
    assert (chosen_layers(tested, calibration, published) != 2).all()
    assert (chosen_layers(tested, calibration, ours) == 2).all()

    def accuracy(options: DecisionOptions) -> float:
        scores = decide("purified_attention", tested, calibration, options)
        return float((picks(scores, tested.orders) == tested.answers).mean())

    assert accuracy(ours) == 1.0
    assert accuracy(published) < 0.6


def test_a_calibration_is_asked_for_only_where_it_is_needed() -> None:
    observations = make_observations(0)
    needless = DecisionOptions(use_prior=False)
    for name in ("vanilla", "raw_attention", "purified_attention"):
        assert decide(name, observations, None, needless).shape == (7, 4)
    with pytest.raises(DecisionError, match=r"attention prior needs a calibration.*lad calibrate"):
        decide("purified_attention", observations)
    for name in ("raw_attention", "purified_attention"):
        with pytest.raises(DecisionError, match="layer_choice='calibrated' needs a calibration"):
            decide(name, observations, None, replace(needless, layer_choice="calibrated"))
    for name in ("pride", "agd", "agd_calibrated_layers"):
        with pytest.raises(DecisionError, match="needs a calibration"):
            decide(name, observations, None, needless)


@pytest.mark.parametrize("sizes", [{"count": 5}, {"layers": 4}])
@pytest.mark.parametrize("name", ["pride", "purified_attention", "agd", "agd_calibrated_layers"])
def test_a_calibration_of_other_sizes_is_refused(name: str, sizes: dict[str, int]) -> None:
    calibration = make_calibration(0, **sizes)
    message = f"{calibration.candidates} candidates and {calibration.layers} attention layers.* 4 and 5"
    with pytest.raises(CalibrationError, match=message):
        decide(name, make_observations(0), calibration)
