"""Make the calibrations that ship with the model: ``python -m training.calibrations``.

Digits, N = 2 to 12, each from five random scenes of the split "calibration" under all cyclic shifts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lad.benchmarks.scenes import scene_samples
from lad.model.calibrate import calibrate
from lad.model.vlm import VisionLanguageModel
from lad.ranker import shipped_calibrations

SAMPLES = 5


def main() -> None:
    """Calibrate the shipped model and write the calibrations beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=shipped_calibrations(), help="folder to write to")
    out = parser.parse_args().out
    vlm = VisionLanguageModel.load(device="cpu")
    for candidates in range(2, 13):
        samples = scene_samples(SAMPLES, candidates, split="calibration")
        print(calibrate(vlm, samples).save(out))


if __name__ == "__main__":
    main()
