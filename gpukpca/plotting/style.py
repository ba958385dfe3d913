"""Colors, axes, points and legends that all pictures share."""

from __future__ import annotations

from typing import Any

import numpy as np

BAR, LINE, PLAIN, INK, FAINT = "#5b7fa6", "#c8553d", "#33658a", "#333333", "#d9d9d9"
# Distinct for most color-blind readers up to seven (Okabe & Ito), then ordered by contrast.
COLORS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc3311", "#56b4e9", "#aa4499", "#6b6b6b"),
    *("#ddcc77", "#332288", "#882255", "#88b04b", "#000000"),
)
# More different numbers than colors are a scale. More names repeat the colors with another marker.
MAX_CLASSES = len(COLORS)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# Entries of a legend, in all and in a column; a column takes the height of a figure.
MAX_ENTRIES, ENTRIES_IN_COLUMN = 40, 20
# Vector files of more points than this are slow to open.
RASTERIZE_FROM = 5000
# Beyond this number points hide each other, and their density is drawn on a grid of so many cells.
DENSITY_FROM, DENSITY_GRID = 20_000, 240
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": INK, "handletextpad": 0.4}
TITLE: dict[str, Any] = {"fontsize": 10, "color": INK, "parse_math": False}
SMALL: dict[str, Any] = TITLE | {"fontsize": 8}


def tidy(ax: Any, side: str = "left") -> None:
    """Keep the spines that carry a scale, with small ticks in one color."""
    for name, spine in ax.spines.items():
        spine.set_visible(name in (side, "bottom"))
        spine.set_color("#888888")
    ax.tick_params(labelsize=9, color="#888888", labelcolor=INK, length=3)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_size(10)
        axis.label.set_color(INK)


def axis_label(component: int, ratios: Any) -> str:
    """Return "component 1 (17.9 %)" for the component of index 0."""
    share = "" if ratios is None else f" ({100.0 * float(ratios[component]):.1f} %)"
    return f"component {component + 1}{share}"


def marks(n: int) -> dict[str, Any]:
    """Return the style of n points: an area of 40 square points for a few, of 1 for a hundred thousand."""
    area, opacity = np.clip(400.0 / np.sqrt(n), 1.0, 40.0), np.clip(8.0 / np.sqrt(n) + 0.5, 0.55, 0.95)
    return {"s": float(area), "alpha": float(opacity), "linewidths": 0, "rasterized": n >= RASTERIZE_FROM}


