"""The registry of methods, and how a run names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lad.decisions import RULES, rule_names
from lad.errors import DecisionError
from lad.evaluation.methods.base import Method
from lad.evaluation.methods.orders import SEVERAL_ORDERS
from lad.evaluation.methods.rules import OWN_OBSERVATIONS, rule_method
from lad.evaluation.methods.words import POINTWISE, TEXT_METHODS

PERMUTATION_AVERAGE = "permutation_average"

METHODS: tuple[str, ...] = (*RULES, PERMUTATION_AVERAGE)
"""What is measured unless a run says otherwise: the rules of one pass, and what they are to be compared with."""

ABILITIES: Mapping[str, str] = {
    "reasoning": "reasoning in text",
    "yes_no": "yes or no about one image",
    "wordings": "prompts worded otherwise than in its training",
}
"""Abilities that a small model may lack, and that some methods need."""

_OTHERS = {method.name: method for method in (*OWN_OBSERVATIONS, *SEVERAL_ORDERS, *TEXT_METHODS, POINTWISE)}

# the order of tables
_TABLE = (
    "vanilla", "vanilla_text", "instruction", "chain_of_thought", "self_consistency", "pointwise",
    "pride", "pride_authors", "sofa", "sofa_between_images", "sofa_blend", "sofa_blend_all", "attention_sorting",
    "permutation_average", "permutation_average_prob", "permutation_borda", "permutation_kemeny", "permutation_random",
    "raw_attention", "purified_attention", "agd", "agd_calibrated_layers", "agd_shifts", "agd_adaptive",
)  # fmt: skip


def method_names() -> tuple[str, ...]:
    """The names of all methods, in the order of tables; rules that other packages add come last."""
    return (*_TABLE, *(name for name in rule_names() if name not in RULES))


def find_method(name: str) -> Method:
    """The method of a name.

    Raises:
        DecisionError: there is none.
    """
    if name in _OTHERS:
        return _OTHERS[name]
    if name in rule_names():
        return rule_method(name)
    raise DecisionError(f"There is no method {name!r}.", hint=f"Choose among: {', '.join(method_names())}.")


@dataclass(frozen=True)
class MethodSpec:
    """A method as a run asks for it.

    Attributes:
        name: of the method.
        options: all its options.
        label: what tables call it.
        samples: how many samples, from the first, it is measured on; None for all.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    samples: int | None = None

    @property
    def method(self) -> Method:
        """The method itself."""
        return find_method(self.name)


def parse_method(text: str | Mapping[str, Any]) -> MethodSpec:
    """A method as people write it.

    Args:
        text: "agd_shifts", "agd_shifts:shifts=4,samples=50", or a mapping ``{"name": "agd_shifts", "shifts": 4}``.
            ``samples`` and ``label`` may be given to any method, besides its own options.

    Raises:
        DecisionError: an unknown method or option, or a value that is none.
    """
    if isinstance(text, str):
        name, _, rest = text.partition(":")
        pairs = [part.partition("=") for part in rest.split(",") if part.strip()]
        if bad := [key for key, equals, _ in pairs if not equals]:
            raise DecisionError(f"The option {bad[0]!r} of the method {name!r} has no value.", hint="Write NAME=VALUE.")
        given: dict[str, Any] = {key.strip(): value.strip() for key, _, value in pairs}
    else:
        given = dict(text)
        name = str(given.pop("name", ""))
    method = find_method(name)
    label, samples = given.pop("label", None), given.pop("samples", None)
    options = method.complete(given)
    if samples is not None and (not str(samples).isdigit() or int(samples) < 1):
        raise DecisionError(f"The method {name!r} must be measured on at least 1 sample, not {samples!r}.")
    told = ", ".join(
        f"{key}={options[key]:g}" if isinstance(options[key], float) else f"{key}={options[key]}" for key in given
    )
    default = f"{name} ({told})" if told else name
    return MethodSpec(name, options, str(label or default), None if samples is None else int(samples))


def parse_methods(texts: Iterable[str | Mapping[str, Any] | MethodSpec]) -> tuple[MethodSpec, ...]:
    """Several methods; "all" stands for every one, "default" for :data:`METHODS`, "rules" for the rules of one pass.

    Raises:
        DecisionError: as :func:`parse_method`, or two methods with the same label.
    """
    specs: list[MethodSpec] = []
    for text in texts:
        if isinstance(text, MethodSpec):
            specs.append(text)
            continue
        group = (
            {"all": method_names(), "default": METHODS, "rules": tuple(RULES)}.get(text, (text,))
            if isinstance(text, str)
            else (text,)
        )
        specs += [parse_method(one) for one in group]
    labels = [spec.label for spec in specs]
    if repeated := next((label for label in labels if labels.count(label) > 1), None):
        raise DecisionError(f"Two methods are called {repeated!r}.", hint="Name each once, or give them labels.")
    return tuple(specs)
