"""A server on the loopback, in a thread of this process, and what tests send it."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import httpx
from PIL import Image

from lad.ranker import Ranker
from lad.server.app import create_app
from lad.server.run import make_server, open_socket
from lad.server.service import Service
from lad.server.settings import ServiceSettings


@dataclass(frozen=True)
class Running:
    """A server that answers."""

    url: str
    service: Service
    app: Any

    def post(self, body: Any, path: str = "/v2/rerank", **kwargs: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=60, **kwargs)

    def rerank(self, documents: Any, query: str = "a red circle", **fields: Any) -> httpx.Response:
        return self.post({"query": query, "documents": documents, **fields})


@contextmanager
def running(ranker: Ranker, settings: ServiceSettings | None = None) -> Iterator[Running]:
    settings = settings or ServiceSettings()
    app = create_app(ranker, settings)
    server = make_server(app, settings)
    listening = open_socket("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        wait_until(lambda: app.state.service.ready)
        yield Running(url, app.state.service, app)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"


def wait_until(condition: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The image as a file of this kind."""
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def data_uri(image: Image.Image | bytes, media: str = "image/png") -> str:
    content = image if isinstance(image, bytes) else encoded(image)
    return f"data:{media};base64,{base64_of(content)}"
