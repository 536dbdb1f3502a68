"""A store of records on disk, for what is no observation: texts, and scores of single images.

As :class:`lad.observations.ObservationStore`: JSONL parts, each written once and whole, never changed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from lad.atomic import write_files
from lad.errors import RunError

Record: TypeAlias = dict[str, Any]

_PART = re.compile(r"part-(\d{5,})\.jsonl")
_END = {"end": True}


class RecordStore:
    """A folder of records, one per sample; numbers come back to the last bit.

    Args:
        folder: made at the first write.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def path(self, part: int) -> Path:
        """The file of a part."""
        return self.folder / f"part-{part:05d}.jsonl"

    def parts(self) -> tuple[int, ...]:
        """The numbers of the parts that are complete, ascending."""
        if not self.folder.is_dir():
            return ()
        names = (_PART.fullmatch(path.name) for path in self.folder.iterdir())
        return tuple(sorted(int(name[1]) for name in names if name))

    def write(self, part: int, records: Sequence[Record]) -> None:
        """Write one part.

        Raises:
            RunError: the part is already there, or the file cannot be written.
        """
        path = self.path(part)
        if path.exists():
            raise RunError("This part is already written; parts are never changed.", where=str(path))
        lines = [json.dumps(record, ensure_ascii=False, allow_nan=False) for record in (*records, _END)]
        try:
            write_files({path: ("\n".join(lines) + "\n").encode()})
        except OSError as error:
            raise RunError(f"Cannot be written ({error.strerror or error}).", where=str(path)) from error

    def read(self, part: int) -> list[Record]:
        """Read one part.

        Raises:
            RunError: the part is missing, truncated or damaged; the message names the file.
        """
        path = self.path(part)
        try:
            records = [json.loads(line) for line in path.read_bytes().decode().split("\n") if line]
        except (OSError, ValueError) as error:
            raise RunError(f"This part is broken ({error}).", where=str(path), hint=_ANEW) from error
        if not records or records[-1] != _END or not all(isinstance(record, dict) for record in records):
            raise RunError("This part is broken (its end is missing).", where=str(path), hint=_ANEW)
        return records[:-1]


_ANEW = "Delete the file and run again: only this part will be made anew."
