"""What the service counts, in Prometheus' format."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The counters of one service.

    Args:
        taken: how many requests are in the service.
        places: how many there may be.
    """

    def __init__(self, taken: Callable[[], int], places: int) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter("lad_requests", "Requests, by status.", ("status",), registry=self.registry)
        self.refusals = Counter("lad_refusals", "Requests refused, by reason.", ("code",), registry=self.registry)
        self.left = Counter("lad_clients_left", "Clients that left before their answer.", registry=self.registry)
        self.images = Counter("lad_images", "Images ranked.", registry=self.registry)
        self.seconds = Histogram(
            "lad_request_seconds",
            "From the first byte of an answered request to its answer.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.model_seconds = Histogram(
            "lad_batch_seconds", "Time of a batch in the model.", buckets=_SECONDS, registry=self.registry
        )
        self.batch = Histogram(
            "lad_batch_requests", "Requests in a batch.", buckets=(1, 2, 4, 8, 16, 32, 64), registry=self.registry
        )
        Gauge("lad_places_taken", "Requests in the service now.", registry=self.registry).set_function(taken)
        Gauge("lad_places", "Requests that may be in the service.", registry=self.registry).set(places)

    def text(self) -> bytes:
        """The exposition, as scraped."""
        return generate_latest(self.registry)
