"""What differs between the published figures and ours, in words; it stands beside every comparison."""

from __future__ import annotations

from collections.abc import Iterable

from lad.evaluation.grid import lacking
from lad.evaluation.results import MethodResult
from lad.reproduce.cells import Cell
from lad.reproduce.published import REFERENCE_MODEL, SAMPLES
from lad.reproduce.results import Results


def differences(results: Results, cells: Iterable[Cell], *, model: str = REFERENCE_MODEL) -> tuple[str, ...]:
    """Notes for a table or figure that sets published figures beside ours.

    Args:
        results: ours.
        cells: what ours were measured on.
        model: the published model or models.
    """
    measured = [cell for cell in dict.fromkeys(cells) if cell in results.cells]
    if not measured:
        return (f"Published: {model}. Nothing of ours: no data for it were given.",)
    facts = results.facts
    numbers = sorted({len(results.cells[cell].samples) for cell in measured})
    told = " or ".join(f"{number:,}" for number in numbers)
    fitted = sorted({results.cells[cell].calibrated.calibration.samples for cell in measured})
    notes = [
        f"Model: published {model}; ours {facts['model']} ({facts['parameters']} parameters, {facts['layers']} layers,"
        f" images {facts['image_size']}; published images 336 x 336).",
        f"Data: published MS-COCO val2014, {SAMPLES:,} samples a setting; ours {results.scope.data.describe()},"
        f" {told} samples, {results.scope.orders} orders each (published: {SAMPLES:,}, 5).",
        "Prompts are in our own wording. Vanilla of ours is the most probable identifier; the published script reads"
        " generated text.",
        f"Calibration: ours on {' or '.join(map(str, fitted))} samples that share no image with those answered; the"
        " published script takes the first five of those it answers. Layers: ours are chosen among all, the published"
        " code's among 21 to 35 of 36.",
    ]
    if any(cell.dataset == "scenes" and cell.setting == "adversarial" for cell in measured):
        notes.append(
            "Adversarial scenes differ from the right one in one attribute; the published distractors are the most"
            " similar photographs by CLIP."
        )
    return tuple(notes)


def special_notes(results: Results, measured: Iterable[MethodResult | None], full: int) -> tuple[str, ...]:
    """Notes about single methods: abilities that the model lacks, and fewer samples than the others.

    Args:
        results: ours.
        measured: the methods' figures.
        full: how many samples the others were measured on.
    """
    notes: dict[str, None] = {}
    for result in measured:
        if result is None:
            continue
        name = result.spec.name
        if missing := lacking(result, results.lacks):
            notes[f"{name} needs {missing}, which this model lacks."] = None
        if result.samples < full:
            notes[f"{name}: measured on the first {result.samples} samples."] = None
        if result.metrics.answered < 100:
            notes[f"{name}: {result.metrics.answered:.0f}% of the answers hold a valid identifier."] = None
        tokens = result.spec.options.get("max_new_tokens")
        if tokens is not None and tokens < result.spec.method.defaults["max_new_tokens"]:
            limit = result.spec.method.defaults["max_new_tokens"]
            notes[f"{name}: at most {tokens} new tokens (published: {limit})."] = None
    return tuple(notes)
