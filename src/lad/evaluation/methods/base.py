"""What a method is: what must be observed for it, and how it decides on that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lad.calibration import Calibration
from lad.decisions import DecisionOptions
from lad.errors import DecisionError, RunError
from lad.evaluation.prompts import PromptSet
from lad.evaluation.records import Record
from lad.evaluation.sources import Source, Views, as_orders, merge_key
from lad.observations import Observations
from lad.samples import to_candidates

Options: TypeAlias = Mapping[str, Any]
Kind = Literal["rule", "observations", "orders", "texts", "pointwise"]


@dataclass(frozen=True, eq=False)
class Setting:
    """What a method knows when it says what must be observed.

    Attributes:
        orders: (T, N), the orders that every sample is asked in.
        samples: S, how many samples the method is measured on.
        seed: of whatever the method draws.
        prompts: the wordings.
        identifiers: the N identifiers.
    """

    orders: NDArray[np.int64]
    samples: int
    seed: int
    prompts: PromptSet
    identifiers: tuple[str, ...]

    @property
    def candidates(self) -> int:
        """N."""
        return int(self.orders.shape[1])

    def base(self) -> Views:
        """The T orders themselves: what all methods of one pass share."""
        return Views("observations", self.samples, self.prompts.matching, as_orders(self.orders))

    def others(self, name: str, relative: NDArray[np.int64]) -> Views | None:
        """Permutations of the T orders, those left out that are among the T; None if nothing is left.

        Args:
            name: the source's.
            relative: (K, N); row k shows ``order[relative[k]]`` of each order.
        """
        base = set(as_orders(self.orders))
        orders = dict.fromkeys(order for order in as_orders(self.composed(relative)) if order not in base)
        return Views(name, self.samples, self.prompts.matching, tuple(orders)) if orders else None

    def composed(self, relative: NDArray[np.int64]) -> NDArray[np.int64]:
        """Every permutation of every order, (T * K, N); row t * K + k shows ``orders[t][relative[k]]``."""
        return np.asarray(self.orders[:, relative].reshape(-1, self.candidates))


@dataclass(frozen=True, eq=False)
class Gathered:
    """What was observed, for a method to decide on.

    Attributes:
        setting: as when the method said what it needs.
        content: by :func:`lad.evaluation.sources.merge_key`; all samples that the source covers.
        calibration: None if there is none.
        calibration_observations: what it was fitted to, where that is known.
        decisions: options of the decision rules.
    """

    setting: Setting
    content: Mapping[str, Observations | list[Record]]
    calibration: Calibration | None
    calibration_observations: Observations | None
    decisions: DecisionOptions

    def observations(self, source: Source) -> Observations:
        """The rows of the method's own samples, sample by sample."""
        content = self.content[merge_key(source)]
        assert isinstance(content, Observations)
        wanted = sum(source.passes(index) > 0 for index in range(self.setting.samples))
        total = len(dict.fromkeys(content.samples))
        per_sample = len(content) // max(total, 1)
        return content if wanted == total else content.take(np.arange(wanted * per_sample))

    def records(self, source: Source) -> list[Record]:
        """The records of the method's own samples."""
        content = self.content[merge_key(source)]
        assert isinstance(content, list)
        return content[: self.setting.samples]

    def views(self, sources: Sequence[Views | None], orders: NDArray[np.int64]) -> Observations:
        """The method's samples under certain orders, put together from sources that share their samples.

        Args:
            sources: among them, they hold all the orders.
            orders: (V, N); a repeated order is repeated.

        Returns:
            S * V rows, the orders of a sample in a row.

        Raises:
            RunError: an order was not observed.
        """
        parts, columns = [], {}
        width = 0
        for source in sources:
            if source is not None:
                parts.append(self.observations(source))
                columns.update({order: width + index for index, order in enumerate(source.orders)})
                width += len(source.orders)
        try:
            chosen = np.array([columns[order] for order in as_orders(orders)])
        except KeyError as error:
            raise RunError(f"The order {error.args[0]} was not observed.") from error
        # the rows of sample m lie at offset + m * V of each part; column c belongs to one part
        places = []
        offset = 0
        for part, source in zip(parts, [s for s in sources if s is not None], strict=True):
            samples = len(part) // len(source.orders)
            places.append(offset + np.arange(len(part)).reshape(samples, len(source.orders)))
            offset += len(part)
        table = np.concatenate(places, axis=1)
        joined = parts[0] if len(parts) == 1 else Observations.concatenate(parts)
        return joined.take(table[:, chosen].reshape(-1))

    def options(self, options: Options) -> DecisionOptions:
        """The run's decision options, with those replaced that the method was given."""
        own = {item.name: options[item.name] for item in fields(DecisionOptions) if item.name in options}
        return replace(self.decisions, **{name: value for name, value in own.items() if value is not None})


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a method came to.

    Attributes:
        picks: (S, T), candidates; -1 where a text held none.
        scores: (S, T, N) by candidate, or None where a method ranks nothing.
        passes: forward passes over a whole prompt, mean per query.
        tokens: tokens written, mean per query; 0 for all but text methods.
        facts: what else there is to say, as plain JSON values.
    """

    picks: NDArray[np.int64]
    scores: NDArray[np.float64] | None
    passes: float
    tokens: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)


def outcome_of_positions(
    scores: NDArray[np.float64], orders: NDArray[np.int64], times: int, passes: float, **facts: Any
) -> Outcome:
    """The outcome of scores (S * T, N) by position, the T orders of a sample in a row."""
    return outcome_of_candidates(to_candidates(scores, orders).reshape(-1, times, scores.shape[-1]), passes, **facts)


def outcome_of_candidates(scores: NDArray[np.float64], passes: float, **facts: Any) -> Outcome:
    """The outcome of scores (S, T, N) by candidate; a tie goes to the lowest candidate."""
    return Outcome(np.asarray(scores.argmax(axis=-1), dtype=np.int64), scores, passes, facts=facts)


@dataclass(frozen=True)
class Method:
    """One method.

    Attributes:
        name: its key in the registry.
        kind: "rule" (on the T observations that all rules share), "observations" (one of its own per query),
            "orders" (several orders per query), "texts" (answers in words) or "pointwise" (images one at a time).
        description: one line for people.
        sources: what must be observed.
        decide: picks and scores, from what was observed.
        defaults: its options with their defaults; None means the run's own.
        types: the types of options whose default is None.
        needs: an ability that a model may lack: "reasoning", "yes_no", "wordings"; or None.
    """

    name: str
    kind: Kind
    description: str
    sources: Callable[[Setting, Options], Sequence[Source | None]]
    decide: Callable[[Gathered, Options], Outcome]
    defaults: Options = field(default_factory=dict)
    types: Mapping[str, type] = field(default_factory=dict)
    needs: str | None = None

    def complete(self, given: Options) -> dict[str, Any]:
        """All options, those given checked and brought to their type.

        Raises:
            DecisionError: an unknown option, or a value of another type.
        """
        if unknown := given.keys() - self.defaults.keys():
            known = ", ".join(self.defaults) or "none"
            raise DecisionError(
                f"The method {self.name!r} has no option {sorted(unknown)[0]!r}.", hint=f"Its options: {known}."
            )
        return {**self.defaults, **{name: self._typed(name, value) for name, value in given.items()}}

    def _typed(self, name: str, value: Any) -> Any:
        wanted = self.types.get(name, type(self.defaults[name]))
        parsed: Any
        if isinstance(value, bool) or wanted is bool:
            parsed = {"true": True, "false": False}.get(str(value).lower()) if wanted is bool else None
        elif isinstance(value, (list, tuple)):
            parsed = list(value) if wanted is list else None
        else:
            try:
                parsed = None if wanted is list else wanted(value)
            except (TypeError, ValueError):
                parsed = None
            if wanted is int and isinstance(value, float) and value != parsed:
                parsed = None
        if parsed is None:
            raise DecisionError(
                f"The option {name!r} of the method {self.name!r} must be of type {wanted.__name__}, not {value!r}."
            )
        return parsed


DECISION_TYPES: dict[str, type] = {
    "top_k": int,
    "temperature": float,
    "layer_choice": str,
    "purification": str,
    "mixture": str,
    "use_prior": bool,
}
"""Options of the decision rules that a method may be given of its own."""
