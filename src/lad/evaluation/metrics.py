"""How good the picks are, and how much they depend on the order of the images. Everything in percent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lad.errors import RunError
from lad.samples import positions_of


@dataclass(frozen=True, eq=False)
class Metrics:
    """Figures of one method over M samples, each asked under the same T orders.

    A figure that the data leave undefined is None.

    Attributes:
        accuracy: mean over the T orders.
        accuracy_std: standard deviation (ddof 1) of the accuracy over orders; None if T = 1.
        rstd: standard deviation (ddof 1) over true positions of the recall, pooled over the orders. Positions at
            which no answer ever stood are left out; None if fewer than two remain.
        consistency: samples where the same image is picked in all T orders (100 by nature if T = 1 and all
            are answered).
        flip_rate: sample-order pairs, the identity order left out, whose pick differs from the pick under the
            identity; None if T = 1.
        recall_by_position: (N,), recall where the answer stands at a position; NaN where it never stood.
        confusion: (N, N) counts over the T orders, row = true position, column = said position.
        answered: picks that are there at all; text answers may hold no valid index.
        passes: forward passes per query.
    """

    accuracy: float
    accuracy_std: float | None
    rstd: float | None
    consistency: float
    flip_rate: float | None
    recall_by_position: NDArray[np.float64]
    confusion: NDArray[np.int64]
    answered: float
    passes: float

    def as_dict(self) -> dict[str, Any]:
        """The same as plain JSON values; NaN becomes None."""
        return {
            **{name: getattr(self, name) for name in _SCALARS},
            "recall_by_position": [
                None if math.isnan(recall) else recall for recall in self.recall_by_position.tolist()
            ],
            "confusion": self.confusion.tolist(),
        }


_SCALARS = ("accuracy", "accuracy_std", "rstd", "consistency", "flip_rate", "answered", "passes")


@dataclass(frozen=True, eq=False)
class Tally:
    """What the figures are sums of; one row per sample.

    Attributes:
        hits: (M, T), whether the pick is the answer.
        same: (M,), whether one and the same image is picked in all orders.
        hits_at: (M, N), hits while the answer stood at a position.
        visits_at: (M, N), how often the answer stood there.
    """

    hits: NDArray[np.bool_]
    same: NDArray[np.bool_]
    hits_at: NDArray[np.int64]
    visits_at: NDArray[np.int64]


def compute_metrics(
    picks: NDArray[np.int64], answers: NDArray[np.int64], orders: NDArray[np.int64], *, passes: float = 1
) -> Metrics:
    """All figures of a method.

    Args:
        picks: (M, T), the candidate picked; -1 where a text answer held none. That counts as wrong, as
            inconsistent and as a flip, and is in no column of the confusion matrix.
        answers: (M,), the right candidates.
        orders: (T, N), the identity among them if T > 1.
        passes: forward passes per query, passed on.

    Raises:
        RunError: shapes that do not fit, indices out of range, or no identity among several orders.
    """
    picks, answers, orders = check_picks(picks, answers, orders)
    counts = tally(picks, answers, orders)
    by_order = 100 * counts.hits.mean(axis=0)
    recalls = recall(counts.hits_at.sum(axis=0), counts.visits_at.sum(axis=0))
    spread = float(recall_std(recalls))
    identity = int((orders == np.arange(orders.shape[1])).all(axis=1).argmax())
    several = len(orders) > 1
    return Metrics(
        accuracy=float(by_order.mean()),
        accuracy_std=float(by_order.std(ddof=1)) if several else None,
        rstd=None if math.isnan(spread) else spread,
        consistency=float(100 * counts.same.mean()),
        flip_rate=flip_rate(np.delete(picks, identity, axis=1), picks[:, identity]) if several else None,
        recall_by_position=recalls,
        confusion=_confusion(picks, answers, orders),
        answered=float(100 * (picks >= 0).mean()),
        passes=passes,
    )


def flip_rate(picks: NDArray[np.int64], reference: NDArray[np.int64]) -> float:
    """Percent of picks (M, T) that are not the image picked under the reference order (M,).

    With the reference order itself asked a second time (T = 1), it is the same-order control: what flips
    without any change of order. A pair with no pick on either side counts as a flip.
    """
    kept = (picks == reference[:, None]) & (picks >= 0)
    return float(100 * (1 - kept.mean()))


def tally(picks: NDArray[np.int64], answers: NDArray[np.int64], orders: NDArray[np.int64]) -> Tally:
    """The per-sample counts of checked picks; arguments as in :func:`compute_metrics`."""
    hits = picks == answers[:, None]
    true_positions = positions_of(orders[None, :, :], answers[:, None])
    at_position = true_positions[:, :, None] == np.arange(orders.shape[1])
    return Tally(
        hits=hits,
        same=(picks == picks[:, :1]).all(axis=1) & (picks[:, 0] >= 0),
        hits_at=(at_position & hits[:, :, None]).sum(axis=1),
        visits_at=at_position.sum(axis=1),
    )


def recall(hits: NDArray[Any], visits: NDArray[Any]) -> NDArray[np.float64]:
    """Percent of visits that were hits, NaN where there were none; any shape."""
    share = np.full(np.shape(hits), np.nan)
    np.divide(100.0 * hits, visits, out=share, where=visits > 0)
    return share


def recall_std(recalls: NDArray[np.float64]) -> NDArray[np.float64]:
    """RStd over the last axis (ddof 1), NaN left out; NaN where fewer than two remain. Shape (..., N) -> (...)."""
    there = ~np.isnan(recalls)
    number = there.sum(axis=-1)
    filled = np.where(there, recalls, 0.0)
    mean = filled.sum(axis=-1) / np.maximum(number, 1)
    squares = np.where(there, (filled - mean[..., None]) ** 2, 0.0).sum(axis=-1)
    return np.where(number > 1, np.sqrt(squares / np.maximum(number - 1, 1)), np.nan)


def check_picks(
    picks: NDArray[np.int64], answers: NDArray[np.int64], orders: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The three as integer arrays whose shapes and values fit each other.

    Raises:
        RunError: they do not.
    """
    picks, answers, orders = np.asarray(picks), np.asarray(answers), np.asarray(orders)
    if orders.ndim != 2 or picks.ndim != 2 or picks.shape != (len(answers), len(orders)) or picks.size == 0:
        raise RunError(
            f"Picks {picks.shape}, answers {answers.shape} and orders {orders.shape} must be (M, T), (M,), (T, N)."
        )
    count = orders.shape[1]
    if (np.sort(orders, axis=1) != np.arange(count)).any():
        raise RunError(f"An order is no permutation of 0 to {count - 1}.")
    if len(orders) > 1 and not (orders == np.arange(count)).all(axis=1).any():
        raise RunError("The identity is not among the orders, so flips cannot be told.")
    for name, values, lowest in (("pick", picks, -1), ("answer", answers, 0)):
        if ((values < lowest) | (values >= count)).any():
            row = int(np.argwhere((values < lowest) | (values >= count))[0][0])
            raise RunError(f"The {name} of sample {row} is not among the {count} candidates.")
    return picks, answers, orders


def _confusion(picks: NDArray[np.int64], answers: NDArray[np.int64], orders: NDArray[np.int64]) -> NDArray[np.int64]:
    count = orders.shape[1]
    true_positions = positions_of(orders[None, :, :], answers[:, None])
    said_positions = positions_of(orders[None, :, :], picks)
    answered = picks >= 0
    cells = true_positions[answered] * count + said_positions[answered]
    return np.bincount(cells, minlength=count * count).reshape(count, count)
