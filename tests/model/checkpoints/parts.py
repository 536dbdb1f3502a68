"""What the tiny checkpoints are put together from: tokenizers, chat templates, and the shapes of decoders."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoModelForImageTextToText, PreTrainedTokenizerFast

PAD, START, END, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"

# Frequent words of the prompts, so that a prompt is short; everything else falls back to characters.
WORDS = ("The", "pictures", "above", "are", "numbered", "Which", "one", "does", "caption", "describe", "Answer", "with")

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 8192,
    "initializer_range": 0.2,
}
"""Shapes of a decoder; wide initial weights, so that attention and answers are far from uniform."""


def turns(image: str, before: str = "<|user|>\n", after: str = "\n", answer: str = "<|assistant|>\n") -> str:
    """A chat template: ``before``, the parts of the turn in their order, ``after``; then ``answer``."""
    return (
        "{%- for message in messages %}"
        f"{{%- if message['role'] == 'user' %}}{{{{- {before!r} }}}}{{%- else %}}{{{{- {answer!r} }}}}{{%- endif %}}"
        "{%- for part in message['content'] %}"
        f"{{%- if part['type'] == 'image' %}}{{{{- {image!r} }}}}{{%- else %}}{{{{- part['text'] }}}}{{%- endif %}}"
        "{%- endfor %}"
        f"{{%- if message['role'] == 'user' %}}{{{{- {after!r} }}}}{{%- else %}}{{{{- '{END}\n' }}}}{{%- endif %}}"
        "{%- endfor %}"
        f"{{%- if add_generation_prompt %}}{{{{- {answer!r} }}}}{{%- endif %}}"
    )


def _merges(words: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Entries and merges that build each word up from its left, character by character."""
    entries, merges = [], []
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in entries:
                entries.append(word[:end])
                merges.append((word[: end - 1], word[end - 1]))
    return entries, merges


def byte_level(special: Sequence[str] = (), *, words: Sequence[str] = WORDS, **named: str) -> PreTrainedTokenizerFast:
    """A tokenizer of the kind of GPT-2, Qwen and Llama 3: BPE on bytes.

    Args:
        special: control tokens.
        words: what is one token; "10" makes a number of two digits one token, as in Llama 3.
        named: control tokens under names that the processor asks for.
    """
    entries, merges = _merges(words)
    vocab = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *entries]
    core = Tokenizer(models.BPE(vocab={entry: number for number, entry in enumerate(vocab)}, merges=merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    core.decoder = decoders.ByteLevel()
    return _wrap(core, special, named)


def sentence_piece(
    special: Sequence[str] = (), *, words: Sequence[str] = WORDS, bos: bool = True, **named: str
) -> PreTrainedTokenizerFast:
    """A tokenizer of the kind of Llama 2, Mistral and Gemma: BPE on text, spaces as a mark, bytes as a last resort.

    Args:
        special: control tokens.
        words: what is one token.
        bos: whether a start token is put in front of every text.
        named: control tokens under names that the processor asks for.
    """
    entries, merges = _merges([*words, *(f"▁{word}" for word in words)])
    characters = string.ascii_letters + string.digits + string.punctuation + "▁\n"
    vocab = [UNKNOWN, *(f"<0x{byte:02X}>" for byte in range(256)), *characters, *entries]
    core = Tokenizer(
        models.BPE(
            vocab={entry: number for number, entry in enumerate(vocab)},
            merges=merges,
            unk_token=UNKNOWN,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    core.normalizer = normalizers.Replace(" ", "▁")
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = _wrap(core, special, named)
    if bos:
        from tokenizers.processors import TemplateProcessing

        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{START} $A", pair=f"{START} $A $B", special_tokens=[(START, tokenizer.bos_token_id)]
        )
    return tokenizer


def _wrap(core: Tokenizer, special: Sequence[str], named: Mapping[str, str]) -> PreTrainedTokenizerFast:
    control = list(dict.fromkeys([PAD, START, END, *named.values(), *special]))
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        bos_token=START,
        eos_token=END,
        extra_special_tokens=dict(named),
        padding_side="left",
    )


def text_config(tokenizer: PreTrainedTokenizerFast, **changes: Any) -> dict[str, Any]:
    """The decoder's shapes with the tokenizer's vocabulary."""
    ids = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    return {**TEXT, **ids, **changes}


def save(folder: Path, config: Any, processor: Any, *, after: Callable[[Any], None] | None = None) -> Path:
    """Write a checkpoint with random weights.

    Args:
        folder: where to.
        config: the model's configuration; its class decides the model's class.
        processor: the processor, chat template included.
        after: may change the weights before they are written.
    """
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    _spread(model)
    if after is not None:
        after(model)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def _spread(model: torch.nn.Module) -> None:
    """Give every weight matrix entries of a useful size, whatever the class's own initialisation."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not torch.isfinite(parameter).all():
                raise RuntimeError(f"{name} is not finite")
            if parameter.ndim > 1:
                fan = parameter[0].numel()
                parameter.normal_(0.0, 1.4 * fan**-0.5)
            elif parameter.abs().max() == 0:
                parameter.normal_(0.0, 0.1)
