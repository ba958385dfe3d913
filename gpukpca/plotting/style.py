"""What all figures share: colours, the look of axes, marks and legends."""

from __future__ import annotations

from typing import Any

import numpy as np

BAR, LINE, PLAIN, INK, FAINT = "#5b7fa6", "#c8553d", "#33658a", "#333333", "#d9d9d9"
# Distinct for most colour-blind readers up to seven (Okabe & Ito), then ordered by contrast.
COLOURS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc3311", "#56b4e9", "#aa4499", "#6b6b6b"),
    *("#ddcc77", "#332288", "#882255", "#88b04b", "#000000"),
)
MOST_CLASSES = len(COLOURS)
# Vector files of more points than this are slow to open.
RASTERIZE_FROM = 5000
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": INK, "handletextpad": 0.4}
TITLE: dict[str, Any] = {"fontsize": 10, "color": INK, "parse_math": False}
SMALL: dict[str, Any] = TITLE | {"fontsize": 8}


def new_figure(width: float, height: float, title: str | None = None) -> Any:
    """A figure of so many inches that arranges its panels by itself."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), dpi=200, layout=ConstrainedLayoutEngine(w_pad=0.1, wspace=0.04))
    if title:
        figure.suptitle(title, **TITLE | {"fontsize": 11})
    return figure


def new_axes() -> Any:
    """Axes of a figure of their own."""
    from matplotlib.figure import Figure

    return Figure(figsize=(5.6, 4.4), dpi=200, layout="constrained").add_subplot()


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
    """The different labels and the class of every row; None where they are none or too many."""
    if labels is None:
        return None, None
    classes, codes = np.unique(np.asarray(labels), return_inverse=True)
    return (classes, codes) if len(classes) <= MOST_CLASSES else (None, None)


def legend_of(owner: Any, classes: np.ndarray, **place: Any) -> None:
    """A dot and a name for every class, on axes or a figure."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], linestyle="", marker="o", markersize=5.5, markeredgewidth=0, color=colour)
        for colour in COLOURS[: len(classes)]
    ]
    # Matplotlib drops what starts with an underscore.
    texts = [f" {name}" if str(name).startswith("_") else str(name) for name in classes]
    for text in owner.legend(handles, texts, **place, **LEGEND).get_texts():
        text.set_parse_math(False)


def check_lengths(scores: np.ndarray, labels: Any, names: Any) -> None:
    """Raise where scores are no matrix, or labels or names are not one a row."""
    if scores.ndim != 2 or 0 in scores.shape:
        raise ValueError(f"scores must have shape (n, p) with n, p >= 1; got {scores.shape}.")
    for what, values in (("labels", labels), ("names", names)):
        if values is not None and len(values) != len(scores):
            raise ValueError(f"{len(values)} {what} for {len(scores)} rows of scores.")
