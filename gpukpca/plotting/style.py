"""What all figures share: colors, the look of axes, marks and legends."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import numpy as np

BAR, LINE, PLAIN, INK, FAINT = "#5b7fa6", "#c8553d", "#33658a", "#333333", "#d9d9d9"
# Distinct for most color-blind readers up to seven (Okabe & Ito), then ordered by contrast.
COLORS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc3311", "#56b4e9", "#aa4499", "#6b6b6b"),
    *("#ddcc77", "#332288", "#882255", "#88b04b", "#000000"),
)
# Of numbers: more of them are a scale. Of names there may be any number: the colors come again with another mark.
MOST_CLASSES = len(COLORS)
MARKS = ("o", "s", "^", "D", "v", "P", "X")
# Of a legend; each column takes the height of a figure.
MOST_ENTRIES, ENTRIES_IN_COLUMN = 40, 20
# An inch in a notebook, which would show the 200 of a figure twice as large.
NOTEBOOK_DOTS = 96
# Vector files of more points than this are slow to open.
RASTERIZE_FROM = 5000
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": INK, "handletextpad": 0.4}
TITLE: dict[str, Any] = {"fontsize": 10, "color": INK, "parse_math": False}
SMALL: dict[str, Any] = TITLE | {"fontsize": 8}


def figure_class() -> Any:
    """Return Matplotlib's Figure.

    Raises
    ------
    ImportError
        Matplotlib is not installed, or its installation is broken.
    """
    try:
        import matplotlib  # noqa: F401
        from matplotlib.figure import Figure
    except Exception as error:  # a broken installation may fail in any way
        raise ImportError(
            f"pictures need Matplotlib, and its import failed ({type(error).__name__}: {error}): pip install matplotlib"
        ) from error
    return Figure


def new_figure(width: float, height: float, title: str | None = None) -> Any:
    """A figure of so many inches that arranges its panels by itself."""
    make = figure_class()
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.1, wspace=0.04)
    figure = shown_by_ipython(make(figsize=(width, height), dpi=200, layout=layout))
    if title:
        figure.suptitle(title, **TITLE | {"fontsize": 11})
    return figure


def new_axes() -> Any:
    """Axes of a figure of their own."""

    return shown_by_ipython(figure_class()(figsize=(5.6, 4.4), dpi=200, layout="constrained")).add_subplot()


def shown_by_ipython(figure: Any) -> Any:
    """Return the figure with the method that IPython looks for; it shows figures of pyplot alone by itself."""
    figure._repr_png_ = partial(_image_and_size, figure)
    return figure


def _image_and_size(figure: Any) -> tuple[bytes, dict[str, int]]:
    """Return a figure as .png, and the size to show it in."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    width, height = figure.get_size_inches() * NOTEBOOK_DOTS
    return file.getvalue(), {"width": round(width), "height": round(height)}


def tidy(ax: Any, side: str = "left") -> None:
    """Only the spines that carry a scale, small ticks, one ink."""
    for name, spine in ax.spines.items():
        spine.set_visible(name in (side, "bottom"))
        spine.set_color("#888888")
    ax.tick_params(labelsize=9, color="#888888", labelcolor=INK, length=3)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_size(10)
        axis.label.set_color(INK)


def zero_lines(ax: Any, horizontal: bool = True) -> None:
    """Where the mean of the data lies."""
    ax.axvline(0.0, color=FAINT, linewidth=0.8, zorder=0)
    if horizontal:
        ax.axhline(0.0, color=FAINT, linewidth=0.8, zorder=0)


def axis_label(component: int, ratios: Any) -> str:
    """«component 1 (17.9 %)»."""
    if ratios is None:
        return f"component {component}"
    return f"component {component} ({100.0 * float(ratios[component - 1]):.1f} %)"


def marks(n: int) -> dict[str, Any]:
    """Look of n points: an area of 40 square points for a few, of 1 for a hundred thousand."""
    area, opacity = np.clip(400.0 / np.sqrt(n), 1.0, 40.0), np.clip(8.0 / np.sqrt(n) + 0.5, 0.55, 0.95)
    return {"s": float(area), "alpha": float(opacity), "linewidths": 0, "rasterized": n >= RASTERIZE_FROM}


def shuffled(n: int) -> np.ndarray:
    """An order of drawing in which no class lies over the others."""
    return np.random.default_rng(0).permutation(n)


def classes_of(labels: Any) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the different labels and the class of every row; None without labels, or for more than 12 numbers."""
    if labels is None:
        return None, None
    classes, codes = np.unique(np.asarray(labels), return_inverse=True)
    if len(classes) > MOST_CLASSES and classes.dtype.kind in "iuf":
        return None, None
    return classes, codes


def look_of(code: int) -> tuple[str, str]:
    """Return the color and the mark of a class."""
    return COLORS[code % len(COLORS)], MARKS[code // len(COLORS) % len(MARKS)]


def draw_classes(ax: Any, points: np.ndarray, codes: np.ndarray, **style: Any) -> None:
    """Draw points (n, 2) in the colors and with the marks of their classes, in an order in which none lies on top."""
    order = shuffled(len(points))
    of_row = np.array([look_of(code) for code in range(int(np.max(codes)) + 1)])[codes][order]
    for mark in MARKS:
        those = of_row[:, 1] == mark
        if np.any(those):
            ax.scatter(*points[order][those].T, c=of_row[those, 0], marker=mark, **style)


def legend_of(owner: Any, classes: np.ndarray, **place: Any) -> None:
    """Write a mark and a name for every class, on axes or a figure; of very many classes for the first ones."""
    from matplotlib.lines import Line2D

    shown = classes if len(classes) <= MOST_ENTRIES else classes[: MOST_ENTRIES - 1]
    handles = [
        Line2D([], [], linestyle="", marker=mark, markersize=5.5, markeredgewidth=0, color=color)
        for color, mark in map(look_of, range(len(shown)))
    ]
    # Matplotlib drops what starts with an underscore.
    texts = [f" {name}" if str(name).startswith("_") else str(name) for name in shown]
    if len(shown) < len(classes):
        handles.append(Line2D([], [], linestyle=""))
        texts.append(f"and {len(classes) - len(shown)} more")
    place = {"ncols": -(-len(texts) // ENTRIES_IN_COLUMN)} | place
    for text in owner.legend(handles, texts, **place, **LEGEND).get_texts():
        text.set_parse_math(False)


def check_lengths(scores: np.ndarray, labels: Any, names: Any) -> None:
    """Raise where scores are no matrix, or labels or names are not one a row."""
    if scores.ndim != 2 or 0 in scores.shape:
        raise ValueError(f"scores must have shape (n, p) with n, p >= 1; got {scores.shape}.")
    for what, values in (("labels", labels), ("names", names)):
        if values is not None and len(values) != len(scores):
            raise ValueError(f"{len(values)} {what} for {len(scores)} rows of scores.")
