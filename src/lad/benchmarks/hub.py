"""Datasets of the Hugging Face hub, `datasets` folders and Parquet files, by the names of their columns."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError

from lad.atomic import write_files
from lad.benchmarks.folder import captions_of, categories_of
from lad.benchmarks.groups import Groups
from lad.benchmarks.pool import Picture, Pool, make_pool
from lad.errors import DependencyError, ImageError, SampleError
from lad.samples import Sample

_ROWS = 64
_IMAGE_COLUMNS = ("images", "image")


@dataclass(frozen=True)
class Columns:
    """Names of columns; None takes the usual ones.

    Attributes:
        image: one image, or a list of candidates ("images" or "image").
        caption: a text or a list of texts ("caption", "captions" or "text").
        answer: index of the right candidate, counted from 0.
    """

    image: str | None = None
    caption: str | None = None
    answer: str = "answer"


def read_hub(
    source: str | os.PathLike[str],
    extracted: Path,
    *,
    columns: Columns = Columns(),
    split: str = "test",
    calibration_split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
) -> Pool | Groups:
    """Read a dataset: pictures where a row has one image, ready-made samples where it has a list of them.

    Images that lie in the dataset itself are written out as files, byte by byte, named by their content.

    Args:
        source: a ``.parquet`` file, a folder (made by ``save_to_disk``, or of Parquet files), or a name on the hub.
        extracted: folder for such images; made when needed.
        columns: which columns hold what.
        split: the split to take; a Parquet file has none.
        calibration_split: the dataset's own calibration split; for ready-made samples only.
        config: name of a configuration of the dataset.
        revision: branch, tag or commit on the hub.

    Raises:
        SampleError: not found, a column is missing, or a row cannot be used.
        DependencyError: `datasets` is needed and not installed.
    """
    place = os.fspath(source)
    name = Path(place).stem if Path(place).exists() else place.rsplit("/", 1)[-1]
    file = Path(place)
    is_file = file.suffix.lower() == ".parquet"
    if is_file and calibration_split is not None:
        raise SampleError("A Parquet file has no splits.", where=place, hint="Leave the calibration split out.")
    files = (file,) if is_file else ()
    facts = {**asdict(columns), "split": split, "calibration_split": calibration_split}
    facts |= {"config": config, "revision": revision}

    def rows(chosen: str) -> Iterator[tuple[str, dict[str, Any]]]:
        found = _parquet_rows(file) if is_file else _dataset_rows(place, chosen, config, revision)
        for number, row in enumerate(found):
            yield (f"{place}, row {number}" if is_file else f"{place}, {chosen}[{number}]"), row

    base = file if file.is_dir() else file.absolute().parent
    read = _read_rows(rows(split), columns, extracted, base, f"{name}-{split}")
    samples = tuple(item for item in read if isinstance(item, Sample))
    pictures = [item for item in read if isinstance(item, Picture)]
    if samples and pictures:
        raise SampleError("Some rows have one image, others a list.", where=place)
    if not samples:
        if calibration_split is not None:
            raise SampleError(
                "The calibration split of pictures is made, not taken.", where=place, hint="Leave it out."
            )
        return replace(make_pool(name, pictures, files=files, left_out={}), read=facts)
    own: tuple[Sample, ...] = ()
    if calibration_split is not None:
        found = _read_rows(rows(calibration_split), columns, extracted, base, f"{name}-{calibration_split}")
        own = tuple(item for item in found if isinstance(item, Sample))
    return Groups(name, samples, own, files, read=facts)


def _read_rows(
    rows: Iterable[tuple[str, dict[str, Any]]], columns: Columns, extracted: Path, base: Path, prefix: str
) -> list[Picture | Sample]:
    read: list[Picture | Sample] = []
    for number, (place, row) in enumerate(rows):
        column = columns.image or next((name for name in _IMAGE_COLUMNS if name in row), None)
        if column is None or column not in row:
            raise SampleError(
                f"The column {column or 'image'!r} is missing.", where=place, hint=f"There are: {', '.join(row)}."
            )
        value = row[column]
        captions = captions_of(row, columns.caption, place)
        name = f"{prefix}-{number:05d}"
        if not isinstance(value, list):
            image = _to_file(value, extracted, base, place)
            read.append(Picture(name, image, captions, categories_of(row, place)))
            continue
        answer = row.get(columns.answer)
        if answer is not None and (not isinstance(answer, int) or isinstance(answer, bool)):
            raise SampleError(f"The {columns.answer} must be a whole number, not {answer!r:.40}.", where=place)
        if len(captions) != 1:
            raise SampleError(f"Needs one caption, not {len(captions)}.", where=place)
        images = [_to_file(item, extracted, base, f"{place}, image {index}") for index, item in enumerate(value)]
        try:
            read.append(Sample(captions[0], tuple(images), answer, name))
        except SampleError as error:
            raise SampleError(error.what, where=place, hint=error.hint) from error
    if not read:
        raise SampleError("Has no rows.", where=prefix)
    return read


def _parquet_rows(file: Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=_ROWS):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise SampleError(f"Is no readable Parquet file ({error}).", where=str(file)) from error


def _dataset_rows(place: str, split: str, config: str | None, revision: str | None) -> Iterator[dict[str, Any]]:
    try:
        import datasets
    except ImportError as error:
        raise DependencyError("datasets", "datasets") from error
    folder = Path(place)
    saved = any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))
    try:
        if saved:
            found = datasets.load_from_disk(place)
            if isinstance(found, datasets.DatasetDict):
                found = found[split]
        else:
            # a folder is read as it is now: the library's copy of it may be of an earlier state
            found = datasets.load_dataset(place, name=config, split=split, revision=revision, streaming=folder.is_dir())
    except Exception as error:  # the library raises almost anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise SampleError(
            f"The split {split!r} cannot be loaded: {lines[0]}", where=place, hint="Check the name and the split."
        ) from error
    # as Arrow, images come as they are stored: not decoded, and not encoded anew
    for table in found.with_format("arrow").iter(batch_size=_ROWS):
        yield from table.to_pylist()


def _to_file(value: Any, extracted: Path, base: Path, place: str) -> Path:
    """The file of an image given by its path, its bytes, or a struct of both."""
    content, path = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, value)
    if isinstance(content, bytes):
        try:
            with Image.open(BytesIO(content)) as image:
                kind = (image.format or "img").lower()
        except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
            raise ImageError("Is not an image of a known format.", where=place) from error
        file = extracted / f"{hashlib.sha256(content).hexdigest()}.{'jpg' if kind == 'jpeg' else kind}"
        if not file.exists():
            write_files({file: content})
        return file
    if isinstance(path, str) and path:
        return base / path
    raise SampleError("Has no image: neither bytes nor a path.", where=place)
