"""Tiny checkpoints of families whose image is one run of tokens: the LLaVA kin, InternVL, FastVLM, Mistral 3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import (
    CLIPImageProcessor,
    CLIPVisionConfig,
    FastVlmConfig,
    GotOcr2ImageProcessor,
    InternVLConfig,
    InternVLProcessor,
    InternVLVideoProcessor,
    LlavaConfig,
    LlavaNextConfig,
    LlavaNextImageProcessor,
    LlavaNextProcessor,
    LlavaOnevisionConfig,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    LlavaProcessor,
    Mistral3Config,
    PixtralImageProcessor,
    PixtralProcessor,
    SiglipVisionConfig,
    TimmWrapperConfig,
)

from tests.model.checkpoints.parts import byte_level, save, sentence_piece, text_config, turns

_CHAT = ("<image>", "<video>", "<|user|>", "<|assistant|>")
_SHAPES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
_SIZE = {"height": 28, "width": 28}


def _text(tokenizer: Any, kind: str, **changes: Any) -> dict[str, Any]:
    return {"model_type": kind, **text_config(tokenizer, **changes)}


def llava(folder: Path, tokenizer: Any = None, template: str | None = None) -> Path:
    """As llava-interleave: images fuse into one run of tokens.

    Args:
        folder: where to.
        tokenizer: one that knows ``<image>``, in place of the family's own kind.
        template: another chat template.
    """
    tokenizer = tokenizer or sentence_piece(_CHAT)
    config = LlavaConfig(
        text_config=_text(tokenizer, "llama"),
        vision_config=CLIPVisionConfig(**_SHAPES, projection_dim=32).to_dict(),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-2,
    )
    processor = LlavaProcessor(
        CLIPImageProcessor(size={"shortest_edge": 28}, crop_size=_SIZE),
        tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=template or turns("<image>", before="USER: ", after=" ", answer="ASSISTANT: "),
    )
    return save(folder, config, processor)


def llava_next(folder: Path) -> Path:
    """With Mistral as its text model; its window is longer than any prompt here."""
    tokenizer = sentence_piece(_CHAT)
    pinpoints = [[28, 56], [56, 28], [56, 56]]
    config = LlavaNextConfig(
        text_config=_text(tokenizer, "mistral", sliding_window=4096),
        vision_config=CLIPVisionConfig(**_SHAPES, projection_dim=32).to_dict(),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=pinpoints,
        vision_feature_layer=-2,
    )
    processor = LlavaNextProcessor(
        LlavaNextImageProcessor(size={"shortest_edge": 28}, crop_size=_SIZE, image_grid_pinpoints=pinpoints),
        tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=turns("<image>\n", before="[INST] ", after=" [/INST]", answer=""),
    )
    return save(folder, config, processor)


def llava_onevision(folder: Path) -> Path:
    tokenizer = byte_level(_CHAT)
    pinpoints = [[28, 28], [28, 56], [56, 28], [56, 56]]
    config = LlavaOnevisionConfig(
        text_config=_text(tokenizer, "qwen2"),
        vision_config=SiglipVisionConfig(**_SHAPES, vision_use_head=False).to_dict(),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        video_token_index=tokenizer.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=pinpoints,
    )
    processor = LlavaOnevisionProcessor(
        LlavaOnevisionImageProcessor(size=_SIZE, image_grid_pinpoints=pinpoints),
        tokenizer,
        LlavaOnevisionVideoProcessor(size=_SIZE),
        num_image_tokens=4,
        vision_feature_select_strategy="full",
        chat_template=turns("<image>"),
    )
    return save(folder, config, processor)


def internvl(folder: Path) -> Path:
    tokenizer = byte_level(
        ("<|user|>", "<|assistant|>"),
        start_image_token="<img>",
        end_image_token="</img>",
        context_image_token="<IMG_CONTEXT>",
        video_token="<video>",
    )
    vision = {**_SHAPES, "image_size": [28, 28], "patch_size": [7, 7]}
    config = InternVLConfig(
        text_config=_text(tokenizer, "qwen2"),
        vision_config=vision,
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=4,
    )
    processor = InternVLProcessor(
        GotOcr2ImageProcessor(size=_SIZE),
        tokenizer,
        InternVLVideoProcessor(size=_SIZE),
        image_seq_length=4,
        chat_template=turns("<IMG_CONTEXT>\n"),
    )
    return save(folder, config, processor)


def fast_vlm(folder: Path) -> Path:
    tokenizer = byte_level(_CHAT)
    config = FastVlmConfig(
        text_config=_text(tokenizer, "qwen2"),
        vision_config=TimmWrapperConfig(
            architecture="resnet10t", do_pooling=False, hidden_size=512, num_classes=0
        ).to_dict(),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=4,
    )
    processor = LlavaProcessor(
        CLIPImageProcessor(size={"shortest_edge": 64}, crop_size={"height": 64, "width": 64}),
        tokenizer,
        patch_size=32,
        vision_feature_select_strategy="full",
        num_additional_image_tokens=0,
        chat_template=turns("<image>\n"),
    )
    return save(folder, config, processor)


def mistral3(folder: Path) -> Path:
    tokenizer = byte_level(("[IMG]", "[IMG_BREAK]", "[IMG_END]", "[INST]", "[/INST]"))
    vision = {**_SHAPES, "model_type": "pixtral", "head_dim": 16, "image_size": 56}
    config = Mistral3Config(
        text_config=_text(tokenizer, "mistral", sliding_window=None),
        vision_config=vision,
        image_token_index=tokenizer.convert_tokens_to_ids("[IMG]"),
        spatial_merge_size=2,
    )
    processor = PixtralProcessor(
        PixtralImageProcessor(size={"longest_edge": 56}, patch_size={"height": 14, "width": 14}),
        tokenizer,
        patch_size=14,
        spatial_merge_size=2,
        chat_template=turns("[IMG]", before="[INST]", after="[/INST]", answer=""),
    )
    return save(folder, config, processor)
