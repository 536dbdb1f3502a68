from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lad.errors import PromptError
from lad.identifiers import make_identifiers
from lad.prompts import MATCHING, PromptTemplate, is_numbered, load_prompt


def test_numbered_positions() -> None:
    assert MATCHING.render(["1", "2", "3"], " a dog\n") == (
        "The 3 pictures above are numbered 1 to 3 in the order shown. "
        "Which one does the caption describe? Answer with its number alone.\n"
        "Caption: a dog\n"
        "Answer:"
    )


def test_any_other_identifiers_are_listed() -> None:
    assert MATCHING.render(["A", "B"], "a dog") == (
        "The 2 pictures above are labelled, in the order shown: A, B. "
        "Which one does the caption describe? Answer with its label alone.\n"
        "Caption: a dog\n"
        "Answer:"
    )


@pytest.mark.parametrize(
    ("identifiers", "expected"),
    [(["1", "2"], True), (("1", "2", "3"), True), (["0", "1"], False), (["2", "1"], False), (["1", "B"], False)],
)
def test_is_numbered(identifiers: list[str], expected: bool) -> None:
    assert is_numbered(identifiers) is expected


@given(st.text(min_size=1).filter(str.strip), st.sampled_from(["digits", "uppercase", "words"]))
def test_captions_stand_as_they_are(caption: str, kind: str) -> None:
    # braces, newlines and field names in a caption are its own affair
    text = MATCHING.render(make_identifiers(kind, 4), caption)
    assert f"\nCaption: {caption.strip()}\nAnswer:" in text
    assert text.endswith("\nAnswer:")


def test_a_caption_with_a_field_in_it_is_not_filled_in() -> None:
    assert "Caption: {count} of {caption}\n" in MATCHING.render(["1", "2"], "{count} of {caption}")


@pytest.mark.parametrize("caption", ["", " ", "\n\t", "\u3000"])
def test_empty_captions_are_refused(caption: str) -> None:
    with pytest.raises(PromptError, match="caption is empty"):
        MATCHING.render(["1", "2"], caption)


def test_the_digest_is_that_of_the_wording() -> None:
    renamed = PromptTemplate("another name", MATCHING.numbered, MATCHING.listed)
    reworded = PromptTemplate(MATCHING.name, MATCHING.numbered + " ", MATCHING.listed)
    swapped = PromptTemplate(MATCHING.name, MATCHING.listed, MATCHING.numbered)
    assert renamed.digest == MATCHING.digest
    assert len({MATCHING.digest, reworded.digest, swapped.digest}) == 3
    assert len(MATCHING.digest) == 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{captoin}", "Unknown field 'captoin'"),
        ("{0} {caption}", "Unknown field '0'"),
        ("{} {caption}", "Unknown field ''"),
        ("{caption.__class__}", "Unknown field 'caption.__class__'"),
        ("no field", "field {caption} is missing"),
        ("{caption", "no valid template"),
        ("caption}", "no valid template"),
    ],
)
@pytest.mark.parametrize("kind", ["numbered", "listed"])
def test_templates_are_checked_when_made(kind: str, text: str, message: str) -> None:
    texts = {"numbered": "{caption}", "listed": "{caption}", kind: text}
    with pytest.raises(PromptError, match=message) as caught:
        PromptTemplate("mine", **texts)
    assert caught.value.where == f"prompt 'mine', '{kind}'"


def test_prompts_come_from_files(tmp_path: Path) -> None:
    file = tmp_path / "polite.json"
    texts = {"numbered": "{count}? {caption} {{}}", "listed": "{identifiers}? {caption}"}
    # with a byte order mark, as some editors leave it
    file.write_text(json.dumps(texts), encoding="utf-8-sig")
    prompt = load_prompt(file)
    assert prompt == PromptTemplate("polite", **texts)
    assert prompt.render(["1", "2"], "a cat") == "2? a cat {}"
    assert prompt.render(["a", "b"], "a cat") == "a, b? a cat"
    file.write_text(json.dumps({**texts, "name": "named"}))
    assert load_prompt(str(file)).name == "named"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no valid JSON"),
        (b"{", "no valid JSON"),
        (b"\xff\xfe{}", "no valid JSON"),
        (b"[]", "Must be a JSON object"),
        (b'{"numbered": "{caption}"}', "with the keys 'numbered' and 'listed'"),
        (b'{"numbered": "{caption}", "listed": 3}', "Every value must be a text"),
        (b'{"numbered": "{caption}", "listed": "{caption}", "nane": "x"}', "Unknown key 'nane'"),
        (b'{"numbered": "{caption}", "listed": "{x} {caption}"}', "Unknown field 'x'"),
    ],
)
def test_broken_prompt_files(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "prompt.json"
    file.write_bytes(content)
    with pytest.raises(PromptError, match=f"(?i){message}") as caught:
        load_prompt(file)
    assert "prompt" in str(caught.value.where)


def test_missing_prompt_files(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.json", tmp_path):
        with pytest.raises(PromptError, match="Cannot be read") as caught:
            load_prompt(path)
        assert caught.value.where == str(path)
