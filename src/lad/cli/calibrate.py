"""`lad calibrate`: five labelled samples in, a calibration out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lad.cli import options as opt


def calibrate(
    model: opt.ModelArgument = None,
    out: Annotated[Path, typer.Option(help="Folder for the calibration.")] = Path("calibration"),
    samples: Annotated[Path | None, typer.Option(help="Labelled samples, JSONL or Parquet.")] = None,
    scenes: Annotated[opt.Setting | None, typer.Option(help="Synthetic scenes in place of a file.")] = None,
    candidates: Annotated[int | None, typer.Option(help="Images per scene, 2 to 12; 4 if left out.")] = None,
    count: Annotated[int | None, typer.Option(help="How many samples; all of a file, 5 scenes.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the scenes.")] = 0,
    average: Annotated[str, typer.Option(help="log (as published) or prob (Eq. 1).")] = "log",
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
    json: opt.Json = False,
) -> None:
    """Measure a model's position bias on a few labelled samples, and write it down.

    Samples of several N make one calibration each.
    """
    from lad.calibration import check_average
    from lad.cli.console import console, make_table, print_json, progress

    kind: Any = check_average(average)
    opt.check_folder(out)
    template = opt.load_template(prompt)
    names = opt.parse_identifiers(identifiers)
    chosen = opt.gather_samples(
        samples, scenes, candidates=candidates, count=count, split="calibration", seed=seed, default_count=5
    )
    groups = {size: [s for s in chosen if len(s) == size] for size in sorted({len(s) for s in chosen})}
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
    from lad.model.calibrate import calibrate as fit

    with progress("Calibrating", sum(size * len(group) for size, group in groups.items())) as advance:
        made = [
            fit(vlm, group, template=template, identifiers=names, average=kind, progress=advance)
            for group in groups.values()
        ]
    files = [calibration.save(out) for calibration in made]
    rows: list[dict[str, Any]] = [
        {
            "candidates": calibration.candidates,
            "samples": calibration.samples,
            "passes": calibration.samples * calibration.candidates,
            "visual_gain": calibration.visual_gain,
            "best_layers": [int(layer) for layer in (-calibration.layer_evidence).argsort(kind="stable")[:2]],
            "file": str(file),
        }
        for calibration, file in zip(made, files, strict=True)
    ]
    if json:
        print_json({"model": vlm.name, "revision": vlm.revision, "calibrations": rows})
        return
    table = make_table(None, ("calibration", "N", "samples", "passes", "visual gain", "best layers"))
    for row in rows:
        layers = ", ".join(map(str, row["best_layers"]))
        gain = f"{row['visual_gain']:.2f}"
        table.add_row(str(row["file"]), str(row["candidates"]), str(row["samples"]), str(row["passes"]), gain, layers)
    console().print(table)
