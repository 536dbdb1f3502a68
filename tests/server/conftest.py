from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lad.benchmarks.scenes import scene_samples
from lad.ranker import Ranker, load
from lad.samples import Sample
from tests.server.running import Running, data_uri, running

SIZES = (2, 3, 4, 8)


@pytest.fixture(scope="session")
def ranker() -> Ranker:
    """The shipped model, calibrated for a few sizes."""
    found = Ranker(load(device="cpu"))
    for size in SIZES:
        found.calibrate(scene_samples(5, size, split="calibration"))
    return found


@pytest.fixture(scope="session")
def calibrations(ranker: Ranker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the ranker's calibrations."""
    folder = tmp_path_factory.mktemp("calibrations")
    ranker.save_calibrations(folder)
    return folder


@pytest.fixture(scope="session")
def server(ranker: Ranker) -> Iterator[Running]:
    """A server with the default settings."""
    with running(ranker) as found:
        yield found


@pytest.fixture(scope="session")
def sample() -> Sample:
    """A question about four scenes."""
    return scene_samples(1, 4, seed=3)[0]


@pytest.fixture(scope="session")
def pictures(sample: Sample) -> list[str]:
    """Its images as data URIs."""
    return [data_uri(image) for image in sample.images]
