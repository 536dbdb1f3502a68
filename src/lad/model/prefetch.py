"""Prepare what comes next on other threads while the model works on what is there."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def default_workers() -> int:
    """Threads that read images: half the processors, at least one and at most four."""
    return max(1, min(4, (os.cpu_count() or 1) // 2))


def prefetched(
    items: Iterable[Item], function: Callable[[Item], Result], *, ahead: int = 8, workers: int | None = None
) -> Iterator[Result]:
    """``map(function, items)`` that stays ``ahead`` items ahead of its reader.

    Results come in the order of the items, and an error is raised where its result would have come, so what the
    reader sees does not depend on the threads' timing. Reading and decoding images and the work of processors let
    other threads run meanwhile, so threads are enough.

    Args:
        items: taken one by one, ``ahead`` of the reader.
        function: must be safe to call from several threads.
        ahead: how many results may wait, which bounds the memory.
        workers: threads; None for :func:`default_workers`.
    """
    waiting: deque[Future[Result]] = deque()
    source = iter(items)
    with ThreadPoolExecutor(workers or default_workers(), thread_name_prefix="lad-prefetch") as pool:
        try:
            for item in source:
                waiting.append(pool.submit(function, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # the reader stopped early, or an item failed
            for future in waiting:
                future.cancel()
