from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from lad.calibration import Calibration, load_calibrations
from lad.errors import CalibrationError
from tests.decisions.factory import make_calibration

_TENSORS = ("observed_profile", "bias", "attention_prior", "layer_evidence", "layer_temperatures")


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), layers=st.integers(1, 4), count=st.integers(2, 12))
def test_save_and_load_give_back_every_bit(
    tmp_path_factory: pytest.TempPathFactory, seed: int, layers: int, count: int
) -> None:
    folder = tmp_path_factory.mktemp("calibrations")
    saved = make_calibration(seed, layers=layers, count=count, average="prob")
    saved = replace(saved, made_with={"dtype": "bfloat16"})
    assert saved.save(folder) == folder / f"calibration-{count}.json"
    assert sorted(path.name for path in folder.iterdir()) == [
        f"calibration-{count}.json",
        f"calibration-{count}.safetensors",
    ]
    loaded = Calibration.load(str(folder), count)
    for name in _TENSORS:
        assert getattr(loaded, name).dtype == np.float64
        assert getattr(loaded, name).tobytes() == getattr(saved, name).tobytes()
    for name in ("visual_gain", "samples", "average", "identity"):
        assert getattr(loaded, name) == getattr(saved, name)
    assert dict(loaded.made_with) == {"dtype": "bfloat16"}


def test_load_all_of_a_folder(tmp_path: Path) -> None:
    for count in (12, 2, 4):
        make_calibration(count, count=count).save(tmp_path)
    (tmp_path / "calibration-x.json").write_text("{}")
    (tmp_path / "calibration-7.safetensors").write_bytes(b"without a JSON file it is not finished")
    assert list(load_calibrations(tmp_path)) == [2, 4, 12]
    assert all(calibration.candidates == count for count, calibration in load_calibrations(tmp_path).items())
    (tmp_path / "empty").mkdir()
    assert load_calibrations(tmp_path / "empty") == {}
    with pytest.raises(CalibrationError, match=r"nowhere: There is no such folder.*lad calibrate"):
        load_calibrations(tmp_path / "nowhere")


@pytest.mark.parametrize("failing_move", [1, 2])
def test_a_failed_save_leaves_the_old_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_move: int
) -> None:
    make_calibration(0).save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    moves = 0
    real = Path.replace

    def fail(source: Path, target: Path) -> Path:
        nonlocal moves
        moves += 1
        if moves == failing_move:
            raise OSError(28, "No space left on device")
        return real(source, target)

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(CalibrationError, match=r"calibration-4\.json: Cannot be written \(No space"):
        make_calibration(1).save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert Calibration.load(tmp_path, 4).bias == pytest.approx(make_calibration(0).bias, abs=0)


def test_a_save_into_a_file_fails_clearly(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CalibrationError, match="Cannot be written"):
        make_calibration(0).save(tmp_path / "file")


def _damage(folder: Path, file: str, kind: str) -> None:
    path = folder / file
    if kind == "missing":
        path.unlink()
    elif kind == "truncated":
        path.write_bytes(path.read_bytes()[:-20])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "folder":
        path.unlink()
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x00\x80")


@pytest.mark.parametrize("file", ["calibration-4.json", "calibration-4.safetensors"])
@pytest.mark.parametrize("kind", ["missing", "truncated", "empty", "folder", "binary"])
def test_broken_files_are_named(tmp_path: Path, file: str, kind: str) -> None:
    make_calibration(0).save(tmp_path)
    _damage(tmp_path, file, kind)
    with pytest.raises(CalibrationError) as error:
        Calibration.load(tmp_path, 4)
    assert str(error.value).startswith(str(tmp_path / file))


def test_one_flipped_bit_is_noticed(tmp_path: Path) -> None:
    make_calibration(0).save(tmp_path)
    file = tmp_path / "calibration-4.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(CalibrationError, match=r"calibration-4\.safetensors: Is damaged, or does not belong"):
        Calibration.load(tmp_path, 4)


def test_files_of_two_calibrations_do_not_mix(tmp_path: Path) -> None:
    make_calibration(0).save(tmp_path / "a")
    make_calibration(1).save(tmp_path / "b")
    (tmp_path / "a" / "calibration-4.safetensors").replace(tmp_path / "b" / "calibration-4.safetensors")
    with pytest.raises(CalibrationError, match=r"does not belong to calibration-4\.json"):
        Calibration.load(tmp_path / "b", 4)


def _rewrite(folder: Path, **changes: object) -> None:
    file = folder / "calibration-4.json"
    document = json.loads(file.read_text())
    for key, value in changes.items():
        if value is _ABSENT:
            del document[key]
        elif isinstance(value, dict):
            document[key].update(value)
        else:
            document[key] = value
    file.write_text(json.dumps(document))


_ABSENT = object()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "something"}, "Is no calibration"),
        ({"version": 2}, "Has version 2; this lad reads version 1"),
        ({"visual_gain": _ABSENT}, "'visual_gain'"),
        ({"visual_gain": "much"}, "could not convert"),
        ({"visual_gain": float("nan")}, "visual_gain is not finite"),
        ({"samples": 0}, "at least 1 sample, not 0"),
        ({"average": "median"}, "no average 'median'"),
        ({"made_with": ["list"]}, "wrong type"),
        ({"identity": {"model": 3}}, "model is 3"),
        ({"identity": {"identifiers": "1234"}}, 'identifiers is "1234"'),
        ({"identity": {"identifiers": [1, 2, 3, 4]}}, "an identifier is no text"),
        ({"identity": {"candidates": True}}, "candidates is true"),
        ({"identity": {"surprise": 1}}, "surprise"),
        ({"identity": {"candidates": 2, "identifiers": ["1", "2"]}}, r"shape \(2, 2\), not \(4, 4\)"),
    ],
)
def test_descriptions_that_do_not_hold_are_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    make_calibration(0).save(tmp_path)
    _rewrite(tmp_path, **changes)
    with pytest.raises(CalibrationError, match=message) as error:
        Calibration.load(tmp_path, 4)
    assert str(error.value).startswith(str(tmp_path / "calibration-4.json"))


def test_json_that_is_no_object(tmp_path: Path) -> None:
    (tmp_path / "calibration-4.json").write_text("[1]")
    with pytest.raises(CalibrationError, match="Is no calibration"):
        Calibration.load(tmp_path, 4)


def test_a_file_under_another_name(tmp_path: Path) -> None:
    make_calibration(0, count=5).save(tmp_path)
    for kind in ("json", "safetensors"):
        (tmp_path / f"calibration-5.{kind}").replace(tmp_path / f"calibration-4.{kind}")
    with pytest.raises(CalibrationError, match=r"calibration-4\.json: Is for 5 candidates"):
        Calibration.load(tmp_path, 4)


def test_tensors_that_are_no_safetensors_or_lack_one(tmp_path: Path) -> None:
    make_calibration(0).save(tmp_path)
    for data, message in ((b"x" * 40, "no valid safetensors"), (save({"bias": np.zeros((4, 4))}), "observed_profile")):
        (tmp_path / "calibration-4.safetensors").write_bytes(data)
        _rewrite(tmp_path, tensors_sha256=hashlib.sha256(data).hexdigest())
        with pytest.raises(CalibrationError, match=message):
            Calibration.load(tmp_path, 4)
