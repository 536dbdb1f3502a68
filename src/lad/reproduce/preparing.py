"""Before anything is observed: the samples of every cell, what will be observed, and what that costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lad.decisions import RULES, find_rule, rule_names
from lad.errors import RunError
from lad.evaluation.methods import parse_method
from lad.evaluation.plan import Plan
from lad.evaluation.run import make_plan
from lad.evaluation.sources import Asking, Texts, merged
from lad.model.observe import observe
from lad.model.vlm import VisionLanguageModel
from lad.reproduce.cells import CALIBRATION_SAMPLES, Ask, Cell
from lad.reproduce.plans import ReproductionPlan
from lad.reproduce.scope import Scope
from lad.reproduce.timing import passes_for_timing
from lad.samples import Sample


@dataclass(frozen=True, eq=False)
class CellPlan:
    """What is observed in a cell.

    Attributes:
        cell: which.
        samples: to answer.
        pool: to calibrate on, as many as any ask wants.
        plan: of all methods asked for with the cell's own calibration.
    """

    cell: Cell
    samples: list[Sample]
    pool: list[Sample]
    plan: Plan

    @property
    def passes(self) -> int:
        """Forward passes, calibration included."""
        return self.plan.passes + len(self.pool) * self.cell.candidates


@dataclass(frozen=True)
class Cost:
    """Forward passes of a reproduction.

    Attributes:
        observed: passes that it makes.
        alone: passes if every method and ablation made its own, each distinct one once.
        asks: how many distinct methods and ablations there are.
        cells: how many cells.
        seconds: how long it is likely to take; None if that was not measured.
    """

    observed: int
    alone: int
    asks: int
    cells: int
    seconds: float | None = None

    @property
    def times_fewer(self) -> float:
        """How many times fewer passes are made."""
        return self.alone / max(self.observed, 1)


@dataclass(frozen=True, eq=False)
class Preparation:
    """Everything that is fixed before the first pass.

    Attributes:
        plans: the tables and figures.
        scope: how much is measured.
        cells: what is observed, cell by cell.
        asks: what is asked of it, each thing once.
        browsed: cells whose samples the report lets one look through.
    """

    plans: tuple[ReproductionPlan, ...]
    scope: Scope
    cells: tuple[CellPlan, ...]
    asks: tuple[Ask, ...]

    @property
    def browsed(self) -> tuple[Cell, ...]:
        """Those with N = 4 or 8 and digits; the first one if there are none."""
        main = [one.cell for one in self.cells if one.cell.candidates in (4, 8) and one.cell.identifiers == "digits"]
        return tuple(main) or tuple(one.cell for one in self.cells[:1])

    @property
    def timed(self) -> tuple[int, ...]:
        """The N whose time is measured."""
        wanted = sorted({count for plan in self.plans for count in plan.timed})
        return tuple(count for count in wanted if self.scope.cell("random", count) is not None)

    def cost(self) -> Cost:
        """Forward passes, those of time measurements and of attention by patch included on both sides."""
        shared = passes_for_timing(self.scope.timed, self.timed) + self.scope.overlays * len(self.browsed)
        observed = sum(one.passes for one in self.cells) + shared
        plans = {one.cell: one for one in self.cells}
        # the draws of figure 6 are ours, not the paper's, so they do not count as runs that are saved
        distinct = [ask for ask in self.asks if ask.draw == 0]
        alone = sum(_alone(ask, plans) for ask in distinct) + shared
        return Cost(observed, alone, len(distinct), len(self.cells))


def prepare(vlm: VisionLanguageModel, plans: Sequence[ReproductionPlan], scope: Scope) -> Preparation:
    """Fix what is observed for all plans together.

    Raises:
        RunError: the data hold nothing for any of the plans.
        LadError: a sample cannot be used.
    """
    asks = tuple(dict.fromkeys(ask for plan in plans for ask in plan.asks(scope)))
    timed = [scope.cell("random", count) for plan in plans for count in plan.timed]
    cells = dict.fromkeys(cell for ask in asks for cell in (ask.cell, ask.calibration_cell))
    # time is measured with a calibration, so its cells are observed in any case
    cells |= dict.fromkeys(cell for cell in timed if cell is not None)
    if not cells and not any(plan.timed for plan in plans):
        raise RunError(
            f"The data hold nothing for {', '.join(plan.name for plan in plans)}.",
            hint="Tables 1, 4, 7, 8 need N = 4, table 6 and figures 1, 2 N = 8; table 5 needs MMIU.",
        )
    return Preparation(tuple(plans), scope, tuple(_cell_plan(vlm, cell, asks, scope) for cell in cells), asks)


def _cell_plan(vlm: VisionLanguageModel, cell: Cell, asks: Sequence[Ask], scope: Scope) -> CellPlan:
    samples = scope.data.test(cell, scope.count(cell))
    size = max([CALIBRATION_SAMPLES, *(ask.size for ask in asks if ask.calibration_cell == cell)])
    methods = list(dict.fromkeys(ask.method for ask in asks if ask.cell == cell and ask.standard)) or ["vanilla"]
    # the label is the text itself, by which results are found again
    specs = [replace(parse_method(text), label=text) for text in methods]
    plan = make_plan(vlm, samples, methods=specs, orders=scope.orders, seed=scope.seed, identifiers=cell.identifiers)
    return CellPlan(cell, samples, scope.data.calibration(cell, size), plan)


def _alone(ask: Ask, cells: dict[Cell, CellPlan]) -> int:
    """Passes of one method run by itself, with a calibration of its own."""
    here = cells[ask.cell]
    spec = parse_method(ask.method)
    sources = merged([s for s in spec.method.sources(here.plan.setting(spec), spec.options) if s is not None])
    passes = sum(source.passes(index) for source in sources for index in range(source.samples))
    if spec.name in rule_names() and (spec.name not in RULES or find_rule(spec.name).needs_calibration):
        passes += min(ask.size, len(cells[ask.calibration_cell].pool)) * ask.calibration_cell.candidates
    return passes


def estimate(vlm: VisionLanguageModel, preparation: Preparation) -> Cost:
    """The cost with the time it is likely to take, from a few passes at the smallest and the largest N.

    Time of a pass is taken to be linear in N; methods in words are tried once.
    """
    cost = preparation.cost()
    by_size = {one.cell.candidates: one for one in preparation.cells}
    ends = sorted({min(by_size), max(by_size)})
    rates = [_seconds_a_pass(vlm, by_size[count]) for count in ends]
    slope = (rates[-1] - rates[0]) / max(ends[-1] - ends[0], 1)
    per_text: dict[str, float] = {}
    seconds = 0.0
    for one in preparation.cells:
        a_pass = max(rates[0] + slope * (one.cell.candidates - ends[0]), min(rates))
        seconds += len(one.pool) * one.cell.candidates * a_pass
        for source in one.plan.sources:
            passes = sum(source.passes(index) for index in range(source.samples))
            if isinstance(source, Texts):
                if source.name not in per_text:
                    per_text[source.name] = _seconds_a_text(vlm, one, source)
                seconds += passes * max(per_text[source.name], a_pass)
            else:
                seconds += passes * a_pass
    timed = preparation.scope.timed
    seconds += sum(passes_for_timing(timed, [n]) * (rates[0] + slope * (n - ends[0])) for n in preparation.timed)
    return replace(cost, seconds=seconds)


def _seconds_a_pass(vlm: VisionLanguageModel, one: CellPlan) -> float:
    samples = [vlm.prepare_sample(sample) for sample in one.samples[:4]]
    orders = one.plan.order_array[:2]
    observe(vlm, samples[:1], orders[:1], identifiers=one.cell.identifiers)  # warms up
    started = time.perf_counter()
    observe(vlm, samples, orders, identifiers=one.cell.identifiers)
    return (time.perf_counter() - started) / (len(samples) * len(orders))


def _seconds_a_text(vlm: VisionLanguageModel, one: CellPlan, source: Texts) -> float:
    group = [vlm.prepare_sample(one.samples[0])]
    once = replace(source, samples=1)
    started = time.perf_counter()
    once.gather(vlm, group, 0, Asking(one.plan.identity.identifiers, one.plan.batch_tokens))
    return (time.perf_counter() - started) / len(np.asarray(source.orders))
