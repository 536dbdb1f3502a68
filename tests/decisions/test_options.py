from __future__ import annotations

from typing import Any

import pytest

from lad.decisions import DecisionOptions
from lad.errors import DecisionError


def test_the_defaults_are_the_published_options() -> None:
    assert DecisionOptions() == DecisionOptions(
        top_k=2,
        temperature=5.0,
        layer_range=None,
        layer_choice="mass",
        purification="log_of_mean",
        mixture="log",
        use_prior=True,
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"top_k": 0}, "top_k must be a whole number of at least 1, not 0"),
        ({"temperature": 0.0}, "temperature must be a positive number"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"layer_range": (3, 2)}, r"layer_range 3\.\.2 is empty"),
        ({"layer_range": (-1, 2)}, r"layer_range -1\.\.2"),
        ({"layer_choice": "best"}, "no layer_choice 'best'.*mass, all, calibrated"),
        ({"purification": "mean"}, "no purification 'mean'.*log_of_mean, mean_of_log"),
        ({"mixture": "linear"}, "no mixture 'linear'.*log, prob"),
    ],
)
def test_options_out_of_range_are_refused(option: dict[str, Any], message: str) -> None:
    with pytest.raises(DecisionError, match=message):
        DecisionOptions(**option)


@pytest.mark.parametrize(
    ("layer_range", "depth", "layers"),
    [
        (None, 4, [0, 1, 2, 3]),
        ((1, 2), 4, [1, 2]),
        ((2, 2), 4, [2]),
        ((21, 35), 36, list(range(21, 36))),
        ((21, 35), 28, list(range(21, 28))),
        ([0, 99], 3, [0, 1, 2]),
    ],
)
def test_ranges_are_cut_at_the_depth(layer_range: Any, depth: int, layers: list[int]) -> None:
    options = DecisionOptions(layer_range=layer_range)
    assert list(options.candidate_layers(depth)) == layers
    assert hash(options) == hash(DecisionOptions(layer_range=layer_range))


def test_a_range_beyond_the_depth_is_an_error() -> None:
    with pytest.raises(DecisionError, match=r"layer_range 4\.\.9 is empty: the model has the layers 0 to 3"):
        DecisionOptions(layer_range=(4, 9)).candidate_layers(4)
