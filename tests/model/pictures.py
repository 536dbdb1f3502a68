"""Pictures for tests of models: coarse coloured blocks, different for each seed."""

from __future__ import annotations

import numpy as np
from PIL import Image

from lad.samples import Sample


def picture(seed: int, width: int = 64, height: int = 64) -> Image.Image:
    blocks = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(blocks).resize((width, height), Image.Resampling.BICUBIC)


def sample(count: int, caption: str = "a red square", *, first: int = 0, name: str = "one") -> Sample:
    return Sample(caption, tuple(picture(first + index) for index in range(count)), 0, name)
