"""Identifiers of every kind, tokenised where the answer stands, by tokenizers of every kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lad.checks.material import Material
from lad.errors import IdentifierError
from lad.identifiers import TokenTrie, make_identifiers
from lad.model.vlm import VisionLanguageModel
from lad.prompts import MATCHING
from tests.model.checkpoints.llava import llava
from tests.model.checkpoints.parts import END, WORDS, byte_level, sentence_piece, turns
from tests.model.pictures import picture

CHAT = ("<image>", "<|user|>", "<|assistant|>")
NUMBERS = tuple(str(number) for number in range(10, 13))

# name -> tokenizer, and the chat template whose end decides what an identifier may join with
KINDS: dict[str, tuple[Callable[[], Any], str]] = {
    "bytes, one token a digit": (lambda: byte_level(CHAT), turns("<image>")),
    "bytes, whole numbers": (
        lambda: byte_level(CHAT, words=(*WORDS, *NUMBERS, "first", "II", "III")),
        turns("<image>"),
    ),
    "bytes, after a colon": (lambda: byte_level(CHAT, words=(*WORDS, "A")), turns("<image>", answer="Answer:")),
    "pieces": (lambda: sentence_piece(CHAT), turns("<image>", answer="<|assistant|>")),
    "pieces, after a space": (
        lambda: sentence_piece(CHAT, words=(*WORDS, "1", "2", "10", "A", "first")),
        turns("<image>", before="USER: ", after=" ", answer="ASSISTANT: "),
    ),
}
OWN: dict[str, tuple[str, ...]] = {
    "prefixes of each other": ("cat", "cats", "catfish", "dog"),
    "several words": ("the first one", "the second one", "neither"),
    "accents and other scripts": ("é", "ü", "二", "٣"),
    "marks": ("(a)", "(b)", "#1", "#12"),
}


@pytest.fixture(scope="module", params=KINDS)
def vlm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> VisionLanguageModel:
    tokenizer, template = KINDS[request.param]
    return VisionLanguageModel.load(llava(tmp_path_factory.mktemp("kind"), tokenizer(), template))


@pytest.mark.parametrize("kind", ["digits", "uppercase", "lowercase", "roman", "words", *OWN])
def test_scores_are_those_of_the_whole_text_run_at_once(vlm: VisionLanguageModel, kind: str) -> None:
    names = OWN[kind] if kind in OWN else make_identifiers(kind, 12 if kind == "digits" else 4)
    pictures = [vlm.prepare(picture(seed)) for seed in range(len(names))]
    images = vlm.encoder.encode(pictures, [str(seed) for seed in range(len(names))])
    ours, _ = vlm.observe(["x"], [images], MATCHING, names)
    assert np.exp(ours).sum() == pytest.approx(1)
    assert ours[0] == pytest.approx(_whole(vlm, pictures, names), abs=1e-5)


def _whole(vlm: VisionLanguageModel, pictures: list[Any], names: tuple[str, ...]) -> Any:
    """Scores from one pass over pixels for each node: the tokens of prompt and identifier written as one text."""
    reference = Material(vlm).reference
    inputs = reference.inputs("x", pictures, names)
    text = vlm.prompts.render(MATCHING, names, "x")
    tokenizer = vlm.processor.tokenizer
    prompt = tokenizer(text)["input_ids"]
    written = [tokenizer(text + name)["input_ids"] for name in names]
    trie = TokenTrie(written, tokenizer.convert_tokens_to_ids(END))
    logits = []
    for branch in trie.branches:
        kept = next((k for k, (a, b) in enumerate(zip(prompt, branch.prefix, strict=False)) if a != b), None)
        kept = min(len(prompt), len(branch.prefix)) if kept is None else kept
        longer = reference.continued(inputs, len(prompt) - kept, branch.prefix[kept:])
        logits.append(reference.logits(longer)[list(branch.continuations)].double().numpy())
    return trie.log_probs(logits)


def test_an_identifier_that_joins_with_the_prompt_takes_its_last_tokens_along(tmp_path: Path) -> None:
    tokenizer, template = KINDS["pieces, after a space"]
    vlm = VisionLanguageModel.load(llava(tmp_path, tokenizer(), template))
    text = vlm.prompts.render(MATCHING, ("1", "3"), "x")
    assert text.endswith("ASSISTANT: ")
    answers = vlm.prompts.answers(text, ("1", "3"))
    space, one = vlm.processor.tokenizer.convert_tokens_to_ids(["▁", "▁1"])
    assert answers.joined == 1
    assert set(answers.trie.branches[0].continuations) == {one, space}, "'3' has no token with a space of its own"
    assert vlm.prompts.answers(text, ("3", "4")).joined == 0, "nothing joins with these"


def test_the_end_is_scored_where_one_identifier_begins_another(tmp_path: Path) -> None:
    tokenizer, template = KINDS["bytes, one token a digit"]
    vlm = VisionLanguageModel.load(llava(tmp_path, tokenizer(), template))
    end = vlm.processor.tokenizer.convert_tokens_to_ids(END)
    assert vlm.prompts.end_token() == end
    names = make_identifiers("digits", 12)
    trie = vlm.prompts.trie(vlm.prompts.render(MATCHING, names, "x"), names)
    (deeper,) = [branch for branch in trie.branches if branch.prefix]
    assert deeper.prefix == (vlm.processor.tokenizer.convert_tokens_to_ids("1"),)
    assert set(deeper.continuations) == {end, *vlm.processor.tokenizer.convert_tokens_to_ids(["0", "1", "2"])}
    assert end not in trie.branches[0].continuations


def test_identifiers_with_the_same_tokens_are_refused(tmp_path: Path) -> None:
    tokenizer, template = KINDS["pieces"]
    vlm = VisionLanguageModel.load(llava(tmp_path, tokenizer(), template))
    names = ("a b", "a▁b")  # one mark for both
    with pytest.raises(IdentifierError, match="identifiers 0 and 1: Has the same tokens as another"):
        vlm.prompts.answers(vlm.prompts.render(MATCHING, names, "x"), names)
