"""Ready-made samples: datasets whose items are already a text and several candidates."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lad.benchmarks.build import Benchmark, ProgressBar, no_progress
from lad.benchmarks.contents import digest_images
from lad.benchmarks.disk_cache import DiskCache
from lad.errors import SampleError
from lad.samples import Sample


@dataclass(frozen=True)
class Groups:
    """The samples of a dataset, labelled.

    Attributes:
        name: short name of the dataset.
        samples: in the dataset's order.
        calibration: samples of the dataset's own calibration split, where it has one.
        files: the files they were read from.
        left_out: reason -> how many items of the dataset were not taken.
        read: the options they were read with; JSON values.
    """

    name: str
    samples: tuple[Sample, ...]
    calibration: tuple[Sample, ...] = ()
    files: tuple[Path, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)
    read: dict[str, Any] = field(default_factory=dict)


def build_of_groups(
    groups: Groups,
    *,
    candidates: int | None = None,
    count: int | None = None,
    calibration_samples: int = 5,
    cache: DiskCache | None = None,
    excluded: Iterable[str] = (),
    progress: ProgressBar = no_progress,
) -> Benchmark:
    """Part ready-made samples into a test split and a calibration split that share no picture.

    Without a calibration split of the dataset's own, ``calibration_samples`` samples of each N are set apart: which
    ones follows from what they show alone. Samples that share a picture with them are left out of the test split and
    counted. A split of the dataset's own that shares a picture with its test split is refused.

    Args:
        groups: the samples.
        candidates: take only samples of this N.
        count: most samples in the test split.
        calibration_samples: for each N; 0 sets none apart.
        cache: keeps the digests of files.
        excluded: digests of pictures that must not be shown.
        progress: shows how far it is.

    Raises:
        SampleError: no sample remains for a split, or the two splits share a picture.
        ImageError: a picture cannot be read.
    """
    left_out = dict(groups.left_out)
    everything = [*groups.samples, *groups.calibration]
    images = [image for sample in everything for image in sample.images]
    with progress("Reading pictures", len(images)) as advance:
        digests = digest_images(images, cache=cache, progress=advance)
    place, shown = 0, []
    for sample in everything:
        shown.append(tuple(digest for digest in digests[place : place + len(sample)] if digest is not None))
        place += len(sample)
    gone = set(excluded)
    kept: list[int] = []
    for index, sample in enumerate(everything):
        reason = _unfit(sample, shown[index], candidates, gone)
        if reason is None:
            kept.append(index)
        else:
            left_out[reason] = left_out.get(reason, 0) + 1
    own = len(groups.samples)
    test = [index for index in kept if index < own]
    calibration = [index for index in kept if index >= own]
    if not groups.calibration and calibration_samples:
        calibration = _set_apart(test, everything, shown, calibration_samples)
        taken = {digest for index in calibration for digest in shown[index]}
        rest = [index for index in test if index not in set(calibration)]
        test = [index for index in rest if not taken.intersection(shown[index])]
        if len(test) < len(rest):
            left_out["shares a picture with the calibration split"] = len(rest) - len(test)
    if not test:
        reasons = ", ".join(f"{reason}: {number}" for reason, number in left_out.items())
        raise SampleError(f"No sample is left for the test split ({reasons or 'there are none'}).", where=groups.name)
    test = test[:count]
    splits = {"test": test, "calibration": calibration}
    used = {
        split: sorted({digest for index in indices for digest in shown[index]}) for split, indices in splits.items()
    }
    facts: dict[str, Any] = {
        "source": {"name": groups.name, "read": groups.read, "samples": len(everything), "left_out": left_out},
        "plan": {"candidates": candidates, "count": count, "calibration_samples": calibration_samples},
        "splits": {
            split: {"samples": len(indices), "pictures_shown": len(used[split])} for split, indices in splits.items()
        },
    }
    return Benchmark([everything[index] for index in test], [everything[index] for index in calibration], facts, used)


def _unfit(sample: Sample, shown: Sequence[str], candidates: int | None, excluded: set[str]) -> str | None:
    """Why a sample cannot be used, or None."""
    if sample.answer is None:
        return "without an answer"
    if candidates is not None and len(sample) != candidates:
        return "another number of candidates"
    if len(set(shown)) < len(shown):
        return "shows the same picture twice"
    return "excluded" if excluded.intersection(shown) else None


def _set_apart(
    indices: Sequence[int], samples: Sequence[Sample], shown: Sequence[Sequence[str]], count: int
) -> list[int]:
    """``count`` samples of each N, chosen by what they show; of each N at least one must be left."""

    def rank(index: int) -> bytes:
        return hashlib.sha256(" ".join([*sorted(shown[index]), samples[index].caption]).encode()).digest()

    chosen: list[int] = []
    for size in sorted({len(samples[index]) for index in indices}):
        same = sorted((index for index in indices if len(samples[index]) == size), key=rank)
        if len(same) <= count:
            raise SampleError(
                f"{len(same)} samples of {size} candidates are too few to set {count} apart for calibration.",
                hint="Choose another number of candidates, or fewer calibration samples.",
            )
        chosen += same[:count]
    return sorted(chosen)
