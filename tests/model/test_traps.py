"""Where families go wrong without a word, each with the control that shows the trap is one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from lad.checks.material import Material
from lad.decisions import DecisionOptions, chosen_layers, gather_evidence
from lad.model.calibrate import calibrate
from lad.model.observe import observe
from lad.model.probe import IMPLEMENTATION
from lad.model.scoring import collate, score
from lad.model.vlm import VisionLanguageModel
from lad.prompts import MATCHING
from lad.samples import cyclic_orders
from tests.model.conftest import Loader
from tests.model.pictures import picture, sample

NAMES = ("1", "2", "3")
M_ROPE = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "glm4v")
SLIDING = {"gemma3": [2], "gemma4": [1, 3], "aya_vision": [3], "cohere2_vision": [3]}


@pytest.mark.parametrize("name", ["llava", "llava_next", "llava_onevision", "fast_vlm", "paligemma", "paligemma2"])
def test_adjacent_images_are_told_apart_though_their_tokens_fuse(name: str, load: Loader) -> None:
    vlm = load(name)
    one = picture(0)
    prepared = vlm.prepare(one)
    images = vlm.encoder.encode([prepared] * 3, ["same"] * 3)
    template = vlm.prompts.render(MATCHING, NAMES, "x").replace("<image>\n", "<image>")
    prompt = vlm.prompts.tokenize(template, images)
    places = [(prompt.segments == index).nonzero().flatten() for index in range(3)]
    lengths = [len(image.features) for image in images]
    assert [len(place) for place in places] == lengths
    start = int(places[0][0])
    run = prompt.tokens[start : start + sum(lengths)]
    assert (run == vlm.model.config.image_token_id).all(), "one run of equal tokens, nothing between the images"
    assert [int(place[0]) for place in places] == [start, start + lengths[0], start + 2 * lengths[0]]


@pytest.mark.parametrize("name", ["llava", "idefics3", "ovis2", "aya_vision", "paligemma", "mllama", "qwen2_5_vl"])
def test_equal_pictures_have_equal_features_wherever_they_stand(name: str, load: Loader) -> None:
    vlm = load(name)
    fresh = type(vlm.encoder)(vlm.model, vlm.processor, vlm.family, tiling=vlm.tiling)
    same, other = vlm.prepare(picture(0)), vlm.prepare(picture(1))
    # different digests, so that each is encoded for itself
    features = [image.features for image in fresh.encode([same, other, same, same], ["a", "b", "c", "d"])]
    assert fresh.encoded == 4
    for place in (2, 3):
        assert torch.allclose(features[0], features[place], atol=1e-5, rtol=0)
    assert not torch.allclose(features[0], features[1], atol=1e-2, rtol=0)


@pytest.mark.parametrize("name", M_ROPE)
def test_left_padding_moves_no_position(name: str, load: Loader) -> None:
    vlm = load(name, image_size="native")
    galleries = [[picture(0, 64, 32), picture(1, 32, 64), picture(2)], [picture(3), picture(4), picture(5, 32, 32)]]
    encoded = [
        vlm.encoder.encode(row, [f"{name} {image.size} {n}" for n, image in enumerate(row)]) for row in galleries
    ]
    captions = ["a", "a much longer caption, so that the other prompt is padded by many tokens"]
    together = vlm.observe(captions, encoded, MATCHING, NAMES)
    for index, caption in enumerate(captions):
        scores, attention = vlm.observe([caption], [encoded[index]], MATCHING, NAMES)
        assert together[0][index] == pytest.approx(scores[0], abs=1e-5)
        assert together[1][index] == pytest.approx(attention[0], abs=1e-5)


@pytest.mark.parametrize("name", M_ROPE)
def test_positions_left_behind_by_another_call_do_not_matter(name: str, load: Loader) -> None:
    vlm = load(name)
    expected = observe(vlm, [sample(12)], cyclic_orders(12)[:1])
    vlm.model.model.rope_deltas = torch.tensor([[-37]])
    again = observe(vlm, [sample(12)], cyclic_orders(12)[:1])
    assert np.array_equal(expected.log_probs, again.log_probs)
    assert np.array_equal(expected.attention, again.attention)


@pytest.mark.parametrize(("name", "seeing"), SLIDING.items())
def test_layers_whose_window_misses_an_image_are_reported_and_not_chosen(
    name: str, seeing: list[int], load: Loader
) -> None:
    vlm = load(name)
    samples = [sample(3, name=f"s{index}", first=3 * index) for index in range(2)]
    seen = observe(vlm, samples, cyclic_orders(3))
    blind = [layer for layer in range(vlm.depth) if layer not in seeing]
    assert not seen.attention[:, blind].any()
    assert (seen.attention[:, seeing] > 0).all()
    calibration = calibrate(vlm, samples)
    assert calibration.layers == vlm.depth
    for choice in ("mass", "all", "calibrated"):
        options = DecisionOptions(top_k=4, layer_choice=choice)  # type: ignore[arg-type]
        layers = chosen_layers(seen, calibration, options)
        assert set(layers.ravel().tolist()) == set(seeing)
        assert np.isfinite(gather_evidence(seen, calibration, options).log_posterior).all()
    # layer numbers are those of the decoder
    one = DecisionOptions(layer_range=(seeing[0], vlm.depth - 1), top_k=1)
    assert set(chosen_layers(seen, calibration, one).ravel().tolist()) <= set(seeing)


@pytest.mark.parametrize("name", ["gemma3", "cohere2_vision"])
def test_a_window_that_reaches_all_images_counts(name: str, load: Loader) -> None:
    vlm = VisionLanguageModel.load(load(name).model.config._name_or_path)
    vlm.model.config.get_text_config().sliding_window = 4096
    for module in vlm.model.get_decoder().modules():
        if getattr(module, "sliding_window", None):
            module.sliding_window = 4096
    assert (observe(vlm, [sample(3)], cyclic_orders(3)).attention > 0).all()


def test_a_prompt_that_attends_both_ways_is_seen_through_any_window(load: Loader) -> None:
    # in PaliGemma 2 the whole prompt is one block, and blocks go before windows
    assert (observe(load("paligemma2"), [sample(3)], cyclic_orders(3)).attention > 0).all()


def test_mass_outside_a_window_is_zero_in_eager_attention_too(load: Loader) -> None:
    material = Material(load("gemma3"))
    rows = material.reference.last_rows(material.plain)
    images = material.prompt.segments < 3
    for layer, row in enumerate(rows):
        assert bool(row[images].sum() > 0) == (layer == 2)


@pytest.mark.parametrize("name", ["gemma3", "paligemma", "paligemma2", "molmo2", "gemma4", "qwen2_5_vl"])
def test_type_ids_are_given_and_matter(name: str, load: Loader) -> None:
    vlm = load(name)
    material = Material(vlm)
    assert material.prompt.type_ids
    with_types, _ = material.run(material.prompt, material.encoded, padding=2)
    bare = replace(material.prompt, type_ids={})
    without, _ = material.run(bare, material.encoded, padding=2)
    # this family takes positions from us, and the types are for positions only
    changed = not torch.allclose(with_types, without, atol=1e-3)
    assert changed == (name != "qwen2_5_vl")


@pytest.mark.parametrize("name", ["gemma3", "gemma4", "lfm2_vl", "aya_vision", "mllama", "qwen2_5_vl", "molmo2"])
def test_two_steps_on_one_cache_equal_whole_passes(name: str, load: Loader) -> None:
    # four identifiers with two prefixes: the cache is gone on from twice, whatever kinds of layers it has
    vlm = load(name)
    names = ("ka", "kb", "va", "vb")
    pictures = [vlm.prepare(picture(seed)) for seed in range(4)]
    images = vlm.encoder.encode(pictures, [f"step {seed}" for seed in range(4)])
    answers = vlm.prompts.answers(vlm.prompts.render(MATCHING, names, "x"), names)
    assert len([branch for branch in answers.trie.branches if branch.prefix]) == 2
    ours, _ = vlm.observe(["x"], [images], MATCHING, names)
    reference = Material(vlm).reference
    inputs = reference.inputs("x", pictures, names)
    logits = [
        reference.logits(reference.continued(inputs, answers.joined, branch.prefix))[list(branch.continuations)]
        for branch in answers.trie.branches
    ]
    plain = answers.trie.log_probs([row.double().numpy() for row in logits])
    assert ours[0] == pytest.approx(plain, abs=1e-5)


def test_without_its_mask_function_the_probe_would_be_wrong(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    # the control for all tests of padding: they notice when transformers leaves the mask out
    vlm = load("qwen2_5_vl")
    material = Material(vlm)
    plain, _ = material.passed
    assert IMPLEMENTATION in ALL_MASK_ATTENTION_FUNCTIONS
    monkeypatch.delitem(AttentionMaskInterface._global_mapping, IMPLEMENTATION)
    padded, _ = material.run(material.prompt, material.encoded, padding=3)
    assert not torch.allclose(padded, plain, atol=1e-3)


def test_mllama_reads_cross_attention_and_every_image_is_visible(load: Loader) -> None:
    vlm = load("mllama")
    seen = observe(vlm, [sample(3)], cyclic_orders(3))
    assert seen.attention.sum(axis=2)[:, [1, 3]] == pytest.approx(np.ones((3, 2)), abs=1e-5)
    assert not seen.attention[:, [0, 2, 4]].any()
    assert (seen.attention[:, [1, 3]] > 0).all(), "not only the last image"


def test_no_layer_that_sees_all_images_is_an_error_that_says_so(load: Loader) -> None:
    from lad.errors import PromptError

    vlm = load("gemma3")
    material = Material(vlm)
    batch = collate([material.prompt], vlm.pad_token, vlm.device)

    class Narrow(type(vlm.encoder)):  # type: ignore[misc]
        def collector(self, segments: Any, images: Any) -> Any:
            collector = super().collector(segments, images)
            collector.layers = frozenset({0, 1})
            return collector

    narrow = Narrow(vlm.model, vlm.processor, vlm.family)
    images = narrow.encode(material.pictures, ["x", "y", "z"])
    trie = vlm.prompts.trie(vlm.prompts.render(MATCHING, NAMES, "x"), NAMES)
    with pytest.raises(PromptError, match=r"No layer of Gemma3\w+ sees all 3 images .* fewer images"):
        score(vlm.model, narrow, batch, [images], trie)
