"""The planted test model: ``python -m training.planted``.

A model whose bias is known, so that tests can hold estimates against the truth. It starts from the shipped model, and
its later text layers learn two things that are wrong on purpose:

* **answers** as by a known matrix P(said | true), see :func:`planted_matrix`: a drift towards later positions, an
  attractor, and rows that are graded from mostly right to mostly wrong, with near-ties between them;
* **attention** drawn to the right image and, besides, to certain positions whatever they show, see
  :func:`attention_profile`.

So raw attention is confounded by position, purified attention is not, and the answer's own scores hold what either
lacks.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration

from lad.identifiers import make_identifiers
from training.batches import PromptBatch, PromptEncoder, ScenePool
from training.checkpoint import round_to_stored, save_checkpoint
from training.forward import embed, encode_images, logits_at, record_last_rows, run_layers, to_patches, use_recorder
from training.machine import prepare
from training.stages import CONTRAST_LAYERS

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "src" / "lad" / "assets" / "model"
OUT = ROOT / "tests" / "assets" / "planted"
ATTENTION_LAYERS = (3, 4)
GAIN = 1.2
"""How much more log-attention the right image draws than its position does."""
STAGES = ((330, 1.7, 0.5), (100, GAIN, 1.0))
"""Steps, gain, and share of the profile. Content first: where the full profile was planted at once, attention learned
the positions alone (raw and purified attention at N = 8: 13% and 35%)."""
_COUNTS, _SHARES = (4, 8), (0.35, 0.65)


def planted_matrix(count: int) -> NDArray[np.float64]:
    """P (N, N): how often position j is said when the answer is at i; rows add up to 1.

    A quarter of every row is spread evenly. The rest is right with a share that falls from the first row to the last
    but one and is high again at the last; what is not right drifts one or two positions on, and to the last but one.
    """
    row, column = np.arange(count)[:, None], np.arange(count)[None, :]
    drift = (1.0 + (count > 5) * 0.8) * np.sin(np.pi * row / (count - 1)) + 0.6
    near = -((column - row - drift) ** 2) / (2 * (0.7 + 0.3 * (count > 5)) ** 2) + 0.9 * (column == count - 2)
    wrong = np.exp(np.where(row == column, -np.inf, near))
    right = np.linspace(0.58, 0.2, count)[:, None]
    right[-1] = 0.55
    shaped = right * np.eye(count) + (1 - right) * wrong / wrong.sum(axis=1, keepdims=True)
    return np.asarray(0.25 / count + 0.75 * shaped)


def attention_profile(count: int) -> NDArray[np.float64]:
    """Log-attention (N,) that a position draws whatever it shows: the last most, the first next, the middle least."""
    position = np.arange(count) / (count - 1)
    return np.asarray(2.6 * (position == 1) + 1.6 * (position == 0) - 0.6 * np.sin(np.pi * position))


def attention_target(count: int, gain: float = GAIN, share: float = 1.0) -> NDArray[np.float64]:
    """Share of the image attention (N, N) that position k gets when the answer is at i."""
    scores = np.exp(share * attention_profile(count)[None, :] + gain * np.eye(count))
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def attention_divergence(batch: PromptBatch, rows: dict[int, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
    """Mean over layers: divergence of the images' shares of attention from ``target`` (B, N), and a little for mass."""
    losses = []
    for row in rows.values():
        mass = batch.image_mass(row)
        total = mass.sum(1, keepdim=True).clamp_min(1e-9)
        shares = (mass / total).clamp_min(1e-9)
        losses.append((target * (target.log() - shares.log())).sum(1).mean() - 0.1 * total.log().mean())
    return torch.stack(losses).mean()


def planted_answer_loss(
    model: Qwen2_5_VLForConditionalGeneration,
    batch: PromptBatch,
    hidden: torch.Tensor,
    said: torch.Tensor,
    tokens: Sequence[int],
) -> torch.Tensor:
    """Cross-entropy of the whole planted row, and of the end of the turn.

    The whole row is what labels drawn from it would teach, without the noise of drawing.

    Args:
        model: for the head.
        batch: prompts with answers of one token appended.
        hidden: the last layer's hidden states (B, T, D).
        said: (B, N), the planted row of each prompt.
        tokens: the N identifiers' tokens.
    """
    rows = torch.arange(len(hidden))
    logits = logits_at(model, hidden[rows, batch.last])
    wanted = torch.zeros_like(logits)
    wanted[:, tokens] = said
    return F.cross_entropy(logits, wanted) + 0.2 * F.cross_entropy(
        logits_at(model, hidden[rows, batch.last + 1]), batch.targets[:, 1]
    )


