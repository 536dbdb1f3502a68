"""Table 2: how long a pass takes and how much memory it needs, with and without reading the attention."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from lad.calibration import Calibration
from lad.decisions import decide
from lad.model.observe import observe
from lad.model.probe import Collector
from lad.model.vlm import VisionLanguageModel
from lad.samples import Sample

REPEATS = 5
"""Each variant is measured so often, in turn with the others; the quickest counts, as others disturb it least."""


class _NoAttention(Collector):
    """Receives nothing, so that no layer's row is computed; whoever asks is told of even attention."""

    def __init__(self, segments: torch.Tensor, count: int) -> None:
        super().__init__(segments, count, layers=())
        self.sums[0] = torch.ones(segments.shape[0], count)

    def stacked(self, depth: int) -> torch.Tensor:
        return self.sums[0][:, None].expand(-1, depth, -1)


@contextmanager
def without_attention(vlm: VisionLanguageModel) -> Iterator[None]:
    """Observe without the attention probe while the context lasts: the model as it is."""
    before = vlm.encoder.collector

    def collector(segments: torch.Tensor, images: Sequence[Sequence[Any]]) -> Collector:
        return _NoAttention(segments, len(images[0]) + 1)

    vlm.encoder.collector = collector  # type: ignore[method-assign]
    try:
        yield
    finally:
        vlm.encoder.collector = before  # type: ignore[method-assign]


def passes_for_timing(samples: int, sizes: Sequence[int]) -> int:
    """Forward passes that :func:`time_methods` makes for all sizes."""
    return len(sizes) * samples * (2 * REPEATS + 1)


def time_methods(
    vlm: VisionLanguageModel, samples: Sequence[Sample], calibration: Calibration, *, identifiers: str = "digits"
) -> list[dict[str, Any]]:
    """Seconds per 1,000 samples and memory of vanilla, PriDe and AGD at one N.

    Args:
        vlm: the model.
        samples: of the same N; each is observed once per repeat, under the identity order.
        calibration: for the rules.
        identifiers: what names the positions.

    Returns:
        Rows with method, candidates, seconds (per 1,000 samples) and memory_mb (None on other devices than
        GPUs, whose allocators do not tell).
    """
    count = len(samples[0])
    identity = np.arange(count)[None, :]
    ready = [vlm.prepare_sample(sample) for sample in samples]
    observe(vlm, ready, identity, identifiers=identifiers)  # encodes the images, and warms up
    seconds: dict[str, list[float]] = {"vanilla": [], "pride": [], "agd": []}
    memory: dict[str, list[float]] = {"vanilla": [], "pride": [], "agd": []}
    for repeat in range(REPEATS):
        variants: list[tuple[tuple[str, ...], AbstractContextManager[None]]]
        variants = [(("vanilla", "pride"), without_attention(vlm)), (("agd",), nullcontext())]
        # neither is always the first
        for rules, how in variants if repeat % 2 else variants[::-1]:
            with how, _measured(vlm) as measured:
                seen = observe(vlm, ready, identity, identifiers=identifiers)
            for rule in rules:
                started = time.perf_counter()
                decide(rule, seen, calibration)
                seconds[rule].append(measured["seconds"] + time.perf_counter() - started)
                memory[rule] += [measured["memory_mb"]] if "memory_mb" in measured else []
    return [
        {
            "method": method,
            "candidates": count,
            "seconds": 1000 * min(taken) / len(samples),
            "memory_mb": max(memory[method], default=None),
        }
        for method, taken in seconds.items()
    ]


@contextmanager
def _measured(vlm: VisionLanguageModel) -> Iterator[dict[str, float]]:
    """Seconds of the block; and on a GPU the most memory allocated above what was before, in MB."""
    on_gpu = vlm.device.type == "cuda"
    found: dict[str, float] = {}
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    started = time.perf_counter()
    yield found
    if on_gpu:
        torch.cuda.synchronize()
        found["memory_mb"] = (torch.cuda.max_memory_allocated() - before) / 2**20
    found["seconds"] = time.perf_counter() - started
