"""Tiny checkpoints with random weights: the genuine classes of every family, its processor and a chat template.

Each builder writes a checkpoint into a folder as a user would find it, to be loaded by its path.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.model.checkpoints import google, llava, qwen, tiled

BUILDERS: dict[str, Callable[[Path], Path]] = {
    builder.__name__: builder
    for builder in (
        qwen.qwen2_5_vl,
        llava.internvl,
        qwen.qwen2_vl,
        qwen.qwen3_vl,
        qwen.glm4v,
        llava.llava,
        llava.llava_next,
        llava.llava_onevision,
        llava.fast_vlm,
        llava.mistral3,
        tiled.idefics3,
        tiled.smolvlm,
        tiled.aya_vision,
        tiled.cohere2_vision,
        tiled.ovis2,
        tiled.lfm2_vl,
        tiled.molmo2,
        google.gemma3,
        google.gemma4,
        google.paligemma,
        google.paligemma2,
        google.mllama,
    )
}
"""Name -> what writes the checkpoint; the name is the ``model_type`` but for variants of one."""
