"""What differs between model families, as data.

A family that follows the conventions of transformers needs no entry here. Nothing in this package branches on a
family's name: code asks the entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Family:
    """One family's peculiarities.

    Attributes:
        processor_kwargs: given to the processor for images; tiling is switched off here, so that an image has a
            fixed number of tokens.
        alone_differs: an image processed alone is treated differently from the same image among others, so it
            is always processed in company.
        first_position: position id of the first token.
    """

    processor_kwargs: Mapping[str, Any] = field(default_factory=dict)
    alone_differs: bool = False
    first_position: int = 0


DEFAULT = Family()

FAMILIES: dict[str, Family] = {
    "internvl": Family(processor_kwargs={"crop_to_patches": False}),
    "llava_onevision": Family(alone_differs=True),
    "idefics3": Family(processor_kwargs={"do_image_splitting": False}),
    "smolvlm": Family(processor_kwargs={"do_image_splitting": False}),
    "aya_vision": Family(processor_kwargs={"crop_to_patches": False}),
    "cohere2_vision": Family(processor_kwargs={"crop_to_patches": False}),
    "lfm2_vl": Family(processor_kwargs={"do_image_splitting": False}),
    "paligemma": Family(first_position=1),
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
