"""Half precisions, and numbers that are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lad.checks import run_checks
from lad.errors import NumericsError
from lad.model.observe import observe
from lad.model.vlm import VisionLanguageModel
from lad.samples import cyclic_orders
from tests.model.conftest import Loader
from tests.model.pictures import sample


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["qwen2_5_vl", "internvl", "gemma3", "idefics3", "paligemma2", "mllama", "lfm2_vl"])
def test_every_precision_passes_every_check(name: str, dtype: str, load: Loader) -> None:
    vlm = load(name, dtype=dtype)
    assert vlm.dtype == dtype
    assert [result for result in run_checks(vlm) if not result.passed] == []


@pytest.mark.parametrize(("dtype", "scores", "rows"), [("bfloat16", 0.5, 0.05), ("float16", 0.1, 0.01)])
def test_half_precisions_are_near_the_full_one(load: Loader, dtype: str, scores: float, rows: float) -> None:
    full = observe(load("qwen2_5_vl"), [sample(3)], cyclic_orders(3))
    half = observe(load("qwen2_5_vl", dtype=dtype), [sample(3)], cyclic_orders(3))
    assert half.log_probs.dtype == np.float64
    assert np.exp(half.log_probs).sum(axis=1) == pytest.approx(np.ones(3), abs=1e-9)
    assert half.log_probs == pytest.approx(full.log_probs, abs=scores)
    assert half.attention == pytest.approx(full.attention, abs=rows)


def _broken(folder: Path, dtype: str, layer: int, value: float) -> VisionLanguageModel:
    vlm = VisionLanguageModel.load(folder, dtype=dtype)
    with torch.no_grad():
        vlm.model.get_decoder().layers[layer].mlp.down_proj.weight.fill_(value)
    return vlm


@pytest.mark.parametrize(
    ("dtype", "advice"),
    [
        ("float16", r"dtype='bfloat16' or dtype='float32'"),
        ("bfloat16", r"dtype='float32'"),
        ("float32", "weights may be damaged"),
    ],
)
def test_an_overflow_names_layer_precision_and_what_to_try(
    checkpoint: Callable[[str], Path], dtype: str, advice: str
) -> None:
    vlm = _broken(checkpoint("qwen2_5_vl"), dtype, 1, float("inf"))
    with pytest.raises(NumericsError, match=rf"attention of layer 2: .*not finite in {dtype}\. .*{advice}"):
        observe(vlm, [sample(3)], cyclic_orders(3))


def test_an_overflow_of_float16_alone(checkpoint: Callable[[str], Path]) -> None:
    # large but finite weights: float32 and bfloat16 go through, float16 does not
    assert np.isfinite(
        observe(_broken(checkpoint("qwen2_5_vl"), "bfloat16", 1, 6e4), [sample(3)], cyclic_orders(3)).log_probs
    ).all()
    with pytest.raises(NumericsError, match=r"layer 2: .*float16"):
        observe(_broken(checkpoint("qwen2_5_vl"), "float16", 1, 6e4), [sample(3)], cyclic_orders(3))


def test_an_overflow_after_the_last_attention_is_found_in_the_logits(checkpoint: Callable[[str], Path]) -> None:
    vlm = _broken(checkpoint("qwen2_5_vl"), "float32", 3, float("nan"))
    with pytest.raises(NumericsError, match="answer logits: "):
        observe(vlm, [sample(3)], cyclic_orders(3))
