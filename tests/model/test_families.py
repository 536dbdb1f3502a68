"""Every family, as a user meets it: a checkpoint in a folder, loaded by its path, and put through `lad check`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lad.checks import CHECKS, run_checks
from lad.model.families import FAMILIES
from lad.model.observe import observe
from lad.model.scoring import collate, prefill
from lad.model.vlm import VisionLanguageModel
from lad.prompts import MATCHING
from lad.samples import cyclic_orders
from tests.model.checkpoints import BUILDERS
from tests.model.conftest import Loader
from tests.model.families_table import BEGIN, PAGE
from tests.model.families_table import END as TABLE_END
from tests.model.pictures import picture, sample

TILED = ("internvl", "idefics3", "smolvlm", "aya_vision", "cohere2_vision", "ovis2", "lfm2_vl", "molmo2", "mllama")
NAMES = ("1", "2", "3")


@pytest.mark.parametrize("name", BUILDERS)
def test_a_checkpoint_on_disk_passes_every_check(name: str, checkpoint: Callable[[str], Path]) -> None:
    vlm = VisionLanguageModel.load(str(checkpoint(name)))
    results = run_checks(vlm)
    assert [result.name for result in results] == [check.__name__ for check in CHECKS]
    assert [result for result in results if not result.passed] == []


@pytest.mark.parametrize("name", TILED)
def test_tiles_belong_to_their_image(name: str, load: Loader) -> None:
    tiled = load(name, tiling=True)
    assert [result for result in run_checks(tiled) if not result.passed] == []
    wide = tiled.prompts.tokenize(
        tiled.prompts.render(MATCHING, NAMES, "x"), _encode(tiled, [(224, 112), (112, 112), (112, 224)])
    )
    lengths = np.bincount(wide.segments.numpy())[:3]
    if tiled.family.images == "tokens":
        assert len(set(lengths)) > 1, "the shapes were meant to give different numbers of tiles"
    assert tiled.identity(MATCHING, NAMES) != load(name).identity(MATCHING, NAMES)


def test_crops_of_gemma3_belong_to_their_image(load: Loader) -> None:
    # pan and scan puts text between an image's crops, so an image has several runs of tokens
    vlm = load("gemma3", tiling=True)
    images = _encode(vlm, [(300, 300), (1400, 300), (300, 300)])
    prompt = vlm.prompts.tokenize(vlm.prompts.render(MATCHING, NAMES, "x"), images)
    assert [len(image.features) for image in images] == [4, 20, 4]
    spans = [(prompt.segments == index).nonzero().flatten() for index in range(3)]
    assert [int(place[-1] - place[0]) + 1 for place in spans] == [len(place) for place in spans]
    token = prompt.tokens == vlm.model.config.image_token_id
    assert [int((token & (prompt.segments == index)).sum()) for index in range(3)] == [4, 20, 4]


@pytest.mark.parametrize("name", BUILDERS)
def test_noise_in_one_image_reaches_only_its_own_tokens(name: str, load: Loader) -> None:
    for options in ({}, {"tiling": True, "image_size": "native"}):
        vlm = load(name, **options)
        images = _encode(vlm, [(112, 84), (84, 112), (112, 112)])
        prompt = vlm.prompts.tokenize(vlm.prompts.render(MATCHING, NAMES, "x"), images)
        before = _decoder_input(vlm, prompt, images)
        for index in range(3):
            noisy = list(images)
            noise = torch.randn_like(images[index].features)
            noisy[index] = _with_features(images[index], noise)
            changed = (before != _decoder_input(vlm, prompt, noisy)).any(dim=-1)
            owners = vlm.encoder.collector(prompt.segments[None], [images]).segments[0]
            if vlm.family.images == "tokens":
                feature = prompt.tokens == vlm.model.config.image_token_id
                assert torch.equal(changed, (owners == index) & feature)
            else:
                # keys of empty tiles belong to no image, though noise was put there too
                per_image = len(owners) // 3
                assert set(changed.nonzero().flatten().tolist()) == set(
                    range(index * per_image, (index + 1) * per_image)
                )
                assert changed[owners == index].all()


@pytest.mark.parametrize("name", BUILDERS)
def test_tokens_are_fixed_whatever_the_shape_of_a_picture(name: str, load: Loader) -> None:
    vlm = load(name)
    shapes = [(64, 64), (200, 50), (50, 200), (333, 111)]
    images = vlm.encoder.encode(*_prepared(vlm, shapes))
    assert len({len(image.features) for image in images}) == 1
    assert len({image.replacement for image in images}) == 1


@pytest.mark.parametrize("name", ["qwen2_5_vl", "internvl", "mistral3", "llava_next", "gemma4", "mllama"])
def test_the_image_size_is_honoured_and_part_of_the_identity(name: str, load: Loader) -> None:
    vlm = load(name, image_size=56)
    assert vlm.prepare(picture(0, 100, 30)).size == (56, 56)
    assert vlm.identity(MATCHING, NAMES).image_size == "56x56"
    assert vlm.identity(MATCHING, NAMES) != load(name).identity(MATCHING, NAMES) or load(name).image_size == (56, 56)


@pytest.mark.parametrize("name", BUILDERS)
def test_each_image_is_encoded_once_for_all_orders(name: str, checkpoint: Callable[[str], Path]) -> None:
    vlm = VisionLanguageModel.load(checkpoint(name))
    seen = observe(vlm, [sample(3)], cyclic_orders(3))
    assert vlm.encoder.encoded == 3
    assert seen.attention.shape == (3, vlm.depth, 3)
    assert np.allclose(np.exp(seen.log_probs).sum(axis=1), 1)


def test_families_that_follow_the_conventions_need_no_entry() -> None:
    assert {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "glm4v", "llava", "fast_vlm"} & FAMILIES.keys() == set()


def test_the_table_in_the_docs_has_every_family() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = page.split(BEGIN)[1].split(TABLE_END)[0].splitlines()
    assert [row.split("|")[1].strip() for row in rows[2:]] == list(BUILDERS)


def _prepared(vlm: VisionLanguageModel, shapes: list[tuple[int, int]]) -> tuple[list[Any], list[str]]:
    pictures = [vlm.prepare(picture(seed, *shape)) for seed, shape in enumerate(shapes)]
    return pictures, [f"{shape} {vlm.tiling} {vlm.image_size}" for shape in shapes]


def _encode(vlm: VisionLanguageModel, shapes: list[tuple[int, int]]) -> list[Any]:
    return vlm.encoder.encode(*_prepared(vlm, shapes))


def _with_features(image: Any, features: torch.Tensor) -> Any:
    from dataclasses import replace

    return replace(image, features=features)


def _decoder_input(vlm: VisionLanguageModel, prompt: Any, images: list[Any]) -> torch.Tensor:
    """What the text decoder is given: embeddings (T, D), or the keys' states of cross-attention."""
    caught: list[torch.Tensor] = []

    def look(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        states = kwargs.get("cross_attention_states")
        caught.append(kwargs["inputs_embeds"][0] if states is None else states.flatten(0, 1))

    handle = vlm.model.get_decoder().register_forward_pre_hook(look, with_kwargs=True)
    try:
        batch = collate([prompt], vlm.pad_token, vlm.device)
        prefill(vlm.model, batch, vlm.encoder.prefill_inputs(batch.inputs["input_ids"], [images]))
    finally:
        handle.remove()
    return caught[0].clone()
