"""How the service says no: a status, a code for programs, a sentence for people, and the document it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lad.errors import LadError


class RefusalError(LadError):
    """A request that is not answered.

    Args:
        what: what is wrong, in one sentence.
        status: the HTTP status, 4xx.
        code: short name of the kind of refusal.
        document: index of the document it concerns.
        hint: what to do about it.
        headers: further response headers.
    """

    def __init__(
        self,
        what: str,
        *,
        status: int = 400,
        code: str = "invalid_request",
        document: int | None = None,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(what, where=None if document is None else f"document {document}", hint=hint)
        self.status = status
        self.code = code
        self.document = document
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON body of the answer; ``document`` is left out where none is meant."""
        found: dict[str, Any] = {"message": str(self), "code": self.code}
        if self.document is not None:
            found["document"] = self.document
        return found


def bad_image(what: str, document: int, hint: str | None = None) -> RefusalError:
    """A document that is meant to be an image and cannot be used as one."""
    return RefusalError(what, code="bad_image", document=document, hint=hint)


def forbidden_source(what: str, document: int, hint: str | None = None) -> RefusalError:
    """A document that names a place which images may not come from."""
    return RefusalError(what, code="forbidden_source", document=document, hint=hint)
