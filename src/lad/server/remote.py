"""Fetching an image from an allowed host, so that it cannot be turned against the server's own network.

The host must be on the list; its addresses are looked up once, all of them must be allowed, and the connection goes
to the very address that was checked, so a second look-up cannot give another one. Each redirect starts anew.
No proxy, no cookies, no credentials, no compression; the time and the size are limited as a whole.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from typing import Any
from urllib.parse import urljoin

from lad.server.addresses import ForbiddenAddressError, HostList, Target, parse_address, resolve
from lad.server.documents import Document
from lad.server.refusal import RefusalError, bad_image, forbidden_source
from lad.server.settings import Sources

_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = {"Accept": "image/*", "Accept-Encoding": "identity", "User-Agent": "lad-vlm", "Connection": "close"}
_CHUNK = 2**16


class Fetcher:
    """Fetches images for documents that are addresses.

    Args:
        sources: what is allowed.
        limit: most bytes of one image.
        context: how https servers are verified; the system's authorities if left out.

    Raises:
        LadError: an allowed host is not understood.
    """

    def __init__(self, sources: Sources, limit: int, context: ssl.SSLContext | None = None) -> None:
        self._sources = sources
        self._limit = limit
        self._hosts = HostList(sources.hosts)
        self._context = context or ssl.create_default_context()

    def check(self, document: Document) -> Target:
        """Refuse an address by its text alone, before anything is looked up.

        Raises:
            RefusalError: the address is not valid or its host not on the list.
        """
        if not self._hosts:
            raise forbidden_source(
                "Is an address; this server fetches no images.",
                document.index,
                hint="Send the image itself, as a data URI.",
            )
        return self._target(document.value, document.index)

    def _target(self, address: str, index: int) -> Target:
        try:
            target = parse_address(address)
        except ForbiddenAddressError as error:
            raise forbidden_source(str(error), index) from error
        if not self._hosts.allows(target):
            raise forbidden_source("Is on a host (or port) that this server does not fetch from.", index)
        return target

    def fetch(self, document: Document) -> bytes:
        """The image file at an address. Blocks for at most the allowed time, name look-up not counted.

        Raises:
            RefusalError: the address, or one that it redirects to, is not allowed; it cannot be fetched; or too large.
        """
        address, index = document.value, document.index
        watch = _Watch(self._sources.fetch_seconds)
        try:
            for _ in range(self._sources.redirects + 1):
                target = self._target(address, index)
                addresses = self._addresses(target, index)
                content, location = self._get(target, addresses, index, watch)
                if location is None:
                    return content
                address = urljoin(address, location)
        finally:
            watch.stop()
        raise bad_image(f"Its address redirects more than {self._sources.redirects} times.", index)

    def _addresses(self, target: Target, index: int) -> list[str]:
        try:
            return resolve(target, self._sources.networks)
        except ForbiddenAddressError as error:
            raise forbidden_source(str(error), index) from error

    def _get(self, target: Target, addresses: list[str], index: int, watch: _Watch) -> tuple[bytes, str | None]:
        """The content, or where the host redirects to."""
        connection = _PinnedConnection(target, addresses, self._context, watch)
        try:
            connection.request("GET", target.path, headers={"Host": target.authority, **_HEADERS})
            response = connection.getresponse()
            if response.status in _REDIRECTS and (location := response.getheader("Location")):
                return b"", location
            if response.status != 200:
                raise bad_image(f"Its host answered with status {response.status}.", index)
            if response.getheader("Content-Encoding", "identity").lower() != "identity":
                raise bad_image("Its host sent it compressed, which was not asked for.", index)
            content = self._read(response, index)
            if watch.expired:
                raise TimeoutError
            return content, None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if watch.expired:
                raise bad_image(
                    f"Its host did not send it within {self._sources.fetch_seconds:g} seconds.", index
                ) from error
            raise bad_image("It could not be fetched from its host.", index) from error
        finally:
            connection.close()

    def _read(self, response: http.client.HTTPResponse, index: int) -> bytes:
        parts, size = [], 0
        while chunk := response.read1(_CHUNK):
            size += len(chunk)
            if size > self._limit:
                raise self._too_large(index)
            parts.append(chunk)
        # read1 takes a connection that ends early for the end of the content
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return b"".join(parts)

    def _too_large(self, index: int) -> RefusalError:
        return bad_image(
            f"Has more than the {self._limit:,} bytes allowed for an image.", index, hint="Make it smaller."
        )


class _Watch:
    """Ends a connection when the time for all of a fetch is over, however slowly its bytes drip in."""

    def __init__(self, seconds: float) -> None:
        self.expired = False
        self.seconds = seconds
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def over(self, connected: socket.socket) -> None:
        """Watch over this socket from now on."""
        with self._lock:
            self._socket = connected
            if self.expired:
                self._cut()

    def stop(self) -> None:
        self._timer.cancel()

    def _expire(self) -> None:
        with self._lock:
            self.expired = True
            self._cut()

    def _cut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # closed already
                # not the method of an SSL socket, which would take its state from under whoever reads it
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class _PinnedConnection(http.client.HTTPConnection):
    """A connection to addresses that were checked, under the name that was asked for."""

    def __init__(self, target: Target, addresses: list[str], context: ssl.SSLContext, watch: _Watch) -> None:
        super().__init__(target.host, target.port, timeout=watch.seconds)
        self._target = target
        self._addresses = addresses
        self._ssl = context
        self._watch = watch

    def connect(self) -> None:
        failure: OSError = OSError("no address")
        for address in self._addresses:
            if self._watch.expired:
                raise TimeoutError
            try:
                connected: Any = socket.create_connection((address, self._target.port), self._watch.seconds)
            except OSError as error:
                failure = error
                continue
            self.sock = connected
            self._watch.over(connected)
            if self._target.scheme == "https":
                secured = self._ssl.wrap_socket(
                    connected, server_hostname=self._target.host, do_handshake_on_connect=False
                )
                self.sock = secured
                self._watch.over(secured)
                secured.do_handshake()
            return
        raise failure
