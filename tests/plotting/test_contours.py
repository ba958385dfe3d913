"""Contours: bands, lines, names and color bars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpukpca import PCA, KernelPCA
from gpukpca.plotting import ContoursDisplay
from tests.plotting.pixels import png

pytest.importorskip("matplotlib")


def test_the_zero_line_of_pca_is_straight_and_its_panels_are_named() -> None:
    X = np.random.default_rng(0).standard_normal((30, 2)) * [3.0, 1.0]
    model = PCA(2).fit(X)
    display = ContoursDisplay.from_estimator(model, X, labels=np.repeat(["a", "b"], 15), n_components=5)
    shares = 100 * model.explained_variance_ratio_
    assert [ax.get_title() for ax in display.ax_] == [f"component {i + 1} ({s:.1f} %)" for i, s in enumerate(shares)]
    zero = display.ax_[0].collections[1].get_paths()[0].vertices
    assert np.max(np.abs(model.transform(zero)[:, 0])) < 1e-8


def test_bands_of_contours_have_no_seams(rng: np.random.Generator) -> None:
    """From the lowest score to the highest, grays only become darker: a seam would be a light line."""
    X = np.column_stack([np.linspace(-1.0, 1.0, 40), 0.1 * rng.standard_normal(40)])
    display = ContoursDisplay.from_estimator(PCA(1).fit(X), X)
    image, ax = png(display.figure_, dpi=200), display.ax_[0]
    (left, bottom), (right, _) = ax.transAxes.transform([(0.01, 0.03), (0.99, 0.03)]).round().astype(int)
    light = image[len(image) - 1 - bottom, left:right, :3].sum(axis=1)
    zero = int(np.argmin(light))  # dark line
    steps = np.diff(light if display.values[0, 0, -1] > 0 else light[::-1])
    assert len(np.unique(light.round(2))) > 8
    assert np.all(np.delete(steps, range(min(zero, len(steps) - zero) - 8, max(zero, len(steps) - zero) + 8)) <= 1e-3)


def test_colors_of_contours_belong_to_the_labels_alone(rng: np.random.Generator) -> None:
    X = rng.standard_normal((40, 2))
    display = ContoursDisplay.from_estimator(PCA(2).fit(X), X, labels=X[:, 0] > 0)
    for ax, values in zip(display.ax_, display.values, strict=True):
        bands, _, *points = ax.collections
        low, high = bands.get_clim()
        assert -low == high == np.abs(values).max()
        grays = bands.get_facecolors()
        assert np.all(np.ptp(grays[:, :3], axis=1) == 0)
        assert np.all(np.diff(grays[:, 0]) < 0)
        assert np.all(bands.levels == np.linspace(low, high, len(grays) + 1))
        for dots in points:
            assert np.all(np.ptp(dots.get_facecolors()[:, :3], axis=1) > 0.3)
            assert np.all(dots.get_edgecolors() == 1.0)
            assert np.all(dots.get_linewidths() > 0)
    (zero,) = {tuple(ax.collections[1].get_edgecolors()[0, :3].round(1)) for ax in display.ax_}
    assert max(zero) < 0.3


def test_the_axes_of_contours_have_scales() -> None:
    X = np.random.default_rng(0).standard_normal((40, 2)) * [9.0, 1.0]
    display = ContoursDisplay.from_estimator(PCA(2).fit(X), X)
    display.figure_.draw_without_rendering()
    first, second = display.ax_
    ticks = [[t.get_text() for t in axis.get_ticklabels()] for axis in (first.xaxis, first.yaxis, second.xaxis)]
    assert all(len([text for text in texts if text]) > 2 for texts in ticks)
    assert not any(tick.label1.get_visible() for tick in second.yaxis.get_major_ticks())  # those of the first panel


def test_contours_name_features_scores_and_components_that_are_not_shown() -> None:
    from matplotlib.figure import Figure

    X = np.random.default_rng(0).standard_normal((40, 2))
    model = KernelPCA(8, kernel="rbf").fit(X)
    display = ContoursDisplay.from_estimator(model, X, labels=np.arange(40.0))
    assert [ax.get_title().split(" (")[0] for ax in display.ax_] == [f"component {i} of 8" for i in (1, 2, 3)]
    assert [ax.get_xlabel() for ax in display.ax_] == ["feature 1"] * 3
    assert [ax.get_ylabel() for ax in display.ax_] == ["feature 2", "", ""]
    for ax, values in zip(display.ax_, display.values, strict=True):
        (bar,) = ax.child_axes
        assert bar.get_ylabel() == "score"
        largest = float(np.max(np.abs(values)))
        np.testing.assert_allclose(bar.get_yticks(), [-largest, 0.0, largest])
    assert [ax.get_ylabel() for ax in display.figure_.axes if ax not in set(display.ax_)] == ["label"]  # one for all
    one = ContoursDisplay.from_estimator(model, X, n_components=8, axes=[Figure().subplots()]).ax_
    assert one[0].get_title().startswith("component 1 of 8 (")


def test_contours_take_the_names_of_the_columns() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(np.random.default_rng(0).standard_normal((20, 2)), columns=["$height", "weight"])
    ax = ContoursDisplay.from_estimator(PCA(1).fit(table), table).ax_[0]  # and no warning: they are errors here
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("$height", "weight")
    png(ax.figure)


@pytest.mark.filterwarnings("ignore:one column holds")
def test_a_plane_of_unequal_units_fills_its_panel() -> None:
    X = np.random.default_rng(0).standard_normal((20, 2)) * [1.0, 1e-6]
    display = ContoursDisplay.from_estimator(PCA(1).fit(X), X)
    display.figure_.draw_without_rendering()
    box = display.ax_[0].get_window_extent()
    assert 0.25 * box.width < box.height < 2.1 * box.width


@pytest.mark.parametrize(
    ("X", "options"),
    [
        (np.ones((4, 3)), {}),
        (np.ones((4, 2)), {"labels": [1]}),
        (np.ones((4, 2)), {"n_components": 0}),
        (np.ones((4, 2)), {"n_components": "all"}),
    ],
)
def test_contours_need_two_features_and_a_panel(X: np.ndarray, options: dict[str, Any]) -> None:
    model = PCA(1).fit(np.random.default_rng(0).standard_normal((9, 2)))
    with pytest.raises(ValueError, match=r"two features|labels"):
        ContoursDisplay.from_estimator(model, X, **options)
