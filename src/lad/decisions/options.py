"""The options of the decision rules, checked once and for all when they are made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from lad.errors import DecisionError

LayerChoice = Literal["mass", "all", "calibrated"]
Purification = Literal["log_of_mean", "mean_of_log"]
Mixture = Literal["log", "prob"]


@dataclass(frozen=True)
class DecisionOptions:
    """How evidence is drawn from attention and how bias is taken off; the defaults are the published ones.

    Attributes:
        top_k: K, how many layers are chosen; more than there are means all.
        temperature: tau of Eq. 12.
        layer_range: first and last layer to choose from, zero-based and inclusive, cut at the model's depth;
            None for all.
        layer_choice: "mass", the K layers with most image attention, anew for each observation (Eq. 8-9);
            "all"; or "calibrated", the K layers whose purified posterior found the answer best in calibration.
        purification: "log_of_mean", log of the layers' mean attention minus their mean log prior (published
            code); or "mean_of_log", the layers' mean log-ratio (Eq. 11).
        mixture: whether the expected bias mixes logs ("log", published code) or probabilities ("prob", Eq. 13).
        use_prior: False leaves the attention prior out (log p = 0).

    Raises:
        DecisionError: an option outside its range.
    """

    top_k: int = 2
    temperature: float = 5.0
    layer_range: tuple[int, int] | None = None
    layer_choice: LayerChoice = "mass"
    purification: Purification = "log_of_mean"
    mixture: Mixture = "log"
    use_prior: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.top_k, int) or self.top_k < 1:
            raise DecisionError(f"top_k must be a whole number of at least 1, not {self.top_k}.")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise DecisionError(f"The temperature must be a positive number, not {self.temperature}.")
        for name, kinds in (("layer_choice", LayerChoice), ("purification", Purification), ("mixture", Mixture)):
            _check_choice(name, getattr(self, name), kinds)
        if self.layer_range is not None:
            first, last = self.layer_range
            object.__setattr__(self, "layer_range", (first, last))
            if not 0 <= first <= last:
                raise DecisionError(f"The layer_range {first}..{last} is empty or starts before layer 0.")

    def candidate_layers(self, depth: int) -> range:
        """The layers that may be chosen in a model with ``depth`` attention layers.

        Raises:
            DecisionError: the range begins beyond the model's last layer.
        """
        first, last = self.layer_range or (0, depth - 1)
        layers = range(first, min(last, depth - 1) + 1)
        if not layers:
            raise DecisionError(
                f"The layer_range {first}..{last} is empty: the model has the layers 0 to {depth - 1}.",
                hint="Give a range within them, or none for all layers.",
            )
        return layers


def _check_choice(name: str, value: str, kinds: Any) -> None:
    if value not in get_args(kinds):
        raise DecisionError(f"There is no {name} {value!r}.", hint=f"Choose one of: {', '.join(get_args(kinds))}.")
