"""From results to a report: every plan's exhibits, the samples to look through, and what was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lad.errors import ModelError
from lad.images import load_image
from lad.model.overlay import observe_patches, strongest_layers
from lad.model.vlm import VisionLanguageModel
from lad.report.exhibits import Drawing, Report
from lad.report.samples import PictureBook, browsed, picture_of
from lad.reproduce.cells import Cell
from lad.reproduce.plans import PLANS
from lad.reproduce.preparing import Cost, Preparation
from lad.reproduce.results import Results
from lad.samples import Sample

BROWSED_SAMPLES = 1000
"""Most samples that a report lets one look through."""

_METHODS = ("vanilla", "pride", "raw_attention", "purified_attention", "agd", "agd_calibrated_layers")

Patches = Mapping[str, Sequence[NDArray[np.float64]]]


def observe_overlays(vlm: VisionLanguageModel, results: Results, cells: Sequence[Cell]) -> dict[Cell, Patches]:
    """Attention by patch of the first samples of each cell, one pass each.

    A model whose image tokens form no grid has none; nothing is drawn then.
    """
    found: dict[Cell, Patches] = {}
    for cell in cells:
        here = results.cells[cell]
        maps: dict[str, Sequence[NDArray[np.float64]]] = {}
        for sample in here.samples[: results.scope.overlays]:
            try:
                seen = observe_patches(vlm, sample, identifiers=cell.identifiers)
            except ModelError:
                return {}
            maps[sample.id] = strongest_layers(seen)
        found[cell] = maps
    return found


def make_report(
    results: Results, preparation: Preparation, cost: Cost, *, overlays: Mapping[Cell, Patches] | None = None
) -> Report:
    """All of a reproduction's report.

    Args:
        results: what was observed.
        preparation: the plans.
        cost: what it cost.
        overlays: attention by patch, from :func:`observe_overlays`.
    """
    exhibits = [exhibit for plan in preparation.plans for exhibit in plan.build(results)]
    overlays = overlays or {}
    book = PictureBook()
    cells = preparation.browsed
    groups = [_group(results, cell, BROWSED_SAMPLES // len(cells), book, overlays.get(cell, {})) for cell in cells]
    if overlay := _overlay_figure(results, overlays):
        exhibits.append(overlay)
    facts = results.facts
    return Report(
        title=f"Position bias in multi-image retrieval: {facts['model']}",
        lead=(
            f"{_named(preparation)} of arXiv 2605.11591, beside what was published.",
            f"{cost.observed:,} forward passes serve {cost.asks:,} methods and ablations in {cost.cells} settings. One"
            f" pass for each of them would have been {cost.alone:,}, {cost.times_fewer:.1f} times as many.",
        ),
        facts=(
            ("Model", f"{facts['model']}, revision {facts['revision']}, {facts['parameters']} parameters"),
            ("Data", results.scope.data.describe()),
            ("Orders", f"{results.scope.orders} per sample, seed {results.scope.seed}"),
            ("Run on", f"{facts['device']}, {facts['dtype']}; {facts['versions']}"),
        ),
        exhibits=tuple(exhibits),
        groups=tuple(groups),
        pictures=book.addresses(),
    )


def _named(preparation: Preparation) -> str:
    if len(preparation.plans) == len(PLANS):
        return "Tables 1 to 8 and figures 1, 2, 3, 5, 6 and 8"
    return ", ".join(plan.name for plan in preparation.plans).capitalize()


def _group(results: Results, cell: Cell, most: int, book: PictureBook, patches: Patches) -> dict[str, Any]:
    here = results.cells[cell]
    samples = here.samples[:most]
    return browsed(
        cell.folder,
        str(cell),
        samples,
        [[picture_of(book, source) for source in sample.images] for sample in samples],
        here.seen,
        here.calibrated.calibration,
        _METHODS,
        identifiers=here.plan.identity.identifiers,
        overlays=patches,
    )


def _overlay_figure(results: Results, overlays: Mapping[Cell, Patches]) -> Drawing | None:
    """The first browsed sample with attention by patch."""
    for cell, patches in overlays.items():
        for sample in results.cells[cell].samples:
            if sample.id in patches:
                return _drawn(results, cell, sample, patches[sample.id])
    return None


def _drawn(results: Results, cell: Cell, sample: Sample, maps: Sequence[NDArray[np.float64]]) -> Drawing:
    book = PictureBook()
    for index, source in enumerate(sample.images):
        book.add(str(index), load_image(source))
    data = {
        "pictures": list(book.addresses()),
        "maps": [np.round(values, 6).tolist() for values in maps],
        "answer": sample.answer,
        "caption": sample.caption,
    }
    notes = (
        f"Ours: {results.facts['model']}, {cell}, sample {sample.id}; mean of the two layers with most attention on"
        " images. Framed: the answer. Percent: the picture's share of all of the last token's attention.",
    )
    return Drawing("overlay", "Which patches the last token looks at", "stored_overlay", data, notes)
