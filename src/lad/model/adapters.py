"""PEFT adapters (LoRA and its kin) on top of a base model."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from lad.errors import DependencyError, ModelError

_WEIGHTS = "adapter_model.safetensors"
_CONFIG = "adapter_config.json"


def merge_adapter(model: Any, adapter: str | os.PathLike[str]) -> tuple[Any, str]:
    """Merge an adapter into a model's weights, so that nothing later need know of it.

    Args:
        model: the base model; its weights are changed.
        adapter: hub name or folder.

    Returns:
        The model, of its own class as before, and a content hash of the adapter.

    Raises:
        DependencyError: peft is not installed.
        ModelError: there is no such adapter, its weights are not in safetensors, or it does not fit the model.
    """
    try:
        from peft import PeftModel
    except ImportError as error:
        raise DependencyError("peft", "adapters") from error
    from lad.model.loading import folder_digest

    folder = _adapter_folder(str(adapter))
    for name in (_CONFIG, _WEIGHTS):
        if not (folder / name).is_file():
            raise ModelError(f"The adapter has no {name}.", where=str(adapter), hint="Save it with save_pretrained.")
    try:
        with warnings.catch_warnings():
            # an adapter for other layers would be left out with no more than a warning
            warnings.filterwarnings("error", message=".*missing adapter keys.*")
            merged = PeftModel.from_pretrained(model, str(folder)).merge_and_unload(safe_merge=True)
    except (ValueError, RuntimeError, KeyError, TypeError, UserWarning) as error:
        message = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(
            f"The adapter does not fit {type(model).__name__}: {message[0]}", where=str(adapter)
        ) from error
    return merged, folder_digest(folder)


def _adapter_folder(adapter: str) -> Path:
    if Path(adapter).is_dir():
        return Path(adapter)
    if Path(adapter).exists() or adapter.startswith((".", "/", "~")):
        raise ModelError("There is no adapter folder of this name.", where=adapter)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(adapter, allow_patterns=["*.json", "*.safetensors"]))
    except (OSError, ValueError, HFValidationError) as error:
        message = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(f"The adapter cannot be loaded: {message[0]}", where=adapter) from error
