"""Legends in the room that axes or a figure have."""

from __future__ import annotations

from typing import Any

from gpukpca._formatting import pluralize
from gpukpca.plotting.labels import FEWEST_LETTERS, LONGEST_NAME, ColorScale, Groups, shown_names
from gpukpca.plotting.style import INK

LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": INK, "handletextpad": 0.4}
BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "borderaxespad": 0.3}
# The most entries, and the largest parts of a legend beside axes (of their width) and below panels (of the height).
MAX_ENTRIES, PART_BESIDE, PART_BELOW = 40, 0.6, 0.3


def draw_legend(owner: Any, labels: Groups | ColorScale | None) -> None:
    """Draw marker and name of every group beside axes, or below the panels of a figure; the largest where many."""
    from matplotlib.figure import FigureBase

    if not isinstance(labels, Groups) or len(labels.names) < 2:
        return
    box, is_below = owner.get_window_extent(), isinstance(owner, FigureBase)
    width, height = (0.9 * box.width, PART_BELOW * box.height) if is_below else (PART_BESIDE * box.width, box.height)
    place = {"loc": "outside lower center"} if is_below else BESIDE
    longest, chosen = LONGEST_NAME, sorted(labels.largest(MAX_ENTRIES))
    trial = _legend(owner, labels, chosen, 0, longest, **place)
    size = trial.get_window_extent()
    trial.remove()
    if size.width > width:
        longest = max(FEWEST_LETTERS, int(longest * width / size.width))
    line = size.height / len(chosen)
    columns, rows = max(1, int(width // size.width)), max(2, int(height // line))
    if (entries := min(rows * columns, MAX_ENTRIES, len(labels.names))) < len(labels.names):
        chosen = sorted(labels.largest(entries - 1))
    columns = min(columns, entries) if is_below else -(-entries // rows)
    legend = _legend(owner, labels, chosen, len(labels.names) - len(chosen), longest, ncols=columns, **place)
    if is_below:
        owner.set_figheight(owner.get_figheight() + (entries - 1) // columns * line / owner.dpi)
    else:
        give_room(owner, right=legend.get_window_extent().width)


def _legend(owner: Any, labels: Groups, chosen: list[int], rest: int, longest: int, **place: Any) -> Any:
    """Draw the legend of the chosen groups, with the number of the rest."""
    from matplotlib.lines import Line2D

    looks = [labels.looks[k] for k in chosen]
    handles = [Line2D([], [], ls="", color=color, marker=marker, ms=5.5, mew=0) for color, marker in looks]
    texts = shown_names([labels.names[k] for k in chosen], longest)
    if rest:
        handles, texts = [*handles, Line2D([], [], ls="")], [*texts, f"and {pluralize(rest, 'more group')}"]
    # Matplotlib drops labels that start with an underscore.
    texts = [f" {text}" if text.startswith("_") else text for text in texts]
    legend = owner.legend(handles, texts, **place, **LEGEND)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend


def give_room(ax: Any, right: float = 0.0, above: float = 0.0, below: float = 0.0) -> None:
    """Make axes smaller by so many pixels, where no layout engine of their figure makes room for what is around."""
    if ax.figure.get_layout_engine() is None:
        (x, y, width, height), (w, h) = ax.get_position().bounds, ax.figure.bbox.size
        smaller = max(width - right / w, width / 3), max(height - (above + below) / h, height / 3)
        ax.set_position((x, y + below / h, *smaller))
