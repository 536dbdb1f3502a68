"""Figures 1, 2, 3 and 8 of the paper: what is said, by position, from our observations."""

from __future__ import annotations

from typing import Any

import numpy as np

from lad.decisions import DecisionOptions, gather_evidence
from lad.evaluation.results import MethodResult
from lad.identifiers import make_identifiers
from lad.report.exhibits import Column, Drawing, Exhibit, Table
from lad.report.figures.style import label_of
from lad.reproduce.cells import Ask
from lad.reproduce.protocol import differences
from lad.reproduce.published import REFERENCE_MODEL, published
from lad.reproduce.results import Results
from lad.reproduce.scope import Scope
from lad.reproduce.tables import beside, compared

_SETS = ("words", "uppercase", "lowercase", "roman")
_PAIR = ("vanilla", "agd")
_SHOWN = 5  # samples of figure 3
_LINES = 60  # grey lines of a panel that can still be told apart


def confusion_percent(result: MethodResult) -> list[list[float]]:
    """A confusion matrix with rows that add up to 100, but for unanswered queries."""
    counts = result.metrics.confusion
    return np.round(100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), 2).tolist()  # type: ignore[no-any-return]


def confusion_asks(scope: Scope) -> list[Ask]:
    """What figure 1 asks for."""
    return scope.ask(scope.cell("random", 8), *_PAIR)


def confusion_figure(results: Results) -> list[Exhibit]:
    """Figure 1: confusion matrices, N = 8, published above ours."""
    cell = results.scope.cell("random", 8)
    theirs = published()["confusion"]
    names = list(make_identifiers("digits", 8))
    panels: list[Any] = [[theirs[method] for method in _PAIR]]
    titles = ["published"]
    measured = [results.get(cell, method) for method in _PAIR]
    if cell is not None:
        panels.append([confusion_percent(result) for result in measured if result is not None])
        titles.append("ours")
    data = {
        "panels": panels,
        "row_titles": titles,
        "column_titles": [label_of(method) for method in _PAIR],
        "identifiers": [names] * len(panels),
    }
    rows = []
    for method, result in zip(_PAIR, measured, strict=True):
        for position in range(8):
            theirs_here = theirs[method][position][position]
            ours = None if result is None else float(result.metrics.recall_by_position[position])
            change = None if ours is None else ours - theirs_here
            rows.append(
                {"method": label_of(method), "position": names[position], "published_recall": theirs_here,
                 "our_recall": ours, "change": change}
            )  # fmt: skip
    columns = (
        Column("method", "method"),
        Column("position", "true position"),
        Column("published_recall", "recall, published", 1),
        Column("our_recall", "recall, ours", 1),
        Column("change", "difference", 1, signed=True),
    )
    notes = differences(results, [cell] if cell else [])
    title = "Figure 1: what is said for each true position, random, N = 8"
    return [
        Drawing("figure1", title, "confusion_matrices", data, notes),
        Table("figure1_recall", "Figure 1 in numbers: the diagonals (percent)", columns, tuple(rows)),
    ]


def profile_figure(results: Results) -> list[Exhibit]:
    """Figure 2: score profiles by true position, N = 8."""
    cell = results.scope.cell("random", 8)
    if cell is None:
        return []
    seen = results.cells[cell].seen
    positions = seen.answer_positions
    profiles = [np.round(seen.log_probs[positions == true][:_LINES], 3).tolist() for true in range(8)]
    share = 100 * clusters(seen.log_probs, positions)
    notes = (
        f"Ours: {results.facts['model']}, {cell}; at most {_LINES} observations a panel in grey, their mean on top.",
        f"{share:.0f}% of the variance of the profiles lies between true positions: the more, the stabler the bias.",
    )
    data = {"profiles": profiles, "identifiers": list(make_identifiers("digits", 8))}
    title = "Figure 2: scores over positions, by true position, N = 8"
    return [Drawing("figure2", title, "conditional_profiles", data, notes)]


def clusters(log_probs: Any, positions: Any) -> float:
    """Share of the profiles' variance that lies between true positions, 0 to 1."""
    centred = log_probs - log_probs.mean(axis=1, keepdims=True)
    means = np.stack([centred[positions == true].mean(axis=0) for true in np.unique(positions)])
    weights = np.array([(positions == true).sum() for true in np.unique(positions)])
    total = ((centred - centred.mean(axis=0)) ** 2).sum()
    between = (weights[:, None] * (means - centred.mean(axis=0)) ** 2).sum()
    return float(between / total) if total > 0 else 0.0


