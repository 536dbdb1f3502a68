from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lad.errors import SampleError
from lad.samples import Sample, cyclic_orders, positions_of, random_orders, shuffled_images, to_candidates


def test_a_sample_keeps_what_it_is_given() -> None:
    sample = Sample("a dog", ["a.png", b"...", np.zeros((2, 2), np.uint8)], answer=2, id="x")  # type: ignore[arg-type]
    assert isinstance(sample.images, tuple)
    assert len(sample) == 3
    assert Sample("a dog", ("a.png", "a.png")).answer is None


@pytest.mark.parametrize(
    ("caption", "images", "answer", "message"),
    [
        ("a dog", (), None, "Has 0 image"),
        ("a dog", ("a.png",), 0, "Has 1 image.*at least 2"),
        ("", ("a.png", "b.png"), 0, "caption is empty"),
        (" \n", ("a.png", "b.png"), 0, "caption is empty"),
        (None, ("a.png", "b.png"), 0, "no text but a NoneType"),
        ("a dog", ("a.png", "b.png"), 2, "answer 2 is out of range: candidates are counted 0 to 1"),
        ("a dog", ("a.png", "b.png"), -1, "answer -1 is out of range"),
    ],
)
def test_samples_that_ask_nothing(caption: str, images: tuple[str, ...], answer: int | None, message: str) -> None:
    with pytest.raises(SampleError, match=message) as caught:
        Sample(caption, images, answer, id="x1")
    assert caught.value.where == "sample 'x1'"


@pytest.mark.parametrize("count", range(2, 13))
def test_cyclic_orders_are_left_shifts(count: int) -> None:
    orders = cyclic_orders(count)
    assert orders.shape == (count, count)
    for shift in range(count):
        candidates = list(range(count))
        assert orders[shift].tolist() == candidates[shift:] + candidates[:shift]
    # so the answer, whichever it is, visits each position once
    for candidate in range(count):
        assert sorted(positions_of(orders, candidate).tolist()) == list(range(count))


@given(st.integers(1, 12), st.integers(1, 40), st.integers(0, 2**32))
def test_random_orders_are_distinct_permutations(count: int, number: int, seed: int) -> None:
    orders = random_orders(count, number, seed)
    assert orders.shape == (min(number, math.factorial(count)), count)
    assert orders[0].tolist() == list(range(count))
    assert len({tuple(order) for order in orders.tolist()}) == len(orders)
    assert (np.sort(orders, axis=1) == np.arange(count)).all()
    np.testing.assert_array_equal(orders, random_orders(count, number, seed))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_all_orders_if_more_are_asked_for(count: int) -> None:
    everything = math.factorial(count)
    for number in (everything, everything + 1, 10_000):
        assert len({tuple(order) for order in random_orders(count, number, seed=3).tolist()}) == everything


def test_the_seed_and_the_number_choose_the_orders() -> None:
    assert random_orders(8, 5, seed=0).tolist() != random_orders(8, 5, seed=1).tolist()
    # more orders of one seed begin with the fewer ones, so a longer run contains a shorter one
    assert random_orders(8, 9, seed=0)[:5].tolist() == random_orders(8, 5, seed=0).tolist()
    with pytest.raises(SampleError, match="At least one order"):
        random_orders(8, 0)


permutations = st.integers(2, 8).flatmap(lambda count: st.permutations(range(count)))


@given(permutations)
def test_positions_and_candidates_are_inverse(order: list[int]) -> None:
    array = np.array(order)
    for position, candidate in enumerate(order):
        assert positions_of(array, candidate) == position
    by_position = np.random.default_rng(0).normal(size=len(order))
    by_candidate = to_candidates(by_position, array)
    for position, candidate in enumerate(order):
        assert by_candidate[candidate] == by_position[position]
    np.testing.assert_array_equal(by_candidate[array], by_position)


def test_positions_of_many_answers() -> None:
    orders = random_orders(5, 7, seed=1)
    answers = np.array([0, 1, 2, 3, 4, 0, 1])
    expected = [order.index(answer) for order, answer in zip(orders.tolist(), answers.tolist(), strict=True)]
    assert positions_of(orders, answers).tolist() == expected
    assert positions_of(orders[None], answers[:3, None]).tolist() == [
        [order.index(answer) for order in orders.tolist()] for answer in answers[:3].tolist()
    ]


def test_scores_are_mapped_for_whole_batches() -> None:
    scores = np.random.default_rng(0).normal(size=(3, 7, 5))
    orders = random_orders(5, 7, seed=1)
    mapped = to_candidates(scores, orders)
    assert mapped.shape == (3, 7, 5)
    for row in range(3):
        for index, order in enumerate(orders.tolist()):
            assert [mapped[row, index, candidate] for candidate in order] == scores[row, index].tolist()


@given(permutations)
def test_images_stand_as_the_order_says(order: list[int]) -> None:
    images = [f"{index}.png" for index in range(len(order))]
    assert shuffled_images(images, order) == [f"{candidate}.png" for candidate in order]


@pytest.mark.parametrize("answer", [1.0, True, "1"])
def test_an_answer_is_a_whole_number(answer):
    with pytest.raises(SampleError, match="no index"):
        Sample("a caption", (b"1", b"2"), answer=answer)


def test_one_text_is_no_list_of_images():
    with pytest.raises(SampleError, match="one text"):
        Sample("a caption", "ab.png")
