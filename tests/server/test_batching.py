from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from lad.server.batching import Batcher


class Model:
    """Doubles numbers, in batches that are remembered; held up while it is closed."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()

    def __call__(self, items: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(items))
        self.entered.set()
        assert self.open.wait(10)
        if 13 in items:
            raise MemoryError("all of them")
        return [ValueError(str(item)) if item == 7 else 2 * item for item in items]


def run(model: Model, test: Callable[[Batcher[int, int]], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        options.setdefault("coming", lambda: 0)
        batcher = Batcher(model, key=lambda item: item % 2, **{"limit": 3, "seconds": 0.05, **options})
        assert not batcher.alive
        batcher.start()
        assert batcher.alive
        try:
            await asyncio.wait_for(test(batcher), 20)
        finally:
            model.open.set()
            await batcher.stop()
        assert not batcher.alive

    asyncio.run(main())


async def close(model: Model, batcher: Batcher[int, int]) -> asyncio.Task[int]:
    """Hold the model up with one item in it."""
    model.open.clear()
    model.entered.clear()
    task = asyncio.ensure_future(batcher.submit(0))
    await asyncio.to_thread(model.entered.wait, 10)
    return task


def test_what_arrives_while_the_model_is_busy_goes_together_by_kind_and_age() -> None:
    model = Model()

    async def test(batcher: Batcher[int, int]) -> None:
        first = await close(model, batcher)
        later = [asyncio.ensure_future(batcher.submit(item)) for item in (1, 2, 3, 4, 5, 9, 11)]
        await asyncio.sleep(0)
        assert len(batcher) == 7
        model.open.set()
        assert await asyncio.gather(first, *later) == [0, 2, 4, 6, 8, 10, 18, 22]

    run(model, test)
    assert model.batches == [[0], [1, 3, 5], [2, 4], [9, 11]]


def test_a_lone_item_does_not_wait() -> None:
    model = Model()

    async def test(batcher: Batcher[int, int]) -> None:
        assert await batcher.submit(4) == 8

    run(model, test, seconds=1000)


def test_an_item_waits_a_moment_for_those_that_are_coming() -> None:
    model, coming = Model(), [1]

    async def test(batcher: Batcher[int, int]) -> None:
        async def second() -> int:
            await asyncio.sleep(0.05)
            coming[0] = 0
            return await batcher.submit(4)

        assert await asyncio.gather(batcher.submit(2), second()) == [4, 8]
        coming[0] = 1  # and never comes
        assert await batcher.submit(6) == 12

    run(model, test, coming=lambda: coming[0], seconds=0.5)
    assert model.batches == [[2, 4], [6]]


def test_who_leaves_gives_up_the_place() -> None:
    model = Model()

    async def test(batcher: Batcher[int, int]) -> None:
        first = await close(model, batcher)
        leaving, staying = (asyncio.ensure_future(batcher.submit(item)) for item in (2, 4))
        await asyncio.sleep(0)
        leaving.cancel()
        first.cancel()  # even from the model's own batch
        await asyncio.sleep(0)
        assert len(batcher) == 1
        model.open.set()
        assert await staying == 8
        assert first.cancelled()

    run(model, test)
    assert model.batches == [[0], [4]]


def test_one_failure_is_only_its_own() -> None:
    model = Model()

    async def test(batcher: Batcher[int, int]) -> None:
        first = await close(model, batcher)
        tasks = [asyncio.ensure_future(batcher.submit(item)) for item in (5, 7, 9)]
        await asyncio.sleep(0)
        model.open.set()
        results = await asyncio.gather(first, *tasks, return_exceptions=True)
        assert [results[1], results[3]] == [10, 18]
        assert isinstance(results[2], ValueError)

    run(model, test)


def test_a_batch_that_fails_as_a_whole_does_not_end_the_work() -> None:
    model = Model()

    async def test(batcher: Batcher[int, int]) -> None:
        with pytest.raises(MemoryError):
            await batcher.submit(13)
        assert await batcher.submit(5) == 10
        assert batcher.alive

    run(model, test)


def test_stopping_cancels_those_that_wait() -> None:
    model = Model()
    waiting: list[asyncio.Task[int]] = []

    async def test(batcher: Batcher[int, int]) -> None:
        await close(model, batcher)
        waiting.append(asyncio.ensure_future(batcher.submit(2)))
        await asyncio.sleep(0)

    run(model, test)
    assert waiting[0].cancelled()
