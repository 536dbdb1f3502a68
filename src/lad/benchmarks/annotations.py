"""Reading annotation files: JSON, JSON lines and tables, with errors that name the file and the place."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

from lad.errors import SampleError


def read_text(file: Path) -> str:
    """The text of a UTF-8 file, without a byte order mark; ends of lines as they are.

    Raises:
        SampleError: missing, unreadable or no UTF-8.
    """
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SampleError(f"Cannot be read ({error.strerror or error}).", where=str(file)) from error
    except UnicodeDecodeError as error:
        raise SampleError(f"Is not UTF-8 ({error.reason} at byte {error.start}).", where=str(file)) from error


def read_json(file: Path) -> Any:
    """The value of a JSON file.

    Raises:
        SampleError: unreadable, or no JSON.
    """
    try:
        return json.loads(read_text(file))
    except json.JSONDecodeError as error:
        raise SampleError(f"Is no valid JSON ({error.msg}, line {error.lineno}).", where=str(file)) from error
    except (ValueError, RecursionError) as error:
        raise SampleError(f"Is no usable JSON ({error}).", where=str(file)) from error


def read_json_lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place for messages and object of each line that is not blank.

    Raises:
        SampleError: unreadable, or a line that is no JSON object.
    """
    # at line feeds alone: a JSON text may hold other characters that str.splitlines takes for ends of lines
    for number, line in enumerate(read_text(file).split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{file}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SampleError(f"Is no valid JSON ({error}).", where=place) from error
        if not isinstance(record, dict):
            raise SampleError(f"Must be an object, not {record!r:.40}.", where=place)
        yield place, record


def read_table(file: Path) -> tuple[list[str], Iterator[tuple[str, list[str]]]]:
    """The header of a CSV file, and place and cells of each further row that is not blank.

    Raises:
        SampleError: unreadable, empty, or no CSV.
    """
    reader = csv.reader(StringIO(read_text(file), newline=""))

    def rows() -> Iterator[tuple[str, list[str]]]:
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield f"{file}:{reader.line_num}", cells
        except csv.Error as error:
            raise SampleError(f"Is no valid CSV ({error}).", where=f"{file}:{reader.line_num}") from error

    found = rows()
    header = next(found, None)
    if header is None:
        raise SampleError("Is empty.", where=str(file))
    return [cell.strip() for cell in header[1]], found
