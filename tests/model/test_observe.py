import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import lad.model.observe as module
from lad.benchmarks.scenes import scene_samples
from lad.errors import ImageError, ModelError, SampleError
from lad.images import image_digest
from lad.model import probe
from lad.model.features import FeatureCache
from lad.model.observe import equal_lengths, observe
from lad.model.vlm import VisionLanguageModel
from lad.samples import Sample, random_orders

SAMPLES = scene_samples(6, 4, seed=11)
ORDERS = random_orders(4, 3)


@pytest.fixture(scope="module")
def vlm():
    return VisionLanguageModel.load()


@pytest.fixture(scope="module")
def expected(vlm):
    return observe(vlm, SAMPLES, ORDERS)


@pytest.fixture
def forgetful(vlm):
    """The model without any image features kept."""
    before = vlm.encoder.cache
    vlm.encoder.cache = FeatureCache(2**20)
    yield vlm
    vlm.encoder.cache = before


def lengths_of(vlm, monkeypatch, samples, **options):
    """The (rows, tokens) of every batch, and the masks that attention was given."""
    shapes, masks = [], []
    real_forward, real_attention = vlm.model.forward, probe.sdpa_attention_forward

    def forward(**inputs):
        shapes.append(tuple(inputs["input_ids"].shape))
        return real_forward(**inputs)

    def attention(layer, query, key, value, mask, **kwargs):
        masks.append(mask)
        return real_attention(layer, query, key, value, mask, **kwargs)

    monkeypatch.setattr(vlm.model, "forward", forward)
    monkeypatch.setattr(probe, "sdpa_attention_forward", attention)
    observe(vlm, samples, ORDERS, **options)
    return shapes, masks


def test_prompts_are_grouped_by_exact_length():
    assert equal_lengths({4: 9, 5: 7, 6: 9}, 2) == [(7, [10, 11]), (9, [8, 9, 12, 13])]


def test_nothing_is_padded_so_attention_needs_no_mask(vlm, monkeypatch):
    captions = ["a red circle", "a small red circle beside a large green square", "a blue ring"]
    samples = [replace(sample, caption=text) for sample, text in zip(SAMPLES, captions, strict=False)]
    shapes, masks = lengths_of(vlm, monkeypatch, samples)
    assert len({tokens for _, tokens in shapes}) >= 2
    assert sum(rows for rows, _ in shapes) == 9
    assert masks
    assert all(mask is None for mask in masks)


def test_batches_stay_within_their_tokens_and_one_prompt_always_runs(vlm, monkeypatch):
    shapes, _ = lengths_of(vlm, monkeypatch, SAMPLES[:2], batch_tokens=200)
    assert max(rows * tokens for rows, tokens in shapes) <= 200
    assert max(rows for rows, _ in shapes) == 2
    alone, _ = lengths_of(vlm, monkeypatch, SAMPLES[:1], batch_tokens=1)
    assert [rows for rows, _ in alone] == [1, 1, 1]


def test_the_same_call_gives_the_same_digits_whatever_the_threads_do(forgetful, expected):
    for _ in range(2):
        forgetful.encoder.cache = FeatureCache(2**20)
        again = observe(forgetful, SAMPLES, ORDERS)
        assert (again.log_probs == expected.log_probs).all()
        assert (again.attention == expected.attention).all()


def test_small_batches_and_windows_see_the_same(forgetful, expected, monkeypatch):
    monkeypatch.setattr(module, "WINDOW_BATCHES", 0)
    seen = observe(forgetful, SAMPLES, ORDERS, batch_tokens=1)
    np.testing.assert_allclose(seen.log_probs, expected.log_probs, atol=1e-5)
    np.testing.assert_allclose(seen.attention, expected.attention, atol=1e-5)
    assert (seen.orders == expected.orders).all()
    assert seen.samples == expected.samples


def test_features_of_samples_that_are_done_are_let_go(forgetful, monkeypatch):
    """Windows bound what is held, however many samples there are."""
    import weakref

    forgetful.encoder.cache = FeatureCache(1)
    monkeypatch.setattr(module, "WINDOW_BATCHES", 0)
    made, alive = [], []
    encode, forward = forgetful.encoder.encode, forgetful.observe
    monkeypatch.setattr(
        forgetful.encoder,
        "encode",
        lambda *args: [made.append(weakref.ref(image)) or image for image in encode(*args)],
    )

    def observed(*args):
        alive.append(sum(reference() is not None for reference in made))
        return forward(*args)

    monkeypatch.setattr(forgetful, "observe", observed)
    observe(forgetful, SAMPLES, ORDERS)
    assert len(made) == 24
    # one sample's images, the one that the cache keeps, and no more than the last sample's besides
    assert max(alive) <= 9


