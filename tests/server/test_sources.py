"""Images from allowed hosts and folders, and all the ways in which they must not be had."""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lad.ranker import Ranker
from lad.server.documents import Document, Place
from lad.server.refusal import RefusalError
from lad.server.remote import Fetcher
from lad.server.settings import RequestLimits, ServiceSettings, Sources, parse_networks
from tests.server.corpus import picture
from tests.server.running import data_uri, encoded, running

# Two addresses of this machine: one stands for a host in an allowed network, the other for the loopback.
HOST, LOOPBACK = "127.0.0.5", "127.0.0.1"
NETWORK = parse_networks([f"{HOST}/32"])
PNG = encoded(picture())


class _Handler(BaseHTTPRequestHandler):
    seen: list[tuple[str, str]]
    answers: dict[str, Any]

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers["Host"]))
        answer = self.answers.get(self.path, 404)
        if callable(answer):
            answer(self)
        elif isinstance(answer, int):
            self.send_error(answer)
        elif isinstance(answer, str):
            self.send_response(302)
            self.send_header("Location", answer)
            self.end_headers()
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


class Site:
    """An HTTP server that answers as told, and remembers who asked."""

    def __init__(self, address: str) -> None:
        self.seen: list[tuple[str, str]] = []
        self.answers: dict[str, Any] = {"/a.png": PNG}
        handler = type("Handler", (_Handler,), {"seen": self.seen, "answers": self.answers})
        self.server = ThreadingHTTPServer((address, 0), handler)
        self.server.daemon_threads = True
        self.authority = f"{address}:{self.server.server_port}"
        self.url = f"http://{self.authority}"


@contextmanager
def site(address: str) -> Iterator[Site]:
    found = Site(address)
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        thread.join()
        found.server.server_close()


@pytest.fixture
def host() -> Iterator[Site]:
    with site(HOST) as found:
        yield found


@pytest.fixture
def inside() -> Iterator[Site]:
    """A server on the loopback that nobody outside may reach."""
    with site(LOOPBACK) as found:
        yield found


def fetch(address: str, *hosts: str, limit: int = 10**6, **options: Any) -> bytes:
    options.setdefault("networks", NETWORK)
    fetcher = Fetcher(Sources(hosts=hosts, **options), limit)
    document = Document(2, Place.REMOTE, address, {})
    fetcher.check(document)
    return fetcher.fetch(document)


def refused(address: str, *hosts: str, code: str = "forbidden_source", **options: Any) -> str:
    with pytest.raises(RefusalError) as caught:
        fetch(address, *hosts, **options)
    assert caught.value.status == 400
    assert caught.value.document == 2
    assert caught.value.code == code
    return str(caught.value)


def test_an_allowed_host_is_fetched_from(host: Site) -> None:
    assert fetch(f"{host.url}/a.png", host.authority) == PNG
    assert host.seen == [("/a.png", host.authority)]


def test_without_a_list_nothing_is_looked_up(host: Site) -> None:
    assert "fetches no images" in refused(f"{host.url}/a.png")
    assert host.seen == []


def test_a_host_that_is_not_on_the_list(host: Site) -> None:
    refused(f"{host.url}/a.png", "images.example.com")
    refused(f"{host.url}/a.png", HOST)  # of another port
    assert host.seen == []


def test_an_allowed_host_in_no_allowed_network(host: Site) -> None:
    assert "not public" in refused(f"{host.url}/a.png", host.authority, networks=())
    assert host.seen == []


def test_a_name_that_resolves_to_the_loopback(inside: Site) -> None:
    name = inside.authority.replace(LOOPBACK, "localhost")
    assert "not public" in refused(f"http://{name}/a.png", name)
    assert inside.seen == []


def test_a_redirect_on_the_same_host_is_followed(host: Site) -> None:
    host.answers["/old"] = "/older"
    host.answers["/older"] = f"{host.url}/a.png"
    assert fetch(f"{host.url}/old", host.authority) == PNG


@pytest.mark.parametrize("allowed", [False, True], ids=["not on the list", "on the list"])
def test_a_redirect_to_the_loopback_is_refused(host: Site, inside: Site, allowed: bool) -> None:
    host.answers["/r"] = f"{inside.url}/a.png"
    refused(f"{host.url}/r", host.authority, *([inside.authority] if allowed else []))
    assert [path for path, _ in host.seen] == ["/r"]
    assert inside.seen == []


def test_a_redirect_to_a_name_of_the_loopback_is_refused(host: Site, inside: Site) -> None:
    name = inside.authority.replace(LOOPBACK, "localhost")
    host.answers["/r"] = f"http://{name}/a.png"
    refused(f"{host.url}/r", host.authority, name)
    assert inside.seen == []


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.5/a", "http://u@127.0.0.5/a", "data:,x"])
def test_a_redirect_to_something_else_is_refused(host: Site, location: str) -> None:
    host.answers["/r"] = location
    refused(f"{host.url}/r", host.authority)


def test_redirects_without_end(host: Site) -> None:
    host.answers["/r"] = "/r"
    assert "more than 3 times" in refused(f"{host.url}/r", host.authority, code="bad_image")
    assert len(host.seen) == 4


