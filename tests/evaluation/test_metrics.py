from __future__ import annotations

import json
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lad.errors import RunError
from lad.evaluation.metrics import Metrics, compute_metrics, flip_rate
from lad.samples import cyclic_orders, random_orders

_IDENTITY = [0, 1, 2]


def test_a_case_small_enough_to_count_by_hand() -> None:
    orders = np.array([[0, 1, 2], [2, 0, 1]])
    answers = np.array([0, 1, 2, 0])
    picks = np.array([[0, 0], [1, 2], [0, 2], [2, 2]])
    metrics = compute_metrics(picks, answers, orders, passes=3)
    # right: sample 0 twice, sample 1 under the first order, sample 2 under the second, sample 3 never
    assert metrics.accuracy == pytest.approx(50.0)
    assert metrics.accuracy_std == pytest.approx(0.0)
    # positions of the answers: identity 0 1 2 0, second order 1 2 0 1
    assert metrics.recall_by_position == pytest.approx([100 * 2 / 3, 100 * 2 / 3, 0.0])
    assert metrics.rstd == pytest.approx(statistics.stdev([100 * 2 / 3, 100 * 2 / 3, 0.0]))
    assert metrics.consistency == pytest.approx(50.0)
    assert metrics.flip_rate == pytest.approx(50.0)
    # identity: (0,0) (1,1) (2,0) (0,2); second order: (1,1) (2,0) (0,0) (1,0)
    assert metrics.confusion.tolist() == [[2, 0, 1], [1, 2, 0], [2, 0, 0]]
    assert metrics.answered == 100.0
    assert metrics.passes == 3


def _by_loops(picks: list[list[int]], answers: list[int], orders: list[list[int]]) -> dict[str, object]:
    number, times, count = len(answers), len(orders), len(orders[0])
    accuracies = [100 * sum(picks[m][t] == answers[m] for m in range(number)) / number for t in range(times)]
    hits, visits = [0] * count, [0] * count
    confusion = [[0] * count for _ in range(count)]
    for m in range(number):
        for t in range(times):
            true = orders[t].index(answers[m])
            visits[true] += 1
            hits[true] += picks[m][t] == answers[m]
            if picks[m][t] >= 0:
                confusion[true][orders[t].index(picks[m][t])] += 1
    recalls = [100 * hits[i] / visits[i] if visits[i] else math.nan for i in range(count)]
    seen = [recall for recall in recalls if not math.isnan(recall)]
    identity = orders.index(list(range(count))) if times > 1 else 0
    others = [t for t in range(times) if t != identity]
    flips = [picks[m][t] != picks[m][identity] or picks[m][t] < 0 for m in range(number) for t in others]
    same = [len(set(picks[m])) == 1 and picks[m][0] >= 0 for m in range(number)]
    return {
        "accuracy": sum(accuracies) / times,
        "accuracy_std": statistics.stdev(accuracies) if times > 1 else None,
        "rstd": statistics.stdev(seen) if len(seen) > 1 else None,
        "consistency": 100 * sum(same) / number,
        "flip_rate": 100 * sum(flips) / len(flips) if flips else None,
        "recall_by_position": recalls,
        "confusion": confusion,
        "answered": 100 * sum(pick >= 0 for row in picks for pick in row) / (number * times),
    }


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    number=st.integers(1, 12),
    times=st.integers(1, 5),
    count=st.integers(2, 6),
    lowest=st.sampled_from([-1, 0]),
)
def test_against_loops(seed: int, number: int, times: int, count: int, lowest: int) -> None:
    rng = np.random.default_rng(seed)
    orders = random_orders(count, times, seed=seed)
    orders = orders[rng.permutation(len(orders))]
    answers = rng.integers(count, size=number)
    picks = rng.integers(lowest, count, size=(number, len(orders)))
    picks = np.where(rng.random(picks.shape) < 0.5, answers[:, None], picks)
    metrics = compute_metrics(picks, answers, orders)
    for name, wanted in _by_loops(picks.tolist(), answers.tolist(), orders.tolist()).items():
        found = getattr(metrics, name)
        if wanted is None:
            assert found is None, name
        else:
            np.testing.assert_allclose(found, wanted, atol=1e-9, err_msg=name)


def _following(metrics: Metrics) -> tuple[float, float, float | None]:
    return metrics.accuracy, metrics.consistency, metrics.flip_rate


