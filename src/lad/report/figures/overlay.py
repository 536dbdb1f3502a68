"""The attention overlay: which patches of each image the last token looked at."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lad.report.figures.style import FAINT, TRUTH, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL import Image


@styled
def attention_overlay(
    images: Sequence[Image.Image | NDArray[Any]],
    maps: Sequence[NDArray[np.float64]],
    *,
    titles: Sequence[str] | None = None,
    answer: int | None = None,
    caption: str = "",
) -> tuple[Figure, NDArray[Any]]:
    """Images with the attention on their patches drawn over them, all on one scale.

    The strongest patch of all images is the brightest; where nothing is looked at, the image stays grey.
    Patches are spread evenly over an image; where a model's processor crops or pads it, they lie a little off.

    Args:
        images: N pictures in the order of their positions.
        maps: per image, attention (rows, columns) of its patches, as of
            :func:`lad.model.overlay.observe_overlay`.
        titles: over the images; their positions, counted from 1, if left out.
        answer: the image that gets a frame; None for none.
        caption: over the figure.

    Returns:
        The figure and its axes (2, N): the images as they are, and with the overlay.
    """
    count = len(images)
    fig, axes = new_figure(2, count, (1.75 * count + 0.8, 4.1), "compressed")
    top = max(float(patch_map.max()) for patch_map in maps) or 1.0
    shown = None
    for column, (image, patch_map) in enumerate(zip(images, maps, strict=True)):
        picture = np.asarray(image)
        extent = (-0.5, picture.shape[1] - 0.5, picture.shape[0] - 0.5, -0.5)
        axes[0, column].imshow(picture, extent=extent)
        axes[0, column].set_title(titles[column] if titles else str(column + 1))
        grey = 90 + 0.6 * picture[..., :3].mean(axis=-1)
        axes[1, column].imshow(grey, extent=extent, cmap="gray", vmin=0, vmax=255)
        strength = patch_map / top
        shown = axes[1, column].imshow(
            strength, extent=extent, cmap="inferno", vmin=0, vmax=1, alpha=0.1 + 0.6 * np.sqrt(strength),
            interpolation="nearest",
        )  # fmt: skip
        axes[1, column].set_xlabel(f"{100 * patch_map.sum():.1f}%")
        for ax in axes[:, column]:
            ax.set_xticks([])
            ax.set_yticks([])
            for spine in ax.spines.values():
                spine.set_visible(True)
                spine.set_color(TRUTH if column == answer else FAINT)
                spine.set_linewidth(3 if column == answer else 0.8)
    axes[1, 0].set_ylabel("attention of the last token")
    if shown is not None:
        fig.colorbar(shown, ax=axes, label="share of the strongest patch", shrink=0.6, aspect=25)
    if caption:
        fig.suptitle(textwrap.fill(caption, 24 * count), fontsize=9.5)
    return fig, axes


@styled
def stored_overlay(
    pictures: Sequence[str], maps: Sequence[Any], *, answer: int | None = None, caption: str = ""
) -> tuple[Figure, NDArray[Any]]:
    """The overlay of a stored report, whose pictures are data addresses; see :func:`attention_overlay`."""
    from PIL import Image

    images = []
    for address in pictures:
        with Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))) as image:
            images.append(image.convert("RGB"))
    return attention_overlay(images, [np.asarray(values) for values in maps], answer=answer, caption=caption)
