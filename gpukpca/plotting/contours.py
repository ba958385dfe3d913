"""Components as functions over the plane of two features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpukpca._typing import ArrayLike, Vector
from gpukpca.plotting.display import Display, host, new_figure, ratios_of
from gpukpca.plotting.style import INK, TITLE, axis_label, check_lengths, draw_legend, draw_points, tidy

GRID = 120
MARGIN = 0.15
LEVELS = 13
WIDTH = 2.6  # of a panel, in inches


class ContoursDisplay(Display):
    """Contours of the first components over the plane of two features, with the samples on top.

    The zero line is darker: a component separates what lies on its two sides. The contours of PCA are straight lines;
    those of a kernel need not be.

    Parameters
    ----------
    grid : (array, shape (g,), array, shape (g,))
        Coordinates across and up.
    values : array, shape (p, g, g)
        Components at the points of the grid.
    ratios : array, shape (p,)
    X : array, shape (n, 2)
        Samples.
    labels : array, shape (n,), optional
        Their colors.

    See Also
    --------
    gpukpca.plotting.ScoresDisplay : Scores of samples in the plane of two components.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from gpukpca import KernelPCA
    >>> from gpukpca.plotting import ContoursDisplay
    >>> X, labels = make_circles(60, factor=0.4, random_state=0)
    >>> model = KernelPCA(2, kernel="rbf", gamma=2.0).fit(X)
    >>> ContoursDisplay.from_estimator(model, X, labels=labels).ax_.shape
    (2,)
    """

    def __init__(
        self, grid: tuple[Any, Any], values: ArrayLike, ratios: Vector, X: ArrayLike, *, labels: Vector | None = None
    ) -> None:
        self.grid = grid
        self.values: np.ndarray = host(values)
        self.ratios = ratios
        self.X = host(X)
        self.labels = labels

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        *,
        labels: Vector | None = None,
        n_components: int = 3,
        axes: Sequence[Any] | None = None,
    ) -> ContoursDisplay:
        """Draw the first components of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            With `transform` and `explained_variance_ratio_`, fitted to data of two features.
        X : array, shape (n, 2)
        labels : array, shape (n,), optional
        n_components : int >= 1
            Panels, at most as many as the model has components.
        axes : sequence of matplotlib Axes, optional
            Drawn into; a new figure without them. Surplus axes are hidden.

        Returns
        -------
        ContoursDisplay

        Raises
        ------
        ValueError
            Data of other than two features, labels of another length, or no panel.

        Notes
        -----
        Cost: a transform of 14 400 points.
        """
        points = host(X)
        check_lengths(points, labels)
        if points.shape[1] != 2 or n_components < 1:
            raise ValueError(
                f"contours need data of two features and n_components >= 1; got shape {points.shape} and "
                f"n_components={n_components!r}."
            )
        low, high = points.min(axis=0), points.max(axis=0)
        room = MARGIN * np.where(high > low, high - low, 1.0)
        x, y = (np.linspace(low[k] - room[k], high[k] + room[k], GRID) for k in range(2))
        plane = np.column_stack([part.ravel() for part in np.meshgrid(x, y)])
        ratios = ratios_of(estimator)[:n_components]
        values = host(estimator.transform(plane))[:, : len(ratios)].T.reshape(len(ratios), GRID, GRID)
        return cls((x, y), values, ratios, points, labels=labels).plot(axes)

    def plot(self, axes: Sequence[Any] | None = None) -> ContoursDisplay:
        """Draw one panel a component.

        Parameters
        ----------
        axes : sequence of matplotlib Axes, optional
            Drawn into; a new figure without them. Surplus axes are hidden.

        Returns
        -------
        ContoursDisplay
            The display itself.
        """
        x, y = self.grid
        p, new = len(self.values), axes is None
        if axes is None:
            height = float(np.clip((y[-1] - y[0]) / (x[-1] - x[0]), 0.3, 2.0))
            axes = new_figure(max(WIDTH * p, 4.0), 0.85 + WIDTH * height).subplots(1, p, squeeze=False)[0]
        self.ax_: Any = axes
        self.figure_: Any = axes[0].figure.figure
        for ax in axes[p:]:
            ax.set_visible(False)
        classes = None
        for i, (ax, values) in enumerate(zip(axes, self.values, strict=False)):
            _draw_contours(ax, x, y, values)
            classes = draw_points(ax, self.X, self.labels)
            ax.set_title(axis_label(i, self.ratios), **TITLE)
        if new:
            draw_legend(self.figure_, classes, loc="outside lower center", ncols=6)
        return self


def _draw_contours(ax: Any, x: np.ndarray, y: np.ndarray, values: np.ndarray) -> None:
    """Draw pale bands on both sides of zero, thin lines between them and a darker line at zero."""
    largest = float(np.max(np.abs(values))) or 1.0
    levels = np.linspace(-largest, largest, LEVELS + 1)
    ax.contourf(x, y, values, levels, cmap="RdBu_r", alpha=0.45, zorder=0)
    ax.contour(x, y, values, levels, colors="white", linewidths=0.6, linestyles="solid", zorder=1)
    if values.min() < 0 < values.max():
        ax.contour(x, y, values, [0.0], colors=INK, linewidths=1.2, zorder=2)
    tidy(ax)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)
