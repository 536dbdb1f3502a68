"""Scenes by the thousand, and prompts made of them as tensors."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Qwen2Tokenizer

from lad.benchmarks.scenes import SIDE, Scene, Split, draw_scene, render
from lad.prompts import MATCHING
from training.checkpoint import TOKENS_PER_IMAGE
from training.tokenizer import IMAGE, PAD, TURN_END, VISION_END, VISION_START

SPAN = TOKENS_PER_IMAGE + 2
"""Tokens of one image, markers included."""
_STEP = 4  # what one image adds to the position ids: marker 1, a 2 x 2 grid 2, marker 1
_FAMILY = 12


class ScenePool:
    """Rendered scenes of one split, in families: a scene and others that differ from it in one attribute.

    Args:
        split: where the scenes come from; no scene of another split is ever in the pool.
        families: how many families.
        seed: seed of everything random.
    """

    def __init__(self, split: Split, families: int, seed: int) -> None:
        rng = random.Random(f"pool {split} {seed}")
        self.scenes: list[Scene] = []
        sizes = []
        while len(sizes) < families:
            center = draw_scene(rng)
            if center.split != split:
                continue
            near = {scene.key: scene for scene in center.neighbors() if scene.split == split}
            near.pop(center.key, None)
            others = list(near.values())
            members = [center, *rng.sample(others, min(_FAMILY - 1, len(others)))]
            self.scenes += members
            sizes.append(len(members))
        self.images: NDArray[np.uint8] = np.empty((len(self.scenes), SIDE, SIDE, 3), dtype=np.uint8)
        for index, scene in enumerate(self.scenes):
            self.images[index] = np.asarray(render(scene, rng.randrange(2**32)))
        self.captions = [scene.caption for scene in self.scenes]
        numbers: dict[object, int] = {}
        self._same = np.array([numbers.setdefault(scene.key, len(numbers)) for scene in self.scenes])
        self._sizes = np.array(sizes)
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])

    def __len__(self) -> int:
        """How many scenes there are."""
        return len(self.scenes)

    def draw_families(self, rng: np.random.Generator, count: int, members: int) -> NDArray[np.int64]:
        """``members`` scenes of each of ``count`` different families, shape (count, members)."""
        eligible = np.flatnonzero(self._sizes >= members)
        chosen = rng.choice(eligible, count, replace=False)
        return np.stack([self._starts[f] + rng.permutation(self._sizes[f])[:members] for f in chosen])

    def draw_sets(
        self, rng: np.random.Generator, count: int, candidates: int, adversarial: bool, skew: float = 0.0
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Candidate sets with the position of the answer.

        Random: scenes of any families. Adversarial: scenes of one family; the answer is its center in half of
        the sets, so that no image can be chosen for being the most typical one.

        Args:
            rng: random numbers.
            count: how many sets, B.
            candidates: N.
            adversarial: one family a set, or any.
            skew: 0 draws the position of the answer uniformly; see :func:`position_weights`.

        Returns:
            Scene indices (B, N) and answer positions (B,).
        """
        answers = rng.choice(candidates, count, p=position_weights(candidates, skew))
        if adversarial:
            eligible = np.flatnonzero(self._sizes >= candidates)
            sets = np.empty((count, candidates), dtype=np.int64)
            for row, family in enumerate(rng.choice(eligible, count)):
                members = 1 + rng.permutation(self._sizes[family] - 1)
                front = [0] if rng.random() < 0.5 else []
                sets[row] = self._starts[family] + np.concatenate([front, members, [0]]).astype(int)[:candidates]
        else:
            sets = rng.integers(len(self), size=(count, candidates))
            # The same scene twice would make a right answer wrong.
            while (bad := self._repeats(sets)).any():
                sets[bad] = rng.integers(len(self), size=(int(bad.sum()), candidates))
        rows = np.arange(count)
        sets[rows, answers], sets[:, 0] = sets[:, 0].copy(), sets[rows, answers].copy()
        return sets, answers

    def _repeats(self, sets: NDArray[np.int64]) -> NDArray[np.bool_]:
        ordered = np.sort(self._same[sets], axis=1)
        return np.asarray((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))


