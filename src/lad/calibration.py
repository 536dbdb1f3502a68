"""Calibration: what a few labelled samples tell about a model's position bias and attention prior.

:func:`fit_calibration` estimates (paper Eq. 1-5 and 7); :class:`Calibration` holds the result with everything
it depends on, and refuses to be used for anything else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lad.calibration_files import calibration_paths, numbered_calibrations, read_calibration, write_calibration
from lad.errors import CalibrationError
from lad.estimators import Average, conditional_bias, layer_evidence, observed_profile, visual_gain
from lad.observations import Observations


@dataclass(frozen=True)
class CalibrationIdentity:
    """What a calibration depends on; it fits where all of these are the same.

    Attributes:
        model: name of the model.
        revision: hub revision, or a content hash of weights and configuration.
        prompt: digest of the prompt template.
        identifiers: the N identifiers.
        candidates: N.
        image_size: the size images are brought to.
        attention: "span" if the markers around an image count as part of it (as published), else "features".
    """

    model: str
    revision: str
    prompt: str
    identifiers: tuple[str, ...]
    candidates: int
    image_size: str
    attention: str = "span"

    def __post_init__(self) -> None:
        object.__setattr__(self, "identifiers", tuple(self.identifiers))
        if self.candidates < 2 or len(self.identifiers) != self.candidates:
            raise CalibrationError(f"{len(self.identifiers)} identifiers for {self.candidates} candidates.")
        if self.attention not in ("span", "features"):
            raise CalibrationError(f"There is no attention reduction {self.attention!r}, only 'span' and 'features'.")

    def difference(self, other: CalibrationIdentity) -> list[tuple[str, object, object]]:
        """The fields that differ, each with this identity's value and the other's."""
        pairs = ((item.name, getattr(self, item.name), getattr(other, item.name)) for item in fields(self))
        return [(name, mine, theirs) for name, mine, theirs in pairs if mine != theirs]


@dataclass(frozen=True, eq=False)
class Calibration:
    """A calibration for N candidates and L attention layers.

    Attributes:
        observed_profile: (N, N), S: mean score of position j (column) when the answer is at i (row).
        visual_gain: gamma of Eq. 3-4, in log units; negative where the model speaks against what it sees.
        bias: (N, N), B of Eq. 5, centred as published; row = true position, column = said position.
        attention_prior: (L, N), p of Eq. 7.
        layer_evidence: (L,), mean log-probability that the layer's purified posterior gives the true position.
        layer_temperatures: (L,), the temperature at which that was reached.
        samples: how many labelled samples it rests on.
        average: whether S averages log-probabilities ("log", published) or probabilities ("prob", Eq. 1).
        identity: what it depends on.
        made_with: further facts about its making (dtype, versions), for information; never compared.

    Raises:
        CalibrationError: shapes that do not fit, or values that are not finite.
    """

    observed_profile: NDArray[np.float64]
    visual_gain: float
    bias: NDArray[np.float64]
    attention_prior: NDArray[np.float64]
    layer_evidence: NDArray[np.float64]
    layer_temperatures: NDArray[np.float64]
    samples: int
    average: Average
    identity: CalibrationIdentity
    made_with: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _TENSORS:
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        count = self.identity.candidates
        layers = self.attention_prior.shape[0] if self.attention_prior.ndim == 2 else 0
        if layers < 1:
            raise CalibrationError(f"The attention_prior must have the shape (L, {count}) with L >= 1.")
        square, per_layer = (count, count), (layers,)
        for name, shape in zip(_TENSORS, (square, square, (layers, count), per_layer, per_layer), strict=True):
            tensor = getattr(self, name)
            if tensor.shape != shape:
                raise CalibrationError(f"The {name} must have the shape {shape}, not {tensor.shape}.")
            if not np.isfinite(tensor).all():
                raise CalibrationError(f"The {name} is not finite.")
        if not np.isfinite(self.visual_gain):
            raise CalibrationError("The visual_gain is not finite.")
        if self.samples < 1:
            raise CalibrationError(f"A calibration rests on at least 1 sample, not {self.samples}.")
        check_average(self.average)

    @property
    def candidates(self) -> int:
        """N."""
        return self.identity.candidates

    @property
    def layers(self) -> int:
        """L."""
        return int(self.attention_prior.shape[0])

    def require(self, identity: CalibrationIdentity) -> None:
        """Make sure that this calibration was made for ``identity``.

        Raises:
            CalibrationError: it was not; names every field that differs, with both values.
        """
        if differences := self.identity.difference(identity):
            listed = "; ".join(f"{name} was {mine!r}, is now {theirs!r}" for name, mine, theirs in differences)
            raise CalibrationError(
                f"The calibration was made for something else: {listed}.",
                hint="Make one that fits with: lad calibrate",
            )

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``calibration-N.json`` and ``calibration-N.safetensors``, both or neither.

        Returns:
            The JSON file.

        Raises:
            CalibrationError: the files cannot be written; what was there before still is.
        """
        description = {
            "identity": asdict(self.identity),
            "samples": int(self.samples),
            "average": self.average,
            "visual_gain": float(self.visual_gain),
            "made_with": dict(self.made_with),
        }
        tensors = {name: getattr(self, name) for name in _TENSORS}
        return write_calibration(Path(folder), self.candidates, description, tensors)

    @staticmethod
    def load(folder: str | os.PathLike[str], candidates: int) -> Calibration:
        """Read the calibration for ``candidates`` images.

        Raises:
            CalibrationError: a file is missing, truncated, damaged or inconsistent; the message names it.
        """
        description, tensors = read_calibration(Path(folder), candidates)
        where = str(calibration_paths(Path(folder), candidates)[0])
        try:
            calibration = Calibration(
                **{name: tensors[name] for name in _TENSORS},
                visual_gain=float(description["visual_gain"]),
                samples=int(description["samples"]),
                average=description["average"],
                identity=_identity(description["identity"]),
                made_with={str(key): str(value) for key, value in description["made_with"].items()},
            )
        except CalibrationError as error:
            raise CalibrationError(error.what, where=where) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CalibrationError(f"Something is missing or has a wrong type ({error!r}).", where=where) from error
        if calibration.candidates != candidates:
            raise CalibrationError(f"Is for {calibration.candidates} candidates, against its name.", where=where)
        return calibration


