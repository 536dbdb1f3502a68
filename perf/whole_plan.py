"""The plan of the paper's tables 1 and 7, ours against the published procedure as re-stated here."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lad.benchmarks.scenes import scene_samples
from lad.decisions import decide, picks
from lad.identifiers import make_identifiers
from lad.model.calibrate import calibrate
from lad.model.observe import observe
from lad.model.vlm import VisionLanguageModel
from lad.samples import Sample, random_orders
from perf.measure import Times, clock, wait
from perf.models import attention, noise_samples, random_vlm
from perf.published import METHODS, PublishedProcedure
from perf.reuse import forget
from perf.setting import Row, Setting, at_least, exact

PLAN = "whole plan"
ORDERS = 5


def ours(
    vlm: VisionLanguageModel, samples: list[Sample], calibration: list[Sample], orders: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    """Picks (S, T) of all methods from one observation per sample and order."""
    forget(vlm)
    fitted = calibrate(vlm, calibration)
    seen = observe(vlm, samples, orders)
    return {method: picks(decide(method, seen, fitted), seen.orders).reshape(len(samples), -1) for method in METHODS}


def published(
    vlm: VisionLanguageModel, samples: list[Sample], calibration: list[Sample], orders: NDArray[np.int64]
) -> tuple[dict[str, NDArray[np.int64]], int]:
    """Picks (S, T) of all methods, each run on its own; and the forward passes that took."""
    with attention(vlm, "eager"):
        procedure = PublishedProcedure(vlm, make_identifiers("digits", len(samples[0])))
        found = {method: procedure.run(method, samples, calibration, orders) for method in METHODS}
    return found, procedure.forwards


def compare(
    name: str, vlm: VisionLanguageModel, samples: list[Sample], calibration: list[Sample], rounds: int
) -> list[Row]:
    """Both ways in turn."""
    orders = random_orders(len(samples[0]), ORDERS)
    seconds: dict[str, list[float]] = {"ours": [], "published": []}
    mine: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    forwards = 0
    now = clock(vlm.device)
    ours(vlm, samples[:1], calibration, orders)
    for turn in range(rounds):
        for way in ("ours", "published") if turn % 2 == 0 else ("published", "ours"):
            wait(vlm.device)
            started = now()
            if way == "ours":
                mine = ours(vlm, samples, calibration, orders)
            else:
                theirs, forwards = published(vlm, samples, calibration, orders)
            wait(vlm.device)
            seconds[way].append(now() - started)
    same = {method: float((mine[method] == theirs[method]).mean()) for method in METHODS}
    # the plain answer is a text there and a choice among the identifiers here: not the same options
    compared = [method for method in METHODS if method != "vanilla"]
    count = len(samples[0])
    passes = len(samples) * len(orders) + len(calibration) * count
    case = f"{name}, N = {count}, {len(samples)} samples x {len(orders)} orders, 5 for calibration"
    times = Times(seconds)
    agreement = exact(100 * float(np.mean([same[method] for method in compared])))
    return [
        at_least(PLAN, case, "published / ours, time", times.ratio("published", "ours"), 8, seconds=seconds),
        Row(PLAN, case, "forward passes, published / ours", exact(forwards / passes)),
        Row(PLAN, case, "same decisions, PriDe, raw, purified, AGD", agreement, "%", "100",
            agreement.median == 100.0, {"by_method": same}),
        Row(PLAN, case, "same decisions, plain answer in words", exact(100 * same["vanilla"]), "%"),
    ]  # fmt: skip


def whole_plan(setting: Setting) -> list[Row]:
    """On the model that ships with the package, and on a larger one with random weights."""
    rounds = max(1, min(3, setting.rounds))
    small = VisionLanguageModel.load(device=str(setting.device))
    rows = []
    for count in setting.counts:
        samples, calibration = scene_samples(2 * setting.samples, count), scene_samples(5, count, split="calibration")
        rows += compare("shipped model", small, samples, calibration, rounds)
    # pictures of half the published side: a quarter of the time, at about the same share of the vision tower
    half = (setting.side // 2, setting.side // 2)
    middle = random_vlm(setting.middle, device=setting.device, dtype=torch.float32, image_size=half)
    samples, calibration = noise_samples(middle, setting.samples, 4), noise_samples(middle, 5, 4, first=1000)
    return rows + compare(setting.middle.name, middle, samples, calibration, min(2, rounds))
