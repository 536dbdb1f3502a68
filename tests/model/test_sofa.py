"""SoFA against attention written out with loops, layer by layer and pair by pair."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lad.benchmarks.scenes import scene_samples
from lad.errors import DecisionError, ModelError, SampleError
from lad.model.interventions.sofa import SoftAttention, opened_pairs, soft_attention
from lad.model.observe import observe
from lad.model.probe import COLLECTOR_ARGUMENT, IMPLEMENTATION
from lad.ranker import load
from lad.samples import random_orders

EVERY = [
    SoftAttention(sigma, form, scope)
    for sigma in (0.3, 1.0)
    for form in ("mask", "blend")
    for scope in ("all_image_tokens", "between_images")
]


@pytest.fixture(scope="module")
def vlm():
    return load()


@pytest.fixture(scope="module")
def samples(vlm):
    # captions of different lengths, so that the batch is padded
    chosen = sorted(scene_samples(6, 3, seed=4), key=lambda sample: len(sample.caption))
    return [vlm.prepare_sample(sample) for sample in (chosen[0], chosen[-1])]


@pytest.mark.parametrize("scope", ["all_image_tokens", "between_images"])
def test_which_pairs_are_opened(scope):
    segments = torch.tensor([[2, 0, 0, 2, 1, 1, 2, 0]])  # two images, 2 is text; a token of image 0 stands late
    length = segments.shape[1]
    visible = torch.ones(1, 1, length, length, dtype=torch.bool).tril()
    found = opened_pairs(visible, segments, 2, scope)
    for query in range(length):
        for key in range(length):
            images = [int(segments[0, query]), int(segments[0, key])]
            opened = key > query and max(images) < 2 and (scope == "all_image_tokens" or images[0] != images[1])
            assert bool(found[0, 0, query, key]) == opened, (query, key)


def _written_out(options: SoftAttention):
    """An attention function that does in float64 what SoFA says, from nothing but the layer's own mask."""

    def softmax(scores):
        weights = np.exp(scores - scores.max())
        return weights / weights.sum()

    def attend(module, query, key, value, mask, scaling=None, **kwargs):
        collector = kwargs[COLLECTOR_ARGUMENT]
        batch, heads, length, size = query.shape
        q, k, v = (part.double().numpy() for part in (query, key, value))
        segments, images = collector.segments.numpy(), collector.count - 1
        output = np.zeros((batch, length, heads, size))
        last = np.zeros((batch, length))
        for b in range(batch):
            for i in range(length):
                shown = [j for j in range(i + 1) if mask is None or bool(mask[b, 0, i, j])]
                if not shown:  # padding
                    continue
                opened = []
                if module.layer_idx % 2 == 0 and segments[b, i] < images:
                    opened = [
                        j
                        for j in range(i + 1, length)
                        if segments[b, j] < images
                        and (options.scope == "all_image_tokens" or segments[b, j] != segments[b, i])
                    ]
                for h in range(heads):
                    score = {j: float(q[b, h, i] @ k[b, h, j]) * scaling for j in [*shown, *opened]}
                    plain = softmax(np.array([score[j] for j in shown])) @ v[b, h, shown]
                    if i == length - 1:
                        last[b, shown] += softmax(np.array([score[j] for j in shown])) / heads
                    if not opened:
                        output[b, i, h] = plain
                    elif options.form == "mask":
                        soft = [score[j] + (math.log(options.sigma) if j in opened else 0.0) for j in score]
                        output[b, i, h] = softmax(np.array(soft)) @ v[b, h, list(score)]
                    else:
                        both = softmax(np.array(list(score.values()))) @ v[b, h, list(score)]
                        output[b, i, h] = options.sigma * both + (1 - options.sigma) * plain
        collector.add(module.layer_idx, torch.from_numpy(last).float())
        return torch.from_numpy(output).to(query.dtype), None

    return attend


@pytest.mark.parametrize("options", EVERY, ids=lambda options: f"{options.form}-{options.scope}-{options.sigma}")
def test_against_attention_written_out(vlm, samples, options):
    orders = random_orders(3, 1)
    with soft_attention(vlm, options):
        found = observe(vlm, samples, orders)
    stock = ALL_ATTENTION_FUNCTIONS[IMPLEMENTATION]
    AttentionInterface.register(IMPLEMENTATION, _written_out(options))
    try:
        wanted = observe(vlm, samples, orders)
    finally:
        AttentionInterface.register(IMPLEMENTATION, stock)
    np.testing.assert_allclose(found.log_probs, wanted.log_probs, atol=2e-5)
    np.testing.assert_allclose(found.attention, wanted.attention, atol=1e-5)


@pytest.mark.parametrize("form", ["mask", "blend"])
@pytest.mark.parametrize("scope", ["all_image_tokens", "between_images"])
def test_sigma_zero_is_vanilla_to_the_last_digit(vlm, samples, form, scope):
    orders = random_orders(3, 3)
    before = observe(vlm, samples, orders)
    with soft_attention(vlm, SoftAttention(0.0, form, scope)):
        found = observe(vlm, samples, orders)
    assert np.array_equal(found.log_probs, before.log_probs)
    assert np.array_equal(found.attention, before.attention)


def test_the_model_is_itself_again_afterwards(vlm, samples):
    orders = random_orders(3, 2)
    before = observe(vlm, samples, orders)
    with soft_attention(vlm, SoftAttention()):
        assert not np.array_equal(observe(vlm, samples, orders).log_probs, before.log_probs)
    assert np.array_equal(observe(vlm, samples, orders).log_probs, before.log_probs)
    with pytest.raises(SampleError, match="no samples"), soft_attention(vlm, SoftAttention()):
        observe(vlm, [], orders)
    assert np.array_equal(observe(vlm, samples, orders).log_probs, before.log_probs)


def test_another_model_is_left_alone(vlm, samples):
    other = load()
    orders = random_orders(3, 2)
    before = observe(other, samples, orders)
    with soft_attention(vlm, SoftAttention()):
        assert np.array_equal(observe(other, samples, orders).log_probs, before.log_probs)
        assert not np.array_equal(observe(vlm, samples, orders).log_probs, before.log_probs)


def test_two_token_identifiers_go_on_from_the_changed_prompt(vlm):
    sample = vlm.prepare_sample(scene_samples(1, 12, seed=2)[0])
    orders = random_orders(12, 2)
    before = observe(vlm, [sample], orders)
    with soft_attention(vlm, SoftAttention()):
        found = observe(vlm, [sample], orders)
    assert np.exp(found.log_probs).sum(1) == pytest.approx(1)
    assert np.abs(found.log_probs - before.log_probs).max() > 0.01


def test_a_model_out_of_reach_is_named(vlm):
    with pytest.raises(ModelError, match="SoFA cannot change"), soft_attention(vlm, SoftAttention()):
        pass  # nothing passed through


@pytest.mark.parametrize(
    ("change", "words"),
    [({"sigma": 1.5}, "sigma"), ({"form": "x"}, "form 'x'"), ({"scope": "x"}, "scope 'x'"), ({"every": 0}, "n >= 1")],
)
def test_values_outside_their_range(change, words):
    with pytest.raises(DecisionError, match=words):
        SoftAttention(**change)
