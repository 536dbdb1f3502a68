"""Run the service until it is told to stop."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from lad.errors import LadError
from lad.server.settings import ServiceSettings

_KEEP_ALIVE_SECONDS = 15


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server at this host name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 for any that is free.

    Raises:
        LadError: the address is not this machine's, or the port is taken.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=512)
    except (OSError, OverflowError, UnicodeError) as error:
        raise LadError(f"The server cannot listen there ({error}).", where=f"{host}:{port}") from error
    # Connections inherit it. Without it the body of an answer waits, on a connection that is kept, until the client has
    # acknowledged the head, which it puts off for 40 ms; asyncio sets it only for sockets that name their protocol.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def make_server(app: Any, settings: ServiceSettings) -> uvicorn.Server:
    """A server that finishes on SIGTERM or SIGINT what it has taken, and takes no more."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="on",
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
        )
    )


def serve(app: Any, listening: socket.socket, settings: ServiceSettings, announce: Callable[[str], None]) -> None:
    """Serve until a signal comes. ``announce`` is told the address once connections are taken."""
    host, port = listening.getsockname()[:2]
    announce(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    make_server(app, settings).run(sockets=[listening])
