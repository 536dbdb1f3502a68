"""The command line: one file per verb, nothing heavy imported before a verb runs."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

import typer

from lad.cli.build import build
from lad.cli.calibrate import calibrate
from lad.cli.check import check
from lad.cli.demo import demo
from lad.cli.diagnose import diagnose
from lad.cli.evaluate import evaluate
from lad.cli.rank import rank
from lad.cli.report import report
from lad.cli.reproduce import reproduce
from lad.cli.serve import serve
from lad.errors import LadError

app = typer.Typer(
    name="lad",
    help="Which image does a caption describe? Ask a multimodal LLM, and take its position bias off the answer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _verb in (demo, rank, calibrate, check, evaluate, diagnose, reproduce, report, serve):
    app.command()(_verb)
app.add_typer(build)


@app.callback(invoke_without_command=True)
def _top(version: bool = typer.Option(False, "--version", help="Print the version and leave.")) -> None:
    if version:
        from lad import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Entry point: user errors end with one message on standard error and exit code 2."""
    # threads that spin while they wait make a small model ten times slower wherever another program shares the cores
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if sys.stdout is None:  # closed by the caller
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # file names need not be text, and not every terminal can show every character
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
        sys.stdout.flush()
    except LadError as error:
        _fail(str(error))
    except BrokenPipeError:
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _fail(f"{place}{error.strerror or error}.")


def _fail(message: str) -> NoReturn:
    typer.echo(f"lad: {message}", err=True)
    sys.exit(2)
