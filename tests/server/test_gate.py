"""Keys, places, clients that are slow, too large or gone."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from lad.errors import LadError
from lad.ranker import Ranker
from lad.server.settings import RequestLimits, ServiceSettings
from tests.server.running import Running, running, wait_until


@contextmanager
def held_up(server: Running) -> Iterator[threading.Event]:
    """The model does not answer within this block, unless the event is set."""
    go = threading.Event()
    rank = server.service.engine.rank

    def later(samples: Any) -> Any:
        assert go.wait(60)
        return rank(samples)

    server.service.engine.rank = later  # type: ignore[method-assign]
    try:
        yield go
    finally:
        go.set()
        server.service.engine.rank = rank  # type: ignore[method-assign]


@contextmanager
def connected(server: Running) -> Iterator[socket.socket]:
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 20) as found:
        yield found


def head(length: int | None, **headers: str) -> bytes:
    lines = ["POST /v2/rerank HTTP/1.1", "Host: x", "Content-Type: application/json"]
    lines.append("Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def status_of(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1])


# places


def test_a_full_service_says_so_at_once_and_frees_its_places(ranker: Ranker, pictures: list[str]) -> None:
    with running(ranker, ServiceSettings(places=3)) as server, ThreadPoolExecutor(3) as clients:
        with held_up(server) as go:
            taken = [clients.submit(server.rerank, pictures) for _ in range(3)]
            wait_until(lambda: server.service.places.taken == 3)
            begun = time.monotonic()
            refused = [server.rerank(pictures) for _ in range(5)]
            assert time.monotonic() - begun < 10
            assert {answer.status_code for answer in refused} == {429}
            assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
            assert refused[0].json()["code"] == "busy"
            assert httpx.get(server.url + "/healthz").status_code == 200
            go.set()
            assert [future.result().status_code for future in taken] == [200] * 3
        assert server.service.places.taken == 0
        assert server.rerank(pictures).status_code == 200


def test_a_full_service_reads_no_bodies(ranker: Ranker, pictures: list[str]) -> None:
    with running(ranker, ServiceSettings(places=1)) as server, ThreadPoolExecutor(1) as clients, held_up(server):
        clients.submit(server.rerank, pictures)
        wait_until(lambda: server.service.places.taken == 1)
        with connected(server) as client:
            client.sendall(head(10_000_000))
            assert status_of(client.recv(1000)) == 429


def test_a_large_body_to_a_full_service_gets_its_answer(ranker: Ranker, pictures: list[str]) -> None:
    with running(ranker, ServiceSettings(places=1)) as server, ThreadPoolExecutor(1) as clients, held_up(server):
        clients.submit(server.rerank, pictures)
        wait_until(lambda: server.service.places.taken == 1)
        answers = [server.rerank(["x" * 8_000_000]) for _ in range(3)]
        assert {answer.status_code for answer in answers} == {429}


def test_a_client_that_leaves_frees_its_place(ranker: Ranker, pictures: list[str]) -> None:
    body = json.dumps({"query": "a red circle", "documents": pictures}).encode()
    with running(ranker, ServiceSettings(places=1)) as server, held_up(server) as go:
        service = server.service
        with connected(server) as client:
            client.sendall(head(len(body)) + body)
            wait_until(lambda: service.places.taken == 1 and len(service._batcher) == 0 and service._preparing == 0)
        wait_until(lambda: service.places.taken == 0)  # although the model is still at it
        with connected(server) as client:  # and from the queue
            client.sendall(head(len(body)) + body)
            wait_until(lambda: len(service._batcher) == 1)
        wait_until(lambda: service.places.taken == 0 and len(service._batcher) == 0)
        with connected(server) as client:  # and in the middle of its body
            client.sendall(head(len(body)) + body[:100])
            wait_until(lambda: service.places.taken == 1)
        wait_until(lambda: service.places.taken == 0)
        go.set()
        assert server.rerank(pictures).status_code == 200
        assert b"lad_clients_left_total 3.0" in service.metrics.text()


# bodies


def test_a_slow_body_is_given_up(ranker: Ranker) -> None:
    limits = RequestLimits(body_seconds=0.3)
    with running(ranker, ServiceSettings(limits=limits)) as server, connected(server) as client:
        begun = time.monotonic()
        client.sendall(head(1000))
        client.settimeout(0.05)
        reply = b""
        while not reply:
            client.sendall(b" ")  # never quite still
            try:
                reply = client.recv(2000)
            except TimeoutError:
                assert time.monotonic() - begun < 5
        assert status_of(reply) == 408
        assert b"connection: close" in reply.lower()
        assert server.service.places.taken == 0


def test_a_body_that_says_it_is_too_large_is_not_read(server: Running) -> None:
    with connected(server) as client:
        client.sendall(head(16 * 2**20 + 1))
        assert status_of(client.recv(1000)) == 413


def test_a_body_that_turns_out_too_large(ranker: Ranker) -> None:
    limits = RequestLimits(body_bytes=10_000)
    with running(ranker, ServiceSettings(limits=limits)) as server:
        with connected(server) as client:
            client.sendall(head(None) + (b"1000\r\n" + b" " * 0x1000 + b"\r\n") * 4)
            reply = client.recv(1000)
            assert status_of(reply) == 413
            assert b"connection: close" in reply.lower()
        answer = server.rerank(["x" * 10_000])
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
        assert server.rerank(["x" * 5_000]).status_code == 400


def test_what_is_not_http_is_refused(server: Running) -> None:
    for text in (b"nonsense\r\n\r\n", head(0, **{"Content-Length": "-1"}), head(5, **{"Content-Length": "6"})):
        with connected(server) as client:
            client.sendall(text)
            assert status_of(client.recv(1000)) == 400
    assert httpx.get(server.url + "/healthz").status_code == 200


# keys


@pytest.fixture(scope="module")
def locked(ranker: Ranker) -> Iterator[Running]:
    with running(ranker, ServiceSettings(api_keys=("first key", "zweiter-schlüssel"))) as found:
        yield found


@pytest.mark.parametrize(
    "header", ["", "first key", "Bearer", "Bearer wrong", "Basic first key", "Bearer first ke", "Bearer first key2"]
)
def test_without_the_key_nothing_is_told(locked: Running, pictures: list[str], header: str) -> None:
    headers = {"Authorization": header} if header else {}
    answer = locked.post({"query": "x", "documents": pictures}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    for path in ("/v1/models", "/metrics"):
        assert httpx.get(locked.url + path, headers=headers).status_code == 401


@pytest.mark.parametrize("key", ["first key", "zweiter-schlüssel"])
def test_every_key_opens(locked: Running, pictures: list[str], key: str) -> None:
    headers = {b"Authorization": f"bearer {key}".encode()}
    assert locked.post({"query": "x", "documents": pictures}, headers=headers).status_code == 200
    assert httpx.get(locked.url + "/v1/models", headers=headers).status_code == 200
    assert httpx.get(locked.url + "/metrics", headers=headers).status_code == 200


def test_probes_need_no_key(locked: Running) -> None:
    assert httpx.get(locked.url + "/healthz").status_code == 200
    assert httpx.get(locked.url + "/readyz").status_code == 200


def test_keys_are_compared_in_constant_time(locked: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    import hmac

    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(b) or real(a, b))
    httpx.get(locked.url + "/v1/models", headers={"Authorization": "Bearer first key"})
    assert compared == [b"first key", "zweiter-schlüssel".encode()]  # the second as well, though the first is right


# settings, and models that fail


@pytest.mark.parametrize(
    "change", [{"places": 0}, {"batch": 0}, {"model_names": ()}, {"model_names": ("",)}, {"api_keys": ("",)}]
)
def test_settings_that_make_no_sense(change: dict[str, Any]) -> None:
    with pytest.raises(LadError):
        replace(ServiceSettings(), **change)


def test_limits_that_make_no_sense() -> None:
    with pytest.raises(LadError, match="body_bytes"):
        RequestLimits(body_bytes=0)


def test_a_ranker_without_calibrations_is_not_served(ranker: Ranker) -> None:
    with pytest.raises(LadError, match="no calibration"), running(Ranker(ranker.vlm)):
        pass


def test_a_model_that_fails_is_a_500_and_the_service_goes_on(
    ranker: Ranker, pictures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: Any) -> Any:
        raise RuntimeError("out of memory at a secret place")

    with running(ranker) as server:
        with monkeypatch.context() as patch:
            patch.setattr(ranker, "rank_prepared", failing)
            answer = server.rerank(pictures)
            assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
            assert "secret" not in answer.text
        assert server.rerank(pictures).status_code == 200
        assert server.service.places.taken == 0


def test_one_bad_request_does_not_spoil_its_batch(
    ranker: Ranker, pictures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that only shows itself as bad in the model, for instance by its length in tokens."""
    from lad.errors import PromptError

    real = ranker.rank_prepared

    def picky(group: Any) -> Any:
        if any(sample.caption == "too long" for sample in group):
            raise PromptError("The prompt has too many tokens.")
        return real(group)

    monkeypatch.setattr(ranker, "rank_prepared", picky)
    with running(ranker) as server, ThreadPoolExecutor(4) as clients, held_up(server) as go:
        first = clients.submit(server.rerank, pictures)
        wait_until(lambda: server.service.places.taken == 1 and len(server.service._batcher) == 0)
        others = [clients.submit(server.rerank, pictures, query) for query in ("a", "too long", "b")]
        wait_until(lambda: len(server.service._batcher) >= 3)
        go.set()
        answers = [future.result() for future in (first, *others)]
    assert [answer.status_code for answer in answers] == [200, 200, 400, 200]
    assert answers[2].json()["code"] == "invalid_query"
