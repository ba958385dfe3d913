"""A map of the samples beside the first plane of their components."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import procrustes

from gpukpca._typing import ArrayLike, Vector
from gpukpca.backend.namespace import to_host
from gpukpca.plotting.style import TITLE, axis_label, check_lengths, marks, new_figure, shuffled, tidy, zero_lines

# South-west, south-east, north-west, north-east: blue to yellow across, dark to light up, as color-blind readers see.
CORNERS = np.array([[0x1B, 0x2A, 0x6B], [0x8A, 0x4B, 0x00], [0x7F, 0xC4, 0xF5], [0xF5, 0xCF, 0x45]]) / 255.0


def plot_map(positions: ArrayLike, scores: ArrayLike, ratios: Vector | None = None, title: str | None = None) -> Any:
    """Where samples live, beside where they lie in the first plane; the same color is the same sample.

    Components have signs by convention; here each has the one that makes it rise with the direction of the map that it
    follows most.

    Parameters
    ----------
    positions : array, shape (n, 2)
        East and north.
    scores : array, shape (n, p), p >= 2
    ratios : array, shape (p,), optional
        Shares of the variance, for the labels of the axes.
    title : str, optional

    Returns
    -------
    matplotlib Figure
        The heading of the plane says its Procrustes correlation with the map.

    Raises
    ------
    ValueError
        Positions that are not (n, 2), fewer than two components, or different numbers of samples.
    """
    positions = np.asarray(to_host(positions), dtype=np.float64)
    scores = np.asarray(to_host(scores), dtype=np.float64)
    if positions.ndim != 2 or positions.shape[1] != 2:
        raise ValueError(f"positions must have shape (n, 2); got {positions.shape}.")
    check_lengths(scores, positions[:, 0], None)
    if scores.shape[1] < 2:
        raise ValueError(f"a plane needs two components, and the scores have shape {scores.shape}.")
    plane = scores[:, :2] * _signs(positions, scores[:, :2])
    figure = new_figure(10.0, 4.4, title)
    left, right = figure.subplots(1, 2)
    colors = _colors(positions)
    _draw(left, positions, colors, "map", ("east", "north"))
    fit = procrustes_correlation(positions, plane)
    heading = f"first plane: correlation with the map {fit:.3f} after rotation"
    _draw(right, plane, colors, heading, (axis_label(1, ratios), axis_label(2, ratios)))
    zero_lines(right)
    return figure


def procrustes_correlation(positions: np.ndarray, plane: np.ndarray) -> float:
    """Correlation of two configurations (n, 2) after the best shift, rotation, reflection and scale."""
    return float(np.sqrt(max(1.0 - procrustes(positions, plane)[2], 0.0)))


def _signs(positions: np.ndarray, plane: np.ndarray) -> np.ndarray:
    """1 or -1 for each of the two components."""
    products = (positions - positions.mean(axis=0)).T @ plane  # (map, component)
    strongest = products[np.argmax(np.abs(products), axis=0), [0, 1]]
    return np.where(strongest < 0, -1.0, 1.0)


def _colors(positions: np.ndarray) -> np.ndarray:
    """A color for every place, mixed from those of the corners."""
    low, high = positions.min(axis=0), positions.max(axis=0)
    east, north = ((positions - low) / np.where(high > low, high - low, 1.0)).T[:, :, None]
    south_west, south_east, north_west, north_east = CORNERS
    return (1 - north) * ((1 - east) * south_west + east * south_east) + north * (
        (1 - east) * north_west + east * north_east
    )


def _draw(ax: Any, points: np.ndarray, colors: np.ndarray, heading: str, axes: tuple[str, str]) -> None:
    order = shuffled(len(points))
    ax.scatter(points[order, 0], points[order, 1], c=colors[order], **marks(len(points)) | {"alpha": 1.0})
    ax.set_aspect("equal", adjustable="datalim")
    tidy(ax)
    ax.set_title(heading, **TITLE)
    ax.set_xlabel(axes[0])
    ax.set_ylabel(axes[1])
