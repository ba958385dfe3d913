"""Components as functions over the plane of two features."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from gpukpca._typing import ArrayLike, Vector
from gpukpca.exceptions import InvalidParameterError
from gpukpca.plotting.display import Display, checked_axes, drawn_rows, host, new_figure, ratios_of
from gpukpca.plotting.labels import ColorScale, Groups, read_labels
from gpukpca.plotting.legends import draw_legend
from gpukpca.plotting.style import (
    INK,
    TITLE,
    axis_label,
    color_bar,
    draw_points,
    tidy,
)

GRID = 120
MARGIN = 0.15
LEVELS = 13
# The grays of the lowest and the highest band. Colors are left to the labels.
SHADES = (0.97, 0.62)
PANEL, BESIDE, AROUND = 2.2, 0.75, 1.1  # width of a panel, room for its bar, and above and below it, in inches
MINUS = "\N{MINUS SIGN}"
FEATURES = ("feature 1", "feature 2")
AXES_NEEDED = "axes must be a sequence of matplotlib Axes, such as axes=figure.subplots(1, 3)"


class ContoursDisplay(Display):
    """Contours of the first components over the plane of two features, with the samples on top.

    The gray is the score that a point of the plane would have, by the bar of the panel: the larger, the darker. The
    black line is zero: a component separates what lies on its two sides. The contours of PCA are straight lines; those
    of a kernel need not be.

    Parameters
    ----------
    grid : (array, shape (g,), array, shape (g,))
        Coordinates across and up.
    values : array, shape (p, g, g)
        Scores of the first p components at the points of the grid.
    ratios : array, shape (q,), q >= p
        Shares of the variance of all components of the model. The titles say where q > p.
    X : array, shape (n, 2)
        Samples.
    labels : array, shape (n,), optional
        Their colors.
    names : sequence of 2 str, optional
        Of the features; "feature 1" and "feature 2" without them.

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
        self,
        grid: tuple[Any, Any],
        values: ArrayLike,
        ratios: Vector,
        X: ArrayLike,
        *,
        labels: Vector | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.grid = grid
        self.values: np.ndarray = host(values)
        self.ratios: np.ndarray = host(ratios)
        self.X: np.ndarray = drawn_rows(X)
        self.labels: Groups | ColorScale | None = read_labels(labels, len(self.X), "X")
        self.names: Sequence[str] = FEATURES if names is None else names

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
            With `transform` and `explained_variance_ratio_`, fitted to data of two features. Their names, where it
            has `feature_names_in_`, are those of the axes.
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
            Data of other than two features, labels that are not one a row, no panel, or `axes` that are none.

        Notes
        -----
        Cost: a transform of 14 400 points.
        """
        points = drawn_rows(X)
        if points.shape[1] != 2 or not isinstance(n_components, Integral) or n_components < 1:
            raise InvalidParameterError(
                f"contours need data of two features and an integer n_components >= 1; got shape {points.shape} and "
                f"n_components={n_components!r}."
            )
        low, high = points.min(axis=0), points.max(axis=0)
        room = MARGIN * np.where(high > low, high - low, 1.0)
        x, y = (np.linspace(low[k] - room[k], high[k] + room[k], GRID) for k in range(2))
        plane = np.column_stack([part.ravel() for part in np.meshgrid(x, y)])
        ratios, names = ratios_of(estimator), getattr(estimator, "feature_names_in_", None)
        with warnings.catch_warnings():
            # scikit-learn's, of rows without the names that the model was fitted with.
            warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
            scores = host(estimator.transform(plane))[:, :n_components]
        values = scores.T.reshape(-1, GRID, GRID)
        return cls((x, y), values, ratios, points, labels=labels, names=names).plot(axes)

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
        p, (x, y) = len(self.values), self.grid
        # Of a panel, in units of its width: that of the plane, within the bounds of a picture.
        height = float(np.clip((y[-1] - y[0]) / (x[-1] - x[0]), 0.3, 2.0))
        if axes is None:
            figure = new_figure(max((PANEL + BESIDE) * p, 4.0), PANEL * height + AROUND)
            panels = list(figure.subplots(1, p, squeeze=False)[0])
        else:
            panels = [checked_axes(ax, needed=AXES_NEEDED) for ax in np.ravel(np.asarray(axes, dtype=object))]
            if not panels:
                raise InvalidParameterError(f"{AXES_NEEDED}; got none.")
        self.ax_: Any = np.asarray(panels)
        self.figure_: Any = panels[0].figure.figure
        shown, surplus = panels[:p], panels[p:]
        of = f" of {len(self.ratios)}" if len(shown) < len(self.ratios) else ""
        for ax in surplus:
            ax.set_visible(False)
        for i, (ax, values) in enumerate(zip(shown, self.values, strict=False)):
            _draw_contours(ax, x, y, values)
            ax.set_box_aspect(height)
            # One bar says what the numbers of all panels are.
            bar = shown if i == len(shown) - 1 else []
            draw_points(ax, self.X, self.labels, bar, linewidths=0.4, edgecolors="white", alpha=1.0)
            ax.set_title(axis_label(i, self.ratios, of), **TITLE)
            ax.set_xlabel(self.names[0], parse_math=False)
            ax.set_ylabel(self.names[1] if i == 0 else "", parse_math=False)
            ax.tick_params(labelleft=i == 0)
        if axes is None:
            draw_legend(self.figure_, self.labels)
        return self


def _draw_contours(ax: Any, x: np.ndarray, y: np.ndarray, values: np.ndarray) -> None:
    """Draw gray bands, a black line at zero, and a bar of the scores."""
    largest = float(np.max(np.abs(values))) or 1.0
    grays = np.linspace(*SHADES, LEVELS).astype(str).tolist()
    bands = ax.contourf(x, y, values, np.linspace(-largest, largest, LEVELS + 1), colors=grays, zorder=0)
    # Each band covers the hairline that smoothing of edges leaves between it and the next one.
    bands.set_edgecolor("face")
    bands.set_linewidth(0.4)
    if values.min() < 0 < values.max():
        ax.contour(x, y, values, [0.0], colors=INK, linewidths=1.2, zorder=2)
    tidy(ax)
    # Axes within the panel are as high as it is.
    inside = ax.inset_axes((1.03, 0.0, 0.05, 1.0))
    color_bar([ax], bands, "score", inside)
    ticks = (-largest, 0.0, largest)
    inside.set_yticks(ticks, [f"{value:.2g}".replace("-", MINUS) for value in ticks])
