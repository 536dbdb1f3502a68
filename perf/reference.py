"""A clone of the published code, run as it is on a tiny model beside ours.

The clone is not changed: it runs from a folder of links to it, where only `data` is ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lad.benchmarks.scenes import scene_samples
from lad.model.calibrate import calibrate
from lad.model.loading import shipped_model
from lad.model.observe import observe
from lad.model.vlm import VisionLanguageModel
from lad.samples import Sample, random_orders
from perf.measure import Spread
from perf.reuse import forget
from perf.setting import Row

REFERENCE = "published code"
METHODS = ("base", "pride", "agd")
IMAGES = "data/coco/val2014/COCO_val2014_{id:012d}.jpg"
"""Where a clone looks for the image of an id, unless told otherwise."""


def lay_out(clone: Path, root: Path, samples: Sequence[Sample], images: str = IMAGES) -> None:
    """Fill a folder with links to a clone and with data in the clone's form.

    Args:
        clone: the published code.
        root: the empty folder.
        samples: labelled samples whose images are pictures.
        images: where the clone looks for the image of an ``id``.
    """
    for entry in clone.iterdir():
        if entry.name != "data":
            (root / entry.name).symlink_to(entry.resolve())
    annotations = []
    number = 0
    for index, sample in enumerate(samples):
        ids = list(range(number, number + len(sample)))
        number += len(sample)
        for one, image in zip(ids, sample.images, strict=True):
            file = root / images.format(id=one)
            file.parent.mkdir(parents=True, exist_ok=True)
            image.save(file, quality=100)  # type: ignore[union-attr]
        annotations.append({"id": index, "image_ids": ids, "index": sample.answer, "caption": sample.caption})
    folder = root / "data" / "eval"
    folder.mkdir(parents=True, exist_ok=True)
    count = len(samples[0])
    (folder / f"annotations_{count}_1_random.json").write_text(json.dumps(annotations), encoding="utf-8")


def command(model: Path, method: str, candidates: int, orders: int, samples: int, last: int, result: Path) -> list[str]:
    """The call of the published script."""
    options: dict[str, Any] = {
        "--model-path": model,
        "--method": method,
        "--mode": "random",
        "--num-views": candidates,
        "--num-shuffles": orders,
        "--max-samples": samples,
        "--layer-range": (0, last),
        "--result-path": result,
    }
    words = [sys.executable, "-m", "src.evaluate"]
    for name, value in options.items():
        words += [name, *(str(part) for part in (value if isinstance(value, tuple) else (value,)))]
    return words


def measure(clone: Path, *, images: str = IMAGES, samples: int = 10, orders: int = 5, rounds: int = 1) -> list[Row]:
    """Seconds of the published script for each method in turn, and of ours for all at once, starting up included.

    Args:
        clone: a folder with the published code.
        images: where it looks for the image of an ``id``.
        samples: how many.
        orders: T.
        rounds: how often.

    Raises:
        RuntimeError: the script failed; its last lines are in the message.
    """
    vlm = VisionLanguageModel.load()
    chosen = scene_samples(samples, 4)
    seconds: dict[str, list[float]] = {name: [] for name in (*METHODS, "ours")}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        lay_out(clone, root, chosen, images)
        # the script takes the family from this word in the path
        model = root / "qwen-tiny"
        model.symlink_to(shipped_model())
        for turn in range(rounds):
            for method in METHODS:
                result = root / f"result-{method}-{turn}"
                started = time.perf_counter()
                call = command(model, method, 4, orders, samples, vlm.depth - 1, result)
                done = subprocess.run(call, cwd=root, capture_output=True, text=True, check=False)
                seconds[method].append(time.perf_counter() - started)
                if done.returncode:
                    raise RuntimeError(f"{' '.join(call)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
            started = time.perf_counter()
            fresh = VisionLanguageModel.load()
            forget(fresh)
            calibrate(fresh, scene_samples(5, 4, split="calibration"))
            observe(fresh, chosen, random_orders(4, orders))
            seconds["ours"].append(time.perf_counter() - started)
    case = f"shipped model, N = 4, {samples} samples x {orders} orders"
    total = [sum(times) for times in zip(*(seconds[name] for name in METHODS), strict=True)]
    ratio = Spread.of([theirs / mine for theirs, mine in zip(total, seconds["ours"], strict=True)])
    rows = [Row(REFERENCE, case, f"{name}, time", Spread.of(times), "s") for name, times in seconds.items()]
    return [*rows, Row(REFERENCE, case, "all its methods / ours, time", ratio)]
