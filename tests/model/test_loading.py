"""Loading by folder: what is refused, and what a checkpoint is called."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lad.errors import ModelError
from lad.model.loading import choose_device, folder_digest, load_checkpoint, shipped_model
from lad.model.vlm import VisionLanguageModel


@pytest.fixture
def folder(checkpoint: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint("qwen2_5_vl"), tmp_path / "model"))


def test_the_shipped_model_is_the_default() -> None:
    checkpoint = load_checkpoint()
    assert checkpoint.name == "Qwen2_5_VLForConditionalGeneration"
    assert checkpoint.revision == folder_digest(shipped_model())
    assert checkpoint.model.dtype == torch.float32
    assert not checkpoint.model.training


def test_a_checkpoint_is_known_by_content_not_by_place(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved)
    assert folder_digest(folder) == folder_digest(moved)
    weights = moved / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert folder_digest(folder) != folder_digest(moved)
    (folder / "chat_template.jinja").write_text("another")
    assert len({folder_digest(folder), folder_digest(moved)}) == 2


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/model", "~/none"])
def test_a_folder_that_is_not_there(name: str) -> None:
    with pytest.raises(ModelError, match="There is no model folder of this name"):
        load_checkpoint(name)


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"")
    with pytest.raises(ModelError, match="no model folder"):
        load_checkpoint(str(file))


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="The model cannot be loaded"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("missing", ["model.safetensors", "tokenizer.json", "processor_config.json"])
def test_a_folder_with_a_part_missing(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(ModelError) as caught:
        VisionLanguageModel.load(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("kept", [0, 100, 5000])
def test_weights_that_are_cut_off(folder: Path, kept: int) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    with pytest.raises(ModelError, match="The model cannot be loaded"):
        load_checkpoint(folder)


def test_weights_that_lack_a_tensor_are_not_replaced_by_random_ones(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    dropped = next(name for name in tensors if "layers.1.self_attn.q_proj.weight" in name)
    del tensors[dropped]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack.*q_proj"):
        load_checkpoint(folder)


def test_a_broken_configuration(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match="The model cannot be loaded"):
        load_checkpoint(folder)


def test_unknown_choices_name_the_right_ones() -> None:
    with pytest.raises(ModelError, match="float32, bfloat16 or float16"):
        load_checkpoint(dtype="int8")
    for device in ("nonsense", "cuda:99"):
        with pytest.raises(ModelError, match="Choose cuda, mps or cpu"):
            choose_device(device)
    for size in ("big", (3,), (0, 5)):
        with pytest.raises(ModelError, match="image size"):
            VisionLanguageModel.load(image_size=size)
    with pytest.raises(ModelError, match="attention reduction"):
        VisionLanguageModel.load(attention="all")


def test_code_of_a_checkpoint_is_not_run_unasked(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "evil.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('this ran')")
    with pytest.raises(ModelError):
        load_checkpoint(folder)
