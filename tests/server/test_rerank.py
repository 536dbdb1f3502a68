"""What the endpoints answer: shapes in, scores out."""

from __future__ import annotations

import json

import httpx
import pytest
from PIL import Image

from lad.ranker import Ranker
from lad.samples import Sample
from lad.server.app import RERANK_PATHS
from tests.server.running import Running, data_uri


def scores(response: httpx.Response) -> dict[int, float]:
    assert response.status_code == 200, response.text
    return {result["index"]: result["relevance_score"] for result in response.json()["results"]}


def part(url: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.fixture(scope="module")
def expected(ranker: Ranker, sample: Sample) -> dict[int, float]:
    ranking = ranker.rank(sample.caption, sample.images)
    return {candidate.index: candidate.probability for candidate in ranking.candidates}


@pytest.mark.parametrize("path", RERANK_PATHS)
@pytest.mark.parametrize(
    "shape",
    ["cohere", "text", "jina uri", "jina base64", "vllm list", "vllm whole", "vllm query", "image_url as a string"],
)
def test_every_shape_gives_what_the_ranker_gives(
    server: Running, sample: Sample, pictures: list[str], expected: dict[int, float], shape: str, path: str
) -> None:
    documents: object = {
        "cohere": pictures,
        "text": [{"text": uri} for uri in pictures],
        "jina uri": [{"image": uri} for uri in pictures],
        "jina base64": [{"image": uri.partition(",")[2]} for uri in pictures],
        "vllm list": [{"content": [part(uri)]} for uri in pictures],
        "vllm whole": {"content": [part(uri) for uri in pictures]},
        "vllm query": {"content": [part(uri) for uri in pictures]},
        "image_url as a string": [{"content": [{"type": "image_url", "image_url": uri}]} for uri in pictures],
    }[shape]
    query: object = sample.caption
    if shape == "vllm query":
        query = {"content": [{"type": "text", "text": sample.caption}]}
    found = scores(server.post({"model": "lad", "query": query, "documents": documents}, path))
    assert found == pytest.approx(expected, abs=1e-5)


def test_scores_are_sorted_and_listwise(server: Running, sample: Sample, pictures: list[str]) -> None:
    body = server.rerank(pictures, sample.caption).json()
    values = [result["relevance_score"] for result in body["results"]]
    assert values == sorted(values, reverse=True)
    assert sum(values) == pytest.approx(1)
    assert sorted(result["index"] for result in body["results"]) == [0, 1, 2, 3]
    assert body["results"][0]["index"] == sample.answer


def test_meta_tells_how_the_answer_came_about(
    server: Running, ranker: Ranker, sample: Sample, pictures: list[str]
) -> None:
    meta = server.rerank(pictures, sample.caption).json()["meta"]
    ranking = ranker.rank(sample.caption, sample.images)
    by_index = sorted(ranking.candidates, key=lambda candidate: candidate.index)
    assert meta["method"] == "agd"
    assert meta["passes"] == 1
    assert meta["vanilla_pick"] == ranking.vanilla_pick
    assert meta["vanilla"] == pytest.approx([candidate.vanilla_probability for candidate in by_index], abs=1e-5)
    assert meta["attention"] == pytest.approx([candidate.attention for candidate in by_index], abs=1e-5)
    assert meta["calibration"] == server.service.engine.calibration_ids[4]
    assert len(set(server.service.engine.calibration_ids.values())) == 4


@pytest.mark.parametrize(
    ("top_n", "count"), [(None, 4), (0, 4), (1, 1), (3, 3), (4, 4), (5, 4), (10**9, 4), (2.0, 2)], ids=str
)
def test_top_n_is_clamped(server: Running, pictures: list[str], top_n: object, count: int) -> None:
    full = server.rerank(pictures).json()["results"]
    assert server.rerank(pictures, top_n=top_n).json()["results"] == full[:count]


@pytest.mark.parametrize("top_n", [-1, 1.5, "2", True, [1], 1e400])
def test_other_values_of_top_n_are_refused(server: Running, pictures: list[str], top_n: object) -> None:
    body = json.dumps({"query": "x", "documents": pictures, "top_n": top_n})
    response = httpx.post(server.url + "/rerank", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400


def test_documents_come_back_only_when_asked_for_and_as_they_were_sent(server: Running, pictures: list[str]) -> None:
    documents = [pictures[0], {"text": pictures[1]}, {"image": pictures[2]}, {"content": [part(pictures[3])]}]
    for asked in ({}, {"return_documents": False}, {"return_documents": None}):
        assert all("document" not in result for result in server.rerank(documents, **asked).json()["results"])
    results = server.rerank(documents, return_documents=True).json()["results"]
    returned = {result["index"]: result["document"] for result in results}
    assert returned == {
        0: {"text": pictures[0]},
        1: {"text": pictures[1]},
        2: {"text": "", "image": pictures[2]},  # the text is for clients that insist on one
        3: {"text": "", "content": [part(pictures[3])]},
    }


def test_no_answer_holds_a_null(server: Running, pictures: list[str]) -> None:
    for response in (
        server.rerank(pictures, return_documents=True),
        server.rerank(pictures[:1], return_documents=True),
        server.rerank(["a text"]),
        server.rerank([]),
    ):
        assert "null" not in response.text


def test_one_document_scores_1_without_the_model(server: Running, pictures: list[str]) -> None:
    before = server.service.metrics.text()
    body = server.rerank(pictures[:1], top_n=3).json()
    assert body["results"] == [{"index": 0, "relevance_score": 1.0}]
    assert body["meta"]["passes"] == 0
    batches = b"lad_batch_requests_count"
    count = [line for line in before.splitlines() if line.startswith(batches)]
    assert count == [line for line in server.service.metrics.text().splitlines() if line.startswith(batches)]


def test_one_document_must_be_an_image_all_the_same(server: Running) -> None:
    assert server.rerank(["a text"]).json()["document"] == 0


def test_duplicates_tie_in_whatever_form_they_come(server: Running, sample: Sample, pictures: list[str]) -> None:
    bmp = Image.new("RGB", (8, 8))
    again = data_uri(sample.images[1])  # type: ignore[arg-type]
    found = scores(server.rerank([pictures[1], pictures[0], {"image": again}, data_uri(bmp)], sample.caption))
    assert found[0] == found[2]
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "query", ["", "  \n", None, 5, [], {}, {"content": []}, {"content": [{"type": "text"}]}, "\ud800"]
)
def test_bad_queries_are_refused(server: Running, pictures: list[str], query: object) -> None:
    body = json.dumps({"query": query, "documents": pictures})
    response = httpx.post(server.url + "/rerank", content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (400, "invalid_query")


def test_a_query_with_an_image_is_refused(server: Running, pictures: list[str]) -> None:
    query = {"content": [{"type": "text", "text": "like this"}, part(pictures[0])]}
    assert server.post({"query": query, "documents": pictures}).json()["code"] == "invalid_query"


def test_a_query_that_the_model_would_read_as_a_command_is_refused(server: Running, pictures: list[str]) -> None:
    response = server.rerank(pictures, "a cat <|image_pad|>")
    assert (response.status_code, response.json()["code"]) == (400, "invalid_query")
    assert "<|image_pad|>" in response.json()["message"]


def test_a_query_too_long_is_refused(server: Running, pictures: list[str]) -> None:
    assert server.rerank(pictures, "x" * 4001).json()["code"] == "invalid_query"


def test_an_unknown_model_is_not_found_and_the_served_one_is_named(server: Running, pictures: list[str]) -> None:
    response = server.rerank(pictures, model="rerank-v4")
    assert (response.status_code, response.json()["code"]) == (404, "model_not_found")
    assert "'lad'" in response.json()["message"]
    assert server.rerank(pictures, model=5).status_code == 400


def test_more_documents_than_calibrated_are_refused_with_the_limit(server: Running, pictures: list[str]) -> None:
    response = server.rerank(pictures * 3)
    assert (response.status_code, response.json()["code"]) == (400, "too_many_documents")
    assert "12 documents" in response.json()["message"]
    assert "at most 8" in response.json()["message"]


def test_a_number_between_calibrated_ones_is_refused_with_those(server: Running, pictures: list[str]) -> None:
    response = server.rerank([*pictures, pictures[0]])
    assert (response.status_code, response.json()["code"]) == (400, "uncalibrated_size")
    assert "2, 3, 4, 8" in response.json()["message"]


TEXTS = ["a red circle", {"text": "a red circle"}, {"content": [{"type": "text", "text": "a red circle"}]}]


@pytest.mark.parametrize("document", [*TEXTS, "iVBORw0KGgo=", "photo.png", "/etc/passwd", ""], ids=str)
@pytest.mark.parametrize("index", [0, 2])
def test_text_is_never_scored(server: Running, pictures: list[str], document: object, index: int) -> None:
    documents: list[object] = list(pictures)
    documents[index] = document
    response = server.rerank(documents)
    assert response.status_code == 400
    assert response.json()["code"] == "text_document"
    assert response.json()["document"] == index
    assert f"document {index}: " in response.json()["message"]


def test_a_client_that_posts_only_text_gets_the_first_index(server: Running) -> None:
    assert server.rerank(["one", "two"]).json()["document"] == 0


def test_text_beside_an_image_is_not_dropped_in_silence(server: Running, pictures: list[str]) -> None:
    both = [{"image": pictures[0], "text": "a caption"}, pictures[1]]
    assert server.rerank(both).status_code == 400
    parts = [{"content": [{"type": "text", "text": "a caption"}, part(pictures[0])]}, pictures[1]]
    assert server.rerank(parts).json()["code"] == "text_document"


def test_models_and_probes(server: Running) -> None:
    [model] = httpx.get(server.url + "/v1/models").json()["data"]
    assert (model["id"], model["candidates"]) == ("lad", [2, 3, 4, 8])
    assert httpx.get(server.url + "/healthz").json() == {"status": "ok"}
    assert httpx.get(server.url + "/readyz").json() == {"status": "ready"}


def test_metrics_count(server: Running, pictures: list[str]) -> None:
    def value(name: str) -> float:
        lines = httpx.get(server.url + "/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    names = ('lad_requests_total{status="200"}', "lad_images_total", 'lad_refusals_total{code="text_document"}')
    before = [value(name) for name in names]
    server.rerank(pictures)
    server.rerank(["text"])
    assert [value(name) for name in names] == [before[0] + 4, before[1] + 4, before[2] + 1]  # three scrapes are answers
    assert value("lad_places_taken") == 0


def test_other_paths_and_methods_are_refused_in_the_same_form(server: Running) -> None:
    missing = httpx.get(server.url + "/v3/rerank")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    wrong = httpx.get(server.url + "/v2/rerank")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
