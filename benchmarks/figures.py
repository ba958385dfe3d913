"""Figures of a record: time against n, p, d and accuracy, and memory against n; logarithmic, lines named at their ends.

Contestants on the processor have circles and solid lines, those on a card squares and dashed lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peer import is_ours
from benchmarks.report import Record, families, memory, spaced, where_and_when
from benchmarks.verdicts import Entry, slope

# The file of a figure -> what it shows.
FIGURES = {
    "time_n.png": "Time against the number of samples n",
    "time_p.png": "Time against the number of components p and of features d",
    "time_accuracy.png": "Time against the largest residual: the exact solvers, and approximations by their rank",
    "memory.png": "Growth of memory during the fit (of a card: memory in use) against the number of samples n",
}
OURS = ("#08519c", "#3182bd", "#00b4d8", "#6a51a3")
OTHERS = [f"C{i}" for i in (1, 2, 3, 5, 6, 7, 8)]
OTHERS += ["#111111", "#b8860b", "#008b8b", "#800020", "#556b2f", "#ff1493", "#a0522d"]
# Between two labels, as a share of the height of a panel.
LABEL_GAP = 0.058
# Right of points whose names stand within the panel, as a share of its width without it.
ROOM_FOR_NAMES = 0.3
TIME, LEAST_MIB = "seconds of a fit", 1.0
# The width of a picture: twice that of a page, for dense screens.
PIXELS = 1824


@dataclass
class Panel:
    """Lines of a diagram: (contestant, is it on a card) -> points."""

    title: str
    x: str
    y: str
    lines: dict[tuple[str, bool], list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def shows_size(self) -> bool:
        """Return whether x is n, p or d, whose powers are of interest."""
        return len(self.x) == 1

    def add(self, entry: Entry, x: float | None, y: float | None) -> None:
        if entry["outcome"] == "ok" and x and y:
            self.lines.setdefault((entry["contestant"], entry.get("device_mib") is not None), []).append((x, y))


def panels_of(record: Record) -> dict[str, list[Panel]]:
    """Return the panels of every figure for which a record has points."""
    found: dict[str, list[Panel]] = {name: [] for name in FIGURES}
    for (_, axis), group in families(record["entries"]):
        first = group[0]
        fixed = ", ".join(f"{name} = {spaced(first[name])}" for name in ("n", "d", "p") if name != axis)
        title = f"{'PCA' if first['task'] == 'axes' else 'Kernel PCA'}: {first['data']}, {first['dtype']}, {fixed}"
        if axis == "rank":
            found["time_accuracy.png"].append(accuracy_panel(title, group, record["entries"]))
        if axis in ("n", "p", "d"):
            time = Panel(title, axis, TIME)
            found["time_n.png" if axis == "n" else "time_p.png"].append(time)
            for entry in group:
                time.add(entry, entry[axis], entry["median"])
        if axis == "n":
            panel = Panel(title, axis, f"MiB, at least {LEAST_MIB:g}")
            found["memory.png"].append(panel)
            for entry in group:
                if entry["outcome"] == "ok" and memory(entry) is not None:
                    panel.add(entry, entry[axis], max(memory(entry) or 0.0, LEAST_MIB))
    shown = {name: [panel for panel in panels if panel.lines] for name, panels in found.items()}
    return {name: panels for name, panels in shown.items() if panels}


def accuracy_panel(title: str, group: list[Entry], entries: list[Entry]) -> Panel:
    """Return residual and time of approximations, and of all contestants at the same problem."""
    ranks = sorted(entry["rank"] for entry in group)
    title = f"{title}; ranks {ranks[0]} to {ranks[-1]} from right to left"
    panel = Panel(title, "largest residual ‖K u − λ u‖ / λ₁, recomputed in float64: better to the left", TIME)
    fields = ("data", "n", "d", "p", "dtype", "kernel", "task")
    problem = [group[0][name] for name in fields]
    for entry in entries:
        if [entry.get(name) for name in fields] == problem and (entry in group or entry["case"].startswith("growth-p")):
            panel.add(entry, entry.get("residual"), entry["median"])
    return panel


def draw(record: Record, folder: Path) -> list[Path]:
    """Draw the figures of a record into a folder; return their paths."""
    from matplotlib.figure import Figure

    panels, paths = panels_of(record), []
    names = dict.fromkeys(who for group in panels.values() for panel in group for who, _ in panel.lines)
    ours = [name for name in names if is_ours(name)]
    colors = {name: OURS[i % len(OURS)] for i, name in enumerate(ours)}
    colors |= {name: OTHERS[i % len(OTHERS)] for i, name in enumerate(name for name in names if name not in ours)}
    folder.mkdir(parents=True, exist_ok=True)
    for file, group in panels.items():
        figure = Figure(figsize=(7.6 * min(2, len(group)), 4.6 * -(-len(group) // 2)), layout="constrained")
        axes = figure.subplots(-(-len(group) // 2), min(2, len(group)), squeeze=False).ravel()
        for panel, ax in zip(group, axes, strict=False):
            draw_panel(ax, panel, colors)
        for ax in axes[len(group) :]:
            ax.axis("off")
        figure.suptitle(FIGURES[file], fontsize="large")
        about = where_and_when(record["machine"]).replace("**", "")
        figure.supxlabel(about, fontsize=6, color="#555555", wrap=True)
        paths.append(folder / file)
        figure.savefig(paths[-1], dpi=PIXELS / figure.get_figwidth())
    return paths


def draw_panel(ax: Any, panel: Panel, colors: dict[str, str]) -> None:
    """Draw the lines of a panel, and their names beside it in the order of their ends."""
    ends = []
    for (who, on_card), points in panel.lines.items():
        points.sort()
        style = {"linestyle": "--", "marker": "s"} if on_card else {"linestyle": "-", "marker": "o"}
        ax.loglog(*zip(*points, strict=True), **style, color=colors[who], markersize=4, linewidth=1.4)
        entries = [{"outcome": "ok", panel.x: x, "y": y} for x, y in points]
        power = slope(entries, panel.x, "y") if panel.shows_size else None
        text = f"{who} (card)" if on_card else who
        ends.append((points[-1], text if power is None else f"{text}, {panel.x}^{power:.1f}", colors[who]))
    ax.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    ax.title.set_fontsize("medium")
    ax.grid(alpha=0.25)
    if panel.shows_size:
        ticks = sorted({x for points in panel.lines.values() for x, _ in points})
        ax.set_xticks(ticks, [spaced(int(tick)) for tick in ticks], fontsize="small")
        ax.set_xticks([], minor=True)
    ax.autoscale_view()
    if not panel.shows_size:
        low, high = ax.get_xlim()
        ax.set_xticks([tick for tick in ax.get_xticks() if low <= tick <= high])
        ax.set_xticks([], minor=True)
        ax.set_xlim(low, high * (high / low) ** ROOM_FOR_NAMES)
    to_panel = ax.transData + ax.transAxes.inverted()
    ends.sort(key=lambda end: end[0][1])
    places = [to_panel.transform(point) for point, _, _ in ends]
    heights = spread([float(y) for _, y in places])
    for (point, text, color), (x, _), height in zip(ends, places, heights, strict=True):
        line = {"arrowstyle": "-", "color": color, "alpha": 0.5, "linewidth": 0.6}
        place = {
            "xytext": (1.03 if panel.shows_size else x + 0.03, height),
            "textcoords": "axes fraction",
            "va": "center",
            "arrowprops": line,
        }
        ax.annotate(text, point, color=color, fontsize="small", **place)


def spread(heights: list[float]) -> list[float]:
    """Return ascending heights moved apart by `LABEL_GAP`, below the top where they fit."""
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + LABEL_GAP)
    top = 1.0
    for i in reversed(range(len(heights))):
        heights[i] = min(heights[i], top)
        top = heights[i] - LABEL_GAP
    return heights
