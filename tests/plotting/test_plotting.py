"""Figures: what is drawn, what is written beside it, and nothing of pyplot."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris

from gpukpca import PCA, KernelPCA, LocalPCA, plotting
from gpukpca.exceptions import RankWarning
from gpukpca.model_selection import KernelPCACV
from gpukpca.plotting import (
    plot_comparison,
    plot_components,
    plot_cv_surface,
    plot_denoised,
    plot_eigenimages,
    plot_fit,
    plot_images,
    plot_local,
    plot_map,
    plot_reconstructions,
    plot_scores,
    plot_spectrum,
)
from gpukpca.plotting.geography import procrustes_correlation
from gpukpca.plotting.images import reconstructed, spread_samples
from gpukpca.plotting.names import pushed_apart
from gpukpca.plotting.scores import MOST_NAMES
from gpukpca.plotting.style import RASTERIZE_FROM

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


def test_every_point_keeps_its_color_in_the_shuffle(iris: tuple[Any, np.ndarray, np.ndarray]):
    _, scores, labels = iris
    dots = plot_scores(scores, labels=labels).axes[0].collections[0]
    places, colors = np.asarray(dots.get_offsets()), dots.get_facecolors()[:, :3]
    of_class = {}
    for point, label in zip(scores[:, :2], labels, strict=True):
        color = tuple(colors[np.flatnonzero((places == point).all(axis=1))[0]])
        of_class.setdefault(label, set()).add(color)
    assert all(len(found) == 1 for found in of_class.values())
    assert len(set.union(*of_class.values())) == 3


def test_low_bars_get_their_own_axis():
    assert len(plot_spectrum(with_ratios(0.6, 0.3)).axes) == 1
    ax = plot_spectrum(with_ratios(*[0.01] * 90)).axes[0]
    assert len(ax.figure.axes) == 2
    assert ax.get_ylim()[1] < 2
    png(ax.figure)


@pytest.mark.parametrize("labels", [np.arange(50.0), np.arange(50)])
def test_many_numbers_get_a_color_bar(rng: np.random.Generator, labels: np.ndarray):
    scores = rng.standard_normal((50, 2))
    assert len(plot_scores(scores, labels=labels).axes) == 2
    assert len(plot_comparison({"a": scores, "b": scores}, labels=labels).axes) == 6


@pytest.mark.parametrize("count", [12, 13, 40, 200])
def test_any_number_of_names_keeps_colors_and_a_legend(rng: np.random.Generator, count: int):
    names = np.array([f"w{i:03}" for i in range(count)])
    labels, scores = np.tile(names, 3), rng.standard_normal((3 * count, 3))
    local = LocalPCA(1, 2, random_state=0).fit(scores)
    figures = [
        plot_scores(scores, labels=labels),
        plot_fit(with_ratios(0.5, 0.2), scores, labels),
        plot_comparison({"a": scores}, labels=labels),
        plot_local(local, scores, labels=labels),
    ]
    for figure in figures:
        (legend,) = [*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())][-1:]
        texts = [text.get_text() for text in legend.get_texts()]
        assert texts[:39] == list(names[:39])
        assert len(texts) == min(count, 40)
        assert count <= 40 or texts[-1] == f"and {count - 39} more"
        drawn = next(ax for ax in figure.axes[::-1] if ax.collections)
        looks = {
            (tuple(color), dots.get_paths()[0].vertices.tobytes())
            for dots in drawn.collections
            for color in dots.get_facecolors()
        }
        assert len(looks) == min(count, 84)
    figures[1].draw_without_rendering()
    box = figures[1].axes[1].get_position()
    assert box.width > 0.15  # the legend leaves room for the plane


def test_names_are_written_up_to_forty_without_overlap(rng: np.random.Generator):
    from matplotlib.text import Text

    scores = rng.standard_normal((MOST_NAMES, 2))
    names = [f"sample {i}" for i in range(MOST_NAMES)]
    ax = plot_scores(scores, names=names).axes[0]
    assert words(ax) == names
    ax.figure.draw_without_rendering()
    # The plain text: an annotation's own extent includes its leader.
    boxes = [Text.get_window_extent(text) for text in ax.texts]
    overlaps = sum(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert overlaps <= 1
    assert words(plot_scores(np.vstack([scores, scores]), names=names + names).axes[0]) == []


def test_names_are_not_read_as_mathematics():
    names = ["$a_{", "x^2$ $", "_hidden"]
    png(plot_fit(with_ratios(0.5, 0.2), np.eye(3)[:, :2], labels=names, names=names, title="$_{").figure)


def test_one_component_is_a_strip_with_a_row_for_each_class(iris: tuple[Any, np.ndarray, np.ndarray]):
    model, scores, labels = iris
    ax = plot_scores(scores[:, :1], model.explained_variance_ratio_, labels).axes[0]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["setosa", "versicolor", "virginica"]
    assert ax.get_legend() is None
    plain = plot_scores(scores[:, :1]).axes[0]
    assert list(plain.get_yticks()) == []
    png(plot_fit(with_ratios(0.4), scores[:20, :1], names=[str(i) for i in range(20)]))


def test_many_points_are_small_and_rasterized(rng: np.random.Generator):
    few = plot_scores(rng.standard_normal((10, 2))).axes[0].collections[0]
    many = plot_scores(rng.standard_normal((RASTERIZE_FROM, 2))).axes[0].collections[0]
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

    figure = Figure()
    left, right = figure.subfigures(1, 2)
    ax = left.subplots()
    assert plot_spectrum(with_ratios(0.5, 0.5), ax) is figure
    assert ax.patches
    ax = right.subplots()
    assert plot_scores(np.eye(3), names=["a", "b", "c"], ax=ax) is figure
    assert ax.collections


def test_a_notebook_shows_every_figure(search: KernelPCACV, digits: tuple[Any, np.ndarray, np.ndarray]):
    """IPython shows what has `_repr_png_`; matplotlib's own figures have it not, and are text without pyplot."""
    from matplotlib.figure import Figure

    rng = np.random.default_rng(0)
    X, (model, images, _) = rng.standard_normal((40, 2)), digits
    local, plane = LocalPCA(2, 1, random_state=0).fit(X), PCA(2).fit(X)
    figures = [
        plot_comparison({"a": X}),
        plot_components(plane, X),
        plot_cv_surface(search),
        plot_denoised({"a": images[:2]}, (8, 8)),
        plot_eigenimages(model, (8, 8)),
        plot_fit(plane, X),
        plot_images(model, images[:20], (8, 8)),
        plot_local(local, X),
        plot_map(X, X),
        plot_reconstructions(model, images[:20], (8, 8)),
        plot_scores(X),
        plot_spectrum(plane),
    ]
    assert len(figures) == len(plotting.__all__)
    for figure in figures:
        assert isinstance(figure, Figure)
        image, size = pickle.loads(pickle.dumps(figure))._repr_png_()
        assert image.startswith(b"\x89PNG")
        assert 100 < size["width"] < 1200
        assert abs(size["width"] / size["height"] - np.divide(*figure.get_size_inches())) < 0.02


