"""Encoding once, and the memory it takes."""

from __future__ import annotations

import pytest
import torch

from lad.errors import ModelError
from lad.model.features import EncodedImage, FeatureCache, _cut
from lad.model.observe import observe
from lad.model.vlm import VisionLanguageModel
from lad.samples import cyclic_orders
from tests.model.conftest import Loader
from tests.model.pictures import picture, sample

KIB = 1024


def _image(name: str, kib: int = 1) -> EncodedImage:
    return EncodedImage(name, torch.zeros(kib * KIB // 4 // 8, 8), "<image>")


def test_the_least_recently_used_image_is_dropped_first() -> None:
    cache = FeatureCache(3 * KIB)
    for name in "abc":
        cache.put(_image(name))
    assert cache.get("a") is not None
    cache.put(_image("d"))
    assert [name for name in "abcd" if cache.get(name)] == ["a", "c", "d"]


def test_bytes_count_and_include_deepstack_rows() -> None:
    rows = torch.zeros(4, 8, dtype=torch.bfloat16)
    assert EncodedImage("a", rows, "<image>", deepstack=(rows, rows)).nbytes == 3 * 4 * 8 * 2
    cache = FeatureCache(4 * KIB)
    cache.put(_image("a", 3))
    cache.put(_image("b", 2))
    assert cache.get("a") is None
    cache.put(_image("c", 2))
    assert cache.get("b") is not None


def test_an_image_larger_than_the_limit_is_kept_alone() -> None:
    cache = FeatureCache(KIB)
    cache.put(_image("a", 5))
    assert len(cache) == 1
    cache.put(_image("b", 5))
    assert cache.get("a") is None
    assert cache.get("b") is not None


def test_putting_twice_counts_once() -> None:
    cache = FeatureCache(2 * KIB)
    for _ in range(5):
        cache.put(_image("a"))
    cache.put(_image("b"))
    assert len(cache) == 2


def test_each_picture_is_encoded_once_by_content() -> None:
    vlm = VisionLanguageModel.load()
    observe(vlm, [sample(3, name="a"), sample(3, "another caption", first=1, name="b")], cyclic_orders(3))
    assert vlm.encoder.encoded == 4, "two of the second sample's pictures are those of the first"


def test_a_small_cache_changes_time_but_no_number(load: Loader) -> None:
    small = VisionLanguageModel.load(cache_bytes=1)
    first = observe(small, [sample(3)], cyclic_orders(3))
    assert len(small.encoder.cache) == 1
    usual = observe(load("shipped"), [sample(3)], cyclic_orders(3))
    assert first.log_probs == pytest.approx(usual.log_probs, abs=1e-5)


def test_more_images_than_one_run_takes_are_encoded_in_order(load: Loader) -> None:
    vlm = load("llava_onevision")
    pictures = [vlm.prepare(picture(seed)) for seed in range(17)]
    many = type(vlm.encoder)(vlm.model, vlm.processor, vlm.family, batch_size=4)
    together = many.encode(pictures, [str(seed) for seed in range(17)])
    alone = type(vlm.encoder)(vlm.model, vlm.processor, vlm.family).encode([pictures[16]], ["16"])
    # 17 = 4 runs of 4 and one image alone, which this family would tile if it were processed alone
    assert torch.allclose(together[16].features, alone[0].features, atol=1e-5)
    assert len({len(image.features) for image in together}) == 1


def test_rows_that_do_not_fit_the_tokens_are_an_error() -> None:
    with pytest.raises(ModelError, match="5 feature rows for 6 image tokens"):
        _cut([torch.zeros(2, 3, 8)[:, :2], torch.zeros(1, 8)], [3, 3])


def test_features_do_not_keep_the_whole_batch_alive() -> None:
    rows = _cut(torch.zeros(2, 3, 8), [3, 3])
    assert rows[0].untyped_storage().nbytes() == 3 * 8 * 4