def position_weights(candidates: int, skew: float) -> NDArray[np.float64]:
    """How often the answer stands at each position: proportional to exp(skew * position / (N - 1)).

    ``skew`` is the log of the ratio between the last position and the first.
    """
    weights = np.exp(skew * np.arange(candidates) / (candidates - 1))
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True)
class PromptBatch:
    """B prompts with the same N and the same identifiers, right-padded; answers appended where given.

    Attributes:
        ids: tokens (B, T).
        positions: rotary positions (3, 1, T); the same for every row, as images come first and are equal.
        last: index of the last prompt token, (B,).
        first_image: index of the first image's start marker.
        count: N.
        targets: the answer's tokens and the end of the turn, (B, A), padded with -100; (B, 0) without answers.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    last: torch.Tensor
    first_image: int
    count: int
    targets: torch.Tensor

    def image_mass(self, row: torch.Tensor) -> torch.Tensor:
        """Attention (B, T) of the last token, summed over each image with its markers: (B, N)."""
        end = self.first_image + SPAN * self.count
        return row[:, self.first_image : end].reshape(len(row), self.count, SPAN).sum(-1)

    def image_tokens(self, hidden: torch.Tensor) -> torch.Tensor:
        """Mean hidden state (B, T, D) over the features and end marker of each image: (B, N, D)."""
        end = self.first_image + SPAN * self.count
        blocks = hidden[:, self.first_image : end].reshape(len(hidden), self.count, SPAN, -1)
        return blocks[:, :, 1:].mean(2)


class PromptEncoder:
    """Turns identifiers and captions into tokens, exactly as the chat template and processor do."""

    def __init__(self, tokenizer: Qwen2Tokenizer) -> None:
        self._tokenizer = tokenizer
        token = tokenizer.convert_tokens_to_ids
        self.image, self.end, self.pad = token(IMAGE), token(TURN_END), token(PAD)
        self.block = [token(VISION_START), *[self.image] * TOKENS_PER_IMAGE, token(VISION_END)]
        self._head = self.tokens("<|im_start|>user\n")
        self._tail = self.tokens("\nAnswer:<|im_end|>\n<|im_start|>assistant\n")

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text; nothing is added."""
        return list(self._tokenizer(text, add_special_tokens=False).input_ids)

    def captions(self, captions: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Bare captions with the end of a prompt: tokens (B, T), right-padded, and the last token's index (B,)."""
        bodies = self._tokenizer([f"Caption: {caption}" for caption in captions], add_special_tokens=False).input_ids
        rows = [[*body, *self._tail] for body in bodies]
        return _pad(rows, self.pad), torch.tensor([len(row) - 1 for row in rows])

    def encode(
        self,
        identifiers: Sequence[str],
        captions: Sequence[str],
        answers: Sequence[int] | None = None,
        suffix: Sequence[int] = (),
    ) -> PromptBatch:
        """A batch of prompts.

        Args:
            identifiers: N identifiers.
            captions: B captions.
            answers: answer positions, to be appended for training.
            suffix: tokens appended to every prompt, to read what follows them; not with answers.
        """
        count = len(identifiers)
        texts = [f"{MATCHING.render(identifiers, caption)}<|im_end|>\n<|im_start|>assistant\n" for caption in captions]
        bodies = self._tokenizer(texts, add_special_tokens=False).input_ids
        prompts = [[*self._head, *self.block * count, *body] for body in bodies]
        last = torch.tensor([len(prompt) - 1 for prompt in prompts])
        tails = [list(suffix)] * len(prompts)
        targets = torch.empty((len(prompts), 0), dtype=torch.long)
        if answers is not None:
            spelled = [[*self.tokens(identifier), self.end] for identifier in identifiers]
            tails = [spelled[answer] for answer in answers]
            targets = _pad(tails, -100)
        ids = _pad([prompt + tail for prompt, tail in zip(prompts, tails, strict=True)], self.pad)
        positions = packed_positions(len(self._head), count, ids.shape[1])
        return PromptBatch(ids, positions, last, len(self._head), count, targets)


def packed_positions(head: int, count: int, length: int) -> torch.Tensor:
    """Rotary positions (3, 1, T) of ``head`` text tokens, ``count`` images of 2 x 2 tokens, and text after."""
    image = torch.tensor([[0, 1, 1, 1, 1, 3], [0, 1, 1, 2, 2, 3], [0, 1, 2, 1, 2, 3]])
    images = [image + head + _STEP * index for index in range(count)]
    tail = torch.arange(length - head - SPAN * count) + head + _STEP * count
    return torch.cat([torch.arange(head).expand(3, -1), *images, tail.expand(3, -1)], dim=1)[:, None]


def _pad(rows: Sequence[Sequence[int]], value: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows])
