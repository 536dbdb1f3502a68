"""Files of samples: JSONL and Parquet, in and out.

A JSONL file has one JSON object a line::

    {"caption": "a dog on a beach", "images": ["dog.jpg", "cat.jpg"], "answer": 0, "id": "beach-1"}

``images`` are paths, relative to the file. ``answer`` counts from 0 and may be left out, as may ``id``. Other keys are
ignored. A Parquet file has columns of the same names; its images are paths, the bytes of image files, or structs of
``bytes`` and ``path``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from lad.atomic import write_files
from lad.errors import SampleError
from lad.images import image_digest, is_address, load_image
from lad.samples import ImageSource, Sample

IMAGES_FOLDER = "images"
"""Where :func:`write_samples` puts pictures that have no file of their own."""

_KINDS = {
    bool: "true or false",
    dict: "an object",
    float: "a number",
    int: "a number",
    list: "a list",
    str: "a text",
    type(None): "nothing",
}


def read_samples(path: str | os.PathLike[str]) -> list[Sample]:
    """Read the samples of a ``.jsonl`` or ``.parquet`` file, in their order.

    Images are not opened; their paths come back absolute. A sample without an ``id`` is called after the file
    and its line (Parquet: row), counted from 1: "name:12".

    Raises:
        SampleError: the file is missing, empty, broken or of another kind, or a sample is not usable. The message
            names the file and the line.
    """
    file = Path(path)
    readers = {".jsonl": _jsonl_records, ".parquet": _parquet_records}
    if file.suffix.lower() not in readers:
        raise SampleError(
            "Is not a file of samples by its name.", where=str(path), hint=f"Known endings: {', '.join(readers)}."
        )
    samples: list[Sample] = []
    place_of: dict[str, str] = {}
    try:
        for number, place, record in readers[file.suffix.lower()](file):
            sample = _to_sample(record, place, default_id=f"{file.stem}:{number}", folder=file.absolute().parent)
            if sample.id in place_of:
                raise SampleError(f"The id {sample.id!r} stands at {place_of[sample.id]} already.", where=place)
            place_of[sample.id] = place
            samples.append(sample)
    except OSError as error:
        raise SampleError(f"Cannot be read ({error.strerror or error}).", where=str(path)) from error
    if not samples:
        raise SampleError("Holds no samples.", where=str(path))
    return samples


def write_samples(path: str | os.PathLike[str], samples: Sequence[Sample]) -> None:
    """Write samples to a ``.jsonl`` or ``.parquet`` file that :func:`read_samples` reads.

    Images given by path are named relative to the file. All others are kept as PNG in a folder ``images`` beside
    it, named by what they show (:func:`lad.images.image_digest`), so that a picture used twice is kept once. The file
    appears whole or not at all, after its images.

    Raises:
        SampleError: no samples, an id used twice, an image given by an address, or another ending.
        ImageError: an image that has no file of its own cannot be read.
        OSError: the disk is full, or the folder may not be written to.
    """
    file = Path(path)
    encoders = {".jsonl": _to_jsonl, ".parquet": _to_parquet}
    if file.suffix.lower() not in encoders:
        raise SampleError(f"Samples are written to files whose names end in {' or '.join(encoders)}.", where=str(path))
    if not samples:
        raise SampleError("There are no samples to write.", where=str(path))
    known: set[str] = set()
    records = []
    for index, sample in enumerate(samples):
        if sample.id in known:
            raise SampleError(f"The id {sample.id!r} is used twice.", where=f"sample {index}")
        known.update([sample.id] if sample.id else [])
        record: dict[str, Any] = {"id": sample.id} if sample.id else {}
        record["caption"] = sample.caption
        record["images"] = [
            _path_for(image, file.absolute().parent, where=f"sample {sample.id or index}, image {number}")
            for number, image in enumerate(sample.images)
        ]
        if sample.answer is not None:
            record["answer"] = int(sample.answer)
        records.append(record)
    write_files({file: encoders[file.suffix.lower()](records)})


def _to_jsonl(records: Sequence[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def _to_parquet(records: Sequence[dict[str, Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"id": pa.string(), "caption": pa.string(), "images": pa.list_(pa.string()), "answer": pa.int64()}
    table = pa.table({name: pa.array([record.get(name) for record in records], kind) for name, kind in kinds.items()})
    buffer = BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def _jsonl_records(file: Path) -> Iterator[tuple[int, str, Any]]:
    """Line number, place for messages and value of each line that is not blank."""
    # Split at line feeds alone: a JSON text may hold other characters that str.splitlines takes for ends of lines.
    for number, line in enumerate(file.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            place = f"{file}:{number}"
            try:
                yield number, place, json.loads(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise SampleError(f"Is not UTF-8 ({error.reason}).", where=place) from error
            except json.JSONDecodeError as error:
                raise SampleError(f"Is no valid JSON ({error.msg}, column {error.colno}).", where=place) from error
            except (ValueError, RecursionError) as error:  # a number of thousands of digits, lists in lists in lists
                raise SampleError(f"Is no usable JSON ({error}).", where=place) from error


def _parquet_records(file: Path) -> Iterator[tuple[int, str, Any]]:
    """Row number, place for messages and values of each row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with file.open("rb") as handle:
        try:
            table = pq.ParquetFile(handle)
            columns = [name for name in ("caption", "images", "answer", "id") if name in table.schema_arrow.names]
            rows: list[dict[str, Any]] = table.read(columns=columns).to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise SampleError(f"Is no readable Parquet file ({error}).", where=str(file)) from error
    for number, row in enumerate(rows, start=1):
        if isinstance(row.get("images"), list):
            row["images"] = [_from_struct(image) for image in row["images"]]
        yield number, f"{file}, row {number}", row


