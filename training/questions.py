"""Questions as training asks them: how many images, how alike, named by what, and where the answer stands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from lad.identifiers import make_identifiers
from training.batches import PromptBatch, PromptEncoder, ScenePool
from training.forward import to_patches

_OTHER_SETS = ("uppercase", "lowercase", "roman", "words")


@dataclass(frozen=True)
class Mixture:
    """What kinds of questions a stage draws.

    Attributes:
        counts: N -> weight.
        adversarial: share of sets with one-attribute differences.
        other_identifiers: share of batches with identifiers other than digits.
        skew: skew of the answer's position, see :func:`training.batches.position_weights`.
        images: about how many images a batch shows.
    """

    counts: tuple[tuple[int, float], ...] = (
        (2, 0.06), (3, 0.06), (4, 0.30), (5, 0.06), (6, 0.06), (8, 0.30), (10, 0.06), (12, 0.10),
    )  # fmt: skip
    adversarial: float = 0.4
    other_identifiers: float = 0.2
    skew: float = 0.0
    images: int = 384


@dataclass(frozen=True)
class Question:
    """A drawn batch with its image features' input and answer positions (B,)."""

    batch: PromptBatch
    patches: torch.Tensor
    answers: torch.Tensor


def draw_question(pool: ScenePool, encoder: PromptEncoder, rng: np.random.Generator, mixture: Mixture) -> Question:
    """One batch: all questions have the same N and the same identifiers."""
    counts, weights = zip(*mixture.counts, strict=True)
    count = int(rng.choice(counts, p=np.array(weights) / sum(weights)))
    kind = str(rng.choice(_OTHER_SETS)) if rng.random() < mixture.other_identifiers else "digits"
    size = max(16, mixture.images // (count + 2))
    sets, answers = pool.draw_sets(rng, size, count, rng.random() < mixture.adversarial, mixture.skew)
    captions = [pool.captions[row[answer]] for row, answer in zip(sets, answers, strict=True)]
    batch = encoder.encode(make_identifiers(kind, count), captions, answers.tolist())
    return Question(batch, to_patches(pool.images[sets.ravel()]), torch.from_numpy(answers))
