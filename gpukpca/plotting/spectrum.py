"""The spectrum: shares of the variance, and their running sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca.backend.namespace import to_host
from gpukpca.plotting.style import BAR, LEGEND, LINE, new_axes, tidy

BARS_UP_TO = 60
# Of the height of the cumulative line, the least that the largest bar may have on the same axis.
LOWEST_BAR = 0.15
# Fewer components than this leave room at both sides: a single bar would fill the panel.
FEW = 4
ABOVE: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.1}


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
    matplotlib Figure
        Of the axes drawn into.
    """
    ax = new_axes() if ax is None else ax
    percent = 100.0 * np.asarray(to_host(model.explained_variance_ratio_), dtype=np.float64)
    numbers = np.arange(1, len(percent) + 1)
    largest, total = float(np.max(percent)), float(np.sum(percent))
    if len(percent) <= BARS_UP_TO:
        bars = ax.bar(numbers, percent, width=0.75, color=BAR)
    else:
        bars = ax.stairs(percent, np.arange(len(percent) + 1) + 0.5, fill=True, color=BAR)
    tidy(ax)
    _component_ticks(ax, len(percent))
    ax.set_ylabel("variance explained (%)")
    if largest >= LOWEST_BAR * total:
        (line,) = _cumulative(ax, numbers, percent)
        # Against the whole variance where the components carry most of it.
        ax.set_ylim(0.0, 100.0 if total > 50.0 else 1.06 * total or 1.0)
        ax.legend([bars, line], ["of each component", "cumulative"], ncols=2, **ABOVE, **LEGEND)
        return ax.figure.figure
    ax.set_ylim(0.0, 1.08 * largest)
    ax.yaxis.label.set_color(BAR)
    right = ax.twinx()
    tidy(right, side="right")
    _cumulative(right, numbers, percent)
    right.set_ylim(0.0, 100.0)
    right.set_ylabel("cumulative (%)", color=LINE)
    return ax.figure.figure


def _component_ticks(ax: Any, p: int) -> None:
    """Whole numbers; all of them where they are few."""
    from matplotlib.ticker import MaxNLocator

    margin = 0.6 + 0.5 * max(FEW - p, 0)
    ax.set_xlim(1.0 - margin, p + margin)
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
