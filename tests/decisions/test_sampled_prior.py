"""PriDe's prior by its authors, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lad.decisions import position_prior, without_prior
from lad.errors import DecisionError


def test_the_prior_of_two_samples_by_hand():
    # one sample whose shifts average to log 1 and log 3, another that is even: (1/4, 3/4) and (1/2, 1/2)
    log_probs = np.log(np.array([[[1.0, 9.0], [1.0, 1.0]], [[2.0, 8.0], [8.0, 2.0]]]))
    assert position_prior(log_probs) == pytest.approx([3 / 8, 5 / 8])


def test_against_loops():
    rng = np.random.default_rng(0)
    log_probs = np.log(rng.dirichlet(np.ones(4), size=(3, 4)))
    priors = []
    for sample in log_probs:
        weights = [np.exp(sum(sample[shift][position] for shift in range(4)) / 4) for position in range(4)]
        priors.append([weight / sum(weights) for weight in weights])
    assert position_prior(log_probs) == pytest.approx(np.mean(priors, axis=0))
    assert position_prior(log_probs).sum() == pytest.approx(1)


def test_a_pure_position_bias_is_taken_off_whole():
    # log p(position) = log bias + log fit of the image there, up to a constant: then the prior is the bias
    rng = np.random.default_rng(1)
    bias, fit = rng.dirichlet(np.ones(4)), rng.normal(size=4)
    orders = (np.arange(4)[:, None] + np.arange(4)) % 4
    log_probs = np.log(bias) + fit[orders]
    prior = position_prior(log_probs[None])
    assert prior == pytest.approx(bias)
    cleaned = without_prior(log_probs, prior)
    assert cleaned - cleaned.mean(1, keepdims=True) == pytest.approx(fit[orders] - fit.mean())


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 3, 4), (3, 3)])
def test_a_prior_needs_all_shifts(shape):
    with pytest.raises(DecisionError, match="cyclic shifts"):
        position_prior(np.zeros(shape))


@pytest.mark.parametrize("prior", [[0.5, 0.5], [1.0, 0.0, 0.0], [0.5, 0.5, np.nan]])
def test_a_prior_must_fit(prior):
    with pytest.raises(DecisionError, match="3 positive numbers"):
        without_prior(np.zeros((2, 3)), np.array(prior))
