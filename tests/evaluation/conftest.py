from __future__ import annotations

import pytest

from lad.benchmarks.scenes import scene_samples
from lad.ranker import load


@pytest.fixture(scope="session")
def vlm():
    """The model that ships with lad."""
    return load()


@pytest.fixture(scope="session")
def scenes(vlm):
    """Makes prepared scenes: ``scenes(number, candidates)``."""

    def make(number, candidates, setting="random", split="test", seed=0):
        samples = scene_samples(number, candidates, setting=setting, split=split, seed=seed)
        return [vlm.prepare_sample(sample) for sample in samples]

    return make
