"""Running out of device memory costs time, never work: the batch is halved and the run goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

from lad.errors import ModelError

Item = TypeVar("Item")
Result = TypeVar("Result")

# CPUs and Apple's GPUs raise a plain RuntimeError
_SIGNS = ("out of memory", "can't allocate memory", "not enough memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on whatever device."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def free_memory() -> None:
    """Give back what the allocators of GPUs hold in reserve."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()


class Budget:
    """How much is run at once; halved whenever that turns out to be too much, and then kept.

    Args:
        limit: the most that is run at once, in the caller's unit (tokens, images).
        item: what one item is, for messages.
    """

    def __init__(self, limit: int, item: str = "prompt") -> None:
        self.limit = limit
        self.halvings = 0
        """How often memory ran out."""
        self._item = item

    def run(
        self, items: Sequence[Item], cost: int, call: Callable[[Sequence[Item]], Result]
    ) -> Iterator[tuple[Sequence[Item], Result]]:
        """Call a function on all items, as many at a time as fit.

        Args:
            items: what to work on.
            cost: of one item, in the unit of the limit; one item is always tried.
            call: works on some of the items; it is called again with fewer of them if memory runs out.

        Yields:
            Consecutive items, with what the call gave for them.

        Raises:
            ModelError: memory runs out with a single item.
        """
        start = 0
        while start < len(items):
            some = items[start : start + max(1, self.limit // max(1, cost))]
            result = self._attempt(some, cost, call)
            if result is not None:
                start += len(some)
                yield some, result[0]

    def _attempt(
        self, some: Sequence[Item], cost: int, call: Callable[[Sequence[Item]], Result]
    ) -> tuple[Result] | None:
        try:
            return (call(some),)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if len(some) == 1:
                raise ModelError(
                    f"Not even one {self._item} at a time fits into memory.",
                    hint="Use fewer images, a smaller image size, dtype='bfloat16' or a smaller model.",
                ) from error
        # only here, with the exception gone, are the tensors of the failed call no longer held by its traceback
        free_memory()
        self.halvings += 1
        self.limit = len(some) // 2 * cost
        return None
