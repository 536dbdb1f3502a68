from __future__ import annotations

import pytest

from lad.ranker import load


@pytest.fixture(scope="session")
def vlm():
    """The model that ships with lad."""
    return load()
