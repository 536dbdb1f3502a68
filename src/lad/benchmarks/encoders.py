"""Encoders by name: CLIP and SigLIP models through transformers, others through sentence-transformers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lad.benchmarks.embeddings import Encoder, Vectors
from lad.errors import DependencyError, ModelError

SHIPPED = "shipped"
"""The name under which the encoder that comes with the package is known."""

# trained on texts padded to the full length, and without a mask
_PADDED_TO_FULL_LENGTH = ("siglip", "siglip2")


def shipped_encoder() -> Path:
    """Folder of the small CLIP that comes with the package."""
    return Path(str(files("lad") / "assets" / "clip"))


def load_encoder(source: str | os.PathLike[str], *, device: str | None = None, revision: str | None = None) -> Encoder:
    """Load an encoder of pictures and texts.

    A model with a file ``modules.json`` is one of sentence-transformers (which an extra installs), any other must be
    a model of transformers with features of images and texts in one space, such as CLIP or SigLIP.

    Args:
        source: hub name or folder; "shipped" for the one that comes with the package, which knows synthetic scenes.
        device: "cuda", "mps" or "cpu"; None for the best there is.
        revision: branch, tag or commit on the hub.

    Raises:
        ModelError: not found, or no encoder.
        DependencyError: sentence-transformers is needed and not installed.
    """
    from lad.model.loading import choose_device

    place = str(shipped_encoder() if source == SHIPPED else source)
    if not Path(place).is_dir() and (Path(place).exists() or place.startswith((".", "/", "~"))):
        raise ModelError("There is no folder of a model of this name.", where=place)
    name = SHIPPED if source == SHIPPED else Path(place).name if Path(place).is_dir() else place
    modules = _modules_file(place, revision)
    if modules is not None:
        return _SentenceEncoder(place, name, str(choose_device(device)), revision, modules)
    return _TransformersEncoder(place, name, str(choose_device(device)), revision)


def _modules_file(place: str, revision: str | None) -> Path | None:
    """The file that says a model is one of sentence-transformers, or None."""
    from transformers.utils.hub import cached_file

    try:
        found = cached_file(
            place,
            "modules.json",
            revision=revision,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    except (OSError, ValueError) as error:
        raise _cannot_load(place, error) from error
    return None if found is None else Path(found)


class _TransformersEncoder:
    """A model with ``get_image_features`` and ``get_text_features``."""

    def __init__(self, place: str, name: str, device: str, revision: str | None) -> None:
        import torch
        from transformers import AutoModel, AutoProcessor

        from lad.model.loading import folder_digest

        try:
            model: Any = AutoModel.from_pretrained(place, revision=revision, dtype=torch.float32)
            self._processor: Any = AutoProcessor.from_pretrained(place, revision=revision)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise _cannot_load(place, error) from error
        if not hasattr(model, "get_image_features") or not hasattr(model, "get_text_features"):
            raise ModelError(
                f"A {type(model).__name__} has no features of images and texts in one space.",
                where=place,
                hint="Name a CLIP or SigLIP model, for instance openai/clip-vit-large-patch14.",
            )
        self._model, self._device = model.to(device).eval(), device
        config = model.config
        self._padding = "max_length" if config.model_type in _PADDED_TO_FULL_LENGTH else True
        self._length = int(config.text_config.max_position_embeddings)
        commit = None if Path(place).is_dir() else getattr(config, "_commit_hash", None)
        self.name = name
        self.key = f"transformers {commit or folder_digest(Path(place))}"

    def encode_images(self, images: Sequence[Image.Image]) -> Vectors:
        """Vectors (B, D) of RGB images."""
        return self._features(
            self._model.get_image_features, self._processor.image_processor(list(images), return_tensors="pt")
        )

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Vectors (B, D) of texts; what does not fit in the model's context is cut off, as is usual for CLIP."""
        inputs = self._processor.tokenizer(
            list(texts), padding=self._padding, truncation=True, max_length=self._length, return_tensors="pt"
        )
        return self._features(self._model.get_text_features, inputs)

    def _features(self, function: Any, inputs: Any) -> Vectors:
        import torch

        with torch.inference_mode():
            output = function(**inputs.to(self._device))
        pooled = output if isinstance(output, torch.Tensor) else output.pooler_output
        vectors: NDArray[np.float32] = pooled.float().cpu().numpy()
        return vectors


class _SentenceEncoder:
    """A model of sentence-transformers, of texts or of both."""

    def __init__(self, place: str, name: str, device: str, revision: str | None, modules: Path) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise DependencyError("sentence-transformers", "sentence-transformers") from error
        try:
            self._model: Any = SentenceTransformer(
                place, device=device, revision=revision, model_kwargs={"dtype": "float32"}
            )
        except (OSError, ValueError, KeyError) as error:
            raise _cannot_load(place, error) from error
        from transformers.utils.hub import extract_commit_hash

        commit = None if Path(place).is_dir() else extract_commit_hash(str(modules), None)
        self.name = name
        self.key = f"sentence-transformers {commit or _tree_digest(modules.parent)}"

    def encode_images(self, images: Sequence[Image.Image]) -> Vectors:
        """Vectors (B, D) of RGB images.

        Raises:
            ModelError: the model knows texts alone.
        """
        if not self._model.supports("image"):
            raise ModelError("Encodes texts alone.", where=self.name, hint="Use it as the text encoder.")
        return self._encode(list(images))

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Vectors (B, E) of texts."""
        return self._encode(list(texts))

    def _encode(self, inputs: list[Any]) -> Vectors:
        vectors: NDArray[np.float32] = np.asarray(
            self._model.encode(inputs, convert_to_numpy=True, show_progress_bar=False), dtype=np.float32
        )
        return vectors


def _tree_digest(folder: Path) -> str:
    """Content hash of a folder and those within, where sentence-transformers keeps its modules."""
    from lad.model.loading import folder_digest

    inner = sorted(path for path in folder.iterdir() if path.is_dir())
    return " ".join([folder_digest(folder), *(f"{path.name} {_tree_digest(path)}" for path in inner)])


def _cannot_load(place: str, error: Exception) -> ModelError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return ModelError(
        f"The encoder cannot be loaded: {lines[0]}",
        where=place,
        hint=f"Give the hub name or folder of a CLIP or SigLIP model; {SHIPPED!r} names the one that comes with lad.",
    )
