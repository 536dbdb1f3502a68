"""Which patches of each image the last prompt token looks at: the probe's row, kept patch by patch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from lad.errors import ModelError
from lad.identifiers import make_identifiers
from lad.model.features import EncodedImage
from lad.model.probe import Collector
from lad.model.scoring import collate, decoder_depth, prefill
from lad.model.vlm import VisionLanguageModel
from lad.prompts import MATCHING, PromptTemplate
from lad.samples import Sample


def observe_patches(
    vlm: VisionLanguageModel,
    sample: Sample,
    order: Sequence[int] | None = None,
    *,
    template: PromptTemplate = MATCHING,
    identifiers: str | Sequence[str] = "digits",
) -> list[NDArray[np.float64]]:
    """Attention of the last prompt token on every patch of every image, in one forward pass.

    Marker tokens around an image are no patches, so the sum over an image is what the probe gives it with
    ``attention="features"``.

    Args:
        vlm: the model.
        sample: a caption with N images.
        order: ``order[p]`` is the candidate at position p; the identity if left out.
        template: the prompt's wording.
        identifiers: what names the positions in the answer.

    Returns:
        By candidate, (L, rows, columns), mean over heads; zero in layers without attention.

    Raises:
        ModelError: the model's image tokens form no grid, or it attends to its images in layers of their own.
    """
    ready = vlm.prepare_sample(sample)
    candidates = list(range(len(ready))) if order is None else [int(candidate) for candidate in order]
    names = make_identifiers(identifiers, len(ready))
    encoded = vlm.encode(ready)
    images = [encoded[candidate] for candidate in candidates]
    grids = [patch_grid(image) for image in images]
    text = vlm.prompts.render(template, names, ready.caption)
    prompt = vlm.prompts.tokenize(text, images).without_last(vlm.prompts.answers(text, names).joined)
    batch = collate([prompt], vlm.pad_token, vlm.device)
    tokens = batch.inputs["input_ids"]
    patches = (tokens == vlm.model.config.image_token_id)[0]
    wanted = sum(rows * columns for rows, columns in grids)
    if int(patches.sum()) != wanted:
        raise ModelError(f"The prompt has {int(patches.sum())} image tokens where {wanted} patches were expected.")
    # every patch a segment of its own, in the order of the prompt; whatever else is the last segment
    segments = torch.full_like(tokens, wanted)
    segments[0, patches] = torch.arange(wanted, device=tokens.device)
    collector = Collector(segments, wanted + 1)
    prefill(vlm.model, batch, vlm.encoder.prefill_inputs(tokens, [images]), collector)
    if not collector.sums:
        raise ModelError("The model's attention did not pass through the probe.")
    rows = collector.stacked(decoder_depth(vlm.model))[0, :, :wanted].double().cpu().numpy()
    maps: list[NDArray[np.float64]] = [np.empty(0)] * len(candidates)
    start = 0
    for candidate, (height, width) in zip(candidates, grids, strict=True):
        maps[candidate] = rows[:, start : start + height * width].reshape(-1, height, width)
        start += height * width
    return maps


def patch_grid(image: EncodedImage) -> tuple[int, int]:
    """Rows and columns of an image's patches as the decoder sees them.

    Raises:
        ModelError: they form no grid, for instance because the image was cut into tiles.
    """
    tokens = len(image.features)
    if "image_grid_thw" in image.grid:
        frames, height, width = (int(n) for n in image.grid["image_grid_thw"].flatten())
        # neighbouring patches are merged before the decoder sees them
        merged = math.isqrt(frames * height * width // tokens)
        if frames == 1 and (height // merged) * (width // merged) == tokens:
            return height // merged, width // merged
    side = math.isqrt(tokens)
    if side * side != tokens:
        raise ModelError(
            f"The {tokens} tokens of an image form no grid of patches, so attention cannot be drawn over it.",
            hint="Load the model without tiling, and with square images.",
        )
    return side, side


def strongest_layers(maps: Sequence[NDArray[np.float64]], top_k: int = 2) -> list[NDArray[np.float64]]:
    """Mean (rows, columns) over the K layers with most attention on all images together (paper Eq. 8-9).

    Args:
        maps: per image, (L, rows, columns).
        top_k: K.
    """
    mass = sum(values.sum(axis=(1, 2)) for values in maps)
    chosen = np.argsort(-np.asarray(mass), kind="stable")[:top_k]
    return [values[chosen].mean(axis=0) for values in maps]
