"""Rules that other packages add."""

from __future__ import annotations

import numpy as np
import pytest

from lad.decisions import decide, find_rule, registry, rule_names
from lad.errors import DecisionError
from tests.decisions.factory import make_observations

_CODE = '''
def reversed_rule(observations, calibration, options):
    """Scores (M, N): the log-probabilities, upside down.

    More words.
    """
    return -observations.log_probs

def wrong_shape(observations, calibration, options):
    return observations.log_probs[:, :1]
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a package with these entry points, for this test alone."""

    def install(**points):
        folder = tmp_path / "rules_of_another-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: rules-of-another\nVersion: 1.0\n")
        lines = "".join(f"{name} = {value}\n" for name, value in points.items())
        (folder / "entry_points.txt").write_text(f"[lad.rules]\n{lines}")
        (tmp_path / "rules_of_another.py").write_text(_CODE)
        monkeypatch.syspath_prepend(tmp_path)
        _forget()

    yield install
    monkeypatch.undo()
    _forget()


def _forget():
    registry._offered.cache_clear()
    registry.find_rule.cache_clear()


def test_a_rule_of_another_package(package):
    package(upside_down="rules_of_another:reversed_rule")
    observations = make_observations(0)
    assert rule_names()[-1] == "upside_down"
    assert np.array_equal(decide("upside_down", observations), -observations.log_probs)
    rule = find_rule("upside_down")
    assert (rule.description, rule.passes) == ("Scores (M, N): the log-probabilities, upside down.", 1)


def test_it_is_a_method_too(package):
    from lad.evaluation.methods import find_method, method_names

    package(upside_down="rules_of_another:reversed_rule")
    assert method_names()[-1] == "upside_down"
    assert find_method("upside_down").kind == "rule"


def test_what_can_be_wrong_with_one(package):
    package(
        lost="rules_of_another:no_such",
        nowhere="no_such_package:rule",
        no_function="rules_of_another:__name__",
        narrow="rules_of_another:wrong_shape",
    )
    observations = make_observations(0)
    for name, words in {
        "lost": "cannot be loaded from rules_of_another:no_such",
        "nowhere": "ModuleNotFoundError",
        "no_function": "is no function",
        "narrow": r"must give finite scores \(7, 4\), not \(7, 1\)",
    }.items():
        with pytest.raises(DecisionError, match=words):
            decide(name, observations)
    # none of them is in the way of the others
    assert decide("vanilla", observations).shape == (7, 4)


def test_a_name_that_is_taken(package):
    package(agd="rules_of_another:reversed_rule")
    with pytest.raises(DecisionError, match=r"adds a decision rule 'agd' .*another name"):
        rule_names()
