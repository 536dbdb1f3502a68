"""Latency and peak memory on an accelerator, in the shape of the paper's Table 2. One prepared script.

    python -m perf.gpu                                    Qwen2.5-VL-3B and 7B sizes, bfloat16, N = 4, 8, 12, 336 px
    python -m perf.gpu --device cpu --small               a dry run without one, in seconds

Random weights, which is all that time and memory depend on. Three ways are taken in turn over the same batch: a plain
pass with sdpa attention, the observation and decision of AGD, and the published way with eager attention maps. The
images' features are made beforehand: the vision tower is the same for all three. Each size stops at its share of
--minutes and says what it left out. Prints one JSON document, and a Markdown table on the standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import torch

from lad.model.memory import free_memory, is_out_of_memory
from perf.forward import Bench
from perf.measure import Times, model_bytes, peak_bytes, take_times
from perf.models import QWEN_3B, QWEN_7B, SMALL, Shape, random_vlm
from perf.report import machine, number

CANDIDATES = (4, 8, 12)
WAYS = {"plain": "plain", "probe": "agd", "eager": "eager"}


def measure(shape: Shape, device: torch.device, dtype: torch.dtype, side: int, rounds: int, until: float) -> list[Any]:
    """One model size, N by N."""
    vlm = random_vlm(shape, device=device, dtype=dtype, image_size=(side, side))
    weights = model_bytes(vlm.model)
    found = []
    for count in CANDIDATES:
        if time.monotonic() > until:
            found.append({"model": shape.name, "candidates": count, "left_out": "no time left"})
            continue
        bench = Bench(vlm, count)
        ways = {name: getattr(bench, method) for name, method in WAYS.items()}
        failed = {name: reason for name, call in ways.items() if (reason := _fails(call))}
        working = {name: call for name, call in ways.items() if name not in failed}
        times = take_times(working, rounds, device=device, warm_up=False)
        peaks = {name: peak_bytes(call, device) for name, call in working.items()}
        found.append(_entry(shape, count, bench.tokens, times, peaks, weights, failed))
    return found


def _fails(call: Any) -> str:
    """Run once, to warm up; why that did not work, if memory was too small."""
    try:
        call()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        reason = "out of memory"
    else:
        reason = ""
    free_memory()
    return reason


def _entry(
    shape: Shape,
    count: int,
    tokens: int,
    times: Times,
    peaks: dict[str, int],
    weights: int,
    failed: dict[str, str],
) -> dict[str, Any]:
    return {
        "model": shape.name,
        "candidates": count,
        "tokens": tokens,
        "milliseconds": {name: round(1000 * times.of(name).median, 3) for name in times.seconds},
        "peak_mib": {name: round((peak + weights) / 2**20, 1) for name, peak in peaks.items()},
        "time_ratio": {name: vars(times.ratio(name, "plain")) for name in times.seconds},
        "memory_ratio": {name: (peak + weights) / (peaks["plain"] + weights) for name, peak in peaks.items()},
        "activation_ratio": {name: peak / peaks["plain"] for name, peak in peaks.items()},
        "failed": failed,
    }


def table(entries: list[dict[str, Any]]) -> str:
    """Rows of model and way, a latency and a memory column per N."""
    columns = [f"N = {count}, {what}" for what in ("ms", "MiB") for count in CANDIDATES]
    lines = [f"| model | way | {' | '.join(columns)} |", f"| --- | --- |{' ---: |' * len(columns)}"]
    for model in dict.fromkeys(entry["model"] for entry in entries):
        by_count = {entry["candidates"]: entry for entry in entries if entry["model"] == model}
        for way in WAYS:
            cells = [
                number(value) if (value := by_count.get(count, {}).get(key, {}).get(way)) is not None else "-"
                for key in ("milliseconds", "peak_mib")
                for count in CANDIDATES
            ]
            lines.append(f"| {model} | {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny shapes and images, for a dry run")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=9.0, help="of all")
    options = parser.parse_args(arguments)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("There is no cuda device here; --device cpu --small makes a dry run.", file=sys.stderr)
        return 2
    device = torch.device(options.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    shapes, side = ([SMALL], 56) if options.small else ([QWEN_3B, QWEN_7B], 336)
    started = time.monotonic()
    entries: list[dict[str, Any]] = []
    for index, shape in enumerate(shapes):
        until = started + 60 * options.minutes * (index + 1) / len(shapes)
        entries += measure(shape, device, dtype, side, options.rounds, until)
        free_memory()
    print(json.dumps({**machine(device), "dtype": str(dtype), "entries": entries}, indent=1))
    print(table(entries), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
