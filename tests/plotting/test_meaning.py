"""What a picture says is true: colors of legends, names of axes, arrows, rows and groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpukpca import PCA, LocalPCA
from gpukpca.plotting import (
    AxesDisplay,
    BiplotDisplay,
    ComponentImagesDisplay,
    ContoursDisplay,
    ImageRowsDisplay,
    ScoresDisplay,
    SpectrumDisplay,
    plot_fit,
    plot_images,
)
from gpukpca.plotting.style import DENSITY_FROM

pytest.importorskip("matplotlib")

N = 78
CLASSES = np.array([f"class {'abcdefghijklm'[k % 13]}" for k in range(N)])


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((N, 4)) * [4.0, 3.0, 2.0, 1.0]


@pytest.fixture(scope="module")
def model(X: np.ndarray) -> PCA:
    return PCA(4).fit(X)


def looks_of_points(ax: Any, points: np.ndarray) -> list[tuple[Any, bytes]]:
    """Return color and shape of the mark at each point."""
    found = {}
    for dots in ax.collections:
        for place, color in zip(np.asarray(dots.get_offsets()), dots.get_facecolors(), strict=False):
            found[tuple(place)] = tuple(color[:3]), dots.get_paths()[0].vertices.tobytes()
    return [found[tuple(point)] for point in points]


def looks_of_legend(legend: Any) -> dict[str, tuple[Any, bytes]]:
    """Return color and shape of the mark of each name."""
    from matplotlib.colors import to_rgb
    from matplotlib.markers import MarkerStyle

    looks = {}
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        style = MarkerStyle(handle.get_marker())
        shape = style.get_path().transformed(style.get_transform()).vertices.tobytes()
        looks[text.get_text()] = to_rgb(handle.get_color()), shape
    return looks


def check_legend(ax: Any, legend: Any, points: np.ndarray, labels: np.ndarray) -> None:
    looks = looks_of_legend(legend)
    assert sorted(looks) == sorted({*labels})
    assert len({*looks.values()}) == len(looks)
    assert [looks[label] for label in labels] == looks_of_points(ax, points)


def test_a_legend_shows_the_marks_of_its_points_in_every_picture(X: np.ndarray, model: PCA) -> None:
    scores, plane = model.transform(X), PCA(2).fit(X[:, :2])
    local = LocalPCA(3, 1, random_state=0).fit(X[:, :2])
    clusters = np.array([f"cluster {k}" for k in local.predict(X[:, :2])])
    first = PCA(1).fit(X)
    line = ScoresDisplay.from_estimator(first, X[:13], labels=CLASSES[:13], names=list("abcdefghijklm"))
    x = first.transform(X[:13])[:, 0]
    rows = np.column_stack([x, np.argsort(np.argsort(x))])
    contours = ContoursDisplay.from_estimator(plane, X[:, :2], labels=CLASSES)
    for shown, legend, points, labels in (
        (ax := ScoresDisplay.from_estimator(model, X, labels=CLASSES).ax_, ax.get_legend(), scores[:, :2], CLASSES),
        (ax := BiplotDisplay.from_estimator(model, X, labels=CLASSES).ax_, ax.get_legend(), scores[:, :2], CLASSES),
        (
            ax := plot_fit(model, X, labels=CLASSES, components=(2, 0)).axes[1],
            ax.get_legend(),
            scores[:, [2, 0]],
            CLASSES,
        ),
        (ax := plot_images(model, X, (2, 2), labels=CLASSES).axes[7], ax.get_legend(), scores[:, :2], CLASSES),
        (contours.ax_[1], contours.figure_.legends[0], X[:, :2], CLASSES),
        (ax := AxesDisplay.from_estimator(local, X[:, :2], labels=CLASSES).ax_, ax.get_legend(), X[:, :2], CLASSES),
        (ax := AxesDisplay.from_estimator(local, X[:, :2]).ax_, ax.get_legend(), X[:, :2], clusters),
        (line.ax_, line.ax_.get_legend(), rows, CLASSES[:13]),
    ):
        check_legend(shown, legend, points, labels)


def test_groups_in_cells_of_a_density_have_the_colors_of_the_legend() -> None:
    n = DENSITY_FROM + 2
    labels = np.where(np.arange(n) < n // 2, "left", "right")
    ax = ScoresDisplay(np.column_stack([np.linspace(-1.0, 1.0, n), np.zeros(n)]), labels=labels).plot().ax_
    image, looks = np.asarray(ax.images[0].get_array()), looks_of_legend(ax.get_legend())
    colors = image[image[..., 3] > 0][:, :3]
    np.testing.assert_allclose(colors[0], looks["left"][0], atol=1e-9)
    np.testing.assert_allclose(colors[-1], looks["right"][0], atol=1e-9)


def test_points_in_space_are_the_scores_in_the_colors_of_their_groups(X: np.ndarray, model: PCA) -> None:
    from mpl_toolkits.mplot3d.proj3d import proj_transform

    scores, shares = model.transform(X), 100 * model.explained_variance_ratio_
    for components in ((0, 1, 2), (3, 0, 2)):
        for ax in (
            ScoresDisplay.from_estimator(model, X, labels=CLASSES, components=components).ax_,
            plot_fit(model, X, labels=CLASSES, components=components).axes[1],
            plot_images(model, X, (2, 2), labels=CLASSES, components=components).axes[7],
        ):
            ax.figure.figure.draw_without_rendering()
            legend, found = looks_of_legend(ax.get_legend()), {}
            for dots in ax.collections:
                farthest = np.argsort(proj_transform(*dots._offsets3d, ax.get_proj())[2])[::-1]  # the order of colors
                for place, color in zip(np.transpose(dots._offsets3d)[farthest], dots.get_facecolors(), strict=True):
                    assert color[3] == dots.get_alpha()  # no paler in the distance
                    found[tuple(place)] = tuple(color[:3]), dots.get_paths()[0].vertices.tobytes()
            assert len({*legend.values()}) == 13
            assert [found[tuple(point)] for point in scores[:, components]] == [legend[name] for name in CLASSES]
            names = [f"component {k + 1} ({shares[k]:.1f} %)" for k in components]
            assert [ax.get_xlabel(), ax.get_ylabel(), ax.get_zlabel()] == names
            assert not ax.texts
    many = ScoresDisplay(np.random.default_rng(0).standard_normal((DENSITY_FROM + 1, 3))).plot(components=(0, 1, 2))
    assert len(many.ax_.collections[0].get_offsets()) == DENSITY_FROM + 1


def test_a_color_bar_shows_the_colors_of_its_points(X: np.ndarray) -> None:
    from matplotlib import colormaps
    from matplotlib.dates import date2num

    days = np.datetime64("2024-02-01") + np.arange(N).astype("timedelta64[D]")
    for labels, numbers in ((np.arange(N) * 0.5, np.arange(N) * 0.5), (days, date2num(days))):
        display = ScoresDisplay(X, labels=labels).plot()
        ax, bar = display.figure_.axes
        np.testing.assert_allclose(bar.get_ylim(), (numbers[0], numbers[-1]))
        expected = colormaps["viridis"]((numbers - numbers[0]) / np.ptp(numbers))[:, :3]
        np.testing.assert_allclose([color for color, _ in looks_of_points(ax, X[:, :2])], expected)
        display.figure_.draw_without_rendering()
        shades = max((part.get_facecolors() for part in bar.collections), key=len)[:, :3]
        np.testing.assert_allclose(shades[[0, -1]], expected[[0, -1]], atol=0.02)


def test_axes_name_what_they_show(X: np.ndarray, model: PCA) -> None:
    scores, shares = model.transform(X), 100 * model.explained_variance_ratio_
    for across, up in ((0, 1), (1, 0), (3, 1)):
        for ax in (
            ScoresDisplay.from_estimator(model, X, components=(across, up)).ax_,
            BiplotDisplay.from_estimator(model, X, components=(across, up)).ax_,
            plot_fit(model, X, components=(across, up)).axes[1],
            plot_images(model, X, (2, 2), components=(across, up)).axes[7],
        ):
            drawn = np.asarray(ax.collections[0].get_offsets())
            assert sorted(map(tuple, drawn)) == sorted(map(tuple, scores[:, [across, up]]))
            names = [f"component {k + 1} ({shares[k]:.1f} %)" for k in (across, up)]
            assert [ax.get_xlabel(), ax.get_ylabel()] == names
    (ax,) = ScoresDisplay.from_estimator(model, X, components=(2,)).figure_.axes
    assert ax.get_xlabel() == f"component 3 ({shares[2]:.1f} %)"
    np.testing.assert_array_equal(np.sort(ax.collections[0].get_offsets()[:, 0]), np.sort(scores[:, 2]))
    plane = ContoursDisplay.from_estimator(PCA(2).fit(X[:, :2]), X[:, :2]).ax_[0]
    points = AxesDisplay.from_estimator(PCA(2).fit(X[:, :2]), X[:, :2]).ax_
    for ax in (plane, points):
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("feature 1", "feature 2")
        drawn = np.asarray(next(dots for dots in ax.collections if len(dots.get_offsets()) == N).get_offsets())
        assert sorted(map(tuple, drawn)) == sorted(map(tuple, X[:, :2]))


def test_names_of_arrows_are_at_their_tips(X: np.ndarray, model: PCA) -> None:
    from matplotlib.text import Text

    for components in ((0, 1), (2, 1)):
        display = BiplotDisplay.from_estimator(model, X, features=list("abcd"), components=components)
        ax, arrows = display.ax_, display.arrows[:, components]
        tips = sorted(tuple(note.xy) for note in ax.texts if not note.get_text())
        factor = max(np.linalg.norm(tip) for tip in tips) / np.linalg.norm(arrows, axis=1).max()
        np.testing.assert_allclose(tips, sorted(map(tuple, arrows * factor)))
        ax.figure.draw_without_rendering()
        pixels = ax.transData.transform(arrows * factor)
        for note in (note for note in ax.texts if note.get_text()):
            feature = "abcd".index(note.get_text())
            np.testing.assert_allclose(note.xy, factor * arrows[feature])
            box = Text.get_window_extent(note)
            gaps = np.linalg.norm(pixels - np.clip(pixels, box.min, box.max), axis=1)
            assert int(np.argmin(gaps)) == feature
            assert gaps[feature] < 0.2 * ax.figure.dpi


def test_names_of_rows_and_groups_are_at_their_points(X: np.ndarray) -> None:
    names = [f"row {k}" for k in range(N)]
    ax = ScoresDisplay(X, names=names).plot().ax_
    written = {note.get_text(): tuple(note.xy) for note in ax.texts if note.get_text() in names}
    assert len(written) > 30
    assert all(tuple(X[names.index(name), :2]) == place for name, place in written.items())
    ax = ScoresDisplay(X + 9.0 * (np.arange(N) % 13)[:, None], labels=CLASSES).plot().ax_
    for note in ax.texts:
        middle = np.median(X[note.get_text() == CLASSES, :2], axis=0) + 9.0 * "abcdefghijklm".index(note.get_text()[-1])
        np.testing.assert_allclose(note.xy, middle)
    ax = ScoresDisplay(X[:20], names=names[:20]).plot(components=(1,)).ax_
    heights = dict(zip([text.get_text() for text in ax.get_yticklabels()], ax.get_yticks(), strict=True))
    drawn = {tuple(place) for place in np.asarray(ax.collections[0].get_offsets())}
    drawn |= {tuple(place) for dots in ax.collections for place in np.asarray(dots.get_offsets())}
    assert {(X[k, 1], heights[names[k]]) for k in range(20)} <= drawn


def test_the_legend_of_a_spectrum_names_bars_and_line() -> None:
    ax = SpectrumDisplay([0.5, 0.3]).plot().ax_
    bars, line = ax.get_legend().legend_handles
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["of each component", "cumulative"]
    assert bars.get_facecolor() == ax.patches[0].get_facecolor() != line.get_color() == ax.lines[0].get_color()
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [50.0, 80.0])


def test_bands_bars_images_and_shares_are_those_of_their_component(X: np.ndarray, model: PCA) -> None:
    plane = PCA(2).fit(X[:, :2])
    for k, ax in enumerate(ContoursDisplay.from_estimator(plane, X[:, :2]).ax_):
        bands, zero = ax.collections[:2]
        assert np.max(np.abs(plane.transform(zero.get_paths()[0].vertices)[:, k])) < 1e-8
        filled = 0
        for low, high, path in zip(bands.levels, bands.levels[1:], bands.get_paths(), strict=False):
            if len(path.vertices):
                scores = plane.transform(path.vertices)[:, k]
                assert low - 1e-8 <= scores.min() <= scores.max() <= high + 1e-8
                filled += 1
        assert filled > 8
        assert ax.get_title() == f"component {k + 1} ({100 * plane.explained_variance_ratio_[k]:.1f} %)"
    percent = 100 * model.explained_variance_ratio_
    few, many = (SpectrumDisplay(ratios).plot().ax_.patches for ratios in (percent / 100, np.arange(80, 0, -1) / 4000))
    middles = [[bar.get_x() + bar.get_width() / 2, bar.get_height()] for bar in few]
    np.testing.assert_allclose(middles, np.column_stack([np.arange(1, 5), percent]))
    np.testing.assert_allclose(many[0].get_data().values, np.arange(80, 0, -1) / 40)
    for k, ax in enumerate(ComponentImagesDisplay.from_estimator(model, (2, 2)).ax_[1:5]):
        np.testing.assert_array_equal(ax.images[0].get_array(), model.components_[k].reshape(2, 2))
        assert ax.get_title() == f"{k + 1} ({percent[k]:.1f} %)"
    shown = ImageRowsDisplay.from_estimator(model, X, (2, 2), counts=(1, 2, 3)).ax_[0, 1:]
    assert [ax.get_title() for ax in shown] == [f"K = {k}\n{percent[:k].sum():.0f} %" for k in (1, 2, 3)]
