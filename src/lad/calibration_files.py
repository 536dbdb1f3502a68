"""How a calibration lies on disk: ``calibration-N.json`` and ``calibration-N.safetensors``.

The JSON file is written last and holds the checksum of the tensors, so a pair that does not belong together,
or was damaged, is noticed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lad.atomic import write_files
from lad.errors import CalibrationError

_VERSION = 1
_NAME = re.compile(r"calibration-(\d+)\.json")
_ANEW = "Make one with: lad calibrate"


def calibration_paths(folder: Path, candidates: int) -> tuple[Path, Path]:
    """The JSON and the safetensors file for N candidates."""
    return folder / f"calibration-{candidates}.json", folder / f"calibration-{candidates}.safetensors"


def numbered_calibrations(folder: Path) -> list[int]:
    """For which N the folder holds a calibration, ascending.

    Raises:
        CalibrationError: there is no such folder.
    """
    if not folder.is_dir():
        raise CalibrationError("There is no such folder of calibrations.", where=str(folder), hint=_ANEW)
    names = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(name[1]) for name in names if name)


def write_calibration(
    folder: Path, candidates: int, description: Mapping[str, Any], tensors: Mapping[str, NDArray[np.float64]]
) -> Path:
    """Write both files, or neither. ``description`` must be JSON-able and finite.

    Returns:
        The JSON file.

    Raises:
        CalibrationError: the files cannot be written.
    """
    from safetensors.numpy import save

    json_file, tensor_file = calibration_paths(folder, candidates)
    data = save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})
    document = {
        "format": "lad-calibration",
        "version": _VERSION,
        **description,
        "tensors_sha256": hashlib.sha256(data).hexdigest(),
    }
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        write_files({tensor_file: data, json_file: text.encode()})
    except OSError as error:
        raise CalibrationError(f"Cannot be written ({error.strerror or error}).", where=str(json_file)) from error
    return json_file


def read_calibration(folder: Path, candidates: int) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
    """Read both files: the description and the tensors.

    Raises:
        CalibrationError: a file is missing, unreadable, broken, or does not belong to the other.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    json_file, tensor_file = calibration_paths(folder, candidates)
    try:
        document = json.loads(_read(json_file).decode())
    except (ValueError, RecursionError) as error:
        raise CalibrationError(f"Is no valid JSON ({error}).", where=str(json_file), hint=_ANEW) from error
    if not isinstance(document, dict) or document.get("format") != "lad-calibration":
        raise CalibrationError("Is no calibration.", where=str(json_file), hint=_ANEW)
    if document.get("version") != _VERSION:
        raise CalibrationError(
            f"Has version {document.get('version')!r}; this lad reads version {_VERSION}.",
            where=str(json_file),
            hint=_ANEW,
        )
    data = _read(tensor_file)
    if hashlib.sha256(data).hexdigest() != document.get("tensors_sha256"):
        raise CalibrationError(
            f"Is damaged, or does not belong to {json_file.name}.", where=str(tensor_file), hint=_ANEW
        )
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise CalibrationError(f"Is no valid safetensors file ({error}).", where=str(tensor_file)) from error
    return document, tensors


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise CalibrationError("There is no such calibration file.", where=str(file), hint=_ANEW) from error
    except OSError as error:
        raise CalibrationError(f"Cannot be read ({error.strerror}).", where=str(file)) from error
