"""The plans by name: what each asks for, and what it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lad.errors import RunError
from lad.report.exhibits import Exhibit
from lad.reproduce import drawings, mmiu, sensitivity, tables
from lad.reproduce.cells import Ask
from lad.reproduce.results import Results
from lad.reproduce.scope import Scope


@dataclass(frozen=True)
class ReproductionPlan:
    """One table or figure of the paper.

    Attributes:
        name: "table1" and so on.
        asks: what must be measured for it, within a scope.
        build: tables and drawings, from what was measured.
        timed: the N whose time and memory are measured.
    """

    name: str
    asks: Callable[[Scope], list[Ask]]
    build: Callable[[Results], Sequence[Exhibit]]
    timed: tuple[int, ...] = ()


def _nothing(scope: Scope) -> list[Ask]:
    return []


def _profiles(scope: Scope) -> list[Ask]:
    # figure 2 shows observations as they are
    return scope.ask(scope.cell("random", 8), "vanilla")


_DIVERGENCE: Any = ("vanilla", "raw_attention", "purified_attention", "agd")
_ALTERNATIVES: Any = ("vanilla", "sofa", "permutation_average", "agd")

PLANS: dict[str, ReproductionPlan] = {
    plan.name: plan
    for plan in (
        ReproductionPlan("table1", tables.main_asks(1, 4), tables.main_table(1, 4)),
        ReproductionPlan("table2", _nothing, tables.timing_table, timed=(4, 8, 12)),
        ReproductionPlan("table3", tables.transfer_asks, tables.transfer_table),
        ReproductionPlan("table4", tables.ablation_asks, tables.ablation_table),
        ReproductionPlan("table5", mmiu.mmiu_asks, mmiu.mmiu_table),
        ReproductionPlan("table6", tables.main_asks(6, 8), tables.main_table(6, 8)),
        ReproductionPlan(
            "table7",
            tables.by_setting_asks(*_DIVERGENCE),
            tables.by_setting_table(7, "divergence", "what attention knows beside what is said", *_DIVERGENCE),
        ),
        ReproductionPlan(
            "table8",
            tables.by_setting_asks(*_ALTERNATIVES),
            tables.by_setting_table(8, "alternatives", "other ways to take bias off", *_ALTERNATIVES),
        ),
        ReproductionPlan("figure1", drawings.confusion_asks, drawings.confusion_figure),
        ReproductionPlan("figure2", _profiles, drawings.profile_figure),
        ReproductionPlan("figure3", drawings.divergence_asks, drawings.divergence_figure),
        ReproductionPlan("figure5", sensitivity.candidates_asks, sensitivity.candidates_figure),
        ReproductionPlan("figure6", sensitivity.sensitivity_asks, sensitivity.sensitivity_figure),
        ReproductionPlan("figure8", drawings.identifier_asks, drawings.identifier_figure),
    )
}
"""All plans, in the order of a report."""


def choose_plans(names: Sequence[str]) -> tuple[ReproductionPlan, ...]:
    """The plans of some names; "all" stands for every one.

    Raises:
        RunError: no names, or an unknown one.
    """
    wanted = dict.fromkeys(name for given in names for name in (PLANS if given == "all" else (given,)))
    if unknown := [name for name in wanted if name not in PLANS]:
        raise RunError(f"There is no plan {unknown[0]!r}.", hint=f"Choose among: {', '.join(PLANS)}, all.")
    if not wanted:
        raise RunError("Say what to reproduce.", hint=f"Choose among: {', '.join(PLANS)}, all.")
    return tuple(plan for name, plan in PLANS.items() if name in wanted)
