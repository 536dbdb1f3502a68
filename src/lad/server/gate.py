"""Who may come in, how many at a time, and how much they may bring."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from lad.server.refusal import RefusalError
from lad.server.settings import RequestLimits


class KeyCheck:
    """The bearer keys that open the service; without any it is open.

    Args:
        keys: the keys.
    """

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = [key.encode() for key in keys]

    def __call__(self, request: Request) -> None:
        """Compare a request's key with every key, in a time that does not tell how much of it is right.

        Raises:
            RefusalError: 401, no key or a wrong one.
        """
        if not self._keys:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        offered = given.strip().encode("latin-1", "replace")
        matches = [hmac.compare_digest(offered, key) for key in self._keys]
        if scheme.lower() != "bearer" or not any(matches):
            raise RefusalError(
                "The API key is missing or wrong.",
                status=401,
                code="unauthorized",
                hint="Send it as 'Authorization: Bearer KEY'.",
                headers={"WWW-Authenticate": "Bearer"},
            )


class Places:
    """A fixed number of places; who finds none is told to come again, at once and before a byte is read.

    Args:
        number: how many there are.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.taken = 0

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold a place for the length of a ``with`` block.

        Raises:
            RefusalError: 429, all are taken.
        """
        if self.taken >= self.number:
            raise RefusalError(
                f"All {self.number} places are taken.",
                status=429,
                code="busy",
                hint="Try again in a second.",
                headers={"Retry-After": "1"},
            )
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


def check_headers(request: Request, limits: RequestLimits) -> None:
    """Refuse by its headers what would be refused once read.

    Raises:
        RefusalError: 415, not uncompressed JSON; 413, a body that says that it is too large.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # also what keeps web pages from posting here behind their reader's back: JSON needs a pre-flight, which fails
        raise RefusalError(
            "The body must be JSON.",
            status=415,
            code="unsupported_media_type",
            hint="Send it with 'Content-Type: application/json'.",
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RefusalError("The body must not be compressed.", status=415, code="unsupported_media_type")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limits.body_bytes:
        raise _too_large(limits)


async def read_body(request: Request, limits: RequestLimits) -> bytes:
    """The whole body, which must arrive in time.

    Raises:
        RefusalError: 413, too large; 408, too slow.
        ClientDisconnect: the client left.
    """
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limits.body_bytes:  # of a body that did not say how long it is: it may never end
                    raise _too_large(limits, {"Connection": "close"})
                parts.append(chunk)
    except TimeoutError as error:
        raise RefusalError(
            f"The body did not arrive within {limits.body_seconds:g} seconds.",
            status=408,
            code="slow_body",
            headers={"Connection": "close"},
        ) from error
    return b"".join(parts)


def _too_large(limits: RequestLimits, headers: dict[str, str] | None = None) -> RefusalError:
    return RefusalError(
        f"The body has more than the {limits.body_bytes:,} bytes allowed.",
        status=413,
        code="body_too_large",
        hint="Make the images smaller.",
        headers=headers,
    )


async def until_left(request: Request) -> None:
    """Return when the client of a request whose body has been read is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


__all__ = ["ClientDisconnect", "KeyCheck", "Places", "check_headers", "read_body", "until_left"]