def test_the_connection_goes_to_the_address_that_was_checked(
    host: Site, inside: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that gives another answer the second time (DNS rebinding) is not asked a second time."""
    import socket

    port = int(host.authority.rpartition(":")[2])
    answers = iter([HOST])
    real = socket.getaddrinfo

    def rebinding(name: Any, *args: Any, **kwargs: Any) -> Any:
        if name == "images.example":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]
        return real(name, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    assert fetch(f"http://images.example:{port}/a.png", f"images.example:{port}") == PNG
    assert host.seen == [("/a.png", f"images.example:{port}")]


def test_an_image_that_is_too_large(host: Site) -> None:
    host.answers["/big"] = b"x" * 5000
    assert "4,000 bytes" in refused(f"{host.url}/big", host.authority, code="bad_image", limit=4000)


def test_an_image_without_an_end(host: Site) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(OSError):  # until the other side has had enough
            while True:
                handler.wfile.write(b"x" * 65536)

    host.answers["/endless"] = endless
    assert "bytes" in refused(f"{host.url}/endless", host.authority, code="bad_image")


def drip(handler: BaseHTTPRequestHandler, start: bytes) -> None:
    handler.wfile.write(start)
    try:
        for _ in range(100):
            time.sleep(0.05)
            handler.wfile.write(b"x")
            handler.wfile.flush()
    except OSError:
        pass


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["head", "body"])
def test_a_host_that_drips(host: Site, start: bytes) -> None:
    host.answers["/slow"] = lambda handler: drip(handler, start)
    begun = time.monotonic()
    message = refused(f"{host.url}/slow", host.authority, code="bad_image", fetch_seconds=0.4)
    assert time.monotonic() - begun < 3
    assert "0.4 seconds" in message


def test_a_host_that_answers_otherwise(host: Site) -> None:
    assert "status 404" in refused(f"{host.url}/none", host.authority, code="bad_image")

    def garbage(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"SSH-2.0-x\r\n")

    def short(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfew")

    def squeezed(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx")

    for name, answer in {"/garbage": garbage, "/short": short, "/squeezed": squeezed}.items():
        host.answers[name] = answer
        refused(f"{host.url}{name}", host.authority, code="bad_image")


def test_a_port_where_nobody_listens() -> None:
    with site(HOST) as gone:
        pass
    assert "could not be fetched" in refused(f"{gone.url}/a.png", gone.authority, code="bad_image")


def test_a_host_that_cannot_prove_its_name(host: Site) -> None:
    address = f"https://{host.authority}/a.png"
    assert "could not be fetched" in refused(address, host.authority, code="bad_image")
    context = Fetcher(Sources(), 1)._context
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


# through the service


def settings_for(*hosts: str, folder: Path | None = None) -> ServiceSettings:
    return ServiceSettings(sources=Sources(hosts, NETWORK, folder), limits=RequestLimits(image_bytes=50_000))


def test_the_service_ranks_what_it_fetches(ranker: Ranker, host: Site, inside: Site) -> None:
    host.answers["/r"] = f"{inside.url}/a.png"
    host.answers["/text"] = b"no image"
    here = f"{host.url}/a.png"
    with running(ranker, settings_for(host.authority)) as server:
        shapes = [
            data_uri(PNG),
            here,
            {"image": here},
            {"content": [{"type": "image_url", "image_url": {"url": here}}]},
        ]
        scores = [result["relevance_score"] for result in server.rerank(shapes).json()["results"]]
        assert len(scores) == 4
        assert scores == pytest.approx([0.25] * 4)
        for path, code in {"/r": "forbidden_source", "/text": "bad_image", "/none": "bad_image"}.items():
            answer = server.rerank([here, data_uri(PNG), host.url + path])
            assert (answer.status_code, answer.json()["code"], answer.json()["document"]) == (400, code, 2)
        answer = server.rerank([here, f"{inside.url}/a.png"])
        assert (answer.json()["code"], answer.json()["document"]) == ("forbidden_source", 1)
    assert inside.seen == []


def test_files_of_the_allowed_folder_alone(ranker: Ranker, tmp_path: Path) -> None:
    folder = tmp_path / "open folder"
    (folder / "deep").mkdir(parents=True)
    good, secret = folder / "deep" / "a.png", tmp_path / "secret.png"
    for file in (good, secret):
        file.write_bytes(PNG)
    (folder / "link.png").symlink_to(secret)
    (folder / "large.png").write_bytes(PNG + b"x" * 50_000)
    (tmp_path / "open folder 2").mkdir()
    (tmp_path / "open folder 2" / "a.png").write_bytes(PNG)
    os.mkfifo(folder / "pipe.png")
    with running(ranker, settings_for(folder=folder)) as server:
        assert server.rerank([good.as_uri(), {"image": good.as_uri()}]).status_code == 200
        for address, code in {
            secret.as_uri(): "forbidden_source",
            folder.as_uri() + "/../secret.png": "forbidden_source",
            folder.as_uri() + "/%2e%2e/secret.png": "forbidden_source",
            folder.as_uri() + "/link.png": "forbidden_source",
            (tmp_path / "open folder 2" / "a.png").as_uri(): "forbidden_source",
            f"file://elsewhere{good.as_uri()[7:]}": "forbidden_source",
            "file:///etc/passwd": "forbidden_source",
            good.as_uri() + "%00": "forbidden_source",
            folder.as_uri(): "bad_image",
            folder.as_uri() + "/none.png": "bad_image",
            folder.as_uri() + "/pipe.png": "bad_image",
            folder.as_uri() + "/large.png": "bad_image",
            str(good): "text_document",
        }.items():
            answer = server.rerank([good.as_uri(), address])
            found = answer.json()
            assert (address, answer.status_code, found["code"], found["document"]) == (address, 400, code, 1)
