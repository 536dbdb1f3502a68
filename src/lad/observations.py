"""Observations: what forward passes saw, as plain arrays, and their store on disk.

Everything after the model (calibration, decision rules, metrics) is a function of these arrays.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lad.atomic import write_files
from lad.errors import LadError, NumericsError, RunError
from lad.samples import positions_of


@dataclass(frozen=True, eq=False)
class Observations:
    """M observations of N candidates through L attention layers.

    Attributes:
        log_probs: (M, N) float64, log-probability of each position's identifier. Scores with an unknown constant
            per row (raw logits) are accepted too, and refused where that constant would matter.
        attention: (M, L, N) float64; ``attention[m, l, k]`` is the head-mean attention mass of the last prompt
            token on the image at position k in layer l (paper Eq. 6). All zero for a layer that does not see the
            images: rules leave it out.
        orders: (M, N) int64; ``orders[m, p]`` is the candidate at position p.
        answers: (M,) int64, the candidate that is the answer; -1 where unlabelled.
        samples: (M,) id of the sample that each row belongs to.

    Raises:
        RunError: shapes that do not fit each other, an order that is no permutation, an answer out of range,
            negative attention.
        NumericsError: a log-probability or an attention mass that is not finite.
    """

    log_probs: NDArray[np.float64]
    attention: NDArray[np.float64]
    orders: NDArray[np.int64]
    answers: NDArray[np.int64]
    samples: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, dtype in (
            ("log_probs", np.float64),
            ("attention", np.float64),
            ("orders", np.int64),
            ("answers", np.int64),
        ):
            array = np.asarray(getattr(self, name))
            if array.size and not np.can_cast(array.dtype, dtype, casting="same_kind"):
                raise RunError(f"The observations' {name} are {array.dtype}, not {np.dtype(dtype)}.")
            object.__setattr__(self, name, array.astype(dtype, copy=False))
        object.__setattr__(self, "samples", tuple(self.samples))
        self._check_shapes()
        self._check_values()

    def _check_shapes(self) -> None:
        if self.log_probs.ndim != 2 or self.log_probs.shape[1] < 2:
            raise RunError(f"Log-probabilities must have the shape (M, N) with N >= 2, not {self.log_probs.shape}.")
        rows, count = self.log_probs.shape
        layers = self.attention.shape[1] if self.attention.ndim == 3 else 0
        if layers < 1 or self.attention.shape != (rows, layers, count):
            raise RunError(
                f"Attention must have the shape ({rows}, L, {count}) with L >= 1, not {self.attention.shape}."
            )
        for name, wanted in (("orders", (rows, count)), ("answers", (rows,))):
            if getattr(self, name).shape != wanted:
                raise RunError(f"The {name} must have the shape {wanted}, not {getattr(self, name).shape}.")
        if len(self.samples) != rows:
            raise RunError(f"There are {len(self.samples)} sample ids for {rows} observations.")

    def _check_values(self) -> None:
        advice = "The model's numbers overflowed; load it in float32 or bfloat16."
        self._refuse(~np.isfinite(self.log_probs).all(axis=1), "Log-probabilities are not finite.", advice)
        self._refuse(~np.isfinite(self.attention).all(axis=(1, 2)), "Attention is not finite.", advice)
        self._refuse((self.attention < 0).any(axis=(1, 2)), "Attention is negative.")
        permuted = (np.sort(self.orders, axis=1) == np.arange(self.count)).all(axis=1)
        self._refuse(~permuted, f"Its order is no permutation of 0 to {self.count - 1}.")
        outside = (self.answers < -1) | (self.answers >= self.count)
        self._refuse(outside, f"Its answer is not among the candidates 0 to {self.count - 1} (or -1: unlabelled).")

    def _refuse(self, bad: NDArray[np.bool_] | np.bool_, what: str, advice: str | None = None) -> None:
        if bad.any():
            row = int(np.argmax(bad))
            error = NumericsError if advice else RunError
            raise error(what, where=f"observation {row} (sample {self.samples[row]!r})", hint=advice)

    def __len__(self) -> int:
        """M, the number of observations."""
        return int(self.log_probs.shape[0])

    @property
    def count(self) -> int:
        """N, the number of candidates."""
        return int(self.log_probs.shape[1])

    @property
    def layers(self) -> int:
        """L, the number of layers whose attention was read."""
        return int(self.attention.shape[1])

    @property
    def answer_positions(self) -> NDArray[np.int64]:
        """(M,) the position at which the answer stands; -1 where unlabelled."""
        return np.where(self.answers < 0, -1, positions_of(self.orders, self.answers))

    @property
    def normalised(self) -> bool:
        """Whether every row of ``exp(log_probs)`` sums to 1 (within 1e-6)."""
        peaks = self.log_probs.max(axis=1)
        totals = peaks + np.log(np.exp(self.log_probs - peaks[:, None]).sum(axis=1))
        return bool((np.abs(totals) <= 1e-6).all())

    def take(self, rows: NDArray[Any] | Sequence[int]) -> Observations:
        """Some of the observations, in the order asked for.

        Args:
            rows: integers, or booleans of shape (M,).

        Raises:
            RunError: an index out of range.
        """
        index = np.asarray(rows)
        try:
            chosen = np.arange(len(self))[index.astype(np.int64) if index.size == 0 else index]
        except IndexError as error:
            raise RunError(f"There is no such observation: {error}.") from error
        return Observations(
            log_probs=self.log_probs[chosen],
            attention=self.attention[chosen],
            orders=self.orders[chosen],
            answers=self.answers[chosen],
            samples=tuple(self.samples[row] for row in chosen),
        )

    @staticmethod
    def concatenate(parts: Iterable[Observations]) -> Observations:
        """All the observations of ``parts``, one after the other.

        Raises:
            RunError: no parts, or parts that differ in N or L.
        """
        parts = list(parts)
        if not parts:
            raise RunError("There are no observations to put together.")
        for part in parts[1:]:
            if (part.count, part.layers) != (parts[0].count, parts[0].layers):
                raise RunError(
                    f"Observations of {part.count} candidates and {part.layers} layers cannot be put together with "
                    f"observations of {parts[0].count} candidates and {parts[0].layers} layers."
                )
        return Observations(
            log_probs=np.concatenate([part.log_probs for part in parts]),
            attention=np.concatenate([part.attention for part in parts]),
            orders=np.concatenate([part.orders for part in parts]),
            answers=np.concatenate([part.answers for part in parts]),
            samples=tuple(sample for part in parts for sample in part.samples),
        )


_PART = re.compile(r"part-(\d{5,})\.parquet")


class ObservationStore:
    """A folder of observations: Parquet parts, each written once and whole, never changed.

    A part is there or it is not: an interrupted run finds in :meth:`parts` what it has already done. Values
    come back to the last bit; pages carry checksums, so damage is noticed.

    Args:
        folder: made at the first write.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def path(self, part: int) -> Path:
        """The file of a part."""
        return self.folder / f"part-{part:05d}.parquet"

    def parts(self) -> tuple[int, ...]:
        """The numbers of the parts that are complete, ascending."""
        if not self.folder.is_dir():
            return ()
        names = (_PART.fullmatch(path.name) for path in self.folder.iterdir())
        return tuple(sorted(int(name[1]) for name in names if name))

    def write(self, part: int, observations: Observations) -> None:
        """Write one part.

        Raises:
            RunError: the part is already there, the number is negative, or the file cannot be written.
        """
        if part < 0:
            raise RunError(f"Parts are counted from 0; there is no part {part}.")
        path = self.path(part)
        if path.exists():
            raise RunError("This part is already written; parts are never changed.", where=str(path))
        try:
            write_files({path: _to_parquet(observations)})
        except OSError as error:
            raise RunError(f"Cannot be written ({error.strerror or error}).", where=str(path)) from error

    def read(self, part: int) -> Observations:
        """Read one part.

        Raises:
            RunError: the part is missing, truncated or damaged; the message names the file.
        """
        path = self.path(part)
        if not path.exists():
            raise RunError("There is no such part.", where=str(path))
        try:
            return _from_parquet(path)
        except (OSError, ValueError, KeyError, TypeError, LadError) as error:
            raise RunError(
                f"This part is broken ({str(error).splitlines()[0] if str(error) else type(error).__name__}).",
                where=str(path),
                hint="Delete the file and run again: only this part will be observed anew.",
            ) from error

    def read_all(self) -> Observations:
        """All parts, in the order of their numbers.

        Raises:
            RunError: there are none, one is broken, or they differ in N or L.
        """
        parts = self.parts()
        if not parts:
            raise RunError("There are no observations in this folder.", where=str(self.folder))
        return Observations.concatenate([self.read(part) for part in parts])


