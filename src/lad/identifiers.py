"""Identifiers: the strings that name positions in the answer, and the token trie that scores them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lad.errors import IdentifierError

_WORDS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
).split()
_ROMAN: tuple[tuple[int, str], ...]
_ROMAN = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"))
_ROMAN += ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))


def _roman(number: int) -> str:
    text = ""
    for value, letters in _ROMAN:
        while number >= value:
            text, number = text + letters, number - value
    return text


def _letter(first: str) -> Callable[[int], str]:
    return lambda number: chr(ord(first) + number - 1)


# name -> (identifier of position `number`, counted from 1; how many there are)
IDENTIFIER_SETS: dict[str, tuple[Callable[[int], str], int]] = {
    "digits": (str, 9999),
    "uppercase": (_letter("A"), 26),
    "lowercase": (_letter("a"), 26),
    "roman": (_roman, 3999),
    "words": (lambda number: _WORDS[number - 1], len(_WORDS)),
}


def make_identifiers(kind: str | Sequence[str], count: int) -> tuple[str, ...]:
    """The identifiers of ``count`` positions.

    Args:
        kind: a name of :data:`IDENTIFIER_SETS`, or a list of at least ``count`` strings of your own.
        count: N, the number of positions.

    Raises:
        IdentifierError: unknown name, too few identifiers, an empty or a repeated one.
    """
    if isinstance(kind, str):
        if kind not in IDENTIFIER_SETS:
            raise IdentifierError(
                f"There is no identifier set {kind!r}.", hint=f"Choose one of: {', '.join(IDENTIFIER_SETS)}."
            )
        make, limit = IDENTIFIER_SETS[kind]
        if count > limit:
            raise IdentifierError(f"The set {kind!r} has {limit} identifiers, {count} are needed.")
        return tuple(make(number) for number in range(1, count + 1))
    chosen = tuple(kind[:count])
    if len(chosen) < count:
        raise IdentifierError(f"{len(chosen)} identifiers were given, {count} are needed.")
    for index, identifier in enumerate(chosen):
        if not isinstance(identifier, str) or not identifier.strip():
            raise IdentifierError("An identifier is empty.", where=f"identifier {index}")
        if not identifier.isprintable():
            raise IdentifierError(
                f"{identifier!r} holds something that cannot be printed.", where=f"identifier {index}"
            )
        if identifier in chosen[:index]:
            raise IdentifierError(f"{identifier!r} is given twice.", where=f"identifier {index}")
    return chosen


@dataclass(frozen=True)
class Branch:
    """A trie node with two continuations or more.

    Attributes:
        prefix: the tokens that lead to the node; empty at the root.
        continuations: the tokens that may follow, the end token among them where an identifier ends here.
    """

    prefix: tuple[int, ...]
    continuations: tuple[int, ...]


class TokenTrie:
    """Probabilities of identifiers from next-token logits (paper App. B, Eq. 15-16).

    At each node the probability is a softmax restricted to the valid continuations: the child tokens and,
    where an identifier ends while longer ones go on, the end token. An identifier's log-probability is the
    sum along its path. A node with one continuation has probability 1 and needs no forward pass.

    Args:
        sequences: the token ids of each identifier, tokenised in the place of the answer.
        end_token: the token that ends the assistant's turn.

    Raises:
        IdentifierError: an identifier has no tokens, or two have the same.
    """

    def __init__(self, sequences: Sequence[Sequence[int]], end_token: int) -> None:
        paths = [tuple(int(token) for token in sequence) for sequence in sequences]
        for index, path in enumerate(paths):
            if not path:
                raise IdentifierError("Has no tokens of its own.", where=f"identifier {index}")
            if path in paths[:index]:
                raise IdentifierError(
                    "Has the same tokens as another identifier, so the model cannot tell them apart.",
                    where=f"identifiers {paths.index(path)} and {index}",
                )
        continuations: dict[tuple[int, ...], list[int]] = {}
        for path in paths:
            for depth, token in enumerate((*path, end_token)):
                followers = continuations.setdefault(path[:depth], [])
                if token not in followers:
                    followers.append(token)
        self.branches: tuple[Branch, ...] = tuple(
            Branch(prefix, tuple(tokens))
            for prefix, tokens in sorted(continuations.items(), key=lambda item: len(item[0]))
            if len(tokens) > 1
        )
        """Nodes that need logits, by depth. The root is the first if it branches."""
        index_of = {branch.prefix: index for index, branch in enumerate(self.branches)}
        # per identifier: the (branch, continuation) pairs along its path
        self._steps = [
            [
                (index_of[path[:depth]], self.branches[index_of[path[:depth]]].continuations.index(token))
                for depth, token in enumerate((*path, end_token))
                if path[:depth] in index_of
            ]
            for path in paths
        ]

    def log_probs(self, logits: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
        """Log-probability of each identifier.

        Args:
            logits: for each of :attr:`branches`, logits of its continuations, shape (..., continuations).

        Returns:
            Shape (..., N); ``exp`` of it sums to 1 over the last axis.
        """
        steps = [log_softmax(np.asarray(row, dtype=np.float64)) for row in logits]
        shape = steps[0].shape[:-1] if steps else ()
        return np.stack(
            [sum((steps[branch][..., choice] for branch, choice in path), np.zeros(shape)) for path in self._steps],
            axis=-1,
        )


def log_softmax(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Log-softmax over the last axis, in float64."""
    shifted = np.asarray(scores, dtype=np.float64)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