def divergence_asks(scope: Scope) -> list[Ask]:
    """What figure 3 asks for."""
    return scope.ask(scope.cell("random", 4), "vanilla", "raw_attention", "purified_attention")


def divergence_figure(results: Results) -> list[Exhibit]:
    """Figure 3: attention beside the answer, N = 4, truth at position 4, or where the model errs most."""
    cell = results.scope.cell("random", 4)
    if cell is None:
        return []
    here = results.cells[cell]
    seen, known = here.seen, here.calibrated.calibration
    missed = seen.log_probs.argmax(axis=1) != seen.answer_positions
    by_position = np.bincount(seen.answer_positions[missed], minlength=4)
    at_last = np.flatnonzero(missed & (seen.answer_positions == 3))
    # a model may hardly ever be wrong about the position that the paper shows
    enough = len({seen.samples[row] for row in at_last}) >= _SHOWN
    place = 3 if enough else int(by_position.argmax())
    there = seen.answer_positions == place
    firsts: dict[str, int] = {}
    for row in np.flatnonzero(there & missed if by_position[place] else there):
        firsts.setdefault(seen.samples[row], int(row))
    chosen = list(firsts.values())[:_SHOWN]
    if not chosen:
        return []
    evidence = gather_evidence(seen.take(chosen), known, DecisionOptions())
    data = {
        "log_probs": np.round(seen.log_probs[chosen], 4).tolist(),
        "attention": np.round(evidence.raw_attention, 6).tolist(),
        "purified": np.round(evidence.posterior, 5).tolist(),
        "answer_position": place,
        "identifiers": list(make_identifiers("digits", 4)),
    }
    shown = f"the first {len(chosen)} such samples" if by_position[place] else f"{len(chosen)} samples"
    notes = [
        f"Ours: {results.facts['model']}, {cell}. Vanilla is wrong in {by_position[place]} of {int(there.sum())}"
        f" observations whose answer stands at position {place + 1}; shown: {shown}."
    ]
    if by_position[place]:
        of_missed = gather_evidence(seen.take(there & missed), known, DecisionOptions())
        raw, purified = (
            100 * float((values.argmax(axis=1) == place).mean())
            for values in (of_missed.raw_attention, of_missed.posterior)
        )
        notes.append(
            f"Of those it gets wrong, raw attention is highest on the right picture in {raw:.0f}%, purified attention"
            f" in {purified:.0f}%."
        )
    if place != 3:
        notes.append("The paper shows position 4, which this model hardly misses; shown is the one it misses most.")
    title = f"Figure 3: attention beside the answer, N = 4, truth at position {place + 1}"
    return [Drawing("figure3", title, "attention_beside_logits", data, tuple(notes))]


def identifier_asks(scope: Scope) -> list[Ask]:
    """What figure 8 asks for."""
    return [ask for kind in _SETS for ask in scope.ask(scope.cell("random", 4, kind), *_PAIR)]


def identifier_figure(results: Results) -> list[Exhibit]:
    """Figure 8: confusion matrices for other identifiers, N = 4, published beside ours."""
    theirs = published()["identifiers"]
    panels, rows, cells = [], [], []
    for kind in _SETS:
        cell = results.scope.cell("random", 4, kind)
        cells += [cell] if cell is not None else []
        ours = [results.get(cell, method) for method in _PAIR]
        panels.append(
            [theirs[method][kind] for method in _PAIR]
            + [None if result is None else confusion_percent(result) for result in ours]
        )
        for method, result in zip(_PAIR, ours, strict=True):
            # accuracy follows from the published matrix where every position is as frequent
            mean = float(np.mean(np.diagonal(np.array(theirs[method][kind]))))
            rows.append({"identifiers": kind, "method": label_of(method), **beside({"accuracy": mean}, result)})
    data = {
        "panels": panels,
        "row_titles": list(_SETS),
        "column_titles": [f"{label_of(m)}, {whose}" for whose in ("published", "ours") for m in _PAIR],
        "identifiers": [list(make_identifiers(kind, 4)) for kind in _SETS],
    }
    columns = (
        Column("identifiers", "identifiers"),
        Column("method", "method"),
        *compared("accuracy"),
        Column("our_rstd", "RStd, ours", 1),
        Column("our_consistency", "consistency, ours", 1),
    )
    notes = differences(results, cells)
    return [
        Drawing("figure8", "Figure 8: other identifiers, random, N = 4", "confusion_matrices", data, notes),
        Table(
            "figure8_accuracy",
            "Figure 8 in numbers: mean of the diagonals (percent)",
            columns,
            tuple(rows),
            (f"Published: {REFERENCE_MODEL}.",),
        ),
    ]
