"""Tables 1 to 8 of the paper: published beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lad.evaluation.results import MethodResult
from lad.report.exhibits import Column, Table
from lad.report.figures.style import label_of
from lad.reproduce.cells import Ask, Cell
from lad.reproduce.protocol import differences, special_notes
from lad.reproduce.published import main_rows, rows_of
from lad.reproduce.results import Results
from lad.reproduce.scope import Scope

SETTINGS = ("random", "adversarial")


def compared(*names: str) -> tuple[Column, ...]:
    """For each figure: published, ours and the difference."""
    labels = {"accuracy": "accuracy", "rstd": "RStd", "consistency": "consistency", "accuracy_std": "std over orders"}
    columns = []
    for name in names:
        label = labels[name]
        columns += [Column(f"published_{name}", f"{label}, published", 1), Column(f"our_{name}", f"{label}, ours", 1)]
        columns.append(Column(f"change_{name}", "difference", 1, signed=True))
    return tuple(columns)


def beside(published: Mapping[str, Any], result: MethodResult | None) -> dict[str, Any]:
    """A row's figures: published, ours, and ours minus published; None where there is none."""
    row: dict[str, Any] = {}
    for name in ("accuracy", "rstd", "consistency", "accuracy_std"):
        theirs = published.get(name)
        ours = None if result is None else getattr(result.metrics, name)
        change = None if theirs is None or ours is None else ours - theirs
        row |= {f"published_{name}": theirs, f"our_{name}": ours, f"change_{name}": change}
    if result is not None:
        row["low"], row["high"] = result.intervals.accuracy
        row["interval"] = f"{row['low']:.1f} to {row['high']:.1f}"
    return row


_INTERVAL = Column("interval", "ours, 95% interval")


def as_method(scope: Scope, name: str) -> str | None:
    """A method of a table, on as many samples as its cost allows; None if it is left out."""
    if name in ("chain_of_thought", "self_consistency"):
        return scope.texts(name)
    if name == "permutation_average":
        return scope.permutations()
    return scope.own(name) if name in ("instruction", "sofa") else name


def main_asks(number: int, candidates: int) -> Any:
    """What table 1 or 6 asks for."""

    def asks(scope: Scope) -> list[Ask]:
        methods = dict.fromkeys(row["method"] for row in main_rows(number))
        return [
            ask
            for setting in SETTINGS
            for ask in scope.ask(scope.cell(setting, candidates), *(as_method(scope, name) for name in methods))
        ]

    return asks


def main_table(number: int, candidates: int) -> Any:
    """Builds table 1 or 6: accuracy, RStd and consistency of six methods, beside three published models."""

    def build(results: Results) -> list[Table]:
        rows, shown, cells = [], [], []
        for theirs in main_rows(number):
            cell = results.scope.cell(theirs["setting"], candidates)
            result = results.get(cell, as_method(results.scope, theirs["method"]))
            shown.append(result)
            cells += [cell] if cell is not None else []
            rows.append(
                {
                    "setting": theirs["setting"],
                    "method": label_of(theirs["method"]),
                    "model": theirs["model"],
                    **beside(theirs, result),
                }
            )
        columns = (
            Column("setting", "setting"),
            Column("method", "method"),
            Column("model", "published model"),
            *compared("accuracy"),
            _INTERVAL,
            *compared("rstd", "consistency", "accuracy_std"),
        )
        full = max((len(results.cells[cell].samples) for cell in cells), default=0)
        notes = differences(results, cells, model="as in the rows") + special_notes(results, shown, full)
        title = f"Table {number}: main results, N = {candidates} (percent)"
        return [Table(f"table{number}", title, columns, tuple(rows), notes)]

    return build


