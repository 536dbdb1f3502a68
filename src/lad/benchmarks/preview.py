"""Samples to look at: a page that shows each caption with its candidates, the answer framed."""

from __future__ import annotations

import base64
import html
import os
from io import BytesIO
from pathlib import Path

from PIL import Image

from lad.atomic import write_files
from lad.benchmarks.build import Benchmark
from lad.images import load_image
from lad.samples import ImageSource, Sample

_SIDE = 140
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px/1.4 sans-serif; margin: 24px; background: #fff; color: #222 }}
article {{ margin: 0 0 20px; break-inside: avoid }}
h3 {{ font-size: 15px; margin: 0 0 6px }}
small {{ color: #777; font-weight: normal }}
div {{ display: flex; flex-wrap: wrap; align-items: flex-start; gap: 6px }}
figure {{ margin: 0; padding: 3px; border: 3px solid transparent; text-align: center; font-size: 12px }}
figure.answer {{ border-color: #18a048 }}
</style></head><body>
{body}
</body></html>
"""


def write_preview(path: str | os.PathLike[str], benchmark: Benchmark, count: int) -> None:
    """Write one HTML file that needs nothing else: the first ``count`` samples of each split.

    Raises:
        ImageError: a picture cannot be read.
        OSError: the file cannot be written.
    """
    parts = []
    for split, samples in (("test", benchmark.test), ("calibration", benchmark.calibration)):
        if samples:
            parts.append(f"<h2>{split}: {min(count, len(samples))} of {len(samples)} samples</h2>")
            parts += [_article(sample) for sample in samples[:count]]
    page = _PAGE.format(title="Samples", body="\n".join(parts))
    write_files({Path(path): page.encode()})


def _article(sample: Sample) -> str:
    figures = "".join(
        f'<figure class="{"answer" if index == sample.answer else "other"}">'
        f'<img src="{_thumbnail(image)}" alt="candidate {index}"><br>{index}</figure>'
        for index, image in enumerate(sample.images)
    )
    heading = f"{html.escape(sample.caption)} <small>{html.escape(sample.id)}</small>"
    return f"<article><h3>{heading}</h3><div>{figures}</div></article>"


def _thumbnail(image: ImageSource) -> str:
    """A small JPEG as a data address."""
    picture = load_image(image)
    picture.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    buffer = BytesIO()
    picture.save(buffer, "JPEG", quality=82)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
