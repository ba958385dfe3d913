"""What cannot be drawn, or drawn into, is refused with what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpukpca import PCA, KernelPCA, LocalPCA
from gpukpca.exceptions import InvalidParameterError
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

pytest.importorskip("matplotlib")


def test_figures_refuse_what_cannot_be_the_data_or_their_scores(digits: tuple[Any, np.ndarray, np.ndarray]) -> None:
    model, X, labels = digits
    scores = model.transform(X)
    for draw, fragment in (
        (lambda: plot_fit(model, scores), r"X has 20 columns, .* fitted to 64: give the data, and scores .* scores="),
        (lambda: plot_fit(model, X, X), r"scores must have shape \(1797, 20\), .* got \(1797, 64\)"),
        (lambda: plot_fit(model, X, scores[:9]), r"got \(9, 20\)"),
        (lambda: plot_fit(model, X, labels), r"got \(1797,\)"),
        (lambda: plot_images(model, X, (8, 8), X), r"got \(1797, 64\)"),
        (lambda: ScoresDisplay(X, ratios=model.explained_variance_ratio_), "20 ratios for scores of 64 components"),
    ):
        with pytest.raises(ValueError, match=fragment):
            draw()


@pytest.mark.parametrize(
    "components",
    [(0, 3), (-1, 0), (1, 1), (0, 1, 2, 2), (0, 1, 1), (0, 1, 3), (), 0, ("a", "b"), "ab", (0.0, 1.0), None],
)
def test_components_that_are_not_there(components: Any) -> None:
    with pytest.raises(
        ValueError, match=rf"^components={re.escape(repr(components))} must be one to three different .* from 0 to 2"
    ):
        ScoresDisplay(np.eye(3)).plot(components=components)


@pytest.mark.parametrize(
    ("scores", "options", "fragment"),
    [
        (np.zeros((3, 2)), {"names": ["a", "b"]}, "2 names for 3 rows"),
        (np.zeros((3, 2)), {"labels": [1, 2, 3, 4]}, "4 labels for 3 rows"),
        (np.zeros(3), {}, "got 1D array instead: scores has shape"),
        (
            np.array([[0.0, 1.0], [np.nan, 1.0], [2.0, np.inf]]),
            {},
            "Input scores contains NaN: 1 value.* the first in row 1",
        ),
        (np.zeros((3, 2)), {"names": 5}, "names=5 for 3 rows"),
        (np.zeros((3, 2)), {"labels": "b"}, "1 labels for 3 rows"),
        (np.zeros((3, 2)), {"labels": np.zeros((3, 2))}, r"labels must have shape \(3,\)"),
    ],
)
def test_scores_labels_and_names_are_checked(scores: np.ndarray, options: dict[str, Any], fragment: str) -> None:
    with pytest.raises(ValueError, match=fragment):
        ScoresDisplay(scores, **options)


def test_what_is_no_axes_or_figure_is_named(iris: Any, search: KernelPCACV) -> None:
    from matplotlib.figure import Figure

    (model, X, _), figure = iris, Figure()
    plane, linear = PCA(2).fit(X[:, :2]), PCA(2).fit(X)
    for draw in (
        lambda ax: ScoresDisplay.from_estimator(model, X, ax=ax),
        lambda ax: SpectrumDisplay.from_estimator(model, ax=ax),
        lambda ax: AxesDisplay.from_estimator(LocalPCA(2, 1, random_state=0).fit(X), X, ax=ax),
        lambda ax: SearchDisplay.from_estimator(search, ax=ax),
        lambda ax: ContoursDisplay.from_estimator(plane, X[:, :2], axes=ax),
        lambda ax: ContoursDisplay.from_estimator(plane, X[:, :2], axes=[ax]),
    ):
        with pytest.raises(ValueError, match=r"matplotlib Axes, such as ax.*=figure.subplots\(.*\); got Figure\."):
            draw(figure)
    with pytest.raises(ValueError, match="got ndarray"):
        SpectrumDisplay([1.0]).plot(figure.subplots(1, 2))
    with pytest.raises(ValueError, match="got none"):
        ContoursDisplay.from_estimator(plane, X[:, :2], axes=[])
    for draw in (
        lambda ax: ComponentImagesDisplay.from_estimator(linear, (2, 2), figure=ax),
        lambda ax: ImageRowsDisplay.from_estimator(linear, X, (2, 2), figure=ax),
    ):
        with pytest.raises(ValueError, match=r"must be a matplotlib Figure or SubFigure, such as .*; got Axes\."):
            draw(figure.axes[0])


def test_axes_have_the_dimensions_of_the_picture(iris: Any) -> None:
    from matplotlib.figure import Figure

    model, X, _ = iris
    flat, deep = Figure().subplots(), Figure().add_subplot(projection="3d")
    assert ScoresDisplay.from_estimator(model, X, components=(0, 1, 2), ax=deep).ax_ is deep
    with pytest.raises(ValueError, match=r"^three components need ax with three .*projection='3d'\); got Axes\."):
        ScoresDisplay.from_estimator(model, X, components=(0, 1, 2), ax=flat)
    plane = PCA(2).fit(X[:, :2])
    for draw in (
        lambda: ScoresDisplay.from_estimator(model, X, ax=deep),
        lambda: ScoresDisplay.from_estimator(model, X, components=(2,), ax=deep),
        lambda: SpectrumDisplay.from_estimator(model, ax=deep),
        lambda: AxesDisplay.from_estimator(plane, X[:, :2], ax=deep),
        lambda: ContoursDisplay.from_estimator(plane, X[:, :2], axes=[deep]),
    ):
        with pytest.raises(ValueError, match=r"matplotlib Axes, such as ax.*=figure.subplots\(.*\); got Axes3D\."):
            draw()


def test_labels_are_checked_by_every_picture(iris: tuple[Any, np.ndarray, np.ndarray]) -> None:
    X = iris[1]
    plane, model, local = PCA(2).fit(X[:, :2]), PCA(2).fit(X), LocalPCA(2, 1, random_state=0).fit(X)
    for draw in (
        lambda labels: ScoresDisplay.from_estimator(model, X, labels=labels),
        lambda labels: ContoursDisplay.from_estimator(plane, X[:, :2], labels=labels),
        lambda labels: AxesDisplay.from_estimator(local, X, labels=labels),
        lambda labels: ImageRowsDisplay.from_estimator(model, X, (2, 2), labels=labels),
        lambda labels: plot_fit(model, X, labels=labels),
        lambda labels: plot_images(model, X, (2, 2), labels=labels),
    ):
        with pytest.raises(ValueError, match="2 labels for 150 rows"):
            draw([1, 2])


@pytest.mark.parametrize(
    ("draw", "fragment"),
    [
        (lambda: BiplotDisplay(np.ones((3, 2)), np.ones((4, 3))), r"got \(4, 3\) for p = 2"),
        (lambda: BiplotDisplay(np.ones((3, 1)), np.ones((4, 1))), "p >= 2"),
        (lambda: BiplotDisplay(np.ones((3, 2)), np.ones((4, 2)), features="ab"), "2 names of features for 4 arrows"),
        (lambda: BiplotDisplay(np.ones((3, 2)), np.ones((4, 2))).plot(components=(0,)), "a biplot has two"),
        (lambda: BiplotDisplay(np.eye(3), np.eye(3)).plot(components=(0, 1, 2)), "a biplot has two"),
        (lambda: ScoresDisplay(np.eye(3), names="abc").plot(components=(0, 1, 2)), "names are for one or two"),
        (lambda: ScoresDisplay(np.eye(2)).plot(components=(0, 1, 2)), "must be one to three different .* from 0 to 1"),
        (lambda: ScoresDisplay(np.eye(3)[:, :1]).plot(components=(0, 1, 2)), "must be one to three different .* to 0"),
        (lambda: ImageRowsDisplay({}, (2, 2)), "one shape"),
        (lambda: ImageRowsDisplay({"a": np.ones((2, 4)), "b": np.ones((3, 4))}, (2, 2)), "one shape"),
        (lambda: ImageRowsDisplay({"a": np.ones(4)}, (2, 2)), "one shape"),
        (lambda: ImageRowsDisplay({"a": np.ones((2, 4))}, (2, 3)), "6 pixels, and the data have 4"),
        (lambda: ImageRowsDisplay({"a": np.ones((2, 4))}, (2, 2), grays="b"), "give one of a"),
        (lambda: ComponentImagesDisplay(np.ones(4), np.ones((1, 4)), [1.0], (0, 4)), r"shape \(0, 4\) has no pixels"),
        (lambda: plot_images(None, np.ones((2, 4)), (3, 3)), "9 pixels"),
    ],
)
def test_numbers_that_do_not_fit(draw: Callable[[], Any], fragment: str) -> None:
    with pytest.raises(ValueError, match=fragment):
        draw()


def test_images_of_any_container_have_a_shape_that_fits() -> None:
    X = np.random.default_rng(0).random((9, 6))
    model = PCA(2).fit(X)
    pixels = [f"pixel {j}" for j in range(6)]
    frame = pytest.importorskip("pandas").DataFrame(X, columns=pixels)
    for shape in ("2x3", 6, None, (6,), (2, 3, 1), (2.0, 3.0), ("2", "3"), (-2, -3), (True, 6), (2, 2)):
        for draw in (
            lambda shape: plot_images(model, X, shape),
            lambda s: ImageRowsDisplay.from_estimator(model, X, s),
        ):
            with pytest.raises(
                InvalidParameterError, match=r"^an image of shape .* and the data have 6 columns; give two"
            ):
                draw(shape)
    for given, fitted in ((X.tolist(), model), (frame, PCA(2).fit(frame))):
        for shape in ((2, 3), [2, 3], np.array([2, 3])):
            assert plot_images(fitted, given, shape).axes
    for given, words in (
        ([X, X], "list of 2 item"),
        ([[1.0], [1.0, 2.0]], "1 to 2 entries"),
        ({"a": X}, r"pass X\['a'\]"),
        (np.zeros(3, [("a", "f8")]), "structured"),
    ):
        with pytest.raises(InvalidParameterError, match=words):
            plot_images(model, given, (2, 3))


def test_another_estimator_is_named_with_what_is_needed() -> None:
    X = np.random.default_rng(0).standard_normal((20, 4))
    for estimator in (KernelPCA(2).fit(X), PCA(2)):
        with pytest.raises(ValueError, match=r"has no components_; give a fitted PCA"):
            ComponentImagesDisplay.from_estimator(estimator, (2, 2))
    with pytest.raises(ValueError, match="KernelPCA has no components_; give a fitted PCA or LocalPCA"):
        AxesDisplay.from_estimator(KernelPCA(2).fit(X), X)
