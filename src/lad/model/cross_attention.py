"""Images as keys of cross-attention layers (mllama), not as tokens of the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image

from lad.errors import ModelError
from lad.model.features import EncodedImage, ImageEncoder
from lad.model.probe import Collector

_TILES = "tiles"


class CrossAttentionEncoder(ImageEncoder):
    """Encodes images for layers that attend to images and to nothing else.

    Every image has the same number of keys: those of the model's largest number of tiles. Keys of tiles that a
    picture does not fill are masked. Every token sees all images whose placeholder it has passed, so the question
    sees them all.
    """

    def _prepare(self) -> None:
        for name in ("vision_model", "multi_modal_projector"):
            if not hasattr(self._model.model, name):
                raise ModelError(f"{type(self._model).__name__} has no {name}, so its images cannot be encoded.")
        self._layers = frozenset(self._model.config.get_text_config().cross_attention_layers)

    def _inputs(self, images: list[Image.Image]) -> Any:
        return self._process(images)

    def _run(self, images: list[Image.Image], digests: list[str], inputs: Any) -> list[EncodedImage]:
        names = ("pixel_values", "aspect_ratio_ids", "aspect_ratio_mask")
        pixels, ratio_ids, ratio_mask = (self._to_model(inputs[name]) for name in names)
        core = self._model.model
        with torch.inference_mode():
            seen = core.vision_model(pixel_values=pixels, aspect_ratio_ids=ratio_ids, aspect_ratio_mask=ratio_mask)
            states = core.multi_modal_projector(seen.last_hidden_state)
        self.encoded += len(images)
        # (1, images, tiles, patches, D) -> one (tiles * patches, D) per image
        rows = states.reshape(len(images), -1, states.shape[-1])
        return [
            EncodedImage(
                digest=digest,
                features=rows[index].clone(),
                replacement=self._processor.image_token,
                grid={_TILES: ratio_mask[0, index : index + 1].clone()},
            )
            for index, digest in enumerate(digests)
        ]

    def prefill_inputs(self, tokens: torch.Tensor, images: Sequence[Sequence[EncodedImage]]) -> dict[str, Any]:
        """See :meth:`ImageEncoder.prefill_inputs`."""
        passed = (tokens == self._model.config.image_token_id).cumsum(dim=1)
        numbers = torch.arange(len(images[0]), device=tokens.device)
        tiles = self._tiles(images)
        # (B, T, N, tiles)
        mask = (passed[:, :, None] > numbers).long()[..., None] * tiles[:, None]
        patches = images[0][0].features.shape[0] // tiles.shape[-1]
        states = torch.cat([image.features for row in images for image in row])
        return {
            "cross_attention_states": states.view(-1, patches, states.shape[-1]),
            "cross_attention_mask": mask,
        }

    def step_inputs(self, prefill: dict[str, Any], steps: int) -> dict[str, Any]:
        """See :meth:`ImageEncoder.step_inputs`."""
        return {"cross_attention_mask": prefill["cross_attention_mask"][:, -1:].expand(-1, steps, -1, -1)}

    def collector(self, segments: torch.Tensor, images: Sequence[Sequence[EncodedImage]]) -> Collector:
        """See :meth:`ImageEncoder.collector`: segments of keys, where those of empty tiles are of no image."""
        tiles = self._tiles(images)
        rows, count, number = tiles.shape
        patches = images[0][0].features.shape[0] // number
        owners = torch.arange(count, device=segments.device)[None, :, None].expand(rows, count, number)
        owners = owners.masked_fill(tiles == 0, count).repeat_interleave(patches, dim=2)
        return Collector(owners.reshape(rows, -1), count + 1, self._layers)

    def _tiles(self, images: Sequence[Sequence[EncodedImage]]) -> torch.Tensor:
        """(B, N, tiles), 1 where a tile holds a part of the picture."""
        rows = [torch.cat([image.grid[_TILES] for image in row]) for row in images]
        return torch.stack(rows).long().to(self._model.device)
