"""A benchmark as a folder: samples, the pictures where wanted, and the manifest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from lad.atomic import write_files
from lad.benchmarks.build import Benchmark
from lad.errors import SampleError
from lad.sample_files import IMAGES_FOLDER, write_samples
from lad.samples import ImageSource, Sample

Format = Literal["jsonl", "parquet"]
MANIFEST = "manifest.json"


def write_benchmark(
    folder: str | os.PathLike[str],
    benchmark: Benchmark,
    *,
    files: Iterable[Path] = (),
    disjoint_from: Iterable[Path] = (),
    file_format: Format = "jsonl",
    copy_images: bool = False,
) -> dict[str, Any]:
    """Write ``test``, ``calibration`` (where it has samples) and ``manifest.json`` into a folder.

    The same benchmark gives the same bytes. The manifest comes last, so a folder with one is complete.

    Args:
        folder: made where missing.
        benchmark: what to write.
        files: annotation files the pictures were read from; the manifest holds their digests.
        disjoint_from: files of samples whose pictures were kept out; likewise.
        file_format: of the samples.
        copy_images: copy the pictures into the folder, which may then be moved anywhere by itself. Otherwise they are
            named by their path relative to it.

    Returns:
        The manifest.

    Raises:
        SampleError: the format does not exist.
        OSError: the disk is full, or the folder may not be written to.
    """
    from lad import __version__

    if file_format not in ("jsonl", "parquet"):
        raise SampleError(f"The format {file_format!r} does not exist.", hint="Choose jsonl or parquet.")
    target = Path(folder)
    written = {}
    for split, samples in (("test", benchmark.test), ("calibration", benchmark.calibration)):
        path = target / f"{split}.{file_format}"
        if not samples:
            path.unlink(missing_ok=True)
            continue
        write_samples(path, [_with_copies(sample, target) for sample in samples] if copy_images else samples)
        written[path.name] = _sha256(path)
    for split in ("test", "calibration"):
        # what an earlier build left in the other format would be taken for this one's
        (target / f"{split}.{'parquet' if file_format == 'jsonl' else 'jsonl'}").unlink(missing_ok=True)
    manifest = {
        "lad": __version__,
        **benchmark.facts,
        "annotation_files": _named(files),
        "disjoint_from": _named(disjoint_from),
        "files": written,
        "pictures_in_both_splits": len(set(benchmark.digests["test"]) & set(benchmark.digests["calibration"])),
        "digests": benchmark.digests,
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_files({target / MANIFEST: text.encode()})
    return manifest


def _with_copies(sample: Sample, folder: Path) -> Sample:
    return replace(sample, images=tuple(_copied(image, folder) for image in sample.images))


def _copied(image: ImageSource, folder: Path) -> ImageSource:
    """The path of a copy named by the file's content; images that are no files stay."""
    if not isinstance(image, (str, os.PathLike)):
        return image
    source = Path(image)
    content = source.read_bytes()
    copy = folder / IMAGES_FOLDER / f"{hashlib.sha256(content).hexdigest()}{source.suffix.lower()}"
    if not copy.exists():
        write_files({copy: content})
    return copy


def _named(files: Iterable[Path]) -> list[dict[str, str]]:
    return [{"name": file.name, "sha256": _sha256(file)} for file in files]


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
