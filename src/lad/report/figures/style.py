"""How all figures look: colours that the colour-blind tell apart, and that survive a black-and-white print.

Lines differ by colour, stroke and marker; matrices carry their numbers.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from lad.atomic import write_files
from lad.errors import DependencyError, RunError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette; each method keeps its look in every figure
LOOKS: dict[str, tuple[str, str, str]] = {
    "vanilla": ("#D55E00", "-", "o"),
    "pride": ("#009E73", "--", "s"),
    "agd": ("#0072B2", "-", "^"),
    "agd_calibrated_layers": ("#56B4E9", "-.", "v"),
    "raw_attention": ("#CC79A7", ":", "D"),
    "purified_attention": ("#882255", "-.", "P"),
}
OTHER_LOOKS: tuple[tuple[str, str, str], ...] = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#56B4E9", "-", "v"),
    ("#E69F00", "--", "P"),
)
INK, FAINT, TRUTH = "#222222", "#b8b8b8", "#E69F00"
LABELS = {
    "vanilla": "vanilla",
    "pride": "PriDe",
    "agd": "AGD",
    "agd_calibrated_layers": "AGD (calibrated layers)",
    "raw_attention": "raw attention",
    "purified_attention": "purified attention",
    "sofa": "SoFA",
    "permutation_average": "permutation average",
    "chain_of_thought": "chain of thought",
    "self_consistency": "self-consistency",
}
_SETTINGS: Any = {
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    # text stays text in the PDF
    "pdf.fonttype": 42,
}


def require_matplotlib() -> None:
    """Make sure that figures can be drawn, before anything is spent on what they show.

    Raises:
        DependencyError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise DependencyError("matplotlib", "figures")


def label_of(method: str) -> str:
    """What figures and tables call a method."""
    return LABELS.get(method, method.replace("_", " "))


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def styled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let a function draw in the style of all figures; what the user has set is left as it is.

    Raises:
        DependencyError: when it is called, if matplotlib is not installed.
    """

    @functools.wraps(function)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            import matplotlib as mpl
        except ImportError as error:
            raise DependencyError("matplotlib", "figures") from error
        with mpl.rc_context(_SETTINGS):
            return function(*args, **kwargs)

    return drawn


def new_figure(
    rows: int,
    columns: int,
    size: tuple[float, float],
    layout: Literal["constrained", "compressed"] = "constrained",
    **kwargs: Any,
) -> tuple[Figure, NDArray[Any]]:
    """An empty figure and its axes (rows, columns); no window and no global state.

    Args:
        rows: of axes.
        columns: of axes.
        size: width and height in inches.
        layout: "compressed" for axes of a fixed shape.
        kwargs: as for ``Figure.subplots``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout=layout)
    FigureCanvasAgg(figure)
    return figure, np.asarray(figure.subplots(rows, columns, squeeze=False, **kwargs))


def image_of(figure: Figure, kind: str = "png", dpi: int = 150) -> bytes:
    """The figure as a file's bytes ("png", "pdf" or "svg"), the same ones each time."""
    import matplotlib as mpl

    varying = {"png": ["Software"], "pdf": ["CreationDate", "Producer", "Creator"], "svg": ["Date", "Creator"]}
    metadata: dict[str, Any] = dict.fromkeys(varying[kind])
    buffer = io.BytesIO()
    settings: Any = {**_SETTINGS, "svg.hashsalt": "lad"}
    with mpl.rc_context(settings):
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata, bbox_inches="tight", pad_inches=0.06)
    return buffer.getvalue()


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write ``name.png`` and ``name.pdf``.

    Raises:
        RunError: they cannot be written.
    """
    contents = {folder / f"{name}.{kind}": image_of(figure, kind, dpi=200) for kind in ("png", "pdf")}
    try:
        write_files(contents)
    except OSError as error:
        raise RunError(f"Cannot be written ({error.strerror or error}).", where=str(folder)) from error
    return list(contents)
