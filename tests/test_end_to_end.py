"""The main job on the shipped model, and what it costs at the shapes of a real one."""

import itertools
import time

import numpy as np
import pytest

from lad.benchmarks.scenes import scene_samples
from lad.decisions import permutation_average
from lad.evaluation.methods import METHODS
from lad.evaluation.run import evaluate, make_plan
from lad.model.calibrate import calibrate
from lad.model.loading import Checkpoint, load_checkpoint
from lad.model.observe import observe
from lad.model.vlm import VisionLanguageModel
from lad.ranker import Ranker, load
from lad.samples import Sample, cyclic_orders


@pytest.fixture(scope="module")
def vlm():
    return load()


def _figures(vlm, count, setting, samples, seed=0):
    calibration = calibrate(vlm, scene_samples(5, count, setting=setting, split="calibration", seed=seed))
    tested = scene_samples(samples, count, setting=setting)
    plan = make_plan(vlm, tested, methods=[m for m in METHODS if m != "permutation_average"])
    result = evaluate(vlm, tested, calibration, plan)
    return {item.method: item.metrics for item in result.results}


def test_debiasing_at_8_candidates(vlm):
    figures = _figures(vlm, 8, "random", 60)
    assert figures["vanilla"].accuracy <= 60
    assert figures["vanilla"].consistency < 10
    assert figures["agd"].accuracy >= 93
    assert figures["agd"].rstd <= 6
    assert figures["agd"].consistency >= 85
    assert figures["agd"].passes == figures["vanilla"].passes == 1


def test_debiasing_at_4_candidates(vlm):
    random, adversarial = _figures(vlm, 4, "random", 60), _figures(vlm, 4, "adversarial", 60)
    assert random["agd"].accuracy >= 96
    assert adversarial["agd"].accuracy >= adversarial["vanilla"].accuracy + 8


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_debiasing_holds_for_any_five_calibration_samples(vlm, seed):
    at_8 = _figures(vlm, 8, "random", 200, seed)
    assert at_8["vanilla"].accuracy <= 60
    assert at_8["agd"].accuracy >= 93
    assert at_8["agd"].rstd <= 6
    assert at_8["agd"].consistency >= 85
    assert _figures(vlm, 4, "random", 200, seed)["agd"].accuracy >= 96
    adversarial = _figures(vlm, 4, "adversarial", 200, seed)
    assert adversarial["agd"].accuracy >= adversarial["vanilla"].accuracy + 8


def _averaged(vlm, sample, orders):
    seen = observe(vlm, [sample], orders)
    return permutation_average(seen.log_probs, seen.orders)


def test_cyclic_averaging_follows_cyclic_shifts_of_the_candidates(vlm):
    sample = scene_samples(1, 5, seed=3)[0]
    scores = _averaged(vlm, sample, cyclic_orders(5))
    for shift in range(1, 5):
        moved = Sample(sample.caption, [sample.images[(p + shift) % 5] for p in range(5)])
        assert _averaged(vlm, moved, cyclic_orders(5)) == pytest.approx(np.roll(scores, -shift), abs=1e-5)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_averaging_over_all_orders_follows_any_permutation(vlm, count):
    sample = scene_samples(1, count, seed=4)[0]
    everything = np.array(list(itertools.permutations(range(count))))
    scores = _averaged(vlm, sample, everything)
    for order in everything[:: max(1, len(everything) // 6)]:
        moved = Sample(sample.caption, [sample.images[candidate] for candidate in order])
        assert _averaged(vlm, moved, everything) == pytest.approx(scores[order], abs=1e-5)


def test_observations_are_the_same_to_the_last_digit(vlm):
    samples = scene_samples(4, 10, seed=6)
    first = observe(vlm, samples, cyclic_orders(10)[:3])
    again = observe(load(), samples, cyclic_orders(10)[:3])
    assert np.array_equal(first.log_probs, again.log_probs)
    assert np.array_equal(first.attention, again.attention)


def test_ranking_spends_its_time_in_the_model(vlm):
    """At the layer shapes of a 3B model (2 of its layers, random weights), on the second call."""
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    small = load_checkpoint()
    config = Qwen2_5_VLConfig.from_dict(small.model.config.to_dict())
    text = config.text_config
    text.hidden_size, text.intermediate_size, text.num_hidden_layers = 2048, 11008, 2
    text.layer_types = ["full_attention"] * 2
    text.num_attention_heads, text.num_key_value_heads = 16, 2
    text.rope_parameters = {**text.rope_parameters, "mrope_section": [16, 24, 24]}
    text.max_position_embeddings = 4096
    config.vision_config.out_hidden_size = 2048
    config._attn_implementation = {"text_config": "lad_lastrow"}
    large = Qwen2_5_VLForConditionalGeneration._from_config(config, dtype=torch.float32)
    ranker = Ranker(VisionLanguageModel(Checkpoint(large.eval(), small.processor, "random", "0"), image_size=336))
    samples = scene_samples(2, 4, split="calibration")
    ranker.calibrate(samples[:1])
    spent = 0.0
    forward = large.forward

    def timed(*args, **kwargs):
        nonlocal spent
        started = time.process_time()
        result = forward(*args, **kwargs)
        spent += time.process_time() - started
        return result

    large.forward = timed
    ranker.rank(samples[1].caption, samples[1].images)
    spent = 0.0
    started = time.process_time()
    ranker.rank(samples[1].caption, samples[1].images)
    assert spent > 0.9 * (time.process_time() - started)
