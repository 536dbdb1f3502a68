"""Options that several verbs share, and what they turn into."""

from __future__ import annotations

import math
import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lad.errors import DecisionError, IdentifierError, ModelError, RunError, SampleError

if TYPE_CHECKING:
    from lad.decisions import DecisionOptions
    from lad.model.vlm import VisionLanguageModel
    from lad.prompts import PromptTemplate
    from lad.samples import Sample


class Setting(str, Enum):
    """How the distractors of a scene are drawn."""

    random = "random"
    adversarial = "adversarial"


_MODEL = "Model"
_ASKING = "Asking"
_DECIDING = "Deciding"

ModelArgument = Annotated[
    str | None, typer.Argument(help="Hub name or folder; the small model that ships with lad if left out.")
]
Device = Annotated[str | None, typer.Option(help="cuda, mps or cpu; the best there is.", rich_help_panel=_MODEL)]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.", rich_help_panel=_MODEL)]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.", rich_help_panel=_MODEL)]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Let the checkpoint bring code of its own.", rich_help_panel=_MODEL)
]
ImageSize = Annotated[str, typer.Option(help="Side in pixels, WIDTHxHEIGHT, native, or auto.", rich_help_panel=_MODEL)]
Adapter = Annotated[
    str | None, typer.Option(help="PEFT adapter on top of the model: hub name or folder.", rich_help_panel=_MODEL)
]
Tiling = Annotated[
    bool, typer.Option("--tiling", help="Let the model's processor cut images into tiles.", rich_help_panel=_MODEL)
]
Attention = Annotated[
    str,
    typer.Option(help="Tokens that count as an image: span (with its markers) or features.", rich_help_panel=_MODEL),
]
Identifiers = Annotated[
    str,
    typer.Option(
        help="digits, uppercase, lowercase, roman, words, or your own, comma-separated.", rich_help_panel=_ASKING
    ),
]
Prompt = Annotated[Path | None, typer.Option(help="JSON file with the prompt's wording.", rich_help_panel=_ASKING)]
TopK = Annotated[int, typer.Option(help="How many layers are read.", rich_help_panel=_DECIDING)]
Temperature = Annotated[float, typer.Option(help="tau of the attention posterior.", rich_help_panel=_DECIDING)]
LayerRange = Annotated[
    str | None, typer.Option(help="FIRST:LAST layer to choose from, counted from 0.", rich_help_panel=_DECIDING)
]
LayerChoice = Annotated[str, typer.Option(help="mass, all or calibrated.", rich_help_panel=_DECIDING)]
Purification = Annotated[str, typer.Option(help="log_of_mean or mean_of_log.", rich_help_panel=_DECIDING)]
Mixture = Annotated[str, typer.Option(help="log or prob.", rich_help_panel=_DECIDING)]
NoPrior = Annotated[bool, typer.Option("--no-prior", help="Leave the attention prior out.", rich_help_panel=_DECIDING)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def load_model(
    model: str | None,
    *,
    device: str | None,
    dtype: str | None,
    revision: str | None,
    trust_remote_code: bool,
    image_size: str,
    attention: str,
    adapter: str | None = None,
    tiling: bool = False,
) -> VisionLanguageModel:
    """The model that the options describe, loaded without noise."""
    size = parse_image_size(image_size)
    from transformers.utils import logging

    from lad.ranker import load

    logging.set_verbosity_error()
    if model is None or Path(model).is_dir():
        logging.disable_progress_bar()
    return load(
        model,
        device=device,
        dtype=dtype,
        revision=revision,
        trust_remote_code=trust_remote_code,
        image_size=size,
        attention=attention,
        adapter=adapter,
        tiling=tiling,
    )


def parse_image_size(text: str) -> Any:
    """``336`` -> 336, ``448x336`` -> (448, 336); names stay as they are.

    Raises:
        ModelError: neither.
    """
    if text in ("auto", "native"):
        return text
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ModelError(f"The image size {text!r} is not understood.", hint="Give 336, 448x336, native or auto.")
    width, height = int(parts[0]), int(parts[-1])
    return width, height


def parse_identifiers(text: str) -> str | list[str]:
    """A name of a set, or a list where there is a comma.

    Raises:
        IdentifierError: an entry of the list is empty.
    """
    if "," not in text:
        return text
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise IdentifierError(f"The list {text!r} has an empty entry.")
    return names


def parse_layer_range(text: str | None) -> tuple[int, int] | None:
    """``21:35`` -> (21, 35).

    Raises:
        DecisionError: not of that form.
    """
    if text is None:
        return None
    parts = text.split(":")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise DecisionError(f"The layer range {text!r} is not understood.", hint="Give FIRST:LAST, for instance 21:35.")
    return int(parts[0]), int(parts[1])


def decision_options(
    top_k: int,
    temperature: float,
    layer_range: str | None,
    layer_choice: str,
    purification: str,
    mixture: str,
    no_prior: bool,
) -> DecisionOptions:
    """The options of the decision rules; a wrong value is an error that names the right ones."""
    from lad.decisions import DecisionOptions

    chosen: dict[str, Any] = {"layer_choice": layer_choice, "purification": purification, "mixture": mixture}
    return DecisionOptions(
        top_k=top_k,
        temperature=temperature,
        layer_range=parse_layer_range(layer_range),
        use_prior=not no_prior,
        **chosen,
    )


def load_template(prompt: Path | None) -> PromptTemplate:
    """The template of ``--prompt``, or the package's own."""
    from lad.prompts import MATCHING, load_prompt

    return MATCHING if prompt is None else load_prompt(prompt)


def finite(value: float) -> float:
    """Refuse ``nan`` and ``inf``, which typer takes for numbers."""
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no number to go by.")
    return value


def check_folder(folder: Path) -> None:
    """Make sure, before the work is done, that its results can be written into a folder that may not exist yet.

    Raises:
        RunError: it is a file, or lies where nothing can be written.
    """
    if folder.exists() and not folder.is_dir():
        raise RunError("Is a file, where a folder is to be written.", where=str(folder))
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise RunError(f"Cannot be written: {there} does not allow it.", where=str(folder))


def gather_samples(
    samples: Path | None,
    scenes: Setting | None,
    *,
    candidates: int | None,
    count: int | None,
    split: str,
    seed: int,
    default_count: int | None,
) -> list[Sample]:
    """The samples of a file, or synthetic scenes; the first ``count`` of them.

    Raises:
        SampleError: neither or both were asked for.
    """
    if samples is None and scenes is None:
        raise SampleError(
            "Say where the samples come from.", hint="Give --samples FILE or --scenes random|adversarial."
        )
    if samples is not None and scenes is not None:
        raise SampleError("Both --samples and --scenes were given; choose one.")
    if samples is not None and candidates is not None:
        raise SampleError("--candidates is for scenes; a file of samples says itself how many there are.")
    if count is not None and count < 1:
        raise SampleError(f"At least one sample is needed, not {count}.")
    if samples is not None:
        from lad.sample_files import read_samples

        return read_samples(samples)[:count]
    assert scenes is not None
    from lad.benchmarks.scenes import scene_samples

    number = count or default_count or 1
    return scene_samples(number, candidates or 4, setting=scenes.value, split=split, seed=seed)  # type: ignore[arg-type]
