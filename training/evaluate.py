"""Figures of a model in training: observations by the batched forward passes, decisions by `lad` itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Qwen2_5_VLForConditionalGeneration

from lad.benchmarks.scenes import SIDE, Setting, scene_samples
from lad.calibration import Calibration, CalibrationIdentity, fit_calibration
from lad.decisions import decide, picks
from lad.evaluation.metrics import Metrics, compute_metrics
from lad.identifiers import TokenTrie, make_identifiers
from lad.observations import Observations
from lad.prompts import MATCHING
from lad.samples import Sample, cyclic_orders
from training.batches import PromptEncoder
from training.checkpoint import TEXT_LAYERS
from training.forward import embed, encode_images, logits_at, record_last_rows, run_layers, to_patches

Array = NDArray[np.float64]
_CHUNK = 96
_CALIBRATION_SAMPLES = 5


@torch.no_grad()
def observe(
    model: Qwen2_5_VLForConditionalGeneration,
    encoder: PromptEncoder,
    samples: Sequence[Sample],
    orders: NDArray[np.int64],
    kind: str = "digits",
) -> Observations:
    """Observe M samples in the same T orders, sample after sample: M * T rows. Each image is encoded once."""
    identifiers = make_identifiers(kind, orders.shape[1])
    images = np.stack([np.stack([np.asarray(image) for image in sample.images]) for sample in samples])
    features = encode_images(model, to_patches(images.reshape(-1, *images.shape[2:])))
    features = features.view(*images.shape[:2], *features.shape[1:])
    shown = features[:, torch.from_numpy(orders)].flatten(0, 1)  # (M * T, N, 4, D)
    captions = [sample.caption for sample in samples for _ in orders]
    parts = [
        _observe_chunk(model, encoder, identifiers, captions[start : start + _CHUNK], shown[start : start + _CHUNK])
        for start in range(0, len(captions), _CHUNK)
    ]
    log_probs, attention = (np.concatenate([part[index] for part in parts]) for index in range(2))
    return Observations(
        log_probs=log_probs,
        attention=attention,
        orders=np.tile(orders, (len(samples), 1)),
        answers=np.repeat([-1 if sample.answer is None else sample.answer for sample in samples], len(orders)),
        samples=tuple(sample.id for sample in samples for _ in orders),
    )


def _observe_chunk(
    model: Qwen2_5_VLForConditionalGeneration,
    encoder: PromptEncoder,
    identifiers: Sequence[str],
    captions: Sequence[str],
    features: torch.Tensor,
) -> tuple[Array, Array]:
    trie = TokenTrie([encoder.tokens(identifier) for identifier in identifiers], encoder.end)
    logits = []
    for branch in trie.branches:
        batch = encoder.encode(identifiers, captions, suffix=branch.prefix)
        with record_last_rows(batch.last, range(TEXT_LAYERS)) as rows:
            hidden = run_layers(model, embed(model, batch, features), batch.positions)
        place = batch.last + len(branch.prefix)
        logits.append(logits_at(model, hidden[torch.arange(len(hidden)), place])[:, list(branch.continuations)].numpy())
    # Suffixes come after the last prompt token, so its rows are the same for every branch.
    attention = torch.stack([batch.image_mass(rows[layer]) for layer in sorted(rows)], dim=1).double().numpy()
    return trie.log_probs(logits), attention


def calibrate(
    model: Qwen2_5_VLForConditionalGeneration,
    encoder: PromptEncoder,
    count: int,
    setting: Setting = "random",
    *,
    kind: str = "digits",
    draw: int = 0,
) -> Calibration:
    """A calibration from 5 samples of the split "calibration", each in its N cyclic orders.

    Args:
        model: the model.
        encoder: its prompts.
        count: N.
        setting: which kind of samples.
        kind: the identifier set.
        draw: which 5 samples.
    """
    labelled = scene_samples(_CALIBRATION_SAMPLES, count, setting=setting, split="calibration", seed=1000 + draw)
    identity = CalibrationIdentity(
        model="in training",
        revision="",
        prompt=MATCHING.digest,
        identifiers=make_identifiers(kind, count),
        candidates=count,
        image_size=f"{SIDE}x{SIDE}",
        attention="span",
    )
    return fit_calibration(observe(model, encoder, labelled, cyclic_orders(count), kind), identity)


def measure(
    rule: str, observations: Observations, orders: NDArray[np.int64], calibration: Calibration | None = None
) -> Metrics:
    """Figures of one rule, published options, on what :func:`observe` returned for these orders."""
    chosen = picks(decide(rule, observations, calibration), observations.orders)
    return compute_metrics(chosen.reshape(-1, len(orders)), observations.answers[:: len(orders)], orders)


def attention_accuracy(observations: Observations) -> tuple[Array, Array]:
    """Per layer: percent of observations whose attention peaks at the right image, and the mean image mass."""
    right = observations.attention.argmax(-1) == observations.answer_positions[:, None]
    return 100 * right.mean(0), observations.attention.sum(-1).mean(0)
