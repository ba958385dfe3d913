"""What a fit shows and leaves behind: targets checked first, a bar, a table, what ran and why, whole files."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from gpukpca import Progress as FitProgress
from gpukpca.cli.table import Table
from gpukpca.decomposition.plan import spelled_bytes

ROWS_SHOWN = 20


# -- files -------------------------------------------------------------------------------------------------------------


def check_target(option: str, path: Path, suffixes: tuple[str, ...], force: bool, source: str) -> None:
    """Raise before any work where `path` could not be written afterwards.

    Raises
    ------
    ValueError
        A suffix that says no known format; the input itself.
    OSError
        No such folder, not writable, a directory, a link, a device, or there already without `force`.
    """
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} {path}: the name must end in {', '.join(suffixes)}.")
    if path.is_dir():
        raise IsADirectoryError(f"{option} {path} is a directory.")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OSError(f"{option} {path} is a link or a device and would be replaced; name a plain file.")
    if path.exists() and Path(source).exists() and path.samefile(source):
        raise ValueError(f"{option} {path} is the input itself.")
    if path.exists() and not force:
        raise FileExistsError(f"{option} {path} exists; --force replaces it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{option} {path}: there is no folder {path.parent}.")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(f"{option} {path} is not writable.")
    try:
        # Permission bits do not tell of read-only and full file systems; a file does.
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(f"{option} {path}: nothing can be written to {path.parent}: {error.strerror}.") from error


def write_scores(
    file: IO[bytes], suffix: str, scores: np.ndarray, arrays: dict[str, Any], table: Table, facts: dict[str, Any]
) -> None:
    """Scores and all that belongs to them as .npz, or scores alone as .csv or .npy."""
    if suffix == ".csv":
        _write_csv(file, scores, table.sample_names)
        return
    if suffix == ".npy":
        np.save(file, scores)
        return
    arrays = {"scores": scores, **arrays, "metadata": np.array(json.dumps(facts))}
    optional = {"labels": table.labels, "sample_names": table.sample_names, "feature_names": table.feature_names}
    arrays |= {name: np.asarray(values) for name, values in optional.items() if values is not None}
    np.savez(file, **arrays)  # no array of objects among them: labels are numbers or text


def _write_csv(file: IO[bytes], scores: np.ndarray, names: tuple[str, ...] | None) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    components = [f"component_{i + 1}" for i in range(scores.shape[1])]
    writer.writerow(components if names is None else ["sample", *components])
    for i, row in enumerate(scores):
        # str of a NumPy number: the fewest digits that give it back in its own precision. Adding 0 makes 0 of -0.
        cells = [str(value) for value in row + 0]
        writer.writerow(cells if names is None else [names[i], *cells])
    text.detach()


# -- the terminal ------------------------------------------------------------------------------------------------------


class ProgressBar:
    """Bars on a terminal for work longer than `delay` seconds, fed by ``KernelPCA(verbose=bar)``.

    A timer shows them, not an event: LAPACK sends none.
    """

    def __init__(self, console: Console, delay: float = 1.0) -> None:
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
        self._lock = threading.Lock()
        self._closed = not console.is_terminal
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
        if event.stage == "tiles":
            self._update(self.tiles, event.done / max(event.total, 1), f"{event.done} of {event.total} tiles")
        if event.stage == "rank":
            self._update(self.tiles, event.done / max(event.total, 1), f"{event.done} of {event.total} landmarks")
        if event.stage == "pass":
            self._update(self.tiles, 1.0, "")
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
    return f"pass {event.done}: residual {event.residual:.0e} (tol {event.tolerance:.0e})"


def show_table(console: Console, row: str, columns: list[tuple[str, Any, str]], together: str) -> None:
    """The first rows of a table of (heading, values, format), numbered as «component» or whatever a row is."""
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in (row, *(heading for heading, _, _ in columns)):
        table.add_column(heading, justify="right", no_wrap=True)
    count = len(columns[0][1])
    for i in range(min(count, ROWS_SHOWN)):
        table.add_row(str(i + 1), *(format(float(values[i]), how) for _, values, how in columns))
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
            ("missing", f"{facts['missing']} of {shape[0] * shape[1]} cells" if facts["missing"] else ""),
            ("scaled", facts["scaled"]),
            *lines,
            ("time", f"{facts['seconds']:.2f} s to fit"),
            ("memory", "; ".join(_memory_in_words(plan, facts["peak_memory_mib"]))),
            *(("written", name) for name in facts["written"]),
        ],
    )


def _memory_in_words(plan: Any, peak: float | None) -> list[str]:
    measured = [] if peak is None else [f"{peak:.0f} MiB at the peak of the process"]
    if plan is None:
        return measured
    predicted, allowed = spelled_bytes(plan.predicted_bytes), spelled_bytes(plan.available_bytes)
    return [*measured, f"{predicted} predicted for the fit, {allowed} allowed"]


def show_pairs(console: Console, lines: list[tuple[str, str]]) -> None:
    """Labels and values in two columns, long values not broken; empty ones left out."""
    width = max(len(label) for label, _ in lines) + 2
    for label, value in lines:
        if value:
            plain(console, f"{label:<{width}}{value}")


def plain(console: Console, text: str) -> None:
    """Text as it is: no markup, no colours, no wrapping."""
    console.print(text, markup=False, highlight=False, soft_wrap=True, emoji=False)


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
