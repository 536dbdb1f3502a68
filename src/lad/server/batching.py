"""Requests that arrive together are answered together.

While the model is busy, further requests gather; when it is free, the oldest one goes, and with it all that fit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(eq=False)
class _Job(Generic[Item, Result]):
    item: Item
    key: Hashable
    future: asyncio.Future[Result]


class Batcher(Generic[Item, Result]):
    """Runs a blocking function on batches of items, in one thread of its own, one batch at a time.

    Args:
        run: takes items of one key and gives a result or an exception for each, in order.
        key: items share a batch where this is equal.
        limit: most items in a batch.
        seconds: how long to wait for items that are on their way.
        coming: how many items are on their way.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Sequence[Result | Exception]],
        *,
        key: Callable[[Item], Hashable],
        limit: int,
        seconds: float,
        coming: Callable[[], int],
    ) -> None:
        self._run = run
        self._key = key
        self._limit = limit
        self._seconds = seconds
        self._coming = coming
        self._jobs: deque[_Job[Item, Result]] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lad-model")
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Items that wait."""
        return len(self._jobs)

    @property
    def alive(self) -> bool:
        """Whether items are being worked on."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Begin to work; needs a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        """End at once; items that still wait are cancelled. The batch in the model is waited for."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for job in self._jobs:
            job.future.cancel()
        self._jobs.clear()
        await asyncio.to_thread(self._thread.shutdown)

    async def submit(self, item: Item) -> Result:
        """The result for an item. Cancelling the caller takes the item out of the queue."""
        job: _Job[Item, Result] = _Job(item, self._key(item), asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._arrived.set()
        try:
            return await job.future
        finally:
            if job in self._jobs:
                self._jobs.remove(job)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._gather()
            jobs = self._take()
            if not jobs:
                continue
            try:
                results = await loop.run_in_executor(self._thread, self._run, [job.item for job in jobs])
            except Exception as error:  # whatever happens, nobody waits for ever and the next batch is run
                results = [error] * len(jobs)
            for job, result in zip(jobs, results, strict=True):
                if job.future.done():  # the client has left
                    continue
                if isinstance(result, Exception):
                    job.future.set_exception(result)
                else:
                    job.future.set_result(result)

    async def _gather(self) -> None:
        """Wait for the first item, then a moment for those that are known to come."""
        while not self._jobs:
            self._arrived.clear()
            await self._arrived.wait()
        try:
            async with asyncio.timeout(self._seconds):
                while len(self._jobs) < self._limit and self._coming():
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass

    def _take(self) -> list[_Job[Item, Result]]:
        """The oldest item and those like it, in order of arrival."""
        if not self._jobs:
            return []
        key = self._jobs[0].key
        taken = [job for job in self._jobs if job.key == key][: self._limit]
        self._jobs = deque(job for job in self._jobs if job not in taken)
        return taken
