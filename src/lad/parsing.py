"""The one parser of answers in text: which position does a text name?

A text is read from what is surest to what is least sure, and the first reading that names a position counts:

1. what follows the answer marker, where one was asked for;
2. a text that is nothing but an identifier;
3. "the answer is 3", "I choose B";
4. an identifier that opens the text and stands apart from what follows ("2. Because ...");
5. "image 3", "the third picture", "(B)", "**2**";
6. an identifier that stands alone somewhere.

Within a reading the last one counts. An identifier that is ruled out ("not image 2", "rather than 2") does not.
Reasoning between ``<think>`` tags is left aside unless nothing follows it; reasoning that was broken off is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from lad.identifiers import make_identifiers

_THINK = re.compile(r"</?think(?:ing)?>", re.IGNORECASE)
_NOUN = r"(?:image|picture|photo|photograph|option|number|candidate|choice|label|index|caption|no\.|nr\.|#)"
_SAYS = (
    r"(?:(?:answer|choice|pick|selection|match|best match|result|verdict)\s*(?:is|would be|should be|must be|:|=|->|=>)"
    r"|\b(?:choose|pick|select|go with|going with|opt for|answer with|settle on|corresponds to|describes|matches)\b)"
)
_FILLER = (
    r"(?:[\s:=*_`\"'\u201c\u201d\u2018\u2019(\[{$\\-]"
    rf"|\b(?:the|is|it|its|it's|be|a|text|boxed|index|with|to|most|likely|definitely)\b|{_NOUN})*"
)
_RULED_OUT = re.compile(
    r"(?:\bnot|n't|\brather than|\binstead of|\bexcept|\bunlike|\bneither|\bnor)\s+(?:be\s+)?(?:the\s+)?"
    rf"{_NOUN}?[\s_]*$",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\s+(?:(?:does|do|did|is|are|was|can|could|would)\s+not|cannot|(?:does|do|did|is|are|was|ca|could|would)n['\u2019]t)\b",
    re.IGNORECASE,
)
# what sets an identifier apart that opens a text
_APART = re.compile(
    r"\s*(?:[).:;\]*]|\n|[-\u2013\u2014]\s*\D|,?\s+(?:because|since|as|is|shows|fits|matches)\b)", re.IGNORECASE
)
# "A dog" and "I think" begin with no identifier, "A is right" does
_ANOTHER_WORD = re.compile(r"['\u2019]|\s+(?!(?:is|shows|fits|matches)\b)[a-z]")
_CARDINALS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
).split()
_WRAP = " \t\r\n.,;:!*_`\"'\u201c\u201d\u2018\u2019()[]{}<>$#-"


def parse_answer(text: str, identifiers: Sequence[str], marker: str | None = None) -> int | None:
    """The position that a text names as the answer.

    Args:
        text: what a model wrote.
        identifiers: the N identifiers, in the order of the positions.
        marker: words that the prompt asked to put before the answer, for instance "Final answer:".

    Returns:
        A position 0..N-1, or None where the text names none.
    """
    said = _without_reasoning(text)
    if said is None:
        return None
    reader = _reader(tuple(identifiers))
    if marker:
        pieces = re.split(re.escape(marker.rstrip(": ")) + r"\s*(?:is)?\s*:?", said, flags=re.IGNORECASE)
        if len(pieces) > 1 and (found := reader.read(pieces[-1])) is not None:
            return found
    return reader.read(said)


def _without_reasoning(text: str) -> str | None:
    """What follows the last finished reasoning, or the reasoning where nothing follows; None if it was broken off."""
    tags = list(_THINK.finditer(text))
    if not tags:
        return text
    if not tags[-1].group().startswith("</"):
        return None
    after = text[tags[-1].end() :]
    return after if after.strip(_WRAP) else _THINK.sub(" ", text)


@lru_cache(maxsize=256)
def _reader(identifiers: tuple[str, ...]) -> _Reader:
    return _Reader(identifiers)


class _Reader:
    """All ways to write the identifiers of one set."""

    def __init__(self, identifiers: tuple[str, ...]) -> None:
        count = len(identifiers)
        self.exact = {identifier: position for position, identifier in enumerate(identifiers)}
        folded = {identifier.casefold(): position for position, identifier in enumerate(identifiers)}
        # identifiers that differ in case alone keep it
        self.folded = folded if len(folded) == count else {}
        numbers = make_identifiers("digits", count)
        self.names: dict[str, int] = {}
        for position in range(min(count, len(_CARDINALS))):
            self.names[make_identifiers("words", position + 1)[-1]] = position
            self.names[_ordinal(position + 1)] = position
            if identifiers == numbers:
                self.names[_CARDINALS[position]] = position
        self.numbers = {number: position for position, number in enumerate(numbers)}
        own = "|".join(_bounded(identifier) for identifier in sorted(identifiers, key=len, reverse=True))
        named = "|".join(rf"\b{name}\b" for name in sorted(self.names, key=len, reverse=True))
        self.own = re.compile(f"(?:{own})", re.IGNORECASE if self.folded else 0)
        self.any = re.compile(f"(?:{own}|{named})", re.IGNORECASE)
        self.says = re.compile(rf"{_SAYS}{_FILLER}(?P<it>{own}|{named})", re.IGNORECASE)
        self.noun = re.compile(
            rf"(?:\b{_NOUN}[\s_:]*(?P<it>{own}|{named})"
            rf"|[(\[*`\"\u201c]\s*(?P<wrapped>{own})\s*[)\]*`\"\u201d]"
            rf"|(?P<ordinal>{named})[\s-]+(?:{_NOUN}|one)\b)",
            re.IGNORECASE,
        )
        self.last_resort = re.compile(rf"\b{_NOUN}[\s_:]*(?P<it>\d+)(?![\w%]|\.\d)", re.IGNORECASE)

    def read(self, text: str) -> int | None:
        """The position that a text without reasoning names."""
        bare = re.sub(rf"^(?:the|it is|it's|{_NOUN})\s+", "", text.strip(_WRAP), flags=re.IGNORECASE).strip(_WRAP)
        bare = re.sub(rf"\s+(?:{_NOUN}|one)$", "", bare, flags=re.IGNORECASE)
        for whole in (text.strip(), bare):
            if (position := self._position(whole)) is not None:
                return position
        for reading in (self._said, self._opening, self._mentioned, self._alone):
            positions = list(reading(text))
            if positions:
                return positions[-1]
        return None

    def _position(self, word: str) -> int | None:
        for table, key in ((self.exact, word), (self.folded, word.casefold()), (self.names, word.casefold())):
            if key in table:
                return table[key]
        return None

    def _said(self, text: str) -> Iterator[int]:
        yield from self._matches(self.says, text, "it")

    def _opening(self, text: str) -> Iterator[int]:
        match = self.own.match(text.lstrip(_WRAP))
        if match is None:
            return
        rest = text.lstrip(_WRAP)[match.end() :]
        # a numbered list opens with its first number, and names all
        listed = re.search(r"^\s*[(\[]?(?:2|b|ii|second)[.):]", rest, re.IGNORECASE | re.MULTILINE) is not None
        position = self._position(match.group())
        if position is not None and _APART.match(rest) and not listed:
            yield position

    def _mentioned(self, text: str) -> Iterator[int]:
        found = [*self._matches(self.noun, text, "it", "wrapped", "ordinal")]
        yield from found or self._numbered(text)

    def _numbered(self, text: str) -> Iterator[int]:
        for match in self.last_resort.finditer(text):
            position = self.numbers.get(match["it"])
            if position is not None and not _ruled_out(text[: match.start()], text[match.end() :]):
                yield position

    def _alone(self, text: str) -> Iterator[int]:
        for match in self.any.finditer(text):
            before, after = text[: match.start()], text[match.end() :]
            position = self._position(match.group())
            word = match.group()
            # an article, a pronoun, or the "first" of an enumeration
            if word in ("A", "a", "I", "i") and _ANOTHER_WORD.match(after):
                continue
            if word.casefold() in self.names and re.match(r"\s*,", after):
                continue
            # a single small letter is hardly ever meant in running text, nor is a cardinal ("two dogs")
            if (len(word) == 1 and word.islower() and before.strip()) or word.casefold() in _CARDINALS:
                continue
            if position is not None and not _ruled_out(before, after):
                yield position

    def _matches(self, pattern: re.Pattern[str], text: str, *groups: str) -> Iterator[int]:
        for match in pattern.finditer(text):
            name = next(group for group in groups if match[group] is not None)
            position = self._position(match[name])
            after = text[match.end(name) :]
            if match[name] in ("A", "a", "I", "i") and _ANOTHER_WORD.match(after):
                continue
            if position is not None and not _ruled_out(text[: match.start(name)], after):
                yield position


def _ruled_out(before: str, after: str) -> bool:
    return _RULED_OUT.search(before) is not None or _DENIED.match(after) is not None


def _bounded(identifier: str) -> str:
    """A pattern for an identifier that is no part of a longer word or number."""
    left = r"(?<![\w.])" if identifier[:1].isdigit() else r"(?<!\w)" if _is_word(identifier[:1]) else ""
    right = r"(?![\w%]|[.,]\d)" if identifier[-1:].isdigit() else r"(?!\w)" if _is_word(identifier[-1:]) else ""
    return f"{left}{re.escape(identifier)}{right}"


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
