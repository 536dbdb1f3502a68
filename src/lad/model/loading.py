"""Load a model and its processor by hub name or by folder, and say which checkpoint it is."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from lad.errors import ModelError
from lad.model.probe import IMPLEMENTATION, register

_METADATA = (".json", ".jinja", ".model", ".txt")
_SAMPLES, _SAMPLE_BYTES = 64, 2**16


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A loaded model with its processor.

    Attributes:
        model: the transformers model, in evaluation mode, the probe set on its text decoder.
        processor: its processor.
        name: hub name, or the class of the model for a local folder.
        revision: hub commit, or a content hash for a local folder; with an adapter, "+" and the adapter's hash.
    """

    model: Any
    processor: Any
    name: str
    revision: str


def shipped_model() -> Path:
    """Folder of the small model that comes with the package."""
    return Path(str(files("lad") / "assets" / "model"))


def choose_device(device: str | None = None) -> torch.device:
    """The device asked for, or the best there is: cuda, then mps, then cpu.

    Raises:
        ModelError: the device is unknown or not there.
    """
    if device is None:
        return torch.device(
            "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        )
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(
            f"The device {device!r} cannot be used here.", hint="Choose cuda, mps or cpu, or leave it out."
        ) from error
    return chosen


def load_checkpoint(
    source: str | os.PathLike[str] | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    revision: str | None = None,
    adapter: str | os.PathLike[str] | None = None,
    trust_remote_code: bool = False,
) -> Checkpoint:
    """Load a vision-language model.

    Args:
        source: hub name or folder; None for the model that comes with the package.
        device: "cuda", "mps", "cpu"; None for the best there is.
        dtype: "float32", "bfloat16", "float16"; None for float32 on a CPU and the checkpoint's own elsewhere.
        revision: branch, tag or commit on the hub.
        adapter: hub name or folder of a PEFT adapter; it is merged into the weights, and its content is part of the
            checkpoint's revision.
        trust_remote_code: let the checkpoint bring code of its own.

    Raises:
        ModelError: not found, not a vision-language model, its processor is unusable, or the adapter does not fit.
        DependencyError: an adapter is asked for and peft is not installed.
    """
    from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    place = str(shipped_model() if source is None else source)
    is_folder = Path(place).is_dir()
    if not is_folder and (Path(place).exists() or place.startswith((".", "/", "~"))):
        raise ModelError("There is no model folder of this name.", where=place)
    if is_folder and revision is not None:
        raise ModelError("A revision is for models of the hub; this one is a folder.", where=place)
    chosen = choose_device(device)
    if dtype is not None and dtype not in ("float32", "bfloat16", "float16"):
        raise ModelError(f"The dtype {dtype!r} is not known.", hint="Choose float32, bfloat16 or float16.")
    wanted: Any = getattr(torch, dtype) if dtype else torch.float32 if chosen.type == "cpu" else "auto"
    common: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    register()
    try:
        config = AutoConfig.from_pretrained(place, **common)
        if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING and not trust_remote_code:
            raise ModelError(
                f"A {config.model_type!r} model has no image support: it does not take images and text.",
                where=place,
                hint="Name a vision-language model, for instance Qwen/Qwen2.5-VL-3B-Instruct.",
            )
        processor = AutoProcessor.from_pretrained(place, **common)
        loaded: Any = AutoModelForImageTextToText.from_pretrained(
            place,
            dtype=wanted,
            attn_implementation={"text_config": IMPLEMENTATION},
            use_safetensors=True,
            output_loading_info=True,
            **common,
        )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"The model cannot be loaded: {_first_line(error)}", where=place) from error
    model, report = loaded
    if lacking := sorted(report["missing_keys"]):
        # transformers would go on with random numbers in their place
        raise ModelError(f"The checkpoint lacks {len(lacking)} tensors, {lacking[0]} among them.", where=place)
    if not hasattr(processor, "tokenizer") or not hasattr(processor, "image_processor"):
        raise ModelError("The model's processor does not handle both images and text.", where=place)
    name = type(model).__name__ if is_folder else place
    commit = None if is_folder else getattr(config, "_commit_hash", None)
    identity = commit or folder_digest(Path(place))
    if adapter is not None:
        from lad.model.adapters import merge_adapter

        model, adapter_digest = merge_adapter(model, adapter)
        identity = f"{identity}+{adapter_digest}"
    return Checkpoint(model.to(chosen).eval(), processor, name, identity)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def folder_digest(folder: Path) -> str:
    """Content hash of a checkpoint folder; the same wherever the folder lies.

    Metadata files are read whole. Of each weights file the size and 64 evenly spaced samples of 64 KiB are read, so
    that a checkpoint of many gigabytes takes well under a second.
    """
    if not folder.is_dir():
        return "unknown"
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        if file.suffix in _METADATA:
            digest.update(file.name.encode() + file.read_bytes())
        elif file.suffix == ".safetensors":
            size = file.stat().st_size
            digest.update(f"{file.name} {size}".encode())
            step = max(_SAMPLE_BYTES, size // _SAMPLES)
            with file.open("rb") as stream:
                for start in range(0, size, step):
                    stream.seek(start)
                    digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:16]
