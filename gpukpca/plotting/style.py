"""Colors, axes, points and legends that all pictures share."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca.plotting.labels import UNKNOWN, ColorScale, Groups

BAR, LINE, PLAIN, INK, FAINT = "#5b7fa6", "#c8553d", "#33658a", "#333333", "#d9d9d9"
# Vector files of more points than this are slow to open.
RASTERIZE_FROM = 5000
# Beyond this number points hide each other, and their density is drawn on a grid of so many cells.
DENSITY_FROM, DENSITY_GRID = 20_000, 240
TITLE: dict[str, Any] = {"fontsize": 10, "color": INK, "parse_math": False}
# Ticks of dates by the unit between them, from microseconds to years. Each is whole, as the head of a scale names one
# month or day of several.
DATES = ("%Y-%m-%d\n%H:%M:%S.%f", "%Y-%m-%d\n%H:%M:%S", *2 * ["%Y-%m-%d\n%H:%M"], "%Y-%m-%d", "%Y-%m", "%Y")
SMALL: dict[str, Any] = TITLE | {"fontsize": 8}


def tidy(ax: Any, side: str = "left") -> None:
    """Keep the spines that carry a scale, with small ticks in one color."""
    ax.spines[:].set(visible=False, color="#888888")
    ax.spines[[side, "bottom"]].set_visible(True)
    ax.tick_params(labelsize=9, color="#888888", labelcolor=INK, length=3)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_size(10)
        axis.label.set_color(INK)


def axis_label(component: int, ratios: Any, of: str = "") -> str:
    """Return "component 1 (17.9 %)" for the component of index 0, with `of` after the number."""
    share = "" if ratios is None else f" ({100.0 * float(ratios[component]):.1f} %)"
    return f"component {component + 1}{of}{share}"


def marks(n: int) -> dict[str, Any]:
    """Return the style of n points: an area of 40 square points for a few, of 1 for a hundred thousand."""
    area, opacity = np.clip(400.0 / np.sqrt(n), 1.0, 40.0), np.clip(8.0 / np.sqrt(n) + 0.5, 0.55, 0.95)
    return {"s": float(area), "alpha": float(opacity), "linewidths": 0, "rasterized": n >= RASTERIZE_FROM}


def draw_points(
    ax: Any, points: np.ndarray, labels: Groups | ColorScale | None = None, bar: list[Any] | None = None, **style: Any
) -> None:
    """Draw points in the colors of their groups, by number or date with a color bar, or all alike.

    The list of axes `bar`, [ax] without one, gives room to the color bar; an empty one means no bar.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize, to_rgba_array

    colors, markers = np.broadcast_to(to_rgba_array(PLAIN), (len(points), 4)), np.full(len(points), "o")
    if isinstance(labels, Groups):
        shades, shapes = zip(*labels.looks, strict=True)
        colors, markers = to_rgba_array(shades)[labels.codes], np.array(shapes)[labels.codes]
    elif labels is not None:
        limits = Normalize(np.nanmin(labels.values), np.nanmax(labels.values))
        scale = ScalarMappable(limits, colormaps["viridis"].with_extremes(bad=UNKNOWN))
        colors = scale.to_rgba(np.ma.masked_invalid(labels.values))
        color_bar([ax] if bar is None else bar, scale, "label", is_dates=labels.is_dates)
    if len(points) > DENSITY_FROM and points.shape[1] == 2:
        _draw_density(ax, points, colors)
        return
    if points.shape[1] == 3:
        style["depthshade"] = False  # paler colors in the distance are not those of the legend
    # In a random order no group lies on top of the others.
    order = np.random.default_rng(0).permutation(len(points))
    for marker in np.unique(markers):
        rows = order[markers[order] == marker]
        ax.scatter(*points[rows].T, c=colors[rows], marker=marker, **marks(len(points)) | style)


def _draw_density(ax: Any, points: np.ndarray, colors: np.ndarray) -> None:
    """Draw log counts of points by cell, in the mean color of their points."""
    x, y = points.T
    counts, *edges = np.histogram2d(x, y, DENSITY_GRID)
    sums = [np.histogram2d(x, y, edges, weights=channel)[0] for channel in colors[:, :3].T]
    # The logarithm shows single points beside cells of thousands.
    opacity = np.where(counts > 0, 0.25 + 0.75 * np.log1p(counts) / np.log1p(counts.max()), 0.0)
    image = np.stack([*(total / np.maximum(counts, 1.0) for total in sums), opacity], axis=2).transpose(1, 0, 2)
    limits = (*edges[0][[0, -1]], *edges[1][[0, -1]])
    ax.imshow(image.clip(0.0, 1.0), extent=limits, origin="lower", aspect="auto", interpolation="nearest", zorder=1)
    ax.margins(0.03)


def color_bar(axes: list[Any], values: Any, label: str = "", inside: Any = None, is_dates: bool = False) -> None:
    """Draw the color bar of points or contours in axes `inside`, or in room that `axes` give; without axes none."""
    from matplotlib.dates import AutoDateFormatter, AutoDateLocator

    if not axes:
        return
    dates = (
        {"ticks": (locator := AutoDateLocator(maxticks=8)), "format": AutoDateFormatter(locator)} if is_dates else {}
    )
    if is_dates:
        dates["format"].scaled = dict(zip(sorted(dates["format"].scaled), DATES, strict=True))
    bar = axes[0].figure.colorbar(values, ax=axes, cax=inside, pad=0.02, aspect=30, **dates)
    pad = 4.0 if inside is None else 0.0  # three short ticks within a panel leave room
    bar.set_label(label, size=9, color=INK, labelpad=pad)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=9, color="#888888", labelcolor=INK, length=3)
