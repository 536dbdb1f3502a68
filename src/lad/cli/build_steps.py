"""What all verbs of `lad build` do once they have read their dataset."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lad.cli.build_options import OutputOptions, PictureOptions
from lad.errors import SampleError

if TYPE_CHECKING:
    from lad.benchmarks.build import Benchmark
    from lad.benchmarks.disk_cache import DiskCache
    from lad.benchmarks.embeddings import Encoders
    from lad.benchmarks.groups import Groups
    from lad.benchmarks.pool import Pool

PUBLISHED_ENCODER = "openai/clip-vit-large-patch14"


def build_of_pictures(pool: Pool, options: PictureOptions) -> None:
    """Make a benchmark of pictures, write it and say so."""
    from lad.benchmarks.build import build_benchmark
    from lad.benchmarks.pool import restrict
    from lad.cli.console import progress

    plan = options.plan()
    if options.images_list is not None:
        pool = restrict(pool, options.images_list)
    cache = open_cache(options, "digests")
    benchmark = build_benchmark(
        pool,
        plan,
        encoders=_encoders(options),
        cache=cache,
        excluded=excluded_digests(options, cache),
        progress=progress,
    )
    finish(benchmark, options, pool.files)


def build_of_samples(
    groups: Groups,
    options: OutputOptions,
    count: int | None,
    calibration_samples: int,
    candidates: int | None = None,
) -> None:
    """Part ready-made samples, write them and say so."""
    from lad.benchmarks.groups import build_of_groups
    from lad.cli.console import progress

    if isinstance(options, PictureOptions):
        candidates = options.candidates
        if options.setting != "random" or options.encoder or options.images_list or options.repeat:
            raise SampleError(
                "Rows with a list of images are samples already; their distractors are not chosen anew.",
                where=groups.name,
                hint="Leave --setting, --encoder, --images-list and --repeat out, or name a column with one image.",
            )
    cache = open_cache(options, "digests")
    benchmark = build_of_groups(
        groups,
        candidates=candidates,
        count=count,
        calibration_samples=calibration_samples,
        cache=cache,
        excluded=excluded_digests(options, cache),
        progress=progress,
    )
    finish(benchmark, options, groups.files)


@contextmanager
def without_leftovers(extracted: Path, options: OutputOptions) -> Iterator[None]:
    """Remove what was put into ``extracted`` meanwhile and is in no sample that was written."""
    from lad.sample_files import read_samples

    before = set(extracted.iterdir()) if extracted.is_dir() else set()
    try:
        yield
    finally:
        files = [options.out / f"{split}.{options.file_format}" for split in ("test", "calibration")]
        used = {
            os.path.realpath(image)
            for file in files
            if file.is_file()
            for sample in read_samples(file)
            for image in sample.images
            if isinstance(image, Path)
        }
        for file in set(extracted.iterdir()) - before if extracted.is_dir() else ():
            if os.path.realpath(file) not in used:
                file.unlink()


def open_cache(options: OutputOptions, name: str) -> DiskCache:
    """One of the caches in the cache folder."""
    from lad.benchmarks.disk_cache import DiskCache, default_cache

    return DiskCache((options.cache or default_cache()) / name)


def excluded_digests(options: OutputOptions, cache: DiskCache) -> set[str]:
    """What the pictures of the files named by ``--disjoint-from`` show."""
    from lad.benchmarks.contents import digest_images
    from lad.sample_files import read_samples

    images = {
        image: None
        for file in options.disjoint_from or ()
        for sample in read_samples(file)
        for image in sample.images
        if isinstance(image, (Path, bytes))
    }
    return {digest for digest in digest_images(list(images), cache=cache) if digest is not None}


def finish(benchmark: Benchmark, options: OutputOptions, files: Sequence[Path]) -> None:
    """Write samples, manifest and preview; print what was made."""
    from lad.benchmarks.benchmark_files import write_benchmark
    from lad.cli.console import print_json

    manifest = write_benchmark(
        options.out,
        benchmark,
        files=files,
        disjoint_from=options.disjoint_from or (),
        file_format=options.file_format,
        copy_images=options.copy_images,
    )
    if options.preview is not None:
        from lad.benchmarks.preview import write_preview

        write_preview(options.out / "preview.html", benchmark, options.preview)
    if options.json:
        print_json({key: value for key, value in manifest.items() if key != "digests"})
    else:
        _tell(manifest, options)


def _tell(manifest: dict[str, Any], options: OutputOptions) -> None:
    from lad.cli.console import console, make_table

    out = console()
    table = make_table(None, ("split", "samples", "pictures", "shown", "similarity"))
    for split, facts in manifest["splits"].items():
        similarity = facts.get("image_similarity")
        table.add_row(
            split,
            str(facts["samples"]),
            str(facts.get("pictures", facts["pictures_shown"])),
            str(facts["pictures_shown"]),
            "-" if similarity is None else f"{similarity:.3f}",
        )
    out.print(table)
    for reason, number in manifest["source"]["left_out"].items():
        out.print(f"{number} left out: {reason}.")
    for split, facts in manifest["splits"].items():
        if lacking := facts.get("left_out"):
            names = ", ".join(item["picture"] for item in lacking[:5])
            more = f" and {len(lacking) - 5} more (see the manifest)" if len(lacking) > 5 else ""
            out.print(f"{split}: {len(lacking)} not asked about, too few eligible distractors: {names}{more}.")
    out.print(f"Written to {options.out}. No picture is in both splits.")


def _encoders(options: PictureOptions) -> Encoders | None:
    if options.encoder is None and options.setting == "random":
        return None
    from transformers.utils import logging

    from lad.benchmarks.disk_cache import default_cache
    from lad.benchmarks.embeddings import Encoders
    from lad.benchmarks.encoders import load_encoder

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    image = load_encoder(options.encoder or PUBLISHED_ENCODER, device=options.device)
    text = image if options.text_encoder is None else load_encoder(options.text_encoder, device=options.device)
    return Encoders(image, text, (options.cache or default_cache()) / "embeddings")
