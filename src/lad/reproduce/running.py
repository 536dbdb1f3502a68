"""Observe every cell once, and keep what was seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from lad.calibration import fit_calibration
from lad.evaluation.calibrating import Calibrated, calibrate_in_run
from lad.evaluation.run import evaluate
from lad.model.vlm import VisionLanguageModel
from lad.reproduce.cells import CALIBRATION_SAMPLES, Cell
from lad.reproduce.preparing import CellPlan, Preparation
from lad.reproduce.results import Observed, Results
from lad.reproduce.timing import passes_for_timing, time_methods

Advance = Callable[[int], None]
Bar = Callable[[str, int], AbstractContextManager[Advance]]


def observe_cells(
    vlm: VisionLanguageModel,
    preparation: Preparation,
    *,
    folder: Path | None = None,
    name: str | None = None,
    lacks: tuple[str, ...] = (),
    bar: Bar | None = None,
) -> Results:
    """Make all observations that the plans need, or find those that a run before has left.

    Args:
        vlm: the model.
        preparation: from :func:`lad.reproduce.preparing.prepare`.
        folder: run folder; observations go into ``observations``, one folder a cell. A run that was stopped goes on
            where it was. None keeps nothing.
        name: what the report calls the model; its own name if left out.
        lacks: abilities that the model lacks, see :data:`lad.evaluation.methods.ABILITIES`.
        bar: opens a progress bar with a description and a number of passes.

    Raises:
        LadError: whatever is wrong, with the place where it is.
    """
    scope = preparation.scope
    total = sum(one.passes for one in preparation.cells) + passes_for_timing(scope.timed, preparation.timed)
    cells: dict[Cell, Observed] = {}
    timings: list[dict[str, Any]] = []
    with bar(f"Observing {name or vlm.name}", total) if bar else nullcontext(lambda done: None) as advance:
        for one in preparation.cells:
            cells[one.cell] = _observe(vlm, one, _place(folder, vlm, one), advance)
        for count in preparation.timed:
            cell = scope.cell("random", count)
            assert cell is not None
            here = cells[cell]
            timings += time_methods(vlm, here.samples[: scope.timed], here.calibrated.calibration)
            advance(passes_for_timing(scope.timed, [count]))
    return Results(scope, cells, model_facts(vlm, name), lacks, tuple(timings))


def _place(folder: Path | None, vlm: VisionLanguageModel, one: CellPlan) -> Path | None:
    if folder is None:
        return None
    model = re.sub(r"[^\w.]+", "_", f"{vlm.name}-{vlm.revision[:8]}")
    size = f"{len(one.samples)}x{len(one.plan.orders)}"
    return folder / "observations" / f"{model}-{one.cell.folder}-{size}"


def _observe(vlm: VisionLanguageModel, one: CellPlan, place: Path | None, advance: Advance) -> Observed:
    pooled = calibrate_in_run(
        vlm,
        one.pool,
        template=one.plan.prompts.matching,
        identifiers=one.cell.identifiers,
        folder=place,
        batch_tokens=one.plan.batch_tokens,
        progress=advance,
    )
    pool = pooled.observations
    assert pool is not None
    first = set(list(dict.fromkeys(pool.samples))[:CALIBRATION_SAMPLES])
    few = pool.take(np.array([name in first for name in pool.samples]))
    whole = pooled.calibration
    # the facts of the whole pool, so that none of its images is among the samples
    fitted = fit_calibration(few, whole.identity, made_with=whole.made_with)
    calibrated = Calibrated(fitted, few)
    done = evaluate(vlm, one.samples, calibrated, one.plan, folder=place, progress=advance)
    assert done.observations is not None
    by_label = {result.method: result for result in done.results}
    return Observed(one.plan, one.samples, done.observations, calibrated, pool, by_label)


def model_facts(vlm: VisionLanguageModel, name: str | None = None) -> dict[str, str]:
    """What a report says about a model, which it calls by ``name`` if given."""
    import torch
    import transformers

    from lad import __version__

    parameters = sum(parameter.numel() for parameter in vlm.model.parameters())
    size = vlm.image_size if isinstance(vlm.image_size, str) else "{} x {}".format(*vlm.image_size)
    return {
        "model": name or vlm.name,
        "revision": vlm.revision,
        "parameters": f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.1f}M",
        "layers": str(vlm.depth),
        "image_size": size,
        "device": vlm.device.type,
        "dtype": vlm.dtype,
        "versions": f"lad {__version__}, transformers {transformers.__version__}, torch {torch.__version__}",
    }
