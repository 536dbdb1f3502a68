"""Everything that a stored report is written as: HTML, Markdown, LaTeX, and figures as PNG and PDF."""

from __future__ import annotations

import os
from pathlib import Path

from lad.atomic import write_files
from lad.errors import RunError
from lad.report.exhibits import Drawing, Report, Table
from lad.report.html import report_html
from lad.report.latex import table_latex
from lad.report.markdown import report_markdown


def write_report(report: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """Write ``report.html``, ``report.md``, ``tables/NAME.tex`` and ``figures/NAME.png`` and ``.pdf`` into a folder.

    Args:
        report: its contents.
        folder: made where missing.

    Returns:
        The files, the HTML report first.

    Raises:
        RunError: a file cannot be written.
        DependencyError: it has figures, and matplotlib is not installed.
    """
    root = Path(folder)
    contents = {
        root / "report.html": report_html(report).encode(),
        root / "report.md": report_markdown(report).encode(),
    }
    for exhibit in report.exhibits:
        if isinstance(exhibit, Table):
            contents[root / "tables" / f"{exhibit.name}.tex"] = table_latex(exhibit).encode()
        elif isinstance(exhibit, Drawing):
            from lad.report.figures import draw, image_of

            fig, _ = draw(exhibit)
            for kind in ("png", "pdf"):
                contents[root / "figures" / f"{exhibit.name}.{kind}"] = image_of(fig, kind, dpi=200)
    try:
        write_files(contents)
    except OSError as error:
        raise RunError(f"Cannot be written ({error.strerror or error}).", where=str(root)) from error
    return list(contents)
