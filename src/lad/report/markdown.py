"""Tables and figures as Markdown, and into a document that has a place for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lad.atomic import write_files
from lad.errors import RunError
from lad.report.exhibits import Drawing, Exhibit, Report, Table


def table_markdown(table: Table) -> str:
    """A table with its notes, without a heading."""
    lines = [
        _line([column.label for column in table.columns]),
        _line(["---" if column.align == "left" else "---:" for column in table.columns]),
        *(_line(table.cells(row)) for row in table.rows),
    ]
    return "\n".join([*lines, *_notes(table.notes)])


def drawing_markdown(drawing: Drawing, path: str) -> str:
    """A figure that lies at ``path``, with its notes."""
    return "\n".join([f"![{_plain(drawing.title)}]({path})", *_notes(drawing.notes)])


def report_markdown(report: Report, figures: str = "figures") -> str:
    """The whole report; its figures lie in the folder ``figures``."""
    parts = [f"# {_plain(report.title)}", *(_plain(sentence) for sentence in report.lead)]
    if report.facts:
        parts.append("\n".join(f"* {_plain(name)}: {_plain(value)}" for name, value in report.facts))
    for exhibit in report.exhibits:
        parts += [f"## {_plain(exhibit.title)}", exhibit_markdown(exhibit, figures)]
    return "\n\n".join(parts) + "\n"


def exhibit_markdown(exhibit: Exhibit, figures: str = "figures") -> str:
    """A table, or a figure in the folder ``figures``."""
    if isinstance(exhibit, Table):
        return table_markdown(exhibit)
    return drawing_markdown(exhibit, f"{figures}/{exhibit.name}.png")


def write_into(
    report: Report, path: str | os.PathLike[str], *, only: Sequence[str] | None = None, figures: str = "figures"
) -> list[Path]:
    """Put exhibits into a Markdown document, each between two lines that name it.

    The lines are ``<!-- lad report: NAME -->`` and ``<!-- end of NAME -->``. What stands between them is replaced, all
    else is kept. Exhibits without a place in the document are left out, unless they were asked for.

    Args:
        report: where the exhibits come from.
        path: the document.
        only: names of exhibits that must have a place; None for all that have one.
        figures: folder of the figures, relative to the document.

    Returns:
        The files written.

    Raises:
        RunError: the document cannot be read or written, an exhibit asked for has no place in it, a place is not
            closed, or it has no place for anything.
        DependencyError: a figure is to be drawn, and matplotlib is not installed.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(f"Cannot be read ({error.strerror}).", where=str(file)) from error
    contents: dict[Path, bytes] = {}
    placed = 0
    for exhibit in report.exhibits if only is None else [report.find(name) for name in only]:
        start, end = f"<!-- lad report: {exhibit.name} -->", f"<!-- end of {exhibit.name} -->"
        if start not in text and only is None:
            continue
        if text.count(start) != 1 or text.count(end) != 1 or text.index(start) > text.index(end):
            raise RunError(
                f"There is no place for {exhibit.name!r}.",
                where=str(file),
                hint=f"Put the two lines {start} and {end} where it shall stand.",
            )
        before, after = text.split(start)[0], text.split(end)[1]
        text = f"{before}{start}\n\n{exhibit_markdown(exhibit, figures)}\n\n{end}{after}"
        placed += 1
        if isinstance(exhibit, Drawing):
            from lad.report.figures import draw, image_of

            contents[file.parent / figures / f"{exhibit.name}.png"] = image_of(draw(exhibit)[0], dpi=150)
    if not placed:
        raise RunError(
            "Has no place for anything in this report.",
            where=str(file),
            hint="A place is a line <!-- lad report: NAME --> and a line <!-- end of NAME -->.",
        )
    contents[file] = text.encode()
    try:
        write_files(contents)
    except OSError as error:
        raise RunError(f"Cannot be written ({error.strerror or error}).", where=str(file)) from error
    return list(contents)


def _notes(notes: Sequence[str]) -> list[str]:
    return ["", *(f"{_plain(note)}  " for note in notes)] if notes else []


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    """Text that Markdown takes as text."""
    escaped = "".join(f"\\{c}" if c in "\\|<*`" else c for c in text)
    return " ".join(escaped.split())