def test_ipython_shows_figures_and_plans():
    display = pytest.importorskip("IPython.core.formatters").DisplayFormatter()
    shown = display.format(plot_scores(np.eye(3)))[0]
    assert shown["image/png"].startswith(b"\x89PNG")
    plan = PCA(1).fit(np.eye(3)).plan_
    assert display.format(plan)[0]["text/plain"] == str(plan)


def test_pyplot_is_never_imported():
    code = (
        "import sys, types, numpy as np, gpukpca.plotting as p\n"
        "assert 'matplotlib' not in sys.modules\n"
        "model = types.SimpleNamespace(explained_variance_ratio_=np.array([.5, .2]))\n"
        "p.plot_fit(model, np.eye(4), labels=list('abcd'), names=list('abcd'))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- names and classes -------------------------------------------------------------------------------------------------


def test_names_on_a_line_are_in_order_and_apart(rng: np.random.Generator):
    x = np.concatenate([rng.standard_normal(MOST_NAMES - 1) * 1e-3, [50.0]])
    ax = plot_scores(x[:, None], names=[f"n{i}" for i in range(MOST_NAMES)]).axes[0]
    ax.figure.draw_without_rendering()
    texts = [text for text in ax.texts if text.get_text()]
    assert len(texts) == MOST_NAMES
    places = {text.get_text(): text.get_transform().transform(text.get_position())[0] for text in texts}
    ordered = [places[f"n{i}"] for i in np.argsort(x)]
    # In pixels of 1/200 inch; letters are 8 points high, and steeper than 45 degrees.
    assert np.min(np.diff(ordered)) > 8 * 200 / 72
    frame = ax.get_window_extent()
    assert frame.x0 - 1 <= min(ordered) <= max(ordered) <= frame.x1


@pytest.mark.parametrize(
    ("wanted", "step", "expected"),
    [
        ([1.0, 5.0], 1.0, [1.0, 5.0]),
        ([2.0, 2.0, 2.0], 1.0, [1.0, 2.0, 3.0]),
        ([2.0, 2.2, 3.0], 1.0, [1.4, 2.4, 3.4]),
        ([0.0, 0.0], 2.0, [0.0, 2.0]),
        ([9.5, 10.0], 2.0, [8.0, 10.0]),
        ([5.0], 2.0, [5.0]),
    ],
)
def test_places_are_pushed_apart_no_more_than_needed(wanted: list[float], step: float, expected: list[float]):
    np.testing.assert_allclose(pushed_apart(np.array(wanted), step, 0.0, 10.0), expected)


def test_more_classes_than_colors_tell_apart_are_written_too(rng: np.random.Generator):
    scores = rng.standard_normal((90, 2))
    assert words(plot_scores(scores, labels=np.arange(90) % 7).axes[0]) == []
    assert words(plot_scores(scores, labels=np.arange(90) % 9).axes[0]) == [str(i) for i in range(9)]


# -- images ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits() -> tuple[Any, np.ndarray, np.ndarray]:
    data = load_digits()
    return PCA(20).fit(data.data), data.data, data.target


def shown(ax: Any) -> np.ndarray:
    return np.asarray(ax.images[0].get_array())


def test_reconstructions_come_nearer_and_are_those_of_the_model(digits: tuple[Any, np.ndarray, np.ndarray]):
    model, X, labels = digits
    figure = plot_reconstructions(model, X, (8, 8), labels=labels)
    axes = np.array(figure.axes).reshape(4, 6)
    assert [ax.get_title().split("\n")[0] for ax in axes[0]] == ["original", *(f"K = {k}" for k in (1, 2, 5, 10, 20))]
    rows = spread_samples(len(X), labels)
    assert labels[rows].tolist() == [0, 3, 6, 9]
    for row, sample in zip(axes, X[rows], strict=True):
        np.testing.assert_allclose(shown(row[0]).ravel(), sample)
        errors = [np.linalg.norm(shown(ax).ravel() - sample) for ax in row[1:]]
        assert errors == sorted(errors, reverse=True)
    np.testing.assert_allclose(shown(axes[1, -1]).ravel(), model.inverse_transform(model.transform(X[rows]))[1])


def test_reconstructions_undo_whitening_and_scaling(digits: tuple[Any, np.ndarray, np.ndarray]):
    _, X, _ = digits
    model = PCA(61, whiten=True, scale=True).fit(X)
    np.testing.assert_allclose(reconstructed(model, model.transform(X[:3]), 61), X[:3], atol=1e-9)
    axes = plot_reconstructions(model, X, (8, 8), counts=(1, 61, 100), samples=[7]).axes
    assert [ax.get_title().split("\n")[0] for ax in axes] == ["original", "K = 1", "K = 61"]


def test_all_components_end_the_row_where_some_counts_are_left_out(digits: tuple[Any, np.ndarray, np.ndarray]):
    _, X, _ = digits
    axes = plot_reconstructions(PCA(3).fit(X), X, (8, 8), samples=[0]).axes
    assert [ax.get_title().split("\n")[0] for ax in axes] == ["original", "K = 1", "K = 2", "K = 3"]


def test_eigenimages_are_the_mean_and_the_components(digits: tuple[Any, np.ndarray, np.ndarray]):
    model, _, _ = digits
    figure = plot_eigenimages(model, (8, 8), n_images=5)
    drawn = [ax for ax in figure.axes if ax.images]
    assert len(drawn) == 6
    np.testing.assert_allclose(shown(drawn[0]).ravel(), model.mean_)
    np.testing.assert_allclose(shown(drawn[3]).ravel(), model.components_[2])
    low, high = drawn[3].images[0].get_clim()
    assert low == -high
    assert drawn[3].get_title() == f"3 ({100 * model.explained_variance_ratio_[2]:.1f} %)"


def test_constant_images_are_drawn():
    with pytest.warns(RankWarning):
        model = PCA(1).fit(np.ones((3, 6)))
    png(plot_images(model, np.ones((3, 6)), (2, 3)))


def test_images_of_another_shape_are_refused(digits: tuple[Any, np.ndarray, np.ndarray]):
    model, X, _ = digits
    for draw in (
        lambda: plot_eigenimages(model, (7, 9)),
        lambda: plot_reconstructions(model, X, (7, 9)),
        lambda: plot_images(model, X, (7, 9)),
        lambda: plot_images(model, X, (-8, -8)),
    ):
        with pytest.raises(ValueError, match="64 columns"):
            draw()


# -- side by side ------------------------------------------------------------------------------------------------------


def test_a_comparison_has_humps_over_planes_and_one_legend(rng: np.random.Generator):
    first, second = rng.standard_normal((60, 3)), rng.standard_normal((60, 2))
    labels = np.repeat(["a", "b", "c"], 20)
    figure = plot_comparison({"one": first, "two": second}, {"two": [0.5, 0.25]}, labels, "both")
    above, below = figure.axes[:2], figure.axes[2:]
    assert [ax.get_title() for ax in above] == ["one", "two"]
    assert [ax.get_xlabel() for ax in below] == ["component 1", "component 1 (50.0 %)"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "c"]
    heights = [np.sum(step.get_data().values) for step in above[0].patches]
    assert heights == [20] * 6  # an area and its outline for every class
    png(figure)
    png(plot_comparison({"alone": np.zeros((4, 2))}))


@pytest.mark.parametrize(
    ("scores", "labels", "fragment"),
    [
        ({}, None, "at least one panel"),
        ({"a": np.zeros((3, 1))}, None, "a: a plane needs two"),
        ({"a": np.zeros((3, 2)), "b": np.zeros((4, 2))}, None, "a 3, b 4"),
        ({"a": np.zeros((3, 2))}, [1], "1 labels for 3 rows"),
    ],
)
def test_what_cannot_be_compared(scores: dict, labels: Any, fragment: str):
    with pytest.raises(ValueError, match=fragment):
        plot_comparison(scores, labels=labels)


def test_a_map_turned_and_stretched_is_found_again(rng: np.random.Generator):
    positions = rng.uniform(size=(50, 2)) * (2, 1)
    turn = np.array([[0.8, -0.6], [-0.6, -0.8]])
    assert procrustes_correlation(positions, 7 * positions @ turn + 3) == pytest.approx(1)
    figure = plot_map(positions, -positions, [0.5, 0.4], "map")
    left, right = figure.axes
    assert "1.000" in right.get_title()
    # Signs that follow the map, and the same colors in both panels.
    np.testing.assert_allclose(left.collections[0].get_offsets(), right.collections[0].get_offsets())
    np.testing.assert_allclose(left.collections[0].get_facecolors(), right.collections[0].get_facecolors())
    png(figure)


def test_what_is_no_map():
    with pytest.raises(ValueError, match=r"positions must have shape \(n, 2\)"):
        plot_map(np.zeros((3, 3)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="2 labels for 3 rows"):
        plot_map(np.zeros((2, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="needs two components"):
        plot_map(np.zeros((3, 2)), np.zeros((3, 1)))


def test_denoised_images_have_one_row_a_method_and_its_error_beside_it():
    X = load_digits().data[:5]
    rows = {"original": X, "noisy": X + 30.0, "PCA": 0.5 * X}
    figure = plot_denoised(rows, (8, 8), {"PCA": 0.1234}, title="digits")
    axes = np.reshape(figure.axes, (3, 5))
    np.testing.assert_array_equal(axes[2, 3].images[0].get_array().ravel(), 0.5 * X[3])
    assert [ax.get_ylabel() for ax in axes[:, 0]] == ["original", "noisy", "PCA\n0.123"]
    assert {ax.images[0].get_clim() for ax in axes.ravel()} == {(X.min(), X.max())}
    assert png(figure).std() > 0.1


def test_panels_of_the_same_coordinates_may_have_one_scale(rng: np.random.Generator):
    plane = rng.standard_normal((30, 2))
    for same in (False, True):
        axes = np.reshape(plot_comparison({"a": plane, "b": 0.1 * plane}, same_scale=same).axes, (2, 2))
        limits = {(ax.get_xlim(), ax.get_ylim()) for ax in axes[1]}
        assert len(limits) == (1 if same else 2)
        assert axes[0, 1].get_xlim() == axes[1, 1].get_xlim()


def test_any_row_can_say_what_is_black_and_white():
    X = load_digits().data[:5]
    noisy = np.where(np.arange(64) == 3, np.nan, X + 30.0)
    for name, least, most in (("noisy", 30.0, 46.0), ("PCA", 0.0, 8.0)):
        figure = plot_denoised({"noisy": noisy, "PCA": 0.5 * X}, (8, 8), grays=name)
        assert {ax.images[0].get_clim() for ax in figure.axes} == {(least, most)}
    with pytest.raises(ValueError, match="grays='clean' is no row; give one of noisy, PCA"):
        plot_denoised({"noisy": noisy, "PCA": X}, (8, 8), grays="clean")


@pytest.mark.parametrize("rows", [{}, {"a": np.ones((2, 4)), "b": np.ones((3, 4))}, {"a": np.ones(4)}])
def test_rows_that_are_not_alike_are_refused(rows):
    with pytest.raises(ValueError, match="one shape"):
        plot_denoised(rows, (2, 2))


@pytest.fixture(scope="module")
def search() -> KernelPCACV:
    X = np.random.default_rng(0).standard_normal((40, 3))
    return KernelPCACV(gammas=[0.01, 0.1, 1.0], n_components=[1, 2, 4], param_grid={"alpha": [0.1, 1.0]}, cv=2).fit(X)


def test_the_surface_of_a_search_has_a_line_for_every_count_and_marks_the_best(search: KernelPCACV):
    ax = plot_cv_surface(search).axes[0]
    *lines, mark = ax.lines
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["1", "2", "4"]
    best = search.best_params_
    errors = -search.cv_results_["mean_test_score"]
    for line, count in zip(lines, [1, 2, 4], strict=True):
        shown = [
            error
            for error, params in zip(errors, search.cv_results_["params"], strict=True)
            if params["n_components"] == count and params["alpha"] == best["alpha"]
        ]
        np.testing.assert_array_equal(line.get_xdata(), [0.01, 0.1, 1.0])
        np.testing.assert_allclose(line.get_ydata(), shown)
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (best["gamma"], -search.best_score_)
    assert ax.get_xscale() == "log"
    assert ax.get_title().startswith("2 folds; best: alpha")
    ax.figure.draw_without_rendering()


def test_a_search_over_counts_alone_is_one_line():
    X = np.random.default_rng(0).standard_normal((40, 3))
    search = KernelPCACV("linear", n_components=[1, 2], cv=2).fit(X)
    ax = plot_cv_surface(search).axes[0]
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [1, 2])
    assert ax.get_xlabel() == "components"
    assert ax.get_xscale() == "linear"
    with pytest.raises(ValueError, match="two numbers"):
        plot_cv_surface(KernelPCACV("linear", n_components=2, cv=2).fit(X))


def test_contours_of_pca_are_straight_and_its_panels_are_named():
    X = np.random.default_rng(0).standard_normal((30, 2)) * [3.0, 1.0]
    model = PCA(2).fit(X)
    figure = plot_components(model, X, labels=np.repeat(["a", "b"], 15), n_components=5)
    titles = [ax.get_title() for ax in figure.axes]
    shares = 100 * model.explained_variance_ratio_
    assert titles == [f"component {i + 1} ({share:.1f} %)" for i, share in enumerate(shares)]
    zero = figure.axes[0].collections[2].get_paths()[0].vertices
    assert np.max(np.abs(model.transform(zero)[:, 0])) < 1e-8
    figure.draw_without_rendering()


@pytest.mark.parametrize(
    ("X", "options"),
    [(np.ones((4, 3)), {}), (np.ones((4, 2)), {"labels": [1]}), (np.ones((4, 2)), {"n_components": 0})],
)
def test_contours_want_two_features_and_a_panel(X: np.ndarray, options: dict[str, Any]):
    model = PCA(1).fit(np.random.default_rng(0).standard_normal((9, 2)))
    with pytest.raises(ValueError, match=r"two features|labels"):
        plot_components(model, X, **options)
