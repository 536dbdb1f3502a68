"""Every training-free method: what must be observed for it, how it decides, and what it costs."""

from lad.evaluation.methods.base import Gathered, Method, Outcome, Setting
from lad.evaluation.methods.registry import (
    ABILITIES,
    METHODS,
    PERMUTATION_AVERAGE,
    MethodSpec,
    find_method,
    method_names,
    parse_method,
    parse_methods,
)

__all__ = [
    "ABILITIES",
    "METHODS",
    "PERMUTATION_AVERAGE",
    "Gathered",
    "Method",
    "MethodSpec",
    "Outcome",
    "Setting",
    "find_method",
    "method_names",
    "parse_method",
    "parse_methods",
]
