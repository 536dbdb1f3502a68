"""A diagnosis as one page: what it comes to in words, a table, and six figures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lad.diagnose.diagnosis import CALIBRATION_SAMPLES, SIGNIFICANCE, Diagnosis
from lad.report.exhibits import Column, Drawing, Exhibit, Report, Table
from lad.report.figures.style import label_of

_LINES = 40


def findings(found: Diagnosis) -> tuple[str, ...]:
    """The diagnosis in a few sentences."""
    return (_bias(found), _attention(found), _gain(found), _enough(found))


def _bias(found: Diagnosis) -> str:
    said = found.find("vanilla").metrics
    shown = found.dependence
    names = found.identity.identifiers
    if found.verdict == "unbiased":
        return (
            f"Unbiased: over {found.samples} samples, no dependence of its answers on the position can be shown"
            f" (p = {shown.p_value:.2g}; less than {SIGNIFICANCE} would count)."
        )
    picks = f"{said.flip_rate or 0:.0f}% of its picks move when the images are put in another order"
    if found.verdict == "practically unbiased":
        return f"Practically unbiased: scores depend on the position a little ({shown.strength:.2f} nats), but {picks}."
    share = said.confusion.sum(axis=0) / max(said.confusion.sum(), 1)
    best = int(np.argmax(share))
    word = "Strongly" if found.verdict == "strongly biased" else "Mildly"
    return (
        f"{word} position-biased: {picks}; recall differs by {said.rstd or 0:.0f} points (RStd) with the place of"
        f" the truth. It says {names[best]} in {100 * share[best]:.0f}% of its answers, where {100 / len(names):.3g}%"
        " is fair."
        f" {100 * shown.conditional:.0f}% of the bias depends on where the truth stands, which no single prior over"
        " positions takes off."
    )


def _attention(found: Diagnosis) -> str:
    said = found.find("vanilla").metrics.accuracy
    best = int(np.argmax(found.layers.evidence))
    purified = found.find("purified_attention").metrics.accuracy
    chosen = ", ".join(str(layer) for layer in np.argsort(-found.layers.chosen)[:2])
    verdict = (
        "knows better than its answers"
        if found.layers.purified[best] > said + 2
        else "knows no better than its answers"
    )
    return (
        f"Its attention {verdict}: it answers {said:.0f}% rightly; layer {best}, which carries most evidence, points at"
        f" the right image in {found.layers.purified[best]:.0f}%. The layers with most image attention ({chosen}) give"
        f" {purified:.0f}%."
    )


def _gain(found: Diagnosis) -> str:
    agd, calibrated = found.find("agd"), found.find("agd_calibrated_layers")
    averaged = found.find("permutation_average").metrics
    points, (low, high) = agd.gain
    count = found.identity.candidates
    verdict = "would gain" if low > 0 else "would lose" if high < 0 else "would change little:"
    return (
        f"AGD {verdict} {points:+.1f} points of accuracy ({low:+.1f} to {high:+.1f}), from"
        f" {found.find('vanilla').metrics.accuracy:.1f}% to {agd.metrics.accuracy:.1f}%, at one pass a query; with"
        f" layers chosen in calibration {calibrated.metrics.accuracy:.1f}%. Averaging over {count} orders, at"
        f" {count} passes, gives {averaged.accuracy:.1f}%."
    )


def _enough(found: Diagnosis) -> str:
    if CALIBRATION_SAMPLES not in found.spread:
        return "There are too few calibration samples to tell whether five are enough."
    low, high = np.percentile(found.spread[CALIBRATION_SAMPLES], [5, 95])
    told = f"AGD reaches {low:.1f} to {high:.1f}% (nine of ten draws of five)"
    if found.enough is None:
        return f"Five calibration samples: {told}; with more at hand it could be told whether more would help."
    most = max(found.spread)
    verdict = "Five calibration samples are enough" if found.enough else "Five calibration samples are few"
    return f"{verdict}: {told}, and {np.mean(found.spread[most]):.1f}% on average with {most}."


def make_page(found: Diagnosis, facts: Mapping[str, str], data: str) -> Report:
    """The page as a report.

    Args:
        found: the diagnosis.
        facts: about the model, as :func:`lad.reproduce.running.model_facts` gives them.
        data: what it was diagnosed on, in words.
    """
    names = list(found.identity.identifiers)
    vanilla, agd = found.find("vanilla").metrics, found.find("agd").metrics
    shares = [
        np.round(100 * m.confusion / np.maximum(m.confusion.sum(axis=1, keepdims=True), 1), 2).tolist()
        for m in (vanilla, agd)
    ]
    positions = found.seen.answer_positions
    profiles = [np.round(found.seen.log_probs[positions == true][:_LINES], 3).tolist() for true in range(len(names))]
    recalls = {name: found.find(name).metrics.as_dict()["recall_by_position"] for name in ("vanilla", "pride", "agd")}
    exhibits: list[Exhibit] = [
        _methods(found),
        Drawing(
            "confusion", "What is said for each true position", "confusion_matrices",
            {"panels": [shares], "row_titles": [""], "column_titles": ["vanilla", "AGD"], "identifiers": [names]},
        ),
        Drawing(
            "layers", "What each layer's attention knows", "accuracy_by_layer",
            {
                "raw": found.layers.raw.tolist(), "purified": found.layers.purified.tolist(),
                "chosen": found.layers.chosen.tolist(), "said": vanilla.accuracy, "chance": 100 / len(names),
            },
        ),
        Drawing(
            "recall", "Recall by true position", "recall_by_position", {"recalls": recalls, "identifiers": names}
        ),
        Drawing("bias", "Conditional bias", "bias_heatmap", {"bias": found.bias.tolist(), "identifiers": names}),
        Drawing(
            "calibration", "Is a handful of calibration samples enough?", "calibration_spread",
            {"sizes": {str(size): values for size, values in found.spread.items()}, "without": vanilla.accuracy},
        ),
        Drawing(
            "profiles", "Scores over positions, by true position", "conditional_profiles",
            {"profiles": profiles, "identifiers": names},
        ),
    ]  # fmt: skip
    return Report(
        title=f"Position bias of {facts['model']}",
        lead=findings(found),
        facts=(
            ("Model", f"{facts['model']}, revision {facts['revision']}, {facts['parameters']} parameters"),
            ("Data", f"{data}; N = {len(names)}, {found.samples} samples in all {len(names)} cyclic orders"),
            ("Calibration", f"the first {CALIBRATION_SAMPLES} of {found.pool} samples that are not answered"),
            ("Run on", f"{facts['device']}, {facts['dtype']}; {facts['versions']}"),
        ),
        exhibits=tuple(exhibits),
        one_page=True,
    )


def _methods(found: Diagnosis) -> Table:
    columns = (
        Column("method", "method"),
        Column("passes", "passes", 0),
        Column("accuracy", "accuracy", 1),
        Column("interval", "95% interval"),
        Column("gain", "gain", 1, signed=True),
        Column("rstd", "RStd", 1),
        Column("consistency", "consistency", 1),
    )
    rows: list[dict[str, str | float | None]] = []
    for one in found.methods:
        low, high = one.intervals.accuracy
        rows.append(
            {
                "method": label_of(one.method),
                "passes": one.metrics.passes,
                "accuracy": one.metrics.accuracy,
                "interval": f"{low:.1f} to {high:.1f}",
                "gain": None if one.method == "vanilla" else one.gain[0],
                "rstd": one.metrics.rstd,
                "consistency": one.metrics.consistency,
            }
        )
    return Table("methods", "What each method makes of the same observations (percent)", columns, tuple(rows))
