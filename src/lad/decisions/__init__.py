"""Decision rules: observations (and a calibration) -> scores by position. numpy only, no model."""

from lad.decisions.evidence import Evidence, chosen_layers, gather_evidence
from lad.decisions.options import DecisionOptions
from lad.decisions.permutation import permutation_average
from lad.decisions.registry import RULES, Rule, decide, picks, probabilities

__all__ = [
    "RULES",
    "DecisionOptions",
    "Evidence",
    "Rule",
    "chosen_layers",
    "decide",
    "gather_evidence",
    "permutation_average",
    "picks",
    "probabilities",
]
