from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.typing import NDArray

from lad.errors import RunError
from lad.evaluation import statistics as module
from lad.evaluation.metrics import compute_metrics
from lad.evaluation.statistics import bootstrap_interval, metric_intervals, percentile_interval, resampled_means
from lad.samples import random_orders


def _run(number: int, seed: int = 0, count: int = 4) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    orders, answers = random_orders(count, 5), rng.integers(count, size=number)
    wrong = rng.integers(count, size=(number, 5))
    return np.where(rng.random((number, 5)) < 0.7, answers[:, None], wrong), answers, orders


@pytest.mark.parametrize("number", [5, 40])
def test_intervals_are_those_of_the_metrics_of_resampled_samples(number: int) -> None:
    picks, answers, orders = _run(number)
    draws = np.random.default_rng(7).integers(number, size=(200, number))
    resampled = [compute_metrics(picks[rows], answers[rows], orders) for rows in draws]
    intervals = metric_intervals(picks, answers, orders, resamples=200, seed=7)
    for name in ("accuracy", "consistency", "rstd"):
        values = [getattr(metrics, name) for metrics in resampled]
        wanted = np.percentile([value for value in values if value is not None], [2.5, 97.5])
        assert getattr(intervals, name) == pytest.approx(tuple(wanted), abs=1e-9)


def test_intervals_hold_the_figure_and_narrow_with_more_samples() -> None:
    widths = []
    for number in (50, 800):
        picks, answers, orders = _run(number)
        metrics, intervals = compute_metrics(picks, answers, orders), metric_intervals(picks, answers, orders)
        assert intervals.accuracy[0] < metrics.accuracy < intervals.accuracy[1]
        assert intervals.consistency[0] < metrics.consistency < intervals.consistency[1]
        widths.append(intervals.accuracy[1] - intervals.accuracy[0])
    assert widths[1] == pytest.approx(widths[0] / 4, rel=0.3)


def test_the_interval_of_a_share_is_near_the_normal_one() -> None:
    values = (np.arange(1000) < 300).astype(float)
    low, high = bootstrap_interval(values, resamples=4000)
    half = 1.96 * np.sqrt(0.3 * 0.7 / 1000)
    assert (low, high) == pytest.approx((0.3 - half, 0.3 + half), abs=0.003)


def test_a_statistic_of_several_means() -> None:
    rng = np.random.default_rng(0)
    pairs = rng.random((30, 2)) + 1
    found = bootstrap_interval(pairs, lambda means: means[:, 0] / means[:, 1], resamples=300, seed=4, level=0.8)
    draws = np.random.default_rng(4).integers(30, size=(300, 30))
    ratios = [pairs[rows, 0].mean() / pairs[rows, 1].mean() for rows in draws]
    assert found == pytest.approx(tuple(np.percentile(ratios, [10, 90])), abs=1e-12)


def test_seeds() -> None:
    run = _run(60)
    assert metric_intervals(*run, seed=1) == metric_intervals(*run, seed=1)
    assert metric_intervals(*run, seed=1) != metric_intervals(*run, seed=2)


@pytest.mark.parametrize("at_once", [1, 100, 350])
def test_working_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    values = np.random.default_rng(0).random((50, 3))
    whole = resampled_means(values, resamples=23, seed=5)
    monkeypatch.setattr(module, "_DRAWS_AT_ONCE", at_once)
    assert whole.shape == (23, 3)
    np.testing.assert_allclose(resampled_means(values, resamples=23, seed=5), whole, rtol=1e-12)


def test_certainty_has_no_width_and_undefined_figures_have_no_interval() -> None:
    answers = np.array([1, 1, 1])
    sure = metric_intervals(answers[:, None], answers, np.array([[0, 1, 2]]))
    assert sure.accuracy == (100.0, 100.0)
    assert sure.consistency == (100.0, 100.0)
    assert sure.rstd is None
    # one sample under orders that show it at two positions: defined in every resample
    spread = metric_intervals(np.array([[0, 1]]), np.array([0]), np.array([[0, 1], [1, 0]]))
    assert spread.rstd == pytest.approx((np.std([100, 0], ddof=1),) * 2)


def test_what_cannot_be_resampled_is_refused() -> None:
    with pytest.raises(RunError, match="not 0 and 1000"):
        bootstrap_interval(np.zeros(0))
    with pytest.raises(RunError, match="not 3 and 0"):
        bootstrap_interval(np.zeros(3), resamples=0)
    for level in (0.0, 1.0, 95.0):
        with pytest.raises(RunError, match="between 0 and 1"):
            percentile_interval(np.zeros(3), level)
    with pytest.raises(RunError, match="identity"):
        metric_intervals(np.array([[0, 0]]), np.array([0]), np.array([[1, 0], [1, 0]]))


def test_a_thousand_resamples_of_a_thousand_samples_take_under_a_second() -> None:
    run = _run(1000, count=8)
    metric_intervals(*run, resamples=2)
    started = time.process_time()
    metric_intervals(*run)
    assert time.process_time() - started < 1.0
