from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lad.errors import NumericsError, RunError
from lad.observations import Observations, ObservationStore
from tests.decisions.factory import make_observations

_ARRAYS = ("log_probs", "attention", "orders", "answers")


def _assert_identical(first: Observations, second: Observations) -> None:
    for name in _ARRAYS:
        mine, theirs = getattr(first, name), getattr(second, name)
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        assert mine.tobytes() == theirs.tobytes()
    assert first.samples == second.samples


def test_sizes_and_types() -> None:
    observations = make_observations(0, rows=7, layers=5, count=4)
    assert (len(observations), observations.layers, observations.count) == (7, 5, 4)
    single = replace(observations, attention=observations.attention.astype(np.float32), samples=list("abcdefg"))
    assert single.attention.dtype == np.float64
    assert single.samples == tuple("abcdefg")


def test_answer_positions() -> None:
    observations = make_observations(1, rows=6)
    unlabelled = replace(observations, answers=np.where(np.arange(6) == 2, -1, observations.answers))
    for row in range(6):
        if row == 2:
            assert unlabelled.answer_positions[row] == -1
        else:
            assert unlabelled.orders[row, unlabelled.answer_positions[row]] == unlabelled.answers[row]


def test_normalised() -> None:
    observations = make_observations(2)
    assert observations.normalised
    shifted = observations.log_probs.copy()
    shifted[3] += 1e-4
    assert not replace(observations, log_probs=shifted).normalised
    assert not replace(observations, log_probs=observations.log_probs + 1000.0).normalised


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"log_probs": np.zeros(4)}, r"shape \(M, N\)"),
        ({"log_probs": np.zeros((7, 1))}, r"N >= 2"),
        ({"attention": np.zeros((7, 4))}, r"\(7, L, 4\)"),
        ({"attention": np.zeros((7, 0, 4))}, "L >= 1"),
        ({"attention": np.zeros((6, 5, 4))}, r"not \(6, 5, 4\)"),
        ({"attention": np.zeros((7, 5, 3))}, r"not \(7, 5, 3\)"),
        ({"orders": np.zeros((7, 3), dtype=int)}, r"orders must have the shape \(7, 4\)"),
        ({"answers": np.zeros(6, dtype=int)}, r"answers must have the shape \(7,\)"),
        ({"samples": ("a", "b")}, "2 sample ids for 7"),
        ({"orders": np.tile([0, 1, 2, 2], (7, 1))}, r"observation 0 \(sample 's0'\): Its order is no permutation"),
        ({"answers": np.array([0, 0, 4, 0, 0, 0, 0])}, r"observation 2 \(sample 's2'\): Its answer"),
        ({"answers": np.array([0, 0, 0, -2, 0, 0, 0])}, r"observation 3"),
        ({"answers": np.zeros(7)}, "answers are float64"),
        ({"attention": np.full((7, 5, 4), -1e-9)}, "Attention is negative"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(RunError, match=message):
        replace(make_observations(3), **change)


@pytest.mark.parametrize("name", ["log_probs", "attention"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_with_advice(name: str, value: float) -> None:
    observations = make_observations(4)
    broken = getattr(observations, name).copy()
    broken[(5, *[1] * (broken.ndim - 1))] = value
    with pytest.raises(NumericsError, match=r"observation 5 \(sample 's5'\).*not finite.*bfloat16"):
        replace(observations, **{name: broken})


def test_take() -> None:
    observations = make_observations(5)
    taken = observations.take([4, 0, 4])
    assert taken.samples == ("s4", "s0", "s4")
    for name in _ARRAYS:
        for row, source in enumerate([4, 0, 4]):
            assert np.array_equal(getattr(taken, name)[row], getattr(observations, name)[source])
    mask = np.array([True, False, False, False, False, False, True])
    _assert_identical(observations.take(mask), observations.take([0, 6]))
    nothing = observations.take([])
    assert (len(nothing), nothing.layers, nothing.count) == (0, 5, 4)
    assert nothing.answer_positions.shape == (0,)


@pytest.mark.parametrize("rows", [[7], [-8], np.array([True, False])])
def test_take_out_of_range(rows: object) -> None:
    with pytest.raises(RunError, match="no such observation"):
        make_observations(5).take(rows)  # type: ignore[arg-type]


def test_concatenate_is_the_inverse_of_taking_apart() -> None:
    observations = make_observations(6)
    parts = [observations.take([0, 1, 2]), observations.take([]), observations.take([3, 4, 5, 6])]
    _assert_identical(Observations.concatenate(iter(parts)), observations)


def test_concatenate_refuses_nothing_and_what_differs() -> None:
    with pytest.raises(RunError, match="no observations"):
        Observations.concatenate([])
    with pytest.raises(RunError, match="5 candidates and 5 layers"):
        Observations.concatenate([make_observations(0), make_observations(0, count=5)])
    with pytest.raises(RunError, match="4 candidates and 2 layers"):
        Observations.concatenate([make_observations(0), make_observations(0, layers=2)])


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(0, 6),
    layers=st.integers(1, 4),
    count=st.integers(2, 12),
)
def test_the_store_keeps_every_bit(
    tmp_path_factory: pytest.TempPathFactory, seed: int, rows: int, layers: int, count: int
) -> None:
    observations = make_observations(seed, rows=rows, layers=layers, count=count)
    store = ObservationStore(tmp_path_factory.mktemp("store"))
    store.write(3, observations)
    _assert_identical(store.read(3), observations)


def test_the_store_keeps_odd_values_and_names(tmp_path: Path) -> None:
    observations = make_observations(0, rows=3)
    odd = replace(
        observations,
        log_probs=np.array([[-0.0, 5e-324, -1e308, 0.1], [1 / 3, -1 / 3, -745.13, -2], [0, 1, 2, 3]]),
        samples=("", "ünï → code", "a\nb"),
        answers=np.array([-1, 0, 3]),
    )
    store = ObservationStore(str(tmp_path))
    store.write(0, odd)
    _assert_identical(store.read(0), odd)


def test_parts_and_read_all(tmp_path: Path) -> None:
    store = ObservationStore(tmp_path / "not" / "yet")
    assert store.parts() == ()
    with pytest.raises(RunError, match="no observations in this folder"):
        store.read_all()
    parts = {0: make_observations(0), 7: make_observations(7, rows=2), 123456: make_observations(8, rows=1)}
    for number in (123456, 0, 7):
        store.write(number, parts[number])
    for stray in ("part-1.parquet", "part-00001.parquet.tmp", ".part-00002.parquet.ab.tmp", "notes.txt"):
        (store.folder / stray).write_text("x")
    assert store.parts() == (0, 7, 123456)
    _assert_identical(store.read_all(), Observations.concatenate([parts[0], parts[7], parts[123456]]))
    assert store.path(7).name == "part-00007.parquet"


def test_a_part_is_never_changed(tmp_path: Path) -> None:
    store = ObservationStore(tmp_path)
    store.write(0, make_observations(0))
    before = store.path(0).read_bytes()
    with pytest.raises(RunError, match=r"part-00000\.parquet.*already written"):
        store.write(0, make_observations(1))
    with pytest.raises(RunError, match="no part -1"):
        store.write(-1, make_observations(1))
    assert store.path(0).read_bytes() == before


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObservationStore(tmp_path)

    def fsync(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(RunError, match=r"part-00000\.parquet.*No space left on device"):
        store.write(0, make_observations(0))
    assert list(tmp_path.iterdir()) == []
    assert store.parts() == ()


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="Cannot be written"):
        ObservationStore(tmp_path / "file").write(0, make_observations(0))


def test_missing_part(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"part-00004\.parquet.*no such part"):
        ObservationStore(tmp_path).read(4)


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped", "text", "foreign", "other_version"])
def test_a_broken_part_is_named_and_to_be_deleted(tmp_path: Path, damage: str) -> None:
    store = ObservationStore(tmp_path)
    store.write(0, make_observations(0, rows=50))
    path = store.path(0)
    data = bytearray(path.read_bytes())
    if damage == "empty":
        data = bytearray()
    elif damage == "truncated":
        data = data[: len(data) // 2]
    elif damage == "flipped":
        data[len(data) // 4] ^= 0x10
    elif damage == "text":
        data = bytearray(b"hello")
    if damage == "foreign":
        pq.write_table(pa.table({"a": [1, 2]}), path)
    elif damage == "other_version":
        table = pq.read_table(path)
        pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"lad.version": b"2"}), path)
    else:
        path.write_bytes(bytes(data))
    with pytest.raises(RunError, match=r"part-00000\.parquet: This part is broken.*Delete the file"):
        store.read_all()


def test_a_part_that_lies_about_its_values_is_broken(tmp_path: Path) -> None:
    store = ObservationStore(tmp_path)
    store.write(0, make_observations(0))
    table = pq.read_table(store.path(0))
    outside = pa.array([9] * table.num_rows, type=pa.int64())
    changed = table.set_column(table.schema.get_field_index("answer"), "answer", outside)
    pq.write_table(changed, store.path(0))
    with pytest.raises(RunError, match=r"part-00000\.parquet: This part is broken .*answer is not among"):
        store.read(0)
