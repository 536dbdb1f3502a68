from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lad.calibration import fit_calibration
from lad.decisions import RULES, DecisionOptions, decide, picks, probabilities
from lad.decisions.agd import expected_bias
from lad.errors import DecisionError
from lad.samples import to_candidates
from tests.decisions.factory import make_calibration, make_calibration_observations, make_identity, make_observations


def test_registry() -> None:
    assert list(RULES) == ["vanilla", "pride", "raw_attention", "purified_attention", "agd", "agd_calibrated_layers"]
    observations, calibration = make_observations(0), make_calibration(0)
    for name, rule in RULES.items():
        assert rule.name == name
        assert rule.passes == 1
        assert rule.description
        scores = decide(name, observations, calibration)
        assert scores.shape == (7, 4)
        assert np.isfinite(scores).all()
        if rule.needs_calibration:
            with pytest.raises(DecisionError, match="needs a calibration"):
                decide(name, observations)
        else:
            assert np.array_equal(decide(name, observations), scores)
    with pytest.raises(DecisionError, match=r"no decision rule 'magic'.*vanilla, pride"):
        decide("magic", observations)


def test_vanilla_is_the_log_probabilities_in_an_array_of_its_own() -> None:
    observations = make_observations(0)
    scores = decide("vanilla", observations)
    assert np.array_equal(scores, observations.log_probs)
    scores[:] = 0
    assert observations.log_probs.any()


def test_pride_takes_off_the_column_mean() -> None:
    observations, calibration = make_observations(0), make_calibration(0)
    scores = decide("pride", observations, calibration)
    for row in range(7):
        for j in range(4):
            mean = sum(calibration.bias[i, j] for i in range(4)) / 4
            assert scores[row, j] == pytest.approx(observations.log_probs[row, j] - mean, abs=1e-12)


def test_agd_with_calibrated_layers_is_agd_with_that_option() -> None:
    observations, calibration = make_observations(0), make_calibration(0)
    options = DecisionOptions(top_k=1, temperature=3.0)
    assert np.array_equal(
        decide("agd_calibrated_layers", observations, calibration, options),
        decide("agd", observations, calibration, replace(options, layer_choice="calibrated")),
    )


def test_agd_undoes_a_conditional_bias() -> None:
    # Position j is favoured by an amount that depends on where the answer is; attention knows where that is.
    count = 4
    rng = np.random.default_rng(0)
    favour = 3 * rng.normal(size=(count, count))

    def biased(seed: int, calibrating: bool) -> object:
        make = make_calibration_observations if calibrating else make_observations
        seen = make(seed, layers=2, count=count)
        at = seen.answer_positions
        attention = np.full(seen.attention.shape, 0.01)
        attention[np.arange(len(seen)), :, at] = 0.05
        clear = 1.0 * (np.arange(count) == at[:, None])
        return replace(seen, log_probs=np.log(probabilities(clear + favour[at])), attention=attention)

    calibration = fit_calibration(biased(1, True), make_identity(count))  # type: ignore[arg-type]
    tested = biased(2, False)
    right = {
        name: (picks(decide(name, tested, calibration), tested.orders) == tested.answers).mean()  # type: ignore[arg-type, attr-defined]
        for name in ("vanilla", "pride", "agd")
    }
    assert right["agd"] == 1.0
    assert right["vanilla"] < 1.0
    assert right["pride"] < 1.0


_CONSTANTS = st.lists(st.floats(-50, 50), min_size=4, max_size=4)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), constants=_CONSTANTS, name=st.sampled_from(sorted(RULES)))
def test_constants_change_no_decision_in_the_log_domain(seed: int, constants: list[float], name: str) -> None:
    observations, calibration = make_observations(seed, rows=4), make_calibration(seed + 1)
    plain = probabilities(decide(name, observations, calibration))
    shifted = replace(observations, log_probs=observations.log_probs + np.array(constants)[:, None])
    moved = replace(calibration, bias=calibration.bias + np.array(constants)[:, None])
    for changed in (decide(name, shifted, calibration), decide(name, observations, moved)):
        np.testing.assert_allclose(probabilities(changed), plain, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), constants=st.lists(st.floats(-50, 50), min_size=12, max_size=12))
def test_constants_in_calibration_scores_change_no_decision_in_the_log_domain(
    seed: int, constants: list[float]
) -> None:
    seen = make_calibration_observations(seed)
    raw = replace(seen, log_probs=seen.log_probs + np.array(constants)[:, None])
    tested = make_observations(seed + 1)
    plain, other = (fit_calibration(rows, make_identity(4)) for rows in (seen, raw))
    for name in ("pride", "agd"):
        np.testing.assert_allclose(
            probabilities(decide(name, tested, other)), probabilities(decide(name, tested, plain)), atol=1e-8
        )


def test_mixing_probabilities_needs_normalised_scores() -> None:
    observations, calibration = make_observations(0), make_calibration(0)
    options = DecisionOptions(mixture="prob")
    decide("agd", observations, calibration, options)
    raw = replace(observations, log_probs=observations.log_probs + 1.0)
    with pytest.raises(DecisionError, match="sum to 1"):
        decide("agd", raw, calibration, options)
    decide("agd", raw, calibration)
    seen = make_calibration_observations(0)
    of_raw = fit_calibration(replace(seen, log_probs=seen.log_probs + 9.0), make_identity(4))
    with pytest.raises(DecisionError, match="sum to 1"):
        decide("agd", observations, of_raw, options)


def test_mixtures_agree_when_the_posterior_is_certain_and_differ_when_not() -> None:
    bias = np.random.default_rng(0).normal(size=(3, 3))
    certain = np.array([[-800.0, 0.0, -800.0]])
    for mixture in ("log", "prob"):
        assert expected_bias(certain, bias, mixture) == pytest.approx(bias[1:2], abs=1e-12)  # type: ignore[arg-type]
    torn = np.log([[0.5, 0.5, 1e-12]])
    # Jensen: the log of a mean is at least the mean of the logs
    assert (expected_bias(torn, bias, "prob") > expected_bias(torn, bias, "log")).all()
    huge = expected_bias(torn, bias + 2000.0, "prob") - 2000.0
    assert huge == pytest.approx(expected_bias(torn, bias, "prob"), abs=1e-9)


def test_probabilities() -> None:
    scores = np.array([[1000.0, 1000.0 + np.log(3)], [-1000.0, -1000.0]])
    assert probabilities(scores) == pytest.approx(np.array([[0.25, 0.75], [0.5, 0.5]]))


def test_picks_are_candidates_and_ties_go_to_the_lowest_candidate() -> None:
    orders = np.array([[2, 0, 1], [1, 2, 0], [1, 2, 0]])
    scores = np.array([[0.9, 0.1, 0.2], [0.5, 0.1, 0.5], [0.5, 0.5, 0.1]])
    assert picks(scores, orders).tolist() == [2, 0, 1]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(2, 9))
def test_to_candidates_is_the_inverse_of_ordering(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    by_candidate = rng.normal(size=(3, 2, count))
    orders = rng.permuted(np.tile(np.arange(count), (3, 2, 1)), axis=-1)
    by_position = np.take_along_axis(by_candidate, orders, axis=-1)
    assert np.array_equal(to_candidates(by_position, orders), by_candidate)
    assert np.array_equal(picks(by_position, orders), by_candidate.argmax(axis=-1))
