"""The output on the terminal: a bar during the fit, a table of components, what was taken, what ran and why."""

from __future__ import annotations

import shlex
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from gpukpca import Progress as FitProgress
from gpukpca._formatting import format_seconds, printable
from gpukpca.algorithms.progress import Pace, stamped
from gpukpca.cli.failures import say
from gpukpca.cli.table import Table
from gpukpca.data.gate import counting_column

ROWS_SHOWN = 20
# A heading, values, and their format.
Column = tuple[str, Any, str]
Lines = list[tuple[str, str]]


class ProgressBar(Progress):
    """Show a bar of the whole fit in time on a terminal, fed by ``KernelPCA(verbose=bar)``, with its present part.

    With `lines` print every event in its place, with the time: plan, passes with their seconds, checkpoints.
    """

    def __init__(self, console: Console, hidden: bool = False, lines: bool = False) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
        self.lines: bool = lines
        self.pace: Pace = Pace()
        hidden = hidden or lines or not console.is_terminal
        super().__init__(*columns, TimeElapsedColumn(), console=console, transient=True, disable=hidden)
        self.whole: TaskID = self.add_task("whole fit", total=None, text="")
        self.resumed: str = ""

    def __call__(self, event: FitProgress) -> None:
        """Show one event."""
        if self.lines and self.pace.shows(event):
            took = "" if event.seconds is None else f" ({event.seconds:.2g} s)"
            say(stamped(f"{event.text}{took}", time.time()), err=True)
        if event.stage == "resumed":
            self.resumed = event.text
        if event.stage in ("resumed", "waiting") and not self.disable:
            self.print(printable(event.text), markup=False, highlight=False, soft_wrap=True)
        text = event.text
        if event.stage == "plan":  # which has many lines
            self.reset(self.whole)
            text = ""
        if (left := event.seconds_left) is not None:
            spent = self.tasks[self.whole].elapsed or 0.0
            self.update(self.whole, total=spent + left, completed=spent)
            if " left" not in text:  # which passes and steps state
                text = f"{text}, {format_seconds(left)} left".removeprefix(", ")
        self.update(self.whole, text=text)

    def stop(self) -> None:
        """Stop the bar; Rich below 14.3 prints a line even where it shows none."""
        if not self.disable:
            super().stop()


def show_table(row: str, first: int, columns: list[Column], summary: str) -> None:
    """Print the first rows of columns of numbers with their headings, numbered from `first`; nothing without rows."""
    count = len(columns[0][1])
    shown = min(count, ROWS_SHOWN)
    if not count:
        return
    texts = [[heading, *(format(float(value), how) for value in values[:shown])] for heading, values, how in columns]
    texts = [[row, *map(str, range(first, first + shown))], *texts]
    widths = [max(map(len, column)) for column in texts]
    lines = ["  ".join(map(str.rjust, cells, widths)) for cells in zip(*texts, strict=True)]
    more = [f"and {count - shown} more; {summary}"] if count > shown else []
    say("\n".join([lines[0], "─" * len(lines[0]), *lines[1:], *more, ""]))


def taken(table: Table) -> str:
    """Return what was read and how it was understood."""
    names = table.feature_names
    held = {"label": table.labels, "index": table.sample_names, "weight": table.weights}
    parts = [table.source, f"rows: {table.X.shape[0]}", f"features: {table.X.shape[1]}"]
    if names:
        parts[-1] += f" ({names[0]} … {names[-1]})" if len(names) > 1 else f" ({names[0]})"
    for what, role in (("labels", "label"), ("names", "index"), ("weights", "weight")):
        if held[role] is not None:
            parts.append(": ".join(filter(None, (what, table.columns.get(role)))))
    if name := counting(table):
        parts.append(f"{name} counts the rows: --index-column {name}")
    return "; ".join(parts)


def counting(table: Table) -> str:
    """Return the column of a table that counts its rows, as the shell takes it; empty where there is none."""
    is_table = table.feature_names is not None or table.first_line is not None
    j = counting_column(table.X) if is_table else None
    return "" if j is None else shlex.quote(table.feature_names[j] if table.feature_names else str(j))


def show_run(lines: Lines, facts: dict[str, Any], memory: str = "") -> None:
    """Print what was read, the lines of what ran, and its cost."""
    peak = facts["peak_memory_mib"]
    held = "" if peak is None else f"{peak:.0f} MiB at the peak of the process"
    cost = [("time", f"{facts['seconds']:.2f} s"), ("memory", "; ".join(filter(None, (held, memory))))]
    show_pairs([("data", facts["input"]), *lines, *cost, *(("written", name) for name in facts["written"])])


def show_pairs(lines: Lines) -> None:
    """Print labels and values in two columns; leave empty ones out."""
    width = max(len(label) for label, _ in lines) + 2
    say("\n".join(f"{label:<{width}}{printable(value)}" for label, value in lines if value))
