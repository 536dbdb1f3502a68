"""The OpenAPI description is right, and nothing that it allows brings the service down."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from lad.server.app import RERANK_PATHS
from tests.server.running import Running


@pytest.fixture(scope="module")
def description(server: Running) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(server.url + "/openapi.json").json()
    return found


def test_the_description_names_every_path_and_limit(description: dict[str, Any]) -> None:
    assert set(description["paths"]) == {*RERANK_PATHS, "/v1/models", "/healthz", "/readyz", "/metrics"}
    for path in RERANK_PATHS:
        post = description["paths"][path]["post"]
        schema = post["requestBody"]["content"]["application/json"]["schema"]
        assert schema["required"] == ["query", "documents"]
        assert schema["properties"]["documents"]["oneOf"][0]["maxItems"] == 8
        assert {"200", "400", "401", "408", "413", "415", "429"} <= set(post["responses"])
    score = description["components"]["schemas"]["RerankResult"]["properties"]["relevance_score"]
    assert "add up to 1" in score["description"]


def test_the_pages_of_documentation_are_there(server: Running) -> None:
    assert httpx.get(server.url + "/docs").status_code == 200


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_no_request_made_from_the_description_is_a_5xx(server: Running, mode: GenerationMode) -> None:
    """Neither the requests that the description allows nor those that it does not."""
    schema = schemathesis.openapi.from_url(server.url + "/openapi.json")
    statuses: dict[str, set[int]] = {}
    for found in schema.get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and operation.method == "get":
            continue  # they take nothing that could be wrong
        statuses[operation.path] = set()

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        def ask(case: schemathesis.Case) -> None:
            response = case.call()
            statuses[case.path].add(response.status_code)
            assert response.status_code < 500, response.text
            case.validate_response(response, checks=[status_code_conformance, response_schema_conformance])

        ask()
    assert set(RERANK_PATHS) <= set(statuses)
    assert all(400 in statuses[path] for path in RERANK_PATHS)
    if mode is GenerationMode.POSITIVE:
        assert all(statuses[path] == {200} for path in ("/v1/models", "/healthz", "/readyz", "/metrics"))
    assert server.service.places.taken == 0
