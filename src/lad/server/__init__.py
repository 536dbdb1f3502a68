"""The HTTP service: ranks images behind the rerank endpoints that existing client libraries speak."""

from __future__ import annotations

from importlib.util import find_spec

from lad.errors import DependencyError


def require_packages() -> None:
    """Check that the packages of the extra ``serve`` are installed; importing them is left for later.

    Raises:
        DependencyError: one is missing.
    """
    for module, package in (("fastapi", "fastapi"), ("uvicorn", "uvicorn"), ("prometheus_client", "prometheus-client")):
        if find_spec(module) is None:
            raise DependencyError(package, "serve")
