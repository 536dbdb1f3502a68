"""`lad evaluate`: how good is each method, how much does it depend on the order, and what does it cost?"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lad.cli import options as opt
from lad.errors import CalibrationError, RunError, SampleError

if TYPE_CHECKING:
    from lad.evaluation.config import DatasetSpec, RunConfig
    from lad.evaluation.grid import CellResult
    from lad.evaluation.results import MethodResult


def evaluate(
    models: Annotated[
        list[str] | None, typer.Argument(help="Hub names or folders; the small model that ships with lad if left out.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file that says what to evaluate, in place of the options below.")
    ] = None,
    samples: Annotated[
        list[Path] | None, typer.Option(help="Labelled samples, JSONL or Parquet; may be repeated.")
    ] = None,
    scenes: Annotated[
        list[opt.Setting] | None, typer.Option(help="Synthetic scenes in place of a file; may be repeated.")
    ] = None,
    candidates: Annotated[
        list[int] | None,
        typer.Option(help="Images per sample, N; may be repeated. For scenes 2 to 12, 4 if left out; all of a file."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "--count", help="Samples of each dataset and N; all of a file, 200 scenes."),
    ] = None,
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
        list[str] | None,
        typer.Option(
            help="Method to measure, may be repeated: a name, perhaps with options (agd_shifts:shifts=4,samples=50), "
            "default, rules, or all. See --methods."
        ),
    ] = None,
    methods: Annotated[bool, typer.Option("--methods", help="List all methods with their options, and leave.")] = False,
    control: Annotated[
        bool, typer.Option("--control", help="Ask the identical order again, to see what flips by itself.")
    ] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="Write tables and curves into this Markdown file, at the run's place.")
    ] = None,
    device: opt.Device = None,
    dtype: opt.Dtype = None,
    revision: opt.Revision = None,
    adapter: opt.Adapter = None,
    trust_remote_code: opt.TrustRemoteCode = False,
    image_size: opt.ImageSize = "auto",
    tiling: opt.Tiling = False,
    attention: opt.Attention = "span",
    identifiers: Annotated[
        list[str] | None,
        typer.Option(
            help="digits, uppercase, lowercase, roman, words, or your own, comma-separated; may be repeated.",
            rich_help_panel="Asking",
        ),
    ] = None,
    prompt: Annotated[
        Path | None, typer.Option(help="JSON file with other wordings of the prompts.", rich_help_panel="Asking")
    ] = None,
    top_k: opt.TopK = 2,
    temperature: opt.Temperature = 5.0,
    layer_range: opt.LayerRange = None,
    layer_choice: opt.LayerChoice = "mass",
    purification: opt.Purification = "log_of_mean",
    mixture: opt.Mixture = "log",
    no_prior: opt.NoPrior = False,
    json: opt.Json = False,
) -> None:
    """Measure accuracy, its dependence on the order of the images, and cost, for many methods side by side.

    Methods share whatever observations they can. Without --calibration or --calibration-samples, scenes are calibrated
    on five scenes of the same setting, and the shipped model uses the calibrations that ship with it.
    """
    from lad.cli.console import console, print_json, progress

    if methods:
        console().print(_method_table())
        return
    if config is not None:
        if models or samples or scenes or candidates or method or identifiers or calibration or calibration_samples:
            raise RunError("Say what to evaluate either in --config or by options, not both.")
        run = _from_file(config, limit)
    else:
        loading = {
            "device": device,
            "dtype": dtype,
            "revision": revision,
            "trust_remote_code": trust_remote_code,
            "image_size": image_size,
            "attention": attention,
            "adapter": adapter,
            "tiling": tiling,
        }
        run = _from_options(
            [{"model": name, **loading} for name in (models or (None,))],
            _datasets(samples or [], scenes or [], calibration, calibration_samples),
            name="evaluation" if out is None else out.name,
            candidates=tuple(candidates) if candidates else None,
            identifiers=tuple(_identifiers(text) for text in identifiers or ["digits"]),
            methods=method or ["default"],
            orders=orders,
            seed=seed,
            limit=limit,
            control=control,
            prompt=prompt,
            decisions=opt.decision_options(
                top_k, temperature, layer_range, layer_choice, purification, mixture, no_prior
            ),
        )
    from lad.evaluation.grid import run_grid
    from lad.evaluation.report import write_report

    def bar(description: str, total: int) -> AbstractContextManager[Any]:
        return progress(description, total)

    cells = run_grid(run, _load, folder=out, bar=bar)
    if markdown is not None:
        write_report({"name": run.name, "cells": [cell.as_dict() for cell in cells]}, markdown)
    if json:
        print_json(_document(cells))
        return
    for cell in cells:
        _print(cell, run.orders, out=console())


def _from_file(config: Path, limit: int | None) -> RunConfig:
    from dataclasses import replace

    from lad.evaluation.config import read_config

    run = read_config(config)
    return run if limit is None else replace(run, limit=limit)


def _from_options(
    models: Sequence[Any], datasets: tuple[DatasetSpec, ...], methods: list[str], **rest: Any
) -> RunConfig:
    from lad.evaluation.config import RunConfig, model_spec
    from lad.evaluation.methods import parse_methods

    specs = tuple(model_spec(entry) for entry in models)
    return RunConfig(datasets=datasets, models=specs, methods=parse_methods(methods), **rest)


def _identifiers(text: str) -> str | tuple[str, ...]:
    parsed = opt.parse_identifiers(text)
    return parsed if isinstance(parsed, str) else tuple(parsed)


def _datasets(
    samples: list[Path], scenes: list[opt.Setting], folder: Path | None, file: Path | None
) -> tuple[DatasetSpec, ...]:
    from lad.evaluation.config import DatasetSpec

    if not samples and not scenes:
        raise SampleError(
            "Say where the samples come from.", hint="Give --samples FILE, --scenes random|adversarial, or --config."
        )
    if folder is not None and file is not None:
        raise CalibrationError("Give either --calibration or --calibration-samples, not both.")
    if folder is not None and not folder.is_dir():
        raise CalibrationError("There is no such folder of calibrations.", where=str(folder))
    known = folder or file
    return (
        *(DatasetSpec(setting.value, scenes=setting.value, calibration=known) for setting in scenes),
        *(DatasetSpec(path.stem, samples=path, calibration=known) for path in samples),
    )


def _load(spec: Any) -> Any:
    settings = {
        "device": None,
        "dtype": None,
        "revision": None,
        "trust_remote_code": False,
        "image_size": "auto",
        "attention": "span",
        **spec.options,
    }
    return opt.load_model(spec.source, **{**settings, "image_size": str(settings["image_size"])})


def _document(cells: Sequence[CellResult]) -> dict[str, Any]:
    rows = [
        {
            "model": cell.model,
            "dataset": cell.dataset,
            "candidates": cell.candidates,
            "identifiers": cell.identifiers,
            "orders": cell.orders,
            "calibration_samples": cell.calibration_samples,
            **row,
        }
        for cell in cells
        for row in cell.as_dict()["methods"]
    ]
    return {"passes_made": sum(cell.observed for cell in cells), "rows": rows}


def _print(cell: CellResult, orders: int, out: Any) -> None:
    from lad.evaluation.grid import lacking

    rows = [method_row(result) for result in cell.results]
    out.print(
        results_table(
            f"{cell.model}, {cell.dataset}, {cell.identifiers}: {cell.samples} samples, N = {cell.candidates}, "
            f"{cell.orders} orders, {cell.calibration_samples} calibration samples",
            rows,
        )
    )
    if cell.orders < orders:
        out.print(f"There are only {cell.orders} orders of {cell.candidates} images; all were taken.")
    for result in cell.results:
        if result.samples < cell.samples:
            out.print(f"{result.method} was measured on the first {result.samples} samples.")
        if note := result.facts.get("note"):
            out.print(f"{result.method}: {note}")
        if missing := lacking(result, cell.lacks):
            out.print(f"{result.method} needs {missing}, which this model lacks.")


def _method_table() -> Any:
    from lad.cli.console import make_table
    from lad.evaluation.methods import find_method, method_names

    table = make_table(None, ("method", "kind", "what it is", "options"), left=4)
    table.columns[2].no_wrap = table.columns[3].no_wrap = False
    for name in method_names():
        found = find_method(name)
        told = ", ".join(key if value is None else f"{key}={value}" for key, value in found.defaults.items())
        table.add_row(name, found.kind, found.description, told)
    return table


def method_row(result: MethodResult) -> dict[str, Any]:
    """One method's figures as plain JSON values; percent, but for passes, tokens, samples, MRR and nDCG."""
    return result.as_dict()


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
        f"{row['passes']:.4g}",
    )
