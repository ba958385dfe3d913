"""Figures of a fitted model: the spectrum, and the scores of the first two components.

Matplotlib's object interface only: no pyplot, no global state, nothing to show or close. Save a figure with
``figure.savefig("plot.png")``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpukpca.backend.namespace import to_host

BAR, LINE, PLAIN, INK, FAINT = "#5b7fa6", "#c8553d", "#33658a", "#333333", "#d9d9d9"
# Distinct for most colour-blind readers up to seven (Okabe & Ito), then ordered by contrast.
COLOURS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc3311", "#56b4e9", "#aa4499", "#6b6b6b"),
    *("#ddcc77", "#332288", "#882255", "#88b04b", "#000000"),
)
MOST_CLASSES = len(COLOURS)
MOST_NAMES = 40
# Vector files of more points than this are slow to open.
RASTERIZE_FROM = 5000
BARS_UP_TO = 60
NAME_SIZE = 8.0
PLACE_RADII = (5.0, 16.0, 28.0, 42.0, 60.0)
# Of the height of the cumulative line, the least that the largest bar may have on the same axis.
LOWEST_BAR = 0.15
ABOVE: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.1}
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": INK, "handletextpad": 0.4}


def plot_spectrum(model: Any, ax: Any = None) -> Any:
    """Scree plot: the variance ratio of every component as a bar, their running sum as a line.

    Both on one axis, unless the bars would be too low to read beside the sum; then the sum has its own on the right.

    Parameters
    ----------
    model : fitted estimator
        With `explained_variance_ratio_`.
    ax : matplotlib Axes, optional
        Drawn into; a new figure without one.

    Returns
    -------
    matplotlib Axes
        With the bars.
    """
    ax = _new_axes() if ax is None else ax
    percent = 100.0 * np.asarray(to_host(model.explained_variance_ratio_), dtype=np.float64)
    numbers = np.arange(1, len(percent) + 1)
    largest, total = float(np.max(percent)), float(np.sum(percent))
    if len(percent) <= BARS_UP_TO:
        bars = ax.bar(numbers, percent, width=0.75, color=BAR)
    else:
        bars = ax.stairs(percent, np.arange(len(percent) + 1) + 0.5, fill=True, color=BAR)
    _tidy(ax)
    _component_ticks(ax, len(percent))
    ax.set_ylabel("variance explained (%)")
    if largest >= LOWEST_BAR * total:
        (line,) = _cumulative(ax, numbers, percent)
        ax.set_ylim(0.0, min(100.0, 1.06 * total) or 1.0)
        ax.legend([bars, line], ["of each component", "cumulative"], ncols=2, **ABOVE, **LEGEND)
        return ax
    ax.set_ylim(0.0, 1.08 * largest)
    ax.yaxis.label.set_color(BAR)
    right = ax.twinx()
    _tidy(right, side="right")
    _cumulative(right, numbers, percent)
    right.set_ylim(0.0, 100.0)
    right.set_ylabel("cumulative (%)", color=LINE)
    return ax


def plot_scores(
    scores: Any,
    ratios: Any = None,
    labels: Any = None,
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
        Colours: a legend for at most 12 different labels, a colour bar for more numbers.
    names : sequence of n str, optional
        Written beside the points where there are at most 40.
    ax : matplotlib Axes, optional
        Drawn into; a new figure without one.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        Scores that are no matrix, or labels or names of another length.
    """
    scores = np.asarray(to_host(scores), dtype=np.float64)
    _check_lengths(scores, labels, names)
    ax = _new_axes() if ax is None else ax
    classes, codes = _classes(labels)
    if scores.shape[1] == 1:
        x, y = scores[:, 0], _strip_heights(len(scores), codes)
    else:
        x, y = scores[:, 0], scores[:, 1]
    _tidy(ax)
    _points(ax, x, y, labels, classes, codes)
    ax.set_xlabel(_axis_label(1, ratios))
    if scores.shape[1] == 1:
        _strip_axis(ax, classes, codes)
    else:
        ax.set_ylabel(_axis_label(2, ratios))
        ax.axhline(0.0, color=FAINT, linewidth=0.8, zorder=0)
    ax.axvline(0.0, color=FAINT, linewidth=0.8, zorder=0)
    if names is not None and len(names) <= MOST_NAMES:
        ax.margins(0.14)
        _write_names(ax, x, y, [str(name) for name in names])
    return ax


