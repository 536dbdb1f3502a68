"""What was observed, and whatever is asked of it: decisions and figures without a further pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lad.calibration import Calibration, fit_calibration
from lad.decisions import DecisionOptions
from lad.errors import RunError
from lad.evaluation.calibrating import Calibrated
from lad.evaluation.methods import Gathered, parse_method
from lad.evaluation.plan import Plan
from lad.evaluation.results import MethodResult, measure
from lad.evaluation.sources import merge_key
from lad.observations import Observations
from lad.reproduce.cells import CALIBRATION_SAMPLES, Ask, Cell
from lad.reproduce.scope import Scope
from lad.samples import Sample


@dataclass(frozen=True, eq=False)
class Observed:
    """One cell once it is observed.

    Attributes:
        plan: of its evaluation.
        samples: S samples.
        seen: their S * T observations.
        calibrated: on the published number of samples.
        pool: observations of all its calibration samples under all cyclic shifts.
        results: figures of the methods asked for, by label, with that calibration.
    """

    plan: Plan
    samples: list[Sample]
    seen: Observations
    calibrated: Calibrated
    pool: Observations
    results: Mapping[str, MethodResult]

    def calibration(self, size: int, draw: int, seed: int) -> Calibration:
        """A calibration on some of the pool's samples.

        Args:
            size: how many; all there are if there are fewer.
            draw: 0 for the first ones, others for random ones.
            seed: of the draws.
        """
        names = list(dict.fromkeys(self.pool.samples))
        if draw == 0 and size == CALIBRATION_SAMPLES:
            return self.calibrated.calibration
        chosen = names[:size]
        if draw:
            drawn = np.random.default_rng([seed, size, draw]).choice(len(names), min(size, len(names)), replace=False)
            chosen = [names[index] for index in sorted(drawn)]
        wanted = set(chosen)
        rows = np.array([name in wanted for name in self.pool.samples])
        known = self.calibrated.calibration
        return fit_calibration(self.pool.take(rows), known.identity, average=known.average, made_with=known.made_with)


@dataclass(eq=False)
class Results:
    """All that a report is made from.

    Attributes:
        scope: what was measured on.
        cells: what was observed.
        facts: about the model, by name: "model", "layers", "image_size" and so on.
        lacks: abilities that the model lacks, see :data:`lad.evaluation.methods.ABILITIES`.
        timings: of table 2, as :mod:`lad.reproduce.timing` gives them.
    """

    scope: Scope
    cells: Mapping[Cell, Observed]
    facts: Mapping[str, str]
    lacks: tuple[str, ...] = ()
    timings: tuple[Mapping[str, Any], ...] = ()
    _known: dict[Ask, MethodResult] = field(default_factory=dict, repr=False)

    def __getitem__(self, ask: Ask) -> MethodResult:
        """The figures of an ask.

        Raises:
            RunError: its cell was not observed, or it needs observations that were not made.
        """
        if ask not in self._known:
            if ask.cell not in self.cells or ask.calibration_cell not in self.cells:
                raise RunError(f"There are no observations of {ask.cell}.")
            here = self.cells[ask.cell]
            self._known[ask] = here.results[ask.method] if ask.standard else self._decide(ask, here)
        return self._known[ask]

    def get(self, cell: Cell | None, method: str | None, **how: Any) -> MethodResult | None:
        """The figures of a method on a cell; None where either is None."""
        return None if cell is None or method is None else self[Ask(cell, method, **how)]

    def calibration(self, ask: Ask) -> Calibration:
        """The calibration that an ask is answered with."""
        return self.cells[ask.calibration_cell].calibration(ask.size, ask.draw, self.scope.seed)

    def _decide(self, ask: Ask, here: Observed) -> MethodResult:
        spec = parse_method(ask.method)
        setting = here.plan.setting(spec)
        gathered = Gathered(
            setting=setting,
            content={merge_key(setting.base()): here.seen},
            calibration=self.calibration(ask),
            calibration_observations=None,
            decisions=DecisionOptions(),
        )
        if any(source != setting.base() for source in spec.method.sources(setting, spec.options)):
            raise RunError(f"{spec.label!r} cannot be decided from the observations of {ask.cell} alone.")
        outcome = spec.method.decide(gathered, spec.options)
        answers = np.array([sample.answer for sample in here.samples], dtype=np.int64)
        return measure(spec, outcome, answers[: len(outcome.picks)], here.plan.order_array)
