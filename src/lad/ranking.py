"""Rankings: what a decision rule makes of an observation, for people and for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lad.calibration import Calibration
from lad.decisions import DecisionOptions, decide, gather_evidence, probabilities
from lad.observations import Observations


@dataclass(frozen=True)
class RankedCandidate:
    """One image's place in a ranking.

    Attributes:
        index: which of the given images.
        probability: that it is the one described, debiased; all candidates' add up to 1.
        attention: what the model's attention alone says (the posterior pi of Eq. 12); adds up to 1.
        vanilla_probability: the model's own answer, position bias included; adds up to 1.
    """

    index: int
    probability: float
    attention: float
    vanilla_probability: float


@dataclass(frozen=True)
class Ranking:
    """Candidates of one query, best first.

    Attributes:
        candidates: all N, by falling probability; of equals, the lower index first.
        pick: index of the best.
        vanilla_pick: index of the one that the model itself says.
        method: the decision rule.
        passes: forward passes it took.
    """

    candidates: tuple[RankedCandidate, ...]
    pick: int
    vanilla_pick: int
    method: str
    passes: int

    def to_dict(self) -> dict[str, Any]:
        """The same as plain dictionaries and lists."""
        return asdict(self)


def rankings(
    seen: Observations,
    digests: Sequence[Sequence[str]],
    calibration: Calibration,
    method: str,
    options: DecisionOptions,
) -> list[Ranking]:
    """One ranking per observation.

    Args:
        seen: M observations in the order of the images (``orders`` is the identity).
        digests: per observation, the content hashes of its images; equal ones share their probability.
        calibration: fits the observations.
        method: a decision rule.
        options: its options.
    """
    debiased = probabilities(decide(method, seen, calibration, options))
    vanilla = probabilities(decide("vanilla", seen))
    attention = np.exp(gather_evidence(seen, calibration, options).log_posterior)
    result = []
    for row, names in enumerate(digests):
        columns = [_share(scores[row], names) for scores in (debiased, attention, vanilla)]
        candidates = [
            RankedCandidate(index, *(float(column[index]) for column in columns)) for index in range(len(names))
        ]
        candidates.sort(key=lambda candidate: (-candidate.probability, candidate.index))
        result.append(
            Ranking(
                candidates=tuple(candidates),
                pick=candidates[0].index,
                vanilla_pick=int(columns[2].argmax()),
                method=method,
                passes=1,
            )
        )
    return result


def _share(values: NDArray[np.float64], digests: Sequence[str]) -> NDArray[np.float64]:
    """Pictures that are equal pixel for pixel share their probability evenly, so that they tie; the sum stays 1."""
    groups = np.array([digests.index(digest) for digest in digests])
    totals = np.bincount(groups, weights=values, minlength=len(values))
    return np.asarray((totals / np.maximum(np.bincount(groups, minlength=len(values)), 1))[groups])