def test_a_method_that_always_says_one_position() -> None:
    orders = cyclic_orders(4)
    answers = np.repeat(np.arange(4), 5)
    picks = np.tile(orders[:, 2], (20, 1))
    metrics = compute_metrics(picks, answers, orders)
    assert _following(metrics) == (25.0, 0.0, 100.0)
    assert metrics.recall_by_position.tolist() == [0.0, 0.0, 100.0, 0.0]
    assert metrics.rstd == pytest.approx(50.0)
    assert (metrics.confusion == 20 * (np.arange(4) == 2)).all()


def test_perfect_and_constantly_wrong_methods_are_both_consistent() -> None:
    orders, answers = random_orders(4, 5), np.arange(4)
    right = compute_metrics(np.tile(answers[:, None], 5), answers, orders)
    wrong = compute_metrics(np.tile((answers[:, None] + 1) % 4, 5), answers, orders)
    assert _following(right) == (100.0, 100.0, 0.0)
    assert _following(wrong) == (0.0, 100.0, 0.0)
    assert right.rstd == 0.0


def test_one_order_says_nothing_about_orders() -> None:
    metrics = compute_metrics(np.array([[0], [2]]), np.array([0, 1]), np.array([[1, 2, 0]]))
    assert metrics.accuracy == 50.0
    assert metrics.accuracy_std is None
    assert metrics.flip_rate is None
    assert metrics.consistency == 100.0
    assert metrics.recall_by_position[[0, 2]].tolist() == [0.0, 100.0]
    assert math.isnan(metrics.recall_by_position[1])
    assert metrics.rstd == pytest.approx(statistics.stdev([0.0, 100.0]))


def test_rstd_needs_two_visited_positions() -> None:
    metrics = compute_metrics(np.array([[0]]), np.array([0]), np.array([_IDENTITY]))
    assert metrics.rstd is None
    assert metrics.recall_by_position[0] == 100.0
    assert np.isnan(metrics.recall_by_position[1:]).all()


def test_what_is_unanswered_is_wrong_inconsistent_and_flipped() -> None:
    picks = np.array([[-1, -1], [1, -1]])
    metrics = compute_metrics(picks, np.array([0, 1]), np.array([[0, 1], [1, 0]]))
    assert _following(metrics) == (25.0, 0.0, 100.0)
    assert metrics.answered == 25.0
    assert metrics.confusion.tolist() == [[0, 0], [0, 1]]


def test_same_order_control() -> None:
    first, again = np.array([0, 1, 2, 3]), np.array([0, 1, 2, 0])
    assert flip_rate(again[:, None], first) == 25.0
    assert flip_rate(first[:, None], first) == 0.0


def test_json() -> None:
    metrics = compute_metrics(np.array([[0], [2]]), np.array([0, 1]), np.array([[1, 2, 0]]), passes=8)
    document = json.loads(json.dumps(metrics.as_dict(), allow_nan=False))
    assert document == {
        "accuracy": 50.0,
        "accuracy_std": None,
        "rstd": metrics.rstd,
        "consistency": 100.0,
        "flip_rate": None,
        "answered": 100.0,
        "passes": 8,
        "recall_by_position": [0.0, None, 100.0],
        "confusion": [[0, 1, 0], [0, 0, 0], [0, 0, 1]],
    }


@pytest.mark.parametrize(
    ("picks", "answers", "orders", "message"),
    [
        ([0, 1], [0, 1], [_IDENTITY], r"must be \(M, T\)"),
        ([[0, 1]], [0], [_IDENTITY], r"Picks \(1, 2\)"),
        ([[0]], [0, 1], [_IDENTITY], r"answers \(2,\)"),
        ([[0]], [0], _IDENTITY, r"orders \(3,\)"),
        (np.zeros((0, 1), int), [], [_IDENTITY], r"Picks \(0, 1\)"),
        ([[3]], [0], [_IDENTITY], "pick of sample 0 is not among the 3"),
        ([[0], [-2]], [0, 0], [_IDENTITY], "pick of sample 1"),
        ([[0]], [-1], [_IDENTITY], "answer of sample 0"),
        ([[0]], [3], [_IDENTITY], "answer of sample 0"),
        ([[0]], [0], [[0, 1, 1]], "no permutation"),
        ([[0, 0]], [0], [[1, 0, 2], [2, 1, 0]], "identity is not among"),
    ],
)
def test_what_does_not_fit_is_refused(picks: object, answers: object, orders: object, message: str) -> None:
    with pytest.raises(RunError, match=message):
        compute_metrics(np.array(picks), np.array(answers, dtype=np.int64), np.array(orders))
