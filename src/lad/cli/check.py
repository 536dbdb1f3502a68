"""`lad check`: does lad work with this model?"""

from __future__ import annotations

import math
import time

import typer

from lad.cli import options as opt


def check(
    model: opt.ModelArgument = None,
    device: opt.Device = None,
    dtype: opt.Dtype = None,
    revision: opt.Revision = None,
    adapter: opt.Adapter = None,
    trust_remote_code: opt.TrustRemoteCode = False,
    image_size: opt.ImageSize = "auto",
    tiling: opt.Tiling = False,
    attention: opt.Attention = "span",
    json: opt.Json = False,
) -> None:
    """Prove on a model that what lad reads from it is right; exit code 1 if something is not.

    Each check compares two ways to the same numbers: ours, and the model as its own documentation runs it.
    """
    from rich.text import Text

    from lad.cli.console import console, make_table, print_json, progress

    began = time.perf_counter()
    vlm = opt.load_model(
        model,
        device=device,
        dtype=dtype,
        revision=revision,
        trust_remote_code=trust_remote_code,
        image_size=image_size,
        attention=attention,
        adapter=adapter,
        tiling=tiling,
    )
    from lad.checks import CHECKS, run_checks

    with progress("Checking", len(CHECKS)) as advance:
        results = run_checks(vlm, progress=advance)
    failed = [result.name for result in results if not result.passed]
    if json:
        rows = [
            {
                "name": result.name,
                "passed": result.passed,
                "difference": result.difference if math.isfinite(result.difference) else None,
                "tolerance": result.tolerance,
                "detail": result.detail,
            }
            for result in results
        ]
        facts = {"model": vlm.name, "revision": vlm.revision, "dtype": vlm.dtype, "device": str(vlm.device)}
        print_json({**facts, "layers": vlm.depth, "passed": not failed, "checks": rows})
    else:
        table = make_table(f"{vlm.name}, {vlm.dtype}, {vlm.device}", ("check", "", "difference", "tolerance", "what"))
        for column in (1, 4):
            table.columns[column].justify = "left"
        table.columns[4].no_wrap = False
        for result in results:
            verdict = Text("pass", "green") if result.passed else Text("FAIL", "bold red")
            numbers = (f"{result.difference:.2g}", f"{result.tolerance:.2g}")
            table.add_row(result.name.replace("_", " "), verdict, *numbers, result.detail)
        console().print(table)
        taken = f"{time.perf_counter() - began:.0f} s"
        summary = f"{len(failed)} of {len(results)} checks failed" if failed else f"All {len(results)} checks passed"
        console().print(f"\n{summary} ({taken}).")
    if failed:
        raise typer.Exit(1)
