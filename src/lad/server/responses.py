"""What the service answers; the classes are its OpenAPI description."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from lad.ranker import Ranking
    from lad.server.requests import RerankQuery


class RerankResult(BaseModel):
    """One document's place."""

    index: int = Field(description="which of the documents sent")
    relevance_score: float = Field(
        ge=0,
        le=1,
        description="Probability that this document, of those sent, is the one described; position bias taken off. "
        "Listwise: over the documents of a request the scores add up to 1, so they do not compare between requests.",
    )
    document: dict[str, Any] | None = Field(
        None, description="the document as sent, with a text even if empty; left out unless asked for"
    )


class RerankMeta(BaseModel):
    """How the answer came about."""

    method: str = Field(description="the decision rule")
    vanilla_pick: int = Field(description="index of the document that the model names by itself, bias included")
    vanilla: list[float] = Field(description="the model's own probabilities, by index")
    attention: list[float] = Field(description="what the model's attention alone says, by index; adds up to 1")
    passes: int = Field(description="forward passes; 0 where there is but one document")
    calibration: str | None = Field(description="content hash of the calibration; left out where none was needed")


class RerankResponse(BaseModel):
    """The documents, best first; of equals, the lower index first."""

    id: str
    model: str
    results: list[RerankResult]
    meta: RerankMeta


class ErrorResponse(BaseModel):
    """Why a request was not answered."""

    message: str = Field(description="what is wrong and what to do about it")
    code: str = Field(description="short name of the kind of error")
    document: int | None = Field(None, description="index of the document it concerns; left out where none is meant")


class ServedModel(BaseModel):
    """One name of the model."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "lad"
    candidates: list[int] = Field(description="numbers of documents that can be ranked, besides 1")


class ModelList(BaseModel):
    """The names that requests may use."""

    object: str = "list"
    data: list[ServedModel]


class Status(BaseModel):
    """Whether the service is up."""

    status: str


def rerank_response(
    query: RerankQuery, ranking: Ranking | None, *, model: str, method: str, calibration: str | None
) -> dict[str, Any]:
    """The answer to a query; ``ranking`` is None for a single document, which scores 1 unseen by the model."""
    if ranking is None:
        scores, vanilla, attention, pick, passes = [(0, 1.0)], [1.0], [1.0], 0, 0
    else:
        scores = [(candidate.index, candidate.probability) for candidate in ranking.candidates]
        by_index = sorted(ranking.candidates, key=lambda candidate: candidate.index)
        vanilla = [candidate.vanilla_probability for candidate in by_index]
        attention = [candidate.attention for candidate in by_index]
        pick, passes, method = ranking.vanilla_pick, ranking.passes, ranking.method
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": min(1.0, max(0.0, score))} for index, score in scores[: query.top_n]
    ]
    if query.return_documents:
        for result in results:
            result["document"] = query.documents[result["index"]].echo
    meta: dict[str, Any] = {
        "method": method,
        "vanilla_pick": pick,
        "vanilla": vanilla,
        "attention": attention,
        "passes": passes,
    }
    if calibration is not None:
        meta["calibration"] = calibration
    return {"id": uuid.uuid4().hex, "model": model, "results": results, "meta": meta}