def plot_fit(
    model: Any,
    scores: Any,
    labels: Any = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
) -> Any:
    """Spectrum and scores side by side.

    Parameters
    ----------
    model : fitted estimator
    scores : array, shape (n, p)
    labels, names : see `plot_scores`
    title : str, optional

    Returns
    -------
    matplotlib Figure
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(10.0, 4.4), dpi=200, layout=ConstrainedLayoutEngine(w_pad=0.1, wspace=0.04))
    if title:
        figure.suptitle(title, fontsize=11, color=INK, parse_math=False)
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.35))
    plot_spectrum(model, left)
    plot_scores(scores, model.explained_variance_ratio_, labels, names, right)
    return figure


def _new_axes() -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(5.6, 4.4), dpi=200, layout="constrained").add_subplot()


def _component_ticks(ax: Any, p: int) -> None:
    """Whole numbers; all of them where they are few."""
    from matplotlib.ticker import MaxNLocator

    ax.set_xlim(0.4, p + 0.6)
    ax.set_xlabel("component")
    if p <= 15:
        ax.set_xticks(range(1, p + 1))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))


def _cumulative(ax: Any, numbers: np.ndarray, percent: np.ndarray) -> Any:
    marker = "o" if len(numbers) <= BARS_UP_TO else None
    style = {"color": LINE, "marker": marker, "markersize": 3.5, "linewidth": 1.4}
    # The last point may lie on the upper edge.
    return ax.plot(numbers, np.cumsum(percent), clip_on=False, **style)


def _tidy(ax: Any, side: str = "left") -> None:
    """Only the spines that carry a scale, small ticks, one ink."""
    for name, spine in ax.spines.items():
        spine.set_visible(name in (side, "bottom"))
        spine.set_color("#888888")
    ax.tick_params(labelsize=9, color="#888888", labelcolor=INK, length=3)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_size(10)
        axis.label.set_color(INK)


def _axis_label(component: int, ratios: Any) -> str:
    if ratios is None:
        return f"component {component}"
    return f"component {component} ({100.0 * float(ratios[component - 1]):.1f} %)"


def _check_lengths(scores: np.ndarray, labels: Any, names: Any) -> None:
    if scores.ndim != 2 or 0 in scores.shape:
        raise ValueError(f"scores must have shape (n, p) with n, p >= 1; got {scores.shape}.")
    for what, values in (("labels", labels), ("names", names)):
        if values is not None and len(values) != len(scores):
            raise ValueError(f"{len(values)} {what} for {len(scores)} rows of scores.")


def _classes(labels: Any) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The different labels and the class of every row; None where they are none or too many."""
    if labels is None:
        return None, None
    classes, codes = np.unique(np.asarray(labels), return_inverse=True)
    return (classes, codes) if len(classes) <= MOST_CLASSES else (None, None)


def _points(ax: Any, x: np.ndarray, y: np.ndarray, labels: Any, classes: Any, codes: Any) -> None:
    """Points in a shuffled order, so that no class lies over the others."""
    n = len(x)
    order = np.random.default_rng(0).permutation(n)
    style: dict[str, Any] = {"s": _area(n), "alpha": _opacity(n), "linewidths": 0, "rasterized": n >= RASTERIZE_FROM}
    if classes is not None:
        ax.scatter(x[order], y[order], c=np.asarray(COLOURS)[codes[order]], **style)
        if len(classes) > 1:
            _legend(ax, classes)
    elif labels is not None and np.asarray(labels).dtype.kind in "iuf":
        dots = ax.scatter(x[order], y[order], c=np.asarray(labels)[order], cmap="viridis", **style)
        bar = ax.figure.colorbar(dots, ax=ax, pad=0.02, aspect=30)
        bar.solids.set_alpha(1.0)
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=9, color="#888888", labelcolor=INK, length=3)
    else:
        ax.scatter(x[order], y[order], color=PLAIN, **style)


def _area(n: int) -> float:
    """Area of a marker in square points: 40 for a few points, 1 for a hundred thousand."""
    return float(np.clip(400.0 / np.sqrt(n), 1.0, 40.0))


def _opacity(n: int) -> float:
    return float(np.clip(8.0 / np.sqrt(n) + 0.5, 0.55, 0.95))


