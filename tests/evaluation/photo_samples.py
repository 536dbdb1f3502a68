"""Make what the photograph tables are measured on: ``python -m tests.evaluation.photo_samples DATA MODEL OUT``.

Samples of COCO and Flickr8k, random and adversarial, N = 4 and 8, of the photographs that ``DATA/unseen.txt`` names.
The adversarial ones are chosen by the encoders of the photograph tests. Five calibration samples each, of photographs
set apart. Beside them lies ``photographs.yaml``, for::

    lad evaluate --config OUT/photographs.yaml --out OUT/run --markdown docs/methods.md
"""

from __future__ import annotations

import sys
from pathlib import Path

from lad.benchmarks.benchmark_files import write_benchmark
from lad.benchmarks.build import build_benchmark
from lad.benchmarks.coco import read_coco
from lad.benchmarks.embeddings import Encoders
from lad.benchmarks.flickr8k import read_flickr8k
from lad.benchmarks.plan import BuildPlan
from lad.benchmarks.pool import restrict
from tests.benchmarks.photo_encoders import EfficientNet, load_sentence_encoder

CALIBRATION_PICTURES = 40

CONFIG = """\
name: photographs
models:
  - {{model: {model}, name: photo model, lacks: [reasoning, yes_no, wordings]}}
datasets:
{datasets}
candidates: [4, 8]
limit: 30
part_size: 10
methods:
  - vanilla
  - pride
  - raw_attention
  - purified_attention
  - agd
  - agd_calibrated_layers
  - {{name: pride_authors, samples: 10}}
  - {{name: permutation_average, samples: 10}}
  - {{name: agd_shifts, shifts: 2, samples: 10}}
  - {{name: agd_adaptive, passes: 1.5, samples: 10}}
  - {{name: agd_adaptive, passes: 2.5, samples: 10}}
"""
"""Several orders cost several passes, so they are measured on the first samples alone."""


def main() -> None:
    """Write ``OUT/DATASET-SETTING-N/test.jsonl`` and ``calibration.jsonl``, and the configuration."""
    data, model, out = map(Path, sys.argv[1:4])
    coco, flickr = data / "coco", data / "flickr8k"
    encoders = Encoders(EfficientNet(), load_sentence_encoder(), out / "embeddings")
    pools = {
        "coco": read_coco(coco / "captions.json", coco / "images", coco / "instances.json"),
        "flickr8k": read_flickr8k(flickr / "Flickr8k.token.txt", flickr / "images"),
    }
    named = (data / "unseen.txt").read_text(encoding="utf-8").split()
    for name, pool in pools.items():
        kept = out / f"{name}.txt"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text("".join(f"{Path(line).name}\n" for line in named if line.startswith(f"{name}/")))
        chosen = restrict(pool, kept)
        for setting in ("random", "adversarial"):
            for count in (4, 8):
                plan = BuildPlan(setting=setting, candidates=count, calibration_pictures=CALIBRATION_PICTURES)
                benchmark = build_benchmark(chosen, plan, encoders=encoders)
                write_benchmark(out / f"{name}-{setting}-{count}", benchmark)
    places = [f"{name}-{setting}" for name in pools for setting in ("random", "adversarial")]
    datasets = "\n".join(
        f"  - {{name: {place}, samples: '{place}-{{candidates}}/test.jsonl', "
        f"calibration: '{place}-{{candidates}}/calibration.jsonl'}}"
        for place in places
    )
    config = CONFIG.format(model=model.resolve(), datasets=datasets)
    (out / "photographs.yaml").write_text(config, encoding="utf-8")


if __name__ == "__main__":
    main()
