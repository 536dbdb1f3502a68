"""Each image is encoded once and its features reused in every order, prompt and caption."""

from __future__ import annotations

import inspect
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from PIL import Image

from lad.errors import ModelError
from lad.model.families import Family
from lad.model.memory import Budget
from lad.model.probe import Collector

_INTERNAL = ("last_hidden_state", "hidden_states", "attentions")

PROCESSOR_LOCK = threading.RLock()
"""Held while a processor or its tokenizer is at work: a fast tokenizer must not be used by two threads at once."""

Processed: TypeAlias = Mapping[tuple[str, ...], Any]
"""The processor's output for runs of images, by their digests."""


@dataclass(frozen=True, eq=False)
class EncodedImage:
    """One image as the text decoder will see it.

    Attributes:
        digest: content hash of the picture.
        features: (tokens, D), the rows that replace the placeholder's feature tokens.
        deepstack: further rows (tokens, D), one tensor per early decoder layer, in families that have them.
        replacement: the text that the placeholder expands to.
        grid: per-image inputs that position ids depend on, each of shape (1, ...).
    """

    digest: str
    features: torch.Tensor
    replacement: str
    deepstack: tuple[torch.Tensor, ...] = ()
    grid: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Memory the rows take."""
        return sum(rows.numel() * rows.element_size() for rows in (self.features, *self.deepstack))


class FeatureCache:
    """Encoded images by content, least recently used first out.

    Args:
        limit: bytes of features to keep.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._images: OrderedDict[str, EncodedImage] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._images)

    def __contains__(self, digest: str) -> bool:
        """Whether it is kept; unlike :meth:`get`, this does not count as a use."""
        return digest in self._images

    def get(self, digest: str) -> EncodedImage | None:
        """The image with this digest, if it is kept."""
        if digest in self._images:
            self._images.move_to_end(digest)
        return self._images.get(digest)

    def put(self, image: EncodedImage) -> None:
        """Keep an image, dropping the ones used longest ago while over the limit."""
        if image.digest not in self._images:
            self._images[image.digest] = image
            self._bytes += image.nbytes
        while self._bytes > self.limit and len(self._images) > 1:
            _, dropped = self._images.popitem(last=False)
            self._bytes -= dropped.nbytes


