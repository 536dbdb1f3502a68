"""What one call of `lad evaluate` covers: models x datasets x N x identifiers x methods, from YAML or from flags.

A file looks like this; everything but ``datasets`` may be left out, and paths are relative to the file::

    name: comparison
    models:
      - model: null                  # the model that ships with lad
      - {model: Qwen/Qwen2.5-VL-3B-Instruct, dtype: bfloat16, image_size: 336, lacks: []}
    datasets:
      - {name: random, scenes: random}
      - {name: coco, samples: coco.jsonl, calibration: coco-calibration.jsonl}
    candidates: [4, 8]
    identifiers: [digits, uppercase]
    methods: [default, {name: agd_shifts, shifts: 4}, "agd_adaptive:passes=1.5"]
    orders: 5
    limit: 200
    control: true
    decisions: {temperature: 5}
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from lad.decisions import DecisionOptions
from lad.errors import RunError
from lad.evaluation.methods import ABILITIES, METHODS, MethodSpec, parse_methods

SHIPPED_LACKS = tuple(ABILITIES)
"""The small model that ships with lad was trained on one wording of the prompt, and to answer with an identifier."""

_MODEL_OPTIONS = ("device", "dtype", "revision", "image_size", "attention", "trust_remote_code", "adapter", "tiling")


@dataclass(frozen=True)
class ModelSpec:
    """A model of a run.

    Attributes:
        source: hub name or folder; None for the model that ships with lad.
        name: what tables and folders call it.
        options: for loading.
        lacks: abilities of :data:`lad.evaluation.methods.ABILITIES` it does not have; its figures are marked.
    """

    source: str | None
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class DatasetSpec:
    """A dataset of a run: synthetic scenes, or a file of samples.

    Attributes:
        name: what tables and folders call it.
        scenes: "random" or "adversarial", or None.
        samples: a file of labelled samples, or None. In its name and that of ``calibration``, ``{candidates}`` stands
            for N.
        calibration: a file of labelled samples to calibrate on, or a folder made by `lad calibrate`; None for scenes,
            which are calibrated on five scenes of the same setting, and for the calibrations that ship with lad.
    """

    name: str
    scenes: str | None = None
    samples: Path | None = None
    calibration: Path | None = None


@dataclass(frozen=True)
class RunConfig:
    """All that one call covers.

    Attributes:
        datasets: where samples come from.
        name: of the run.
        models: whose answers are measured.
        candidates: the N; for files None takes whatever N they hold, for scenes 4.
        identifiers: names of sets, or lists of one's own.
        methods: what is measured.
        orders: T.
        seed: of orders, scenes and of what methods draw.
        limit: samples of each dataset and N; None for all of a file, and 200 scenes.
        prompt: a file with other wordings.
        part_size: samples per part of the stores.
        control: whether the identical order is asked a second time, to see what flips without any change of order.
        decisions: options of the decision rules.
    """

    datasets: tuple[DatasetSpec, ...]
    name: str = "evaluation"
    models: tuple[ModelSpec, ...] = (ModelSpec(None, "shipped", lacks=SHIPPED_LACKS),)
    candidates: tuple[int, ...] | None = None
    identifiers: tuple[str | tuple[str, ...], ...] = ("digits",)
    methods: tuple[MethodSpec, ...] = field(default_factory=lambda: parse_methods(METHODS))
    orders: int = 5
    seed: int = 0
    limit: int | None = None
    prompt: Path | None = None
    part_size: int = 32
    control: bool = False
    decisions: DecisionOptions = field(default_factory=DecisionOptions)

    def __post_init__(self) -> None:
        for kind, names in (("models", [m.name for m in self.models]), ("datasets", [d.name for d in self.datasets])):
            if not names:
                raise RunError(f"A run needs {kind}.")
            if repeated := next((name for name in names if names.count(name) > 1), None):
                raise RunError(f"Two {kind} are called {repeated!r}.", hint="Give each a name of its own.")
        for name, value in (("orders", self.orders), ("limit", self.limit or 1), ("part_size", self.part_size)):
            if value < 1:
                raise RunError(f"{name} must be at least 1, not {value}.")


def model_spec(values: Mapping[str, Any] | str | None, folder: Path = Path()) -> ModelSpec:
    """A model as people write it: a hub name or folder, or a mapping with ``model``, ``name``, ``lacks`` and options.

    Raises:
        RunError: an unknown key or ability.
    """
    entry = dict(values) if isinstance(values, Mapping) else {"model": values}
    source = entry.pop("model", None)
    name, lacks = entry.pop("name", None), entry.pop("lacks", None)
    if unknown := entry.keys() - set(_MODEL_OPTIONS):
        raise RunError(f"A model has no key {sorted(unknown)[0]!r}.", hint=f"Known: {', '.join(_MODEL_OPTIONS)}.")
    if source is not None:
        # a folder beside the file, or a hub name
        source = str(folder / source) if (folder / source).is_dir() else str(Path(source).expanduser())
    if lacks is None:
        lacks = SHIPPED_LACKS if source is None else ()
    if unknown := set(lacks) - ABILITIES.keys():
        raise RunError(f"There is no ability {sorted(unknown)[0]!r}.", hint=f"Known: {', '.join(ABILITIES)}.")
    return ModelSpec(source, str(name or _short(source)), entry, tuple(lacks))


def _short(source: str | None) -> str:
    return "shipped" if source is None else Path(source).name or source


def read_config(path: str | os.PathLike[str]) -> RunConfig:
    """Read a YAML file.

    Raises:
        RunError: the file is missing or no YAML mapping, or a key or value is none that is known.
        DecisionError: an unknown method or option.
    """
    import yaml

    file = Path(path)
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"Cannot be read ({error.strerror}).", where=str(path)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RunError(f"Is no valid YAML ({' '.join(str(error).split())}).", where=str(path)) from error
    if not isinstance(data, dict):
        raise RunError("Must be a mapping.", where=str(path))
    known = {item.name for item in fields(RunConfig)}
    if unknown := {str(key) for key in data} - known:
        raise RunError(
            f"Unknown key {sorted(unknown)[0]!r}.", where=str(path), hint=f"Known: {', '.join(sorted(known))}."
        )
    try:
        return _build(data, file)
    except RunError as error:
        raise RunError(error.what, where=str(path), hint=error.hint) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise RunError(f"A value has a wrong type ({error}).", where=str(path)) from error


def _build(data: dict[str, Any], file: Path) -> RunConfig:
    folder = file.parent
    values: dict[str, Any] = {"name": str(data.get("name", file.stem))}
    values["datasets"] = tuple(_dataset(entry, folder) for entry in _list(data.get("datasets")))
    if "models" in data:
        values["models"] = tuple(model_spec(entry, folder) for entry in _list(data["models"]))
    if data.get("candidates") is not None:
        values["candidates"] = tuple(int(count) for count in _list(data["candidates"]))
    if "identifiers" in data:
        sets = _list(data["identifiers"])
        values["identifiers"] = tuple(tuple(entry) if isinstance(entry, list) else str(entry) for entry in sets)
    if "methods" in data:
        values["methods"] = parse_methods(_list(data["methods"]))
    for name in ("orders", "seed", "limit", "part_size"):
        if data.get(name) is not None:
            values[name] = int(data[name])
    if "control" in data:
        if not isinstance(data["control"], bool):
            raise RunError(f"control is true or false, not {data['control']!r}.")
        values["control"] = data["control"]
    if data.get("prompt") is not None:
        values["prompt"] = folder / data["prompt"]
    if "decisions" in data:
        chosen = dict(data["decisions"])
        if "layer_range" in chosen:
            chosen["layer_range"] = tuple(chosen["layer_range"])
        values["decisions"] = DecisionOptions(**chosen)
    return RunConfig(**values)


def _dataset(entry: Any, folder: Path) -> DatasetSpec:
    if not isinstance(entry, dict) or entry.keys() - {"name", "scenes", "samples", "calibration"}:
        raise RunError(
            f"A dataset must be a mapping with scenes or samples, and perhaps name and calibration, not {entry!r}."
        )
    scenes, samples = entry.get("scenes"), entry.get("samples")
    if (scenes is None) == (samples is None):
        raise RunError("A dataset is either scenes or a file of samples.")
    if scenes is not None and scenes not in ("random", "adversarial"):
        raise RunError(f"There are no scenes {scenes!r}.", hint="Choose random or adversarial.")
    calibration = entry.get("calibration")
    return DatasetSpec(
        name=str(entry.get("name") or scenes or Path(str(samples)).stem),
        scenes=scenes,
        samples=None if samples is None else folder / samples,
        calibration=None if calibration is None else folder / calibration,
    )


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
