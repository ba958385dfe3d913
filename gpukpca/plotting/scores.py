"""Scores: a plane of two components, or one component along a line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from gpukpca._typing import ArrayLike, Vector
from gpukpca.exceptions import InvalidParameterError
from gpukpca.plotting.display import Display, drawn_rows, host, ratios_of
from gpukpca.plotting.labels import ColorScale, Groups, check_one_a_row, read_labels, shown_names
from gpukpca.plotting.legends import MAX_ENTRIES, draw_legend
from gpukpca.plotting.names import name_rows, note_below, write_names
from gpukpca.plotting.style import FAINT, axis_label, draw_points, tidy

# Groups that colors alone distinguish; of more, the names are written among the points too.
GROUPS_BY_COLOR = 7
# Height of a row of one component with its name, in units of 1/72 inch.
ROW = 6.5


class ScoresDisplay(Display):
    """Scores of samples in the plane of two components, or along one.

    Parameters
    ----------
    scores : array, shape (n, p)
    ratios : array, shape (p,), optional
        Shares of the variance, for the labels of the axes.
    labels : array, shape (n,), optional
        Colors with a legend, of the largest groups where not all have room. Categories of pandas keep their order.
        More than 12 different numbers or dates get a color bar. Rows without a label (None, NaN, empty text) are gray.
    names : sequence of n str, optional
        Written at the points where there is room, at the outermost first; a line below says how many those are.

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
        self.scores: np.ndarray = drawn_rows(scores, "scores")
        if names is not None:
            check_one_a_row("names", names, len(self.scores), "scores")
        self.ratios: np.ndarray | None = None if ratios is None else host(ratios)
        p = self.scores.shape[1]
        if self.ratios is not None and len(self.ratios) < p:
            raise InvalidParameterError(
                f"{len(self.ratios)} ratios for scores of {p} components; give one for each, or none. Of data, "
                "from_estimator draws the scores."
            )
        self.labels: Groups | ColorScale | None = read_labels(labels, len(self.scores))
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
        chosen = checked_components(components, self.scores.shape[1])
        ax = self._axes_across(ax, chosen[0])
        if len(chosen) == 1:
            self._plot_line(ax, chosen[0])
        else:
            self._write_names(ax, self._draw_plane(ax, chosen))
        return self

    def _axes_across(self, ax: Any, component: int) -> Any:
        """Return the axes to draw into, with those of a component across."""
        ax = self._axes(ax)
        tidy(ax)
        ax.axvline(0.0, color=FAINT, linewidth=0.8, zorder=0)
        ax.set_xlabel(axis_label(component, self.ratios))
        return ax

    def _draw_plane(self, ax: Any, chosen: tuple[int, ...]) -> np.ndarray:
        """Draw the plane of two components with axes and legend; return the points (n, 2)."""
        ax.axhline(0.0, color=FAINT, linewidth=0.8, zorder=0)
        ax.set_ylabel(axis_label(chosen[1], self.ratios))
        points = self.scores[:, chosen]
        draw_points(ax, points, self.labels)
        draw_legend(ax, self.labels)
        return points

    def _write_names(self, ax: Any, points: np.ndarray) -> None:
        """Write names at points (n, 2): of rows, or of groups that colors do not distinguish."""
        if self.names is not None:
            name_rows(ax, points, self.names)
        elif isinstance(self.labels, Groups) and len(self.labels.names) > GROUPS_BY_COLOR:
            largest, codes = self.labels.largest(MAX_ENTRIES), self.labels.codes
            medians = np.array([np.median(points[codes == k], axis=0) for k in largest])
            names = [self.labels.names[k] for k in largest]
            write_names(ax, medians, names, range(len(names)), fontsize=8, weight="bold", color="black", zorder=5)

    def _plot_line(self, ax: Any, component: int) -> None:
        """Draw one component: a row a sample in the order of the scores where names have room, else a row a group."""
        ax.spines["left"].set_visible(False)
        x, height = self.scores[:, component], 72.0 * ax.get_window_extent().height / ax.figure.figure.dpi
        if has_rows := self.names is not None and len(x) * ROW <= height:
            texts, rows = self.names, np.argsort(np.argsort(x, kind="stable")).astype(float)
            ticks = rows
            ax.hlines(rows, 0.0, x, color=FAINT, linewidth=0.8, zorder=0)
            draw_legend(ax, self.labels)
        else:
            texts, codes = (self.labels.names, self.labels.codes) if isinstance(self.labels, Groups) else ([], 0)
            ticks, rows = np.arange(len(texts)), codes + np.random.default_rng(0).uniform(-0.25, 0.25, len(x))
            ax.set_ylim(-0.8, max(len(texts), 1) - 0.2)
        points, every = np.column_stack([x, rows]), max(1, math.ceil(len(texts) * ROW / height))
        draw_points(ax, points, self.labels)
        size = 8 if len(texts) * 2.0 * ROW <= height else 6
        ax.set_yticks(ticks[::every], shown_names(texts)[::every], fontsize=size, parse_math=False)
        if self.names is not None and not has_rows:
            name_rows(ax, points, self.names)
        elif every > 1:
            note_below(ax, f"{len(ticks[::every])} of {len(texts)} names drawn")


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
