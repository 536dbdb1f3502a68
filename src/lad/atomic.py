"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write one or several files that belong together; a failure leaves every old file as it was.

    All contents are first written out beside their targets and flushed to the disk, then moved into place in
    the order given. If a move fails, the targets already moved are put back. A process killed between two
    moves leaves whole files of different ages: a reader of several files should check that they agree.

    Args:
        contents: target path -> what to write. Folders are made where missing.

    Raises:
        OSError: a file could not be written; nothing has changed.
    """
    staged: dict[Path, Path] = {}
    before: dict[Path, bytes | None] = {}
    try:
        for target, content in contents.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            staged[target] = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
            with staged[target].open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        # A single move is atomic by itself, so only sets of files need a way back.
        if len(contents) > 1:
            before = {target: target.read_bytes() if target.exists() else None for target in contents}
        for target, temporary in staged.items():
            temporary.replace(target)
    except BaseException:
        for target, content_before in before.items():
            _restore(target, content_before, moved=not staged[target].exists())
        raise
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


def _restore(target: Path, content: bytes | None, *, moved: bool) -> None:
    if not moved:
        return
    if content is None:
        target.unlink(missing_ok=True)
    else:
        target.write_bytes(content)
