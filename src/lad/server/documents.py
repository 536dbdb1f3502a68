"""A document of a request -> where its image is.

A document is an image or it is refused: a text is never scored in an image's place.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit
from urllib.request import url2pathname

from lad.server.refusal import RefusalError, bad_image, forbidden_source

_SPACE = re.compile(r"\s+")
_SHAPES = (
    'Send a data URI, {"image": a data URI or base64}, or {"content": [{"type": "image_url", "image_url": {"url": '
    "a data URI}}]}."
)


class Place(Enum):
    """Where a document's image is."""

    DATA_URI = "data URI"
    BASE64 = "base64"
    REMOTE = "remote"
    FILE = "file"


@dataclass(frozen=True)
class Document:
    """One image of a request.

    Attributes:
        index: its place in the request.
        place: where the image is.
        value: the data URI, base64 text or address.
        echo: what an answer returns as ``document``: the document as sent, with an empty text where it has none,
            since the clients of Cohere and LiteLLM insist on one.
    """

    index: int
    place: Place
    value: str
    echo: dict[str, Any]


def parse_documents(documents: Any) -> list[Document]:
    """Documents in any of the shapes that rerank clients send.

    Args:
        documents: a list of strings, ``{"text"}``, ``{"image"}`` and ``{"content": [part]}``; or, as vLLM takes them,
            one ``{"content": [part, ...]}`` whose parts are a document each.

    Raises:
        RefusalError: not of that shape, or a document that is no image; its index is named.
    """
    if isinstance(documents, dict) and isinstance(documents.get("content"), list):
        documents = [{"content": [part]} for part in documents["content"]]
    if not isinstance(documents, list):
        raise RefusalError(f"'documents' must be a list, not {_kind(documents)}.", code="invalid_documents")
    if not documents:
        raise RefusalError("'documents' is empty.", code="invalid_documents", hint="Send at least one image.")
    return [_parse(document, index) for index, document in enumerate(documents)]


def _parse(document: Any, index: int) -> Document:
    if isinstance(document, str):
        return _from_text(document, index)
    if not isinstance(document, dict):
        raise RefusalError(f"Is {_kind(document)}.", code="invalid_documents", document=index, hint=_SHAPES)
    given = [key for key in ("image", "content", "text") if document.get(key) is not None]
    if not given:
        raise RefusalError("Has neither 'image' nor 'content'.", code="invalid_documents", document=index, hint=_SHAPES)
    if len(given) > 1:
        raise RefusalError(
            f"Has both {given[0]!r} and {given[1]!r}; a document is one image.",
            code="invalid_documents",
            document=index,
            hint=_SHAPES,
        )
    value = document[given[0]]
    if given[0] == "content":
        return _from_content(value, index)
    if not isinstance(value, str):
        raise RefusalError(
            f"Its {given[0]!r} is {_kind(value)}, not a string.", code="invalid_documents", document=index, hint=_SHAPES
        )
    if given[0] == "text":
        return _from_text(value, index)
    return _from_image(value, index, {"text": "", "image": value})


def _from_content(parts: Any, index: int) -> Document:
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise RefusalError(
            "Its 'content' is not a list of parts.", code="invalid_documents", document=index, hint=_SHAPES
        )
    if any(part.get("type") == "text" or "text" in part for part in parts):
        raise _text(index)
    if len(parts) != 1:
        raise RefusalError(
            f"Has {len(parts)} parts; a document is one image.", code="invalid_documents", document=index, hint=_SHAPES
        )
    address = parts[0].get("image_url")
    url = address.get("url") if isinstance(address, dict) else address
    if not isinstance(url, str):
        raise RefusalError("Its part has no 'image_url'.", code="invalid_documents", document=index, hint=_SHAPES)
    return _from_image(url, index, {"text": "", "content": [{"type": "image_url", "image_url": {"url": url}}]})


def _from_text(text: str, index: int) -> Document:
    place = _place(text)
    if place is Place.BASE64:  # nothing marks it as an image, so it is a text like any other
        raise _text(index)
    return Document(index, place, text.strip(), {"text": text})


def _from_image(text: str, index: int, echo: dict[str, Any]) -> Document:
    return Document(index, _place(text), text.strip(), echo)


def _place(text: str) -> Place:
    start = text.lstrip()[:8].lower()
    for prefix, place in (
        ("data:", Place.DATA_URI),
        ("http://", Place.REMOTE),
        ("https://", Place.REMOTE),
        ("file:", Place.FILE),
    ):
        if start.startswith(prefix):
            return place
    return Place.BASE64


def _text(index: int) -> RefusalError:
    return RefusalError(
        "Is text; this model ranks images, and a text is never scored.",
        code="text_document",
        document=index,
        hint=_SHAPES,
    )


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def embedded_bytes(document: Document, limit: int) -> bytes:
    """The image file inside a data URI or a base64 text.

    Padding may be missing; white space and the URL-safe alphabet are allowed.

    Raises:
        RefusalError: it is not valid, not marked as an image, empty, or larger than ``limit`` bytes.
    """
    payload, is_base64 = document.value, True
    if document.place is Place.DATA_URI:
        head, comma, payload = payload[len("data:") :].partition(",")
        if not comma:
            raise bad_image("Is a data URI without a comma.", document.index)
        media, *parameters = (part.strip().lower() for part in head.split(";"))
        # the decoder goes by content; what says that it is something else is refused all the same
        if media not in ("", "application/octet-stream") and not media.startswith("image/"):
            raise bad_image(f"Is a data URI of type {media[:80]!r}, not of an image.", document.index)
        is_base64 = "base64" in parameters
    content = _from_base64(payload, document.index, limit) if is_base64 else unquote_to_bytes(payload)
    if not content:
        raise bad_image("Is empty.", document.index)
    _check_size(len(content), document.index, limit)
    return content


def _from_base64(text: str, index: int, limit: int) -> bytes:
    if "%" in text:
        text = unquote_to_bytes(text).decode("latin-1")
    text = _SPACE.sub("", text).rstrip("=").translate(str.maketrans("-_", "+/"))
    _check_size(len(text) * 3 // 4, index, limit)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_image("Is not valid base64.", index, hint=_SHAPES) from error


def file_bytes(document: Document, folder: Path | None, limit: int) -> bytes:
    """The content of a ``file:`` address inside the allowed folder.

    Raises:
        RefusalError: no folder is allowed, the file is not in it, or it is too large. Whether a file outside exists
            is not told.
    """
    if folder is None:
        raise forbidden_source(
            "Is a local file; this server reads none.", document.index, hint="Send the image itself, as a data URI."
        )
    parts = urlsplit(document.value)
    root = folder.resolve()
    try:
        path = Path(url2pathname(parts.path)).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise forbidden_source("Is not in the folder that this server reads.", document.index) from error
    if parts.netloc not in ("", "localhost") or not path.is_relative_to(root):
        raise forbidden_source("Is not in the folder that this server reads.", document.index)
    try:
        # opened without waiting, so that a pipe in the folder cannot hold a thread
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise bad_image("Is not a regular file.", document.index)
            content = file.read(limit + 1)
    except OSError as error:
        raise bad_image("Is a file that cannot be read.", document.index) from error
    _check_size(len(content), document.index, limit)
    return content


def _check_size(size: int, index: int, limit: int) -> None:
    if size > limit:
        raise bad_image(f"Has more than the {limit:,} bytes allowed for an image.", index, hint="Make it smaller.")
