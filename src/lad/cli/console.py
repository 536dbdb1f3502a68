"""Printing: tables and notes for people, one document for programs, progress on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

_PIPE_WIDTH = 100


def console() -> Console:
    """Standard output; of a fixed width where it is no terminal. Text is printed as it is, brackets too."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, markup=False, emoji=False)


def print_json(document: Any) -> None:
    """One JSON document on standard output, valid in any encoding."""
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(document, indent=1, allow_nan=False)
    sys.stdout.write(text + "\n")


def make_table(title: str | None, columns: Sequence[str], *, left: int = 1) -> Table:
    """A table whose first ``left`` columns are text and the others numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        # numbers are never cut: where there is too little room, it is text that is broken over lines
        if index < left:
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="right", no_wrap=True, min_width=len(column))
    return table


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error; yields the function that advances it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    screen = Console(stderr=True, markup=False)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.advance(task, done)