def test_images_are_read_while_the_model_works(forgetful, monkeypatch):
    """The first pass waits for a later sample to be read: without the overlap it would wait forever."""
    monkeypatch.setattr(module, "WINDOW_BATCHES", 0)
    later = threading.Event()
    prepare, forward = forgetful.prepare_sample, forgetful.observe
    threads = set()

    def prepared(sample):
        threads.add(threading.current_thread())
        if sample.id == SAMPLES[3].id:
            later.set()
        return prepare(sample)

    def observed(*args):
        assert later.wait(30), "no image was read meanwhile"
        return forward(*args)

    monkeypatch.setattr(forgetful, "prepare_sample", prepared)
    monkeypatch.setattr(forgetful, "observe", observed)
    assert len(observe(forgetful, SAMPLES, ORDERS)) == 18
    assert threading.main_thread() not in threads


def test_the_processor_too_works_on_other_threads(forgetful, monkeypatch):
    threads = []
    process = forgetful.encoder._process
    monkeypatch.setattr(
        forgetful.encoder,
        "_process",
        lambda *args, **kwargs: threads.append(threading.current_thread()) or process(*args, **kwargs),
    )
    observe(forgetful, SAMPLES, ORDERS)
    assert threads
    assert threading.main_thread() not in threads


def test_every_distinct_image_is_encoded_once(forgetful):
    twice = [replace(sample, id=f"{sample.id} again") for sample in SAMPLES]
    before = forgetful.encoder.encoded
    observe(forgetful, [*SAMPLES, *twice], ORDERS)
    distinct = {image_digest(image) for sample in SAMPLES for image in sample.images}
    assert forgetful.encoder.encoded - before == len(distinct)


def test_what_the_processor_made_beforehand_changes_nothing(forgetful):
    sample = forgetful.prepare_sample(SAMPLES[0])
    processed = forgetful.encoder.process(sample.images, sample.digests)
    plain = forgetful.encoder.encode(sample.images, sample.digests)
    forgetful.encoder.cache = FeatureCache(2**20)
    ahead = forgetful.encoder.encode(sample.images, sample.digests, processed)
    assert all(torch.equal(one.features, other.features) for one, other in zip(plain, ahead, strict=True))


def test_running_out_of_memory_halves_the_batch_and_loses_nothing(vlm, expected, monkeypatch):
    forward, sizes, done = vlm.observe, [], []

    def short_of_memory(captions, *rest):
        sizes.append(len(captions))
        if len(captions) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return forward(captions, *rest)

    monkeypatch.setattr(vlm, "observe", short_of_memory)
    seen = observe(vlm, SAMPLES, ORDERS, progress=done.append)
    assert max(sizes) > 2
    assert sum(done) == 18
    np.testing.assert_allclose(seen.log_probs, expected.log_probs, atol=1e-5)
    np.testing.assert_allclose(seen.attention, expected.attention, atol=1e-5)


def test_a_prompt_that_cannot_fit_ends_with_advice(vlm, monkeypatch):
    def never(*args):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(vlm, "observe", never)
    with pytest.raises(ModelError, match="Not even one prompt"):
        observe(vlm, SAMPLES[:1], ORDERS)


def test_the_vision_tower_runs_out_of_memory_too(forgetful, expected, monkeypatch):
    features = forgetful.model.get_image_features
    sizes = []

    def short_of_memory(pixel_values, image_grid_thw, **kwargs):
        sizes.append(len(image_grid_thw))
        if len(image_grid_thw) > 1:
            raise RuntimeError("MPS backend out of memory")
        return features(pixel_values=pixel_values, image_grid_thw=image_grid_thw, **kwargs)

    monkeypatch.setattr(forgetful.model, "get_image_features", short_of_memory)
    monkeypatch.setattr(forgetful.encoder, "_vision_arguments", {"pixel_values", "image_grid_thw"})
    seen = observe(forgetful, SAMPLES, ORDERS)
    assert {1, 2, 4} <= set(sizes)
    np.testing.assert_allclose(seen.log_probs, expected.log_probs, atol=1e-5)


def test_a_broken_image_is_named_and_the_threads_end(vlm, tmp_path):
    Image.new("RGB", (30, 30)).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes((tmp_path / "good.png").read_bytes()[:40])
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    samples = [Sample("a", (good, good), id="one"), Sample("a", (good, bad), id="two")]
    with pytest.raises(ImageError, match=r"two, image 1.*bad\.png"):
        observe(vlm, samples, random_orders(2, 1))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lad-prefetch")]


def test_each_sample_is_checked_once_in_order_before_it_is_used(vlm):
    seen = []

    def check(sample):
        seen.append(sample.id)
        if len(seen) == 3:
            raise SampleError("Was seen before.")

    with pytest.raises(SampleError, match="Was seen before"):
        observe(vlm, SAMPLES, ORDERS, check=check)
    assert seen == [sample.id for sample in SAMPLES[:3]]


def test_samples_must_be_of_one_size(vlm):
    with pytest.raises(SampleError, match="no samples"):
        observe(vlm, [], ORDERS)
    with pytest.raises(SampleError, match="Has 5 candidates where the first sample has 4"):
        observe(vlm, [SAMPLES[0], scene_samples(1, 5)[0]], ORDERS)