def _from_struct(image: Any) -> Any:
    """What a struct of ``bytes`` and ``path`` stands for: the bytes, where it has them."""
    if not isinstance(image, dict):
        return image
    return image.get("path") if image.get("bytes") is None else image["bytes"]


def _to_sample(record: Any, place: str, *, default_id: str, folder: Path) -> Sample:
    if not isinstance(record, dict):
        raise SampleError(f"Must be an object with the keys caption and images, not {_kind(record)}.", where=place)
    for key in ("caption", "images"):
        if key not in record:
            raise SampleError(f"The key {key!r} is missing.", where=place)
    caption, images = record["caption"], record["images"]
    answer, name = record.get("answer"), record.get("id")
    name = default_id if name is None else name
    if not isinstance(caption, str):
        raise SampleError(f"The caption must be a text, not {_kind(caption)}.", where=place)
    if not isinstance(images, list):
        raise SampleError(f"The images must be a list, not {_kind(images)}.", where=place)
    if answer is not None and (not isinstance(answer, int) or isinstance(answer, bool)):
        raise SampleError(
            f"The answer must be a whole number, not {answer!r}.", where=place, hint="It counts the images from 0."
        )
    if not isinstance(name, str) or not name:
        raise SampleError(f"The id must be a text that is not empty, not {_kind(name)}.", where=place)
    sources = [_to_source(image, folder, where=f"{place}, image {index}") for index, image in enumerate(images)]
    try:
        return Sample(caption=caption, images=tuple(sources), answer=answer, id=name)
    except SampleError as error:
        raise SampleError(error.what, where=place, hint=error.hint) from error


def _to_source(image: Any, folder: Path, where: str) -> ImageSource:
    """A path as an absolute one, bytes as they are."""
    if isinstance(image, bytes):
        return image
    if not isinstance(image, str) or not image:
        raise SampleError(f"An image must be given by its path, not by {_kind(image)}.", where=where)
    if is_address(image):
        raise SampleError(
            "Is an address; images are not fetched from anywhere.", where=where, hint="Give the path of a file."
        )
    return folder / image


def _path_for(image: ImageSource, folder: Path, where: str) -> str:
    """The path of an image relative to ``folder``; one without a file is given one."""
    if isinstance(image, (str, os.PathLike)):
        if is_address(os.fspath(image)):
            raise SampleError("An address is no image file.", where=where, hint="Give the path of a file.")
        return Path(os.path.relpath(image, folder)).as_posix()
    picture = load_image(image, where=where)
    name = f"{IMAGES_FOLDER}/{image_digest(picture)}.png"
    if not (folder / name).exists():
        buffer = BytesIO()
        picture.save(buffer, "PNG")
        write_files({folder / name: buffer.getvalue()})
    return name


def _kind(value: Any) -> str:
    return "an empty text" if value == "" else _KINDS.get(type(value), f"a {type(value).__name__}")
