"""The real client libraries, against a running server on the loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import cohere
import pytest
from cohere.core.api_error import ApiError

from lad.ranker import Ranker
from lad.samples import Sample
from lad.server.settings import ServiceSettings
from tests.server.running import Running, running

# else it looks for a list of prices on the internet while it is imported
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
KEY = "the key"


@pytest.fixture(scope="module")
def locked(ranker: Ranker) -> Iterator[Running]:
    with running(ranker, ServiceSettings(model_names=("lad", "rerank-v3.5"), api_keys=(KEY,))) as found:
        yield found


@pytest.fixture(scope="module")
def order(ranker: Ranker, sample: Sample) -> list[int]:
    return [candidate.index for candidate in ranker.rank(sample.caption, sample.images).candidates]


def test_cohere_v2(locked: Running, sample: Sample, pictures: list[str], order: list[int]) -> None:
    client = cohere.ClientV2(KEY, base_url=locked.url)
    answer = client.rerank(model="rerank-v3.5", query=sample.caption, documents=pictures)
    assert [result.index for result in answer.results] == order
    assert answer.results[0].index == sample.answer
    assert sum(result.relevance_score for result in answer.results) == pytest.approx(1)
    assert answer.meta is not None
    assert answer.meta.passes == 1  # type: ignore[attr-defined]
    short = client.rerank(model="lad", query=sample.caption, documents=pictures, top_n=2, max_tokens_per_doc=100)
    assert [result.index for result in short.results] == order[:2]


def test_cohere_v1(locked: Running, sample: Sample, pictures: list[str], order: list[int]) -> None:
    client = cohere.Client(KEY, base_url=locked.url)
    documents: list[Any] = [{"text": uri} for uri in pictures]
    answer = client.rerank(model="lad", query=sample.caption, documents=documents, top_n=3, return_documents=True)
    assert [result.index for result in answer.results] == order[:3]
    assert answer.results[0].document is not None
    assert answer.results[0].document.text == pictures[order[0]]


def test_cohere_is_told_what_is_wrong(locked: Running, pictures: list[str]) -> None:
    client = cohere.ClientV2(KEY, base_url=locked.url)
    with pytest.raises(ApiError) as caught:
        client.rerank(model="lad", query="a red circle", documents=[pictures[0], "a text"])
    assert caught.value.status_code == 400
    assert caught.value.body["document"] == 1
    with pytest.raises(ApiError) as caught:
        cohere.ClientV2("wrong", base_url=locked.url).rerank(model="lad", query="x", documents=pictures)
    assert caught.value.status_code == 401


@pytest.mark.parametrize(
    ("provider", "base"),
    [("cohere", "/v2/rerank"), ("cohere", "/v1/rerank"), ("cohere", ""), ("jina_ai", ""), ("hosted_vllm", "")],
)
def test_litellm(
    locked: Running, sample: Sample, pictures: list[str], order: list[int], provider: str, base: str
) -> None:
    import litellm

    answer = litellm.rerank(
        model=f"{provider}/lad",
        query=sample.caption,
        documents=list(pictures),
        top_n=3,
        api_base=locked.url + base,
        api_key=KEY,
    )
    assert [result["index"] for result in answer.results] == order[:3]
    assert answer.results[0]["relevance_score"] > 0.5


def test_litellm_with_jina_documents(locked: Running, sample: Sample, pictures: list[str], order: list[int]) -> None:
    import litellm

    answer = litellm.rerank(
        model="jina_ai/lad",
        query=sample.caption,
        documents=[{"image": uri.partition(",")[2]} for uri in pictures],
        return_documents=True,
        api_base=locked.url,
        api_key=KEY,
    )
    assert [result["index"] for result in answer.results] == order
    assert answer.results[0]["document"]["text"] == ""  # it lets go of all but the text, and fails without one


def test_litellm_is_told_what_is_wrong(locked: Running, pictures: list[str]) -> None:
    import litellm

    with pytest.raises(Exception, match="document 1: Is text"):
        litellm.rerank(
            model="cohere/lad", query="x", documents=[pictures[0], "a text"], api_base=locked.url, api_key=KEY
        )
