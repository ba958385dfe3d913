"""Figures: what is drawn, what is written beside it, and nothing of pyplot."""

from __future__ import annotations

import io
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from gpukpca import KernelPCA
from gpukpca.plotting import MOST_NAMES, RASTERIZE_FROM, plot_fit, plot_scores, plot_spectrum

pytest.importorskip("matplotlib")


def png(figure: Any) -> np.ndarray:
    """The drawn figure as pixels."""
    from matplotlib.image import imread

    file = io.BytesIO()
    figure.savefig(file, format="png")
    file.seek(0)
    return imread(file)


def words(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


def with_ratios(*ratios: float) -> Any:
    return SimpleNamespace(explained_variance_ratio_=np.array(ratios))


@pytest.fixture(scope="module")
def iris() -> tuple[Any, np.ndarray, np.ndarray]:
    data = load_iris()
    model = KernelPCA(3, kernel="rbf", gamma="median")
    return model, model.fit_transform(data.data), data.target_names[data.target]


def test_a_fit_is_two_panels_with_what_they_show_written_on_them(iris: tuple[Any, np.ndarray, np.ndarray]):
    model, scores, labels = iris
    figure = plot_fit(model, scores, labels, title="iris")
    left, right = figure.axes
    first = 100 * model.explained_variance_ratio_[0]
    assert right.get_xlabel() == f"component 1 ({first:.1f} %)"
    assert right.get_ylabel().startswith("component 2 (")
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["setosa", "versicolor", "virginica"]
    np.testing.assert_allclose([bar.get_height() for bar in left.patches], 100 * model.explained_variance_ratio_)
    np.testing.assert_allclose(left.lines[0].get_ydata(), 100 * np.cumsum(model.explained_variance_ratio_))
    pixels = png(figure)
    assert pixels.shape[:2] == (880, 2000)
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 50


def test_every_point_keeps_its_colour_in_the_shuffle(iris: tuple[Any, np.ndarray, np.ndarray]):
    _, scores, labels = iris
    dots = plot_scores(scores, labels=labels).collections[0]
    places, colours = np.asarray(dots.get_offsets()), dots.get_facecolors()[:, :3]
    of_class = {}
    for point, label in zip(scores[:, :2], labels, strict=True):
        colour = tuple(colours[np.flatnonzero((places == point).all(axis=1))[0]])
        of_class.setdefault(label, set()).add(colour)
    assert all(len(found) == 1 for found in of_class.values())
    assert len(set.union(*of_class.values())) == 3


def test_low_bars_get_their_own_axis():
    assert len(plot_spectrum(with_ratios(0.6, 0.3)).figure.axes) == 1
    ax = plot_spectrum(with_ratios(*[0.01] * 90))
    assert len(ax.figure.axes) == 2
    assert ax.get_ylim()[1] < 2
    png(ax.figure)


def test_many_numbers_get_a_colour_bar_and_many_words_one_colour(rng: np.random.Generator):
    scores = rng.standard_normal((50, 2))
    numbered = plot_scores(scores, labels=np.arange(50.0))
    assert len(numbered.figure.axes) == 2
    worded = plot_scores(scores, labels=[f"w{i}" for i in range(50)])
    assert len(worded.figure.axes) == 1
    assert worded.get_legend() is None
    assert len(worded.collections[0].get_facecolors()) == 1


def test_names_are_written_up_to_forty_without_overlap(rng: np.random.Generator):
    from matplotlib.text import Text

    scores = rng.standard_normal((MOST_NAMES, 2))
    names = [f"sample {i}" for i in range(MOST_NAMES)]
    ax = plot_scores(scores, names=names)
    assert words(ax) == names
    ax.figure.draw_without_rendering()
    # The plain text: an annotation's own extent includes its leader.
    boxes = [Text.get_window_extent(text) for text in ax.texts]
    overlaps = sum(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert overlaps <= 1
    assert words(plot_scores(np.vstack([scores, scores]), names=names + names)) == []


def test_names_are_not_read_as_mathematics():
    names = ["$a_{", "x^2$ $", "_hidden"]
    png(plot_fit(with_ratios(0.5, 0.2), np.eye(3)[:, :2], labels=names, names=names, title="$_{").figure)


def test_one_component_is_a_strip_with_a_row_for_each_class(iris: tuple[Any, np.ndarray, np.ndarray]):
    model, scores, labels = iris
    ax = plot_scores(scores[:, :1], model.explained_variance_ratio_, labels)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["setosa", "versicolor", "virginica"]
    assert ax.get_legend() is None
    plain = plot_scores(scores[:, :1])
    assert list(plain.get_yticks()) == []
    png(plot_fit(with_ratios(0.4), scores[:20, :1], names=[str(i) for i in range(20)]))


def test_many_points_are_small_and_rasterized(rng: np.random.Generator):
    few = plot_scores(rng.standard_normal((10, 2))).collections[0]
    many = plot_scores(rng.standard_normal((RASTERIZE_FROM, 2))).collections[0]
    assert many.get_rasterized()
    assert not few.get_rasterized()
    assert many.get_sizes()[0] < 10 < few.get_sizes()[0]


@pytest.mark.parametrize(("n", "p"), [(1, 1), (1, 3), (2, 2), (5, 3)])
def test_degenerate_scores_are_drawn(n: int, p: int):
    png(plot_fit(with_ratios(*[0.0] * p), np.zeros((n, p)), labels=["a"] * n, names=["a"] * n))


def test_lengths_are_checked():
    with pytest.raises(ValueError, match="2 names for 3 rows"):
        plot_scores(np.zeros((3, 2)), names=["a", "b"])
    with pytest.raises(ValueError, match="4 labels for 3 rows"):
        plot_scores(np.zeros((3, 2)), labels=[1, 2, 3, 4])
    with pytest.raises(ValueError, match=r"shape \(n, p\)"):
        plot_scores(np.zeros(3))


def test_axes_of_the_caller_are_used():
    from matplotlib.figure import Figure

    left, right = Figure().subfigures(1, 2)
    ax = left.subplots()
    assert plot_spectrum(with_ratios(0.5, 0.5), ax) is ax
    ax = right.subplots()
    assert plot_scores(np.eye(3), names=["a", "b", "c"], ax=ax) is ax


def test_pyplot_is_never_imported():
    code = (
        "import sys, types, numpy as np, gpukpca.plotting as p\n"
        "assert 'matplotlib' not in sys.modules\n"
        "model = types.SimpleNamespace(explained_variance_ratio_=np.array([.5, .2]))\n"
        "p.plot_fit(model, np.eye(4), labels=list('abcd'), names=list('abcd'))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
