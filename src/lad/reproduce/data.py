"""Where the samples of a reproduction come from: synthetic scenes, or folders made by `lad build`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lad.errors import RunError
from lad.reproduce.cells import Cell
from lad.samples import Sample


class Data(Protocol):
    """Samples by cell."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets; the first takes the place of MS-COCO in the paper, the second that of Flickr8k."""

    @property
    def tasks(self) -> tuple[Cell, ...]:
        """Cells of MMIU tasks."""

    def offers(self, cell: Cell) -> bool:
        """Whether there are samples for a cell."""

    def test(self, cell: Cell, count: int) -> list[Sample]:
        """At most ``count`` labelled samples to answer."""

    def calibration(self, cell: Cell, count: int) -> list[Sample]:
        """At most ``count`` labelled samples to calibrate on, which share no image with those."""

    def describe(self) -> str:
        """The data in words."""


class SceneData:
    """Synthetic scenes: as many as are asked for, in both settings, N = 2 to 12."""

    datasets = ("scenes",)
    tasks: tuple[Cell, ...] = ()

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def offers(self, cell: Cell) -> bool:
        """Scenes are drawn, so nearly anything is there."""
        return cell.dataset == "scenes" and cell.setting in ("random", "adversarial") and 2 <= cell.candidates <= 12

    def test(self, cell: Cell, count: int) -> list[Sample]:
        """Scenes of the test split."""
        return self._draw(cell, count, "test", self.seed)

    def calibration(self, cell: Cell, count: int) -> list[Sample]:
        """Scenes of the calibration split, the same whatever the seed of the others."""
        return self._draw(cell, count, "calibration", 0)

    def describe(self) -> str:
        """In words."""
        return "synthetic scenes (coloured shapes), 56 x 56 pixels"

    @staticmethod
    def _draw(cell: Cell, count: int, split: str, seed: int) -> list[Sample]:
        from lad.benchmarks.scenes import scene_samples

        return scene_samples(count, cell.candidates, setting=cell.setting, split=split, seed=seed)  # type: ignore[arg-type]


@dataclass
class FolderData:
    """Folders made by `lad build`, told apart by their manifests.

    Several folders of one dataset (settings, N) belong together. Identifiers are no part of the data, so every set is
    offered.

    Attributes:
        folders: the folders.
    """

    folders: Sequence[str | os.PathLike[str]]
    _splits: dict[tuple[str, str, int], tuple[list[Sample], list[Sample]]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.folders:
            raise RunError("No folders of data were given.")
        for folder in self.folders:
            self._read(Path(folder))

    @property
    def datasets(self) -> tuple[str, ...]:
        """In the order of the folders."""
        return tuple(dict.fromkeys(name for name, _, _ in self._splits if name != _MMIU))

    @property
    def tasks(self) -> tuple[Cell, ...]:
        """Tasks of MMIU that are at hand, with something to calibrate on."""
        return tuple(Cell(*key) for key, (_, calibration) in self._splits.items() if key[0] == _MMIU and calibration)

    def offers(self, cell: Cell) -> bool:
        """Whether a folder holds samples for it, and some to calibrate on."""
        test, calibration = self._splits.get((cell.dataset, cell.setting, cell.candidates), ([], []))
        return bool(test and calibration)

    def test(self, cell: Cell, count: int) -> list[Sample]:
        """The first of the test split."""
        return self._splits[cell.dataset, cell.setting, cell.candidates][0][:count]

    def calibration(self, cell: Cell, count: int) -> list[Sample]:
        """The first of the calibration split."""
        return self._splits[cell.dataset, cell.setting, cell.candidates][1][:count]

    def only_cell(self, candidates: int | None = None) -> Cell:
        """The one cell there is (of an N, if given).

        Raises:
            RunError: there is none, or there are several.
        """
        found = [Cell(*key) for key in self._splits if candidates in (None, key[2])]
        usable = [cell for cell in found if self.offers(cell)]
        if len(usable) != 1:
            where = ", ".join(str(folder) for folder in self.folders)
            if not usable:
                raise RunError("Holds no samples to answer with others to calibrate on.", where=where)
            raise RunError(
                f"Holds several kinds of samples: {'; '.join(map(str, usable))}.",
                where=where,
                hint="Give --candidates.",
            )
        return usable[0]

    def describe(self) -> str:
        """In words."""
        names = {"coco": "MS-COCO", "flickr8k": "Flickr8k", _MMIU: "MMIU"}
        return ", ".join(names.get(name, name) for name in dict.fromkeys(name for name, _, _ in self._splits))

    def _read(self, folder: Path) -> None:
        from lad.sample_files import read_samples

        file = folder / "manifest.json"
        try:
            manifest = json.loads(file.read_bytes())
            name = str(manifest["source"]["name"])
            setting = str(manifest.get("plan", {}).get("setting", "random"))
        except OSError as error:
            raise RunError(
                f"Holds no manifest ({error.strerror or error}).", where=str(folder), hint="Make it with: lad build"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"Is no manifest of `lad build` ({error!r}).", where=str(file)) from error
        for split, place in (("test", 0), ("calibration", 1)):
            found = next((p for p in (folder / f"{split}.jsonl", folder / f"{split}.parquet") if p.is_file()), None)
            for sample in read_samples(found) if found else ():
                # ids of MMIU carry the task: mmiu-TASK-NUMBER
                task = sample.id.split("-")[1] if name == _MMIU else setting
                key = (name, task, len(sample))
                self._splits.setdefault(key, ([], []))[place].append(sample)


_MMIU = "mmiu"
