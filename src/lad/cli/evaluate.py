"""`lad evaluate`: how good is each method, and how much does it depend on the order?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lad.cli import options as opt
from lad.errors import CalibrationError, DecisionError

if TYPE_CHECKING:
    from lad.calibration import Calibration
    from lad.evaluation.methods import MethodResult
    from lad.model.vlm import VisionLanguageModel
    from lad.samples import Sample


def evaluate(
    model: opt.ModelArgument = None,
    samples: Annotated[Path | None, typer.Option(help="Labelled samples of one N, JSONL or Parquet.")] = None,
    scenes: Annotated[opt.Setting | None, typer.Option(help="Synthetic scenes in place of a file.")] = None,
    candidates: Annotated[int, typer.Option(help="Images per scene, 2 to 12.")] = 4,
    count: Annotated[int | None, typer.Option(help="How many samples; all of a file, 200 scenes.")] = None,
    calibration: Annotated[Path | None, typer.Option(help="Folder made by `lad calibrate`.")] = None,
    calibration_samples: Annotated[
        Path | None, typer.Option(help="Labelled samples to calibrate on, in place of a folder.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; an interrupted run in it is resumed. Nothing is kept without one.")
    ] = None,
    orders: Annotated[int, typer.Option(help="Orders per sample, the identity among them.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the orders and of the scenes.")] = 0,
    method: Annotated[
        list[str] | None, typer.Option(help="Method to measure; may be repeated. All if left out.")
    ] = None,
    permutations: Annotated[
        str, typer.Option(help="Orders that permutation averaging takes: cyclic, random or none.")
    ] = "cyclic",
    permutation_number: Annotated[int, typer.Option(help="How many random ones.")] = 16,
    permutation_samples: Annotated[
        int | None, typer.Option(help="Samples that permutation averaging is measured on; all if left out.")
    ] = None,
    device: opt.Device = None,
    dtype: opt.Dtype = None,
    revision: opt.Revision = None,
    trust_remote_code: opt.TrustRemoteCode = False,
    image_size: opt.ImageSize = "auto",
    attention: opt.Attention = "span",
    identifiers: opt.Identifiers = "digits",
    prompt: opt.Prompt = None,
    top_k: opt.TopK = 2,
    temperature: opt.Temperature = 5.0,
    layer_range: opt.LayerRange = None,
    layer_choice: opt.LayerChoice = "mass",
    purification: opt.Purification = "log_of_mean",
    mixture: opt.Mixture = "log",
    no_prior: opt.NoPrior = False,
    json: opt.Json = False,
) -> None:
    """Measure accuracy and its dependence on the order of the images, for several methods side by side.

    All single-pass methods share the same forward passes. Without --calibration or --calibration-samples, scenes are
    calibrated on five scenes of the same setting, and the shipped model uses the calibrations that ship with it.
    """
    from lad.cli.console import console, print_json, progress
    from lad.evaluation.methods import METHODS, check_methods

    if permutations not in ("cyclic", "random", "none"):
        raise DecisionError(f"There are no permutations {permutations!r}.", hint="Choose cyclic, random or none.")
    methods = tuple(method or METHODS)
    check_methods(methods)
    decisions = opt.decision_options(top_k, temperature, layer_range, layer_choice, purification, mixture, no_prior)
    template = opt.load_template(prompt)
    names = opt.parse_identifiers(identifiers)
    chosen = opt.gather_samples(
        samples, scenes, candidates=candidates, count=count, split="test", seed=seed, default_count=200
    )
    calibrate_on = _calibration_source(model, calibration, calibration_samples, scenes, chosen)
    vlm = opt.load_model(
        model,
        device=device,
        dtype=dtype,
        revision=revision,
        trust_remote_code=trust_remote_code,
        image_size=image_size,
        attention=attention,
    )
    from lad.evaluation.run import evaluate as run
    from lad.evaluation.run import make_plan

    wanted: Any = None if permutations == "none" or "permutation_average" not in methods else permutations
    plan = make_plan(
        vlm,
        chosen,
        orders=orders,
        seed=seed,
        permutations=wanted,
        permutation_number=permutation_number,
        permutation_samples=permutation_samples,
        template=template,
        identifiers=names,
    )
    fitted = _fit(vlm, calibrate_on, template, names) if isinstance(calibrate_on, list) else calibrate_on
    with progress("Observing", plan.passes) as advance:
        result = run(
            vlm,
            chosen,
            fitted,
            plan,
            methods=methods,
            options=decisions,
            template=template,
            folder=out,
            progress=advance,
        )
    rows = [method_row(item) for item in result.results]
    if json:
        setting = {
            "model": vlm.name,
            "revision": vlm.revision,
            "candidates": len(chosen[0]),
            "orders": len(plan.orders),
        }
        print_json({**setting, "calibration_samples": fitted.samples, "passes_made": result.observed, "rows": rows})
        return
    console().print(
        results_table(
            f"{len(chosen)} samples, N = {len(chosen[0])}, {len(plan.orders)} orders, "
            f"{fitted.samples} calibration samples",
            rows,
        )
    )
    if len(plan.orders) < orders:
        console().print(f"There are only {len(plan.orders)} orders of {len(chosen[0])} images; all were taken.")
    for row in rows:
        if row["samples"] < len(chosen):
            console().print(f"{row['method']} was measured on the first {row['samples']} samples.")


def _calibration_source(
    model: str | None,
    folder: Path | None,
    file: Path | None,
    scenes: opt.Setting | None,
    samples: list[Sample],
) -> Calibration | list[Sample]:
    """A calibration made before, or the samples to make one from."""
    from lad.calibration import Calibration
    from lad.ranker import shipped_calibrations

    if folder is not None and file is not None:
        raise CalibrationError("Give either --calibration or --calibration-samples, not both.")
    size = len(samples[0]) if samples else 0
    if file is not None:
        from lad.sample_files import read_samples

        fitting = [sample for sample in read_samples(file) if len(sample) == size]
        if not fitting:
            raise CalibrationError(f"There are no samples of {size} candidates.", where=str(file))
        return fitting
    if folder is not None:
        return Calibration.load(folder, size)
    if scenes is not None:
        from lad.benchmarks.scenes import scene_samples

        return scene_samples(5, size, setting=scenes.value, split="calibration")
    if model is None:
        return Calibration.load(shipped_calibrations(), size)
    raise CalibrationError(
        "The model has no calibration yet.",
        hint="Make one with `lad calibrate MODEL --samples FILE --out FOLDER` and give --calibration FOLDER.",
    )


def _fit(vlm: VisionLanguageModel, samples: list[Sample], template: Any, names: Any) -> Calibration:
    from lad.cli.console import progress
    from lad.model.calibrate import calibrate

    with progress("Calibrating", len(samples) * len(samples[0])) as advance:
        return calibrate(vlm, samples, template=template, identifiers=names, progress=advance)


def method_row(result: MethodResult) -> dict[str, Any]:
    """One method's figures as plain JSON values, all in percent but ``passes`` and ``samples``."""
    metrics = result.metrics.as_dict()
    return {
        "method": result.method,
        "accuracy": metrics["accuracy"],
        "accuracy_interval": list(result.intervals.accuracy),
        "accuracy_std": metrics["accuracy_std"],
        "rstd": metrics["rstd"],
        "consistency": metrics["consistency"],
        "flip_rate": metrics["flip_rate"],
        "recall_by_position": metrics["recall_by_position"],
        "confusion": metrics["confusion"],
        "passes": metrics["passes"],
        "samples": result.samples,
    }


def results_table(title: str | None, rows: list[dict[str, Any]]) -> Any:
    """The table that people read."""
    from lad.cli.console import make_table

    table = make_table(title, ("method", "accuracy", "95% interval", "RStd", "consistency", "passes"))
    for row in rows:
        table.add_row(*method_cells(row))
    return table


def method_cells(row: dict[str, Any]) -> tuple[str, ...]:
    """The cells of one method."""
    low, high = row["accuracy_interval"]
    spread = "" if row["accuracy_std"] is None else f" ± {row['accuracy_std']:.1f}"
    return (
        row["method"],
        f"{row['accuracy']:.1f}{spread}",
        f"{low:.1f} to {high:.1f}",
        "-" if row["rstd"] is None else f"{row['rstd']:.1f}",
        f"{row['consistency']:.1f}",
        f"{row['passes']:g}",
    )
