"""What the attention probe costs on an accelerator: time and peak memory with and without it.

    python -m perf.gpu_smoke                            the shipped model and a model of 3B size, bfloat16, on cuda
    python -m perf.gpu_smoke --device cpu --layers 2    a dry run without one

The larger model has the shapes of Qwen2.5-VL-3B's text decoder and random weights, which is all that time and memory
depend on. Its prompts are made of embeddings of the right length: N images of 144 tokens (336 x 336 pixels) and 80
tokens of text. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import torch

from lad.benchmarks.scenes import scene_samples
from lad.model.observe import observe
from lad.model.probe import COLLECTOR_ARGUMENT, IMPLEMENTATION, Collector, register
from lad.model.vlm import VisionLanguageModel
from lad.samples import random_orders

IMAGE_TOKENS = 144
TEXT_TOKENS = 80
REPEATS = 5


def decoder(device: torch.device, dtype: torch.dtype, layers: int) -> Any:
    """A text decoder of Qwen2.5-VL-3B's shapes with random weights."""
    from transformers import Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel

    config = Qwen2_5_VLTextConfig(
        vocab_size=151936,
        hidden_size=2048,
        intermediate_size=11008,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=2,
        max_position_embeddings=32768,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
    )
    config._attn_implementation = IMPLEMENTATION
    with torch.device(device):
        torch.set_default_dtype(dtype)
        try:
            return Qwen2_5_VLTextModel(config).eval()
        finally:
            torch.set_default_dtype(torch.float32)


def measure(call: Callable[[], Any], device: torch.device) -> dict[str, float]:
    """Median seconds of a call, and its peak memory above what was there before, in MiB (cuda only)."""
    seconds = []
    peak = 0.0
    call()
    for _ in range(REPEATS):
        if device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        started = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
            peak = max(peak, (torch.cuda.max_memory_allocated() - before) / 2**20)
        seconds.append(time.perf_counter() - started)
    return {"seconds": sorted(seconds)[REPEATS // 2], "peak_mib": peak}


def large(device: torch.device, layers: int) -> list[dict[str, Any]]:
    """The 3B-sized decoder, plain and with the probe, for N = 4, 8, 12."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = decoder(device, dtype, layers)
    rows = []
    for count in (4, 8, 12):
        length = count * IMAGE_TOKENS + TEXT_TOKENS
        embeddings = torch.randn(1, length, 2048, device=device, dtype=dtype)
        segments = torch.full((1, length), count, device=device)
        for index in range(count):
            segments[:, index * IMAGE_TOKENS : (index + 1) * IMAGE_TOKENS] = index
        positions = torch.arange(length, device=device).expand(3, 1, length)
        fixed = {"inputs_embeds": embeddings, "position_ids": positions, "use_cache": False}

        def plain(fixed: dict[str, Any] = fixed) -> None:
            with torch.inference_mode():
                model(**fixed)

        def probed(
            fixed: dict[str, Any] = fixed, segments: torch.Tensor = segments, count: int = count
        ) -> torch.Tensor:
            collector = Collector(segments, count + 1)
            with torch.inference_mode():
                model(**fixed, **{COLLECTOR_ARGUMENT: collector})
            return collector.stacked(layers)

        rows_of_attention = probed()
        assert rows_of_attention.shape == (1, layers, count + 1)
        without, with_probe = measure(plain, device), measure(probed, device)
        rows.append({"candidates": count, "tokens": length, "plain": without, "probe": with_probe})
    return rows


def small(device: torch.device) -> dict[str, Any]:
    """The shipped model end to end."""
    vlm = VisionLanguageModel.load(device=str(device))
    samples, orders = scene_samples(8, 8), random_orders(8, 5)
    observe(vlm, samples, orders)
    figures = measure(lambda: observe(vlm, samples, orders), device)
    return {"passes": 40, "candidates": 8, **figures}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=36)
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.exit(2, "gpu_smoke: there is no cuda device here; --device cpu --layers 2 makes a dry run.\n")
    register()
    device = torch.device(options.device)
    document = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else str(device),
        "layers": options.layers,
        "shipped_model": small(device),
        "decoder_of_3b_size": large(device, options.layers),
        "peak_process_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