def _legend(ax: Any, classes: np.ndarray) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], linestyle="", marker="o", markersize=5.5, markeredgewidth=0, color=colour)
        for colour in COLOURS[: len(classes)]
    ]
    # Matplotlib drops what starts with an underscore.
    texts = [f" {name}" if str(name).startswith("_") else str(name) for name in classes]
    legend = ax.legend(handles, texts, loc="center left", bbox_to_anchor=(1.0, 0.5), borderaxespad=0.3, **LEGEND)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _strip_heights(n: int, codes: np.ndarray | None) -> np.ndarray:
    """One row for every class, spread a little so that points do not hide each other."""
    spread = 0.0 if n <= MOST_NAMES else 0.25
    jitter = np.random.default_rng(0).uniform(-spread, spread, n)
    return jitter if codes is None else codes + jitter


def _strip_axis(ax: Any, classes: np.ndarray | None, codes: np.ndarray | None) -> None:
    rows = 1 if classes is None else len(classes)
    ax.set_ylim(-0.8, rows - 0.2)
    ax.spines["left"].set_visible(False)
    ax.set_yticks([] if classes is None else range(rows), [] if classes is None else [str(name) for name in classes])
    if ax.get_legend() is not None:
        # The rows are named already.
        ax.get_legend().remove()


def _write_names(ax: Any, x: np.ndarray, y: np.ndarray, names: list[str]) -> None:
    """Each name at the first place beside its point that is free, in the order of the points."""
    from matplotlib.patheffects import withStroke

    # Where points come to lie is known only after the layout.
    ax.figure.canvas.figure.draw_without_rendering()
    points = 72.0 / ax.figure.canvas.figure.dpi
    spots = ax.transData.transform(np.column_stack([x, y])) * points
    frame = ax.get_window_extent()
    inside = (frame.x0 * points, frame.y0 * points, frame.x1 * points, frame.y1 * points)
    taken = [(px - 2.5, py - 2.5, px + 2.5, py + 2.5) for px, py in spots]
    for i, name in enumerate(names):
        (dx, dy, across, up), rectangle = _free_place(spots[i], name, taken, inside)
        taken.append(rectangle)
        far = np.hypot(dx, dy) > PLACE_RADII[0] + 1
        ax.annotate(
            *(name, (x[i], y[i])),
            **{"xytext": (dx, dy), "textcoords": "offset points", "ha": across, "va": up},
            **{"fontsize": NAME_SIZE, "color": INK, "parse_math": False},
            path_effects=[withStroke(linewidth=2.0, foreground="white")],
            arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.6, "shrinkB": 2.0} if far else None,
        )


def _places() -> list[tuple[float, float, str, str]]:
    """Offsets in points with alignment: beside the point right, left, above, below, oblique, then farther out."""
    places = []
    for radius in PLACE_RADII:
        for degrees in (0, 180, 90, 270, 45, 135, 315, 225, 22, 158, 338, 202):
            dx, dy = radius * np.cos(np.radians(degrees)), radius * np.sin(np.radians(degrees))
            across = "center" if abs(dx) < 0.3 * radius else ("left" if dx > 0 else "right")
            up = "center" if abs(dy) < 0.3 * radius else ("bottom" if dy > 0 else "top")
            places.append((float(dx), float(dy), across, up))
    return places


Rectangle = tuple[float, float, float, float]


def _free_place(spot: np.ndarray, name: str, taken: list[Rectangle], inside: Rectangle) -> tuple[Any, Rectangle]:
    """The place of least overlap, the first where several are free."""
    # Letters of the default font are about 0.6 of its size wide.
    width, height = 0.6 * NAME_SIZE * len(name), 1.15 * NAME_SIZE
    best: tuple[float, Any, Rectangle] = (np.inf, None, inside)
    for place in _places():
        dx, dy, across, up = place
        left = spot[0] + dx - {"left": 0.0, "center": 0.5, "right": 1.0}[across] * width
        low = spot[1] + dy - {"bottom": 0.0, "center": 0.5, "top": 1.0}[up] * height
        rectangle = (left, low, left + width, low + height)
        outside = width * height - _overlap(rectangle, inside)
        cost = outside + sum(_overlap(rectangle, other) for other in taken)
        if cost < best[0] - 1e-9:
            best = (cost, place, rectangle)
    return best[1], best[2]


def _overlap(a: Rectangle, b: Rectangle) -> float:
    """Area that two rectangles share."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return max(width, 0.0) * max(height, 0.0)
