"""Samples that are images: the mean and the components as images, and rows of images for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpukpca._rules import is_integer
from gpukpca._typing import Array, ArrayLike, Vector
from gpukpca.backend.namespace import namespace_of
from gpukpca.data.batches import is_set
from gpukpca.data.gate import as_rows, check_not_empty
from gpukpca.exceptions import InvalidParameterError
from gpukpca.plotting.display import Display, check_has, checked_figure, drawn_rows, host, new_figure, ratios_of
from gpukpca.plotting.labels import ColorScale, Groups, read_labels
from gpukpca.plotting.style import SMALL, color_bar

COUNTS = (1, 2, 5, 10, 20, 50, 100)
MAX_SAMPLES = 4
IMAGE_ROWS = 3
GRAY, SIGNED = "gray", "RdBu_r"


class ComponentImagesDisplay(Display):
    """The mean image, then the components: red where a pixel rises with the component, blue where it falls.

    All components share one scale, symmetric about zero, with a color bar. The title of the mean says what black and
    white are.

    Parameters
    ----------
    mean : array, shape (d,)
    components : array, shape (p, d)
    ratios : array, shape (p,)
        Shares of the variance, for the titles.
    image_shape : (int, int)
        Rows and columns of an image; their product is d.

    Raises
    ------
    ValueError
        A shape that is not that of the features.

    See Also
    --------
    gpukpca.plotting.ImageRowsDisplay : Images in rows, such as reconstructions.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gpukpca import PCA
    >>> from gpukpca.plotting import ComponentImagesDisplay
    >>> model = PCA(5).fit(load_digits().data)
    >>> ComponentImagesDisplay.from_estimator(model, image_shape=(8, 8)).ax_.shape
    (6,)
    """

    def __init__(self, mean: Vector, components: ArrayLike, ratios: Vector, image_shape: tuple[int, int]) -> None:
        self.mean: np.ndarray = host(mean)
        self.components: np.ndarray = host(components)
        self.ratios: np.ndarray = host(ratios)
        self.image_shape = image_shape
        check_image_shape(image_shape, len(self.mean))

    @classmethod
    def from_estimator(
        cls, estimator: Any, image_shape: tuple[int, int], *, n_images: int = 11, figure: Any = None
    ) -> ComponentImagesDisplay:
        """Draw the mean and the first components of a fitted PCA.

        Parameters
        ----------
        estimator : fitted PCA
            With `mean_`, `components_` and `explained_variance_ratio_`.
        image_shape : (int, int)
            Rows and columns of an image.
        n_images : int
            Most components.
        figure : matplotlib Figure or SubFigure, optional
            Drawn into; a new one without.

        Returns
        -------
        ComponentImagesDisplay
        """
        check_has(estimator, "components_", "a fitted PCA: its components are images")
        components = estimator.components_[:n_images]
        return cls(estimator.mean_, components, ratios_of(estimator), image_shape).plot(figure)

    def plot(self, figure: Any = None) -> ComponentImagesDisplay:
        """Draw the images into a matplotlib Figure or SubFigure (None: a new one); return the display."""
        figure = new_figure(5.6, 4.4) if figure is None else checked_figure(figure)
        count = len(self.components) + 1
        rows = min(IMAGE_ROWS, count)
        axes = figure.subplots(rows, -(-count // rows), squeeze=False).ravel()
        low, high, largest = self.mean.min(), self.mean.max(), np.max(np.abs(self.components), initial=0.0)
        image = _show(axes[0], self.mean.reshape(self.image_shape), GRAY, low, high)
        axes[0].set_title(f"mean, {low:.3g} to {high:.3g}", **SMALL)
        for i, (ax, component) in enumerate(zip(axes[1:], self.components, strict=False)):
            image = _show(ax, component.reshape(self.image_shape), SIGNED, -largest, largest)
            ax.set_title(f"{i + 1} ({100 * self.ratios[i]:.1f} %)", **SMALL)
        color_bar([*axes] if count > 1 else [], image, "weight of a pixel")
        for ax in axes[count:]:
            ax.set_axis_off()
        self.ax_: Any = axes
        self.figure_: Any = figure.figure
        return self


class ImageRowsDisplay(Display):
    """Images in rows with names on the left, and titles above the columns: originals, noise, reconstructions.

    Parameters
    ----------
    rows : mapping of str to array, shape (m, d)
        Name of the row and its m images. Pixels that are NaN stay white.
    image_shape : (int, int)
        Rows and columns of an image; their product is d.
    errors : mapping of str to float, optional
        Written below the names of their rows, such as the mean squared error.
    titles : sequence of m str, optional
        Of the columns.
    grays : str, optional
        Name of the row whose least and largest pixels are black and white; default: the first. The extremes of noisy
        images are noise, and on their scale all others look pale.

    Raises
    ------
    ValueError
        No rows, rows of different shapes, a shape that is not that of the features, or no row named `grays`.

    See Also
    --------
    gpukpca.plotting.ComponentImagesDisplay : The components as images.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gpukpca import PCA
    >>> from gpukpca.plotting import ImageRowsDisplay
    >>> X = load_digits().data
    >>> model = PCA(8).fit(X)
    >>> rows = {"original": X[:5], "8 components": model.inverse_transform(model.transform(X[:5]))}
    >>> ImageRowsDisplay(rows, image_shape=(8, 8)).plot().ax_.shape
    (2, 5)
    """

    def __init__(
        self,
        rows: Mapping[str, ArrayLike],
        image_shape: tuple[int, int],
        *,
        errors: Mapping[str, float] | None = None,
        titles: Sequence[str] | None = None,
        grays: str | None = None,
    ) -> None:
        self.rows: dict[str, np.ndarray] = {name: host(row) for name, row in rows.items()}
        self.image_shape = image_shape
        self.errors: Mapping[str, float] | dict[str, float] = errors or {}
        self.titles = titles
        shapes = {row.shape for row in self.rows.values()}
        if len(shapes) != 1 or len(next(iter(shapes))) != 2:
            raise ValueError(f"rows must be arrays of one shape (m, d); got {sorted(shapes)}.")
        check_image_shape(image_shape, next(iter(shapes))[1])
        if grays is not None and grays not in self.rows:
            raise ValueError(f"grays={grays!r} is no row; give one of {', '.join(self.rows)}.")
        scale = self.rows[next(iter(self.rows)) if grays is None else grays]
        self.limits: tuple[float, float] = float(np.nanmin(scale)), float(np.nanmax(scale))

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Array,
        image_shape: tuple[int, int],
        *,
        counts: Sequence[int] = COUNTS,
        samples: Sequence[int] | None = None,
        labels: Vector | None = None,
        figure: Any = None,
    ) -> ImageRowsDisplay:
        """Draw a few samples, each next to its reconstructions from the first K components.

        Parameters
        ----------
        estimator : fitted PCA
            With `transform` and `inverse_transform`, which undo whitening and scaling.
        X : array, shape (n, d)
        image_shape : (int, int)
        counts : sequence of int
            The K of the columns. Those beyond the components of the model are left out; the last column is then all.
        samples : sequence of int, optional
            Rows of X; default: four, of different labels where there are any.
        labels : array, shape (n,), optional
        figure : matplotlib Figure or SubFigure, optional
            Drawn into; a new one without.

        Returns
        -------
        ImageRowsDisplay

        Raises
        ------
        ValueError
            A shape that is not that of the features.
        """
        X = rows_of_images(X, image_shape)
        groups = read_labels(labels, X.shape[0], "X")
        chosen = _spread_samples(X.shape[0], groups) if samples is None else np.asarray(samples)
        X = X.iloc[chosen] if hasattr(X, "iloc") else X[chosen]
        scores, ratios = estimator.transform(X), ratios_of(estimator)
        kept = [count for count in counts if count <= len(ratios)]
        kept += [len(ratios)] if len(kept) < len(counts) and len(ratios) not in kept else []
        columns = [drawn_rows(X), *(host(_reconstructed(estimator, scores, count)) for count in kept)]
        titles = ["original\n", *(f"K = {count}\n{100 * np.sum(ratios[:count]):.0f} %" for count in kept)]
        rows = {f"{row}": images for row, images in zip(chosen, np.stack(columns, axis=1), strict=True)}
        display = cls(rows, image_shape, titles=titles)
        display.limits = float(columns[0].min()), float(columns[0].max())
        return display.plot(figure, names=False)

    def plot(self, figure: Any = None, *, names: bool = True) -> ImageRowsDisplay:
        """Draw the images.

        Parameters
        ----------
        figure : matplotlib Figure or SubFigure, optional
            Drawn into; a new one without.
        names : bool
            Write the names of the rows on the left.

        Returns
        -------
        ImageRowsDisplay
            The display itself.
        """
        count = len(next(iter(self.rows.values())))
        inches = 0.62 if names else 1.1
        size = inches * count + (1.4 if names else 0.0), inches * len(self.rows) + 0.4
        figure = new_figure(*size) if figure is None else checked_figure(figure)
        if names:
            figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.0, hspace=0.0)
        axes = figure.subplots(len(self.rows), count, squeeze=False)
        for line, (name, row) in zip(axes, self.rows.items(), strict=True):
            for ax, image in zip(line, row, strict=True):
                _show(ax, image.reshape(self.image_shape), GRAY, *self.limits)
            if names:
                label = f"{name}\nerror {self.errors[name]:.3f}" if name in self.errors else name
                line[0].set_ylabel(label, rotation=0, ha="right", va="center", **SMALL)
        for ax, title in zip(axes[0], self.titles or (), strict=False):
            ax.set_title(title, **SMALL)
        self.ax_: Any = axes
        self.figure_: Any = figure.figure
        return self


def rows_of_images(X: Any, image_shape: tuple[int, int]) -> Any:
    """Return rows (n, d) that are images of a shape, checked."""
    rows = as_rows(X) if is_set(X) or len(getattr(X, "shape", ())) != 2 else X
    check_image_shape(image_shape, rows.shape[1])
    check_not_empty(rows, "a picture")
    return rows


def check_image_shape(image_shape: tuple[int, int], n_features: int) -> None:
    """Raise ValueError where this is no shape of an image, or one of other than so many pixels."""
    sides = list(image_shape) if isinstance(image_shape, (Sequence, np.ndarray)) else []
    is_shape = len(sides) == 2 and all(is_integer(side) and side > 0 for side in sides)
    pixels = sides[0] * sides[1] if is_shape else "no"
    if pixels != n_features:
        raise InvalidParameterError(
            f"an image of shape {image_shape!r} has {pixels} pixels, and the data have {n_features} columns; give two "
            "integers whose product is that."
        )


def _spread_samples(n: int, labels: Groups | ColorScale | None) -> np.ndarray:
    """Return a few rows: the first of every group, thinned out evenly, or rows at equal distances."""
    candidates = np.arange(n)
    if isinstance(labels, Groups) and len(labels.names) > 1:
        candidates = np.unique(labels.codes, return_index=True)[1]
    return candidates[np.unique(np.linspace(0, len(candidates) - 1, MAX_SAMPLES).astype(int))]


def _reconstructed(model: Any, scores: Any, count: int) -> Any:
    """Return samples reconstructed from their first `count` components."""
    xp = namespace_of(scores)
    return model.inverse_transform(xp.concat([scores[:, :count], xp.zeros_like(scores[:, count:])], axis=1))


def _show(ax: Any, image: np.ndarray, colors: str, low: float, high: float) -> Any:
    """Draw an image without ticks and frame; return it."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax.imshow(image, cmap=colors, vmin=low, vmax=high if high > low else low + 1.0, interpolation="nearest")
