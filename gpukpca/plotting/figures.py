"""Figures of several panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpukpca._typing import Array, ArrayLike, Vector
from gpukpca.data.gate import as_rows
from gpukpca.exceptions import InvalidParameterError
from gpukpca.plotting.display import new_figure, ratios_of
from gpukpca.plotting.images import COUNTS, ComponentImagesDisplay, ImageRowsDisplay, rows_of_images
from gpukpca.plotting.scores import ScoresDisplay, projection_of
from gpukpca.plotting.spectrum import SpectrumDisplay
from gpukpca.plotting.style import TITLE


def plot_fit(
    model: Any,
    X: ArrayLike,
    scores: ArrayLike | None = None,
    labels: Vector | None = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
    components: Sequence[int] = (0, 1),
) -> Any:
    """Draw spectrum and scores side by side.

    Parameters
    ----------
    model : fitted estimator
        With `transform` and `explained_variance_ratio_`.
    X : array, shape (n, d)
        Samples.
    scores : array, shape (n, p), optional
        Of X; computed without them.
    labels, names : see `ScoresDisplay`
    title : str, optional
    components : one to three int
        Indices of the components of the scores that are drawn.

    Returns
    -------
    matplotlib Figure

    Raises
    ------
    InvalidParameterError
        Scores in place of X, or scores that cannot be those of X.

    See Also
    --------
    ScoresDisplay, SpectrumDisplay : The two pictures.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gpukpca import PCA
    >>> from gpukpca.plotting import plot_fit
    >>> X, kinds = load_iris(return_X_y=True)
    >>> model = PCA(4).fit(X)
    >>> len(plot_fit(model, X, labels=kinds).axes)
    2
    """
    ratios = ratios_of(model)
    scores = _scores_of(model, X, scores, len(ratios))
    figure = new_figure(10.0, 4.4, title)
    left, right = figure.add_gridspec(1, 2, width_ratios=(1.0, 1.35))
    SpectrumDisplay(ratios).plot(figure.add_subplot(left))
    ax = figure.add_subplot(right, projection=projection_of(components))
    ScoresDisplay(scores, ratios=ratios, labels=labels, names=names).plot(ax, components=components)
    return figure


def plot_images(
    model: Any,
    X: Array,
    image_shape: tuple[int, int],
    scores: ArrayLike | None = None,
    labels: Vector | None = None,
    counts: Sequence[int] = COUNTS,
    title: str | None = None,
    components: Sequence[int] = (0, 1),
) -> Any:
    """Draw mean and first components as images, the first plane, and reconstructions of a few samples.

    Parameters
    ----------
    model : fitted PCA
    X : array, shape (n, d)
        Samples, each an image with its rows one after the other.
    image_shape : (int, int)
    scores : array, shape (n, p), optional
        Of X; computed without them.
    labels : array, shape (n,), optional
        Colors of the plane, and the choice of the samples.
    counts : see `ImageRowsDisplay.from_estimator`
    title : str, optional
    components : one to three int
        Indices of the components of the scores that are drawn.

    Returns
    -------
    matplotlib Figure

    Raises
    ------
    ValueError
        A shape that is not that of the features, or scores that cannot be those of X.

    See Also
    --------
    ComponentImagesDisplay, ImageRowsDisplay, ScoresDisplay : The parts.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gpukpca import PCA
    >>> from gpukpca.plotting import plot_images
    >>> X = load_digits().data[:200]
    >>> figure = plot_images(PCA(16).fit(X), X, image_shape=(8, 8), counts=[1, 4, 16])
    >>> len(figure.axes) > 3
    True
    """
    X = rows_of_images(X, image_shape)
    ratios = ratios_of(model)
    scores = _scores_of(model, X, scores, len(ratios))
    figure = new_figure(10.0, 8.6, title)
    above, below = figure.subfigures(2, 1, height_ratios=(1.0, 1.15))
    left, right = above.subfigures(1, 2, width_ratios=(1.25, 1.0))
    left.suptitle("mean, and components with their share of the variance", **TITLE)
    ComponentImagesDisplay.from_estimator(model, image_shape, figure=left)
    ax = right.add_subplot(projection=projection_of(components))
    ScoresDisplay(scores, ratios=ratios, labels=labels).plot(ax, components=components)
    below.suptitle("samples reconstructed from the first K components, and their share of the variance", **TITLE)
    ImageRowsDisplay.from_estimator(model, X, image_shape, counts=counts, labels=labels, figure=below)
    return figure


def _scores_of(model: Any, X: Any, scores: Any, p: int) -> Any:
    """Return the scores of X (n, d): those given where they can be scores of the p components, else computed."""
    X = as_rows(X) if isinstance(X, Sequence) else X
    n, *columns = getattr(X, "shape", (0,))
    if scores is None:
        d = getattr(model, "n_features_in_", None)
        if columns == [p] != [d] and d is not None:
            raise InvalidParameterError(
                f"X has {p} columns, as many as the model has components, and the model was fitted to {d}: give the "
                "data, and scores that are computed already as scores=."
            )
        return model.transform(X)
    if np.shape(scores) != (n, p):
        raise InvalidParameterError(
            f"scores must have shape ({n}, {p}), a row for each of X and a column for each component; got "
            f"{np.shape(scores)}. Without them they are computed from X."
        )
    return scores
