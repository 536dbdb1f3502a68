"""`lad reproduce` from end to end on the shipped model, small."""

import json
import sys

import numpy as np
import pytest

from lad.cli import main
from lad.decisions import DecisionOptions, decide, picks
from lad.report.exhibits import Drawing, Table
from lad.report.stored import read_report
from lad.reproduce.cells import Ask, Cell
from lad.reproduce.data import SceneData
from lad.reproduce.plans import choose_plans
from lad.reproduce.preparing import estimate, prepare
from lad.reproduce.published import main_rows
from lad.reproduce.reporting import make_report, observe_overlays
from lad.reproduce.running import observe_cells
from lad.reproduce.scope import Scope
from lad.reproduce.timing import without_attention

NAMES = ["table1", "table2", "table3", "table4", "table8", "figure1", "figure2", "figure3", "figure6"]
SCOPE = Scope(
    SceneData(), samples=6, orders=3, permutation_samples=2, text_samples=1, text_tokens=4, sizes=(1, 5, 6), draws=2,
    timed=2, overlays=1,
)  # fmt: skip
ADVERSARIAL = Cell("scenes", "adversarial", 4)


@pytest.fixture(scope="module")
def preparation(vlm):
    return prepare(vlm, choose_plans(NAMES), SCOPE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def results(vlm, preparation, folder):
    return observe_cells(vlm, preparation, folder=folder, name="shipped", lacks=("reasoning",))


@pytest.fixture(scope="module")
def report(vlm, preparation, results):
    overlays = observe_overlays(vlm, results, preparation.browsed)
    return make_report(results, preparation, preparation.cost(), overlays=overlays)


def test_as_many_passes_are_made_as_were_announced(vlm, preparation, monkeypatch):
    """Counted at the model, without a folder, so that nothing is found."""
    made = []
    forward = vlm.model.forward

    def counted(*args, **kwargs):
        tokens = kwargs["input_ids"]
        made.append(len(tokens) if tokens.shape[1] > 5 else 0)  # steps after the prompt are no passes
        return forward(*args, **kwargs)

    few = prepare(vlm, choose_plans(["table4", "figure6"]), SCOPE)
    monkeypatch.setattr(vlm.model, "forward", counted)
    observe_cells(vlm, few)
    assert sum(made) == few.cost().observed - SCOPE.overlays * len(few.browsed)


def test_the_time_is_estimated_from_a_few_passes(vlm, preparation):
    cost = estimate(vlm, preparation)
    assert cost.seconds > 0
    assert cost.observed == preparation.cost().observed


def test_ablations_are_decided_from_the_same_observations(results):
    here = results.cells[ADVERSARIAL]
    known = here.calibrated.calibration
    for method, options in (
        ("agd:top_k=4", DecisionOptions(top_k=4)),
        ("agd:temperature=9", DecisionOptions(temperature=9)),
        ("agd:layer_choice=all", DecisionOptions(layer_choice="all")),
        ("agd:use_prior=false", DecisionOptions(use_prior=False)),
    ):
        picked = picks(decide("agd", here.seen, known, options), here.seen.orders)
        assert results[Ask(ADVERSARIAL, method)].metrics.accuracy == pytest.approx(
            100 * (picked == here.seen.answers).mean()
        )


def test_other_calibrations_are_used_where_they_are_asked_for(results):
    here = results.cells[ADVERSARIAL]
    assert here.calibration(5, 0, 0) is here.calibrated.calibration
    assert [here.calibration(size, 0, 0).samples for size in (1, 6)] == [1, 6]
    away = Ask(ADVERSARIAL, "agd", calibrated_on=Cell("scenes", "random", 4))
    known = results.cells[away.calibrated_on].calibrated.calibration
    picked = picks(decide("agd", here.seen, known), here.seen.orders)
    assert results[away].metrics.accuracy == pytest.approx(100 * (picked == here.seen.answers).mean())
    drawn = [here.calibration(1, draw, 0).bias for draw in range(1, 6)]
    assert any(not np.array_equal(drawn[0], other) for other in drawn[1:])


def test_a_second_run_makes_no_pass(vlm, preparation, results, folder, monkeypatch):
    from lad.reproduce import running

    def fail(*args, **kwargs):
        raise AssertionError("a pass was made")

    monkeypatch.setattr(vlm.model, "forward", fail)
    monkeypatch.setattr(running, "time_methods", lambda *args: [])
    again = observe_cells(vlm, preparation, folder=folder)
    for cell, here in results.cells.items():
        assert np.array_equal(again.cells[cell].seen.log_probs, here.seen.log_probs)
        assert [r.as_dict() for r in again.cells[cell].results.values()] == [r.as_dict() for r in here.results.values()]


def test_published_stands_beside_ours_with_the_difference(report, results):
    table = report.find("table1")
    assert isinstance(table, Table)
    assert len(table.rows) == len(main_rows(1))
    for row, theirs in zip(table.rows, main_rows(1), strict=True):
        assert row["published_accuracy"] == theirs["accuracy"]
        assert row["change_accuracy"] == pytest.approx(row["our_accuracy"] - theirs["accuracy"])
    agd = next(row for row in table.rows if row["method"] == "AGD" and row["setting"] == "adversarial")
    assert agd["our_accuracy"] == results[Ask(ADVERSARIAL, "agd")].metrics.accuracy
    told = " ".join(table.notes)
    for words in (
        "our own wording",
        "share no image",
        "MS-COCO",
        "scenes",
        "needs reasoning in text",
        "first 1 samples",
    ):
        assert words in told


def test_every_plan_shows_something(report):
    shown = {exhibit.name for exhibit in report.exhibits}
    assert set(NAMES) <= shown
    assert "overlay" in shown
    assert all(exhibit.notes for exhibit in report.exhibits if exhibit.name in NAMES)
    figure = report.find("figure1")
    assert isinstance(figure, Drawing)
    ours = np.array(figure.data["panels"][1])
    assert ours.shape == (2, 8, 8)
    table3 = report.find("table3")
    assert [row["our_accuracy"] is not None for row in table3.rows] == [False] * 6 + [True] * 6


def test_time_is_measured_with_and_without_attention(vlm, report):
    rows = {(row["method"], row["candidates"]): row for row in report.find("table2").rows}
    assert len(rows) == 9
    assert all(row["our_seconds"] > 0 for row in rows.values())
    sample = SceneData().test(ADVERSARIAL, 1)
    from lad.model.observe import observe

    with without_attention(vlm):
        blind = observe(vlm, sample, np.arange(4)[None])
    seeing = observe(vlm, sample, np.arange(4)[None])
    assert np.array_equal(blind.log_probs, seeing.log_probs)
    assert (blind.attention == 1).all()
    assert not (seeing.attention == 1).any()


def test_the_samples_can_be_looked_through(report, results):
    group = next(group for group in report.groups if group["name"] == ADVERSARIAL.folder)
    here = results.cells[ADVERSARIAL]
    assert [sample["id"] for sample in group["samples"]] == [sample.id for sample in here.samples]
    picked = picks(decide("agd", here.seen, here.calibrated.calibration), here.seen.orders).reshape(6, 3)
    column = group["methods"].index("agd")
    assert [sample["picks"][column] for sample in group["samples"]] == picked.tolist()
    assert "patches" in group["samples"][0]
    assert "patches" not in group["samples"][1]


@pytest.fixture
def run(monkeypatch, capfd):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["lad", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = 0 if stop.code is None else int(stop.code)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


def test_the_command_announces_its_cost_and_writes_the_report(run, tmp_path):
    out = tmp_path / "run"
    options = ("--samples", 3, "--orders", 2, "--text-samples", 0, "--permutation-samples", 1, "--out", out)
    code, printed, _ = run("reproduce", "table7", "figure3", *options)
    assert code == 0
    first = printed.splitlines()[0]
    assert "forward passes in 4 settings, about" in first
    assert "times as many" in printed.splitlines()[1]
    assert "Table 7" in printed
    assert {path.name for path in out.iterdir()} >= {"report.html", "report.md", "report.json", "tables", "figures"}
    stored = read_report(out)
    # the report is made anew without a model, and goes into a document
    (tmp_path / "README.md").write_text("<!-- lad report: table7 -->\n<!-- end of table7 -->\n")
    code, _, _ = run("report", out, "--into", tmp_path / "README.md")
    assert code == 0
    assert stored.find("table7").cells(stored.find("table7").rows[0])[0] in (tmp_path / "README.md").read_text()
    page = (out / "report.html").read_bytes()
    assert run("report", out)[0] == 0
    assert (out / "report.html").read_bytes() == page
    code, printed, _ = run("reproduce", "table7", *options, "--json")
    assert code == 0
    assert json.loads(printed)["passes"] > 0


def test_mistakes_end_with_one_message(run, tmp_path):
    for arguments, message in (
        (("reproduce", "table9"), "no plan 'table9'"),
        (("reproduce", "table1", "--data", tmp_path), "no manifest"),
        (("report", tmp_path), "Holds no report"),
        (("report", tmp_path, "--only", "table1"), "take the place of the whole"),
    ):
        code, _, errors = run(*arguments)
        assert code == 2
        assert message in errors
        assert "Traceback" not in errors
