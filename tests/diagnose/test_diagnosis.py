"""What a diagnosis says of models whose bias is known."""

import json

import numpy as np
import pytest

from lad.diagnose.diagnosis import diagnose
from lad.diagnose.page import findings, make_page
from lad.errors import CalibrationError
from lad.report.html import report_html
from tests.decisions.factory import make_identity
from tests.diagnose.invented import make_observations

COUNT = 4
FACTS = {
    "model": "invented",
    "revision": "r",
    "parameters": "1M",
    "device": "cpu",
    "dtype": "float32",
    "versions": "none",
}
# probabilities of what is said (column) for each true position (row), graded
PLANTED = np.array(
    [[0.55, 0.25, 0.15, 0.05], [0.10, 0.25, 0.60, 0.05], [0.05, 0.05, 0.80, 0.10], [0.05, 0.10, 0.55, 0.30]]
)


def planted(seed, samples=40, name="s"):
    """A model that says exactly what is planted, whatever it is shown, but attends to the answer."""
    return make_observations(seed, samples=samples, signal=0.0, bias=np.log(PLANTED), name=name)


@pytest.fixture(scope="module")
def biased():
    return diagnose(planted(0), planted(1, 10, "c"), make_identity(COUNT))


@pytest.fixture(scope="module")
def fair():
    options = {"noise": 0.5, "signal": 1.5}
    return diagnose(
        make_observations(0, **options), make_observations(1, samples=10, name="c", **options), make_identity(COUNT)
    )


def test_a_planted_matrix_is_recovered(biased):
    assert biased.verdict == "strongly biased"
    assert np.abs(biased.profile - PLANTED).mean() < 0.06
    # where truth and bias agree nothing tells them apart, so rows are compared
    beside = ~np.eye(COUNT, dtype=bool)
    for i in range(COUNT):
        mine, theirs = biased.bias[i][beside[i]], np.log(PLANTED)[i][beside[i]]
        assert mine - mine.mean() == pytest.approx(theirs - theirs.mean(), abs=0.3)


def test_a_biased_model_is_called_biased(biased):
    said = findings(biased)
    assert said[0].startswith("Strongly position-biased")
    assert "It says 3 in" in said[0]
    assert biased.dependence.conditional > 0.2
    assert said[1].startswith("Its attention knows better")
    assert "layer 2" in said[1]
    assert said[2].startswith("AGD would gain +")
    assert biased.find("agd").metrics.accuracy > 95
    assert biased.find("agd").gain[1][0] > 0


def test_an_unbiased_model_is_called_unbiased(fair):
    assert fair.verdict == "unbiased"
    assert findings(fair)[0].startswith("Unbiased: over 40 samples")
    assert fair.dependence.p_value >= 0.01
    # it errs, but wherever the images stand
    assert 50 < fair.find("vanilla").metrics.accuracy < 99


def test_an_unbiased_model_is_seldom_called_biased():
    verdicts = [
        diagnose(
            make_observations(seed, samples=15, noise=0.5, signal=1.5),
            make_observations(seed + 100, samples=5, noise=0.5, name="c"),
            make_identity(COUNT),
            draws=2,
            seed=seed,
        ).verdict
        for seed in range(20)
    ]
    assert verdicts.count("unbiased") >= 18


def test_a_bias_that_moves_no_pick_is_practically_none():
    slight = np.tile(np.array([0.05, -0.05, 0.0, 0.0]), (COUNT, 1))
    found = diagnose(
        make_observations(0, signal=6.0, bias=slight),
        make_observations(1, samples=5, signal=6.0, bias=slight, name="c"),
        make_identity(COUNT),
    )
    assert found.dependence.p_value < 0.01
    assert found.verdict == "practically unbiased"
    assert "0% of its picks move" in findings(found)[0]


def test_layers_are_told_apart(biased):
    assert biased.layers.evidence.argmax() == 2
    assert biased.layers.raw[2] == 100
    assert biased.layers.raw[0] < 60
    assert biased.layers.chosen.sum() == pytest.approx(200)


def test_five_samples_are_weighed_against_more(biased):
    assert set(biased.spread) == {1, 2, 5, 10}
    assert all(len(values) == 30 for values in biased.spread.values())
    assert biased.enough is True
    few = diagnose(planted(0), planted(1, 5, "c"), make_identity(COUNT), draws=3)
    assert few.enough is None
    assert "with more at hand" in findings(few)[3]


def test_the_document_is_json_and_the_page_is_whole(biased):
    document = json.loads(json.dumps(biased.to_dict(), allow_nan=False))
    assert document["verdict"] == "strongly biased"
    assert np.array(document["profile"]).shape == (COUNT, COUNT)
    assert document["methods"][0]["method"] == "vanilla"
    page = make_page(biased, FACTS, "nothing real")
    text = report_html(page)
    assert text.count("<figure>") == 6
    assert "Strongly position-biased" in text


def test_calibration_samples_must_be_others_and_enough():
    with pytest.raises(CalibrationError, match="There are 4 calibration samples"):
        diagnose(planted(0), planted(1, 4, "c"), make_identity(COUNT))
    with pytest.raises(CalibrationError, match="s0: Is among"):
        diagnose(planted(0), planted(0), make_identity(COUNT))
