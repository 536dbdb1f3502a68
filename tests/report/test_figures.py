"""Figures: functions of plain arrays that return (fig, axes), draw what they are given, and nothing global."""

import io
import itertools
import sys

import numpy as np
import pytest
from PIL import Image

from lad.errors import DependencyError, RunError
from lad.report.exhibits import Drawing
from lad.report.figures import (
    KINDS,
    accuracy_by_layer,
    accuracy_over_candidates,
    attention_beside_logits,
    attention_overlay,
    bias_heatmap,
    calibration_and_temperature,
    calibration_spread,
    conditional_profiles,
    confusion_matrices,
    draw,
    image_of,
    recall_by_position,
    save_figure,
)
from lad.report.figures.style import LOOKS, OTHER_LOOKS

NAMES = ["1", "2", "3"]
SERIES = {"vanilla": [[2, 60, 50, 70], [4, 40, 30, 50]], "agd": [[2, 90, 85, 95], [4, 95, 90, 99]]}
RNG = np.random.default_rng(0)
ROWS = np.log(RNG.dirichlet(np.ones(3), size=5))

MADE = {
    "confusion": lambda: confusion_matrices(
        [[np.diag([90.0, 80, 70]), None]], row_titles=["ours"], column_titles=["a", "b"], identifiers=[NAMES]
    ),
    "bias": lambda: bias_heatmap(RNG.normal(size=(3, 3)), identifiers=NAMES),
    "profiles": lambda: conditional_profiles([ROWS, ROWS[:1], []], identifiers=NAMES),
    "divergence": lambda: attention_beside_logits(
        ROWS, np.exp(ROWS) / 9, np.exp(ROWS), answer_position=2, identifiers=NAMES
    ),
    "candidates": lambda: accuracy_over_candidates({"random": SERIES, "adversarial": SERIES}),
    "sensitivity": lambda: calibration_and_temperature({"N = 4": SERIES}, {"N = 4": SERIES}),
    "recall": lambda: recall_by_position({"vanilla": [90, None, 20], "agd": [99, 98, 97]}, identifiers=NAMES),
    "layers": lambda: accuracy_by_layer([20, 50], [30, 90], [0, 100], said=40, chance=33.3),
    "spread": lambda: calibration_spread({"1": [80, 90, 70], "5": [95]}, without=40),
    "overlay": lambda: attention_overlay(
        [np.zeros((8, 8, 3), np.uint8), Image.new("RGB", (8, 8))],
        [np.eye(2) / 4, np.zeros((2, 2))],
        answer=0,
        caption="c",
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_a_figure_and_its_axes_come_back_and_can_be_saved(name, tmp_path):
    fig, axes = MADE[name]()
    assert axes.ndim == 2
    assert all(ax.figure is fig for ax in axes.flat)
    files = save_figure(fig, tmp_path, name)
    assert [file.suffix for file in files] == [".png", ".pdf"]
    with Image.open(files[0]) as image:
        colors = image.convert("RGB").getcolors(maxcolors=2**24)
        assert len(colors) > 10


def test_a_figure_is_the_same_file_each_time():
    for kind in ("png", "pdf", "svg"):
        assert image_of(MADE["recall"]()[0], kind) == image_of(MADE["recall"]()[0], kind)


def test_nothing_global_is_touched():
    import matplotlib as mpl
    from matplotlib import pyplot

    before = dict(mpl.rcParams), pyplot.get_fignums()
    image_of(MADE["candidates"]()[0])
    assert (dict(mpl.rcParams), pyplot.get_fignums()) == before


def test_matrices_show_the_numbers_they_are_given():
    _, axes = MADE["confusion"]()
    assert sorted(text.get_text() for text in axes[0, 0].texts) == ["70", "80", "90"]
    image = axes[0, 0].images[0]
    assert (image.norm.vmin, image.norm.vmax) == (0, 100)
    assert not axes[0, 1].axison


def test_profiles_show_every_sample_their_mean_and_the_truth():
    _, axes = MADE["profiles"]()
    lines = axes[0, 0].lines
    assert len(lines) == len(ROWS) + 1
    assert np.allclose(lines[-1].get_ydata(), ROWS.mean(axis=0))
    assert len(axes[0, 2].lines) == 0
    shaded = [ax.patches[0].get_x() + ax.patches[0].get_width() / 2 for ax in axes.flat]
    assert np.allclose(shaded, [0, 1, 2])


def test_attention_is_shown_as_shares():
    _, axes = MADE["divergence"]()
    assert [np.isclose(np.sum(line.get_ydata()), 1) for line in axes[0, 1].lines] == [True] * 5


def test_methods_differ_in_more_than_colour():
    for looks in (LOOKS.values(), OTHER_LOOKS):
        assert all(one[0] != other[0] and one[1:] != other[1:] for one, other in itertools.combinations(looks, 2))


def _lightness(color):
    red, green, blue = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2


def test_colours_stand_out_from_white_paper():
    assert all(_lightness(color) < 0.5 for color, *_ in LOOKS.values())


def test_drawings_are_drawn_by_their_kind():
    data = {"bias": [[0, 1], [1, 0]], "identifiers": ["1", "2"]}
    fig, _ = draw(Drawing("b", "Bias", "bias_heatmap", data))
    with Image.open(io.BytesIO(image_of(fig))) as image:
        assert image.width > 300
    with pytest.raises(RunError, match="no kind of figure 'pie'.*bias_heatmap"):
        draw(Drawing("b", "Bias", "pie", {}))
    assert {"confusion_matrices", "stored_overlay"} <= KINDS.keys()


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DependencyError, match=r"pip install 'lad-vlm\[figures\]'"):
        bias_heatmap([[0, 1], [1, 0]], identifiers=["1", "2"])
