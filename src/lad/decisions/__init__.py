"""Decision rules: observations (and a calibration) -> scores by position. numpy only, no model."""

from lad.decisions.adaptive import Adaptive, adaptive_average, choose_theta
from lad.decisions.evidence import Evidence, chosen_layers, gather_evidence
from lad.decisions.options import DecisionOptions
from lad.decisions.permutation import far_shifts, permutation_average
from lad.decisions.registry import RULES, Rule, decide, find_rule, picks, probabilities, rule_names
from lad.decisions.sampled_prior import position_prior, without_prior

__all__ = [
    "RULES",
    "Adaptive",
    "DecisionOptions",
    "Evidence",
    "Rule",
    "adaptive_average",
    "choose_theta",
    "chosen_layers",
    "decide",
    "far_shifts",
    "find_rule",
    "gather_evidence",
    "permutation_average",
    "picks",
    "position_prior",
    "probabilities",
    "rule_names",
    "without_prior",
]