def _to_parquet(observations: Observations) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def lists(array: NDArray[Any]) -> Any:
        width = int(np.prod(array.shape[1:]))
        return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(array).reshape(-1)), width)

    table = pa.table(
        {
            "sample": pa.array(observations.samples, type=pa.string()),
            "answer": pa.array(observations.answers),
            "order": lists(observations.orders),
            "log_probs": lists(observations.log_probs),
            "attention": lists(observations.attention),
        }
    ).replace_schema_metadata(
        {"lad.version": "1", "lad.candidates": str(observations.count), "lad.layers": str(observations.layers)}
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, use_dictionary=["sample"], write_page_checksum=True)
    return buffer.getvalue()


def _from_parquet(path: Path) -> Observations:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        table = file.read()
    metadata = table.schema.metadata or {}
    if metadata.get(b"lad.version") != b"1":
        raise ValueError("no observations of a known version")
    count, layers = int(metadata[b"lad.candidates"]), int(metadata[b"lad.layers"])

    def array(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        chunks = [chunk.flatten().to_numpy() for chunk in table.column(name).chunks]
        flat = np.concatenate(chunks) if chunks else np.empty(0)
        return flat.reshape(table.num_rows, *shape)

    return Observations(
        log_probs=array("log_probs", (count,)),
        attention=array("attention", (layers, count)),
        orders=array("order", (count,)),
        answers=np.asarray(table.column("answer").to_numpy(), dtype=np.int64),
        samples=tuple(table.column("sample").to_pylist()),
    )
