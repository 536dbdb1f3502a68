"""Order-robust multi-image retrieval with multimodal language models.

A model is observed once; its attention says which position bias to take off (Attention-Guided Debiasing).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lad.calibration import Calibration, fit_calibration
    from lad.decisions import DecisionOptions, decide
    from lad.errors import LadError
    from lad.model.observe import observe
    from lad.model.vlm import VisionLanguageModel
    from lad.observations import Observations
    from lad.ranker import Ranker, Ranking, load
    from lad.sample_files import read_samples
    from lad.samples import Sample

__version__ = "0.1.0"

# name -> module; imported at first use, so that `import lad` and `lad --help` stay quick
_EXPORTS = {
    "Calibration": "lad.calibration",
    "DecisionOptions": "lad.decisions",
    "LadError": "lad.errors",
    "Observations": "lad.observations",
    "Ranker": "lad.ranker",
    "Ranking": "lad.ranker",
    "Sample": "lad.samples",
    "VisionLanguageModel": "lad.model.vlm",
    "decide": "lad.decisions",
    "fit_calibration": "lad.calibration",
    "load": "lad.ranker",
    "observe": "lad.model.observe",
    "read_samples": "lad.sample_files",
}

__all__ = [
    "Calibration",
    "DecisionOptions",
    "LadError",
    "Observations",
    "Ranker",
    "Ranking",
    "Sample",
    "VisionLanguageModel",
    "__version__",
    "decide",
    "fit_calibration",
    "load",
    "observe",
    "read_samples",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'lad' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return __all__
