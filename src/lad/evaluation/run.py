"""Run an evaluation: observe what the plan says, keep it, decide, measure. Goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lad.atomic import write_files
from lad.calibration import Calibration
from lad.decisions import RULES, DecisionOptions
from lad.errors import RunError, SampleError
from lad.evaluation.methods import (
    METHODS,
    PERMUTATION_AVERAGE,
    MethodResult,
    averaged_picks,
    check_methods,
    measure,
    rule_picks,
)
from lad.evaluation.plan import Permutations, Plan, make_permutations, samples_digest
from lad.identifiers import make_identifiers
from lad.model.calibrate import refuse_calibration_images
from lad.model.observe import BATCH_TOKENS, observe
from lad.model.vlm import VisionLanguageModel
from lad.observations import Observations, ObservationStore
from lad.prompts import MATCHING, PromptTemplate
from lad.samples import Sample, random_orders

Progress = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What came out.

    Attributes:
        plan: what was run.
        observations: the S * T observations behind all single-pass methods.
        results: one per method, in the order asked for.
        observed: forward passes made in this call; the others were found in the run folder.
    """

    plan: Plan
    observations: Observations
    results: tuple[MethodResult, ...]
    observed: int


def make_plan(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    *,
    orders: int = 5,
    seed: int = 0,
    permutations: Permutations | None = "cyclic",
    permutation_number: int = 16,
    permutation_samples: int | None = None,
    template: PromptTemplate = MATCHING,
    identifiers: str | Sequence[str] = "digits",
    part_size: int = 32,
    batch_tokens: int = BATCH_TOKENS,
) -> Plan:
    """Fix what an evaluation observes.

    Args:
        vlm: the model.
        samples: labelled samples of the same N.
        orders: T; the identity and T - 1 random orders. If N! is less, all N! are taken.
        seed: of the orders and the random permutations.
        permutations: "cyclic" or "random" for permutation averaging, None to leave it out.
        permutation_number: how many random ones.
        permutation_samples: how many samples it is measured on; None for all.
        template: the prompt's wording.
        identifiers: what names the positions in the answer.
        part_size: samples per part of the store.
        batch_tokens: see :func:`lad.model.observe.observe`.

    Raises:
        SampleError: no samples, an unlabelled one, one without or with a repeated id, or of another N.
    """
    _check_samples(samples)
    candidates = len(samples[0])
    chosen = (
        make_permutations(permutations, candidates, permutation_number, seed + 1)
        if permutations
        else np.empty((0, candidates), dtype=np.int64)
    )
    averaged = 0 if permutations is None else len(samples)
    if permutations is not None and permutation_samples is not None:
        averaged = min(averaged, permutation_samples)
    return Plan(
        identity=vlm.identity(template, make_identifiers(identifiers, candidates)),
        dtype=vlm.dtype,
        samples=samples_digest(samples),
        count=len(samples),
        orders=_tuples(random_orders(candidates, orders, seed)),
        permutations=_tuples(chosen) if averaged else (),
        permutation_count=averaged,
        part_size=part_size,
        batch_tokens=batch_tokens,
    )


