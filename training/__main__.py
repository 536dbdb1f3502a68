"""The one command that makes the shipped model: ``python -m training``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from lad.benchmarks.scenes import scene_samples
from lad.samples import random_orders
from training.batches import PromptEncoder, ScenePool
from training.checkpoint import build_model, build_processor, round_to_stored, save_checkpoint
from training.evaluate import attention_accuracy, measure, observe
from training.forward import use_recorder
from training.losses import Heads
from training.machine import prepare
from training.questions import Mixture
from training.stages import Trainer, Weights, stage_contrast, stage_matching, stage_readout
from training.tokenizer import build_tokenizer

DEFAULT_OUT = Path(__file__).resolve().parent.parent / "src" / "lad" / "assets" / "model"
CONTRAST_STEPS, MATCHING_STEPS, READOUT_LIMIT = 500, 1000, 800
CHECK_EVERY = 10
ATTEMPT_STEPS = 1200
READOUT = Mixture(
    counts=((2, 0.12), (3, 0.10), (4, 0.24), (5, 0.06), (6, 0.06), (8, 0.24), (10, 0.06), (12, 0.12)),
    adversarial=0.3,
    other_identifiers=0.25,
)
READOUT_TARGET = 45.0
"""Stage 3 ends when vanilla accuracy at N = 8 on validation scenes reaches this many percent."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder of the checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--no-attention-loss",
        action="store_true",
        help="the recorded attempt: stage 2 learns answers by cross-entropy alone, and there is no stage 3",
    )
    return parser.parse_args()


def main() -> None:
    """Train all stages and write the checkpoint."""
    options = _arguments()
    prepare(options.threads, options.seed)
    start = time.time()

    def report(line: str) -> None:
        print(f"[{time.time() - start:5.0f} s] {line}", flush=True)

    tokenizer = build_tokenizer(options.seed)
    model = build_model(tokenizer, options.seed)
    use_recorder(model)
    encoder = PromptEncoder(tokenizer)
    pool = ScenePool("train", families=6000, seed=options.seed)
    report(f"{len(pool)} scenes")
    trainer = Trainer(model, encoder, Heads(), pool, report, options.seed)
    asked = {count: scene_samples(100, count, split="calibration", seed=7) for count in (4, 8)}

    def check(step: int) -> float:
        """Report on the validation scenes; gives vanilla accuracy at N = 8."""
        for count, samples in asked.items():
            orders = random_orders(count, 2)
            seen = observe(model, encoder, samples, orders)
            attention, mass = attention_accuracy(seen)
            vanilla = measure("vanilla", seen, orders)
            report(
                f"  {step} N {count}: attention {attention.round()} mass {mass.round(2)} "
                f"vanilla {vanilla.accuracy:.1f} consistency {vanilla.consistency:.1f}"
            )
        return vanilla.accuracy

    def learned_enough(step: int) -> bool:
        return step % CHECK_EVERY == 0 and check(step) >= READOUT_TARGET

    stage_contrast(trainer, CONTRAST_STEPS)
    if options.no_attention_loss:
        stage_matching(trainer, ATTEMPT_STEPS, Weights(answer=1.5, attention=0.0), Mixture(), check=check)
    else:
        stage_matching(trainer, MATCHING_STEPS, Weights(), Mixture(), check=check)
        stage_readout(trainer, READOUT_LIMIT, READOUT, stop=learned_enough)
    round_to_stored(model)
    check(-1)
    save_checkpoint(model, build_processor(tokenizer), options.out)
    report(f"written to {options.out}")


if __name__ == "__main__":
    main()
