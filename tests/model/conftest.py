"""Checkpoints and models that the tests of this folder share; each is built and loaded once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers.utils import logging

from lad.model.vlm import VisionLanguageModel
from tests.model.checkpoints import BUILDERS

Loader = Callable[..., VisionLanguageModel]


@pytest.fixture(scope="session", autouse=True)
def _quiet() -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name of a family -> folder of its tiny checkpoint."""
    made: dict[str, Path] = {}

    def build(name: str) -> Path:
        if name not in made:
            made[name] = BUILDERS[name](tmp_path_factory.mktemp(name))
        return made[name]

    return build


@pytest.fixture(scope="session")
def load(checkpoint: Callable[[str], Path]) -> Loader:
    """Name of a family ("shipped" for the package's own model) and options -> the model; do not change it."""
    loaded: dict[Any, VisionLanguageModel] = {}

    def get(name: str, **options: Any) -> VisionLanguageModel:
        key = name, tuple(sorted(options.items()))
        if key not in loaded:
            loaded[key] = VisionLanguageModel.load(None if name == "shipped" else checkpoint(name), **options)
        return loaded[key]

    return get


@pytest.fixture(scope="session")
def shipped(load: Loader) -> VisionLanguageModel:
    """The model that comes with the package; do not change it."""
    return load("shipped")
