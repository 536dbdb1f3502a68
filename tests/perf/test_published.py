"""The re-stated procedure and ours see and decide the same, so that comparing their times is fair."""

import numpy as np
import pytest
import torch

from lad.benchmarks.scenes import scene_samples
from lad.identifiers import make_identifiers
from lad.model.observe import observe
from lad.model.probe import IMPLEMENTATION
from lad.model.vlm import VisionLanguageModel
from lad.samples import random_orders
from perf.models import SMALL, attention, noise_samples, random_vlm
from perf.published import METHODS, PublishedProcedure
from perf.whole_plan import ours, published


@pytest.fixture(scope="module")
def vlm():
    return VisionLanguageModel.load()


def test_decisions_are_the_same_with_the_published_options(vlm):
    samples, calibration = scene_samples(1, 4), scene_samples(5, 4, split="calibration")
    orders = random_orders(4, 3)
    mine = ours(vlm, samples, calibration, orders)
    theirs, forwards = published(vlm, samples, calibration, orders)
    assert set(mine) == set(theirs) == set(METHODS)
    for method in METHODS[1:]:
        assert (mine[method] == theirs[method]).all(), method
    # 3 answers of two tokens; 20 + 3 passes for each other method
    assert forwards == 3 * 2 + 4 * (20 + 3)


def test_observations_are_the_same_with_identifiers_of_two_tokens(vlm):
    [sample] = scene_samples(1, 11)
    order = random_orders(11, 2)[1]
    seen = observe(vlm, [sample], order[None])
    with attention(vlm, "eager"):
        procedure = PublishedProcedure(vlm, make_identifiers("digits", 11))
        scores, mass = procedure._observe(sample, order, "agd")
    np.testing.assert_allclose(scores, seen.log_probs[0], atol=1e-4)
    np.testing.assert_allclose(mass, seen.attention[0], atol=1e-5)
    assert procedure.forwards == 2


def test_attention_is_put_back(vlm):
    config = vlm.model.config.get_text_config()
    during = []

    def interrupted():
        with attention(vlm, "sdpa"):
            during.append(config._attn_implementation)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert during == ["sdpa"]
    assert config._attn_implementation == IMPLEMENTATION
    assert vlm.model.config.vision_config._attn_implementation == "sdpa"


def test_random_models_have_the_shapes_asked_for():
    model = random_vlm(SMALL, device=torch.device("cpu"), dtype=torch.float32, image_size=(84, 56))
    text = model.model.config.get_text_config()
    assert (text.hidden_size, text.num_hidden_layers, text.num_key_value_heads) == (64, 3, 2)
    samples = noise_samples(model, 2, 3)
    assert len({image.tobytes() for sample in samples for image in sample.images}) == 6
    [encoded, *_] = model.encode(model.prepare_sample(samples[0]))
    assert encoded.features.shape == (6, 64)
