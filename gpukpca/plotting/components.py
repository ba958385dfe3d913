"""Components as functions over the plane that the data lie in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpukpca._typing import ArrayLike, Vector
from gpukpca.backend.namespace import to_host
from gpukpca.plotting.scores import draw_points
from gpukpca.plotting.style import INK, TITLE, check_lengths, classes_of, legend_of, new_figure, tidy

GRID = 120
MARGIN = 0.15
LEVELS = 13
# Inches of a panel.
WIDTH = 2.6


def plot_components(
    model: Any, X: ArrayLike, labels: Vector | None = None, n_components: int = 3, title: str | None = None
) -> Any:
    """Contours of the first components over the plane, with the samples on top.

    What a component tells apart lies on different sides of its zero line, which is drawn darker. The contours of PCA
    are straight lines, those of a kernel need not be.

    Parameters
    ----------
    model : fitted estimator, or mapping of str to such
        With `transform` and `explained_variance_ratio_`, fitted to data of two features; a row of panels for each.
    X : array, shape (n, 2)
        The samples drawn.
    labels : array (n,), optional
        Their colors.
    n_components : int >= 1
        Panels in a row, at most as many as the model has components.
    title : str, optional

    Returns
    -------
    matplotlib Figure

    Raises
    ------
    ValueError
        Data of other than two features, labels of another length, or no panel.

    Notes
    -----
    Cost: a transform of 14 400 points.
    """
    models = dict(model) if isinstance(model, Mapping) else {"": model}
    points = np.asarray(to_host(X), dtype=np.float64)
    check_lengths(points, labels, None)
    if points.shape[1] != 2 or not models or n_components < 1:
        raise ValueError(
            f"contours need data of two features, a model, and n_components >= 1; got shape {points.shape}, "
            f"{len(models)} model(s) and n_components={n_components!r}."
        )
    columns = min(n_components, max(len(to_host(one.explained_variance_ratio_)) for one in models.values()))
    x, y, plane = _plane(points)
    height = float(np.clip((y[-1] - y[0]) / (x[-1] - x[0]), 0.3, 2.0))
    figure = new_figure(max(WIDTH * columns, 4.0), 0.5 + (WIDTH * height + 0.35) * len(models), title)
    axes = figure.subplots(len(models), columns, sharex=True, sharey=True, squeeze=False)
    classes, codes = classes_of(labels)
    for (name, one), row in zip(models.items(), axes, strict=True):
        values = np.asarray(to_host(one.transform(plane)), dtype=np.float64)[:, :columns]
        ratios = to_host(one.explained_variance_ratio_)
        for i, ax in enumerate(row):
            if i >= values.shape[1]:
                ax.set_visible(False)
                continue
            _contours(ax, x, y, values[:, i].reshape(GRID, GRID))
            draw_points(ax, points[:, 0], points[:, 1], labels, classes, codes)
            ax.set_title(f"component {i + 1} ({100.0 * float(ratios[i]):.1f} %)", **TITLE)
        row[0].set_ylabel(name, parse_math=False)
    if classes is not None and len(classes) > 1:
        legend_of(figure, classes, loc="outside lower center", ncols=min(len(classes), 6))
    return figure


def _plane(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates of a grid somewhat larger than the data, and its points as rows."""
    low, high = points.min(axis=0), points.max(axis=0)
    room = MARGIN * np.where(high > low, high - low, 1.0)
    x, y = (np.linspace(low[k] - room[k], high[k] + room[k], GRID) for k in range(2))
    across, along = np.meshgrid(x, y)
    return x, y, np.column_stack([across.ravel(), along.ravel()])


def _contours(ax: Any, x: np.ndarray, y: np.ndarray, values: np.ndarray) -> None:
    """Pale bands on both sides of zero, thin lines between them, a darker line at zero."""
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
