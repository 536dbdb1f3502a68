"""Times and memory of several ways to do a thing, taken in turn, so that a machine's moods fall on all alike."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

Call = Callable[[], Any]


@dataclass(frozen=True)
class Spread:
    """A figure that was measured several times.

    Attributes:
        median: of all.
        low: the smallest.
        high: the largest.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """From the single measurements."""
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True)
class Times:
    """Seconds of each way, one entry per round."""

    seconds: Mapping[str, list[float]]

    def of(self, name: str) -> Spread:
        """Seconds of one way."""
        return Spread.of(self.seconds[name])

    def ratio(self, name: str, base: str) -> Spread:
        """How many times as long one way takes as another, each round compared with itself."""
        pairs = zip(self.seconds[name], self.seconds[base], strict=True)
        return Spread.of([mine / other for mine, other in pairs])


def clock(device: torch.device, *, waiting: bool = False) -> Callable[[], float]:
    """What seconds are read from.

    On a CPU they are the processor's seconds spent by this process, threads together, so that other programs do not
    count; elsewhere, or where ``waiting`` counts too, those of the clock on the wall.
    """
    return time.process_time if device.type == "cpu" and not waiting else time.perf_counter


def take_times(
    ways: Mapping[str, Call], rounds: int, *, device: torch.device, warm_up: bool = True, waiting: bool = False
) -> Times:
    """Run all ways in turn, ``rounds`` times; each round begins with another one.

    Args:
        ways: what to run, by name.
        rounds: how often.
        device: waited for before the clock is read.
        warm_up: run each once beforehand.
        waiting: see :func:`clock`.
    """
    names = list(ways)
    if warm_up:
        for name in names:
            ways[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    now = clock(device, waiting=waiting)
    gc.collect()
    gc.disable()  # or a collection would fall on whichever way is running
    try:
        for turn in range(rounds):
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                wait(device)
                started = now()
                ways[name]()
                wait(device)
                seconds[name].append(now() - started)
    finally:
        gc.enable()
    return Times(seconds)


def wait(device: torch.device) -> None:
    """Until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_bytes(call: Call, device: torch.device) -> int:
    """The most memory that tensors made during a call take at a time.

    On a CPU it is what the allocator reports to PyTorch's profiler, so it is exact and the same every time.
    """
    if device.type == "cuda":
        gc.collect()
        wait(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        wait(device)
        return int(torch.cuda.max_memory_allocated(device) - before)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    if not events:
        raise RuntimeError("the profiler reported no memory events")
    return peak


def model_bytes(model: torch.nn.Module) -> int:
    """Memory of a model's weights."""
    distinct = {weight.data_ptr(): weight.numel() * weight.element_size() for weight in model.parameters()}
    return sum(distinct.values())
