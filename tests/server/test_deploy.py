"""The container file and the systemd unit: linted, and in step with the command line."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest
from typer.main import get_command

from lad.cli import app

DEPLOY = Path(__file__).parents[2] / "deploy"


def check_command(arguments: list[str]) -> dict[str, str]:
    """The options of a `lad serve` line, every one of which must exist."""
    serve = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    known = {name for parameter in serve.params for name in parameter.opts}
    assert arguments[0] == "serve"
    given = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    assert set(given) <= known
    return given


def container_lines() -> list[str]:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", "")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_container_file_is_linted() -> None:
    hadolint = Path(sysconfig.get_path("scripts")) / "hadolint"
    run = subprocess.run([hadolint, DEPLOY / "Containerfile"], capture_output=True, text=True)
    assert (run.returncode, run.stdout + run.stderr) == (0, "")


def test_the_container_runs_the_service_as_nobody_of_note() -> None:
    lines = container_lines()
    [command] = [json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD ")]
    assert 'ENTRYPOINT ["lad"]' in lines
    assert check_command(command) == {"--host": "0.0.0.0"}  # which asks for a key
    assert lines.index("USER 10001") < lines.index('ENTRYPOINT ["lad"]')


def test_the_container_copies_what_is_there() -> None:
    for line in container_lines():
        if line.startswith("COPY ") and "--from" not in line:
            for name in line.split()[1:-1]:
                assert (DEPLOY.parent / name).exists(), name


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(DEPLOY / "lad.service")
    return parser


def test_the_unit_gives_the_service_time_to_finish(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    options = check_command(arguments)
    assert program.endswith("/bin/lad")
    assert int(service["TimeoutStopSec"]) > float(options["--drain-seconds"])
    assert service["KillSignal"] == "SIGTERM"


def test_the_unit_is_closed_by_default(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    options = check_command(shlex.split(service["ExecStart"])[1:])
    assert options["--host"] == "127.0.0.1"
    assert options["--api-key-file"] == "%d/api-keys"
    assert service["LoadCredential"].startswith("api-keys:")
    for name in ("DynamicUser", "NoNewPrivileges", "PrivateTmp", "LockPersonality"):
        assert service[name] == "yes"
    assert service["ProtectSystem"] == "strict"


def test_the_docs_name_only_options_that_exist() -> None:
    serve = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    known = {name for parameter in serve.params for name in parameter.opts}
    text = (DEPLOY.parent / "docs" / "service.md").read_text()
    assert set(re.findall(r"`(--[a-z-]+)", text)) <= known
