"""A report on disk: ``report.json`` in a run folder, from which everything else is written."""

from __future__ import annotations

import json
import os
from pathlib import Path

from lad.atomic import write_files
from lad.errors import RunError
from lad.report.exhibits import Report

FILE = "report.json"


def store_report(report: Report, folder: str | os.PathLike[str]) -> Path:
    """Write a report's contents into a run folder.

    Returns:
        The file.

    Raises:
        RunError: it cannot be written.
    """
    file = Path(folder) / FILE
    text = json.dumps(report.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        write_files({file: (text + "\n").encode()})
    except OSError as error:
        raise RunError(f"Cannot be written ({error.strerror or error}).", where=str(file)) from error
    return file


def read_report(folder: str | os.PathLike[str]) -> Report:
    """Read what :func:`store_report` wrote.

    Raises:
        RunError: the folder holds none, or it is broken.
    """
    file = Path(folder) / FILE
    try:
        return Report.from_dict(json.loads(file.read_bytes()))
    except OSError as error:
        raise RunError(
            f"Holds no report ({error.strerror or error}).",
            where=str(folder),
            hint="Make one with: lad reproduce --out FOLDER",
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"Is broken ({error!r}).", where=str(file), hint="Run again: what was observed is kept."
        ) from error