def timing_table(results: Results) -> list[Table]:
    """Table 2: time and memory of vanilla, PriDe and AGD."""
    ours = {(row["method"], row["candidates"]): row for row in results.timings}
    vanilla = {row["candidates"]: row for row in rows_of("efficiency") if row["method"] == "vanilla"}
    rows = []
    for theirs in rows_of("efficiency"):
        mine = ours.get((theirs["method"], theirs["candidates"]), {})
        base = vanilla[theirs["candidates"]]
        my_base = ours.get(("vanilla", theirs["candidates"]), {})
        rows.append(
            {
                "method": label_of(theirs["method"]),
                "candidates": theirs["candidates"],
                "published_seconds": theirs["latency_s"],
                "published_ratio": theirs["latency_s"] / base["latency_s"],
                "published_memory": theirs["memory_mb"] - base["memory_mb"],
                "our_seconds": mine.get("seconds"),
                "our_ratio": mine["seconds"] / my_base["seconds"] if mine and my_base else None,
                "our_memory": mine.get("memory_mb"),
            }
        )
    columns = (
        Column("method", "method"),
        Column("candidates", "N", 0),
        Column("published_seconds", "published, s per 1,000 samples", 0),
        Column("published_ratio", "published, times vanilla", 2),
        Column("published_memory", "published, MB above vanilla", 0),
        Column("our_seconds", "ours, s per 1,000 samples", 1),
        Column("our_ratio", "ours, times vanilla", 2),
        Column("our_memory", "ours, MB above the loaded model", 0),
    )
    facts = results.facts
    notes = (
        f"Published: LLaVA-OneVision-1.5-8B on a GPU. Ours: {facts['model']} on {facts['device']}, in {facts['dtype']},"
        f" measured on {results.scope.timed} samples and scaled to 1,000; images are encoded once beforehand.",
        "Calibration is left out, as it is made once. Vanilla and PriDe run without the attention probe, AGD with it;"
        " the decision rules themselves are included.",
        "The quickest of five repeats counts. Memory is the highest allocated during the passes, above that of the"
        " loaded model; only GPUs tell it.",
    )
    return [Table("table2", "Table 2: time and memory", columns, tuple(rows), notes)]


def _place(scope: Scope, name: str) -> Cell | None:
    """A published place such as "flickr8k/random" in our data, N = 4."""
    dataset, setting = name.split("/")
    return scope.cell(setting, 4, dataset=0 if dataset == "coco" else 1)


def transfer_asks(scope: Scope) -> list[Ask]:
    """What table 3 asks for."""
    asks = []
    for row in rows_of("transfer"):
        tested, calibrated = _place(scope, row["test_on"]), _place(scope, row["calibrate_on"])
        if tested is not None and calibrated is not None:
            # with the calibration at home too, to tell what the journey costs
            asks += [_transferred(tested, calibrated, row["method"]), Ask(tested, row["method"])]
    return asks


def _transferred(tested: Cell, calibrated: Cell, method: str) -> Ask:
    # vanilla has no calibration
    return Ask(tested, method) if method == "vanilla" else Ask(tested, method, calibrated_on=calibrated)


def transfer_table(results: Results) -> list[Table]:
    """Table 3: calibrate on one dataset or difficulty, test on another; ours also with the calibration at home."""
    rows, cells = [], []
    for theirs in rows_of("transfer"):
        tested, calibrated = _place(results.scope, theirs["test_on"]), _place(results.scope, theirs["calibrate_on"])
        result = home = None
        if tested is not None and calibrated is not None:
            result = results[_transferred(tested, calibrated, theirs["method"])]
            home = results.get(tested, theirs["method"])
            cells += [tested, calibrated]
        rows.append(
            {
                "calibrate_on": theirs["calibrate_on"],
                "test_on": theirs["test_on"],
                "method": label_of(theirs["method"]),
                **beside(theirs, result),
                "home": None if home is None else home.metrics.accuracy,
            }
        )
    columns = (
        Column("calibrate_on", "calibrated on"),
        Column("test_on", "tested on"),
        Column("method", "method"),
        *compared("accuracy"),
        Column("home", "ours, calibrated at home", 1),
        *compared("rstd", "consistency", "accuracy_std"),
    )
    notes = differences(results, cells)
    names = results.scope.data.datasets
    second = names[1] if len(names) > 1 else "no data"
    notes += (f"In the place of coco: {names[0]}. In the place of flickr8k: {second}.",)
    return [Table("table3", "Table 3: transfer of the calibration, N = 4 (percent)", columns, tuple(rows), notes)]


