"""Samples that are images: the mean, the components as images, and what few components keep of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpukpca._typing import Array, ArrayLike, Vector
from gpukpca.backend.namespace import to_host
from gpukpca.plotting.scores import plot_scores
from gpukpca.plotting.style import SMALL, TITLE, classes_of, new_figure

COUNTS = (1, 2, 5, 10, 20, 50, 100)
MOST_SAMPLES = 4
# Of the mean and the components.
ROWS = 3
GRAY, SIGNED = "gray", "RdBu_r"


def plot_eigenimages(model: Any, image_shape: tuple[int, int], n_images: int = 11, figure: Any = None) -> Any:
    """The mean image, then the first components: red where a pixel rises with the component, blue where it falls.

    Parameters
    ----------
    model : fitted PCA
        With `mean_` and `components_`.
    image_shape : (int, int)
        Rows and columns of an image; their product is the number of features.
    n_images : int
        At most so many components.
    figure : matplotlib Figure or SubFigure, optional
        Drawn into; a new one without.

    Returns
    -------
    matplotlib Figure or SubFigure

    Raises
    ------
    ValueError
        A shape that is not that of the features.
    """
    mean = _host(model.mean_)
    check_image_shape(image_shape, len(mean))
    components = _host(model.components_)[:n_images]
    figure = new_figure(5.6, 4.4) if figure is None else figure
    down = min(ROWS, len(components) + 1)
    axes = figure.subplots(down, -(-(len(components) + 1) // down), squeeze=False).ravel()
    show_image(axes[0], mean.reshape(image_shape), GRAY, float(mean.min()), float(mean.max()))
    axes[0].set_title("mean", **SMALL)
    ratios = _host(model.explained_variance_ratio_)
    for i, component in enumerate(components):
        largest = float(np.max(np.abs(component))) or 1.0
        show_image(axes[i + 1], component.reshape(image_shape), SIGNED, -largest, largest)
        axes[i + 1].set_title(f"{i + 1} ({100 * ratios[i]:.1f} %)", **SMALL)
    for ax in axes[len(components) + 1 :]:
        ax.set_axis_off()
    return figure


def plot_reconstructions(
    model: Any,
    X: Array,
    image_shape: tuple[int, int],
    counts: Sequence[int] = COUNTS,
    samples: Sequence[int] | None = None,
    labels: Vector | None = None,
    figure: Any = None,
) -> Any:
    """A few samples, each beside what its first K components say of it.

    Parameters
    ----------
    model : fitted PCA
        With `transform` and `inverse_transform`; whitening and scaling are undone by them.
    X : array, shape (n, d)
    image_shape : (int, int)
    counts : sequence of int
        The K of the columns; those beyond the components of the model are left out, and the last column is then all.
    samples : sequence of int, optional
        Rows of X; by default four, of different labels where there are any.
    labels : array (n,), optional
    figure : matplotlib Figure or SubFigure, optional
        Drawn into; a new one without.

    Returns
    -------
    matplotlib Figure or SubFigure

    Raises
    ------
    ValueError
        A shape that is not that of the features.
    """
    check_image_shape(image_shape, X.shape[1])
    rows = spread_samples(len(X), labels) if samples is None else np.asarray(samples)
    originals = X[rows]
    scores = model.transform(originals)
    ratios = _host(model.explained_variance_ratio_)
    kept = _counts(counts, len(ratios))
    figure = new_figure(1.1 * (len(kept) + 1), 1.15 * len(rows) + 0.4) if figure is None else figure
    axes = figure.subplots(len(rows), len(kept) + 1, squeeze=False)
    shown = [_host(originals), *(_host(reconstructed(model, scores, count)) for count in kept)]
    low, high = float(shown[0].min()), float(shown[0].max())
    for column, images in enumerate(shown):
        for ax, image in zip(axes[:, column], images, strict=True):
            show_image(ax, image.reshape(image_shape), GRAY, low, high)
    axes[0, 0].set_title("original\n", **SMALL)
    for ax, count in zip(axes[0, 1:], kept, strict=True):
        ax.set_title(f"K = {count}\n{100 * np.sum(ratios[:count]):.0f} %", **SMALL)
    return figure


def plot_images(
    model: Any,
    X: Array,
    image_shape: tuple[int, int],
    scores: ArrayLike | None = None,
    labels: Vector | None = None,
    counts: Sequence[int] = COUNTS,
    title: str | None = None,
) -> Any:
    """Mean and first components as images, the first plane, and reconstructions of a few samples.

    Parameters
    ----------
    model : fitted PCA
    X : array, shape (n, d)
        Samples, each an image with its rows one after the other.
    image_shape : (int, int)
    scores : array, shape (n, p), optional
        Of X, where they are at hand.
    labels : array (n,), optional
        Colors of the plane, and the choice of the samples.
    counts : see `plot_reconstructions`
    title : str, optional

    Returns
    -------
    matplotlib Figure

    Raises
    ------
    ValueError
        A shape that is not that of the features.
    """
    check_image_shape(image_shape, X.shape[1])
    scores = model.transform(X) if scores is None else scores
    figure = new_figure(10.0, 8.6, title)
    above, below = figure.subfigures(2, 1, height_ratios=(1.0, 1.15))
    left, right = above.subfigures(1, 2, width_ratios=(1.25, 1.0))
    left.suptitle("mean, and components (red +, blue −) with their share of the variance", **TITLE)
    plot_eigenimages(model, image_shape, figure=left)
    plot_scores(scores, model.explained_variance_ratio_, labels, ax=right.subplots())
    below.suptitle("samples rebuilt from the first K components, and the share of the variance in them", **TITLE)
    plot_reconstructions(model, X, image_shape, counts, labels=labels, figure=below)
    return figure


def check_image_shape(image_shape: tuple[int, int], n_features: int) -> None:
    """Raise where images of that shape do not have that many pixels."""
    rows, columns = image_shape
    if rows < 1 or columns < 1 or rows * columns != n_features:
        raise ValueError(
            f"an image of {rows} x {columns} has {rows * columns} pixels, and the data have {n_features} columns."
        )


def spread_samples(n: int, labels: Any = None) -> np.ndarray:
    """Rows of a few samples: the first of every label, thinned out evenly, or rows evenly apart."""
    classes, codes = classes_of(labels)
    if classes is None or codes is None or len(classes) < 2:
        candidates = np.arange(n)
    else:
        candidates = np.array([np.flatnonzero(codes == code)[0] for code in range(len(classes))])
    return candidates[np.unique(np.linspace(0, len(candidates) - 1, MOST_SAMPLES).astype(int))]


def reconstructed(model: Any, scores: Any, count: int) -> Any:
    """Samples from their first `count` components, in the units of the data."""
    cut = scores + 0  # a copy, in any array library
    cut[:, count:] = 0
    return model.inverse_transform(cut)


def _counts(counts: Sequence[int], p: int) -> list[int]:
    """Those that the model has; all of its components where some are left out."""
    kept = [count for count in counts if count <= p]
    return kept if len(kept) == len(counts) or p in kept else [*kept, p]


def _host(x: Any) -> np.ndarray:
    return np.asarray(to_host(x), dtype=np.float64)


def show_image(ax: Any, image: np.ndarray, colors: str, low: float, high: float) -> None:
    """An image on axes without ticks and frame."""
    ax.imshow(image, cmap=colors, vmin=low, vmax=high if high > low else low + 1.0, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)
