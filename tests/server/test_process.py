"""`lad serve` as a process of its own."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from lad.cli import app
from lad.errors import LadError
from lad.server.run import is_loopback, open_socket
from lad.server.settings import read_api_keys
from perf.serve_load import server
from tests.server.running import wait_until


def test_sigterm_finishes_what_was_taken(calibrations: Path, pictures: list[str]) -> None:
    """Requests are waiting, one is being ranked and one is half sent when the signal comes: all are answered."""
    arguments = ("--device", "cpu", "--calibration", str(calibrations), "--batch", "1")
    with server(*arguments, LAD_API_KEY="key") as (process, url):
        client = httpx.Client(base_url=url, timeout=60, headers={"Authorization": "Bearer key"})
        assert client.get("/readyz").status_code == 200
        assert httpx.get(url + "/v1/models").status_code == 401
        body = json.dumps({"query": "a red circle", "documents": pictures}).encode()
        half_sent, told = threading.Event(), threading.Event()

        def slowly() -> Iterator[bytes]:
            yield body[:50]
            half_sent.set()
            assert told.wait(30)
            time.sleep(0.5)
            yield body[50:]

        headers = {"Content-Type": "application/json"}
        with ThreadPoolExecutor(31) as clients:
            slow = clients.submit(client.post, "/rerank", content=slowly(), headers=headers)
            assert half_sent.wait(20)
            waiting = [clients.submit(client.post, "/rerank", content=body, headers=headers) for _ in range(30)]
            wait_until(lambda: taken(client) > 5)
            process.send_signal(signal.SIGTERM)
            told.set()
            assert [future.result().status_code for future in [*waiting, slow]] == [200] * 31
        assert process.wait(30) in (0, -signal.SIGTERM)
        with pytest.raises(httpx.ConnectError):
            httpx.get(url + "/healthz")


def taken(client: httpx.Client) -> float:
    lines = client.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("lad_places_taken "))


def refused(*arguments: str) -> str:
    """The message of a server that does not start; that it ends with exit code 2 is the same for every verb."""
    with pytest.raises(LadError) as caught:
        app(["serve", *arguments], standalone_mode=False)
    return str(caught.value)


def test_what_cannot_be_served_is_said_before_the_model_is_loaded(
    calibrations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lad.cli.options.load_model", lambda *_, **__: pytest.fail("the model was loaded"))
    empty = tmp_path / "keys"
    empty.write_text("# none yet\n")
    shipped = ("--calibration", str(calibrations))
    assert "--api-key-file" in refused(*shipped, "--host", "0.0.0.0")
    assert "no API key" in refused(*shipped, "--api-key-file", str(empty))
    assert "cannot be read" in refused(*shipped, "--api-key-file", str(tmp_path / "none"))
    assert "no such folder" in refused(*shipped, "--allow-folder", str(tmp_path / "none"))
    assert "no network" in refused(*shipped, "--allow-network", "10.0.0.1/8")
    assert "allowed host" in refused(*shipped, "--allow-host", "http://x")
    assert "body_bytes" in refused(*shipped, "--max-body-mib", "0")
    assert "cannot listen" in refused(*shipped, "--host", "192.0.2.1", "--open-to-all")
    assert "no calibrations" in refused("--calibration", str(tmp_path))


def test_a_port_that_is_taken(calibrations: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert "cannot listen" in refused("--calibration", str(calibrations), "--port", str(other.getsockname()[1]))


@pytest.mark.parametrize("module", ["fastapi", "uvicorn", "prometheus_client"])
def test_a_missing_package_is_named_with_its_extra(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lad.server.find_spec", lambda name: None if name == module else True)
    assert "pip install 'lad-vlm[serve]'" in refused()


def test_keys_come_from_a_file_and_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# keys\none\n\n  two \n")
    assert read_api_keys(file, " three\n") == ("three", "one", "two")
    assert read_api_keys(None, None) == read_api_keys(None, " ") == ()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.9", "::1"])
@pytest.mark.parametrize("other", ["0.0.0.0", "::", "10.0.0.1", "example.com"])
def test_hosts_of_this_machine_alone(host: str, other: str) -> None:
    assert is_loopback(host)
    assert not is_loopback(other)


def test_answers_do_not_wait_for_acknowledgements() -> None:
    with open_socket("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