class ImageEncoder:
    """Runs the vision tower, once per distinct image, and hands its features to the decoder.

    This is the way of most families: features take the place of placeholder tokens.

    Args:
        model: a transformers image-text-to-text model.
        processor: its processor.
        family: its family's entry.
        tiling: leave the processor its tiles.
        cache_bytes: memory for features that are kept.
        batch_size: images per run of the vision tower.

    Raises:
        ModelError: the model cannot encode images on their own.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        family: Family,
        *,
        tiling: bool = False,
        cache_bytes: int = 2**30,
        batch_size: int = 16,
    ) -> None:
        self._model = model
        self._processor = processor
        self._family = family
        self._batch_size = batch_size
        self.processor_kwargs: dict[str, Any] = family.image_options(tiling)
        """Given to the processor with the images."""
        self.cache = FeatureCache(cache_bytes)
        self.encoded = 0
        """How many images the vision tower has encoded so far."""
        self.grid_arguments: set[str] = set()
        self._prepare()

    def _prepare(self) -> None:
        model = self._model
        if not hasattr(model, "get_image_features"):
            raise ModelError(
                f"{type(model).__name__} has no get_image_features, so its images cannot be encoded on their own.",
                hint="lad needs it to reuse an image in every order.",
            )
        parameters = inspect.signature(model.get_image_features).parameters
        self._vision_arguments = {name for name, p in parameters.items() if p.kind is not p.VAR_KEYWORD}
        rope = getattr(inner_model(model), "get_rope_index", None)
        self.grid_arguments = set(inspect.signature(rope).parameters) & self._vision_arguments if rope else set()
        self._shell: Any = None
        self._container: type = list

    def encode(
        self, images: Sequence[Image.Image], digests: Sequence[str], processed: Processed | None = None
    ) -> list[EncodedImage]:
        """The images' features, from the cache where they are known.

        Args:
            images: RGB pictures, already at their final size.
            digests: their content hashes.
            processed: what :meth:`process` gave for these images or some of them; saves time, changes nothing.

        Returns:
            One entry per image, in order.

        Raises:
            ModelError: memory runs out with a single image.
        """
        known = {digest: found for digest in digests if (found := self.cache.get(digest))}
        missing = {d: image for d, image in zip(digests, images, strict=True) if d not in known}

        def run(chunk: Sequence[str]) -> list[EncodedImage]:
            inputs = (processed or {}).get(tuple(chunk))
            pictures = [missing[digest] for digest in chunk]
            return self._run(pictures, list(chunk), self._inputs(pictures) if inputs is None else inputs)

        for _, chunk in Budget(self._batch_size, "image").run(list(missing), 1, run):
            for encoded in chunk:
                known[encoded.digest] = encoded
                self.cache.put(encoded)
        return [known[digest] for digest in digests]

    def process(self, images: Sequence[Image.Image], digests: Sequence[str]) -> Processed:
        """What the processor makes of images, for a later :meth:`encode` of the same ones.

        Runs on the CPU and may be called from another thread than the model's.
        """
        distinct = list(dict(zip(digests, images, strict=True)).items())
        chunks = [distinct[start : start + self._batch_size] for start in range(0, len(distinct), self._batch_size)]
        return {tuple(digest for digest, _ in chunk): self._inputs([image for _, image in chunk]) for chunk in chunks}

    def _inputs(self, images: list[Image.Image]) -> Any:
        company = images * 2 if self._family.alone_differs and len(images) == 1 else images
        return self._process(company, return_text_replacement_offsets=True)

    def _process(self, images: list[Image.Image], **kwargs: Any) -> Any:
        try:
            with PROCESSOR_LOCK:
                return self._processor(
                    images=[images],
                    text=[self._processor.image_token * len(images)],
                    return_tensors="pt",
                    **self.processor_kwargs,
                    **kwargs,
                )
        except (ValueError, TypeError, IndexError) as error:
            raise ModelError(
                f"The model's processor refuses these {len(images)} images in one prompt: {error}.",
                hint="lad needs a model for several images; their size may matter too.",
            ) from error

    def _to_model(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._model.device, self._model.dtype if tensor.is_floating_point() else tensor.dtype)

    def _run(self, images: list[Image.Image], digests: list[str], inputs: Any) -> list[EncodedImage]:
        if "text_replacement_offsets" not in inputs:
            raise ModelError(
                f"{type(self._processor).__name__} does not say what takes the place of an image in the text.",
                hint="Use a model whose processor comes with transformers.",
            )
        replacements = [entry["replacement"] for entry in inputs["text_replacement_offsets"][0]]
        tensors = {
            name: self._to_model(value)
            for name, value in inputs.items()
            if name in self._vision_arguments and isinstance(value, torch.Tensor)
        }
        with torch.inference_mode():
            output = self._model.get_image_features(**tensors, return_dict=True)
        self.encoded += len(replacements)
        counts = self._feature_counts(replacements)
        rows = _cut(output.pooler_output, counts)
        deep = [_cut(layer, counts) for layer in output.get("deepstack_features") or ()]
        self._container = type(output.pooler_output)
        # what is common to all images stays with the output's own class; hidden states are let go
        self._shell = type(output), {name: None if name in _INTERNAL else output[name] for name in output}
        return [
            EncodedImage(
                digest=digest,
                features=rows[index],
                replacement=replacements[index],
                deepstack=tuple(layer[index] for layer in deep),
                grid={name: tensors[name][index : index + 1] for name in self.grid_arguments if name in tensors},
            )
            for index, digest in enumerate(digests)
        ]

    def _feature_counts(self, replacements: Sequence[str]) -> list[int]:
        token = self._processor.tokenizer.convert_ids_to_tokens(self._model.config.image_token_id)
        return [replacement.count(token) for replacement in replacements]

    def encoder_outputs(self, images: Sequence[EncodedImage]) -> Any:
        """What ``model(mm_encoder_outputs={"image": ...})`` takes for images in this order (row-major in a batch)."""
        kind, fields = self._shell
        rows: Any = [image.features for image in images]
        if self._container is torch.Tensor:
            rows = torch.cat(rows)
        elif self._container is tuple:
            rows = tuple(rows)
        own = {"pooler_output": rows}
        if images[0].deepstack:
            own["deepstack_features"] = list(zip(*(image.deepstack for image in images), strict=True))
        return kind(**{**fields, **own})

    def prefill_inputs(self, tokens: torch.Tensor, images: Sequence[Sequence[EncodedImage]]) -> dict[str, Any]:
        """What the model's forward takes for the images of a batch.

        Args:
            tokens: (B, T) token ids, padded.
            images: per prompt, its N images in the order of their positions.
        """
        flat = [image for row in images for image in row]
        grids = {name: torch.cat([image.grid[name] for image in flat]) for name in flat[0].grid}
        return {**grids, "mm_encoder_outputs": {"image": self.encoder_outputs(flat)}}

    def step_inputs(self, prefill: dict[str, Any], steps: int) -> dict[str, Any]:
        """What it takes besides for ``steps`` further tokens on the cached keys and values."""
        return {}

    def collector(self, segments: torch.Tensor, images: Sequence[Sequence[EncodedImage]]) -> Collector:
        """A collector of the attention on each image.

        Args:
            segments: (B, T), the image that each token belongs to; N for tokens of none.
            images: per prompt, its N images.
        """
        return Collector(segments, len(images[0]) + 1)


def inner_model(model: Any) -> Any:
    """The model without its head, where families keep what they know about positions."""
    return getattr(model, "model", model)


def _cut(rows: Any, counts: Sequence[int]) -> list[torch.Tensor]:
    """Cut features in any container into one (tokens, D) tensor per image."""
    parts = [rows] if isinstance(rows, torch.Tensor) else list(rows)
    flat = torch.cat([part.reshape(-1, part.shape[-1]) for part in parts])
    if len(flat) != sum(counts):
        raise ModelError(
            f"The model gave {len(flat)} feature rows for {sum(counts)} image tokens.",
            hint="The processor and the model do not belong together.",
        )
    # clone: a view would keep the whole batch alive in the cache
    return [chunk.clone() for chunk in flat.split(list(counts))]
