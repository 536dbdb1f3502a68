"""What all tests share: no network, repeatable examples, and the choice of tests that need photographs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"
# see lad.cli.main
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

settings.register_profile("lad", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("lad")

# marker -> (the variable that names a folder, a file that this folder must hold)
NEEDED = {
    "photos": ("LAD_TEST_DATA", "coco/captions.json"),
    "photo_model": ("LAD_PHOTO_MODEL", "adapter.safetensors"),
}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DESELECTED = pytest.StashKey[dict[str, int]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests whose photographs, model for photographs, or browser are not at hand."""
    counts: dict[str, int] = {}
    kept = []
    for item in items:
        missing = [
            variable
            for marker, (variable, _) in NEEDED.items()
            if item.get_closest_marker(marker) and not os.environ.get(variable)
        ]
        if CHROMIUM is None and item.get_closest_marker("browser"):
            missing.append("chromium")
        for variable in missing:
            counts[variable] = counts.get(variable, 0) + 1
        if not missing:
            kept.append(item)
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept
    config.stash[DESELECTED] = counts


def pytest_configure(config: pytest.Config) -> None:
    """Stop at once where a variable names a folder without photographs: leaving their tests out would hide it."""
    for variable, file in NEEDED.values():
        if (folder := os.environ.get(variable)) and not Path(folder, file).is_file():
            raise pytest.UsageError(f"{variable} is set to {folder}, which does not hold {file}.")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for variable, count in config.stash.get(DESELECTED, {}).items():
        if variable == "chromium":
            terminalreporter.write_line(f"{count} tests of reports in a browser were left out: there is no Chromium.")
            continue
        terminalreporter.write_line(f"{count} tests of photographs were left out: {variable} is not set.")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The program; for tests marked ``browser``."""
    assert CHROMIUM is not None
    return CHROMIUM


@pytest.fixture(scope="session")
def photographs() -> Path:
    """The folder of photographs; for tests marked ``photos``."""
    return Path(os.environ["LAD_TEST_DATA"])
