"""Captions over a gallery give what each gives on its own, and cost its own tokens only."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from lad.benchmarks.scenes import scene_samples
from lad.errors import CalibrationError, ImageError, ModelError, PromptError, SampleError
from lad.model.caches import cache_bytes, fork
from lad.model.families import FAMILIES
from lad.model.gallery import Gallery
from lad.model.observe import observe
from lad.ranker import Ranker
from tests.model.checkpoints import BUILDERS
from tests.model.pictures import picture, sample

CAPTIONS = ["a red square", "the blue one on its left", "a dog", "a cat on a green hill", "a red square"]
CLOSED = [name for name in BUILDERS if name.startswith("paligemma")]
OPEN = [name for name in BUILDERS if name not in CLOSED]


def open_gallery(vlm, count, **options):
    return Gallery(vlm, vlm.encode(vlm.prepare_sample(sample(count))), **options)


def observed(vlm, count, captions, **options):
    samples = [sample(count, caption, name=str(index)) for index, caption in enumerate(captions)]
    return observe(vlm, samples, np.arange(count)[None], **options)


@pytest.mark.parametrize("name", OPEN)
def test_a_gallery_says_what_single_prompts_say(name, load):
    """Eleven candidates: "10" and "11" are scored in a further step. Windows, recurrences, cross-attention included."""
    vlm = load(name)
    gallery = open_gallery(vlm, 11)
    together, alone = gallery.observe(CAPTIONS), gallery.observe(CAPTIONS[3:4])
    expected = observed(vlm, 11, CAPTIONS)
    np.testing.assert_allclose(together.log_probs, expected.log_probs, atol=1e-5)
    np.testing.assert_allclose(together.attention, expected.attention, atol=1e-5)
    np.testing.assert_allclose(alone.log_probs, expected.log_probs[3:4], atol=1e-5)
    np.testing.assert_allclose(alone.attention, expected.attention[3:4], atol=1e-5)
    assert (together.orders == np.arange(11)).all()
    assert together.samples == ("0", "1", "2", "3", "4")
    assert (together.answers == -1).all()


@pytest.mark.parametrize("name", CLOSED)
def test_images_that_see_the_caption_cannot_be_read_ahead_of_it(name, load):
    with pytest.raises(ModelError, match="attend to the caption"):
        open_gallery(load(name), 3)


@pytest.mark.parametrize("name", CLOSED)
def test_the_refusal_is_needed(name, load, monkeypatch):
    vlm = load(name)
    monkeypatch.setattr(vlm, "family", replace(vlm.family, images_see_text=False))
    wrong = open_gallery(vlm, 3).observe(CAPTIONS)
    assert np.abs(wrong.log_probs - observed(vlm, 3, CAPTIONS).log_probs).max() > 1e-3


def test_only_families_that_need_it_are_refused():
    assert {name for name, family in FAMILIES.items() if family.images_see_text} == {"paligemma"}


def test_with_windows_a_gallery_reports_the_layers_that_see_all_images(load):
    vlm = load("gemma3")
    seen = open_gallery(vlm, 11).observe(CAPTIONS[:1])
    assert seen.attention.any(axis=(0, 2)).tolist() == [False, False, True, False]


def test_captions_leave_the_kept_keys_and_values_as_they_were(load):
    for name in ("shipped", "gemma3", "lfm2_vl"):
        gallery = open_gallery(load(name), 11)
        before, size = copy.deepcopy(gallery._cache), gallery.nbytes
        gallery.observe(CAPTIONS)
        for layer, old in zip(gallery._cache.layers, before.layers, strict=True):
            for field, value in vars(old).items():
                if isinstance(value, torch.Tensor):
                    assert torch.equal(getattr(layer, field), value)
        assert gallery.nbytes == size > 0


def test_each_caption_costs_its_own_tokens_only(shipped, monkeypatch):
    gallery = open_gallery(shipped, 8)
    widths, real = [], shipped.model.forward

    def forward(**inputs):
        widths.append(inputs["input_ids"].shape[1])
        return real(**inputs)

    monkeypatch.setattr(shipped.model, "forward", forward)
    before = shipped.encoder.encoded
    gallery.observe(CAPTIONS)
    prompts, _ = shipped.tokenize(CAPTIONS, [gallery.images] * len(CAPTIONS), gallery.template, gallery.identifiers)
    texts = {len(prompt.tokens) - gallery.length for prompt in prompts}
    assert set(widths) == texts
    assert max(texts) < min(len(prompt.tokens) for prompt in prompts)
    assert shipped.encoder.encoded == before


def test_a_small_budget_changes_nothing_but_the_batches(shipped):
    gallery = open_gallery(shipped, 4)
    done = []
    small = gallery.observe(CAPTIONS, batch_tokens=1, progress=done.append, ids=list("abcde"))
    assert done == [1] * len(CAPTIONS)
    assert small.samples == tuple("abcde")
    np.testing.assert_allclose(small.log_probs, gallery.observe(CAPTIONS).log_probs, atol=1e-5)


def test_running_out_of_memory_halves_the_batch(shipped, monkeypatch):
    gallery = open_gallery(shipped, 4)
    expected = gallery.observe([CAPTIONS[0]] * 5)
    real = shipped.model.forward

    def forward(**inputs):
        if len(inputs["input_ids"]) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(**inputs)

    monkeypatch.setattr(shipped.model, "forward", forward)
    np.testing.assert_allclose(gallery.observe([CAPTIONS[0]] * 5).log_probs, expected.log_probs, atol=1e-5)


def test_other_identifiers(shipped):
    gallery = open_gallery(shipped, 4, identifiers="roman")
    expected = observed(shipped, 4, CAPTIONS, identifiers="roman")
    np.testing.assert_allclose(gallery.observe(CAPTIONS).log_probs, expected.log_probs, atol=1e-5)


def test_no_captions_and_bad_ones(shipped):
    gallery = open_gallery(shipped, 3)
    assert len(gallery) == 3
    with pytest.raises(SampleError, match="no captions"):
        gallery.observe([])
    with pytest.raises(PromptError):
        gallery.observe(["a red square", "  "])


def test_a_forked_cache_leaves_its_origin_alone(shipped):
    gallery = open_gallery(shipped, 3)
    twin = fork(gallery._cache, 4)
    assert twin.layers[0].keys.shape[0] == 4
    # shared until something is added
    assert twin.layers[0].keys.data_ptr() == gallery._cache.layers[0].keys.data_ptr()
    twin.update(torch.zeros_like(twin.layers[0].keys[:, :, :1]), torch.zeros_like(twin.layers[0].keys[:, :, :1]), 0)
    assert gallery._cache.layers[0].keys.shape[:3:2] == (1, gallery.length)
    assert cache_bytes(gallery._cache) == gallery.nbytes


def test_a_ranker_ranks_a_gallery_as_it_ranks_images(shipped):
    ranker = Ranker(shipped).calibrate(scene_samples(5, 4, split="calibration"))
    queries = scene_samples(3, 4, seed=3)
    images = queries[0].images
    gallery = ranker.gallery(images)
    captions = [query.caption for query in queries]
    assert len(gallery) == 4
    assert gallery.rank_many([]) == []
    for caption, ranking in zip(captions, gallery.rank_many(captions), strict=True):
        expected = ranker.rank(caption, images)
        assert ranking.pick == expected.pick == gallery.rank(caption).pick
        assert ranking.vanilla_pick == expected.vanilla_pick
        assert (ranking.method, ranking.passes) == ("agd", 1)
        mine = {one.index: one for one in ranking.candidates}
        for one in expected.candidates:
            assert mine[one.index].probability == pytest.approx(one.probability, abs=1e-4)
            assert mine[one.index].attention == pytest.approx(one.attention, abs=1e-4)
            assert mine[one.index].vanilla_probability == pytest.approx(one.vanilla_probability, abs=1e-4)


def test_equal_pictures_of_a_gallery_tie(shipped):
    ranker = Ranker(shipped).calibrate(scene_samples(5, 4, split="calibration"))
    gallery = ranker.gallery([picture(1), picture(2), picture(1), picture(3)])
    by_index = {one.index: one.probability for one in gallery.rank("a red square").candidates}
    assert by_index[0] == by_index[2]


def test_a_gallery_needs_a_calibration_and_readable_images(shipped, tmp_path):
    with pytest.raises(CalibrationError, match="no calibration for 3"):
        Ranker(shipped).gallery([picture(1), picture(2), picture(3)])
    ranker = Ranker(shipped).calibrate(scene_samples(5, 4, split="calibration"))
    with pytest.raises(ImageError, match=r"image 3"):
        ranker.gallery([picture(1), picture(2), picture(3), tmp_path / "missing.png"])
