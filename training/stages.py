"""The three stages of training, each a loop over right labels from scenes of the split "train"."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from transformers import Qwen2_5_VLForConditionalGeneration

from training.batches import PromptEncoder, ScenePool, packed_positions
from training.checkpoint import TEXT_LAYERS
from training.forward import embed, encode_images, record_last_rows, run_layers, to_patches
from training.losses import Heads, answer_loss, attention_loss
from training.questions import Mixture, draw_question

CONTRAST_LAYERS = 3
"""The first layers, in which images and captions are brought into one space."""
Report = Callable[[str], None]


@dataclass(frozen=True)
class Trainer:
    """What all stages share."""

    model: Qwen2_5_VLForConditionalGeneration
    encoder: PromptEncoder
    heads: Heads
    pool: ScenePool
    report: Report
    seed: int = 0

    def rng(self, stage: int) -> np.random.Generator:
        """The stage's own random numbers."""
        return np.random.default_rng([self.seed, stage])


def _optimise(
    parameters: Iterable[torch.Tensor], rate: float, steps: int, loss_of: Callable[[int], torch.Tensor], decay: float
) -> Iterator[float]:
    """AdamW under a one-cycle rate; yields each step's loss after the step."""
    parameters = list(parameters)
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=max(steps, 2), pct_start=0.1)
    for step in range(steps):
        loss = loss_of(step)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        schedule.step()
        yield float(loss.detach())


def stage_contrast(trainer: Trainer, steps: int, *, families: int = 40, members: int = 6, rate: float = 2e-3) -> None:
    """Stage 1: single images against captions through the first text layers, hard negatives in each batch."""
    model, heads, rng = trainer.model, trainer.heads, trainer.rng(1)
    encoder = trainer.encoder
    markers = torch.tensor([encoder.block[0], encoder.block[-1]])

    def loss_of(step: int) -> torch.Tensor:
        chosen = trainer.pool.draw_families(rng, families, members).ravel()
        features = encode_images(model, to_patches(trainer.pool.images[chosen]))
        start, end = model.model.language_model.embed_tokens(markers)[:, None, None].expand(2, len(chosen), 1, -1)
        framed = torch.cat([start, features, end], dim=1)
        framed = run_layers(model, framed, packed_positions(0, 1, framed.shape[1]), end=CONTRAST_LAYERS)
        image = framed[:, 1:].mean(1)  # without the start marker, which sees no image
        ids, last = encoder.captions([trainer.pool.captions[index] for index in chosen])
        hidden = model.model.language_model.embed_tokens(ids)
        hidden = run_layers(model, hidden, packed_positions(ids.shape[1], 0, ids.shape[1]), end=CONTRAST_LAYERS)
        scores = heads.similarity(hidden[torch.arange(len(ids)), last], image)
        target = torch.arange(len(ids))
        return (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)) / 2

    parameters = [*model.parameters(), heads.image.weight, heads.text.weight, heads.log_scale]
    start = time.time()
    for step, loss in enumerate(_optimise(parameters, rate, steps, loss_of, 0.01)):
        if step % 50 == 0 or step == steps - 1:
            trainer.report(f"contrast {step} loss {loss:.3f} ({time.time() - start:.0f} s)")


@dataclass(frozen=True)
class Weights:
    """Weights of the losses of stage 2; ``attention`` 0 leaves the attention to itself."""

    answer: float = 0.0
    attention: float = 1.0
    contrast: float = 0.5
    ordinal: float = 0.5
    attention_layers: tuple[int, ...] = (3, 4)


