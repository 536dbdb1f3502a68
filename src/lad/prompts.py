"""Prompt templates, as data.

A template is the one user text that follows the images. Its wording is ours; a JSON file replaces it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Formatter

from lad.errors import PromptError

_FIELDS = {"count", "identifiers", "caption"}


@dataclass(frozen=True)
class PromptTemplate:
    """The text after the images, with the fields ``{count}``, ``{identifiers}`` and ``{caption}``.

    Attributes:
        name: what reports call it.
        numbered: used when the identifiers are "1".."N".
        listed: used for any other identifiers.
    """

    name: str
    numbered: str
    listed: str

    def __post_init__(self) -> None:
        for kind in ("numbered", "listed"):
            _check_fields(getattr(self, kind), where=f"prompt {self.name!r}, {kind!r}")

    def render(self, identifiers: Sequence[str], caption: str) -> str:
        """The text for one caption.

        Args:
            identifiers: the N identifiers, in the order of the positions.
            caption: the caption; must hold more than white space.

        Raises:
            PromptError: the caption is empty.
        """
        if not caption.strip():
            raise PromptError("The caption is empty.", hint="Give a sentence that describes the wanted image.")
        text = self.numbered if is_numbered(identifiers) else self.listed
        return text.format(count=len(identifiers), identifiers=", ".join(identifiers), caption=caption.strip())

    @property
    def digest(self) -> str:
        """Short hash of the wording (the name left out); calibrations depend on it."""
        wording = {key: value for key, value in asdict(self).items() if key != "name"}
        return hashlib.sha256(json.dumps(wording, sort_keys=True).encode()).hexdigest()[:16]


def is_numbered(identifiers: Sequence[str]) -> bool:
    """Whether the identifiers are "1".."N"."""
    return list(identifiers) == [str(number + 1) for number in range(len(identifiers))]


def _check_fields(text: str, where: str) -> None:
    try:
        parts = [part for part in Formatter().parse(text) if part[1] is not None]
        text.encode()
    except ValueError as error:  # UnicodeEncodeError too: half of a surrogate pair
        raise PromptError(f"The text is no valid template ({error}).", where=where) from error
    fields = {str(field) for _, field, _, _ in parts}
    if any(form or conversion for _, _, form, conversion in parts):
        raise PromptError("A field is written {name}, with nothing behind the name.", where=where)
    if unknown := fields - _FIELDS:
        raise PromptError(
            f"Unknown field {sorted(unknown)[0]!r}.", where=where, hint=f"Known fields: {', '.join(sorted(_FIELDS))}."
        )
    if "caption" not in fields:
        raise PromptError("The field {caption} is missing.", where=where)


MATCHING = PromptTemplate(
    name="matching",
    numbered=(
        "The {count} pictures above are numbered 1 to {count} in the order shown. "
        "Which one does the caption describe? Answer with its number alone.\n"
        "Caption: {caption}\n"
        "Answer:"
    ),
    listed=(
        "The {count} pictures above are labelled, in the order shown: {identifiers}. "
        "Which one does the caption describe? Answer with its label alone.\n"
        "Caption: {caption}\n"
        "Answer:"
    ),
)


def load_prompt(path: str | os.PathLike[str]) -> PromptTemplate:
    """Read a template from a JSON file with the keys ``numbered``, ``listed`` and, if wanted, ``name``.

    Raises:
        PromptError: the file is missing, is no JSON object, lacks a key, or has an unknown field in a text.
    """
    file = Path(path)
    try:
        data = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise PromptError(f"Cannot be read ({error.strerror}).", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise PromptError(f"Is no valid JSON ({error}).", where=str(path)) from error
    if not isinstance(data, dict) or not {"numbered", "listed"} <= data.keys():
        raise PromptError("Must be a JSON object with the keys 'numbered' and 'listed'.", where=str(path))
    if unknown := data.keys() - {"name", "numbered", "listed"}:
        raise PromptError(f"Unknown key {sorted(unknown)[0]!r}.", where=str(path))
    if not all(isinstance(value, str) for value in data.values()):
        raise PromptError("Every value must be a text.", where=str(path))
    return PromptTemplate(**{"name": file.stem, **data})
