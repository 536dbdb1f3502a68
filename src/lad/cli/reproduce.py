"""`lad reproduce`: the paper's tables and figures, ours beside what was published."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer

from lad.cli import options as opt

_WIDTH = 180


def reproduce(
    plans: Annotated[
        list[str],
        typer.Argument(help="table1 to table8, figure1, 2, 3, 5, 6, 8 (of the paper), or all.", show_default=False),
    ],
    model: Annotated[
        str | None, typer.Option(help="Hub name or folder; the small model that ships with lad if left out.")
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Folder made by `lad build`; may be repeated. Synthetic scenes if left out."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Run folder; what was observed in it before is used.")] = Path("reproduced"),
    samples: Annotated[int, typer.Option(min=1, help="Samples with N = 4 and 8; half as many for all others.")] = 200,
    orders: Annotated[int, typer.Option(min=2, help="Orders per sample, the identity among them.")] = 5,
    own_samples: Annotated[
        int | None,
        typer.Option(min=1, help="Samples for methods with passes of their own (instruction, SoFA); half if left out."),
    ] = None,
    permutation_samples: Annotated[
        int, typer.Option(min=1, help="Samples that permutation averaging is measured on; it costs N passes a query.")
    ] = 40,
    text_samples: Annotated[
        int, typer.Option(min=0, help="Samples for methods that reason in words; 0 leaves them out.")
    ] = 10,
    text_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Most tokens of such an answer; as published (1,024 and 512), 32 for the shipped model."
        ),
    ] = None,
    calibration_pool: Annotated[
        int, typer.Option(min=1, help="Most calibration samples of figure 6, out of 1, 5, 10, 20, 50, 100.")
    ] = 100,
    seed: Annotated[int, typer.Option(help="Seed of orders, draws and scenes.")] = 0,
    device: opt.Device = None,
    dtype: opt.Dtype = None,
    revision: opt.Revision = None,
    trust_remote_code: opt.TrustRemoteCode = False,
    image_size: opt.ImageSize = "auto",
    json: opt.Json = False,
) -> None:
    """Measure the paper's tables and figures on any model, and write a report with what was published beside.

    Every setting is observed once, for all tables and figures together; methods and ablations are then decided from
    the same observations. The number of passes and the likely time are said before it starts.
    """
    from lad.cli.console import console, print_json, progress
    from lad.report.figures.style import require_matplotlib
    from lad.reproduce.data import FolderData, SceneData
    from lad.reproduce.plans import choose_plans
    from lad.reproduce.scope import Scope

    chosen = choose_plans(plans)
    require_matplotlib()
    sizes = tuple(size for size in Scope.sizes if size <= calibration_pool)
    if text_tokens is None and model is None:
        text_tokens = 32
    scope = Scope(
        data=FolderData(data) if data else SceneData(seed),
        samples=samples,
        orders=orders,
        own_samples=own_samples,
        permutation_samples=min(permutation_samples, samples),
        text_samples=min(text_samples, samples),
        text_tokens=text_tokens,
        sizes=sizes,
        timed=min(Scope.timed, samples),
        seed=seed,
    )
    vlm = opt.load_model(
        model,
        device=device,
        dtype=dtype,
        revision=revision,
        trust_remote_code=trust_remote_code,
        image_size=image_size,
        attention="span",
    )
    from lad.evaluation.config import SHIPPED_LACKS
    from lad.report.stored import store_report
    from lad.report.writing import write_report
    from lad.reproduce.preparing import estimate, prepare
    from lad.reproduce.reporting import make_report, observe_overlays
    from lad.reproduce.running import observe_cells

    preparation = prepare(vlm, chosen, scope)
    cost = estimate(vlm, preparation)
    if not json:
        console().print(_announcement(cost), soft_wrap=True)

    def bar(description: str, total: int) -> AbstractContextManager[Any]:
        return progress(description, total)

    lacks = SHIPPED_LACKS if model is None else ()
    results = observe_cells(vlm, preparation, folder=out, name=model_name(model), lacks=lacks, bar=bar)
    overlays = observe_overlays(vlm, results, preparation.browsed)
    report = make_report(results, preparation, cost, overlays=overlays)
    store_report(report, out)
    files = write_report(report, out)
    if json:
        values = report.to_dict()
        values.pop("groups")
        values.pop("pictures")
        print_json({"passes": cost.observed, "passes_alone": cost.alone, **values})
        return
    _print(report, files)


def model_name(model: str | None) -> str | None:
    """What reports call a model: the name of its folder; None leaves it its own."""
    if model is None:
        return "the model that ships with lad"
    return Path(model).absolute().name if Path(model).is_dir() else None


def _announcement(cost: Any) -> str:
    minutes = cost.seconds / 60
    told = f"{minutes:.0f} minutes" if minutes >= 2 else f"{cost.seconds:.0f} seconds"
    return (
        f"{cost.observed:,} forward passes in {cost.cells} settings, about {told} (from a few passes just made; what"
        f" an earlier run left is not made again).\n{cost.asks:,} methods and ablations are decided from them; a pass"
        f" for each would be {cost.alone:,} passes, {cost.times_fewer:.1f} times as many."
    )


def _print(report: Any, files: list[Path]) -> None:
    from rich.console import Console

    from lad.cli.console import make_table
    from lad.report.exhibits import Table

    # wide tables are cut where there is no terminal to fit them to
    out = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    times = Counter(note for exhibit in report.exhibits for note in exhibit.notes)
    for exhibit in report.exhibits:
        out.print(f"\n{exhibit.title}", style="bold", soft_wrap=True)
        if isinstance(exhibit, Table):
            heads = [column.label.replace(", ", ",\n") for column in exhibit.columns]
            table = make_table(None, heads)
            for column, shown in zip(exhibit.columns, table.columns, strict=True):
                shown.justify = column.align
            for row in exhibit.rows:
                table.add_row(*exhibit.cells(row))
            out.print(table)
        for note in exhibit.notes:
            if times[note] == 1 or len(report.exhibits) == 1:
                out.print(note, soft_wrap=True, style="dim")
    if shared := [note for note, number in times.items() if number > 1 and len(report.exhibits) > 1]:
        out.print("\nWhat differs from the published protocol", style="bold")
        for note in shared:
            out.print(note, soft_wrap=True)
    out.print(f"\nReport: {files[0]}", soft_wrap=True)
