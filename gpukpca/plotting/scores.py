"""Scores: the first plane, or the only component along a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpukpca._typing import ArrayLike, Vector
from gpukpca.backend.namespace import to_host
from gpukpca.plotting.names import write_classes, write_names, write_slanted_names
from gpukpca.plotting.style import (
    FAINT,
    INK,
    PLAIN,
    axis_label,
    check_lengths,
    classes_of,
    draw_classes,
    legend_of,
    marks,
    new_axes,
    shuffled,
    tidy,
    zero_lines,
)

MOST_NAMES = 40
# Colors alone tell so many classes apart; more are written among their points too.
CLASSES_BY_COLOR = 7
BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "borderaxespad": 0.3}


def plot_scores(
    scores: ArrayLike,
    ratios: Vector | None = None,
    labels: Vector | None = None,
    names: Sequence[str] | None = None,
    ax: Any = None,
) -> Any:
    """The first component against the second, or the only one along a line.

    Parameters
    ----------
    scores : array, shape (n, p)
    ratios : array, shape (p,), optional
        Shares of the variance, for the labels of the axes.
    labels : array (n,), optional
        Colors with a legend; the colors of more than 12 names come again with other marks, and more than 12 numbers
        have a color bar.
    names : sequence of n str, optional
        Written beside the points where there are at most 40.
    ax : matplotlib Axes, optional
        Drawn into; a new figure without one.

    Returns
    -------
    matplotlib Figure
        Of the axes drawn into.

    Raises
    ------
    ValueError
        Scores that are no matrix, or labels or names of another length.
    """
    scores = np.asarray(to_host(scores), dtype=np.float64)
    check_lengths(scores, labels, names)
    ax = new_axes() if ax is None else ax
    tidy(ax)
    written = None if names is None or len(names) > MOST_NAMES else [str(name) for name in names]
    if scores.shape[1] == 1:
        _draw_line(ax, scores[:, 0], labels, written)
    else:
        _draw_plane(ax, scores[:, 0], scores[:, 1], labels, written)
        ax.set_ylabel(axis_label(2, ratios))
    ax.set_xlabel(axis_label(1, ratios))
    return ax.figure.figure


def _draw_plane(ax: Any, x: np.ndarray, y: np.ndarray, labels: Any, names: list[str] | None) -> None:
    """Points of a plane, named where there are names."""
    classes, codes = classes_of(labels)
    zero_lines(ax)
    draw_points(ax, x, y, labels, classes, codes)
    if classes is not None and len(classes) > 1:
        legend_of(ax, classes, **BESIDE)
    if names is not None:
        ax.margins(0.14)
        write_names(ax, x, y, names)
    elif classes is not None and codes is not None and CLASSES_BY_COLOR < len(classes) <= MOST_NAMES:
        write_classes(ax, x, y, codes, classes)


def _draw_line(ax: Any, x: np.ndarray, labels: Any, names: list[str] | None) -> None:
    """Points of a line: with slanted names above them, or in a row for every class."""
    classes, codes = classes_of(labels)
    ax.spines["left"].set_visible(False)
    zero_lines(ax, horizontal=False)
    if names is not None:
        draw_points(ax, x, np.zeros_like(x), labels, classes, codes)
        # The line lies low: names rise from it.
        ax.set_ylim(-0.2, 1.0)
        ax.margins(x=0.08)
        ax.axhline(0.0, color=FAINT, linewidth=0.8, zorder=0)
        ax.set_yticks([])
        if classes is not None and len(classes) > 1:
            legend_of(ax, classes, **BESIDE)
        write_slanted_names(ax, x, names)
        return
    draw_points(ax, x, _rows(len(x), codes), labels, classes, codes)
    rows = 1 if classes is None else len(classes)
    ax.set_ylim(-0.8, rows - 0.2)
    ax.set_yticks([] if classes is None else range(rows), [] if classes is None else [str(name) for name in classes])


def _rows(n: int, codes: np.ndarray | None) -> np.ndarray:
    """One row for every class, spread a little so that points do not hide each other."""
    jitter = np.random.default_rng(0).uniform(-0.25, 0.25, n)
    return jitter if codes is None else codes + jitter


def draw_points(ax: Any, x: np.ndarray, y: np.ndarray, labels: Any, classes: Any, codes: Any) -> None:
    """Points colored by class, by number with a color bar, or all alike."""
    order, style = shuffled(len(x)), marks(len(x))
    if classes is not None:
        draw_classes(ax, np.column_stack([x, y]), codes, **style)
    elif labels is not None and np.asarray(labels).dtype.kind in "iuf":
        dots = ax.scatter(x[order], y[order], c=np.asarray(labels)[order], cmap="viridis", **style)
        bar = ax.figure.colorbar(dots, ax=ax, pad=0.02, aspect=30)
        bar.solids.set_alpha(1.0)
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=9, color="#888888", labelcolor=INK, length=3)
    else:
        ax.scatter(x[order], y[order], color=PLAIN, **style)