def classes_of(labels: Any) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the different labels and the class of every row; None without labels, or for more than 12 numbers."""
    if labels is None:
        return None, None
    classes, codes = np.unique(np.asarray(labels), return_inverse=True)
    if len(classes) > MAX_CLASSES and classes.dtype.kind in "iuf":
        return None, None
    return classes, codes


def look_of(code: int) -> tuple[str, str]:
    """Return the color and the marker of a class."""
    return COLORS[code % len(COLORS)], MARKERS[code // len(COLORS) % len(MARKERS)]


def draw_points(ax: Any, points: np.ndarray, labels: Any = None, **style: Any) -> np.ndarray | None:
    """Draw points (n, 2) colored by class, by number with a color bar, or all alike; return the classes."""
    classes, codes = classes_of(labels)
    order, style = np.random.default_rng(0).permutation(len(points)), marks(len(points)) | style
    if len(points) > DENSITY_FROM:
        _draw_density(ax, points, labels, codes)
    elif codes is not None:
        # In a random order no class lies on top of the others.
        looks = np.array([look_of(code) for code in range(int(np.max(codes)) + 1)])[codes][order]
        for marker in MARKERS:
            rows = looks[:, 1] == marker
            if np.any(rows):
                ax.scatter(*points[order][rows].T, c=looks[rows, 0], marker=marker, **style)
    elif labels is not None:
        dots = ax.scatter(*points[order].T, c=np.asarray(labels)[order], cmap="viridis", **style)
        _color_bar(ax, dots)
    else:
        ax.scatter(*points[order].T, color=PLAIN, **style)
    return classes


def _draw_density(ax: Any, points: np.ndarray, labels: Any, codes: np.ndarray | None) -> None:
    """Draw an image of the logarithm of the number of points a cell, in the mean color of the points of the cell."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize, to_rgb

    def counted(weights: Any = None) -> np.ndarray:
        return np.histogram2d(points[:, 0], points[:, 1], DENSITY_GRID, weights=weights)[0]

    counts, x, y = np.histogram2d(points[:, 0], points[:, 1], DENSITY_GRID)
    colors = np.broadcast_to(to_rgb(PLAIN), (*counts.shape, 3))
    if codes is not None or labels is not None:
        with np.errstate(invalid="ignore"):
            if codes is not None:
                of_class = [np.array(to_rgb(look_of(code)[0])) for code in range(int(np.max(codes)) + 1)]
                sums = sum(counted(codes == code)[..., None] * color for code, color in enumerate(of_class))
                colors = np.nan_to_num(sums / counts[..., None])
            else:
                values = np.asarray(labels, dtype=np.float64)
                scale = ScalarMappable(Normalize(values.min(), values.max()), "viridis")
                colors = scale.to_rgba(np.nan_to_num(counted(values) / counts))[..., :3]
                _color_bar(ax, scale)
    opacity = np.where(counts > 0, 0.25 + 0.75 * np.log1p(counts) / np.log1p(counts.max()), 0.0)
    image = np.concatenate([colors, opacity[..., None]], axis=2).transpose(1, 0, 2)
    limits = (x[0], x[-1], y[0], y[-1])
    ax.imshow(image, extent=limits, origin="lower", aspect="auto", interpolation="nearest", zorder=1)
    ax.margins(0.03)


def _color_bar(ax: Any, values: Any) -> None:
    bar = ax.figure.colorbar(values, ax=ax, pad=0.02, aspect=30)
    bar.solids.set_alpha(1.0)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=9, color="#888888", labelcolor=INK, length=3)


def draw_legend(owner: Any, classes: np.ndarray | None, **place: Any) -> None:
    """Draw a marker and a name for every class on axes or a figure; of very many classes for the first ones."""
    from matplotlib.lines import Line2D

    if classes is None or len(classes) < 2:
        return
    shown = classes if len(classes) <= MAX_ENTRIES else classes[: MAX_ENTRIES - 1]
    handles = [
        Line2D([], [], linestyle="", marker=marker, markersize=5.5, markeredgewidth=0, color=color)
        for color, marker in map(look_of, range(len(shown)))
    ]
    # Matplotlib drops labels that start with an underscore.
    texts = [f" {name}" if str(name).startswith("_") else str(name) for name in shown]
    if len(shown) < len(classes):
        handles.append(Line2D([], [], linestyle=""))
        texts.append(f"and {len(classes) - len(shown)} more")
    place = {"ncols": -(-len(texts) // ENTRIES_IN_COLUMN)} | place
    for text in owner.legend(handles, texts, **place, **LEGEND).get_texts():
        text.set_parse_math(False)


def check_lengths(scores: np.ndarray, labels: Any, names: Any = None) -> None:
    """Raise where scores are no matrix of finite numbers, or labels or names are not one a row."""
    if scores.ndim != 2 or 0 in scores.shape:
        raise ValueError(f"scores must have shape (n, p) with n, p >= 1; got {scores.shape}.")
    if len(rows := np.flatnonzero(~np.all(np.isfinite(scores), axis=1))):
        raise ValueError(
            f"{len(rows)} of {len(scores)} rows of scores have NaN or infinity, the first is row {rows[0]}; leave "
            "them out."
        )
    for what, values in (("labels", labels), ("names", names)):
        if values is not None and len(values) != len(scores):
            raise ValueError(f"{len(values)} {what} for {len(scores)} rows of scores.")
