"""Colors, axes, points and legends that all pictures share."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from gpukpca.exceptions import InvalidParameterError
from gpukpca.plotting.display import on_host

BAR, LINE, PLAIN, INK, FAINT, UNKNOWN = "#5b7fa6", "#c8553d", "#33658a", "#333333", "#d9d9d9", "#a6a6a6"
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
# Letters of a name in a picture.
LONGEST_NAME = 30
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


def shown_name(name: Any) -> str:
    """Return a number in six digits, or a name without its middle where it is too long for a picture."""
    text = f"{name:.6g}" if isinstance(name, float) else str(name)
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME * 2 // 3]}…{text[-LONGEST_NAME // 3 + 1 :]}"


def axis_label(component: int, ratios: Any, of: str = "") -> str:
    """Return "component 1 (17.9 %)" for the component of index 0, with `of` after the number."""
    share = "" if ratios is None else f" ({100.0 * float(ratios[component]):.1f} %)"
    return f"component {component + 1}{of}{share}"


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


def draw_points(
    ax: Any, points: np.ndarray, labels: Any = None, bar: list[Any] | None = None, **style: Any
) -> np.ndarray | None:
    """Draw points (n, 2) colored by class, by number with a color bar, or all alike; return the classes.

    The list of axes `bar`, [ax] without one, gives room to the color bar; an empty one means no bar.
    """
    bar = [ax] if bar is None else bar
    classes, codes = classes_of(labels)
    order, style = np.random.default_rng(0).permutation(len(points)), marks(len(points)) | style
    if len(points) > DENSITY_FROM:
        _draw_density(ax, points, labels, codes, bar)
    elif codes is not None:
        # In a random order no class lies on top of the others.
        looks = np.array([look_of(code) for code in range(int(np.max(codes)) + 1)])[codes][order]
        for marker in MARKERS:
            rows = looks[:, 1] == marker
            if np.any(rows):
                ax.scatter(*points[order][rows].T, c=looks[rows, 0], marker=marker, **style)
    elif labels is not None:
        dots = ax.scatter(*points[order].T, c=np.asarray(labels)[order], cmap=_scale(), plotnonfinite=True, **style)
        color_bar(bar, dots, "label")
    else:
        ax.scatter(*points[order].T, color=PLAIN, **style)
    return classes


def _scale() -> Any:
    """Return the colors of numbers; those that are not finite have no place on the scale and are gray."""
    from matplotlib import colormaps

    return colormaps["viridis"].with_extremes(bad=UNKNOWN)


def _draw_density(ax: Any, points: np.ndarray, labels: Any, codes: np.ndarray | None, bar: list[Any]) -> None:
    """Draw an image of the logarithm of the number of points a cell, in the mean color of the points of the cell."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize, to_rgb

    counts, x, y = np.histogram2d(points[:, 0], points[:, 1], DENSITY_GRID)

    def counted(weights: Any) -> np.ndarray:
        return np.histogram2d(points[:, 0], points[:, 1], (x, y), weights=weights)[0]

    colors = np.broadcast_to(to_rgb(PLAIN), (*counts.shape, 3))
    if codes is not None or labels is not None:
        with np.errstate(invalid="ignore"):
            if codes is not None:
                of_class = [np.array(to_rgb(look_of(code)[0])) for code in range(int(np.max(codes)) + 1)]
                sums = sum(counted(codes == code)[..., None] * color for code, color in enumerate(of_class))
                colors = np.nan_to_num(sums / counts[..., None])
            else:
                values = np.asarray(labels, dtype=np.float64)
                known = np.isfinite(values)
                scale = ScalarMappable(Normalize(values[known].min(), values[known].max()), _scale())
                means = counted(np.where(known, values, 0.0)) / counted(known)
                colors = scale.to_rgba(np.ma.masked_invalid(means))[..., :3]
                color_bar(bar, scale, "label")
    opacity = np.where(counts > 0, 0.25 + 0.75 * np.log1p(counts) / np.log1p(counts.max()), 0.0)
    image = np.concatenate([colors, opacity[..., None]], axis=2).transpose(1, 0, 2)
    limits = (x[0], x[-1], y[0], y[-1])
    ax.imshow(image, extent=limits, origin="lower", aspect="auto", interpolation="nearest", zorder=1)
    ax.margins(0.03)


def white_rim() -> list[Any]:
    """Return the path effects of text that lies over points."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.0, foreground="white")]


def color_bar(axes: list[Any], values: Any, label: str = "", inside: Any = None) -> None:
    """Draw the color bar of points or contours in axes `inside`, or in room that `axes` give; without axes none."""
    if not axes:
        return
    bar = axes[0].figure.colorbar(values, ax=axes, cax=inside, pad=0.02, aspect=30)
    bar.set_label(label, size=9, color=INK, labelpad=0.0)
    if bar.solids is not None:
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
    texts = [f" {name}" if name.startswith("_") else name for name in map(shown_name, shown)]
    if len(shown) < len(classes):
        handles.append(Line2D([], [], linestyle=""))
        texts.append(f"and {len(classes) - len(shown)} more")
    place = {"ncols": -(-len(texts) // ENTRIES_IN_COLUMN)} | place
    for text in owner.legend(handles, texts, **place, **LEGEND).get_texts():
        text.set_parse_math(False)


def checked_labels(labels: Any, n: int, of: str = "scores") -> np.ndarray | None:
    """Return labels as an array (n,); raise where they are not one number or text for each of the n rows."""
    if labels is None:
        return None
    _check_one_a_row("labels", labels, n, of)
    values = np.asarray(on_host(labels))
    if values.ndim != 1:
        raise InvalidParameterError(f"labels must have shape ({n},), one a row of {of}; got {values.shape}.")
    try:
        classes_of(values)
    except TypeError as error:  # of a sort
        row = _first_of_another_kind(values)
        raise InvalidParameterError(
            f"labels must be all numbers or all text; that of row {row} is {values[row]!r}. Rows without a label need "
            "a text or a number too."
        ) from error
    return values


def _first_of_another_kind(values: np.ndarray) -> int:
    """Return the first row whose label is no number or text, or is not of the kind of that of row 0."""
    text = isinstance(values[0], str)
    kind = (str,) if text else (Real, np.generic)
    return next((row for row, value in enumerate(values) if not isinstance(value, kind)), 0)


def _check_one_a_row(what: str, values: Any, n: int, of: str) -> None:
    if not hasattr(values, "__len__"):
        raise InvalidParameterError(f"{what}={values!r} must be a sequence, one a row of {of}.")
    if len(values) != n:
        raise InvalidParameterError(f"{len(values)} {what} for {n} rows of {of}.")


def check_rows(rows: np.ndarray, names: Any = None, of: str = "scores") -> None:
    """Raise where rows are no matrix of finite numbers, or names are not one a row; `of` is what has the rows."""
    if rows.ndim != 2 or 0 in rows.shape:
        shape = "(n, p) with n, p" if of == "scores" else "(n, d) with n, d"
        raise InvalidParameterError(f"{of} must have shape {shape} >= 1; got {rows.shape}.")
    if len(wrong := np.flatnonzero(~np.all(np.isfinite(rows), axis=1))):
        raise InvalidParameterError(
            f"{len(wrong)} of {len(rows)} rows of {of} have NaN or infinity, the first is row {wrong[0]}; leave them "
            "out."
        )
    if names is not None:
        _check_one_a_row("names", names, len(rows), of)
