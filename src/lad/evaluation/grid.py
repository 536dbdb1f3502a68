"""A whole run: every model on every dataset, N and set of identifiers, each combination in a folder of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lad.calibration import Calibration
from lad.errors import CalibrationError, SampleError
from lad.evaluation.config import DatasetSpec, ModelSpec, RunConfig
from lad.evaluation.methods import ABILITIES
from lad.evaluation.metrics import flip_rate
from lad.evaluation.prompts import PromptSet, load_prompts
from lad.evaluation.results import MethodResult, compare, write_json
from lad.evaluation.sources import Progress
from lad.samples import Sample

if TYPE_CHECKING:
    from lad.evaluation.calibrating import Calibrated
    from lad.evaluation.plan import Plan
    from lad.evaluation.run import Evaluation
    from lad.model.vlm import VisionLanguageModel

Loader: TypeAlias = "Callable[[ModelSpec], VisionLanguageModel]"
Bar: TypeAlias = Callable[[str, int], AbstractContextManager[Progress]]

_SCENES, _SCENE_CANDIDATES, _CALIBRATION_SCENES = 200, (4,), 5
_PLACE = "{candidates}"


@dataclass(frozen=True, eq=False)
class Question:
    """One dataset at one N: its samples, and what to calibrate on."""

    dataset: str
    samples: list[Sample]
    calibration: Calibration | list[Sample] | None

    @property
    def candidates(self) -> int:
        """N."""
        return len(self.samples[0])


@dataclass(frozen=True, eq=False)
class CellResult:
    """One combination's figures.

    Attributes:
        model: name of the model.
        dataset: name of the dataset.
        candidates: N.
        identifiers: name of the set, or the identifiers.
        samples: how many.
        orders: T.
        calibration_samples: how many the calibration rests on; None without one.
        lacks: abilities that the model lacks.
        results: one per method.
        observed: forward passes made now.
        revision: which checkpoint of the model it was.
        flips: flip rate of each method when the identical order is asked again, in percent; None if it was not.
    """

    model: str
    dataset: str
    candidates: int
    identifiers: str
    samples: int
    orders: int
    calibration_samples: int | None
    lacks: tuple[str, ...]
    results: tuple[MethodResult, ...]
    observed: int
    revision: str
    flips: tuple[float, ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values; the passes made now, which a resumed run has fewer of, are left out."""
        return {
            "model": self.model,
            "revision": self.revision,
            "dataset": self.dataset,
            "candidates": self.candidates,
            "identifiers": self.identifiers,
            "samples": self.samples,
            "orders": self.orders,
            "calibration_samples": self.calibration_samples,
            "lacks": list(self.lacks),
            "methods": [
                {
                    **result.as_dict(),
                    "lacking": lacking(result, self.lacks),
                    "same_order_flips": None if self.flips is None else self.flips[index],
                }
                for index, result in enumerate(self.results)
            ],
            "pairs": compare(self.results),
        }


def lacking(result: MethodResult, lacks: Sequence[str]) -> str | None:
    """What the method needs and the model lacks, in words; None if nothing."""
    needs = result.spec.method.needs
    return ABILITIES[needs] if needs is not None and needs in lacks else None


def run_grid(
    config: RunConfig, load: Loader, *, folder: Path | None = None, bar: Bar | None = None
) -> list[CellResult]:
    """Evaluate everything that a configuration names.

    Args:
        config: what to evaluate.
        load: loads a model; called once per model.
        folder: run folder; each combination gets one in it, and ``metrics.json`` holds them all. A run that was stopped
            goes on where it was.
        bar: opens a progress bar with a description and a number of passes.

    Raises:
        LadError: whatever is wrong, with the place where it is.
    """
    prompts = load_prompts(config.prompt)
    questions = [question for dataset in config.datasets for question in _questions(dataset, config)]
    cells: list[CellResult] = []
    for model in config.models:
        if model.source is not None and any(question.calibration is None for question in questions):
            raise CalibrationError(
                f"The model {model.name!r} has no calibration yet.",
                hint="Give samples to calibrate on, or a folder made with: lad calibrate",
            )
        cells += _run_model(config, model, load(model), questions, prompts, folder, bar)
    if folder is not None:
        write_json(folder / "metrics.json", {"name": config.name, "cells": [cell.as_dict() for cell in cells]})
    return cells


