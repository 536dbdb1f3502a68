"""Run an evaluation: observe what the plan says, keep it, decide, measure. Goes on where it was stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from lad.calibration import Calibration
from lad.decisions import DecisionOptions
from lad.errors import RunError, SampleError
from lad.evaluation.calibrating import Calibrated, only_these_images
from lad.evaluation.methods import METHODS, Gathered, parse_methods
from lad.evaluation.methods.registry import MethodSpec
from lad.evaluation.plan import Plan, samples_digest
from lad.evaluation.prompts import PromptSet, load_prompts
from lad.evaluation.records import Record, RecordStore
from lad.evaluation.results import MethodResult, compare, measure, write_json
from lad.evaluation.sources import (
    Asking,
    Progress,
    Source,
    Views,
    as_orders,
    folder_name,
    merge_key,
)
from lad.identifiers import make_identifiers
from lad.model.calibrate import refuse_calibration_images
from lad.model.observe import AHEAD, BATCH_TOKENS
from lad.model.prefetch import prefetched
from lad.model.vlm import VisionLanguageModel
from lad.observations import Observations, ObservationStore
from lad.samples import Sample, random_orders


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What came out.

    Attributes:
        plan: what was run.
        observations: the S * T observations behind all methods of one pass; None where no method needs them.
        results: one per method, in the order asked for.
        observed: forward passes made in this call; the others were found in the run folder.
    """

    plan: Plan
    observations: Observations | None
    results: tuple[MethodResult, ...]
    observed: int


def make_plan(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    *,
    methods: Sequence[str | Mapping[str, Any] | MethodSpec] = METHODS,
    orders: int = 5,
    seed: int = 0,
    prompts: PromptSet | None = None,
    identifiers: str | Sequence[str] = "digits",
    part_size: int = 32,
    batch_tokens: int = BATCH_TOKENS,
) -> Plan:
    """Fix what an evaluation observes.

    Args:
        vlm: the model.
        samples: labelled samples of the same N.
        methods: see :func:`lad.evaluation.methods.parse_method`, for instance "permutation_average:samples=40".
        orders: T; the identity and T - 1 random orders. If N! is less, all N! are taken.
        seed: of the orders and of what methods draw.
        prompts: the wordings; ours if left out.
        identifiers: what names the positions in the answer.
        part_size: samples per part of the stores.
        batch_tokens: see :func:`lad.model.observe.observe`.

    Raises:
        SampleError: no samples, an unlabelled one, one without or with a repeated id, or of another N.
        DecisionError: an unknown method or option.
    """
    _check_samples(samples)
    candidates = len(samples[0])
    prompts = prompts or load_prompts()
    return Plan(
        identity=vlm.identity(prompts.matching, make_identifiers(identifiers, candidates)),
        dtype=vlm.dtype,
        samples=samples_digest(samples),
        count=len(samples),
        orders=as_orders(random_orders(candidates, orders, seed)),
        seed=seed,
        part_size=part_size,
        batch_tokens=batch_tokens,
        prompts=prompts,
        methods=parse_methods(methods),
    )


