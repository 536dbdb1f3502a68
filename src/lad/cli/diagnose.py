"""`lad diagnose`: how position-biased is a model, and what would AGD gain?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lad.cli import options as opt
from lad.cli.reproduce import model_name
from lad.errors import SampleError

if TYPE_CHECKING:
    from lad.samples import Sample


def diagnose(
    model: opt.ModelArgument = None,
    data: Annotated[Path | None, typer.Option(help="Folder made by `lad build`.")] = None,
    samples: Annotated[Path | None, typer.Option(help="Labelled samples, JSONL or Parquet, instead of --data.")] = None,
    calibration_samples: Annotated[
        Path | None, typer.Option(help="Labelled samples to calibrate on, five at least; goes with --samples.")
    ] = None,
    scenes: Annotated[
        opt.Setting | None, typer.Option(help="Synthetic scenes; random ones are taken if nothing is given.")
    ] = None,
    candidates: Annotated[int | None, typer.Option(help="Images per sample, N; 4 for scenes.")] = None,
    limit: Annotated[int, typer.Option(min=2, help="Most samples; each costs N passes.")] = 60,
    pool: Annotated[int, typer.Option(min=5, help="Most calibration samples; each costs N passes.")] = 20,
    out: Annotated[Path | None, typer.Option(help="Folder for the page (report.html) and its contents.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of scenes and draws.")] = 0,
    device: opt.Device = None,
    dtype: opt.Dtype = None,
    revision: opt.Revision = None,
    trust_remote_code: opt.TrustRemoteCode = False,
    image_size: opt.ImageSize = "auto",
    attention: opt.Attention = "span",
    identifiers: opt.Identifiers = "digits",
    prompt: opt.Prompt = None,
    json: opt.Json = False,
) -> None:
    """Say how position-biased a model is, whether its attention knows better, and what AGD would gain.

    Every sample is asked in all N cyclic orders, so every image is seen at every position.
    """
    from lad.cli.console import console, make_table, print_json, progress
    from lad.report.figures.style import require_matplotlib

    if out is not None:
        require_matplotlib()
    tested, shown, described = _samples(data, samples, calibration_samples, scenes, candidates, limit, pool, seed)
    template = opt.load_template(prompt)
    vlm = opt.load_model(
        model,
        device=device,
        dtype=dtype,
        revision=revision,
        trust_remote_code=trust_remote_code,
        image_size=image_size,
        attention=attention,
    )
    from lad.diagnose.diagnosis import diagnose as find_out
    from lad.diagnose.observing import observe_for_diagnosis
    from lad.diagnose.page import findings, make_page
    from lad.report.stored import store_report
    from lad.report.writing import write_report
    from lad.reproduce.running import model_facts

    names = opt.parse_identifiers(identifiers)
    with progress("Observing", (len(tested) + len(shown)) * len(tested[0])) as advance:
        observed = observe_for_diagnosis(
            vlm, tested, shown, template=template, identifiers=names, seed=seed, progress=advance
        )
    found = find_out(*observed, seed=seed)
    facts = model_facts(vlm, model_name(model))
    page = make_page(found, facts, described)
    files = []
    if out is not None:
        store_report(page, out)
        files = write_report(page, out)
    if json:
        print_json({**found.to_dict(), "findings": list(findings(found)), "data": described})
        return
    table = page.find("methods")
    printed = make_table(None, [column.label for column in table.columns])  # type: ignore[union-attr]
    for row in table.rows:  # type: ignore[union-attr]
        printed.add_row(*table.cells(row))  # type: ignore[union-attr]
    terminal = console()
    terminal.print(page.title, style="bold", soft_wrap=True)
    for sentence in page.lead:
        terminal.print(f"\n{sentence}")
    terminal.print()
    terminal.print(printed)
    if files:
        terminal.print(f"\nPage: {files[0]}", soft_wrap=True)


def _samples(
    data: Path | None,
    samples: Path | None,
    calibration_samples: Path | None,
    scenes: opt.Setting | None,
    candidates: int | None,
    limit: int,
    pool: int,
    seed: int,
) -> tuple[list[Sample], list[Sample], str]:
    """Samples to answer, samples to calibrate on, and what they are in words."""
    from lad.reproduce.cells import Cell
    from lad.reproduce.data import FolderData, SceneData

    if sum(source is not None for source in (data, samples, scenes)) > 1:
        raise SampleError("Give one of --data, --samples and --scenes.")
    if (samples is None) != (calibration_samples is None):
        raise SampleError("--samples and --calibration-samples go together.")
    if data is not None:
        folder = FolderData([data])
        cell = folder.only_cell(candidates)
        return folder.test(cell, limit), folder.calibration(cell, pool), f"{folder.describe()}, {cell.setting}"
    if samples is not None and calibration_samples is not None:
        from lad.sample_files import read_samples

        some = read_samples(samples)
        count = candidates or len(some[0])
        chosen, shown = (
            [sample for sample in group if len(sample) == count] for group in (some, read_samples(calibration_samples))
        )
        if not chosen:
            raise SampleError(f"There are no samples of {count} candidates.", where=str(samples))
        if not shown:
            raise SampleError(f"There are no samples of {count} candidates.", where=str(calibration_samples))
        return chosen[:limit], shown[:pool], samples.name
    drawn = SceneData(seed)
    cell = Cell("scenes", (scenes or opt.Setting.random).value, candidates or 4)
    if not drawn.offers(cell):
        raise SampleError(f"Scenes come with 2 to 12 candidates, not {cell.candidates}.")
    return drawn.test(cell, limit), drawn.calibration(cell, pool), f"{drawn.describe()}, {cell.setting}"
