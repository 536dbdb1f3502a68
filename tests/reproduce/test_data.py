"""Where samples come from: scenes, and folders of `lad build`."""

import json

import pytest
from PIL import Image

from lad.benchmarks.benchmark_files import write_benchmark
from lad.benchmarks.scene_benchmark import build_of_scenes
from lad.errors import RunError
from lad.reproduce.cells import Cell
from lad.reproduce.data import FolderData, SceneData
from lad.sample_files import write_samples
from lad.samples import Sample


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for setting, count in (("random", 4), ("random", 3), ("adversarial", 4)):
        built = build_of_scenes(setting, count, count=3, calibration_samples=2)
        write_benchmark(root / f"{setting}{count}", built)
    # a task of MMIU, as its ids tell
    mmiu = root / "mmiu"
    images = [mmiu / f"{index}.png" for index in range(4)]
    mmiu.mkdir()
    for index, file in enumerate(images):
        Image.new("RGB", (8, 8), (50 * index, 0, 0)).save(file)
    for split, number in (("test", 3), ("calibration", 2)):
        write_samples(
            mmiu / f"{split}.jsonl",
            [Sample("?", tuple(images[:2]), 0, f"mmiu-visual_quality-{split}{index}") for index in range(number)],
        )
    (mmiu / "manifest.json").write_text(json.dumps({"source": {"name": "mmiu"}}))
    return root


def test_scenes_offer_every_n_in_both_settings():
    data = SceneData()
    assert data.offers(Cell("scenes", "adversarial", 12))
    assert not data.offers(Cell("scenes", "random", 13))
    assert not data.offers(Cell("coco", "random", 4))
    test, calibration = (split(Cell("scenes", "random", 3), 2) for split in (data.test, data.calibration))
    assert [len(sample) for sample in test] == [3, 3]
    assert not {sample.id for sample in test} & {sample.id for sample in calibration}


def test_folders_are_told_apart_by_their_manifests(folders):
    data = FolderData([folders / "random4", folders / "adversarial4", folders / "random3", folders / "mmiu"])
    assert data.datasets == ("scenes",)
    assert data.offers(Cell("scenes", "adversarial", 4, "roman"))
    assert not data.offers(Cell("scenes", "adversarial", 3))
    assert data.tasks == (Cell("mmiu", "visual_quality", 2),)
    assert [sample.id for sample in data.test(data.tasks[0], 2)] == [f"mmiu-visual_quality-test{k}" for k in range(2)]
    assert len(data.calibration(Cell("scenes", "random", 3), 10)) == 2
    assert "MMIU" in data.describe()


def test_one_cell_is_chosen_or_asked_for(folders):
    assert FolderData([folders / "random4"]).only_cell() == Cell("scenes", "random", 4)
    both = FolderData([folders / "random4", folders / "random3"])
    assert both.only_cell(3) == Cell("scenes", "random", 3)
    with pytest.raises(RunError, match="several kinds of samples: scenes, random, N = 4; scenes, random, N = 3"):
        both.only_cell()
    with pytest.raises(RunError, match="no samples"):
        both.only_cell(7)


def test_other_folders_are_refused(folders, tmp_path):
    with pytest.raises(RunError, match="no manifest.*lad build"):
        FolderData([tmp_path])
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(RunError, match="no manifest of `lad build`"):
        FolderData([tmp_path])
    with pytest.raises(RunError, match="No folders"):
        FolderData([])