def stage_matching(
    trainer: Trainer,
    steps: int,
    weights: Weights,
    mixture: Mixture,
    *,
    rate: float = 1.5e-3,
    check: Callable[[int], object] | None = None,
) -> None:
    """Stage 2: whole prompts with many images.

    Losses: the last token's attention (see :func:`attention_loss`), images against captions in their prompts,
    image ordinals read from image tokens, and the answer. Weights decide.
    """
    model, heads, rng = trainer.model, trainer.heads, trainer.rng(2)
    layers = weights.attention_layers if weights.attention else ()
    parts: dict[str, float] = {}

    def loss_of(step: int) -> torch.Tensor:
        question = draw_question(trainer.pool, trainer.encoder, rng, mixture)
        batch, answers = question.batch, question.answers
        hidden = embed(model, batch, encode_images(model, question.patches))
        hidden = run_layers(model, hidden, batch.positions, end=CONTRAST_LAYERS)
        size, count = len(answers), batch.count
        images = batch.image_tokens(hidden).flatten(0, 1)
        scores = heads.similarity(hidden[torch.arange(size), batch.last], images)
        losses = {
            "contrast": F.cross_entropy(scores, torch.arange(size) * count + answers),
            "ordinal": F.cross_entropy(heads.ordinal(images), torch.arange(count).repeat(size)),
        }
        with record_last_rows(batch.last, layers) as rows:
            end = TEXT_LAYERS if weights.answer else max(layers) + 1
            hidden = run_layers(model, hidden, batch.positions, CONTRAST_LAYERS, end)
        if layers:
            losses["attention"] = attention_loss(batch, rows, answers)
        if weights.answer:
            losses["answer"] = answer_loss(model, batch, hidden)
        parts.update({name: float(loss.detach()) for name, loss in losses.items()}, N=count)
        return torch.stack([getattr(weights, name) * loss for name, loss in losses.items()]).sum()

    start = time.time()
    for step, _ in enumerate(_optimise([*model.parameters(), *heads.parameters()], rate, steps, loss_of, 0.01)):
        if step % 25 == 0 or step == steps - 1:
            told = " ".join(f"{name} {value:.3g}" for name, value in parts.items())
            trainer.report(f"matching {step} {told} ({time.time() - start:.0f} s)")
        if check and (step % 200 == 199 or step == steps - 1):
            check(step)


def stage_readout(
    trainer: Trainer,
    limit: int,
    mixture: Mixture,
    *,
    rate: float = 2e-3,
    warmup: int = 20,
    first: int = CONTRAST_LAYERS,
    attention_layers: tuple[int, ...] = (3, 4),
    stop: Callable[[int], bool],
) -> int:
    """Stage 3: answers alone are learned, in the text layers from ``first`` on, and only for a while.

    The attention loss goes on, so that attention stays where stage 2 brought it. The rest is frozen.

    Args:
        trainer: model and data.
        limit: the most steps.
        mixture: the questions.
        rate: learning rate, constant after the warm-up.
        warmup: steps of linear warm-up.
        first: the first layer that learns.
        attention_layers: layers under the attention loss, each >= ``first``.
        stop: asked after each step, with its number; True ends the stage.

    Returns:
        How many steps were made.
    """
    model, rng = trainer.model, trainer.rng(3)
    text = model.model.language_model
    learned = [*text.layers[first:].parameters(), *text.norm.parameters(), *model.lm_head.parameters()]
    optimiser = torch.optim.AdamW(learned, lr=rate, weight_decay=0.0, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1.0, (step + 1) / warmup))
    start = time.time()
    for step in range(limit):
        question = draw_question(trainer.pool, trainer.encoder, rng, mixture)
        batch = question.batch
        with torch.no_grad():
            hidden = embed(model, batch, encode_images(model, question.patches))
            hidden = run_layers(model, hidden, batch.positions, end=first)
        with record_last_rows(batch.last, attention_layers) as rows:
            hidden = run_layers(model, hidden, batch.positions, first)
        answer = answer_loss(model, batch, hidden)
        attention = attention_loss(batch, rows, question.answers)
        optimiser.zero_grad()
        (answer + attention).backward()
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimiser.step()
        schedule.step()
        if step % 10 == 9:
            trainer.report(
                f"read-out {step + 1} N {batch.count} answer {answer.item():.3f} attention {attention.item():.3f} "
                f"({time.time() - start:.0f} s)"
            )
        if stop(step + 1):
            return step + 1
    return limit
