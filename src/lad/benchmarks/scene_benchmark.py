"""The synthetic scenes as a benchmark like any other."""

from __future__ import annotations

from lad.benchmarks.build import Benchmark, ProgressBar, no_progress
from lad.benchmarks.contents import digest_images
from lad.benchmarks.scenes import Setting, scene_samples
from lad.samples import Sample


def build_of_scenes(
    setting: Setting = "random",
    candidates: int = 4,
    count: int = 200,
    calibration_samples: int = 5,
    seed: int = 0,
    progress: ProgressBar = no_progress,
) -> Benchmark:
    """Synthetic scenes; see :func:`lad.benchmarks.scenes.scene_samples`.

    Raises:
        SampleError: not 2 to 12 candidates.
    """
    numbers = {"test": count, "calibration": calibration_samples}
    samples: dict[str, list[Sample]] = {}
    shown: dict[str, list[str]] = {}
    with progress("Drawing scenes", sum(numbers.values()) * candidates) as advance:
        for split, number in numbers.items():
            samples[split] = scene_samples(number, candidates, setting=setting, split=split, seed=seed)  # type: ignore[arg-type]
            digests = digest_images([image for sample in samples[split] for image in sample.images], progress=advance)
            shown[split] = sorted({digest for digest in digests if digest is not None})
    facts = {
        "source": {"name": "scenes", "left_out": {}},
        "plan": {
            "setting": setting,
            "candidates": candidates,
            "count": count,
            "calibration_samples": calibration_samples,
            "seed": seed,
        },
        "splits": {split: {"samples": len(samples[split]), "pictures_shown": len(shown[split])} for split in numbers},
    }
    return Benchmark(samples["test"], samples["calibration"], facts, shown)
