from __future__ import annotations

import os
from pathlib import Path

import pytest

from lad.atomic import write_files


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_writes_and_replaces_in_folders_of_its_own_making(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    write_files({folder / "a": b"1", folder / "b": b"2"})
    write_files({folder / "a": b"3"})
    assert _files(folder) == {"a": b"3", "b": b"2"}


@pytest.mark.parametrize("failing_move", [1, 2, 3])
def test_a_failed_move_puts_everything_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_move: int) -> None:
    (tmp_path / "a").write_bytes(b"old a")
    (tmp_path / "c").write_bytes(b"old c")
    moves = 0
    real = Path.replace

    def replace(source: Path, target: Path) -> Path:
        nonlocal moves
        moves += 1
        if moves == failing_move:
            raise OSError(28, "No space left on device")
        return real(source, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OSError, match="No space"):
        write_files({tmp_path / "a": b"new a", tmp_path / "b": b"new b", tmp_path / "c": b"new c"})
    assert moves == failing_move
    assert _files(tmp_path) == {"a": b"old a", "c": b"old c"}


@pytest.mark.parametrize("interruption", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_while_writing_out_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interruption: BaseException
) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def fsync(_descriptor: int) -> None:
        raise interruption

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(type(interruption)):
        write_files({tmp_path / "a": b"new", tmp_path / "b": b"new"})
    assert _files(tmp_path) == {"a": b"old"}
