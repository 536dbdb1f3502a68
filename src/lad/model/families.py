"""What differs between model families, as data.

A family that follows the conventions of transformers needs no entry here. Nothing in this package branches on a
family's name: code asks the entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Family:
    """One family's peculiarities.

    Attributes:
        one_tile: options of the processor with which it does not cut an image into tiles, so that an image has a
            fixed number of tokens.
        shape_dependent: an image's number of tokens depends on its shape, so images are brought to one square size
            unless told otherwise. Known of all families with ``image_grid_thw``, which need not say so.
        alone_differs: an image processed alone is treated differently from the same image among others, so it
            is always processed in company.
        first_position: position id of the first token.
        adds_start: its processor puts the start token in front of a text that has none.
        images: how images reach the decoder: "tokens", their features take the place of placeholder tokens; or
            "cross_attention", they are keys of layers of their own.
        answer_type: type id of an answer's tokens, where a prompt and its answer are run together.
        images_see_text: image tokens attend to the text behind them, so nothing of a prompt can be reused for another
            caption.
        chat_template: for families whose checkpoints carry none because they are asked in one fixed form.
    """

    one_tile: Mapping[str, Any] = field(default_factory=dict)
    shape_dependent: bool = False
    alone_differs: bool = False
    first_position: int = 0
    adds_start: bool = False
    images: Literal["tokens", "cross_attention"] = "tokens"
    answer_type: int = 0
    images_see_text: bool = False
    chat_template: str | None = None

    def image_options(self, tiling: bool) -> dict[str, Any]:
        """Options of the processor for images: one tile each, or tiles.

        Where tiles are wanted, switches are turned on; numbers are left to the processor.
        """
        if not tiling:
            return dict(self.one_tile)
        return {name: not value for name, value in self.one_tile.items() if isinstance(value, bool)}


DEFAULT = Family()

_NO_CROPS = {"crop_to_patches": False}
_NO_SPLITTING = {"do_image_splitting": False}

# Its processor adds the start token and a line end: a question is the images and the text, nothing else.
_PLAIN = (
    "{%- for message in messages %}{%- for part in message['content'] %}"
    "{%- if part['type'] == 'image' %}{{- '<image>' }}{%- else %}{{- part['text'] }}{%- endif %}"
    "{%- endfor %}{%- endfor %}"
)

FAMILIES: dict[str, Family] = {
    "aya_vision": Family(one_tile=_NO_CROPS),
    "cohere2_vision": Family(one_tile=_NO_CROPS),
    "gemma3": Family(one_tile={"do_pan_and_scan": False}),
    "gemma4": Family(shape_dependent=True),
    "idefics3": Family(one_tile=_NO_SPLITTING),
    "internvl": Family(one_tile=_NO_CROPS),
    "lfm2_vl": Family(one_tile=_NO_SPLITTING, shape_dependent=True),
    "llava_next": Family(shape_dependent=True),
    "llava_onevision": Family(alone_differs=True),
    "mistral3": Family(shape_dependent=True),
    "mllama": Family(shape_dependent=True, images="cross_attention"),
    "molmo2": Family(one_tile={"max_crops": 1}, shape_dependent=True, adds_start=True),
    "ovis2": Family(one_tile=_NO_CROPS),
    "paligemma": Family(first_position=1, answer_type=1, images_see_text=True, chat_template=_PLAIN),
    "smolvlm": Family(one_tile=_NO_SPLITTING),
}

MARKER_FIELDS = (
    "vision_start_token_id",
    "vision_end_token_id",
    "image_start_token_id",
    "image_end_token_id",
    "boi_token_id",
    "eoi_token_id",
)
"""Fields of a model's configuration that name the tokens around an image."""


def family_of(model_type: str) -> Family:
    """The entry of a ``config.model_type``; the default for families without one."""
    return FAMILIES.get(model_type, DEFAULT)
