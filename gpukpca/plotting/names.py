"""Names written at points: each where it covers neither points nor other names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca.plotting.style import INK

NAME_SIZE = 8.0
PLACE_RADII = (5.0, 16.0, 28.0, 42.0, 60.0)
# Of slanted names beside each other along a line, in points.
STEP, LIFT, SLANT = 13.0, 26.0, 60.0
# Letters of the default font are about 0.6 of its size wide.
LETTER = 0.6
LEADER = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.6, "shrinkB": 2.0}

# Half the edge of a point.
DOT = 2.5
SWEEPS = 4
# Of covering the lines through the origin, beside covering a point or a name.
LINE_COST = 0.1
# Offset in points, horizontal and vertical alignment.
Place = tuple[float, float, str, str]


@dataclass(frozen=True)
class Page:
    """What names may cover and what not: boxes (left, low, right, high) in points.

    Attributes
    ----------
    inside : array (4,)
        Of the axes.
    dots, lines : array, shape (k, 4)
        Of the points, and of the lines through the origin.
    """

    inside: np.ndarray
    dots: np.ndarray
    lines: np.ndarray


def write_names(ax: Any, x: np.ndarray, y: np.ndarray, names: list[str]) -> None:
    """Each name at the place beside its point that covers least, with a thin line where it is far."""
    spots, inside = _spots_in_points(ax, x, y)
    dots = np.hstack([spots - DOT, spots + DOT])
    for i, place in enumerate(_settled(spots, names, Page(inside, dots, _zero_lines_in_points(ax, inside)), _places())):
        dx, dy, across, up = place
        leader = LEADER if _is_far(place) else None
        _write(ax, names[i], (x[i], y[i]), (dx, dy), ha=across, va=up, arrowprops=leader)


def write_classes(ax: Any, x: np.ndarray, y: np.ndarray, codes: np.ndarray, classes: Any) -> None:
    """The name of every class in the middle of its points, for more classes than colors tell apart."""
    members = [codes == code for code in range(len(classes))]
    middles = np.array([(np.median(x[those]), np.median(y[those])) for those in members])
    spots, inside = _spots_in_points(ax, middles[:, 0], middles[:, 1])
    names, nothing = [str(name) for name in classes], np.empty((0, 4))
    places = _settled(spots, names, Page(inside, nothing, nothing), [(0.0, 0.0, "center", "center"), *_places()])
    for middle, name, (dx, dy, across, up) in zip(middles, names, places, strict=True):
        _write(ax, name, tuple(middle), (dx, dy), ha=across, va=up, color="black", weight="bold", zorder=5)


def write_slanted_names(ax: Any, x: np.ndarray, names: list[str]) -> None:
    """Names above points of one line, in the order of the points, pushed apart as far as they need."""
    spots, inside = _spots_in_points(ax, x, np.zeros_like(x))
    order = np.argsort(x, kind="stable")
    last = LETTER * NAME_SIZE * len(names[order[-1]]) * np.cos(np.radians(SLANT))
    low = inside[0] + NAME_SIZE
    high = max(inside[2] - last, low)
    step = min(STEP, (high - low) / max(len(names) - 1, 1))
    places = pushed_apart(spots[order, 0], step, low, high)
    for i, place in zip(order, places, strict=True):
        offset = (float(place - spots[i, 0]), LIFT)
        # The leader by itself: that of a slanted text starts somewhere at its box.
        _write(ax, "", (x[i], 0.0), (offset[0], LIFT - 2.0), arrowprops=LEADER | {"shrinkA": 0.0})
        _write(ax, names[i], (x[i], 0.0), offset, ha="left", va="bottom", rotation=SLANT, rotation_mode="anchor")


def pushed_apart(wanted: np.ndarray, step: float, low: float, high: float) -> np.ndarray:
    """Ascending places near the ascending `wanted` ones, at least `step` from each other, inside where there is room.

    Neighbors too near form groups, each spread evenly about its mean; groups that meet become one.
    """
    groups: list[tuple[float, int]] = []  # (middle, members)
    for place in wanted:
        middle, members = float(place), 1
        while groups and groups[-1][0] + 0.5 * step * (groups[-1][1] + members) > middle:
            before, more = groups.pop()
            middle = (before * more + middle * members) / (more + members)
            members += more
        groups.append((middle, members))
    places = np.concatenate([m + step * (np.arange(k) - 0.5 * (k - 1)) for m, k in groups])
    count = np.arange(len(places))
    # What stands out at an end is pushed back, and pushes its neighbors.
    places = np.minimum(places, high - step * count[::-1])
    return np.maximum(places, low + step * count)


def _spots_in_points(ax: Any, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where points come to lie on the page, and the box of the axes; known only after the layout."""
    figure = ax.figure.canvas.figure
    figure.draw_without_rendering()
    points = 72.0 / figure.dpi
    return ax.transData.transform(np.column_stack([x, y])) * points, ax.get_window_extent().extents * points


