"""What the stages minimise, and the heads that are thrown away after training."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers import Qwen2_5_VLForConditionalGeneration

from training.batches import PromptBatch
from training.checkpoint import HIDDEN
from training.forward import logits_at


class Heads(nn.Module):
    """Training aids, thrown away afterwards: projections to a common space, and a reader of image ordinals."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.text = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.ordinal = nn.Linear(HIDDEN, 12)
        self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))

    def similarity(self, text: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """Scaled cosines (texts, images) of hidden states (texts, D) and (images, D)."""
        left, right = F.normalize(self.text(text), dim=-1), F.normalize(self.image(images), dim=-1)
        return self.log_scale.exp().clamp(max=60) * left @ right.T


def answer_loss(model: Qwen2_5_VLForConditionalGeneration, batch: PromptBatch, hidden: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the answer's tokens and the end of the turn, from the last layer's hidden states."""
    rows, steps = (batch.targets != -100).nonzero(as_tuple=True)
    return F.cross_entropy(logits_at(model, hidden[rows, batch.last[rows] + steps]), batch.targets[rows, steps])


def attention_loss(
    batch: PromptBatch, rows: dict[int, torch.Tensor], answers: torch.Tensor, mass_weight: float = 0.1
) -> torch.Tensor:
    """Mean over layers: minus the log share of the right image in all image attention, and a little for mass."""
    losses = []
    for row in rows.values():
        mass = batch.image_mass(row)
        total = mass.sum(1).clamp_min(1e-9)
        right = mass.gather(1, answers[:, None])[:, 0].clamp_min(1e-9)
        losses.append((total.log() - right.log() - mass_weight * total.log()).mean())
    return torch.stack(losses).mean()
