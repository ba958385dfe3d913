"""What a fit shows on the terminal: a bar, a table, what ran and why."""

from __future__ import annotations

import math
import sys
import threading
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from gpukpca import Progress as FitProgress
from gpukpca._formatting import format_bytes, format_seconds, printable

ROWS_SHOWN = 20


# -- the terminal ------------------------------------------------------------------------------------------------------


class ProgressBar:
    """Bars on a terminal for work longer than `delay` seconds, fed by ``KernelPCA(verbose=bar)``.

    A timer shows them, not an event: LAPACK sends none. With `lines` events are lines, as they are for ``verbose=1``.
    """

    def __init__(self, console: Console, delay: float = 1.0, lines: bool = False) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
        )
        self.bars = Progress(*columns, console=console, transient=True)
        self.tiles = self.bars.add_task("kernel matrix", total=None, text="")
        self.passes = self.bars.add_task("eigenvectors", total=None, text="")
        self.first_residual = 0.0
        self.resumed = ""
        self._lock = threading.Lock()
        self._lines = lines
        self._closed = lines or not console.is_terminal
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
        """Take one event."""
        if event.stage == "resumed":
            self.resumed = event.text
        said = event.stage in ("resumed", "waiting") and not self._closed
        if said or (self._lines and event.stage != "tiles"):
            plain(self.bars.console, event.text)
        if event.stage == "tiles":
            text = f"{event.done} of {event.total} tiles{_left_in_words(event)}"
            self._update(self.tiles, event.done / max(event.total, 1), text)
        if event.stage == "rank":
            self._update(self.tiles, event.done / max(event.total, 1), f"{event.done} of {event.total} landmarks")
        if event.stage == "fold":
            self._update(self.tiles, event.done / max(event.total, 1), event.text)
        if event.stage == "pass":
            # The time beside the tiles is that of a pass: a bar once full would show that of the first for ever.
            self.bars.reset(self.tiles, text="")
            self._update(self.passes, self._share(event), _pass_in_words(event))

    def _update(self, task: TaskID, share: float | None, text: str) -> None:
        self.bars.update(task, total=None if share is None else 1.0, completed=share or 0.0, text=text)

    def _share(self, event: FitProgress) -> float | None:
        """How far the residual has come on its way to the tolerance, in logarithms; None before there is one."""
        if not event.residual or not event.tolerance:
            return None
        self.first_residual = max(self.first_residual, event.residual)
        way = math.log(self.first_residual / event.tolerance)
        return min(1.0, math.log(self.first_residual / event.residual) / way) if way > 0 else 1.0


def _pass_in_words(event: FitProgress) -> str:
    """Short enough for eighty columns."""
    if event.residual is None:
        return f"pass {event.done}"
    return f"pass {event.done}: residual {event.residual:.0e} (tol {event.tolerance:.0e}){_left_in_words(event)}"


def _left_in_words(event: FitProgress) -> str:
    return "" if event.seconds_left is None else f", {format_seconds(event.seconds_left)} left"


def show_table(console: Console, row: str, first: int, columns: list[tuple[str, Any, str]], together: str) -> None:
    """The first rows, if any, of a table of (heading, values, format), numbered from `first` as whatever a row is."""
    count = len(columns[0][1])
    if not count:
        return
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in (row, *(heading for heading, _, _ in columns)):
        table.add_column(heading, justify="right", no_wrap=True)
    for i in range(min(count, ROWS_SHOWN)):
        table.add_row(str(first + i), *(format(float(values[i]), how) for _, values, how in columns))
    console.print(table)
    if count > ROWS_SHOWN:
        plain(console, f"and {count - ROWS_SHOWN} more; {together}\n")


def show_run(
    console: Console, lines: list[tuple[str, str]], shape: tuple[int, ...], plan: Any, facts: dict[str, Any]
) -> None:
    """What ran and why: the lines of the method, between the data and what the fit took; `plan` may be None."""
    show_pairs(
        console,
        [
            ("data", f"{shape[0]} x {shape[1]} from {facts['input']}"),
            ("columns", facts["columns"]),
            ("missing", f"{facts['missing']} of {shape[0] * shape[1]} cells" if facts["missing"] else ""),
            ("scaled", facts["scaled"]),
            *lines,
            ("checkpoint", facts["checkpoint"]),
            ("time", f"{facts['seconds']:.2f} s to fit"),
            ("memory", "; ".join(_memory_in_words(plan, facts["peak_memory_mib"]))),
            *(("written", name) for name in facts["written"]),
        ],
    )


def _memory_in_words(plan: Any, peak: float | None) -> list[str]:
    measured = [] if peak is None else [f"{peak:.0f} MiB at the peak of the process"]
    if plan is None:
        return measured
    predicted, allowed = format_bytes(plan.predicted_bytes), format_bytes(plan.available_bytes)
    return [*measured, f"{predicted} predicted for the fit, {allowed} allowed"]


def show_pairs(console: Console, lines: list[tuple[str, str]]) -> None:
    """Labels and values in two columns, long values not broken; empty ones left out."""
    width = max(len(label) for label, _ in lines) + 2
    for label, value in lines:
        if value:
            plain(console, f"{label:<{width}}{printable(value)}")


def plain(console: Console, text: str) -> None:
    """Print text as it is: no markup, no colors, no wrapping; control characters as escapes."""
    console.print(printable(text, keep="\n"), markup=False, highlight=False, soft_wrap=True, emoji=False)


def peak_memory_mib() -> float | None:
    """Largest resident memory of the process so far, None where the system does not say."""
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage would count what the parent process held before exec.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024
