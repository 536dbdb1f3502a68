"""What is done once and used many times: image features across orders, images' keys and values across captions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lad.model.calibrate import calibrate
from lad.model.features import FeatureCache
from lad.model.gallery import Gallery
from lad.model.observe import observe
from lad.model.vlm import VisionLanguageModel
from lad.samples import Sample, cyclic_orders
from perf.measure import take_times
from perf.models import noise_samples, random_vlm
from perf.setting import Row, Setting, at_least, exact

FEATURES, GALLERY = "image features reused", "gallery"
CACHE_BYTES = 2**30
CAPTIONS = 50


def forget(vlm: VisionLanguageModel) -> None:
    """Empty the cache of image features."""
    vlm.encoder.cache = FeatureCache(CACHE_BYTES)


def features(setting: Setting) -> list[Row]:
    """Permutation averaging and calibration, with the vision tower run once per image and once per order."""
    size = (setting.side, setting.side)
    vlm = random_vlm(setting.large, device=setting.device, dtype=setting.dtype, image_size=size)
    samples = [vlm.prepare_sample(sample) for sample in noise_samples(vlm, 5, 4)]
    orders = cyclic_orders(4)

    def reused(chosen: Sequence[Sample]) -> Any:
        forget(vlm)
        return observe(vlm, chosen, orders)

    def anew(chosen: Sequence[Sample]) -> None:
        for sample in chosen:
            for order in orders:
                forget(vlm)
                observe(vlm, [sample], order[None])

    rows = []
    for name, chosen in (("permutation averaging, 1 query", samples[:1]), ("calibration, 5 samples", samples)):
        ways = {"reused": lambda chosen=chosen: reused(chosen), "anew": lambda chosen=chosen: anew(chosen)}
        before = vlm.encoder.encoded
        if len(chosen) == 1:
            ways["reused"]()
        else:
            forget(vlm)
            calibrate(vlm, chosen)
        encoded = vlm.encoder.encoded - before
        # both have run, or are like what has run: the first round needs no other to warm up
        times = take_times(ways, setting.rounds, device=setting.device, warm_up=len(chosen) == 1)
        case = f"{name}, N = 4"
        distinct = len({digest for sample in chosen for digest in sample.digests})
        rows += [
            Row(FEATURES, case, "images encoded / distinct images", exact(encoded / distinct), limit="1",
                met=encoded == distinct),
            Row(FEATURES, case, "encoded in every order / reused, time", times.ratio("anew", "reused")),
        ]  # fmt: skip
    return rows


def gallery(setting: Setting) -> list[Row]:
    """Fifty captions over one gallery of twelve images."""
    size = (setting.side, setting.side)
    vlm = random_vlm(setting.large, device=setting.device, dtype=setting.dtype, image_size=size)
    sample = vlm.prepare_sample(noise_samples(vlm, 1, 12)[0])
    captions = [f"a picture of {number} things" for number in range(10, 10 + CAPTIONS)]
    opened: list[Gallery] = []

    def first() -> Any:
        opened[:] = [Gallery(vlm, vlm.encode(sample))]
        return opened[0].observe(captions[:1])

    first()
    opened[0].observe(captions[1:-1])
    ways = {
        "first": first,
        "fiftieth": lambda: opened[0].observe(captions[-1:]),
        "without": lambda: observe(vlm, [sample], np.arange(12)[None]),
    }
    times = take_times(ways, setting.rounds, device=setting.device)
    case = f"{opened[0].length} tokens of images, N = 12"
    ratio = times.ratio("first", "fiftieth")
    return [
        at_least(GALLERY, case, "first caption / 50th caption, time", ratio, 5, seconds=times.seconds),
        Row(GALLERY, case, "observed without a gallery / 50th caption, time", times.ratio("without", "fiftieth")),
        Row(GALLERY, case, "keys and values kept", exact(opened[0].nbytes / 2**20), "MiB"),
    ]
