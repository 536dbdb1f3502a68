"""Methods whose answer is a text, read by the one parser; and yes or no about each image alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lad.evaluation.methods.base import Gathered, Method, Options, Outcome, Setting, outcome_of_candidates
from lad.evaluation.prompts import PromptSet
from lad.evaluation.sources import SingleImages, Source, Texts, as_orders
from lad.parsing import parse_answer
from lad.prompts import PromptTemplate


def majority(votes: Sequence[int | None]) -> int | None:
    """The position with the most votes; of equals the one voted for first; None where there is no valid vote."""
    valid = Counter(vote for vote in votes if vote is not None)
    # a Counter lists equals in the order they were first met
    return valid.most_common(1)[0][0] if valid else None


def _texts(setting: Setting, name: str, template: PromptTemplate, options: Options) -> Texts:
    sampling = None
    if "paths" in options:
        from lad.model.answering import Sampling

        sampling = Sampling(options["paths"], options["temperature"], options["top_k"], setting.seed)
    return Texts(name, setting.samples, template, as_orders(setting.orders), options["max_new_tokens"], sampling)


def _text_method(
    name: str,
    description: str,
    template: Callable[[PromptSet], PromptTemplate],
    defaults: Options,
    *,
    marked: bool = False,
    needs: str | None = None,
) -> Method:
    def source(setting: Setting, options: Options) -> Texts:
        return _texts(setting, name.replace("_", "-"), template(setting.prompts), options)

    def sources(setting: Setting, options: Options) -> Sequence[Source]:
        return [source(setting, options)]

    def conclude(gathered: Gathered, options: Options) -> Outcome:
        setting = gathered.setting
        marker = setting.prompts.marker if marked else None
        records = gathered.records(source(setting, options))
        said = [
            [
                majority([parse_answer(text, setting.identifiers, marker) for text in texts])
                for texts in record["answers"]
            ]
            for record in records
        ]
        picks = [
            [-1 if p is None else int(order[p]) for p, order in zip(row, setting.orders, strict=True)] for row in said
        ]
        tokens = float(np.mean([record["tokens"] for record in records]))
        return Outcome(np.array(picks, dtype=np.int64), None, passes=1, tokens=tokens)

    return Method(name, "texts", description, sources, conclude, defaults, needs=needs)


def _pairs(setting: Setting, options: Options) -> SingleImages:
    prompts = setting.prompts
    return SingleImages(
        "pointwise", setting.samples, prompts.pointwise, prompts.yes, prompts.no, candidates=setting.candidates
    )


def _pointwise(gathered: Gathered, options: Options) -> Outcome:
    setting = gathered.setting
    odds = np.array([record["odds"] for record in gathered.records(_pairs(setting, options))])
    repeated: Any = np.repeat(odds[:, None, :], len(setting.orders), axis=1)
    return outcome_of_candidates(repeated, setting.candidates)


TEXT_METHODS: tuple[Method, ...] = (
    _text_method(
        "vanilla_text",
        "the model's own words, as published: two tokens, the valid number in them",
        lambda prompts: prompts.matching,
        {"max_new_tokens": 2},
    ),
    _text_method(
        "chain_of_thought",
        "reasoning between tags first, then the identifier",
        lambda prompts: prompts.chain_of_thought,
        {"max_new_tokens": 1024},
        needs="reasoning",
    ),
    _text_method(
        "self_consistency",
        "majority of several sampled lines of reasoning",
        lambda prompts: prompts.self_consistency,
        {"paths": 10, "temperature": 0.7, "top_k": 40, "max_new_tokens": 512},
        marked=True,
        needs="reasoning",
    ),
)

POINTWISE = Method(
    name="pointwise",
    kind="pointwise",
    description="each image alone, yes or no; the most certain yes",
    sources=lambda setting, options: [_pairs(setting, options)],
    decide=_pointwise,
    needs="yes_no",
)
