"""Methods of one pass: the decision rules, and those that ask or attend differently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lad.decisions import decide, find_rule
from lad.evaluation.methods.base import (
    DECISION_TYPES,
    Gathered,
    Method,
    Options,
    Outcome,
    Setting,
    outcome_of_positions,
)
from lad.evaluation.sources import Sorted, Source, Views, as_orders


def rule_method(name: str) -> Method:
    """A decision rule as a method; its options may be given for it alone."""
    return Method(
        name=name,
        kind="rule",
        description=find_rule(name).description,
        sources=lambda setting, options: [setting.base()],
        decide=lambda gathered, options: _by_rule(name, gathered, options),
        defaults=dict.fromkeys(DECISION_TYPES),
        types=DECISION_TYPES,
    )


def _by_rule(name: str, gathered: Gathered, options: Options) -> Outcome:
    setting = gathered.setting
    seen = gathered.observations(setting.base())
    scores = decide(name, seen, gathered.calibration, gathered.options(options))
    return outcome_of_positions(scores, seen.orders, len(setting.orders), find_rule(name).passes)


def _observed(
    name: str,
    description: str,
    make: Callable[[Setting, Options], Source],
    passes: Callable[[Options], float],
    *,
    defaults: Options | None = None,
    needs: str | None = None,
) -> Method:
    """A method that makes observations of its own and takes their log-probabilities as they are."""

    def sources(setting: Setting, options: Options) -> Sequence[Source]:
        return [make(setting, options)]

    def conclude(gathered: Gathered, options: Options) -> Outcome:
        seen = gathered.observations(make(gathered.setting, options))
        return outcome_of_positions(seen.log_probs, seen.orders, len(gathered.setting.orders), passes(options))

    return Method(name, "observations", description, sources, conclude, defaults or {}, needs=needs)


def _instruction(setting: Setting, options: Options) -> Views:
    return replace(setting.base(), name="instruction", template=setting.prompts.instruction)


def _sofa(setting: Setting, options: Options) -> Views:
    from lad.model.interventions.sofa import SoftAttention

    return replace(setting.base(), name="sofa", intervention=SoftAttention(**options))


def _sorting(setting: Setting, options: Options) -> Sorted:
    return Sorted("sorting", setting.samples, setting.prompts.matching, as_orders(setting.orders), options["rounds"])


def _sofa_method(name: str, form: str, scope: str, description: str) -> Method:
    options = {"sigma": 0.5, "form": form, "scope": scope, "every": 2}
    return _observed(name, description, _sofa, lambda options: 1, defaults=options)


OWN_OBSERVATIONS: tuple[Method, ...] = (
    _observed(
        "instruction",
        "vanilla, told that the order means nothing",
        _instruction,
        lambda options: 1,
        needs="wordings",
    ),
    _sofa_method("sofa", "mask", "all_image_tokens", "SoFA as in the published comparison: log(sigma) on masked pairs"),
    _sofa_method(
        "sofa_between_images", "mask", "between_images", "SoFA, log(sigma) on pairs of different images alone"
    ),
    _sofa_method(
        "sofa_blend", "blend", "between_images", "SoFA by its authors: blend of two attentions between images"
    ),
    _sofa_method("sofa_blend_all", "blend", "all_image_tokens", "SoFA, blend of two attentions among all image tokens"),
    _observed(
        "attention_sorting",
        "images sorted by attention, the most attended last, and asked again",
        _sorting,
        lambda options: float(options["rounds"] + 1),
        defaults={"rounds": 2},
    ),
)
