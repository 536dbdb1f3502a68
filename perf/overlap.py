"""Reading images while the model works, against one after the other; and bfloat16 on a CPU against float32."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from lad.model.observe import observe
from lad.samples import Sample, random_orders
from perf.forward import Bench
from perf.measure import take_times
from perf.models import picture, random_vlm
from perf.reuse import forget
from perf.setting import Row, Setting

OVERLAP, PRECISION = "reading images meanwhile", "bfloat16"
PHOTO = (640, 480)
SAMPLES = 8


def overlap(setting: Setting) -> list[Row]:
    """JPEG files of photographs' size, two orders each: read ahead on other threads, or all beforehand."""
    size = (setting.side // 2 // 28 * 28, setting.side // 2 // 28 * 28)
    vlm = random_vlm(setting.middle, device=setting.device, dtype=setting.dtype, image_size=size)
    with tempfile.TemporaryDirectory() as place:
        samples = []
        for index in range(SAMPLES):
            files = [Path(place, f"{index}-{place_}.jpg") for place_ in range(4)]
            for number, file in enumerate(files):
                # smooth, like a photograph; pure noise would make files of an unlikely size
                small = picture(index * 4 + number, (PHOTO[0] // 16, PHOTO[1] // 16))
                small.resize(PHOTO, Image.Resampling.BICUBIC).save(file, quality=92)
            samples.append(Sample("a picture of several things", tuple(files), id=str(index)))
        orders = random_orders(4, 2)

        def meanwhile() -> Any:
            forget(vlm)
            return observe(vlm, samples, orders)

        def beforehand() -> Any:
            forget(vlm)
            prepared = [vlm.prepare_sample(sample) for sample in samples]
            for sample in prepared:
                vlm.encode(sample)
            return observe(vlm, prepared, orders)

        ways = {"meanwhile": meanwhile, "beforehand": beforehand}
        times = take_times(ways, setting.rounds, device=setting.device, waiting=True)
    case = f"{setting.middle.name}, {SAMPLES} samples x 4 JPEG files of {PHOTO[0]} x {PHOTO[1]}, 2 orders"
    return [Row(OVERLAP, case, "read beforehand / read meanwhile, time", times.ratio("beforehand", "meanwhile"))]


def precision(setting: Setting) -> list[Row]:
    """A plain pass of the large model, and AGD's decision, in both precisions."""
    benches = {
        name: Bench(random_vlm(setting.large, device=setting.device, dtype=dtype, image_size=setting.lengths[0]), 4)
        for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32))
    }
    times = take_times({name: bench.agd for name, bench in benches.items()}, setting.rounds, device=setting.device)
    case = f"{setting.large.name}, T = {benches['float32'].tokens}"
    log_probs = {name: bench.observed()[0] for name, bench in benches.items()}
    apart = float(np.abs(log_probs["bfloat16"] - log_probs["float32"]).max())
    ratio = times.ratio("float32", "bfloat16")
    return [Row(PRECISION, case, "float32 / bfloat16, time", ratio, more={"log_probs_apart": apart})]
