"""PEFT adapters: merged into the base model, and part of what a calibration depends on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForImageTextToText
from typer.testing import CliRunner

from lad.checks import run_checks
from lad.cli import app
from lad.errors import CalibrationError, DependencyError, ModelError
from lad.model.calibrate import calibrate
from lad.model.loading import folder_digest
from lad.model.observe import observe
from lad.model.vlm import VisionLanguageModel
from lad.prompts import MATCHING
from lad.samples import cyclic_orders
from tests.model.conftest import Loader
from tests.model.pictures import sample

NAMES = ("1", "2", "3")


def _make(base: Path, folder: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    model = AutoModelForImageTextToText.from_pretrained(base)
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules=r".*language_model.*(q_proj|v_proj)"))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.5)
    adapted.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def base(checkpoint: Callable[[str], Path]) -> Path:
    return checkpoint("qwen2_5_vl")


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _make(base, tmp_path_factory.mktemp("adapter"), seed=1)


def test_an_adapter_changes_the_answers_and_passes_every_check(base: Path, adapter: Path, load: Loader) -> None:
    adapted = VisionLanguageModel.load(base, adapter=adapter)
    assert type(adapted.model) is type(load("qwen2_5_vl").model)
    plain = observe(load("qwen2_5_vl"), [sample(3)], cyclic_orders(3))
    seen = observe(adapted, [sample(3)], cyclic_orders(3))
    assert np.abs(plain.log_probs - seen.log_probs).max() > 1e-2
    assert [result for result in run_checks(adapted) if not result.passed] == []


def test_merged_weights_do_what_the_adapter_does(base: Path, adapter: Path) -> None:
    from peft import PeftModel

    adapted = VisionLanguageModel.load(base, adapter=str(adapter))
    unmerged = VisionLanguageModel.load(base)
    PeftModel.from_pretrained(unmerged.model, str(adapter))  # puts its layers into the model
    one, other = (observe(vlm, [sample(3)], cyclic_orders(3)) for vlm in (adapted, unmerged))
    assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)
    assert one.attention == pytest.approx(other.attention, abs=1e-5)


def test_a_calibration_fits_its_adapter_only(base: Path, adapter: Path, load: Loader, tmp_path: Path) -> None:
    other = _make(base, tmp_path / "other", seed=2)
    models = [load("qwen2_5_vl"), *(VisionLanguageModel.load(base, adapter=path) for path in (adapter, other))]
    assert len({vlm.revision for vlm in models}) == 3
    calibration = calibrate(models[1], [sample(3)])
    calibration.require(VisionLanguageModel.load(base, adapter=adapter).identity(MATCHING, NAMES))
    for vlm in (models[0], models[2]):
        with pytest.raises(CalibrationError, match="revision was"):
            calibration.require(vlm.identity(MATCHING, NAMES))


def test_an_adapter_of_another_model_is_refused(adapter: Path, checkpoint: Callable[[str], Path]) -> None:
    with pytest.raises(ModelError, match="adapter does not fit Qwen2_5_VL"):
        VisionLanguageModel.load(adapter=adapter)  # of other shapes
    with pytest.raises(ModelError, match="adapter does not fit Idefics3"):
        VisionLanguageModel.load(checkpoint("idefics3"), adapter=adapter)  # of other names


def test_an_adapter_with_layers_missing_is_refused(base: Path, adapter: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(adapter / "adapter_model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if "layers.0." in name}
    (tmp_path / "adapter_config.json").write_text((adapter / "adapter_config.json").read_text())
    save_file(kept, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ModelError, match="adapter does not fit"):
        VisionLanguageModel.load(base, adapter=tmp_path)


def test_what_is_no_adapter_is_refused(base: Path, adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="There is no adapter folder"):
        VisionLanguageModel.load(base, adapter="./nowhere")
    with pytest.raises(ModelError, match=r"has no adapter_config\.json"):
        VisionLanguageModel.load(base, adapter=tmp_path)
    (tmp_path / "adapter_config.json").write_text((adapter / "adapter_config.json").read_text())
    # weights in the old, pickled form are not read
    (tmp_path / "adapter_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ModelError, match=r"has no adapter_model\.safetensors"):
        VisionLanguageModel.load(base, adapter=tmp_path)


def test_without_peft_the_extra_is_named(base: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(DependencyError, match=r"lad-vlm\[adapters\]"):
        VisionLanguageModel.load(base, adapter=adapter)


def test_the_command_line_takes_an_adapter(base: Path, adapter: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(base), "--adapter", str(adapter), "--json"])
    document = json.loads(result.stdout)
    assert document["passed"] is True
    assert document["revision"] == f"{folder_digest(base)}+{folder_digest(adapter)}"


def test_an_adapter_on_the_hub_is_fetched_without_its_pickles(
    base: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def fetch(name: str, *, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(adapter)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    fetched = VisionLanguageModel.load(base, adapter="someone/adapter")
    assert asked == [("someone/adapter", ["*.json", "*.safetensors"])]
    assert fetched.revision == VisionLanguageModel.load(base, adapter=adapter).revision


@pytest.mark.parametrize("name", ["nobody/no-such-adapter", "not a name"])
def test_an_adapter_that_the_hub_does_not_give_is_named(base: Path, name: str) -> None:
    with pytest.raises(ModelError, match=f"{name}: The adapter cannot be loaded"):
        VisionLanguageModel.load(base, adapter=name)
