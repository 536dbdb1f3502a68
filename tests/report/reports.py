"""Reports for tests, made of invented numbers."""

from __future__ import annotations

import numpy as np
from PIL import Image

from lad.identifiers import log_softmax
from lad.observations import Observations
from lad.report.exhibits import Column, Drawing, Report, Table
from lad.report.samples import PictureBook, browsed, picture_of
from lad.samples import Sample, cyclic_orders
from tests.decisions.factory import make_calibration

COLUMNS = (
    Column("method", "method"),
    Column("accuracy", "accuracy", 1),
    Column("change", "difference", 1, signed=True),
)
ROWS = (
    {"method": "vanilla", "accuracy": 51.25, "change": None},
    {"method": "a|b <i>", "accuracy": 94.94, "change": 43.69},
    {"method": "agd_10%", "accuracy": 9.0, "change": -42.04},
    {"method": "none", "accuracy": None, "change": 0.01},
)
TABLE = Table("table1", "Table 1: main results", COLUMNS, ROWS, ("Ours is small & slow.",))
DRAWING = Drawing(
    "figure1",
    "Figure 1: confusion",
    "confusion_matrices",
    {
        "panels": [[np.eye(2).tolist(), None]],
        "row_titles": ["ours"],
        "column_titles": ["vanilla", "AGD"],
        "identifiers": [["1", "2"]],
    },
    ("Made up.",),
)
METHODS = ("vanilla", "pride", "purified_attention", "agd")


def make_report(samples: int = 0, side: int = 24, pictures: int | None = None) -> Report:
    """A report with a table, a figure and, if wanted, samples to look through."""
    if not samples:
        return Report("A report", ("In short.",), (("Model", "tiny"),), (TABLE, DRAWING))
    book = PictureBook()
    some = make_samples(samples, side, pictures)
    numbers = [[picture_of(book, image) for image in sample.images] for sample in some]
    seen = make_seen(some)
    overlays = {some[0].id: [np.full((2, 2), 0.1 * k) for k in range(4)]}
    group = browsed(
        "g", "invented, N = 4", some, numbers, seen, make_calibration(3), METHODS, identifiers="1234", overlays=overlays
    )
    return Report("A report", ("In short.",), (), (TABLE, DRAWING), (group,), book.addresses())


def make_samples(number: int, side: int = 24, pictures: int | None = None) -> list[Sample]:
    """Samples of four noisy pictures, the caption of the third trying to break out of the page."""
    rng = np.random.default_rng(0)
    shown = [
        Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((side, side))
        for _ in range(pictures or 4 * number)
    ]
    samples = []
    for index in range(number):
        images = tuple(shown[(4 * index + k) % len(shown)] for k in range(4))
        caption = "</script><script>alert(1)</script>" if index == 2 else f"picture number {index}"
        samples.append(Sample(caption, images, answer=int(rng.integers(4)), id=f"sample-{index:04d}"))
    return samples


def make_seen(samples: list[Sample]) -> Observations:
    """Observations under the cyclic shifts; the answer and the second position draw most."""
    rng = np.random.default_rng(1)
    orders = np.tile(cyclic_orders(4), (len(samples), 1))
    answers = np.repeat([sample.answer for sample in samples], 4)
    log_probs = rng.normal(size=(len(orders), 4)) + 1.5 * (orders == answers[:, None])
    log_probs[:, 1] += 1.0
    attention = rng.gamma(1.0, size=(len(orders), 5, 4)) / 40 + 0.1 * (orders == answers[:, None])[:, None, :]
    return Observations(
        log_softmax(log_probs), attention, orders, answers, tuple(s.id for s in samples for _ in range(4))
    )
