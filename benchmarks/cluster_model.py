"""A pass over K on a cluster, from measured rates: computing, bytes moved, work of the scheduler.

A model, no measurement: rates are those of one machine, workers are alike and have a line each, nobody else is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpukpca.distributed.rows import group_count


@dataclass(frozen=True)
class Rates:
    """What was measured.

    Attributes
    ----------
    entry : float
        Seconds for an entry of the upper triangle, made and used twice, on one worker.
    task : float
        Seconds of the scheduler for one task.
    line : float
        Bytes a second into or out of a worker, the scheduler or this process.
    """

    entry: float
    task: float
    line: float


@dataclass(frozen=True)
class Pass:
    """One product with b columns: seconds, added up as if nothing overlapped; bytes to a worker; number of tasks."""

    compute: float
    move: float
    tasks: float
    to_worker: float
    count: int

    @property
    def seconds(self) -> float:
        return self.compute + self.move + self.tasks


def share_of_rows(workers: int) -> float:
    """Return the share of the groups of rows that the pairs of a worker touch, at most."""
    groups = group_count(workers)
    return min(1.0, (groups + 1) / (2.0 * workers) + 2.0 / groups)


def rows_bytes(n: int, d: int, workers: int, item: int) -> float:
    """Return the bytes of X that come to each worker, once a fit: rows, and their prepared form."""
    return n * item * (d + (d + 2) * share_of_rows(workers))


def pass_bytes(n: int, b: int, workers: int, item: int) -> float:
    """Return the bytes that come to each worker in a pass: rows of V, and both parts of the products it adds up."""
    groups = group_count(workers)
    return n * b * item * (share_of_rows(workers) + 2.0 * max(1.0, groups / workers))


def modeled(n: int, b: int, workers: int, item: int, rates: Rates) -> Pass:
    """Return a pass without cached tiles."""
    groups, block = group_count(workers), float(n * b * item)
    count, to_worker = 2 * groups + groups * (groups + 1) // 2, pass_bytes(n, b, workers, item)
    # V and K V go through the scheduler.
    move = (2.0 * block + to_worker + 2.0 * block) / rates.line
    return Pass(rates.entry * n * n / 2.0 / workers, move, rates.task * count, to_worker, count)


def model_table(rates: Rates, d: int, b: int, item: int) -> str:
    """Return the table of 8 and 64 workers at n = 10⁶ and 10⁷."""
    lines = [
        f"A model, not measured: {rates.entry * 1e9:.2f} ns an entry and worker, {rates.task * 1e3:.2f} ms a task, "
        f"lines of {rates.line / 1e9:.2f} GB/s, d = {d}, b = {b}, {item} bytes an item; no tiles cached, no overlap.",
        "",
        "| n | workers | a pass | computing | to a worker, a pass | X to a worker, once | tasks |",
        "|---|---|---|---|---|---|---|",
    ]
    for n in (10**6, 10**7):
        for workers in (8, 64):
            one = modeled(n, b, workers, item, rates)
            cells = [f"{n:.0e}", str(workers), f"{one.seconds:.4g} s", f"{one.compute / one.seconds:.0%}"]
            cells += [f"{size / 1e9:.3g} GB" for size in (one.to_worker, rows_bytes(n, d, workers, item))]
            lines.append(f"| {' | '.join([*cells, str(one.count)])} |")
    return "\n".join(lines)
