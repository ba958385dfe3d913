"""The spectrum: shares of the variance and their cumulative sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Vector
from gpukpca.plotting.display import Display, host, ratios_of
from gpukpca.plotting.legends import LEGEND, give_room
from gpukpca.plotting.style import BAR, LINE, tidy

MAX_BARS = 60
# The least height of the largest bar on the axis of the cumulative line, relative to that line.
LOWEST_BAR = 0.15
# Fewer components than this leave room at both sides: a single bar would fill the panel.
FEW = 4
# Inches that the legend takes in one line.
WIDE = 2.9


class SpectrumDisplay(Display):
    """Scree plot: the share of the variance of every component as a bar, their cumulative sum as a line.

    Both share one axis, unless the bars would be too low to read; then the sum has its own axis on the right.

    Parameters
    ----------
    ratios : array, shape (p,)
        Shares of the variance, between 0 and 1.

    See Also
    --------
    gpukpca.plotting.plot_fit : Spectrum and scores side by side.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gpukpca import PCA
    >>> from gpukpca.plotting import SpectrumDisplay
    >>> display = SpectrumDisplay.from_estimator(PCA().fit(load_iris().data))
    >>> display.ratios.round(3)
    array([0.925, 0.053, 0.017, 0.005])
    """

    def __init__(self, ratios: Vector) -> None:
        self.ratios: np.ndarray = host(ratios)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> SpectrumDisplay:
        """Draw the shares of the variance of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator, or pipeline that ends with one
            With `explained_variance_ratio_`.
        ax : matplotlib Axes, optional
            Drawn into; a new figure without one.

        Returns
        -------
        SpectrumDisplay
        """
        return cls(ratios_of(estimator)).plot(ax)

    def plot(self, ax: Any = None) -> SpectrumDisplay:
        """Draw the spectrum into `ax`, matplotlib Axes (None: of a new figure); return the display."""
        ax = self._axes(ax)
        percent = 100.0 * self.ratios
        p, largest, total = len(percent), float(np.max(percent)), float(np.sum(percent))
        if p <= MAX_BARS:
            bars = ax.bar(np.arange(1, p + 1), percent, width=0.75, color=BAR)
        else:
            bars = ax.stairs(percent, np.arange(p + 1) + 0.5, fill=True, color=BAR)
        tidy(ax)
        _component_ticks(ax, p)
        ax.set_ylabel("variance explained (%)")
        if largest >= LOWEST_BAR * total:
            (line,) = _plot_sum(ax, percent)
            # Up to 100 % where the components carry most of the variance.
            ax.set_ylim(0.0, 100.0 if total > 50.0 else 1.06 * total or 1.0)
            # In one line where there is the width for it.
            columns = 2 if ax.get_window_extent().width > WIDE * ax.figure.figure.dpi else 1
            place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.1}
            legend = ax.legend([bars, line], ["of each component", "cumulative"], ncols=columns, **place, **LEGEND)
            give_room(ax, above=max(legend.get_window_extent().y1 - ax.figure.bbox.y1, 0.0))
            return self
        ax.set_ylim(0.0, 1.08 * largest)
        ax.yaxis.label.set_color(BAR)
        right = ax.twinx()
        tidy(right, side="right")
        _plot_sum(right, percent)
        right.set_ylim(0.0, 100.0)
        right.set_ylabel("cumulative (%)", color=LINE)
        return self


def _component_ticks(ax: Any, p: int) -> None:
    """Set whole numbers as ticks; all of them where they are few."""
    from matplotlib.ticker import MaxNLocator

    margin = 0.6 + 0.5 * max(FEW - p, 0)
    ax.set_xlim(1.0 - margin, p + margin)
    ax.set_xlabel("component")
    if p <= 15:
        ax.set_xticks(range(1, p + 1))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))


def _plot_sum(ax: Any, percent: np.ndarray) -> Any:
    marker = "o" if len(percent) <= MAX_BARS else None
    style = {"color": LINE, "marker": marker, "markersize": 3.5, "linewidth": 1.4}
    # The last point may lie on the upper edge.
    return ax.plot(np.arange(1, len(percent) + 1), np.cumsum(percent), clip_on=False, **style)
