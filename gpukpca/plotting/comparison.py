"""Several projections of the same samples side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpukpca._typing import ArrayLike, Vector
from gpukpca.backend.namespace import to_host
from gpukpca.plotting.scores import draw_points
from gpukpca.plotting.style import (
    PLAIN,
    TITLE,
    axis_label,
    check_lengths,
    classes_of,
    legend_of,
    look_of,
    new_figure,
    tidy,
    zero_lines,
)

BINS = 40


def plot_comparison(
    scores: Mapping[str, ArrayLike],
    ratios: Mapping[str, Vector] | None = None,
    labels: Vector | None = None,
    title: str | None = None,
    same_scale: bool = False,
) -> Any:
    """The first planes of several methods, each under the distribution of its first component alone.

    Where the humps of the classes lie on each other, the first component tells them apart no more.

    Parameters
    ----------
    scores : mapping of str to array, shape (n, p), p >= 2
        Panels from left to right, by name; the samples are the same in all.
    ratios : mapping of str to array, shape (p,), optional
        Shares of the variance, for the panels that have them.
    labels : array (n,), optional
        Colors, as in `plot_scores`.
    title : str, optional
    same_scale : bool
        One scale for all panels, where they show the same coordinates.

    Returns
    -------
    matplotlib Figure

    Raises
    ------
    ValueError
        No panel, panels of different numbers of samples, or fewer than two columns.
    """
    planes = {name: np.asarray(to_host(values), dtype=np.float64) for name, values in scores.items()}
    classes, codes = _checked(planes, labels)
    figure = new_figure(max(4.2 * len(planes), 5.0), 4.8, title)
    axes = figure.subplots(
        2, len(planes), height_ratios=(1.0, 4.5), sharex="all" if same_scale else "col", squeeze=False
    )
    for below in axes[1, 1:] if same_scale else ():
        below.sharey(axes[1, 0])
    for (name, plane), (above, below) in zip(planes.items(), axes.T, strict=True):
        _humps(above, plane[:, 0], codes)
        above.set_title(name, **TITLE)
        tidy(below)
        zero_lines(below)
        draw_points(below, plane[:, 0], plane[:, 1], labels, classes, codes)
        below.set_xlabel(axis_label(1, (ratios or {}).get(name)))
        below.set_ylabel(axis_label(2, (ratios or {}).get(name)))
    if classes is not None and len(classes) > 1:
        legend_of(figure, classes, loc="outside lower center", ncols=min(len(classes), 6))
    return figure


def _checked(planes: dict[str, np.ndarray], labels: Any) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Classes of the labels; an error where the panels are not planes of the same samples."""
    if not planes:
        raise ValueError("scores must hold at least one panel.")
    for name, plane in planes.items():
        check_lengths(plane, labels, None)
        if plane.shape[1] < 2:
            raise ValueError(f"{name}: a plane needs two components, and the scores have shape {plane.shape}.")
    if len({len(plane) for plane in planes.values()}) > 1:
        counts = ", ".join(f"{name} {len(plane)}" for name, plane in planes.items())
        raise ValueError(f"the panels must show the same samples; their numbers are {counts}.")
    return classes_of(labels)


def _humps(ax: Any, x: np.ndarray, codes: np.ndarray | None) -> None:
    """Histograms of the classes over each other, in bins common to all."""
    low, high = float(np.min(x)), float(np.max(x))
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
    groups = [x] if codes is None else [x[codes == code] for code in range(int(np.max(codes)) + 1)]
    for code, group in enumerate(groups):
        color = PLAIN if codes is None else look_of(code)[0]
        heights = np.histogram(group, edges)[0]
        ax.stairs(heights, edges, fill=True, color=color, alpha=0.45)
        ax.stairs(heights, edges, color=color, linewidth=1.0)
    tidy(ax)
    ax.spines["left"].set_visible(False)
    ax.set_yticks([])
    ax.tick_params(labelbottom=False, length=0)
