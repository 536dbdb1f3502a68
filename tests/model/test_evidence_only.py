"""A pass that stops at the deepest layer that the evidence needs."""

import numpy as np
import pytest

from lad.benchmarks.scenes import scene_samples
from lad.decisions import DecisionOptions, decide, probabilities
from lad.errors import DecisionError, PromptError
from lad.model.calibrate import calibrate
from lad.model.evidence_only import needed_layers, observe_attention, rank_by_attention
from lad.model.observe import observe
from lad.samples import cyclic_orders, to_candidates
from tests.model.checkpoints import BUILDERS
from tests.model.pictures import sample

CALIBRATED = DecisionOptions(layer_choice="calibrated")
SAMPLES = scene_samples(3, 4, seed=5)


@pytest.fixture(scope="module")
def calibration(shipped):
    return calibrate(shipped, scene_samples(5, 4, split="calibration"))


@pytest.mark.parametrize("name", BUILDERS)
def test_it_equals_the_full_pass_to_the_last_digit(name, load):
    vlm = load(name)
    samples = [sample(3, name="one"), sample(3, "a blue one", first=7, name="two")]
    full = observe(vlm, samples, cyclic_orders(3))
    seeing = np.flatnonzero(full.attention.any(axis=(0, 2)))
    for layers in ([int(seeing[0])], [int(seeing[-1])], seeing.tolist()):
        part = observe_attention(vlm, samples, cyclic_orders(3), layers)
        assert (part.attention[:, layers] == full.attention[:, layers]).all()
        assert not np.delete(part.attention, layers, axis=1).any()
        assert (part.orders == full.orders).all()
        assert part.samples == full.samples
        np.testing.assert_allclose(part.log_probs, -np.log(3))
    # an unfinished pass leaves nothing behind
    assert (observe(vlm, samples, cyclic_orders(3)).log_probs == full.log_probs).all()


def test_nothing_above_the_deepest_layer_is_run(shipped):
    ran = []
    layers = shipped.model.model.language_model.layers
    hooks = [
        layer.mlp.register_forward_hook(lambda *_, index=index: ran.append(index)) for index, layer in enumerate(layers)
    ]
    hooks.append(shipped.model.lm_head.register_forward_hook(lambda *_: ran.append("head")))
    try:
        observe_attention(shipped, SAMPLES[:1], np.arange(4)[None], [1, 2])
    finally:
        for hook in hooks:
            hook.remove()
    # not even what follows the attention of layer 2
    assert ran == [0, 1]


def test_purified_attention_decides_as_after_a_full_pass(shipped, calibration):
    layers = needed_layers(shipped.depth, CALIBRATED, calibration)
    assert len(layers) == 2
    full = observe(shipped, SAMPLES, cyclic_orders(4))
    part = observe_attention(shipped, SAMPLES, cyclic_orders(4), layers)
    for rule in ("purified_attention", "raw_attention"):
        expected = decide(rule, full, calibration, CALIBRATED)
        assert (decide(rule, part, calibration, CALIBRATED) == expected).all()
    ranked = rank_by_attention(shipped, SAMPLES, calibration)
    first = full.take(np.arange(0, 12, 4))
    wanted = probabilities(to_candidates(decide("purified_attention", first, calibration, CALIBRATED), first.orders))
    np.testing.assert_allclose(ranked, wanted, atol=1e-12)


def test_a_layer_range_stops_at_its_end(shipped, calibration):
    options = DecisionOptions(layer_range=(1, 3))
    assert needed_layers(shipped.depth, options) == (1, 2, 3)
    full = observe(shipped, SAMPLES, cyclic_orders(4))
    part = observe_attention(shipped, SAMPLES, cyclic_orders(4), needed_layers(shipped.depth, options))
    expected = decide("purified_attention", full, calibration, options)
    assert (decide("purified_attention", part, calibration, options) == expected).all()


def test_needed_layers(calibration):
    depth = calibration.layers
    assert needed_layers(depth) == tuple(range(depth))
    best = np.argsort(-calibration.layer_evidence, kind="stable")
    for top_k in (1, 2, 4):
        options = DecisionOptions(layer_choice="calibrated", top_k=top_k)
        assert needed_layers(depth, options, calibration) == tuple(sorted(best[:top_k].tolist()))
    within = DecisionOptions(layer_choice="calibrated", top_k=1, layer_range=(0, 1))
    assert needed_layers(depth, within, calibration) == (int(np.argmax(calibration.layer_evidence[:2])),)
    with pytest.raises(DecisionError, match="needs a calibration"):
        needed_layers(depth, CALIBRATED)


def test_layers_that_there_are_not(shipped):
    for layers in ([], [-1], [shipped.depth]):
        with pytest.raises(DecisionError, match="are not among 0 to"):
            observe_attention(shipped, SAMPLES, np.arange(4)[None], layers)


def test_layers_that_do_not_see_the_images_are_refused(load):
    # a window of 40 tokens, and eleven images before it
    with pytest.raises(PromptError, match="sees all 11 images"):
        observe_attention(load("gemma3"), [sample(11)], np.arange(11)[None], [0, 1])
