"""`lad build`: a dataset's own files in, samples with a disjoint calibration split out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from lad.cli.build_options import OutputOptions, PictureOptions, takes

build = typer.Typer(
    name="build",
    help="Make samples of a dataset: random or adversarial distractors, and a calibration split apart from them.",
    no_args_is_help=True,
)
Images = Annotated[Path, typer.Option(help="Folder of the images.")]


@build.command()
@takes(PictureOptions)
def coco(
    captions: Annotated[Path, typer.Option(help="captions_val2014.json or another file of that format.")],
    images: Images,
    instances: Annotated[Path | None, typer.Option(help="instances_val2014.json, for the categories.")] = None,
    *,
    options: PictureOptions,
) -> None:
    """MS-COCO, 2014 or 2017."""
    from lad.benchmarks.coco import read_coco
    from lad.cli.build_steps import build_of_pictures

    build_of_pictures(read_coco(captions, images, instances), options)


@build.command()
@takes(PictureOptions)
def flickr8k(
    captions: Annotated[Path, typer.Option(help="Flickr8k.token.txt, or captions.csv with columns image and caption.")],
    images: Images,
    *,
    options: PictureOptions,
) -> None:
    """Flickr8k, or Flickr30k."""
    from lad.benchmarks.flickr8k import read_flickr8k
    from lad.cli.build_steps import build_of_pictures

    build_of_pictures(read_flickr8k(captions, images), options)


@build.command()
@takes(PictureOptions)
def folder(
    source: Annotated[Path, typer.Argument(help="Folder with metadata.jsonl or metadata.csv, and pictures.")],
    caption_key: Annotated[str | None, typer.Option(help="Key of the captions; caption, captions or text.")] = None,
    *,
    options: PictureOptions,
) -> None:
    """Captioned pictures of your own, in the ImageFolder convention."""
    from lad.benchmarks.folder import read_folder
    from lad.cli.build_steps import build_of_pictures

    build_of_pictures(read_folder(source, caption_key), options)


@build.command()
@takes(PictureOptions)
def hf(
    source: Annotated[str, typer.Argument(help="Name on the Hugging Face hub, `datasets` folder, or .parquet file.")],
    split: Annotated[str, typer.Option(help="Split to take.")] = "test",
    calibration_split: Annotated[
        str | None, typer.Option(help="The dataset's own calibration split, of ready-made samples.")
    ] = None,
    image_column: Annotated[
        str | None, typer.Option(help="Column with an image, or with a list of candidates; images or image.")
    ] = None,
    caption_column: Annotated[str | None, typer.Option(help="Column of captions; caption, captions or text.")] = None,
    answer_column: Annotated[str, typer.Option(help="Column of the right candidate, from 0.")] = "answer",
    config: Annotated[str | None, typer.Option(help="Configuration of the dataset.")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")] = None,
    *,
    options: PictureOptions,
) -> None:
    """A dataset of the Hugging Face hub, or Parquet.

    Rows with one image are pictures, of which samples are made. Rows with a list of images are samples already:
    of the options below --candidates, --count and --calibration-samples then apply.
    """
    from lad.benchmarks.groups import Groups
    from lad.benchmarks.hub import Columns, read_hub
    from lad.cli.build_steps import build_of_pictures, build_of_samples, without_leftovers
    from lad.sample_files import IMAGES_FOLDER

    extracted = options.out / IMAGES_FOLDER
    with without_leftovers(extracted, options):
        read = read_hub(
            source,
            extracted,
            columns=Columns(image_column, caption_column, answer_column),
            split=split,
            calibration_split=calibration_split,
            config=config,
            revision=revision,
        )
        if isinstance(read, Groups):
            build_of_samples(read, options, options.count, options.calibration_samples)
        else:
            build_of_pictures(read, options)


@build.command()
@takes(OutputOptions)
def mmiu(
    annotations: Annotated[Path, typer.Option(help="The dataset's items, .json or .jsonl.")],
    images: Images,
    task: Annotated[
        list[str] | None, typer.Option(help="Task to take; may be repeated. The six of the paper if left out.")
    ] = None,
    text: Annotated[
        Literal["context+question", "question"], typer.Option(help="What a sample's text is made of.")
    ] = "context+question",
    candidates: Annotated[int | None, typer.Option(help="Take only samples of this N.")] = None,
    count: Annotated[int | None, typer.Option(help="Most test samples.", min=1)] = None,
    calibration_samples: Annotated[int, typer.Option(help="Calibration samples of each N.", min=0)] = 5,
    *,
    options: OutputOptions,
) -> None:
    """MMIU: the tasks whose options name the images in order."""
    from lad.benchmarks.mmiu import TASKS, read_mmiu
    from lad.cli.build_steps import build_of_samples

    groups = read_mmiu(annotations, images, task or tuple(TASKS), text)
    build_of_samples(groups, options, count, calibration_samples, candidates)


@build.command()
@takes(OutputOptions)
def scenes(
    setting: Annotated[
        Literal["random", "adversarial"],
        typer.Option(help="Any other scenes, or scenes that differ in one attribute."),
    ] = "random",
    candidates: Annotated[int, typer.Option(help="N, 2 to 12.")] = 4,
    count: Annotated[int, typer.Option(help="Test samples.", min=1)] = 200,
    calibration_samples: Annotated[int, typer.Option(help="Calibration samples.", min=0)] = 5,
    seed: Annotated[int, typer.Option(help="Seed of everything drawn.")] = 0,
    *,
    options: OutputOptions,
) -> None:
    """Synthetic scenes, as picture files."""
    from lad.benchmarks.scene_benchmark import build_of_scenes
    from lad.cli.build_steps import finish
    from lad.cli.console import progress

    finish(build_of_scenes(setting, candidates, count, calibration_samples, seed, progress), options, ())
