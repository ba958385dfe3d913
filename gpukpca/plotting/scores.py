"""Scores: one component along a line, two in a plane, or three in space."""

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
# Of the box of three components in its axes, which then have room for the names of the components.
ZOOM = 0.84


class ScoresDisplay(Display):
    """Scores of samples in the plane of two components, along one, or in the space of three.

    Parameters
    ----------
    scores : array, shape (n, p)
    ratios : array, shape (p,), optional
        Shares of the variance, for the labels of the axes.
    labels : array, shape (n,), optional
        Colors with a legend, of the largest groups where not all have room. Categories of pandas keep their order.
        More than 12 different numbers or dates get a color bar. Rows without a label (None, NaN, empty text) are gray.
    names : sequence of n str, optional
        Written at the points where there is room, at the outermost first; a line below says how many those are. For one
        or two components.

    Raises
    ------
    ValueError
        Scores that are no matrix, fewer ratios than components, or labels or names that are not one a row.

    See Also
    --------
    gpukpca.plotting.plot_fit : Spectrum and scores side by side.

    Notes
    -----
    More than 20 000 points of a plane are drawn as an image of their density, in the mean color of the points of a
    cell.

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
        components : one to three int
            Indices of the components along x, y and z. A model of one component is drawn along a line.
        ax : matplotlib Axes, optional
            Drawn into; a new figure without one. Three components need axes with ``projection="3d"``.

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
        components : one to three int
            Indices of the components along x, y and z.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Components that the scores do not have, names for three of them, or `ax` that is no Axes for their number.
        """
        chosen = checked_components(components, self.scores.shape[1])
        if len(chosen) == 3 and self.names is not None:
            raise InvalidParameterError(f"components={components!r}: names are for one or two components.")
        ax = self._named_axes(ax, chosen)
        if len(chosen) == 1:
            self._plot_line(ax, chosen[0])
            return self
        points = self._draw_points(ax, chosen)
        if len(chosen) == 2:
            self._write_names(ax, points)
        return self

    def _named_axes(self, ax: Any, chosen: tuple[int, ...]) -> Any:
        """Return the axes to draw into, named by their components, with lines at zero where they are flat."""
        ax = self._axes(ax, projection_of(chosen))
        tidy(ax)
        ax.set(**{f"{name}label": axis_label(k, self.ratios) for name, k in zip("xyz", chosen, strict=False)})
        if len(chosen) == 3:
            ax.set_box_aspect(None, zoom=ZOOM)
            return ax
        for line in (ax.axvline, ax.axhline)[: len(chosen)]:
            line(0.0, color=FAINT, linewidth=0.8, zorder=0)
        return ax

    def _draw_points(self, ax: Any, chosen: tuple[int, ...]) -> np.ndarray:
        """Draw the points of two or three components with a legend; return them."""
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
    """Return one to three indices of p components; of one component its index alone."""
    try:
        indices = tuple(index(component) for component in components)
    except TypeError:  # no sequence, or no integers
        indices = ()
    indices = indices[:1] if p == 1 and len(indices) == 2 else indices
    if len(indices) not in (1, 2, 3) or len({*indices}) < len(indices) or not all(0 <= one < p for one in indices):
        raise InvalidParameterError(
            f"components={components!r} must be one to three different indices from 0 to {p - 1}, such as (0,)."
        )
    return indices


def projection_of(components: Any) -> str | None:
    """Return Matplotlib's name of axes for so many components."""
    return "3d" if np.size(components) == 3 else None
