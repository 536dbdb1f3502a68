"""`lad report`: a stored run's report, made anew without a model, or put into a document."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lad.errors import RunError


def report(
    run: Annotated[Path, typer.Argument(help="Run folder of `lad reproduce` or `lad diagnose`.")],
    into: Annotated[
        Path | None,
        typer.Option(help="Markdown document with places for tables and figures, in place of a report of its own."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Name of a table or figure, for instance table1; may be repeated.")
    ] = None,
    figures: Annotated[str, typer.Option(help="Folder of the document's figures, relative to it.")] = "figures",
    out: Annotated[Path | None, typer.Option(help="Folder to write to; the run's own if left out.")] = None,
) -> None:
    """Write the report of a stored run: HTML, Markdown, LaTeX tables, figures as PNG and PDF.

    With --into, tables and figures go into a Markdown document instead, each between the two lines
    <!-- lad report: NAME --> and <!-- end of NAME -->. No model is loaded.
    """
    from lad.cli.console import console
    from lad.report.markdown import write_into
    from lad.report.stored import read_report
    from lad.report.writing import write_report

    if only and into is None and out is None:
        raise RunError("A part of the report would take the place of the whole.", hint="Give --out or --into.")
    stored = read_report(run)
    if into is not None:
        files = write_into(stored, into, only=only, figures=figures)
    else:
        files = write_report(stored.only(only) if only else stored, out or run)
    for file in files:
        console().print(str(file), soft_wrap=True)
