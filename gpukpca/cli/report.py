"""The output on the terminal: a bar during the fit, a table of components, what ran and why."""

from __future__ import annotations

import logging
import math
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.segment import Segments
from rich.table import Table as RichTable
from rich.text import Text

from gpukpca import Progress as FitProgress
from gpukpca._formatting import format_seconds, printable
from gpukpca.algorithms.progress import LOGGER, stamped
from gpukpca.algorithms.resources import memory_text
from gpukpca.cli.failures import output_named, say

ROWS_SHOWN = 20
# A heading, values, and their format.
Column = tuple[str, Any, str]


class LogLines(logging.Handler):
    """Print records as lines on the standard error, control characters as escapes."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        say(stamped(self.format(record), record.created), err=True)


@contextmanager
def logged() -> Iterator[None]:
    """Print the log of the library with the time of every line: plan, passes with their seconds, checkpoints."""
    handler, level = LogLines(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)


class SecondsLeft(ProgressColumn):
    """The time until the `end` of a task, which runs down between events."""

    def render(self, task: Task) -> Text:
        """Return the time, where it is known and not over."""
        left = task.fields.get("end", 0.0) - time.monotonic()
        return Text(f"{format_seconds(left)} left" if left > 0.0 else "")


class ProgressBar:
    """Show bars on a terminal for work longer than `delay` seconds, fed by ``KernelPCA(verbose=bar)``.

    One is of the whole fit in time, the others of its parts. A timer shows them, not an event: LAPACK sends none. With
    `hidden` there are none, as where there is no terminal.
    """

    def __init__(self, console: Console, delay: float = 1.0, hidden: bool = False) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            SecondsLeft(),
            TimeElapsedColumn(),
        )
        self.bars: Progress = Progress(*columns, console=console, transient=True)
        self.whole: TaskID = self.bars.add_task("whole fit", total=None, text="", visible=False)
        self.tiles: TaskID = self.bars.add_task("kernel matrix", total=None, text="", visible=False)
        self.passes: TaskID = self.bars.add_task("eigenvectors", total=None, text="")
        self.first_residual: float = 0.0
        # The way of EM, and its text, which steps that do not measure it leave.
        self._step_share: float | None = None
        self._reached: str = ""
        self.resumed: str = ""
        self._lock = threading.Lock()
        self._closed = hidden or not console.is_terminal
        self._timer = threading.Timer(delay, self._show)
        self._timer.daemon = True

    def __enter__(self) -> ProgressBar:
        if not self._closed:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._closed = True
            # Stopping what never started would print an empty line.
            if self.bars.live.is_started:
                self.bars.stop()

    def _show(self) -> None:
        with self._lock:
            if not self._closed:
                self.bars.start()

    def __call__(self, event: FitProgress) -> None:
        """Show one event."""
        if event.stage == "resumed":
            self.resumed = event.text
        if event.stage in ("resumed", "waiting") and not self._closed:
            plain(self.bars.console, event.text)
        if event.stage == "plan":
            self.bars.reset(self.whole)
        whole, left = self.bars.tasks[self.whole], event.seconds_left
        if left is not None or whole.visible:
            spent, whole.total = whole.elapsed or 0.0, None  # a bar that pulses, where no time is known
            self._update(self.whole, None if left is None else spent / max(spent + left, 1e-9), "")
            self.bars.update(self.whole, end=time.monotonic() + (left or 0.0))
        share = event.done / max(event.total, 1)
        if event.stage == "tiles":
            self._update(self.tiles, share, f"{event.done} of {event.total} tiles")
        elif event.stage == "rank":
            self._update(self.tiles, share, f"{event.done} of {event.total} landmarks")
        elif event.stage == "fold":
            self._update(self.tiles, share, event.text)
        elif event.stage == "pass":
            # The time next to the tiles is that of a pass: a full bar would keep the time of the first pass.
            self.bars.reset(self.tiles, text="")
            residual = event.residual
            text = "" if residual is None else f": residual {residual:.0e} (tol {event.tolerance:.0e})"
            self._update(self.passes, self._share(event), f"pass {event.done}{text}")
        elif event.stage == "step":
            residual = event.residual
            if residual is not None:
                self._step_share, self._reached = (
                    self._share(event),
                    f", {residual:.0e} (stops at {event.tolerance:.0e})",
                )
            text = f"step {event.done}: log-likelihood {event.log_likelihood:.6g} an entry{self._reached}"
            self._update(self.passes, self._step_share, text)
            self.bars.update(self.passes, description="EM")

    def _update(self, task: TaskID, share: float | None, text: str) -> None:
        total = None if share is None else 1.0
        self.bars.update(task, total=total, completed=share or 0.0, text=text, visible=True)

    def _share(self, event: FitProgress) -> float | None:
        """Return how far the residual is on its way to the tolerance, in logarithms; None before the first one."""
        if not event.residual or not event.tolerance:
            return None
        self.first_residual = max(self.first_residual, event.residual)
        way = math.log(self.first_residual / event.tolerance)
        return min(1.0, math.log(self.first_residual / event.residual) / way) if way > 0 else 1.0


def show_table(console: Console, row: str, first: int, columns: list[Column], summary: str) -> None:
    """Print the first rows of a table of (heading, values, format), numbered from `first`; nothing without rows.

    No digit is cut: where the terminal is narrow, headings take several lines, and then columns go to further tables.
    """
    count = len(columns[0][1])
    if not count:
        return
    shown = min(count, ROWS_SHOWN)
    numbers = (row, [str(first + i) for i in range(shown)])
    texts = [(heading, [format(float(value), how) for value in values[:shown]]) for heading, values, how in columns]
    if _width(console, [numbers, *texts]) > console.width:
        texts = [(_narrowed(heading, cells), cells) for heading, cells in texts]
    while texts:
        fitting = [k for k in range(2, len(texts) + 1) if _width(console, [numbers, *texts[:k]]) <= console.width]
        block = [numbers, *texts[: max(fitting, default=1)]]
        # A table that is wider than the terminal all the same is wrapped by it, not cut by Rich.
        uncut = console.options.update(max_width=max(console.width, _width(console, block)))
        with output_named():
            console.print(Segments(console.render(_table(block), uncut)), soft_wrap=True, end="")
        texts = texts[len(block) - 1 :]
    if count > ROWS_SHOWN:
        plain(console, f"and {count - ROWS_SHOWN} more; {summary}\n")


def _table(columns: list[tuple[str, list[str]]]) -> RichTable:
    """Return columns of text with their headings as a table."""
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, _ in columns:
        table.add_column(heading, justify="right", vertical="bottom", no_wrap=True)
    for cells in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*cells)
    return table


def _width(console: Console, columns: list[tuple[str, list[str]]]) -> int:
    """Return the width of a table that cuts nothing."""
    endless = console.options.update(max_width=10_000)
    return console.measure(_table(columns), options=endless).maximum


def _narrowed(heading: str, cells: list[str]) -> str:
    """Return a heading in lines as short as its longest word and the longest cell allow."""
    return textwrap.fill(heading, max(map(len, [*heading.split(), *cells])))


def show_run(
    console: Console, lines: list[tuple[str, str]], shape: tuple[int, ...], plan: Any, facts: dict[str, Any]
) -> None:
    """Print what ran and why: the lines of the method, between the data and the cost; `plan` may be None."""
    peak = facts["peak_memory_mib"]
    memory = [] if peak is None else [f"{peak:.0f} MiB at the peak of the process"]
    if plan is not None:
        memory.append(f"of the fit {memory_text(plan.predicted_bytes, plan.available_bytes)}")
    missing = facts["missing"]
    show_pairs(
        console,
        [
            ("data", f"{shape[0]} x {shape[1]} from {facts['input']}"),
            ("columns", facts["columns"]),
            ("missing", f"{missing} of {shape[0] * shape[1]} cells" if missing else ""),
            ("scaled", facts["scaled"]),
            *lines,
            ("checkpoint", facts["checkpoint"]),
            ("time", f"{facts['seconds']:.2f} s to fit"),
            ("memory", "; ".join(memory)),
            *(("written", name) for name in facts["written"]),
        ],
    )


def show_pairs(console: Console, lines: list[tuple[str, str]]) -> None:
    """Print labels and values in two columns, long values not wrapped; leave empty ones out."""
    width = max(len(label) for label, _ in lines) + 2
    for label, value in lines:
        if value:
            plain(console, f"{label:<{width}}{printable(value)}")


def plain(console: Console, text: str) -> None:
    """Print text as it is: no markup, no colors, no wrapping; control characters as escapes."""
    with output_named():
        console.print(printable(text, keep="\n"), markup=False, highlight=False, soft_wrap=True, emoji=False)
