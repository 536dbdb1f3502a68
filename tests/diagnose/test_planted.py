"""The planted model, whose bias is known, is diagnosed truthfully; so is one that has none."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from lad.benchmarks.scenes import scene_samples
from lad.decisions import permutation_average
from lad.diagnose.diagnosis import diagnose
from lad.diagnose.observing import observe_for_diagnosis, shuffled
from lad.model.observe import observe
from lad.observations import Observations
from lad.prompts import MATCHING
from lad.ranker import load
from lad.samples import cyclic_orders
from training.planted import planted_matrix

FOLDER = Path(__file__).parent.parent / "assets" / "planted"


def observed(vlm, count, samples=24):
    return observe_for_diagnosis(
        vlm, scene_samples(samples, count), scene_samples(5, count, split="calibration"), seed=1
    )


@pytest.fixture(scope="module")
def shipped():
    return observed(load(), 4)


@pytest.mark.parametrize("count", [4, 8])
def test_the_planted_matrix_is_recovered(count):
    found = diagnose(*observed(load(FOLDER), count), draws=2)
    assert found.verdict == "strongly biased"
    assert np.abs(found.profile - planted_matrix(count)).mean() <= 0.06


def test_the_shipped_model_is_another(shipped):
    found = diagnose(*shipped, draws=2)
    assert np.abs(found.profile - planted_matrix(4)).mean() > 0.1


def test_the_shipped_model_without_its_bias_is_unbiased():
    """Averaged over all orders, what each image gets is the same at every position."""
    vlm = load()
    fair = [
        _averaged(vlm, scene_samples(number, 3, split=split)) for number, split in ((24, "test"), (5, "calibration"))
    ]
    identity = vlm.identity(MATCHING, ("1", "2", "3"))
    assert diagnose(*fair, identity, draws=2).verdict == "unbiased"


def _averaged(vlm, samples):
    everything = np.array(list(itertools.permutations(range(3))))
    seen = observe(vlm, shuffled(samples, seed=5), everything)
    by_candidate = permutation_average(seen.log_probs.reshape(-1, 6, 3), seen.orders.reshape(-1, 6, 3))
    shown = seen.take([row for row, order in enumerate(seen.orders.tolist()) if order in cyclic_orders(3).tolist()])
    scores = np.take_along_axis(np.repeat(by_candidate, 3, axis=0), shown.orders, axis=1)
    return Observations(scores, shown.attention, shown.orders, shown.answers, shown.samples)


def test_shuffled_samples_keep_their_answer():
    samples = scene_samples(6, 5)
    moved = shuffled(samples, seed=2)
    assert [one.images[one.answer] for one in moved] == [one.images[one.answer] for one in samples]
    assert any(one.images != other.images for one, other in zip(moved, samples, strict=True))
    assert [one.answer for one in shuffled(samples, seed=2)] == [one.answer for one in moved]
