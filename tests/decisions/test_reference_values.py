"""The numbers of the published implementation, through our entry points, to 1e-9."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lad.calibration import fit_calibration
from lad.decisions import DecisionOptions, decide, gather_evidence, picks, probabilities
from lad.identifiers import TokenTrie
from lad.observations import Observations
from lad.samples import cyclic_orders
from tests.decisions.factory import make_identity

_REFERENCE = json.loads((Path(__file__).parents[1] / "data/paper/reference_values.json").read_text())
_EXACT = {"rtol": 0.0, "atol": 1e-9}


def _calibration_observations(case: dict[str, Any]) -> Observations:
    """The reference scores as observations: sample s under the shift that brings its answer to position i."""
    scores = np.array(case["calibration_scores_by_answer"])
    count, samples, _ = scores.shape
    prior = np.array(case["attention_prior"])
    orders = cyclic_orders(count)
    answers = np.arange(samples) % count
    rows = [(sample, shift) for sample in range(samples) for shift in range(count)]
    positions = [(answers[sample] - shift) % count for sample, shift in rows]
    # attention that differs from row to row and has the reference's prior as its mean
    wave = np.cos(2 * np.pi * np.arange(len(rows)) / len(rows))
    return Observations(
        log_probs=np.array([scores[position, sample] for (sample, _), position in zip(rows, positions, strict=True)]),
        attention=prior * (1 + 0.5 * wave)[:, None, None],
        orders=np.array([orders[shift] for _, shift in rows]),
        answers=np.array([answers[sample] for sample, _ in rows]),
        samples=tuple(f"s{sample}" for sample, _ in rows),
    )


def _observation(case: dict[str, Any]) -> Observations:
    return Observations(
        log_probs=np.array([case["scores"]]),
        attention=np.array([case["attention"]]),
        orders=np.arange(case["n"])[None],
        answers=np.array([-1]),
        samples=("query",),
    )


def test_there_are_reference_values_of_every_kind() -> None:
    assert sorted(case["n"] for case in _REFERENCE["decision"]) == [2, 4, 4, 4, 8, 12]
    assert {10, 12} <= {case["n"] for case in _REFERENCE["identifiers"]}


@pytest.mark.parametrize("case", _REFERENCE["decision"], ids=lambda case: f"n{case['n']}")
def test_decisions(case: dict[str, Any]) -> None:
    calibration = fit_calibration(_calibration_observations(case), make_identity(case["n"]))
    np.testing.assert_allclose(calibration.bias, case["bias_matrix"], **_EXACT)
    np.testing.assert_allclose(calibration.attention_prior, case["attention_prior"], **_EXACT)
    assert calibration.samples == len(case["calibration_scores_by_answer"][0])

    observation = _observation(case)
    options = DecisionOptions(top_k=case["top_k"], temperature=case["temperature"])
    evidence = gather_evidence(observation, calibration, options)
    np.testing.assert_allclose(evidence.raw_attention, [case["raw_attention"]], **_EXACT)
    np.testing.assert_allclose(np.exp(evidence.log_purified), [case["purified_attention"]], **_EXACT)
    np.testing.assert_allclose(evidence.posterior, [case["posterior"]], **_EXACT)

    scores = {name: decide(name, observation, calibration, options) for name in ("raw_attention", "pride", "agd")}
    np.testing.assert_allclose(scores["raw_attention"], [case["raw_attention"]], **_EXACT)
    np.testing.assert_allclose(scores["agd"], [case["agd_scores"]], **_EXACT)
    np.testing.assert_allclose(scores["pride"], [case["pride_scores"]], **_EXACT)
    purified = decide("purified_attention", observation, calibration, options)
    np.testing.assert_allclose(probabilities(purified), [case["posterior"]], **_EXACT)
    for name in ("agd", "pride"):
        assert picks(scores[name], observation.orders).tolist() == [case[f"{name}_pick"]]


@pytest.mark.parametrize("case", _REFERENCE["decision"], ids=lambda case: f"n{case['n']}")
def test_normalised_log_probabilities_decide_like_raw_logits(case: dict[str, Any]) -> None:
    def normalise(observations: Observations) -> Observations:
        return replace(observations, log_probs=np.log(probabilities(observations.log_probs)))

    calibration = fit_calibration(normalise(_calibration_observations(case)), make_identity(case["n"]))
    observation = normalise(_observation(case))
    options = DecisionOptions(top_k=case["top_k"], temperature=case["temperature"])
    for name in ("agd", "pride"):
        ours = probabilities(decide(name, observation, calibration, options))
        np.testing.assert_allclose(ours, probabilities(np.array([case[f"{name}_scores"]])), **_EXACT)


@pytest.mark.parametrize("case", _REFERENCE["identifiers"], ids=lambda case: f"n{case['n']}")
def test_identifier_probabilities(case: dict[str, Any]) -> None:
    sequences = [[int(digit) for digit in str(number)] for number in range(1, case["n"] + 1)]
    trie = TokenTrie(sequences, case["end_token"])
    logits = []
    for branch in trie.branches:
        steps = [case["first_step_logits"], case["second_step_logits"].get("".join(map(str, branch.prefix)))]
        logits.append(np.array(steps[len(branch.prefix)])[list(branch.continuations)])
    log_probs = trie.log_probs(logits)
    np.testing.assert_allclose(log_probs, case["log_probs"], **_EXACT)
    np.testing.assert_allclose(np.exp(log_probs).sum(), 1.0, **_EXACT)
