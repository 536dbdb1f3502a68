"""The tokenizer and chat template of the small model: Qwen's kinds, with a vocabulary made for scenes.

The class is Qwen's own, so byte fallback, pre-tokenisation (single digits) and normalisation are those of the
large models. Only the merges differ: they are learned from the prompts and captions the model will see.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from lad.benchmarks.scenes import draw_scene
from lad.identifiers import IDENTIFIER_SETS, make_identifiers
from lad.prompts import MATCHING

IMAGE, VIDEO = "<|image_pad|>", "<|video_pad|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
TURN_START, TURN_END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
SPECIAL_TOKENS = (PAD, TURN_START, TURN_END, VISION_START, VISION_END, "<|vision_pad|>", IMAGE, VIDEO)

# Turns and placeholders as in Qwen2.5-VL, without its default system message.
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\n' }}"
    "{%- if message['content'] is string %}{{- message['content'] }}"
    "{%- else %}{%- for part in message['content'] %}"
    "{%- if part['type'] == 'image' %}{{- '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{%- elif part['type'] == 'video' %}{{- '<|vision_start|><|video_pad|><|vision_end|>' }}"
    "{%- else %}{{- part['text'] }}{%- endif %}"
    "{%- endfor %}{%- endif %}"
    "{{- '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)


def _corpus(seed: int) -> Iterator[str]:
    """Prompts with every identifier set, bare identifiers as they stand in answers, and captions."""
    rng = random.Random(seed)
    for _ in range(4000):
        caption = draw_scene(rng).caption
        identifiers = make_identifiers(rng.choice(tuple(IDENTIFIER_SETS)), rng.randint(2, 12))
        yield f"user\n{MATCHING.render(identifiers, caption)}\nassistant\n{rng.choice(identifiers)}"
        yield MATCHING.render(make_identifiers("digits", rng.randint(2, 12)), caption)
    yield from ["system\nuser\nassistant\n"] * 50


def build_tokenizer(seed: int = 0, vocabulary: int = 1024) -> Qwen2Tokenizer:
    """Train the merges and wrap them in Qwen's tokenizer class, chat template included.

    Args:
        seed: seed of the corpus.
        vocabulary: upper limit; fewer entries come out when the corpus has no more pairs to merge.
    """
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.NFC()
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    learner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learner.train_from_iterator(_corpus(seed), trainer)
    vocab = learner.get_vocab()
    merges = _merges(learner)
    tokenizer = Qwen2Tokenizer(
        vocab=vocab, merges=merges, eos_token=TURN_END, pad_token=PAD, unk_token=PAD, model_max_length=2048
    )
    tokenizer.add_tokens(list(SPECIAL_TOKENS), special_tokens=True)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _merges(learner: Tokenizer) -> list[tuple[str, str]]:
    """The learned merges, in order."""
    pairs = json.loads(learner.to_str())["model"]["merges"]
    return [(left, right) for left, right in pairs]
