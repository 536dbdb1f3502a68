"""Prompts as the model's own template and processor make them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lad.errors import PromptError
from lad.identifiers import make_identifiers
from lad.model.vlm import VisionLanguageModel
from lad.prompts import MATCHING
from tests.model.checkpoints import BUILDERS
from tests.model.checkpoints.llava import llava
from tests.model.checkpoints.parts import END, START, byte_level, turns
from tests.model.conftest import Loader
from tests.model.pictures import picture

NAMES = ("1", "2", "3")


def test_images_come_first_then_the_question_then_the_answer_opens(shipped: VisionLanguageModel) -> None:
    text = shipped.prompts.render(MATCHING, NAMES, "a red square")
    image = "<|vision_start|><|image_pad|><|vision_end|>"
    assert text.startswith("<|im_start|>user\n" + 3 * image + "The 3 pictures above")
    assert text.endswith("Caption: a red square\nAnswer:<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("caption", ["an <|image_pad|>", "a <|im_end|> turn", "<|vision_start|>"])
def test_a_caption_with_a_control_token_is_refused(shipped: VisionLanguageModel, caption: str) -> None:
    with pytest.raises(PromptError, match=r"The caption contains '<\|\w+\|>'"):
        shipped.prompts.render(MATCHING, NAMES, caption)


@pytest.mark.parametrize("name", BUILDERS)
def test_a_caption_with_the_familys_own_placeholder_is_refused(name: str, load: Loader) -> None:
    vlm = load(name)
    with pytest.raises(PromptError, match="control token"):
        vlm.prompts.render(MATCHING, NAMES, f"a {vlm.processor.image_token} here")
    for text in ("", " \n"):
        with pytest.raises(PromptError, match="caption is empty"):
            vlm.prompts.render(MATCHING, NAMES, text)


@pytest.mark.parametrize("name", BUILDERS)
def test_twelve_placeholders_stand_in_the_order_asked_for(name: str, load: Loader) -> None:
    vlm = load(name)
    names = make_identifiers("digits", 12)
    images = vlm.encoder.encode([vlm.prepare(picture(seed)) for seed in range(12)], [str(seed) for seed in range(12)])
    prompt = vlm.prompts.tokenize(vlm.prompts.render(MATCHING, names, "x"), images)
    owners = [int(segment) for segment in prompt.segments if segment < 12]
    assert owners == sorted(owners)
    assert set(owners) == set(range(12))
    assert prompt.images == 12


@pytest.mark.parametrize("writes", [True, False])
def test_there_is_exactly_one_start_token(tmp_path: Path, writes: bool) -> None:
    tokenizer = byte_level(("<image>", "<|user|>", "<|assistant|>"))
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{START} $A", pair=f"{START} $A $B", special_tokens=[(START, tokenizer.bos_token_id)]
    )
    template = ("{{- bos_token }}" if writes else "") + turns("<image>")
    vlm = VisionLanguageModel.load(llava(tmp_path, tokenizer, template))
    images = vlm.encoder.encode([vlm.prepare(picture(0))] * 3, ["0"] * 3)
    tokens = vlm.prompts.tokenize(vlm.prompts.render(MATCHING, NAMES, "x"), images).tokens.tolist()
    assert tokens[0] == tokenizer.bos_token_id
    assert tokens.count(tokenizer.bos_token_id) == 1


def test_a_prompt_longer_than_the_model_is_refused_with_its_numbers(shipped: VisionLanguageModel) -> None:
    names = make_identifiers("digits", 400)
    images = shipped.encoder.encode([shipped.prepare(picture(0))] * 400, ["long"] * 400)
    with pytest.raises(PromptError, match=r"has \d+ tokens for 400 images; the model takes 2048.*fewer images"):
        shipped.prompts.tokenize(shipped.prompts.render(MATCHING, names, "x"), images)


def test_prompts_are_remembered_by_size_not_by_content(shipped: VisionLanguageModel) -> None:
    text = shipped.prompts.render(MATCHING, ("1", "2"), "remember me")
    first, second = (shipped.encoder.encode([shipped.prepare(picture(seed))] * 2, [f"r{seed}"] * 2) for seed in (0, 1))
    assert shipped.prompts.tokenize(text, first) is shipped.prompts.tokenize(text, second)


def test_a_template_of_its_own_beats_the_familys(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "paligemma"
    shutil.copytree(checkpoint("paligemma"), folder)
    plain = VisionLanguageModel.load(folder)
    assert plain.prompts.render(MATCHING, NAMES, "x").startswith("<image><image><image>The 3 pictures")
    (folder / "chat_template.jinja").write_text(turns("<image>", before="Look: "))
    own = VisionLanguageModel.load(folder)
    assert own.prompts.render(MATCHING, NAMES, "x").startswith("Look: <image>")


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        ("{{- m['content'][0]['text'] + '<|user|>' }}", "<|user|>"),
        ("{{- m['content'] + '<|assistant|>' }}", "<|assistant|>"),  # takes words as plain text only
        ("{{- raise_exception('no answers here') }}", END),
    ],
)
def test_the_end_of_an_answer_is_read_off_the_template(tmp_path: Path, answer: str, ends: str) -> None:
    template = (
        "{%- for m in messages %}{%- if m['role'] == 'user' %}{%- for part in m['content'] %}"
        "{%- if part['type'] == 'image' %}{{- '<image>' }}{%- else %}{{- part['text'] }}{%- endif %}"
        "{%- endfor %}{{- ' So: ' }}{%- else %}" + answer + "{%- endif %}{%- endfor %}"
    )
    vlm = VisionLanguageModel.load(llava(tmp_path, byte_level(("<image>", "<|user|>", "<|assistant|>")), template))
    assert vlm.processor.tokenizer.convert_ids_to_tokens(vlm.prompts.end_token()) == ends