def _run_model(
    config: RunConfig,
    model: ModelSpec,
    vlm: VisionLanguageModel,
    questions: Sequence[Question],
    prompts: PromptSet,
    folder: Path | None,
    bar: Bar | None,
) -> list[CellResult]:
    from lad.evaluation.run import evaluate, make_plan

    planned: list[tuple[Question, str | tuple[str, ...], Plan]] = [
        (
            question,
            identifiers,
            make_plan(
                vlm,
                question.samples,
                methods=config.methods,
                orders=config.orders,
                seed=config.seed,
                prompts=prompts,
                identifiers=identifiers,
                part_size=config.part_size,
            ),
        )
        for question in questions
        for identifiers in config.identifiers
    ]
    total = sum(
        _calibration_passes(question) + plan.passes + (_control(plan).passes if config.control else 0)
        for question, _, plan in planned
    )
    cells = []
    with bar(f"Observing {model.name}", total) if bar else nullcontext() as advance:
        for question, identifiers, plan in planned:
            named = identifiers if isinstance(identifiers, str) else ",".join(identifiers)
            place = None if folder is None else folder / cell_name(model.name, question, named)
            known = _calibrated(vlm, question, plan, identifiers, place, advance)
            done = evaluate(
                vlm, question.samples, known, plan, options=config.decisions, folder=place, progress=advance
            )
            again = None
            if config.control:
                again = evaluate(
                    vlm,
                    question.samples,
                    known,
                    _control(plan),
                    options=config.decisions,
                    folder=None if place is None else place / "control",
                    progress=advance,
                )
            cells.append(
                CellResult(
                    model=model.name,
                    dataset=question.dataset,
                    candidates=question.candidates,
                    identifiers=named,
                    samples=len(question.samples),
                    orders=len(plan.orders),
                    calibration_samples=known.calibration.samples,
                    lacks=model.lacks,
                    results=done.results,
                    observed=done.observed + (again.observed if again else 0),
                    revision=vlm.revision,
                    flips=_same_order_flips(done, again) if again else None,
                )
            )
    return cells


def _control(plan: Plan) -> Plan:
    """The same run in the identity order alone; whatever methods draw, they draw anew."""
    return replace(plan, orders=(tuple(range(len(plan.orders[0]))),), seed=plan.seed + 1)


def _same_order_flips(done: Evaluation, again: Evaluation) -> tuple[float, ...]:
    identity = done.plan.orders.index(tuple(range(len(done.plan.orders[0]))))
    return tuple(
        flip_rate(other.picks, one.picks[:, identity]) for one, other in zip(done.results, again.results, strict=True)
    )


def cell_name(model: str, question: Question, identifiers: str) -> str:
    """The folder of a combination."""
    parts = (model, question.dataset, f"n{question.candidates}", identifiers)
    return "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts)


def _calibration_passes(question: Question) -> int:
    return len(question.calibration) * question.candidates if isinstance(question.calibration, list) else 0


def _calibrated(
    vlm: VisionLanguageModel,
    question: Question,
    plan: Plan,
    identifiers: str | tuple[str, ...],
    folder: Path | None,
    progress: Progress | None,
) -> Calibrated:
    from lad.evaluation.calibrating import Calibrated, calibrate_in_run
    from lad.ranker import shipped_calibrations

    if isinstance(question.calibration, Calibration):
        return Calibrated(question.calibration)
    if question.calibration is None:
        return Calibrated(Calibration.load(shipped_calibrations(), question.candidates))
    return calibrate_in_run(
        vlm,
        question.calibration,
        template=plan.prompts.matching,
        identifiers=identifiers,
        folder=folder,
        batch_tokens=plan.batch_tokens,
        progress=progress,
    )


def _questions(dataset: DatasetSpec, config: RunConfig) -> list[Question]:
    if dataset.scenes is not None:
        return [_scenes(dataset, count, config) for count in config.candidates or _SCENE_CANDIDATES]
    from lad.sample_files import read_samples

    assert dataset.samples is not None
    if _PLACE in str(dataset.samples):
        if not config.candidates:
            raise SampleError(f"The name holds {_PLACE}, so candidates must be given.", where=str(dataset.samples))
        files = {count: _at(dataset.samples, count) for count in config.candidates}
        held = {count: [s for s in read_samples(file) if len(s) == count] for count, file in files.items()}
    else:
        samples = read_samples(dataset.samples)
        sizes = config.candidates or tuple(sorted({len(sample) for sample in samples}))
        held = {count: [sample for sample in samples if len(sample) == count] for count in sizes}
    if missing := next((count for count, samples in held.items() if not samples), None):
        raise SampleError(f"There are no samples of {missing} candidates.", where=str(dataset.samples))
    return [
        Question(dataset.name, samples[: config.limit], _calibration(dataset, count)) for count, samples in held.items()
    ]


def _at(path: Path, count: int) -> Path:
    return Path(str(path).replace(_PLACE, str(count)))


def _scenes(dataset: DatasetSpec, count: int, config: RunConfig) -> Question:
    from lad.benchmarks.scenes import scene_samples

    setting: Any = dataset.scenes
    samples = scene_samples(config.limit or _SCENES, count, setting=setting, split="test", seed=config.seed)
    known = _calibration(dataset, count)
    if known is None:
        known = scene_samples(_CALIBRATION_SCENES, count, setting=setting, split="calibration")
    return Question(dataset.name, samples, known)


def _calibration(dataset: DatasetSpec, count: int) -> Calibration | list[Sample] | None:
    if dataset.calibration is None:
        return None
    place = _at(dataset.calibration, count)
    if place.is_dir():
        return Calibration.load(place, count)
    from lad.sample_files import read_samples

    fitting = [sample for sample in read_samples(place) if len(sample) == count]
    if not fitting:
        raise SampleError(f"There are no samples of {count} candidates to calibrate on.", where=str(place))
    return fitting
