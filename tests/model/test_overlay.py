"""Attention by patch: the probe's own numbers, patch by patch."""

import numpy as np
import pytest
import torch

from lad.benchmarks.scenes import scene_samples
from lad.errors import ModelError
from lad.model.features import EncodedImage
from lad.model.observe import observe
from lad.model.overlay import observe_patches, patch_grid, strongest_layers
from lad.ranker import load


@pytest.mark.parametrize("order", [None, [2, 0, 1]])
def test_patches_add_up_to_what_the_probe_gives_each_image(order):
    vlm = load(attention="features")
    sample = scene_samples(1, 3, seed=8)[0]
    maps = observe_patches(vlm, sample, order)
    order = order or [0, 1, 2]
    seen = observe(vlm, [sample], np.array([order]))
    assert [values.shape for values in maps] == [(vlm.depth, 2, 2)] * 3
    by_position = np.stack([maps[candidate].sum(axis=(1, 2)) for candidate in order], axis=1)
    assert by_position == pytest.approx(seen.attention[0], rel=1e-4, abs=1e-7)


def test_the_layers_with_most_attention_are_averaged():
    maps = [np.zeros((3, 1, 2)), np.zeros((3, 1, 2))]
    maps[0][1], maps[1][1], maps[0][2], maps[1][0] = 0.5, 0.1, 0.2, 0.05
    both = strongest_layers(maps, top_k=2)
    assert both[0].tolist() == [[0.35, 0.35]]
    assert both[1].tolist() == [[0.05, 0.05]]


def encoded(tokens, grid=None):
    fields = {} if grid is None else {"image_grid_thw": torch.tensor([grid])}
    return EncodedImage("digest", torch.zeros(tokens, 4), "", grid=fields)


def test_grids_follow_the_processor_or_are_square():
    assert patch_grid(encoded(12, [1, 6, 8])) == (3, 4)
    assert patch_grid(encoded(16)) == (4, 4)
    with pytest.raises(ModelError, match="The 10 tokens of an image form no grid"):
        patch_grid(encoded(10))