def _zero_lines_in_points(ax: Any, inside: np.ndarray) -> np.ndarray:
    """Boxes of the lines through the origin, a little wider than they are drawn."""
    x, y = ax.transData.transform((0.0, 0.0)) * 72.0 / ax.figure.canvas.figure.dpi
    return np.array([(x - 1.5, inside[1], x + 1.5, inside[3]), (inside[0], y - 0.5, inside[2], y + 0.5)])


def _write(ax: Any, name: str, at: tuple, offset: tuple[float, float], **style: Any) -> None:
    """One name, so many points from its data point, on a white rim."""
    from matplotlib.patheffects import withStroke

    common = {"fontsize": NAME_SIZE, "color": INK, "parse_math": False}
    rim = [withStroke(linewidth=2.0, foreground="white")]
    text = ax.annotate(name, at, xytext=offset, textcoords="offset points", path_effects=rim, **common | style)
    # Places are found for the layout as it is: room made for a name afterwards would move the points below it.
    text.set_in_layout(False)


def _places() -> list[Place]:
    """Offsets in points with alignment: beside the point right, left, above, below, oblique, then farther out."""
    places = []
    for radius in PLACE_RADII:
        for degrees in (0, 180, 90, 270, 45, 135, 315, 225, 22, 158, 338, 202):
            dx, dy = radius * np.cos(np.radians(degrees)), radius * np.sin(np.radians(degrees))
            across = "center" if abs(dx) < 0.3 * radius else ("left" if dx > 0 else "right")
            up = "center" if abs(dy) < 0.3 * radius else ("bottom" if dy > 0 else "top")
            places.append((float(dx), float(dy), across, up))
    return places


def _is_far(place: Place) -> bool:
    """Whether a name there needs a line to its point."""
    return bool(np.hypot(place[0], place[1]) > PLACE_RADII[0] + 1)


def _leader_boxes(spot: np.ndarray, place: Place) -> np.ndarray:
    """Small boxes along the line from a far name to its point, shape (k, 4)."""
    if not _is_far(place):
        return np.empty((0, 4))
    length = float(np.hypot(place[0], place[1]))
    along = np.arange(PLACE_RADII[0], length, 2.0)[:, None] / length
    centers = spot + along * np.array(place[:2])
    return np.hstack([centers - 1.0, centers + 1.0])


def _settled(spots: np.ndarray, names: list[str], page: Page, places: list[Place]) -> list[Place]:
    """A place for every name: one after the other, then each once more where the others have come to be."""
    chosen: list[Place] = [places[0]] * len(names)
    covers = [np.empty((0, 4))] * len(names)
    for _ in range(SWEEPS):
        for i, name in enumerate(names):
            others = np.vstack([page.dots, *covers[:i], *covers[i + 1 :]])
            chosen[i], covers[i] = _best_place(spots[i], name, others, page, places)
    return chosen


def _best_place(
    spot: np.ndarray, name: str, taken: np.ndarray, page: Page, places: list[Place]
) -> tuple[Place, np.ndarray]:
    """The place of least overlap, the first where several are free, and the boxes that the name and its line cover."""
    width, height = LETTER * NAME_SIZE * len(name), 1.15 * NAME_SIZE
    least, best, covers = np.inf, places[0], np.empty((0, 4))
    for place in places:
        dx, dy, across, up = place
        left = spot[0] + dx - {"left": 0.0, "center": 0.5, "right": 1.0}[across] * width
        low = spot[1] + dy - {"bottom": 0.0, "center": 0.5, "top": 1.0}[up] * height
        box = np.array([[left, low, left + width, low + height]])
        covered = np.vstack([box, _leader_boxes(spot, place)])
        outside = width * height - _overlap(box, page.inside[None, :])
        cost = outside + _overlap(covered, taken) + LINE_COST * _overlap(box, page.lines)
        if cost < least - 1e-9:
            least, best, covers = cost, place, covered
        if least < 1e-9:
            break
    return best, covers


def _overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Area that boxes (k, 4) share with boxes (m, 4): left, low, right, high."""
    width = np.minimum(a[:, None, 2], b[None, :, 2]) - np.maximum(a[:, None, 0], b[None, :, 0])
    height = np.minimum(a[:, None, 3], b[None, :, 3]) - np.maximum(a[:, None, 1], b[None, :, 1])
    return float(np.sum(np.clip(width, 0.0, None) * np.clip(height, 0.0, None)))
