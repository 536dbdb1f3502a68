"""Options that the verbs of `lad build` share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from lad.cli.options import finite
from lad.errors import SampleError

if TYPE_CHECKING:
    from lad.benchmarks.plan import BuildPlan

_QUESTIONS = "Questions"
_NEGATIVES = "Hard negatives"
_OUTPUT = "Output"


@dataclass
class OutputOptions:
    """What is written, and how it is shown."""

    out: Annotated[Path, typer.Option(help="Folder for the samples and the manifest.", rich_help_panel=_OUTPUT)]
    file_format: Annotated[
        Literal["jsonl", "parquet"], typer.Option("--format", help="Of the samples.", rich_help_panel=_OUTPUT)
    ] = "jsonl"
    copy_images: Annotated[
        bool,
        typer.Option(
            "--copy-images", help="Copy the pictures, so that the folder stands alone.", rich_help_panel=_OUTPUT
        ),
    ] = False
    preview: Annotated[
        int | None,
        typer.Option(min=1, help="Write preview.html with this many samples of each split.", rich_help_panel=_OUTPUT),
    ] = None
    disjoint_from: Annotated[
        list[Path] | None,
        typer.Option(
            help="File of samples whose pictures must not be shown; may be repeated.", rich_help_panel=_OUTPUT
        ),
    ] = None
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder for digests and embeddings; LAD_CACHE or the user's.", rich_help_panel=_OUTPUT),
    ] = None
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False

    def __post_init__(self) -> None:
        if self.out.exists() and not self.out.is_dir():
            raise SampleError("Is a file; a folder is needed.", where=str(self.out))


@dataclass
class PictureOptions(OutputOptions):
    """How questions are made of pictures; see :class:`lad.benchmarks.plan.BuildPlan`."""

    setting: Annotated[
        Literal["random", "adversarial"], typer.Option(help="How distractors are chosen.", rich_help_panel=_QUESTIONS)
    ] = "random"
    candidates: Annotated[int | None, typer.Option(help="N, images a sample; 4.", rich_help_panel=_QUESTIONS)] = None
    count: Annotated[
        int | None, typer.Option(help="Test samples; 1,000 or all there can be.", rich_help_panel=_QUESTIONS)
    ] = None
    seed: Annotated[int, typer.Option(help="Seed of everything drawn.", rich_help_panel=_QUESTIONS)] = 0
    calibration_samples: Annotated[
        int, typer.Option(help="Samples of the calibration split.", rich_help_panel=_QUESTIONS)
    ] = 5
    calibration_pictures: Annotated[
        int | None,
        typer.Option(
            help="Pictures set apart for it; a tenth, at least samples times N. Equal numbers give equal splits.",
            rich_help_panel=_QUESTIONS,
        ),
    ] = None
    caption: Annotated[
        Literal["first", "random"], typer.Option(help="Which caption is a picture's own.", rich_help_panel=_QUESTIONS)
    ] = "first"
    repeat: Annotated[
        bool,
        typer.Option(
            "--repeat",
            help="Ask about a picture again, with its next caption and others beside it.",
            rich_help_panel=_QUESTIONS,
        ),
    ] = False
    images_list: Annotated[
        Path | None,
        typer.Option(help="Take only the pictures this file names, one a line.", rich_help_panel=_QUESTIONS),
    ] = None
    broken: Annotated[
        Literal["refuse", "skip"], typer.Option(help="Pictures that cannot be read.", rich_help_panel=_QUESTIONS)
    ] = "refuse"
    encoder: Annotated[
        str | None,
        typer.Option(
            help="CLIP, SigLIP or sentence-transformers model: hub name, folder, or 'shipped' (knows synthetic scenes"
            " only). openai/clip-vit-large-patch14 in the adversarial setting, none in the random one.",
            rich_help_panel=_NEGATIVES,
        ),
    ] = None
    text_encoder: Annotated[
        str | None, typer.Option(help="Another model for the captions.", rich_help_panel=_NEGATIVES)
    ] = None
    device: Annotated[str | None, typer.Option(help="cuda, mps or cpu.", rich_help_panel=_NEGATIVES)] = None
    category_rule: Annotated[
        Literal["contains", "equals", "none"],
        typer.Option(
            help="Leave out pictures whose categories contain (published code) or equal (paper) the answer's.",
            rich_help_panel=_NEGATIVES,
        ),
    ] = "contains"
    caption_limit: Annotated[
        float,
        typer.Option(
            help="Leave out pictures whose caption is as similar as this.", callback=finite, rich_help_panel=_NEGATIVES
        ),
    ] = 0.9
    too_few: Annotated[
        Literal["skip", "refuse"],
        typer.Option(help="A picture with fewer than N - 1 distractors left.", rich_help_panel=_NEGATIVES),
    ] = "skip"

    def plan(self) -> BuildPlan:
        """The plan that the options describe."""
        from lad.benchmarks.plan import BuildPlan

        chosen = {field.name: getattr(self, field.name) for field in fields(BuildPlan)}
        if self.candidates is None:
            del chosen["candidates"]
        return BuildPlan(**chosen)


def takes(options: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb the options of a class, after its own; it is called with them as one object named ``options``."""

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        hints, own = get_type_hints(options, include_extras=True), get_type_hints(verb, include_extras=True)
        signature = inspect.signature(verb)
        named = {
            name: parameter.replace(annotation=own[name])
            for name, parameter in signature.parameters.items()
            if name != "options"
        }
        shared = {
            field.name: inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=hints[field.name],
            )
            for field in fields(options)
        }

        @functools.wraps(verb)
        def called(**given: Any) -> None:
            verb(**{name: given[name] for name in named}, options=options(**{name: given[name] for name in shared}))

        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*named.values(), *shared.values())
        ]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return called

    return decorate
