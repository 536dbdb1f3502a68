"""The test of position dependence: exact where there is none, and sure where there is some."""

import numpy as np
import pytest

from lad.diagnose.dependence import position_dependence
from lad.errors import RunError
from tests.diagnose.invented import make_observations


def test_without_dependence_p_values_are_uniform():
    values = [
        position_dependence(make_observations(seed, samples=20, noise=1.0), permutations=99, seed=seed).p_value
        for seed in range(60)
    ]
    assert np.mean(np.array(values) <= 0.1) < 0.2
    assert 0.35 < np.mean(values) < 0.65


def test_content_alone_is_no_dependence():
    """Scores that follow the images exactly, however unequal the images are."""
    found = [position_dependence(make_observations(seed, samples=20), permutations=199) for seed in range(40)]
    assert sum(one.p_value < 0.05 for one in found) <= 4
    assert np.median([one.strength for one in found]) < 0.06


def test_two_images_leave_nothing_to_chance():
    found = position_dependence(make_observations(0, count=2))
    assert (found.p_value, found.conditional) == (1, 0)
    assert found.strength == pytest.approx(0, abs=1e-9)


def test_saying_the_one_after_the_right_one_is_found():
    """Such a bias treats all positions alike, and yet depends on them."""
    after = np.roll(np.eye(4), 1, axis=1)
    found = position_dependence(make_observations(4, samples=30, noise=0.3, bias=after))
    assert found.p_value < 0.01
    assert found.effect[1, 2] - found.effect[1, 3] == pytest.approx(1, abs=0.25)


def test_a_planted_effect_is_found_with_its_size():
    rng = np.random.default_rng(3)
    bias = rng.normal(size=(5, 5))
    bias -= bias.mean(axis=1, keepdims=True)
    found = position_dependence(make_observations(1, samples=200, count=5, noise=0.3, bias=bias))
    assert found.p_value == pytest.approx(0.002)
    # an image's own mean over positions belongs to the image: that is a constant of the diagonal and one beside it
    beside = ~np.eye(5, dtype=bool)
    wanted = bias - np.where(beside, bias[beside].mean(), np.diagonal(bias).mean())
    assert np.abs(found.effect - wanted).max() < 0.35
    assert found.strength == pytest.approx(np.sqrt((wanted**2).mean()), rel=0.15)


def test_a_prior_over_positions_is_not_conditional():
    prior = np.tile(np.array([1.0, -1, 0.5, -0.5]), (4, 1))
    found = position_dependence(make_observations(2, samples=50, noise=0.1, bias=prior))
    assert found.p_value == pytest.approx(0.002)
    assert found.conditional < 0.1


def test_every_position_must_be_visited():
    seen = make_observations(0, samples=3)
    with pytest.raises(RunError, match="all cyclic shifts"):
        position_dependence(seen.take(np.arange(len(seen) - 1)))
