"""Random observations and calibrations for the tests of the deciding half."""

from __future__ import annotations

import numpy as np

from lad.calibration import Calibration, CalibrationIdentity, fit_calibration
from lad.identifiers import log_softmax
from lad.observations import Observations
from lad.samples import cyclic_orders


def make_identity(count: int, **changes: object) -> CalibrationIdentity:
    values: dict[str, object] = {
        "model": "tiny",
        "revision": "r1",
        "prompt": "p1",
        "identifiers": tuple(str(number + 1) for number in range(count)),
        "candidates": count,
        "image_size": "56x56",
    }
    return CalibrationIdentity(**{**values, **changes})  # type: ignore[arg-type]


def make_observations(seed: int, rows: int = 7, layers: int = 5, count: int = 4) -> Observations:
    rng = np.random.default_rng(seed)
    return Observations(
        log_probs=log_softmax(rng.normal(size=(rows, count)) * 2),
        attention=rng.gamma(0.7, size=(rows, layers, count)) / (10 * count),
        orders=rng.permuted(np.tile(np.arange(count), (rows, 1)), axis=1),
        answers=rng.integers(count, size=rows),
        samples=tuple(f"s{row}" for row in range(rows)),
    )


def make_calibration_observations(seed: int, samples: int = 3, layers: int = 5, count: int = 4) -> Observations:
    """``samples`` samples under the N cyclic shifts, rows shuffled."""
    rng = np.random.default_rng(seed)
    rows = samples * count
    plain = Observations(
        log_probs=log_softmax(rng.normal(size=(rows, count)) * 2),
        attention=rng.gamma(0.7, size=(rows, layers, count)) / (10 * count),
        orders=np.tile(cyclic_orders(count), (samples, 1)),
        answers=np.repeat(rng.integers(count, size=samples), count),
        samples=tuple(np.repeat([f"c{index}" for index in range(samples)], count).tolist()),
    )
    return plain.take(rng.permutation(rows))


def make_calibration(seed: int, layers: int = 5, count: int = 4, average: str = "log") -> Calibration:
    observations = make_calibration_observations(seed, layers=layers, count=count)
    return fit_calibration(observations, make_identity(count), average=average)  # type: ignore[arg-type]
