"""`lad demo`: the whole story on the model that ships with the package, in a minute or two."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from lad.cli import options as opt

_SIZES = (4, 8)
_CALIBRATION_SAMPLES = 5


def demo(
    samples: Annotated[int, typer.Option(min=1, help="Samples per cell.")] = 200,
    orders: Annotated[int, typer.Option(min=1, help="Orders per sample.")] = 5,
    permutation_samples: Annotated[
        int, typer.Option(min=1, help="Samples that permutation averaging is measured on; it costs N passes a query.")
    ] = 40,
    device: opt.Device = None,
    json: opt.Json = False,
) -> None:
    """Show what the debiasing does: synthetic scenes, N = 4 and 8, random and adversarial distractors."""
    from lad.cli.console import console, print_json, progress

    started = time.monotonic()
    vlm = opt.load_model(
        None,
        device=device,
        dtype=None,
        revision=None,
        trust_remote_code=False,
        image_size="auto",
        attention="span",
    )
    from lad.benchmarks.scenes import scene_samples
    from lad.decisions import RULES
    from lad.evaluation.methods import PERMUTATION_AVERAGE
    from lad.evaluation.run import evaluate, make_plan
    from lad.model.calibrate import calibrate

    cells = []
    for size in _SIZES:
        for setting in opt.Setting:
            tested = scene_samples(samples, size, setting=setting.value)
            shown = scene_samples(_CALIBRATION_SAMPLES, size, setting=setting.value, split="calibration")
            methods = (*RULES, f"{PERMUTATION_AVERAGE}:samples={permutation_samples}")
            plan = make_plan(vlm, tested, methods=methods, orders=orders)
            cells.append((size, setting.value, tested, shown, plan))
    rows: list[dict[str, Any]] = []
    story: list[str] = []
    with progress("Observing", sum(_CALIBRATION_SAMPLES * cell[0] + cell[4].passes for cell in cells)) as advance:
        for size, setting_name, tested, shown, plan in cells:
            calibration = calibrate(vlm, shown, progress=advance)
            result = evaluate(vlm, tested, calibration, plan, progress=advance)
            rows += [_row(item, setting_name, size) for item in result.results]
            if not story and size == max(_SIZES):
                story = _one_query(tested, result, calibration)
    seconds = time.monotonic() - started
    if json:
        facts = {"model": vlm.name, "revision": vlm.revision, "samples": samples, "orders": orders}
        print_json({**facts, "seconds": round(seconds, 1), "rows": rows})
        return
    out = console()
    out.print("\n".join(story), soft_wrap=True)
    out.print(_table(rows))
    passes = sum(_CALIBRATION_SAMPLES * cell[0] + cell[4].passes for cell in cells)
    out.print(
        f"\n{samples} samples a cell (permutation_average: {min(samples, permutation_samples)}), {orders} orders each,"
        f" {_CALIBRATION_SAMPLES} calibration samples.\n"
        f"{passes} forward passes in {seconds:.0f} s; the single-pass methods of a cell share theirs.\n"
        "In percent: accuracy ± its deviation over the orders, and its 95% interval over samples; RStd, the deviation\n"
        "of recall over the positions of the answer (0 is fair); consistency, the same image picked in all orders.",
        soft_wrap=True,
    )


def _row(result: Any, setting: str, size: int) -> dict[str, Any]:
    from lad.cli.evaluate import method_row

    return {"setting": setting, "candidates": size, **method_row(result)}


def _table(rows: list[dict[str, Any]]) -> Any:
    from lad.cli.console import make_table
    from lad.cli.evaluate import method_cells

    table = make_table(
        None, ("setting", "N", "method", "accuracy", "95% interval", "RStd", "consistency", "passes"), left=3
    )
    previous = None
    for row in rows:
        cell = (row["setting"], str(row["candidates"]))
        if previous not in (None, cell):
            table.add_row()
        table.add_row(*(cell if cell != previous else ("", "")), *method_cells(row))
        previous = cell
    return table


def _one_query(samples: list[Any], result: Any, calibration: Any) -> list[str]:
    """One question asked in each order: what the model says, and what is left after debiasing."""
    import numpy as np

    from lad.decisions import decide, picks

    orders = len(result.plan.orders)
    vanilla, debiased = (
        picks(decide(method, result.observations, calibration), result.observations.orders).reshape(-1, orders)
        for method in ("vanilla", "agd")
    )
    # the first question on which the model changes its mind and the debiased answer does not
    moved = (vanilla != vanilla[:, :1]).any(axis=1) & (debiased == debiased[:, :1]).all(axis=1)
    chosen = int(np.argmax(moved))
    sample = samples[chosen]
    return [
        f'"{sample.caption}" - {len(sample)} images, the right one is image {sample.answer}.',
        f"The same question in {orders} orders of the images:",
        f"  the model alone picks image {', '.join(map(str, vanilla[chosen]))}",
        f"  debiased (AGD)  picks image {', '.join(map(str, debiased[chosen]))}",
        "",
    ]
