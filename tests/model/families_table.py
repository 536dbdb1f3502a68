"""Write the table of docs/families.md from what is measured: python -m tests.model.families_table."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from transformers.utils import logging

from lad.checks import CheckResult, run_checks
from lad.checks.material import SHORT, Material
from lad.model.vlm import VisionLanguageModel
from tests.model.checkpoints import BUILDERS
from tests.model.pictures import picture

PAGE = Path(__file__).parents[2] / "docs" / "families.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
HEAD = (
    "family",
    "class",
    "decoder layers",
    "image spans",
    "tokens of an image",
    "attention",
    "feature reuse",
    '"1".."12"',
    "limits",
)

LIMITS = {
    "llava_next": "always a base view and tiles; one square size makes the number of tokens the same for all",
    "llava_onevision": "one tile per image among several; a single image would be tiled, so none is encoded alone",
    "qwen3_vl": "deepstack features are kept with each image",
    "aya_vision": "needs a layer whose window reaches all images",
    "cohere2_vision": "needs a layer whose window reaches all images",
    "gemma3": "needs a layer whose window reaches all images; each image attends both ways within itself",
    "gemma4": "needs a layer whose window reaches all images; audio is not used",
    "paligemma": "the whole prompt attends both ways; asked without a chat template, in the form it was trained on",
    "paligemma2": "as paligemma; attention scores are capped, so the decoder runs its eager code",
    "molmo2": "all images of a prompt attend to each other",
    "lfm2_vl": "convolution layers carry image information that no attention shows",
    "mllama": "images are keys of cross-attention layers; only those layers are read",
    "smolvlm": "its processor needs the package num2words",
    "fast_vlm": "needs the package timm",
}


def row(name: str, folder: Path) -> tuple[str, ...]:
    """What was measured of one family."""
    vlm = VisionLanguageModel.load(BUILDERS[name](folder))
    results = {result.name: result for result in run_checks(vlm)}
    if failed := [result for result in results.values() if not result.passed]:
        raise SystemExit(f"{name} fails {failed}")
    material = Material(vlm)
    _, collector = material.passed
    attending = len(collector.rows)
    seeing = [layer for layer in collector.rows if not collector.blind.get(layer, np.zeros(1)).any()]
    layers = f"{attending} of {vlm.depth} read"
    if len(seeing) < attending:
        layers += f", {len(seeing)} see all images here"
    return (
        name,
        type(vlm.model).__name__.removesuffix("ForConditionalGeneration"),
        layers,
        _spans(vlm, material),
        _tokens(folder),
        f"{material.reference.implementation}, row {_within(results['attention_row'])}",
        _within(results["feature_reuse"]),
        _within(results["cached_scores"]),
        LIMITS.get(name, ""),
    )


def _within(result: CheckResult) -> str:
    return f"within {result.difference:.0e}" if result.difference else "exact"


def _spans(vlm: VisionLanguageModel, material: Material) -> str:
    if vlm.family.images != "tokens":
        return f"{material.encoded[0].features.shape[0]} cross-attention keys each"
    prompt = material.prompt
    features = (prompt.tokens == vlm.model.config.image_token_id).numpy().astype(int)
    own = features * (prompt.segments == 0).numpy()
    runs = int((np.diff(own, prepend=0) == 1).sum())
    all_runs = int((np.diff(features, prepend=0) == 1).sum())
    kind = "images fuse into one run" if all_runs == 1 else f"{runs} run{'s' if runs > 1 else ''} an image"
    return f"offsets; {kind}"


def _tokens(folder: Path) -> str:
    """Whether a picture's number of tokens follows its shape where it is left to the processor, and what is done."""
    square, wide = picture(0, 112, 112), picture(1, 224, 112)
    kinds = []
    for options in ({}, {"tiling": False, "image_size": "native"}, {"tiling": True}):
        vlm = VisionLanguageModel.load(folder, **options)
        images = vlm.encoder.encode([vlm.prepare(square), vlm.prepare(wide)], ["square", "wide"])
        real = [image.grid["tiles"].sum() if "tiles" in image.grid else len(image.features) for image in images]
        kinds.append(real[0] == real[1])
    fixed, fixed_by_processor, fixed_with_tiles = kinds
    if not fixed:
        raise SystemExit(f"{vlm.name}: an image's tokens are not fixed")
    if not fixed_by_processor:
        return "made square"
    return "fixed" if fixed_with_tiles else "tiles off"


def main() -> None:
    """Measure all families and rewrite the table."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    rows = [HEAD, tuple("---" for _ in HEAD)]
    for name in BUILDERS:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row(name, Path(folder)))
        sys.stderr.write(f"{name}\n")
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + table + END + rest.split(END)[1], encoding="utf-8")
    sys.stderr.write(f"{len(BUILDERS)} families, asked with {SHORT!r}, written to {PAGE.name}\n")


if __name__ == "__main__":
    main()
