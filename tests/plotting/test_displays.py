"""Displays: the numbers in the picture and what is written on it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from gpukpca import PCA, LocalPCA, variable_correlations
from gpukpca.model_selection import KernelPCACV
from gpukpca.plotting import (
    AxesDisplay,
    BiplotDisplay,
    ComponentImagesDisplay,
    ContoursDisplay,
    ImageRowsDisplay,
    ScoresDisplay,
    SearchDisplay,
    SpectrumDisplay,
    plot_fit,
    plot_images,
)
from gpukpca.plotting.style import DENSITY_FROM, RASTERIZE_FROM
from tests.each import each
from tests.plotting.pixels import png

pytest.importorskip("matplotlib")


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_text()]


@pytest.fixture(scope="module")
def drawn(search: KernelPCACV, digits: Any) -> dict[str, Callable[[], Any]]:
    """One call that draws every display and every figure."""
    X, images = np.random.default_rng(0).standard_normal((40, 2)), digits[1]
    plane, model = PCA(2).fit(X), PCA(3).fit(images)
    return {
        "scores": lambda: ScoresDisplay.from_estimator(plane, X),
        "spectrum": lambda: SpectrumDisplay.from_estimator(plane),
        "contours": lambda: ContoursDisplay.from_estimator(plane, X),
        "axes": lambda: AxesDisplay.from_estimator(plane, X),
        "biplot": lambda: BiplotDisplay.from_estimator(model, images),
        "local": lambda: AxesDisplay.from_estimator(LocalPCA(2, 1, random_state=0).fit(X), X),
        "search": lambda: SearchDisplay.from_estimator(search),
        "components": lambda: ComponentImagesDisplay.from_estimator(model, (8, 8)),
        "reconstructions": lambda: ImageRowsDisplay.from_estimator(model, images[:20], (8, 8)),
        "rows": lambda: ImageRowsDisplay({"a": images[:2]}, (8, 8)).plot(),
        "plot_fit": lambda: plot_fit(plane, X),
        "plot_images": lambda: plot_images(model, images[:20], (8, 8)),
    }


def test_a_notebook_shows_every_picture_without_pyplot(
    drawn: dict[str, Callable[[], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # its import raises ImportError
    for draw in drawn.values():
        display = draw()
        getattr(display, "figure_", display).set_dpi(40)
        image, size = display._repr_png_()
        assert image.startswith(b"\x89PNG")
        assert 100 < size["width"] < 1200


def test_a_display_that_is_not_drawn_has_no_picture() -> None:
    assert SpectrumDisplay([0.5, 0.2])._repr_png_() is None


def test_axes_of_the_caller_are_used() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    left, right = figure.subfigures(1, 2)
    display = SpectrumDisplay([0.5, 0.5]).plot(ax := left.subplots())
    assert display.ax_ is ax
    assert display.figure_ is figure
    names = ScoresDisplay(np.eye(3), names=["a", "b", "c"]).plot(right.subplots())
    assert names.figure_ is figure
    assert sorted(texts(names.ax_)) == ["a", "b", "c"]


# -- scores and spectrum -----------------------------------------------------------------------------------------------


def test_a_fit_has_two_panels_with_its_numbers(iris: tuple[Any, np.ndarray, np.ndarray]) -> None:
    model, X, labels = iris
    figure = plot_fit(model, X, labels=labels, title="iris")
    left, right = figure.axes
    ratios = model.explained_variance_ratio_
    assert right.get_xlabel() == f"component 1 ({100 * ratios[0]:.1f} %)"
    assert right.get_ylabel() == f"component 2 ({100 * ratios[1]:.1f} %)"
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["setosa", "versicolor", "virginica"]
    np.testing.assert_allclose([bar.get_height() for bar in left.patches], 100 * ratios)
    np.testing.assert_allclose(left.lines[0].get_ydata(), 100 * np.cumsum(ratios))
    assert png(figure)[..., :3].std() > 0.05
    drawn = np.asarray(right.collections[0].get_offsets())
    np.testing.assert_array_equal(np.sort(drawn, axis=0), np.sort(model.transform(X)[:, :2], axis=0))
    assert len(plot_fit(model, X, model.transform(X)).axes[1].collections[0].get_offsets()) == len(X)


@each("components", [(0, 1), (0, 2), (2, 1), (1,), (0, 1, 2), (2, 0, 1)])
def test_any_components_are_drawn(iris: tuple[Any, np.ndarray, np.ndarray], components: tuple[int, ...]) -> None:
    model, X, _ = iris
    ax = ScoresDisplay.from_estimator(model, X, components=components).ax_
    dots = ax.collections[0]
    points = np.stack(dots._offsets3d, axis=1) if len(components) == 3 else np.asarray(dots.get_offsets())
    scores = model.transform(X)
    for i, component in enumerate(components):
        np.testing.assert_array_equal(np.sort(points[:, i]), np.sort(scores[:, component]))
    labels = [getattr(ax, f"get_{name}label")() for name, _ in zip("xyz", components, strict=False)]
    assert [label.split(" (")[0] for label in labels] == [f"component {component + 1}" for component in components]


def test_every_point_keeps_the_color_of_its_class(iris: tuple[Any, np.ndarray, np.ndarray]) -> None:
    model, X, labels = iris
    display = ScoresDisplay.from_estimator(model, X, labels=labels)
    dots = display.ax_.collections[0]
    places, colors = np.asarray(dots.get_offsets()), dots.get_facecolors()[:, :3]
    of_class: dict[str, set] = {}
    for point, label in zip(display.scores[:, :2], labels, strict=True):
        color = tuple(colors[np.flatnonzero((places == point).all(axis=1))[0]])
        of_class.setdefault(label, set()).add(color)
    assert [len(found) for found in of_class.values()] == [1, 1, 1]
    assert len(set.union(*of_class.values())) == 3


@pytest.mark.parametrize("labels", [np.arange(50.0), np.arange(50)])
def test_many_numbers_get_a_color_bar(rng: np.random.Generator, labels: np.ndarray) -> None:
    assert len(ScoresDisplay(rng.standard_normal((50, 2)), labels=labels).plot().figure_.axes) == 2


@pytest.mark.parametrize("n", [50, DENSITY_FROM + 1])
def test_points_without_a_number_are_gray(n: int) -> None:
    labels = np.where(np.arange(n) < n // 2, np.nan, np.arange(n))
    display = ScoresDisplay(np.column_stack([np.linspace(-1.0, 1.0, n), np.zeros(n)]), labels=labels).plot()
    if n == 50:
        (dots,) = display.ax_.collections
        display.figure_.draw_without_rendering()
        left, colors = np.asarray(dots.get_offsets())[:, 0] < 0, dots.get_facecolors()[:, :3]
    else:
        image = np.asarray(display.ax_.images[0].get_array())
        colors = image[image[..., 3] > 0][:, :3]
        left = np.arange(len(colors)) < len(colors) // 2
    gray = np.ptp(colors, axis=1) < 1e-9
    np.testing.assert_array_equal(gray, left)
    assert len(np.unique(colors[~left].round(6), axis=0)) > 20
    assert display.figure_.axes[1].get_ylim() == (n // 2, n - 1)


@pytest.mark.parametrize("count", [12, 13, 25, 200])
def test_any_number_of_classes_has_colors_and_a_legend(rng: np.random.Generator, count: int) -> None:
    sizes = [1 + i // 4 for i in range(count)]
    labels = np.repeat([f"w{i:03}" for i in range(count)], sizes)
    ax = ScoresDisplay(rng.standard_normal((len(labels), 2)), labels=labels).plot().ax_
    written = [text.get_text() for text in ax.get_legend().get_texts()]
    kept = len(written) - (count == 200)
    largest = sorted(sorted(range(count), key=lambda i: -sizes[i])[:kept])
    assert kept == count or kept > 20
    assert written == [f"w{i:03}" for i in largest] + [f"and {200 - kept} more groups"] * (count == 200)
    looks = {
        (tuple(c), dots.get_paths()[0].vertices.tobytes()) for dots in ax.collections for c in dots.get_facecolors()
    }
    assert len(looks) == min(count, 84)


@pytest.mark.parametrize(("classes", "expected"), [(7, 0), (9, 9)])
def test_classes_that_colors_do_not_distinguish_are_named(
    rng: np.random.Generator, classes: int, expected: int
) -> None:
    ax = ScoresDisplay(rng.standard_normal((90, 2)), labels=np.arange(90) % classes).plot().ax_
    assert len(texts(ax)) == expected


def test_one_component_has_a_row_for_each_class_or_name(iris: tuple[Any, np.ndarray, np.ndarray]) -> None:
    model, X, labels = iris
    scores = model.transform(X)[:, :1]
    ax = ScoresDisplay(scores, labels=labels).plot().ax_
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["setosa", "versicolor", "virginica"]
    assert ax.get_legend() is None
    assert list(ScoresDisplay(scores).plot().ax_.get_yticks()) == []
    named = ScoresDisplay(scores[:20], names=[f"n{i}" for i in range(20)]).plot().ax_
    rows = {tick.get_text(): place for tick, place in zip(named.get_yticklabels(), named.get_yticks(), strict=True)}
    assert sorted(rows, key=rows.__getitem__) == [f"n{i}" for i in np.argsort(scores[:20, 0])]


def test_many_points_are_small_and_rasterized(rng: np.random.Generator) -> None:
    few, many = (ScoresDisplay(rng.standard_normal((n, 2))).plot().ax_.collections[0] for n in (10, RASTERIZE_FROM))
    assert many.get_rasterized()
    assert not few.get_rasterized()
    assert many.get_sizes()[0] < 10 < few.get_sizes()[0]


@pytest.mark.parametrize("labels", [None, "classes", "numbers"])
def test_points_that_hide_each_other_are_drawn_as_a_density(labels: str | None) -> None:
    n = DENSITY_FROM + 1
    scores = np.column_stack([np.linspace(-1.0, 1.0, n), np.linspace(0.0, 1.0, n)])
    given = {None: None, "classes": np.where(np.arange(n) < n // 2, "a", "b"), "numbers": np.linspace(0, 1, n)}[labels]
    ax = ScoresDisplay(scores, labels=given).plot().ax_
    assert not ax.collections
    image = np.asarray(ax.images[0].get_array())
    diagonal = np.eye(len(image), dtype=bool)
    assert np.all(image[diagonal, 3] > 0.9)  # opacity follows the count, the same in all cells of the diagonal
    assert not np.any(image[~diagonal, 3] * (np.abs(np.subtract.outer(*[np.arange(len(image))] * 2))[~diagonal] > 1))
    colors = len(np.unique(image[diagonal, :3].round(6), axis=0))
    assert colors == {None: 1, "classes": 2, "numbers": len(image)}[labels] or (labels == "numbers" and colors > 100)


@each("n, p", [(1, 1), (1, 3), (2, 2), (5, 3)])
def test_degenerate_scores_are_drawn(n: int, p: int) -> None:
    figure = plot_fit(PCA(1).fit(np.eye(2)), np.zeros((n, 2)), labels=["a"] * n, names=["a"] * n)
    png(figure)
    png(ScoresDisplay(np.zeros((n, p)), labels=["a"] * n, names=["a"] * n).plot().figure_)


def test_low_bars_have_their_own_axis() -> None:
    assert len(SpectrumDisplay([0.6, 0.3]).plot().figure_.axes) == 1
    display = SpectrumDisplay([0.01] * 90).plot()
    assert len(display.figure_.axes) == 2
    assert display.ax_.get_ylim()[1] < 2


# -- local axes, searches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 4])
def test_local_axes_pass_through_the_means(rng: np.random.Generator, d: int) -> None:
    X = rng.standard_normal((60, d)) + np.repeat([[0.0], [9.0]], 30, axis=0)
    model = LocalPCA(2, 1, random_state=0).fit(X)
    display = AxesDisplay.from_estimator(model, X)
    plane = (lambda rows: rows) if d == 2 else PCA(2).fit(X).transform
    for segment, mean, axis in zip(display.segments, model.means_, model.components_[:, 0], strict=True):
        np.testing.assert_allclose(segment[1], plane(mean[None, :])[0], atol=1e-9)
        np.testing.assert_allclose(segment[[0, 2]].mean(axis=0), segment[1], atol=1e-9)
        if d == 2:
            step = segment[2] - segment[0]
            assert abs(step @ axis) == pytest.approx(np.linalg.norm(step))
    local = np.mean(np.sum((model.denoise(X) - X) ** 2, axis=1))
    linear = PCA(1).fit(X)
    whole = np.mean(np.sum((linear.inverse_transform(linear.transform(X)) - X) ** 2, axis=1))
    title = f"squared error with 1 component: PCA (dashed) {whole:.3g}, 2 clusters {local:.3g}"
    assert display.ax_.get_title() == title
    with pytest.raises(ValueError, match="1 labels for 60 rows"):
        AxesDisplay.from_estimator(model, X, labels=["a"])


def test_axes_extend_two_deviations_and_are_those_of_the_data(rng: np.random.Generator) -> None:
    X = rng.standard_normal((60, 2)) @ [[3.0, 1.0], [0.0, 40.0]] + [5.0, -100.0]
    for scale in (False, True):
        model = PCA(scale=scale).fit(X)
        display = AxesDisplay.from_estimator(model, X)
        ends = model.mean_ + 2.0 * np.eye(2)[0] * model.explained_variance_[0] ** 0.5 @ model.components_
        score = model.transform(display.segments[1])
        np.testing.assert_allclose(score[:, 0], 0.0, atol=1e-9)
        np.testing.assert_allclose(score[:, 1], model.explained_variance_[1] ** 0.5 * np.array([-2, 0, 2]), atol=1e-9)
        assert scale or np.allclose(display.segments[0][2], ends)
        # Drawn orthogonally: one standard deviation has one length across and up.
        assert display.ax_.get_aspect() == pytest.approx(X[:, 0].std() / X[:, 1].std() if scale else 1.0)
        ratios = model.explained_variance_ratio_
        assert display.ax_.get_title() == f"axes with {100 * ratios[0]:.1f} %, {100 * ratios[1]:.1f} % of the variance"


def test_axes_of_two_features_have_the_names_of_the_data_frame(rng: np.random.Generator) -> None:
    frame = pd.DataFrame(rng.standard_normal((30, 3)), columns=["a $1", "width", "c"])
    plane = frame[["a $1", "width"]]
    for model in (PCA(2), LocalPCA(2, 1, random_state=0)):
        ax = AxesDisplay.from_estimator(model.fit(plane), plane).ax_
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("a $1", "width")
        assert AxesDisplay.from_estimator(model.fit(frame), frame).ax_.get_xlabel() == "component 1 of PCA"
        display = AxesDisplay.from_estimator(model.fit(plane.to_numpy()), plane.to_numpy())
        assert display.ax_.get_ylabel() == "feature 2"


def test_lines_lead_to_the_axis_of_one_component(rng: np.random.Generator) -> None:
    X = rng.standard_normal((200, 2)) * [3.0, 1.0]
    model = PCA(1).fit(X)
    lines = AxesDisplay.from_estimator(model, X).ax_.lines[0].get_xydata().reshape(200, 3, 2)
    np.testing.assert_array_equal(lines[:, 0], X)
    np.testing.assert_allclose(lines[:, 1], model.inverse_transform(model.transform(X)), atol=1e-12)
    assert len(AxesDisplay.from_estimator(PCA(1).fit(np.vstack([X, X])), np.vstack([X, X])).ax_.lines) == 2


def test_a_biplot_draws_the_longest_arrows_in_one_scale(digits: Any, iris: Any) -> None:
    model, X, labels = digits
    display = BiplotDisplay.from_estimator(model, X, n_arrows=3, components=(1, 2), labels=labels)
    arrows = display.arrows[:, 1:3]
    longest = np.argsort(-np.linalg.norm(arrows, axis=1))[:3]
    names = {f"feature {j + 1}" for j in longest}
    assert names <= set(texts(display.ax_))
    drawn = np.array([note.xy for note in display.ax_.texts if not note.get_text()])
    factor = 0.8 * np.linalg.norm(model.transform(X)[:, 1:3], axis=1).max() / np.linalg.norm(arrows[longest[0]])
    np.testing.assert_allclose(drawn, factor * arrows[longest], rtol=1e-10)
    white = PCA(20, whiten=True).fit(X)
    for fitted in (model, white):
        found = BiplotDisplay.from_estimator(fitted, X)
        rest = X - X.mean(axis=0) - found.scores @ found.arrows.T
        assert np.sum(rest**2) == pytest.approx(
            (len(X) - 1) * (X.var(axis=0, ddof=1).sum() - white.explained_variance_.sum())
        )
    kernel, flowers, _ = iris
    found = BiplotDisplay.from_estimator(kernel, flowers, features=list("abcd"))
    np.testing.assert_allclose(found.arrows, variable_correlations(kernel, flowers), atol=1e-12)
    assert set(texts(found.ax_)) == set("abcd")


def test_a_search_has_a_line_for_every_count_and_marks_the_best(search: KernelPCACV) -> None:
    ax = SearchDisplay.from_estimator(search).ax_
    *lines, mark = ax.lines
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["1", "2", "4"]
    best, results = search.best_params_, search.cv_results_
    for line, count in zip(lines, [1, 2, 4], strict=True):
        chosen = [
            -score
            for score, params in zip(results["mean_test_score"], results["params"], strict=True)
            if params["n_components"] == count and params["alpha"] == best["alpha"]
        ]
        np.testing.assert_array_equal(line.get_xdata(), [0.01, 0.1, 1.0])
        np.testing.assert_allclose(line.get_ydata(), chosen)
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (best["gamma"], -search.best_score_)
    assert ax.get_xscale() == "log"
    assert ax.get_title().startswith("2 folds; best: alpha")


def test_a_search_over_counts_alone_is_one_line() -> None:
    X = np.random.default_rng(0).standard_normal((40, 3))
    ax = SearchDisplay.from_estimator(KernelPCACV("linear", n_components=[1, 2], cv=2).fit(X)).ax_
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [1, 2])
    assert (ax.get_xlabel(), ax.get_xscale()) == ("components", "linear")
    with pytest.raises(ValueError, match="two numbers"):
        SearchDisplay.from_estimator(KernelPCACV("linear", n_components=2, cv=2).fit(X))


@pytest.mark.parametrize(
    ("errors", "heights", "scale", "written"),
    [
        ([3e-15, 2e-15, 1e-15], [3e-15, 2e-15, 1e-15], "linear", "1e-15"),
        ([1.0, 1e-20, 4e-20], [1.0, 1e-20, 4e-20], "log", "1e-20"),
        ([1.0, 0.5, 0.0], [1.0, 0.5, 0.05], "log", "0"),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], "linear", "0"),
        ([-0.2, -0.9, 0.1], [-0.2, -0.9, 0.1], "linear", "-0.9"),
    ],
)
def test_small_errors_of_a_search_are_drawn_as_they_are(
    errors: list[float], heights: list[float], scale: str, written: str
) -> None:
    results = {"params": [{"gamma": gamma} for gamma in (0.1, 1.0, 10.0)], "mean_test_score": np.negative(errors)}
    ax = SearchDisplay(results, int(np.argmin(errors))).plot().ax_
    np.testing.assert_allclose(ax.lines[0].get_ydata(), heights, rtol=1e-15)
    assert (ax.get_yscale(), texts(ax)) == (scale, [written])


# -- images ------------------------------------------------------------------------------------------------------------


def pixels(ax: Any) -> np.ndarray:
    return np.asarray(ax.images[0].get_array()).ravel()


def test_component_images_are_mean_and_components(digits: tuple[Any, np.ndarray, np.ndarray]) -> None:
    model = digits[0]
    axes = ComponentImagesDisplay.from_estimator(model, (8, 8), n_images=5).ax_
    np.testing.assert_array_equal(pixels(axes[0]), model.mean_)
    np.testing.assert_array_equal(pixels(axes[3]), model.components_[2])
    largest = np.max(np.abs(model.components_[:5]))
    assert {ax.images[0].get_clim() for ax in axes[1:]} == {(-largest, largest)}
    assert {ax.images[0].get_cmap().name for ax in axes[1:]} == {"RdBu_r"}
    (bar,) = set(axes[0].figure.axes) - {*axes}
    assert (bar.get_ylim(), bar.get_ylabel()) == ((-largest, largest), "weight of a pixel")
    assert axes[0].images[0].get_clim() == (model.mean_.min(), model.mean_.max())
    assert axes[0].get_title() == f"mean, {model.mean_.min():.3g} to {model.mean_.max():.3g}"
    assert len(ComponentImagesDisplay.from_estimator(model, (8, 8), n_images=0).figure_.axes) == 1
    assert axes[1].get_title() == f"1 ({100 * model.explained_variance_ratio_[0]:.1f} %)"


def test_reconstructions_approach_the_samples(digits: tuple[Any, np.ndarray, np.ndarray]) -> None:
    model, X, labels = digits
    axes = ImageRowsDisplay.from_estimator(model, X, (8, 8), labels=labels).ax_
    assert [ax.get_title().split("\n")[0] for ax in axes[0]] == ["original", *(f"K = {k}" for k in (1, 2, 5, 10, 20))]
    samples = [int(np.flatnonzero(labels == label)[0]) for label in (0, 3, 6, 9)]
    for row, sample in zip(axes, X[samples], strict=True):
        np.testing.assert_array_equal(pixels(row[0]), sample)
        errors = [np.linalg.norm(pixels(ax) - sample) for ax in row[1:]]
        assert errors == sorted(errors, reverse=True)
    np.testing.assert_allclose(pixels(axes[1, -1]), model.inverse_transform(model.transform(X[samples]))[1])


@pytest.mark.parametrize(("counts", "last"), [((1, 61, 100), "K = 61"), ((1, 5), "K = 5")])
def test_reconstructions_undo_whitening_and_scaling(counts: tuple[int, ...], last: str) -> None:
    X = load_digits().data
    model = PCA(61, whiten=True, scale=True).fit(X)
    axes = ImageRowsDisplay.from_estimator(model, X, (8, 8), counts=counts, samples=[7]).ax_[0]
    assert axes[-1].get_title().split("\n")[0] == last
    if last == "K = 61":
        np.testing.assert_allclose(pixels(axes[-1]), X[7], atol=1e-9)


def test_samples_in_arrays_that_cannot_be_written_are_reconstructed() -> None:
    numpy = pytest.importorskip("jax").numpy
    X = np.random.default_rng(0).standard_normal((12, 6)).astype("float32")
    expected = ImageRowsDisplay.from_estimator(PCA(3).fit(X), X, (2, 3)).ax_
    axes = ImageRowsDisplay.from_estimator(PCA(3).fit(numpy.asarray(X)), numpy.asarray(X), (2, 3)).ax_
    for ax, other in zip(axes.ravel(), expected.ravel(), strict=True):
        np.testing.assert_allclose(pixels(ax), pixels(other), atol=1e-4)


@pytest.mark.parametrize(("grays", "limits"), [(None, (30.0, 46.0)), ("PCA", (0.0, 8.0))])
def test_rows_of_images_share_one_scale(grays: str | None, limits: tuple[float, float]) -> None:
    X = load_digits().data[:5]
    rows = {"noisy": np.where(np.arange(64) == 3, np.nan, X + 30.0), "PCA": 0.5 * X}
    axes = ImageRowsDisplay(rows, (8, 8), errors={"PCA": 0.1234}, grays=grays).plot().ax_
    np.testing.assert_array_equal(pixels(axes[1, 3]), 0.5 * X[3])
    assert [ax.get_ylabel() for ax in axes[:, 0]] == ["noisy", "PCA\nerror 0.123"]
    assert {ax.images[0].get_clim() for ax in axes.ravel()} == {limits}


# -- pipelines ---------------------------------------------------------------------------------------------------------


def test_a_pipeline_is_drawn_as_its_last_step(iris: tuple[Any, np.ndarray, np.ndarray]) -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    _, X, _ = iris
    pipeline = make_pipeline(StandardScaler(), PCA(3)).fit(X)
    np.testing.assert_array_equal(ScoresDisplay.from_estimator(pipeline, X).scores, pipeline.transform(X))
    np.testing.assert_array_equal(
        SpectrumDisplay.from_estimator(pipeline).ratios, pipeline[-1].explained_variance_ratio_
    )
    with pytest.raises(ValueError, match="StandardScaler has no explained_variance_ratio_"):
        SpectrumDisplay.from_estimator(StandardScaler().fit(X))
