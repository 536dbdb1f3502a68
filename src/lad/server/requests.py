"""A request body -> a query, its documents and what to answer; and the same as an OpenAPI schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lad.server.documents import Document, parse_documents
from lad.server.refusal import RefusalError
from lad.server.settings import RequestLimits


@dataclass(frozen=True)
class RerankQuery:
    """One request, understood.

    Attributes:
        query: the caption.
        documents: the images, in the order of the request.
        top_n: how many results to return, 1 to the number of documents.
        return_documents: whether results carry their document.
    """

    query: str
    documents: list[Document]
    top_n: int
    return_documents: bool


def parse_request(body: bytes, names: tuple[str, ...], sizes: tuple[int, ...], limits: RequestLimits) -> RerankQuery:
    """Understand a request in the shape of Cohere, Jina or vLLM. Fields that are not known are ignored, as there.

    Args:
        body: the JSON document.
        names: names the model answers to.
        sizes: numbers of candidates that can be ranked, ascending.
        limits: what the request may measure.

    Raises:
        RefusalError: what is wrong with it, with the index of the document that it concerns.
    """
    data = _json(body)
    if not isinstance(data, dict):
        raise RefusalError("The body must be a JSON object.")
    _check_model(data.get("model"), names)
    query = _query(data.get("query"), limits.query_characters)
    _check_count(data.get("documents"), sizes)
    documents = parse_documents(data.get("documents"))
    return_documents = data.get("return_documents")
    if return_documents is not None and not isinstance(return_documents, bool):
        raise RefusalError("'return_documents' must be true or false.")
    return RerankQuery(query, documents, _top_n(data.get("top_n"), len(documents)), bool(return_documents))


def _json(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError as error:
        raise RefusalError("The body is nested too deeply.", code="invalid_json") from error
    except ValueError as error:  # of the decoder, of JSON, or of a number with thousands of digits
        raise RefusalError("The body is not valid JSON in UTF-8.", code="invalid_json") from error


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _check_model(model: Any, names: tuple[str, ...]) -> None:
    if model is None or model in names:
        return
    if not isinstance(model, str):
        raise RefusalError("'model' must be a string.")
    raise RefusalError(
        "This server does not serve the model asked for.",
        status=404,
        code="model_not_found",
        hint=f"It serves {', '.join(map(repr, names))}.",
    )


def _query(query: Any, limit: int) -> str:
    if isinstance(query, dict):
        query = _joined(query["content"]) if "content" in query else query.get("text")
    if not isinstance(query, str):
        raise RefusalError("'query' must be a text.", code="invalid_query")
    if len(query) > limit:
        raise RefusalError(f"The query has {len(query):,} characters; {limit:,} are allowed.", code="invalid_query")
    if not query.strip():
        raise RefusalError("The query is empty.", code="invalid_query", hint="Say what the wanted image shows.")
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise RefusalError("The query contains half a surrogate pair.", code="invalid_query") from error
    return query


def _joined(parts: Any) -> str:
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise RefusalError("The query's 'content' must be a list of parts.", code="invalid_query")
    texts = [part.get("text") for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise RefusalError("The query must be text; images are what is ranked.", code="invalid_query")
    return "\n".join(map(str, texts))


def _check_count(documents: Any, sizes: tuple[int, ...]) -> None:
    """Before the documents are looked at: ten thousand of them are refused as one thing."""
    if isinstance(documents, dict):
        documents = documents.get("content")
    if not isinstance(documents, list) or len(documents) in (0, 1, *sizes):
        return
    count, most = len(documents), sizes[-1]
    if count > most:
        what = f"There are {count:,} documents; this server ranks at most {most} at a time."
    else:
        what = f"There are {count} documents; this server ranks 1, {', '.join(map(str, sizes))} at a time."
    raise RefusalError(
        what,
        code="too_many_documents" if count > most else "uncalibrated_size",
        hint=f"The model is calibrated for {', '.join(map(str, sizes))} candidates.",
    )


def _top_n(top_n: Any, count: int) -> int:
    if top_n is None:
        return count
    if isinstance(top_n, float) and top_n.is_integer():
        top_n = int(top_n)
    if isinstance(top_n, bool) or not isinstance(top_n, int) or top_n < 0:
        raise RefusalError("'top_n' must be a whole number, 0 (for all) or more.")
    return min(top_n, count) or count


_PART = {
    "type": "object",
    "required": ["type", "image_url"],
    "properties": {
        "type": {"const": "image_url"},
        "image_url": {"type": "object", "required": ["url"], "properties": {"url": {"type": "string"}}},
    },
}
_TEXT_PART = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
}


def request_schema(names: tuple[str, ...], sizes: tuple[int, ...], limits: RequestLimits) -> dict[str, Any]:
    """JSON schema of a request, for the OpenAPI description."""
    content = {"type": "object", "required": ["content"], "properties": {"content": {"type": "array", "items": _PART}}}
    document = {
        "oneOf": [
            {"type": "string", "description": "a data URI, or an address on an allowed host"},
            {
                "type": "object",
                "required": ["image"],
                "properties": {"image": {"type": "string", "description": "base64, a data URI, or an allowed address"}},
            },
            {
                "type": "object",
                "required": ["text"],
                "properties": {"text": {"type": "string", "description": "as a string document: never text to score"}},
            },
            content,
        ]
    }
    text_content = {
        "type": "object",
        "required": ["content"],
        "properties": {"content": {"type": "array", "items": _TEXT_PART, "minItems": 1}},
    }
    return {
        "type": "object",
        "required": ["query", "documents"],
        "properties": {
            "model": {"type": ["string", "null"], "description": f"left out, or one of: {', '.join(names)}"},
            "query": {
                "description": "what the wanted image shows",
                "oneOf": [{"type": "string", "minLength": 1, "maxLength": limits.query_characters}, text_content],
            },
            "documents": {
                "description": f"1, {', '.join(map(str, sizes))} images",
                "oneOf": [{"type": "array", "minItems": 1, "maxItems": sizes[-1], "items": document}, content],
            },
            "top_n": {
                "type": ["integer", "null"],
                "minimum": 0,
                "description": "results to return; 0, null or more than there are documents means all",
            },
            "return_documents": {"type": ["boolean", "null"], "default": False},
        },
    }
