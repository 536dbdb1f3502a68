"""How much the service takes: one client alone, then 16 at once, with batching and without.

    python -m perf.serve_load [--calibration DIR] [--requests 200] [--clients 16] [--candidates 4]

Starts `lad serve` once for each way, sends scenes that it has not seen, and prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from urllib.parse import urlsplit

from lad.benchmarks.scenes import scene_samples

_HEADERS = {"Content-Type": "application/json"}


@dataclass
class Load:
    """What came of sending requests from several clients.

    Attributes:
        seconds: from the first request to the last answer.
        latencies: seconds of each request that was answered with 200.
        statuses: how many answers of each status.
        picks: by request, the index of its first result.
        cpu_seconds: processor time that the server took, where it was asked for.
    """

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    picks: dict[int, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Requests answered per second."""
        return len(self.latencies) / self.seconds

    def add(self, other: Load) -> None:
        """Take in another turn of the same kind; its picks are left out."""
        self.seconds += other.seconds
        self.latencies += other.latencies
        self.statuses += other.statuses

    def percentile(self, share: float) -> float:
        """The latency, in seconds, that this share of the requests did not exceed."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def scene_bodies(number: int, candidates: int, seed: int) -> list[bytes]:
    """Request bodies about different scenes."""
    bodies = []
    for sample in scene_samples(number, candidates, seed=seed):
        documents = []
        for image in sample.images:
            file = BytesIO()
            image.save(file, "PNG")  # type: ignore[union-attr]
            documents.append("data:image/png;base64," + base64.b64encode(file.getvalue()).decode())
        bodies.append(json.dumps({"query": sample.caption, "documents": documents}).encode())
    return bodies


def send(url: str, bodies: Sequence[bytes], clients: int) -> Load:
    """Send every body once, from so many clients that each wait for their answer before the next."""
    load, lock = Load(), threading.Lock()
    waiting = iter(enumerate(bodies))

    def client() -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
        while True:
            with lock:
                index, body = next(waiting, (-1, b""))
            if index < 0:
                connection.close()
                return
            begun = time.perf_counter()
            connection.request("POST", "/v2/rerank", body, _HEADERS)
            response = connection.getresponse()
            content = response.read()
            taken = time.perf_counter() - begun
            with lock:
                load.statuses[response.status] += 1
                if response.status == 200:
                    load.latencies.append(taken)
                    load.picks[index] = json.loads(content)["results"][0]["index"]

    threads = [threading.Thread(target=client) for _ in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    load.seconds = time.perf_counter() - begun
    return load


@contextmanager
def server(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`lad serve` as a process of its own, and its address.

    Raises:
        RuntimeError: it does not start; the message is what it said.
    """
    command = [sys.executable, "-c", "from lad.cli import main; main()", "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}) as found:
        try:
            assert found.stderr is not None
            said = []
            for line in found.stderr:
                said.append(line)
                if address := re.search(r"Serving '.*' on (\S+)", line):
                    break
            else:
                raise RuntimeError("".join(said))
            # what it says later must not fill the pipe
            threading.Thread(target=found.stderr.read, daemon=True).start()
            yield found, address[1]
        finally:
            found.kill()


def measured(url: str, name: str) -> float:
    """A figure of the server's own metrics, for instance ``process_resident_memory_bytes``."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(rf"^{name} (\S+)", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def compare(
    arguments: Sequence[str],
    *,
    requests: int,
    clients: int,
    candidates: int,
    batches: Sequence[int] = (1, 8),
    rounds: int = 4,
) -> dict[int, tuple[Load, Load]]:
    """For each size of batch: one client alone, and all at once.

    The servers take turns, so that whatever else the machine does meets them alike. No scene is sent to one twice.
    """
    results = {batch: (Load(), Load()) for batch in batches}
    with ExitStack() as stack:
        urls = {batch: stack.enter_context(server(*arguments, "--batch", str(batch)))[1] for batch in batches}
        for url in urls.values():
            send(url, scene_bodies(2 * clients, candidates, seed=0), clients)
        for turn in range(rounds):
            bodies = scene_bodies(requests // rounds, candidates, seed=1 + turn)
            few = scene_bodies(max(1, len(bodies) // 5), candidates, seed=1001 + turn)
            for batch, url in urls.items():
                alone, together = results[batch]
                alone.add(send(url, few, 1))
                before = measured(url, "process_cpu_seconds_total")
                together.add(send(url, bodies, clients))
                together.cpu_seconds += measured(url, "process_cpu_seconds_total") - before
    return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibration", help="folder of calibrations; the shipped model brings its own")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--candidates", type=int, default=4)
    options = parser.parse_args()
    arguments = ["--calibration", options.calibration] if options.calibration else []
    sizes = {"requests": options.requests, "clients": options.clients, "candidates": options.candidates}
    found = compare(arguments, **sizes)
    print("| batch | clients | requests | requests/s | p50 ms | p95 ms | CPU ms a request | statuses |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for batch, loads in found.items():
        for clients, load in zip((1, options.clients), loads, strict=True):
            times = " | ".join(f"{1000 * load.percentile(share):.0f}" for share in (0.5, 0.95))
            count = sum(load.statuses.values())
            cpu = f"{1000 * load.cpu_seconds / count:.1f}" if load.cpu_seconds else ""
            print(f"| {batch} | {clients} | {count} | {load.rate:.1f} | {times} | {cpu} | {dict(load.statuses)} |")
    alone, slow, fast = found[1][0].rate, found[1][1].rate, found[8][1].rate
    print(f"\nthroughput of batches of 8: {fast / slow:.2f} x batches of 1, {fast / alone:.2f} x one request at a time")


if __name__ == "__main__":
    main()
