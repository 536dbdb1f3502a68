"""Prompts and answers as tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from lad.identifiers import TokenTrie


@dataclass(frozen=True, eq=False)
class TokenizedPrompt:
    """One prompt, unpadded.

    Attributes:
        tokens: (T,) token ids.
        positions: (T,) or (3, T) position ids.
        next_position: position id of the first token of an answer.
        segments: (T,) the image each token belongs to; N for tokens of no image.
        type_ids: further per-token inputs (T,), by name.
        images: N.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    next_position: int
    segments: torch.Tensor
    type_ids: dict[str, torch.Tensor]
    images: int

    def without_last(self, count: int) -> TokenizedPrompt:
        """The prompt without its last ``count`` tokens, which are text."""
        if count == 0:
            return self
        return replace(
            self,
            tokens=self.tokens[:-count],
            positions=self.positions[..., :-count],
            next_position=self.next_position - count,
            segments=self.segments[:-count],
            type_ids={name: ids[:-count] for name, ids in self.type_ids.items()},
        )


@dataclass(frozen=True, eq=False)
class Answers:
    """How identifiers are written after a prompt.

    Attributes:
        trie: their tokens.
        joined: how many of the prompt's last tokens the answers begin with.
    """

    trie: TokenTrie
    joined: int


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common beginning of two token sequences."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((k for k, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))
