"""`lad rank`: which of these images does this caption describe?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lad.cli import options as opt
from lad.errors import CalibrationError

if TYPE_CHECKING:
    from lad.ranker import Ranking


def rank(
    caption: Annotated[str, typer.Argument(help="What the wanted image shows.")],
    images: Annotated[list[str], typer.Argument(help="Two or more image files.")],
    model: Annotated[str | None, typer.Option(help="Hub name or folder; the shipped model if left out.")] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="Folder made by `lad calibrate`; the shipped model brings its own.")
    ] = None,
    method: Annotated[str, typer.Option(help="Decision rule, for instance agd or agd_calibrated_layers.")] = "agd",
    device: opt.Device = None,
    dtype: opt.Dtype = None,
    revision: opt.Revision = None,
    adapter: opt.Adapter = None,
    trust_remote_code: opt.TrustRemoteCode = False,
    image_size: opt.ImageSize = "auto",
    tiling: opt.Tiling = False,
    attention: opt.Attention = "span",
    identifiers: opt.Identifiers = "digits",
    prompt: opt.Prompt = None,
    top_k: opt.TopK = 2,
    temperature: opt.Temperature = 5.0,
    layer_range: opt.LayerRange = None,
    layer_choice: opt.LayerChoice = "mass",
    purification: opt.Purification = "log_of_mean",
    mixture: opt.Mixture = "log",
    no_prior: opt.NoPrior = False,
    json: opt.Json = False,
) -> None:
    """Rank images by how well a caption describes them, whatever their order."""
    from lad.cli.console import console, make_table, print_json
    from lad.decisions import find_rule
    from lad.images import load_image
    from lad.ranker import Ranker, ranker_calibrations
    from lad.samples import Sample

    # what can be refused without the model is refused before it is loaded
    decisions = opt.decision_options(top_k, temperature, layer_range, layer_choice, purification, mixture, no_prior)
    template = opt.load_template(prompt)
    names = opt.parse_identifiers(identifiers)
    find_rule(method)
    query = Sample(caption, tuple(images))
    loaded = [load_image(image, where=f"image {index}") for index, image in enumerate(query.images)]
    if model is not None and calibration is None:
        raise CalibrationError(
            "This model needs a calibration of its own: give --calibration FOLDER.",
            where=model,
            hint=f"Make one with: lad calibrate {model} --samples FILE --out FOLDER",
        )
    calibrations = ranker_calibrations(model, calibration)
    vlm = opt.load_model(
        model,
        device=device,
        dtype=dtype,
        revision=revision,
        trust_remote_code=trust_remote_code,
        image_size=image_size,
        attention=attention,
        adapter=adapter,
        tiling=tiling,
    )
    ranker = Ranker(vlm, calibrations, template=template, identifiers=names, method=method, options=decisions)
    ranking = ranker.rank(caption, loaded)
    if json:
        print_json(_document(ranking, caption, images))
        return
    table = make_table(None, ("image", "index", "probability", "attention", "vanilla"))
    for candidate in ranking.candidates:
        table.add_row(
            images[candidate.index],
            str(candidate.index),
            f"{candidate.probability:.1%}",
            f"{candidate.attention:.1%}",
            f"{candidate.vanilla_probability:.1%}",
        )
    console().print(table)
    pick, vanilla = images[ranking.pick], images[ranking.vanilla_pick]
    console().print(f"\npick: {pick} (the model alone: {vanilla})", soft_wrap=True)


def _document(ranking: Ranking, caption: str, images: list[str]) -> dict[str, object]:
    document = ranking.to_dict()
    for candidate in document["candidates"]:
        candidate["image"] = images[candidate["index"]]
    return {"caption": caption, **document}
