from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lad.decisions import permutation_average
from lad.errors import DecisionError
from lad.identifiers import log_softmax
from lad.samples import cyclic_orders, random_orders


def _model(images: list[str]) -> NDArray[np.float64]:
    """A stand-in with no symmetry at all: each ordered list of images gets arbitrary log-probabilities."""
    digest = hashlib.sha256(" ".join(images).encode()).digest()
    return log_softmax(np.random.default_rng(list(digest)).normal(size=len(images)) * 3)


def _average(images: list[str], orders: NDArray[np.int64]) -> NDArray[np.float64]:
    log_probs = np.stack([_model([images[candidate] for candidate in order]) for order in orders])
    return permutation_average(log_probs, orders)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(2, 9), shift=st.integers(0, 8))
def test_cyclic_averaging_follows_cyclic_shifts(seed: int, count: int, shift: int) -> None:
    images = [f"{seed}-{index}" for index in range(count)]
    order = [(position + shift) % count for position in range(count)]
    before = _average(images, cyclic_orders(count))
    after = _average([images[candidate] for candidate in order], cyclic_orders(count))
    np.testing.assert_allclose(after, before[order], atol=1e-12)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_averaging_over_all_orders_follows_any_permutation(count: int) -> None:
    images = [f"image {index}" for index in range(count)]
    orders = random_orders(count, 24)
    before = _average(images, orders)
    for permutation in itertools.permutations(range(count)):
        after = _average([images[candidate] for candidate in permutation], orders)
        np.testing.assert_allclose(after, before[list(permutation)], atol=1e-12)


def test_cyclic_averaging_does_not_follow_every_permutation() -> None:
    # so that the two tests above say something
    images = list("abcd")
    before, swapped = _average(images, cyclic_orders(4)), _average(list("bacd"), cyclic_orders(4))
    assert np.abs(swapped[[1, 0, 2, 3]] - before).max() > 0.01


def test_against_loops_with_leading_axes_and_shared_orders() -> None:
    rng = np.random.default_rng(0)
    orders = random_orders(5, 7, seed=3)
    log_probs = rng.normal(size=(2, 3, 7, 5))
    result = permutation_average(log_probs, orders)
    assert result.shape == (2, 3, 5)
    for a, b, candidate in itertools.product(range(2), range(3), range(5)):
        scores = [log_probs[a, b, s, list(orders[s]).index(candidate)] for s in range(7)]
        assert result[a, b, candidate] == pytest.approx(sum(scores) / 7, abs=1e-12)
    assert np.array_equal(permutation_average(log_probs, np.broadcast_to(orders, log_probs.shape)), result)


@pytest.mark.parametrize(
    ("shape", "orders"), [((4,), (4,)), ((0, 4), (0, 4)), ((3, 4), (2, 4)), ((3, 4), (3, 5)), ((3, 4), (2, 3, 4))]
)
def test_shapes_that_do_not_fit(shape: tuple[int, ...], orders: tuple[int, ...]) -> None:
    with pytest.raises(DecisionError, match="log-probabilities"):
        permutation_average(np.zeros(shape), np.zeros(orders, dtype=np.int64))