def evaluate(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    calibration: Calibration | Calibrated | None,
    plan: Plan,
    *,
    options: DecisionOptions = DecisionOptions(),  # noqa: B008 - frozen, so sharing it is safe
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Observe, decide and measure.

    Args:
        vlm: the model that the plan was made for.
        samples: the samples that the plan was made for.
        calibration: fits the plan's identity, and shares no image with the samples; None if no method needs one.
        plan: from :func:`make_plan`.
        options: of the decision rules.
        folder: run folder for plan, observations and metrics. If it holds part of the same run, that is used.
        progress: called with the number of passes just made or found.

    Raises:
        DecisionError: a method lacks something, for instance a calibration.
        CalibrationError: the calibration does not fit or shares an image with a sample.
        RunError: the folder holds another run, or a broken part.
    """
    started = time.time()
    known = calibration if isinstance(calibration, Calibrated) or calibration is None else Calibrated(calibration)
    if known is not None:
        known.calibration.require(plan.identity)
    root = None if folder is None else Path(folder)
    if root is not None:
        _open_folder(root, plan)
    content, observed = _gather(vlm, samples, known, plan, root, progress)
    answers = np.array([sample.answer for sample in samples], dtype=np.int64)
    results = []
    for spec in plan.methods:
        gathered = Gathered(
            setting=plan.setting(spec),
            content=content,
            calibration=known.calibration if known else None,
            calibration_observations=known.observations if known else None,
            decisions=options,
        )
        outcome = spec.method.decide(gathered, spec.options)
        results.append(measure(spec, outcome, answers[: len(outcome.picks)], plan.order_array))
    if root is not None:
        _write_metrics(root, results)
        _note(root, started, observed)
    shared = [source for source in plan.sources if isinstance(source, Views) and source.name == "observations"]
    base = content[merge_key(shared[0])] if shared else None
    return Evaluation(plan, base if isinstance(base, Observations) else None, tuple(results), observed)


def _gather(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    known: Calibrated | None,
    plan: Plan,
    root: Path | None,
    progress: Progress | None,
) -> tuple[dict[str, Observations | list[Record]], int]:
    """The content of every source, group of samples by group of samples; and how many passes that took."""
    asking = Asking(plan.identity.identifiers, plan.batch_tokens, progress)
    stores = {source: _store(root, source) for source in plan.sources}
    parts: dict[Source, list[Any]] = {source: [] for source in plan.sources}
    observed = 0
    # while the model works on a part, images of the next one are read
    unread = [
        samples[index]
        for number in range(-(-plan.count // plan.part_size))
        if any(not _is_there(stores[source], number) for source in _wanted(plan, number))
        for index in _rows(plan, number)
    ]
    ready = prefetched(unread, vlm.prepare_sample, ahead=AHEAD)
    for number, start in enumerate(range(0, plan.count, plan.part_size)):
        rows, wanted = _rows(plan, number), _wanted(plan, number)
        found = {source: part for source in wanted if (part := _found(stores[source], number)) is not None}
        for source in found:
            if progress is not None:
                progress(sum(source.passes(index) for index in wanted[source]))
        if missing := [source for source in wanted if source not in found]:
            group = {index: next(ready) for index in rows}
            if known is not None:
                refuse_calibration_images(list(group.values()), known.calibration)
            with only_these_images(vlm, list(group.values())):
                for source in missing:
                    made = source.gather(vlm, [group[index] for index in wanted[source]], start, asking)
                    observed += sum(source.passes(index) for index in wanted[source])
                    store = stores[source]
                    if store is not None:
                        store.write(number, made)  # type: ignore[arg-type]
                    found[source] = made
        for source in wanted:
            parts[source].append(found[source])
    return {merge_key(source): _joined(chunks) for source, chunks in parts.items()}, observed


def _rows(plan: Plan, number: int) -> range:
    """The samples of a part."""
    return range(number * plan.part_size, min((number + 1) * plan.part_size, plan.count))


def _wanted(plan: Plan, number: int) -> dict[Source, list[int]]:
    """The samples of a part that each source asks."""
    return {
        source: asked
        for source in plan.sources
        if (asked := [index for index in _rows(plan, number) if index < source.samples and source.passes(index)])
    }


def _store(root: Path | None, source: Source) -> ObservationStore | RecordStore | None:
    if root is None:
        return None
    folder = root / folder_name(source)
    return ObservationStore(folder) if source.gives_observations else RecordStore(folder)


def _found(store: ObservationStore | RecordStore | None, number: int) -> Observations | list[Record] | None:
    return store.read(number) if store is not None and _is_there(store, number) else None


def _is_there(store: ObservationStore | RecordStore | None, number: int) -> bool:
    return store is not None and number in store.parts()


def _joined(parts: list[Any]) -> Observations | list[Record]:
    if isinstance(parts[0], Observations):
        return Observations.concatenate(parts)
    return [record for part in parts for record in part]


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
    # what a killed write left behind begins with a dot; calibration may have come first
    if folder.exists() and (not folder.is_dir() or any(not _own(path) for path in folder.iterdir())):
        raise RunError("Is in the way: it is no empty folder and holds no run.", where=str(folder))
    write_json(file, plan.to_dict())


def _own(path: Path) -> bool:
    return (path.name.startswith(".") and path.suffix == ".tmp") or path.name.startswith(("calibration-", "control"))


def _write_metrics(folder: Path, results: Sequence[MethodResult]) -> None:
    document = {"methods": [result.as_dict() for result in results], "pairs": compare(results)}
    write_json(folder / "metrics.json", document)


def _note(folder: Path, started: float, observed: int) -> None:
    """Keep what is not to be compared between runs, time above all, in a file of its own."""
    line = {
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 2),
        "passes": observed,
    }
    try:
        with (folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as error:
        raise RunError(f"Cannot be written ({error.strerror}).", where=str(folder / "log.jsonl")) from error
