"""Tables that need data of their own: a second dataset, and tasks of MMIU."""

import json

import numpy as np
import pytest
from PIL import Image

from lad.reproduce.cells import Ask, Cell
from lad.reproduce.data import FolderData, SceneData
from lad.reproduce.plans import PLANS, choose_plans
from lad.reproduce.preparing import prepare
from lad.reproduce.running import observe_cells
from lad.reproduce.scope import Scope
from lad.sample_files import write_samples
from lad.samples import Sample

TASKS = {"visual_quality": (2, 3), "forensic_blink": (3,)}


class TwoDatasets(SceneData):
    datasets = ("scenes", "other")

    def offers(self, cell):
        return cell.dataset in self.datasets and cell.candidates == 4 and cell.setting == "random"


def test_calibrations_travel_between_datasets():
    asks = PLANS["table3"].asks(Scope(TwoDatasets()))
    here, there = (Cell(name, "random", 4) for name in ("scenes", "other"))
    assert Ask(here, "agd", calibrated_on=there) in asks
    assert Ask(there, "pride", calibrated_on=here) in asks
    assert Ask(there, "pride") in asks
    # the other difficulty is not at hand
    assert {ask.cell.setting for ask in asks} == {"random"}


@pytest.fixture(scope="module")
def mmiu(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mmiu")
    rng = np.random.default_rng(0)

    def picture():
        pixels = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        return Image.fromarray(pixels).resize((56, 56), Image.Resampling.NEAREST)

    for split, number in (("test", 4), ("calibration", 2)):
        samples = [
            Sample(
                "Which one?",
                tuple(picture() for _ in range(count)),
                index % count,
                f"mmiu-{task}-{split}{count}{index}",
            )
            for task, counts in TASKS.items()
            for count in counts
            for index in range(number)
        ]
        write_samples(folder / f"{split}.jsonl", samples)
    (folder / "manifest.json").write_text(json.dumps({"source": {"name": "mmiu"}}))
    return FolderData([folder])


def test_tasks_are_pooled_over_their_n(vlm, mmiu):
    preparation = prepare(vlm, choose_plans(["table5"]), Scope(mmiu, samples=8, orders=2, overlays=0))
    results = observe_cells(vlm, preparation)
    (table,) = PLANS["table5"].build(results)
    rows = {row["task"]: row for row in table.rows}
    assert len(rows) == 6
    quality = rows["visual_quality"]
    assert quality["samples"] == 8
    both = [results[Ask(Cell("mmiu", "visual_quality", count), "agd")].metrics.accuracy for count in (2, 3)]
    assert quality["our_agd"] == pytest.approx(np.mean(both))
    assert quality["change_agd"] == pytest.approx(quality["our_agd"] - 53.0)
    assert rows["emotion_expw"]["our_agd"] is None
    assert any("does not say what table 5 was calibrated on" in note for note in table.notes)


def test_tables_without_data_still_say_what_was_published(vlm):
    preparation = prepare(vlm, choose_plans(["table5", "figure3"]), Scope(SceneData(), samples=2, orders=2))
    results = observe_cells(vlm, preparation)
    (table,) = PLANS["table5"].build(results)
    assert [row["published_agd"] for row in table.rows] == [87.4, 30.9, 31.8, 26.9, 25.2, 53.0]
    assert all(row["our_agd"] is None for row in table.rows)
    assert "no data for it were given" in table.notes[0]
