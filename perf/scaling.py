"""How cost grows: with the size of a batch, the number of candidates and the length of the prompt."""

from __future__ import annotations

from typing import Any

import numpy as np

from lad.benchmarks.scenes import scene_samples
from lad.model.observe import observe
from lad.model.vlm import VisionLanguageModel
from perf.forward import Bench
from perf.measure import Spread, take_times
from perf.models import noise_samples, random_vlm
from perf.setting import Row, Setting

BATCHES, CANDIDATES, LENGTHS = "throughput and batch size", "cost and candidates", "cost and tokens"
COUNTS = (2, 4, 8, 12, 16, 24, 32)
BATCH_TOKENS = (128, 512, 2048, 8192)


def batches(setting: Setting) -> list[Row]:
    """Queries per second over the tokens of a batch: the shipped model, and larger random weights."""
    shipped = VisionLanguageModel.load(device=str(setting.device))
    middle = random_vlm(setting.middle, device=setting.device, dtype=setting.dtype, image_size=(56, 56))
    rows = []
    for name, vlm, samples in (
        ("shipped model", shipped, scene_samples(32, 4)),
        (setting.middle.name, middle, noise_samples(middle, 16, 4)),
    ):
        prepared = [vlm.prepare_sample(sample) for sample in samples]

        def run(tokens: int, vlm: VisionLanguageModel = vlm, prepared: list[Any] = prepared) -> Any:
            return observe(vlm, prepared, np.arange(4)[None], batch_tokens=tokens)

        ways = {str(tokens): lambda tokens=tokens: run(tokens) for tokens in BATCH_TOKENS}
        times = take_times(ways, setting.rounds, device=setting.device)
        for tokens in BATCH_TOKENS:
            rates = Spread.of([len(prepared) / seconds for seconds in times.seconds[str(tokens)]])
            more = {"x": tokens, "series": name}
            rows.append(Row(BATCHES, f"{name}, {tokens} tokens a batch", "queries a second", rates, "/s", more=more))
    return rows


def candidates(setting: Setting) -> list[Row]:
    """Seconds per query over N, the images encoded beforehand and not."""
    middle = random_vlm(setting.middle, device=setting.device, dtype=setting.dtype, image_size=(84, 84))
    ways: dict[str, Any] = {}
    tokens = {}
    for count in COUNTS:
        bench = Bench(middle, count)
        tokens[count] = bench.tokens
        ways[str(count)] = bench.agd
    times = take_times(ways, setting.rounds, device=setting.device)
    return [
        Row(
            CANDIDATES, f"{setting.middle.name}, N = {count}, T = {tokens[count]}", "AGD, time",
            times.of(str(count)), "s", more={"x": count, "series": setting.middle.name},
        )
        for count in COUNTS
    ]  # fmt: skip


def lengths(setting: Setting) -> list[Row]:
    """Seconds per query over T at N = 4: AGD, a plain pass, and the published maps."""
    rows = []
    for cells in (4, 8, 12, 16, 20):
        size = (cells * 28, cells * 28)
        vlm = random_vlm(setting.middle, device=setting.device, dtype=setting.dtype, image_size=size)
        bench = Bench(vlm, 4)
        ways = {"plain": bench.plain, "AGD": bench.agd, "published maps": bench.eager}
        times = take_times(ways, setting.rounds, device=setting.device)
        for name in ways:
            more = {"x": bench.tokens, "series": name}
            case = f"{setting.middle.name}, T = {bench.tokens}"
            rows.append(Row(LENGTHS, case, f"{name}, time", times.of(name), "s", more=more))
    return rows
