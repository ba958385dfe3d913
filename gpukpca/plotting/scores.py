"""Scores: a plane of two components, or one component along a line."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from gpukpca._typing import ArrayLike, Vector
from gpukpca.exceptions import InvalidParameterError
from gpukpca.plotting.display import Display, host, ratios_of
from gpukpca.plotting.style import (
    FAINT,
    INK,
    axis_label,
    check_rows,
    checked_labels,
    classes_of,
    draw_legend,
    draw_points,
    shown_name,
    tidy,
    white_rim,
)

MAX_NAMES = 40
# Classes that colors alone distinguish; of more, the names are written among the points too.
CLASSES_BY_COLOR = 7
LEADER: dict[str, Any] = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.6}


class ScoresDisplay(Display):
    """Scores of samples in the plane of two components, or along one.

    Parameters
    ----------
    scores : array, shape (n, p)
    ratios : array, shape (p,), optional
        Shares of the variance, for the labels of the axes.
    labels : array, shape (n,), optional
        Colors with a legend. More than 12 different numbers get a color bar, and those that are not finite are gray.
    names : sequence of n str, optional
        Written at the points where there are at most 40.

    Raises
    ------
    ValueError
        Scores that are no matrix, fewer ratios than components, or labels or names that are not one a row.

    See Also
    --------
    gpukpca.plotting.plot_fit : Spectrum and scores side by side.

    Notes
    -----
    More than 20 000 points are drawn as an image of their density, in the mean color of the points of a cell.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gpukpca import PCA
    >>> from gpukpca.plotting import ScoresDisplay
    >>> X, kinds = load_iris(return_X_y=True)
    >>> ScoresDisplay.from_estimator(PCA(3).fit(X), X, labels=kinds, components=(0, 2)).ax_.get_ylabel()
    'component 3 (1.7 %)'
    """

    def __init__(
        self,
        scores: ArrayLike,
        *,
        ratios: Vector | None = None,
        labels: Vector | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.scores: np.ndarray = host(scores)
        check_rows(self.scores, names)
        self.ratios: np.ndarray | None = None if ratios is None else host(ratios)
        p = self.scores.shape[1]
        if self.ratios is not None and len(self.ratios) < p:
            raise InvalidParameterError(
                f"{len(self.ratios)} ratios for scores of {p} components; give one for each, or none. Of data, "
                "from_estimator draws the scores."
            )
        self.labels: np.ndarray | None = checked_labels(labels, len(self.scores))
        self.names = names

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        *,
        labels: Vector | None = None,
        names: Sequence[str] | None = None,
        components: Sequence[int] = (0, 1),
        ax: Any = None,
    ) -> ScoresDisplay:
        """Draw the scores that a fitted estimator gives rows.

        Parameters
        ----------
        estimator : fitted estimator
            With `transform` and `explained_variance_ratio_`.
        X : array, shape (n, d)
        labels, names : see the class
        components : one or two int
            Indices of the components across and up. A model of one component is drawn along a line.
        ax : matplotlib Axes, optional
            Drawn into; a new figure without one.

        Returns
        -------
        ScoresDisplay
        """
        display = cls(estimator.transform(X), ratios=ratios_of(estimator), labels=labels, names=names)
        return display.plot(ax, components=components)

    def plot(self, ax: Any = None, *, components: Sequence[int] = (0, 1)) -> ScoresDisplay:
        """Draw the scores.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Drawn into; a new figure without one.
        components : one or two int
            Indices of the components across and up.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Components that the scores do not have, or `ax` that is no Axes.
        """
        components = checked_components(components, self.scores.shape[1])
        ax = self._axes(ax)
        tidy(ax)
        names = self.names if self.names is not None and len(self.names) <= MAX_NAMES else None
        ax.axvline(0.0, color=FAINT, linewidth=0.8, zorder=0)
        ax.set_xlabel(axis_label(components[0], self.ratios))
        if len(components) == 1:
            self._plot_line(ax, self.scores[:, components[0]], names)
            return self
        ax.axhline(0.0, color=FAINT, linewidth=0.8, zorder=0)
        ax.set_ylabel(axis_label(components[1], self.ratios))
        points = self.scores[:, components]
        classes = draw_points(ax, points, self.labels)
        draw_legend(ax, classes, loc="center left", bbox_to_anchor=(1.0, 0.5), borderaxespad=0.3)
        if names is not None:
            ax.margins(max(0.14, *ax.margins()))  # those of a biplot are wider
            _write_names(ax, points, names, fontsize=8)
        elif classes is not None and CLASSES_BY_COLOR < len(classes) <= MAX_NAMES:
            _, codes = classes_of(self.labels)  # by which NaN is a class too
            medians = np.array([np.median(points[codes == code], axis=0) for code in range(len(classes))])
            _write_names(ax, medians, classes, fontsize=8, weight="bold", color="black", zorder=5)
        return self

    def _plot_line(self, ax: Any, x: np.ndarray, names: Sequence[str] | None) -> None:
        """Draw one component: a row a sample in the order of the scores with names, else a row a class."""
        ax.spines["left"].set_visible(False)
        if names is not None:
            rows = np.empty(len(x))
            rows[np.argsort(x, kind="stable")] = np.arange(len(x))
            classes = draw_points(ax, np.column_stack([x, rows]), self.labels)
            ax.hlines(rows, 0.0, x, color=FAINT, linewidth=0.8, zorder=0)
            ax.set_yticks(
                rows, [shown_name(name) for name in names], fontsize=8 if len(x) <= 20 else 6, parse_math=False
            )
            draw_legend(ax, classes, loc="center left", bbox_to_anchor=(1.0, 0.5), borderaxespad=0.3)
            return
        classes, codes = classes_of(self.labels)
        jitter = np.random.default_rng(0).uniform(-0.25, 0.25, len(x))
        draw_points(ax, np.column_stack([x, jitter if codes is None else codes + jitter]), self.labels)
        ax.set_ylim(-0.8, (1 if classes is None else len(classes)) - 0.2)
        texts = [] if classes is None else [str(name) for name in classes]
        ax.set_yticks(range(len(texts)), texts, parse_math=False)


def checked_components(components: Any, p: int) -> tuple[int, ...]:
    """Return one or two indices of p components; of one component its index alone."""
    try:
        indices = tuple(index(component) for component in components)
    except TypeError:  # no sequence, or no integers
        indices = ()
    indices = indices[:1] if p == 1 else indices
    if len(indices) not in (1, 2) or len({*indices}) < len(indices) or not all(0 <= one < p for one in indices):
        raise InvalidParameterError(
            f"components={components!r} must be one or two different indices from 0 to {p - 1}, such as (0,)."
        )
    return indices


def _write_names(ax: Any, points: np.ndarray, names: Any, **style: Any) -> None:
    """Write names near points (n, 2): apart from each other where adjustText is installed, else at the points."""
    style = {"color": INK, "parse_math": False, "path_effects": white_rim(), "ha": "center", "va": "center"} | style
    spread_texts(
        ax, [ax.text(*point, shown_name(name), **style) for point, name in zip(points, names, strict=True)], points
    )


def spread_texts(ax: Any, texts: list[Any], points: np.ndarray) -> None:
    """Move texts apart from each other and from points (n, 2), where adjustText is installed."""
    # The layout is settled first, and does not change for the texts: moved points would leave their names.
    for text in texts:
        text.set_in_layout(False)
    try:
        from adjustText import adjust_text
    except ImportError:
        return
    figure = ax.figure.figure
    figure.draw_without_rendering()
    if ax.figure is not figure:  # adjustText 1.4 calls this method of figures on a subfigure too
        ax.figure.draw_without_rendering = figure.draw_without_rendering
    adjust_text(texts, x=points[:, 0], y=points[:, 1], ax=ax, expand=(1.25, 2.2), arrowprops=LEADER, iter_lim=100)