_TENSORS = ("observed_profile", "bias", "attention_prior", "layer_evidence", "layer_temperatures")


def _identity(values: Mapping[str, Any]) -> CalibrationIdentity:
    for item in fields(CalibrationIdentity):
        kind = {"identifiers": list, "candidates": int}.get(item.name, str)
        if type(values[item.name]) is not kind:
            raise TypeError(f"{item.name} is {json.dumps(values[item.name])}")
    if not all(isinstance(identifier, str) for identifier in values["identifiers"]):
        raise TypeError("an identifier is no text")
    return CalibrationIdentity(**values)


def load_calibrations(folder: str | os.PathLike[str]) -> dict[int, Calibration]:
    """All calibrations of a folder, by their number of candidates, ascending; empty if it holds none.

    Raises:
        CalibrationError: the folder does not exist, or one of its calibrations is broken.
    """
    return {candidates: Calibration.load(folder, candidates) for candidates in numbered_calibrations(Path(folder))}


def fit_calibration(
    observations: Observations,
    identity: CalibrationIdentity,
    *,
    average: Average = "log",
    made_with: Mapping[str, str] | None = None,
) -> Calibration:
    """Calibrate on labelled samples, each observed under the N cyclic shifts of its images.

    Args:
        observations: k samples x N orders, in any sequence. What counts is that the answer of each sample
            visits every position equally often.
        identity: what the observations were made with.
        average: "log" averages log-probabilities (published figures), "prob" probabilities (Eq. 1).
        made_with: further facts to keep with it, not compared.

    Raises:
        CalibrationError: no observations, another N than the identity's, a sample that is unlabelled or does not
            visit all positions equally often, or ``average="prob"`` of scores that are not normalised.
    """
    check_average(average)
    count = observations.count
    if identity.candidates != count:
        raise CalibrationError(f"Observations of {count} candidates cannot calibrate {identity.candidates}.")
    _check_balanced(observations)
    if average == "prob" and not observations.normalised:
        raise CalibrationError("average='prob' needs log-probabilities whose exponentials sum to 1.")
    positions = observations.answer_positions
    profile = observed_profile(observations.log_probs, positions, average=average)
    gain = visual_gain(profile)
    prior = np.asarray(observations.attention.mean(axis=0), dtype=np.float64)
    evidence, temperatures = layer_evidence(observations.attention, prior, positions)
    return Calibration(
        observed_profile=profile,
        visual_gain=gain,
        bias=conditional_bias(profile, gain),
        attention_prior=prior,
        layer_evidence=evidence,
        layer_temperatures=temperatures,
        samples=len(observations) // count,
        average=average,
        identity=identity,
        made_with=dict(made_with or {}),
    )


def check_average(average: str) -> Average:
    """The average of that name.

    Raises:
        CalibrationError: there is none.
    """
    if average == "log":
        return "log"
    if average == "prob":
        return "prob"
    raise CalibrationError(f"There is no average {average!r}, only 'log' and 'prob'.")


def _check_balanced(observations: Observations) -> None:
    if len(observations) == 0:
        raise CalibrationError("There are no observations to calibrate on.")
    visits: dict[str, NDArray[np.int64]] = {}
    for sample, position in zip(observations.samples, observations.answer_positions, strict=True):
        where = f"sample {sample!r}"
        if position < 0:
            raise CalibrationError("Has no answer; calibration needs labelled samples.", where=where)
        visits.setdefault(sample, np.zeros(observations.count, dtype=np.int64))[position] += 1
    for sample, counts in visits.items():
        if (counts != counts[0]).any():
            raise CalibrationError(
                f"Its answer visits the positions {counts.tolist()} times, not all equally often.",
                where=f"sample {sample!r}",
                hint="Observe every calibration sample under all N cyclic shifts.",
            )
