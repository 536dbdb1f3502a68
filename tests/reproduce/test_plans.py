"""The plans: what each asks for, that nothing is asked twice, and what that costs."""

import pytest

from lad.errors import RunError
from lad.evaluation.methods import parse_method
from lad.reproduce.cells import Ask, Cell
from lad.reproduce.data import SceneData
from lad.reproduce.plans import PLANS, choose_plans
from lad.reproduce.preparing import prepare
from lad.reproduce.scope import Scope
from lad.samples import Sample


class CheapData(SceneData):
    """Scenes whose pictures are not drawn, for counting."""

    def _draw(self, cell, count, split, seed):
        pixel = bytes(3)
        return [Sample("x", (pixel,) * cell.candidates, 0, f"{split}{index}") for index in range(count)]


def scope(**changes):
    return Scope(CheapData(), **changes)


def test_all_tables_and_figures_are_planned():
    wanted = {f"table{n}" for n in range(1, 9)} | {f"figure{n}" for n in (1, 2, 3, 5, 6, 8)}
    assert set(PLANS) == wanted
    assert choose_plans(["all"]) == tuple(PLANS.values())
    assert [plan.name for plan in choose_plans(["figure1", "table1", "figure1"])] == ["table1", "figure1"]
    with pytest.raises(RunError, match="no plan 'table9'"):
        choose_plans(["table9"])
    with pytest.raises(RunError, match="Say what"):
        choose_plans([])


def test_every_ask_is_a_method_on_data_that_is_there():
    for plan in PLANS.values():
        for ask in plan.asks(scope()):
            parse_method(ask.method)
            assert scope().data.offers(ask.cell)


def test_all_costs_a_quarter_of_a_pass_for_each_at_most(vlm):
    preparation = prepare(vlm, choose_plans(["all"]), scope())
    cost = preparation.cost()
    assert cost.times_fewer >= 4
    # no cell and no ask comes twice
    cells = [one.cell for one in preparation.cells]
    assert len(cells) == len(set(cells)) == 26
    assert len(preparation.asks) == len(set(preparation.asks))


def test_the_cost_of_a_small_plan_can_be_counted_by_hand(vlm):
    few = scope(samples=10, orders=3, overlays=2)
    cost = prepare(vlm, choose_plans(["table7"]), few).cost()
    # two settings, N = 4 and 8: 10 samples in 3 orders, 5 calibration samples in N orders, 2 for attention by patch
    assert cost.observed == 4 * 30 + 2 * 5 * (4 + 8) + 4 * 2
    # four methods, two of which calibrate
    assert cost.alone == 4 * 4 * 30 + 2 * 2 * 5 * (4 + 8) + 4 * 2
    assert (cost.asks, cost.cells) == (16, 4)


def test_ablations_need_no_pass_of_their_own(vlm):
    few = scope(samples=6)
    one = prepare(vlm, choose_plans(["table7"]), few)
    more = prepare(vlm, choose_plans(["table7", "table4", "table3"]), few)
    assert more.cost().observed == one.cost().observed
    assert more.cost().alone > 1.5 * one.cost().alone


def test_draws_of_calibration_samples_do_not_count_as_saved(vlm):
    few, many = (prepare(vlm, choose_plans(["figure6"]), scope(draws=draws)) for draws in (1, 9))
    assert few.cost() == many.cost()
    assert len(many.asks) > 3 * len(few.asks)


def test_what_the_scope_says():
    some = scope(samples=20, permutation_samples=3, text_samples=2, text_tokens=9)
    assert some.count(Cell("scenes", "random", 8)) == 20
    assert some.count(Cell("scenes", "random", 8, "roman")) == some.count(Cell("scenes", "random", 5)) == 10
    assert some.permutations() == "permutation_average:samples=3"
    assert some.texts("chain_of_thought") == "chain_of_thought:samples=2,max_new_tokens=9"
    assert scope(text_samples=0).texts("chain_of_thought") is None
    assert some.own("sofa") == "sofa:samples=10"
    assert some.cell("random", 4, dataset=1) is None
    assert Ask(Cell("scenes", "random", 4), "agd").standard
    assert not Ask(Cell("scenes", "random", 4), "agd", size=1).standard
    for wrong in ({"samples": 0}, {"orders": 1}, {"text_samples": -1}):
        with pytest.raises(RunError):
            scope(**wrong)
