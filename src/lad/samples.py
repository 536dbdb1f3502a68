"""Samples (a caption, N candidate images, perhaps the answer), and the orders in which images are shown."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lad.errors import SampleError

ImageSource: TypeAlias = "str | os.PathLike[str] | bytes | Image.Image | NDArray[np.generic]"
"""Anything :func:`lad.images.load_image` reads."""


@dataclass(frozen=True)
class Sample:
    """A question: which of the images does the caption describe?

    Attributes:
        caption: the text.
        images: N candidates, N >= 2.
        answer: index of the right candidate, or None if unlabelled.
        id: a name for messages and results.

    Raises:
        SampleError: fewer than two images, an empty caption, or an answer out of range.
    """

    caption: str
    images: tuple[ImageSource, ...]
    answer: int | None = None
    id: str = ""

    def __post_init__(self) -> None:
        where = f"sample {self.id!r}" if self.id else None
        if isinstance(self.images, str):
            raise SampleError("The images are one text, not a list of images.", where=where)
        object.__setattr__(self, "images", tuple(self.images))
        if len(self.images) < 2:
            raise SampleError(
                f"Has {len(self.images)} image(s); at least 2 are needed to choose between.", where=where or "sample"
            )
        if not isinstance(self.caption, str):
            raise SampleError(f"The caption is no text but a {type(self.caption).__name__}.", where=where)
        if not self.caption.strip():
            raise SampleError("The caption is empty.", where=where)
        if not is_whole_text(self.caption):
            raise SampleError("The caption holds half of a surrogate pair (a cut-off emoji, say).", where=where)
        if self.answer is None:
            return
        if isinstance(self.answer, bool) or not isinstance(self.answer, (int, np.integer)):
            raise SampleError(f"The answer {self.answer!r} is no index of a candidate.", where=where)
        if not 0 <= self.answer < len(self.images):
            raise SampleError(
                f"The answer {self.answer} is out of range: candidates are counted 0 to {len(self.images) - 1}.",
                where=where,
            )

    def __len__(self) -> int:
        """N, the number of candidates."""
        return len(self.images)


def is_whole_text(text: str) -> bool:
    """Whether a text can be written in UTF-8; one with half a surrogate pair cannot, and no tokenizer takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def cyclic_orders(count: int) -> NDArray[np.int64]:
    """The N cyclic left shifts, shape (N, N): ``orders[s, p] = (p + s) % N``; row 0 is the identity."""
    positions = np.arange(count)
    return (positions[None, :] + positions[:, None]) % count


def random_orders(count: int, number: int, seed: int = 0) -> NDArray[np.int64]:
    """Distinct orders with the identity first, shape (min(number, N!), N).

    Args:
        count: N, the number of candidates.
        number: how many orders. If it is more than N!, all N! are returned.
        seed: seed of the shuffles.
    """
    if number < 1:
        raise SampleError(f"At least one order is needed, not {number}.")
    if number >= math.factorial(count):
        return np.array(list(itertools.permutations(range(count))), dtype=np.int64)
    rng = np.random.default_rng([seed, count])
    orders = {tuple(range(count)): None}
    while len(orders) < number:
        orders.setdefault(tuple(int(candidate) for candidate in rng.permutation(count)))
    return np.array(list(orders), dtype=np.int64)


def positions_of(orders: NDArray[np.integer], candidates: NDArray[np.integer] | int) -> NDArray[np.int64]:
    """Where a candidate stands: ``orders`` (..., N) and ``candidates`` (...) give positions (...)."""
    return np.asarray((orders == np.asarray(candidates)[..., None]).argmax(axis=-1), dtype=np.int64)


def to_candidates(by_position: NDArray[np.floating], orders: NDArray[np.integer]) -> NDArray[np.float64]:
    """Map scores by position to scores by candidate; the one place where this is done.

    Args:
        by_position: shape (..., N).
        orders: shape (..., N); ``orders[..., p]`` is the candidate at position p.

    Returns:
        Shape (..., N) with ``result[..., orders[..., p]] = by_position[..., p]``.
    """
    result = np.empty(np.broadcast_shapes(by_position.shape, orders.shape), dtype=np.float64)
    np.put_along_axis(result, np.broadcast_to(orders, result.shape), by_position, axis=-1)
    return result


def shuffled_images(images: Sequence[ImageSource], order: Sequence[int]) -> list[ImageSource]:
    """The images as they stand under ``order``."""
    return [images[candidate] for candidate in order]
