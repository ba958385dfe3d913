"""Names beside points, as many as have room."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from gpukpca.plotting.labels import shown_names
from gpukpca.plotting.legends import give_room
from gpukpca.plotting.style import INK, SMALL, marks

# Gaps between points and names, and the margin around axes, in units of 1/72 inch.
GAPS, MARGIN = (2.0, 7.0, 14.0, 22.0), 200
# From names that are not next to their points, lines lead to these.
LINE: dict[str, Any] = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.6, "shrinkA": 0.0, "shrinkB": 2.0}
DIRECTIONS = np.exp(0.25j * np.pi * np.arange(8)).view(float).reshape(8, 2)
# Names that are tried; a plane has room for fewer.
MAX_TRIED = 400


def name_rows(ax: Any, points: np.ndarray, names: Sequence[str]) -> None:
    """Write the names that cover no point and no other text; say below the plane how many those are."""
    ax.margins(max(0.14, *ax.margins()))  # those of a biplot are wider
    note = note_below(ax, f"{len(names)} of {len(names)} names drawn")  # its room is no room for names
    radius = np.sqrt(marks(len(points))["s"]) / 2.0
    written = write_names(ax, points, names, radius=radius, fontsize=8, color=INK)
    note.set_text(f"{written} of {len(names)} names drawn")
    if written == len(names):
        note.remove()


def note_below(ax: Any, text: str) -> Any:
    """Write a line below the label of the axis across; return it."""
    place = {"xycoords": ax.xaxis.label, "textcoords": "offset points", "ha": "center", "va": "top"}
    note = ax.annotate(text, (0.5, 0.0), (0.0, -2.0), **place, **SMALL)
    ax.figure.figure.draw_without_rendering()
    give_room(ax, below=max(ax.figure.bbox.y0 - note.get_window_extent().y0, 0.0))
    return note


def write_names(
    ax: Any, points: np.ndarray, names: Any, order: Any = None, radius: float = 0.0, always: bool = False, **style: Any
) -> int:
    """Write the names of points (n, 2) that cover no other text and no point of this radius; return their number.

    They are tried in `order`; without it, from the points farthest from the center inward. Without a radius they may
    lie on the points. With `always`, those that have no room are written over others.
    """
    from matplotlib.patheffects import withStroke

    if not len(points):
        return 0
    ax.figure.figure.draw_without_rendering()  # settles the layout
    unit, texts, written = ax.figure.figure.dpi / 72.0, shown_names(names), 0
    corner = ax.bbox.p0 - MARGIN * unit
    places = (ax.transData.transform(points) - corner) / unit
    away = places - places.mean(axis=0)
    # What is covered, in cells of 1/72 inch; names have no room in the margin.
    covered = np.pad(np.zeros(np.ceil(ax.bbox.size / unit).astype(int), dtype=bool), MARGIN, constant_values=True)
    for step in product(range(-int(radius), int(radius) + 1), repeat=2) if radius else ():
        covered[tuple((places + step).astype(int).clip(0, np.array(covered.shape) - 1).T)] = True
    for text in ax.texts:
        covered[_cells(*(text.get_window_extent().get_points() - corner) / unit)] = True
    rim = [withStroke(linewidth=2.0, foreground="white")]
    # Names stay out of the layout: moved points would leave them.
    style = {"parse_math": False, "path_effects": rim, "ha": "center", "va": "center", "in_layout": False} | style
    trial = ax.text(0.0, 0.0, "", **style)
    for k in (np.argsort(-np.linalg.norm(away, axis=1), kind="stable") if order is None else order)[:MAX_TRIED]:
        trial.set_text(texts[k])
        half = trial.get_window_extent().size / unit / 2.0
        outward = np.round(DIRECTIONS[np.argsort(-DIRECTIONS @ away[k], kind="stable")])
        offsets = [step * (half + radius + gap) for gap, step in product(GAPS, outward)]
        offsets = offsets if radius else [np.zeros(2), *offsets]
        boxes = [_cells(places[k] + offset - half, places[k] + offset + half) for offset in offsets]
        free = (i for i, box in enumerate(boxes) if not covered[box].any())
        if (chosen := next(free, 0 if always else None)) is not None:
            covered[boxes[chosen]] = True
            line = LINE if chosen >= len(offsets) - len(DIRECTIONS) * (len(GAPS) - 1) else None
            ax.annotate(texts[k], points[k], offsets[chosen], textcoords="offset points", arrowprops=line, **style)
            written += 1
    trial.remove()
    return written


def _cells(low: np.ndarray, high: np.ndarray) -> tuple[slice, ...]:
    """Return the cells of a box."""
    return tuple(map(slice, *np.maximum([np.floor(low), np.ceil(high)], 0.0).astype(int)))
