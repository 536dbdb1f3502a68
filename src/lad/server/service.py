"""From a request's bytes to its answer: parse, fetch, decode, batch, rank."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from PIL import Image

from lad.server.batching import Batcher
from lad.server.documents import Document, Place, embedded_bytes, file_bytes
from lad.server.engine import Engine
from lad.server.gate import Places
from lad.server.metrics import Metrics
from lad.server.remote import Fetcher
from lad.server.requests import RerankQuery, parse_request
from lad.server.responses import rerank_response
from lad.server.settings import ServiceSettings

if TYPE_CHECKING:
    from lad.model.vlm import PreparedSample
    from lad.ranker import Ranker, Ranking

T = TypeVar("T")

_DECODERS = min(4, os.cpu_count() or 1)
_FETCHERS = 8


class _Workers:
    """Threads with no queue before them: who waits for one holds nothing but its own place.

    A call that waits can be cancelled without leaving its data behind.
    """

    def __init__(self, number: int, name: str) -> None:
        self._free = asyncio.Semaphore(number)
        self._threads = ThreadPoolExecutor(number, thread_name_prefix=name)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        async with self._free:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Service:
    """One model behind one queue.

    Args:
        ranker: a calibrated ranker, given over to the service.
        settings: what is allowed.

    Raises:
        LadError: the calibrations or an allowed host cannot be used.
    """

    def __init__(self, ranker: Ranker, settings: ServiceSettings) -> None:
        self.settings = settings
        self.engine = Engine(ranker, settings.limits)
        self.places = Places(settings.places)
        self.metrics = Metrics(lambda: self.places.taken, settings.places)
        self._fetcher = Fetcher(settings.sources, settings.limits.image_bytes)
        self._decoders = _Workers(_DECODERS, "lad-decode")
        self._fetchers = _Workers(_FETCHERS, "lad-fetch")
        self._preparing = 0
        self._batcher: Batcher[PreparedSample, Ranking] = Batcher(
            self._rank,
            key=len,
            limit=settings.batch,
            seconds=settings.batch_seconds,
            coming=lambda: self._preparing,
        )

    @property
    def ready(self) -> bool:
        """Whether requests are answered."""
        return self._batcher.alive

    def start(self) -> None:
        """Begin; needs a running event loop."""
        self._batcher.start()

    async def stop(self) -> None:
        """End. Whoever calls this has seen to it that no request is left."""
        await self._batcher.stop()
        self._decoders.close()
        self._fetchers.close()

    async def answer(self, body: bytes) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            RefusalError: what is wrong with it.
        """
        names = self.settings.model_names
        with self._on_its_way():
            query = await self._decoders.run(parse_request, body, names, self.engine.sizes, self.settings.limits)
            del body
            remote = [document for document in query.documents if document.place is Place.REMOTE]
            for document in remote:
                self._fetcher.check(document)
            images: dict[int, Image.Image] = {}
            if not remote:
                images = await self._decoders.run(self._decode, query.documents)
        if remote:  # others are not kept waiting for a host far away
            images = await self._fetch(query.documents)
        ranking: Ranking | None = None
        if len(images) > 1:
            with self._on_its_way():
                ordered = [images[index] for index in range(len(images))]
                sample = await self._decoders.run(self.engine.prepare, query.query, ordered)
            ranking = await self._batcher.submit(sample)
        self.metrics.images.inc(len(images))
        return self._response(query, ranking)

    def _response(self, query: RerankQuery, ranking: Ranking | None) -> dict[str, Any]:
        calibration = None if ranking is None else self.engine.calibration_ids[len(query.documents)]
        return rerank_response(
            query,
            ranking,
            model=self.settings.model_names[0],
            method=self.engine.method,
            calibration=calibration,
        )

    @contextmanager
    def _on_its_way(self) -> Iterator[None]:
        """Let the batcher know that a request is about to be ready."""
        self._preparing += 1
        try:
            yield
        finally:
            self._preparing -= 1

    def _decode(self, documents: Sequence[Document]) -> dict[int, Image.Image]:
        """Images that need no fetching, one after the other: only one is held at full size."""
        return {document.index: self._read(document) for document in documents}

    def _read(self, document: Document) -> Image.Image:
        limit = self.settings.limits.image_bytes
        if document.place is Place.FILE:
            content = file_bytes(document, self.settings.sources.folder, limit)
        elif document.place is Place.REMOTE:
            content = self._fetcher.fetch(document)
        else:
            content = embedded_bytes(document, limit)
        return self.engine.read_image(content, document.index)

    async def _fetch(self, documents: Sequence[Document]) -> dict[int, Image.Image]:
        """Images of a request of which some come from elsewhere; the first that fails ends the others."""
        tasks = [asyncio.ensure_future(self._fetchers.run(self._read, document)) for document in documents]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            # of several that failed the lowest index is named; only a failure leaves some undone
            failed = [error for task in tasks if task.done() and (error := task.exception())]
            if failed:
                raise failed[0]
            return {document.index: task.result() for document, task in zip(documents, tasks, strict=True)}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _rank(self, samples: Sequence[PreparedSample]) -> list[Ranking | Exception]:
        started = time.perf_counter()
        results = self.engine.rank(samples)
        self.metrics.model_seconds.observe(time.perf_counter() - started)
        self.metrics.batch.observe(len(samples))
        return results
