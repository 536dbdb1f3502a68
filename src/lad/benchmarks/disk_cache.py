"""Results that are slow to come by, kept on disk under a key: vectors, digests."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from lad.atomic import write_files
from lad.errors import RunError

_MERGE_PARTS = 256


def default_cache() -> Path:
    """The cache folder: ``LAD_CACHE`` where set, else ``lad`` in the user's cache folder."""
    if named := os.environ.get("LAD_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lad"


class DiskCache:
    """A folder of key -> bytes. What was added stays, also after a kill, and several processes may add at once.

    Each addition becomes one Parquet file that appears whole or not at all and is named by its content. Many small
    files are merged at the next start.

    Args:
        folder: made when something is added.

    Raises:
        RunError: a file in the folder is broken; the message names it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._values: dict[str, bytes] = {}
        parts = sorted(self.folder.glob("part-*.parquet"))
        for part in parts:
            self._values.update(_read_part(part))
        if len(parts) > _MERGE_PARTS:
            self._write(self._values)
            for part in parts:
                part.unlink(missing_ok=True)

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._values)

    def get(self, key: str) -> bytes | None:
        """What is kept under a key, or None."""
        return self._values.get(key)

    def add(self, values: Mapping[str, bytes]) -> None:
        """Keep values; when this returns, they are on disk.

        Raises:
            OSError: the disk is full, or the folder may not be written to.
        """
        if values:
            self._write(values)
            self._values.update(values)

    def _write(self, values: Mapping[str, bytes]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer = BytesIO()
        table = pa.table({"key": pa.array(values, pa.string()), "value": pa.array(values.values(), pa.binary())})
        # vectors and digests do not compress, so nothing is tried
        pq.write_table(table, buffer, compression="none", use_dictionary=False)
        content = buffer.getvalue()
        name = f"part-{hashlib.sha256(content).hexdigest()[:32]}.parquet"
        write_files({self.folder / name: content})


def _read_part(part: Path) -> dict[str, bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with part.open("rb") as handle:
            table = pq.read_table(handle, columns=["key", "value"])
            return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    except FileNotFoundError:
        # another process has merged it into a larger one; what it held is at worst computed once more
        return {}
    except (pa.ArrowException, OSError, KeyError) as error:
        raise RunError(
            f"Is no readable part of a cache ({error}).", where=str(part), hint="Delete it; what it held is made anew."
        ) from error