def evaluate(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    calibration: Calibration,
    plan: Plan,
    *,
    methods: Sequence[str] = METHODS,
    options: DecisionOptions = DecisionOptions(),  # noqa: B008 - frozen, so sharing it is safe
    template: PromptTemplate = MATCHING,
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Observe, decide and measure.

    Args:
        vlm: the model that the plan was made for.
        samples: the samples that the plan was made for.
        calibration: fits the plan's identity, and shares no image with the samples.
        plan: from :func:`make_plan`.
        methods: names of :data:`lad.evaluation.methods.METHODS`.
        options: of the decision rules.
        template: the prompt's wording that the plan was made for.
        folder: run folder for plan, observations and metrics. If it holds part of the same run, that is used.
        progress: called with the number of observations just made or found.

    Raises:
        DecisionError: an unknown method.
        CalibrationError: the calibration does not fit or shares an image with a sample.
        RunError: the folder holds another run, or a broken part.
    """
    check_methods(methods)
    calibration.require(plan.identity)
    root = None if folder is None else Path(folder)
    if root is not None:
        _open_folder(root, plan)
    passes_made = 0

    def gather(name: str, orders: NDArray[np.int64], chosen: Sequence[Sample]) -> Observations:
        nonlocal passes_made
        store = None if root is None else ObservationStore(root / name)
        parts = []
        for number, start in enumerate(range(0, len(chosen), plan.part_size)):
            if store is not None and number in store.parts():
                part = store.read(number)
                if progress is not None:
                    progress(len(part))
            else:
                group = [vlm.prepare_sample(sample) for sample in chosen[start : start + plan.part_size]]
                refuse_calibration_images(group, calibration)
                part = observe(
                    vlm,
                    group,
                    orders,
                    template=template,
                    identifiers=plan.identity.identifiers,
                    batch_tokens=plan.batch_tokens,
                    progress=progress,
                )
                passes_made += len(part)
                if store is not None:
                    store.write(number, part)
            parts.append(part)
        return Observations.concatenate(parts)

    observations = gather("observations", plan.order_array, samples)
    averaged = None
    if PERMUTATION_AVERAGE in methods and plan.permutations:
        averaged = gather("permutations", plan.permuted_orders, samples[: plan.permutation_count])
    results = _results(plan, observations, averaged, calibration, methods, options)
    if root is not None:
        _write_metrics(root, results)
    return Evaluation(plan, observations, results, passes_made)


def _results(
    plan: Plan,
    observations: Observations,
    averaged: Observations | None,
    calibration: Calibration,
    methods: Sequence[str],
    options: DecisionOptions,
) -> tuple[MethodResult, ...]:
    orders = plan.order_array
    answers = observations.answers.reshape(-1, len(orders))[:, 0]
    results = []
    for method in methods:
        if method in RULES:
            picked, passes = rule_picks(method, observations, orders, calibration, options), RULES[method].passes
        elif averaged is not None:
            picked, passes = averaged_picks(averaged, len(orders)), len(plan.permutations)
        else:
            continue
        results.append(measure(method, picked, answers[: len(picked)], orders, passes))
    return tuple(results)


def _check_samples(samples: Sequence[Sample]) -> None:
    if not samples:
        raise SampleError("There are no samples to evaluate.")
    seen: set[str] = set()
    for index, sample in enumerate(samples):
        where = f"sample {sample.id or index!r}"
        if sample.answer is None:
            raise SampleError("Has no answer; an evaluation needs labelled samples.", where=where)
        if not sample.id or sample.id in seen:
            raise SampleError("Every sample needs an id of its own.", where=where)
        if len(sample) != len(samples[0]):
            raise SampleError(
                f"Has {len(sample)} candidates where the first has {len(samples[0])}; evaluate one N at a time.",
                where=where,
            )
        seen.add(sample.id)


def _open_folder(folder: Path, plan: Plan) -> None:
    file = folder / "plan.json"
    if file.exists():
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunError("The plan is broken.", where=str(file), hint="Name another folder.") from error
        plan.require_same(stored, str(folder))
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError("Is in the way: it is no empty folder and holds no run.", where=str(folder))
    try:
        write_files({file: _json(plan.to_dict())})
    except OSError as error:
        raise RunError(f"Cannot be written ({error.strerror}).", where=str(file)) from error


def _write_metrics(folder: Path, results: Sequence[MethodResult]) -> None:
    table = [
        {
            "method": result.method,
            "samples": result.samples,
            **result.metrics.as_dict(),
            "accuracy_interval": result.intervals.accuracy,
            "rstd_interval": result.intervals.rstd,
            "consistency_interval": result.intervals.consistency,
        }
        for result in results
    ]
    write_files({folder / "metrics.json": _json(table)})


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def _tuples(orders: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(candidate) for candidate in order) for order in orders)
