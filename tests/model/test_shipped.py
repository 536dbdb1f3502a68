"""The seven self-checks on the model that ships, against the model's own eager attention and whole forward passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lad.checks.material import Material
from lad.checks.reference import attending
from lad.identifiers import make_identifiers
from lad.model.observe import observe
from lad.model.probe import IMPLEMENTATION
from lad.model.scoring import collate, prefill, score
from lad.model.vlm import VisionLanguageModel
from lad.prompts import MATCHING
from lad.samples import cyclic_orders
from tests.model.pictures import picture, sample

CLOSE = 1e-5
NAMES = make_identifiers("digits", 3)


@pytest.fixture(scope="module")
def material(shipped: VisionLanguageModel) -> Material:
    return Material(shipped)


def test_the_probe_is_set_on_the_text_decoder_only(shipped: VisionLanguageModel) -> None:
    assert shipped.model.config.get_text_config()._attn_implementation == IMPLEMENTATION
    assert shipped.model.config.vision_config._attn_implementation == "sdpa"


@pytest.mark.parametrize("padding", [0, 3])
def test_the_row_is_that_of_eager_attention(material: Material, shipped: VisionLanguageModel, padding: int) -> None:
    batch = collate([material.prompt], shipped.pad_token, shipped.device, padding=padding)
    seen = shipped.encoder.prefill_inputs(batch.inputs["input_ids"], [material.encoded])
    with attending(shipped.model, "eager"), torch.inference_mode():
        shipped.model.model.rope_deltas = None
        maps = shipped.model(**batch.inputs, **seen, output_attentions=True).attentions
    _, collector = material.run(material.prompt, material.encoded, padding=padding)
    assert sorted(collector.rows) == list(range(shipped.depth))
    for layer, attention in enumerate(maps):
        row = attention[0, :, -1].mean(dim=0)
        assert torch.allclose(collector.rows[layer][0], row, atol=CLOSE, rtol=0)
        assert not row[:padding].any()


def test_left_padding_changes_nothing(material: Material) -> None:
    plain_logits, plain = material.passed
    logits, padded = material.run(material.prompt, material.encoded, padding=3)
    assert torch.allclose(logits, plain_logits, atol=CLOSE, rtol=0)
    for layer, sums in plain.sums.items():
        assert torch.allclose(padded.sums[layer], sums, atol=CLOSE, rtol=0)


def test_logits_with_the_probe_are_exactly_those_without(material: Material, shipped: VisionLanguageModel) -> None:
    with attending(shipped.model, "sdpa"):
        without, silent = material.run(material.prompt, material.encoded, probe=False)
    assert silent.rows == {}
    assert torch.equal(material.passed[0], without)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_reused_features_equal_the_pass_over_pixels(material: Material, order: tuple[int, ...]) -> None:
    images = [material.encoded[index] for index in order]
    pixels = [material.pictures[index] for index in order]
    ours, _ = material.run(material.tokenize("a red square", images), images)
    plain = material.reference.logits(material.reference.inputs("a red square", pixels, NAMES))
    assert torch.allclose(ours, plain, atol=CLOSE, rtol=0)


@pytest.mark.parametrize("count", [10, 12])
def test_scores_on_the_cache_equal_whole_passes(material: Material, shipped: VisionLanguageModel, count: int) -> None:
    names = make_identifiers("digits", count)
    pictures = [shipped.prepare(picture(seed)) for seed in range(count)]
    images = material.encode(pictures)
    answers = shipped.prompts.answers(shipped.prompts.render(MATCHING, names, "a blue ring"), names)
    assert [branch.prefix != () for branch in answers.trie.branches] == [False, True], "'1' goes on to '10'"
    ours, _ = shipped.observe(["a blue ring"], [images], MATCHING, names)
    inputs = material.reference.inputs("a blue ring", pictures, names)
    logits = [
        material.reference.logits(material.reference.continued(inputs, 0, branch.prefix))[list(branch.continuations)]
        for branch in answers.trie.branches
    ]
    plain = answers.trie.log_probs([row.double().numpy() for row in logits])
    assert ours[0] == pytest.approx(plain, abs=CLOSE)
    assert np.exp(ours).sum() == pytest.approx(1)


def test_spans_hold_their_image_and_its_markers(shipped: VisionLanguageModel, material: Material) -> None:
    config = shipped.model.config
    prompt = material.prompt
    for index in range(3):
        span = prompt.tokens[prompt.segments == index].tolist()
        assert span == [config.vision_start_token_id, *[config.image_token_id] * 4, config.vision_end_token_id]
    assert not torch.isin(prompt.tokens[prompt.segments == 3], torch.tensor([config.image_token_id])).any()


def test_features_alone_leave_the_markers_out(material: Material) -> None:
    vlm = VisionLanguageModel.load(attention="features")
    prompt = vlm.prompts.tokenize(vlm.prompts.render(MATCHING, NAMES, "x"), material.encoded)
    assert np.bincount(prompt.segments.numpy())[:3].tolist() == [4, 4, 4]
    digests = [image.digest for image in material.encoded]
    scores, less = vlm.observe(["x"], [vlm.encoder.encode(material.pictures, digests)], MATCHING, NAMES)
    same_scores, more = material.vlm.observe(["x"], [material.encoded], MATCHING, NAMES)
    assert scores.tolist() == same_scores.tolist()
    assert (less < more).all()


def test_rows_sum_to_one(material: Material) -> None:
    for sums in material.passed[1].sums.values():
        assert sums.shape == (1, 4)
        assert sums.sum().item() == pytest.approx(1, abs=CLOSE)


def test_a_batch_gives_what_each_gives_alone_and_images_do_not_leak(shipped: VisionLanguageModel) -> None:
    # the same captions over exchanged galleries, and captions of different lengths: rows need padding
    one = [picture(seed) for seed in (0, 1, 2)]
    other = [picture(seed) for seed in (5, 4, 3)]
    galleries = [one, other, other, one]
    captions = ["a red square", "a red square", "a green ring beside the large blue star", "no more than a cross"]
    encoded = [shipped.encoder.encode(row, [str(id(image)) for image in row]) for row in galleries]
    together = shipped.observe(captions, encoded, MATCHING, NAMES)
    for index, caption in enumerate(captions):
        alone = shipped.observe([caption], [encoded[index]], MATCHING, NAMES)
        assert together[0][index] == pytest.approx(alone[0][0], abs=CLOSE)
        assert together[1][index] == pytest.approx(alone[1][0], abs=CLOSE)
    assert abs(together[0][0] - together[0][1]).max() > 1e-3, "other images, other answers"


def test_attention_follows_the_candidates_through_all_orders(shipped: VisionLanguageModel) -> None:
    seen = observe(shipped, [sample(4)], cyclic_orders(4))
    again = observe(shipped, [sample(4)], cyclic_orders(4))
    assert np.array_equal(seen.log_probs, again.log_probs)
    assert np.array_equal(seen.attention, again.attention)
    assert len({tuple(row) for row in seen.log_probs.round(6)}) == 4, "every order is a prompt of its own"


class Shapes(TorchDispatchMode):
    """Records the shape of every tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, tuple[int, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.made += [(str(func), tuple(leaf.shape)) for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        return out


def test_no_square_of_attention_is_ever_made(shipped: VisionLanguageModel) -> None:
    names = make_identifiers("digits", 12)
    images = shipped.encoder.encode([picture(seed) for seed in range(12)], [f"square {seed}" for seed in range(12)])
    text = shipped.prompts.render(MATCHING, names, "a red square")
    prompt = shipped.prompts.tokenize(text, images)
    batch = collate([prompt], shipped.pad_token, shipped.device)
    length = len(prompt.tokens)
    with Shapes() as shapes:
        score(shipped.model, shipped.encoder, batch, [images], shipped.prompts.trie(text, names))
    assert len(shapes.made) > 500
    # two sides as long as the prompt, or as the prompt and a token on the cache
    squares = [made for made in shapes.made if sum(length <= side <= length + 1 for side in made[1]) >= 2]
    assert squares == []
    with attending(shipped.model, "eager"), Shapes() as eager, torch.inference_mode():
        prefill(shipped.model, batch, shipped.encoder.prefill_inputs(batch.inputs["input_ids"], [images]))
    assert any(shape.count(length) >= 2 for _, shape in eager.made), "the test can see squares"
