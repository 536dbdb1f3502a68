"""The small CLIP that ships for mining hard negatives: a genuine CLIPModel, contrastively trained on scenes."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizer

from lad.benchmarks.scenes import SIDE, draw_scene, scene_samples
from training.batches import ScenePool
from training.machine import prepare

DEFAULT_OUT = Path(__file__).resolve().parent.parent / "src" / "lad" / "assets" / "clip"
START, END = "<|startoftext|>", "<|endoftext|>"
CONTEXT = 77
_WIDTH, _LAYERS, _HEADS, _SPACE = 96, 3, 3, 64
_PATCH = 14


def build_tokenizer(seed: int = 0, captions: int = 20_000, vocabulary: int = 900) -> CLIPTokenizer:
    """A tokenizer of CLIP's own class; its merges are learned from captions of scenes."""
    import random

    rng = random.Random(f"clip {seed}")
    corpus = [draw_scene(rng).caption.lower() for _ in range(captions)]
    learner = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    learner.normalizer = normalizers.NFC()
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    learner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    learner.train_from_iterator(corpus, trainer)
    import json

    merges = [tuple(pair) for pair in json.loads(learner.to_str())["model"]["merges"]]
    # every byte, also at the end of a word, so that nothing is unknown
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    entries = [*alphabet, *(f"{letter}</w>" for letter in alphabet), *("".join(pair) for pair in merges), START, END]
    vocab = {entry: index for index, entry in enumerate(dict.fromkeys(entries))}
    return CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=CONTEXT)


def build_model(tokenizer: CLIPTokenizer, seed: int = 0) -> CLIPModel:
    """The model with random weights: two towers of three layers, a common space of 64 dimensions."""
    torch.manual_seed(seed)
    token = tokenizer.convert_tokens_to_ids
    tower = {
        "hidden_size": _WIDTH,
        "intermediate_size": 4 * _WIDTH,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "projection_dim": _SPACE,
    }
    config = CLIPConfig(
        text_config={
            **tower,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": CONTEXT,
            "bos_token_id": token(START),
            "eos_token_id": token(END),
            "pad_token_id": token(END),
        },
        vision_config={**tower, "image_size": SIDE, "patch_size": _PATCH},
        projection_dim=_SPACE,
    )
    return CLIPModel(config).float()


def build_processor(tokenizer: CLIPTokenizer) -> CLIPProcessor:
    """Any picture becomes 56 x 56 pixels: its shorter side is scaled, the longer one cropped."""
    images = CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    return CLIPProcessor(image_processor=images, tokenizer=tokenizer)


def encode_texts(model: CLIPModel, tokenizer: CLIPTokenizer, texts: Sequence[str]) -> torch.Tensor:
    """Unit vectors (B, D)."""
    inputs = tokenizer(list(texts), padding=True, truncation=True, max_length=CONTEXT, return_tensors="pt")
    return F.normalize(model.get_text_features(**inputs).pooler_output, dim=-1)


def encode_images(model: CLIPModel, processor: CLIPProcessor, images: np.ndarray) -> torch.Tensor:
    """Unit vectors (B, D) of images (B, 56, 56, 3), uint8."""
    settings = processor.image_processor
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (settings.image_mean, settings.image_std))
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    return F.normalize(model.get_image_features(pixel_values=(pixels - mean) / std).pooler_output, dim=-1)


def train(
    model: CLIPModel,
    processor: CLIPProcessor,
    pool: ScenePool,
    *,
    steps: int,
    families: int = 32,
    members: int = 6,
    rate: float = 2e-3,
    seed: int = 0,
    report: Callable[[str], None] = print,
) -> None:
    """CLIP's symmetric loss on batches of families, whose members differ in one attribute."""
    rng = np.random.default_rng([seed, 11])
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=max(steps, 2), pct_start=0.1)
    target = torch.arange(families * members)
    model.train()
    start = time.time()
    for step in range(steps):
        chosen = pool.draw_families(rng, families, members).ravel()
        images = encode_images(model, processor, pool.images[chosen])
        texts = encode_texts(model, processor.tokenizer, [pool.captions[index] for index in chosen])
        scores = model.logit_scale.exp().clamp(max=100) * texts @ images.T
        loss = (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)) / 2
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 50 == 49 or step == steps - 1:
            report(f"clip {step + 1} loss {float(loss.detach()):.3f} ({time.time() - start:.0f} s)")
    model.eval()


@torch.no_grad()
def measure(model: CLIPModel, processor: CLIPProcessor, count: int = 300) -> dict[str, float]:
    """Share of test scenes (percent) whose caption is nearest to its own picture, in the two settings, N = 8."""
    result = {}
    for setting in ("random", "adversarial"):
        samples = scene_samples(count, 8, setting=setting)  # type: ignore[arg-type]
        images = np.stack([np.asarray(image) for sample in samples for image in sample.images])
        shown = encode_images(model, processor, images).unflatten(0, (count, 8))
        texts = encode_texts(model, processor.tokenizer, [sample.caption for sample in samples])
        picks = (shown @ texts[:, :, None])[:, :, 0].argmax(dim=1)
        result[setting] = 100 * float((picks == torch.tensor([sample.answer for sample in samples])).float().mean())
    return result


def round_to_stored(model: CLIPModel) -> None:
    """Round the weights, in place, to what the bfloat16 file holds, so that figures are of the stored model."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16().float())


def save(model: CLIPModel, processor: CLIPProcessor, folder: str | os.PathLike[str]) -> None:
    """Write an ordinary checkpoint folder, weights in bfloat16; each file appears whole, other files stay."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".checkpoint-", dir=target.parent))
    try:
        stored = CLIPModel(model.config).to(torch.bfloat16)
        stored.load_state_dict(model.state_dict())
        stored.save_pretrained(staging)
        processor.save_pretrained(staging)
        for file in sorted(staging.iterdir()):
            file.chmod(0o644)
            file.replace(target / file.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def main() -> None:
    """``python -m training.clip``: train, measure on test scenes, write the checkpoint."""
    parser = argparse.ArgumentParser(prog="python -m training.clip", description=__doc__)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder of the checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    prepare(options.threads, options.seed)
    tokenizer = build_tokenizer(options.seed)
    processor, model = build_processor(tokenizer), build_model(tokenizer, options.seed)
    print(f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters, {len(tokenizer)} tokens")
    train(
        model, processor, ScenePool("train", families=3000, seed=options.seed), steps=options.steps, seed=options.seed
    )
    round_to_stored(model)
    print(measure(model, processor))
    save(model, processor, options.out)
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