ABLATION: tuple[str, ...] = (
    "purified_attention:use_prior=false",
    "purified_attention",
    "agd:layer_choice=all",
    "agd:use_prior=false",
    "agd:top_k=1",
    "agd",
    "agd:top_k=4",
    "agd:top_k=8",
)
"""The rows of table 4, as methods, in the published order."""


def ablation_asks(scope: Scope) -> list[Ask]:
    """What table 4 asks for."""
    return scope.ask(scope.cell("adversarial", 4), "vanilla", *ABLATION)


def ablation_table(results: Results) -> list[Table]:
    """Table 4: attention prior, choice of layers and K."""
    cell = results.scope.cell("adversarial", 4)
    strategies = {"attention_readout": "attention alone", "all_layers": "all layers", "dynamic": "layers by mass"}
    rows = [
        {
            "strategy": strategies[theirs["strategy"]],
            "prior": "with" if theirs["attention_prior"] else "without",
            "top_k": theirs["top_k"],
            **beside(theirs, results.get(cell, method)),
        }
        for theirs, method in zip(rows_of("ablation"), ABLATION, strict=True)
    ]
    columns = (
        Column("strategy", "strategy"),
        Column("prior", "attention prior"),
        Column("top_k", "K", 0),
        *compared("accuracy"),
        _INTERVAL,
        *compared("rstd", "consistency", "accuracy_std"),
    )
    notes = differences(results, [cell] if cell else [])
    if cell is not None and (layers := results.cells[cell].seen.layers) < 8:
        notes += (f"The model has {layers} layers, so K = 8 takes all of them.",)
    return [Table("table4", "Table 4: ablation, adversarial, N = 4 (percent)", columns, tuple(rows), notes)]


def by_setting_asks(*methods: str) -> Any:
    """What tables 7 and 8 ask for."""

    def asks(scope: Scope) -> list[Ask]:
        named = [as_method(scope, method) for method in methods]
        return [
            ask for setting in SETTINGS for count in (4, 8) for ask in scope.ask(scope.cell(setting, count), *named)
        ]

    return asks


def by_setting_table(number: int, part: str, subject: str, *methods: str) -> Any:
    """Builds table 7 or 8: accuracy of some methods in four settings."""

    def build(results: Results) -> list[Table]:
        rows, shown, cells = [], [], []
        for theirs in rows_of(part):
            cell = results.scope.cell(theirs["setting"], theirs["candidates"])
            cells += [cell] if cell is not None else []
            for method in methods:
                result = results.get(cell, as_method(results.scope, method))
                shown.append(result)
                rows.append(
                    {
                        "setting": theirs["setting"],
                        "candidates": theirs["candidates"],
                        "method": label_of(method),
                        "passes": None if result is None else result.metrics.passes,
                        **beside({"accuracy": theirs[method]}, result),
                    }
                )
        columns = (
            Column("setting", "setting"),
            Column("candidates", "N", 0),
            Column("method", "method"),
            Column("passes", "passes a query", 0),
            *compared("accuracy"),
            _INTERVAL,
            Column("our_rstd", "RStd, ours", 1),
            Column("our_consistency", "consistency, ours", 1),
        )
        full = max((len(results.cells[cell].samples) for cell in cells), default=0)
        notes = differences(results, cells) + special_notes(results, shown, full)
        return [Table(f"table{number}", f"Table {number}: {subject} (percent)", columns, tuple(rows), notes)]

    return build
