"""The prompts of all methods, as data: ours lie beside this file in ``prompts.json``, and a file replaces any of them.

A file is a JSON object with some of the keys of :class:`PromptSet`, or, as for the other verbs, the two texts of
``matching`` alone::

    {"matching": {"numbered": "...", "listed": "..."},
     "self_consistency": {"numbered": "...", "listed": "...", "marker": "Final answer:"},
     "pointwise": {"text": "...", "yes": "yes", "no": "no"}}

The fields ``{marker}``, ``{yes}`` and ``{no}`` are filled in when the file is read.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from lad.errors import PromptError
from lad.prompts import MATCHING, PromptTemplate


@dataclass(frozen=True)
class PromptSet:
    """One wording for each kind of method.

    Attributes:
        matching: asks for the identifier; all methods on observations, and ``vanilla_text``.
        instruction: the same with a fairness instruction.
        chain_of_thought: asks for reasoning between tags first.
        self_consistency: asks for reasoning that ends with the marker and the identifier.
        marker: the words before the answer in ``self_consistency``.
        pointwise: asks about one picture, yes or no.
        yes: the answer that means yes.
        no: the answer that means no.
    """

    matching: PromptTemplate
    instruction: PromptTemplate
    chain_of_thought: PromptTemplate
    self_consistency: PromptTemplate
    marker: str
    pointwise: PromptTemplate
    yes: str
    no: str


_KEYS = {
    "matching": ("numbered", "listed"),
    "instruction": ("numbered", "listed"),
    "chain_of_thought": ("numbered", "listed"),
    "self_consistency": ("numbered", "listed", "marker"),
    "pointwise": ("text", "yes", "no"),
}


def load_prompts(path: str | os.PathLike[str] | None = None) -> PromptSet:
    """Our prompts, some of them replaced by those of a file.

    Raises:
        PromptError: the file is missing or no JSON object, has an unknown key, lacks one, or has an unknown field in a
            text.
    """
    data = json.loads(files("lad.evaluation").joinpath("prompts.json").read_text(encoding="utf-8"))
    data["matching"] = {"numbered": MATCHING.numbered, "listed": MATCHING.listed}
    changed = {} if path is None else _read(Path(path))
    for name, texts in changed.items():
        _check(name, texts, where=str(path))
    data.update(changed)

    def template(name: str, **fields: str) -> PromptTemplate:
        texts = data[name]
        where = f"{path}, {name!r}" if name in changed else name
        numbered, listed = (texts["text"],) * 2 if "text" in texts else (texts["numbered"], texts["listed"])
        for field, value in fields.items():
            numbered, listed = (text.replace("{" + field + "}", value) for text in (numbered, listed))
        return PromptTemplate(name=where, numbered=numbered, listed=listed)

    yes, no = data["pointwise"]["yes"], data["pointwise"]["no"]
    marker = data["self_consistency"]["marker"]
    return PromptSet(
        matching=template("matching"),
        instruction=template("instruction"),
        chain_of_thought=template("chain_of_thought"),
        self_consistency=template("self_consistency", marker=marker),
        marker=marker,
        pointwise=template("pointwise", yes=yes, no=no),
        yes=yes,
        no=no,
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise PromptError(f"Cannot be read ({error.strerror}).", where=str(file)) from error
    except ValueError as error:
        raise PromptError(f"Is no valid JSON ({error}).", where=str(file)) from error
    if not isinstance(data, dict):
        raise PromptError("Must be a JSON object.", where=str(file))
    if {"numbered", "listed"} <= data.keys():
        data.pop("name", None)
        return {"matching": data}
    if unknown := data.keys() - _KEYS.keys():
        raise PromptError(
            f"There is no prompt {sorted(unknown)[0]!r}.", where=str(file), hint=f"Known: {', '.join(_KEYS)}."
        )
    return data


def _check(name: str, texts: Any, where: str) -> None:
    keys = _KEYS[name]
    if not isinstance(texts, dict) or texts.keys() != set(keys) or not all(isinstance(t, str) for t in texts.values()):
        raise PromptError(f"The prompt {name!r} must have the texts {', '.join(keys)}, and no others.", where=where)
    for key in ("marker", "yes", "no"):
        if key in texts and not texts[key].strip():
            raise PromptError(f"The {key!r} of the prompt {name!r} is empty.", where=where)
