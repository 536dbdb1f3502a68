"""The speed suite.

    python -m perf                          the figures of docs/performance.md, about a quarter of an hour
    python -m perf --quick                  small shapes, to see that it runs
    python -m perf --only plan gallery      some sections
    python -m perf --reference PATH         a clone of the published code beside it

Every figure is a ratio of things measured in turn in this run, several times: median, smallest and largest. Writes
performance.json, performance.md and performance.svg into the folder of --out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers.utils import logging

from perf import forward, overlap, reference, report, reuse, scaling, whole_plan
from perf.setting import Row, Setting

SECTIONS: dict[str, Callable[[Setting], list[Row]]] = {
    "pass": forward.one_pass,
    "tokens": forward.two_tokens,
    "evidence": forward.evidence,
    "features": reuse.features,
    "gallery": reuse.gallery,
    "plan": whole_plan.whole_plan,
    "overlap": overlap.overlap,
    "precision": overlap.precision,
    "batches": scaling.batches,
    "candidates": scaling.candidates,
    "lengths": scaling.lengths,
}


def main(arguments: list[str] | None = None) -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="perf", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/perf"), help="folder of the results")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION")
    parser.add_argument("--quick", action="store_true", help="small shapes and one round")
    parser.add_argument("--rounds", type=int, default=5, help="how often each comparison is made")
    parser.add_argument("--layers", type=int, default=1, help="layers of the large model's decoder and vision tower")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"), help="of the large model")
    parser.add_argument("--reference", type=Path, help="a clone of the published code")
    parser.add_argument("--reference-images", default=reference.IMAGES, help="where it looks for the image of an {id}")
    options = parser.parse_args(arguments)
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    device, dtype = torch.device(options.device), getattr(torch, options.dtype)
    setting = (
        Setting.quick(device, dtype) if options.quick else Setting.real(device, dtype, options.layers, options.rounds)
    )
    sections = {name: SECTIONS[name] for name in SECTIONS if name in options.only}
    if options.reference is not None:
        sections["reference"] = lambda setting: reference.measure(
            options.reference.resolve(), images=options.reference_images, samples=setting.samples * 5
        )
    rows: list[Row] = []
    options.out.mkdir(parents=True, exist_ok=True)
    for name, section in sections.items():
        started = time.perf_counter()
        rows += section(setting)
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
        # after each section, so that a run that is broken off leaves what it has
        write(rows, {**report.machine(device), "dtype": options.dtype, "large": setting.large.name}, options.out)
    print(report.table(rows))
    return 0


def write(rows: list[Row], about: dict[str, object], folder: Path) -> None:
    """The three files."""
    text = json.dumps(report.document(rows, about), indent=1)
    (folder / "performance.json").write_text(text + "\n", encoding="utf-8")
    (folder / "performance.md").write_text(report.table(rows), encoding="utf-8")
    if any("series" in row.more for row in rows):
        try:
            report.plot(rows, folder / "performance.svg")
        except ModuleNotFoundError:
            print("No plot was drawn: matplotlib is not installed.", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