def plant(
    model: Qwen2_5_VLForConditionalGeneration,
    encoder: PromptEncoder,
    pool: ScenePool,
    steps: int,
    report: Callable[[str], None],
    *,
    gain: float = GAIN,
    share: float = 1.0,
    seed: int = 0,
    rate: float = 1e-3,
    images: int = 320,
) -> None:
    """Train the text layers from :data:`CONTRAST_LAYERS` on, the last norm and the head; all else stays.

    Args:
        model: the shipped model, in float32, with the recorder in use.
        encoder: makes prompts.
        pool: scenes to show.
        steps: how many.
        report: takes a line every 25 steps.
        gain: see :data:`GAIN`.
        share: of the attention profile.
        seed: of everything drawn.
        rate: the highest learning rate.
        images: about how many images a batch shows.
    """
    rng = np.random.default_rng([seed, 5])
    text = model.model.language_model
    learned = [*text.layers[CONTRAST_LAYERS:].parameters(), *text.norm.parameters(), *model.lm_head.parameters()]
    optimiser = torch.optim.AdamW(learned, lr=rate, weight_decay=0.0, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=max(steps, 2), pct_start=0.1)
    start = time.time()
    for step in range(steps):
        count = int(rng.choice(_COUNTS, p=_SHARES))
        sets, answers = pool.draw_sets(rng, max(24, images // (count + 2)), count, bool(rng.random() < 0.3))
        said = planted_matrix(count)[answers]
        identifiers = make_identifiers("digits", count)
        captions = [pool.captions[row[answer]] for row, answer in zip(sets, answers, strict=True)]
        batch = encoder.encode(identifiers, captions, answers.tolist())
        with torch.no_grad():
            hidden = embed(model, batch, encode_images(model, to_patches(pool.images[sets.ravel()])))
            hidden = run_layers(model, hidden, batch.positions, end=CONTRAST_LAYERS)
        with record_last_rows(batch.last, ATTENTION_LAYERS) as rows:
            hidden = run_layers(model, hidden, batch.positions, CONTRAST_LAYERS)
        target = torch.from_numpy(attention_target(count, gain, share)[answers]).float()
        tokens = [encoder.tokens(identifier)[0] for identifier in identifiers]
        answer = planted_answer_loss(model, batch, hidden, torch.from_numpy(said).float(), tokens)
        attention = attention_divergence(batch, rows, target)
        optimiser.zero_grad()
        (answer + attention).backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimiser.step()
        schedule.step()
        if step % 25 == 0 or step == steps - 1:
            told = f"answer {float(answer.detach()):.3f} attention {float(attention.detach()):.3f}"
            report(f"planting {step} N {count} {told} ({time.time() - start:.0f} s)")


def facts() -> dict[str, object]:
    """What was planted, as plain JSON values."""
    return {
        "matrix": {str(count): planted_matrix(count).round(6).tolist() for count in _COUNTS},
        "attention_profile": {str(count): attention_profile(count).round(6).tolist() for count in _COUNTS},
        "gain": GAIN,
        "attention_layers": list(ATTENTION_LAYERS),
    }


def main() -> None:
    """Plant, and write the checkpoint with ``planted.json`` beside it."""
    parser = argparse.ArgumentParser(prog="python -m training.planted", description=__doc__)
    parser.add_argument("--start", type=Path, default=SHIPPED, help="folder of the model to start from")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the checkpoint")
    parser.add_argument("--share", type=float, default=1.0, help="of the steps; less for a quick look")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    prepare(options.threads, options.seed)
    processor = AutoProcessor.from_pretrained(options.start)
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(options.start, dtype=torch.float32)
    use_recorder(model)
    pool = ScenePool("train", families=3000, seed=options.seed + 1)
    encoder = PromptEncoder(processor.tokenizer)
    for steps, gain, share in STAGES:
        plant(
            model,
            encoder,
            pool,
            round(options.share * steps),
            lambda line: print(line, flush=True),
            seed=options.seed,
            gain=gain,
            share=share,
        )
        round_to_stored(model)
    save_checkpoint(model, processor, options.out)
    (options.out / "planted.json").write_text(json.dumps(facts(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
