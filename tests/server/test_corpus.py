"""At least sixty bad images and payloads, each with the right answer."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.server.corpus import Case, cases, picture
from tests.server.running import Running, data_uri

CASES = cases()
JSON = {"Content-Type": "application/json"}


def post(server: Running, content: bytes | str, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.post(
        server.url + "/v2/rerank", content=content, headers=JSON if headers is None else headers, timeout=60
    )


def test_the_corpus_is_large_enough() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert len([case for case in CASES if case.code]) >= 50
    assert len(CASES) >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_document_is_ranked_or_refused_with_its_index(server: Running, case: Case) -> None:
    other = data_uri(case.same_as or picture())
    response = post(server, json.dumps({"query": "a red square", "documents": [other, case.document]}))
    if case.code is None:
        assert response.status_code == 200, response.text
        scores = [result["relevance_score"] for result in response.json()["results"]]
        if case.same_as is not None:  # the same picture, pixel for pixel: they tie
            assert scores[0] == scores[1] == pytest.approx(0.5)
        return
    assert response.status_code == 400, response.text
    body = response.json()
    assert (body["code"], body["document"]) == (case.code, 1)
    assert body["message"].startswith("document 1: ")
    assert "Traceback" not in body["message"]
    assert len(body["message"]) < 600


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"null", "invalid_request"),
        (b"[]", "invalid_request"),
        (b'"text"', "invalid_request"),
        (b"\xff\xfe{}", "invalid_json"),
        (b'{"query": NaN}', "invalid_json"),
        (b'{"query": "x", "top_n": ' + b"9" * 5000 + b"}", "invalid_json"),
        (b"[" * 200_000, "invalid_json"),
        (b'{"a":' * 200_000, "invalid_json"),
        (b'{"query": "x", "documents": ' + b"[" * 500 + b"]" * 500 + b"}", "invalid_documents"),
        (b"{}", "invalid_query"),
        (b'{"query": "x"}', "invalid_documents"),
        (b'{"query": "x", "documents": null}', "invalid_documents"),
        (b'{"query": "x", "documents": []}', "invalid_documents"),
        (b'{"query": "x", "documents": "data:image/png;base64,QQ=="}', "invalid_documents"),
        (b'{"query": "x", "documents": {"content": "x"}}', "invalid_documents"),
        (json.dumps({"query": "x", "documents": ["a"] * 10_001}).encode(), "too_many_documents"),
        (json.dumps({"query": "x", "documents": {"content": [{}] * 10_001}}).encode(), "too_many_documents"),
        (b'{"query": "x", "documents": ["data:,x"], "return_documents": "yes"}', "invalid_request"),
    ],
    ids=lambda value: value[:40].decode("latin-1") if isinstance(value, bytes) else value,
)
def test_bad_bodies(server: Running, content: bytes, code: str) -> None:
    response = post(server, content)
    assert (response.status_code, response.json()["code"]) == (400, code)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "image/png"},
        {**JSON, "Content-Encoding": "gzip"},
    ],
    ids=str,
)
def test_bodies_of_other_types(server: Running, headers: dict[str, str]) -> None:
    response = post(server, b'{"query": "x", "documents": ["a"]}', headers)
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")


def test_a_content_type_with_parameters_is_taken(server: Running) -> None:
    body = json.dumps({"query": "x", "documents": [data_uri(picture())]})
    assert post(server, body, {"Content-Type": "Application/JSON; charset=utf-8"}).status_code == 200


def test_the_server_is_well_after_all_that(server: Running) -> None:
    assert server.rerank([data_uri(picture())] * 3).status_code == 200
    assert server.service.places.taken == 0
