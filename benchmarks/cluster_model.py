"""A pass over K on a cluster, from measured rates: what is computed, what is moved, what the scheduler does.

A model, no measurement: rates are those of one machine, workers are alike and have a line each, nobody else is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpukpca.distributed.gram import ADDED_BY_WORKERS_FROM
from gpukpca.distributed.partitions import PANELS_A_WORKER


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
    """One product with b columns: seconds, and bytes.

    Attributes
    ----------
    compute, move, tasks : float
        Seconds, added up as if none of it overlapped.
    to_worker : float
        Bytes of V, and of sums that are added up there, that a worker has sent to it.
    to_client : float
        Bytes that come back to this process.
    count : int
        Tasks.
    """

    compute: float
    move: float
    tasks: float
    to_worker: float
    to_client: float
    count: int

    @property
    def seconds(self) -> float:
        return self.compute + self.move + self.tasks

    @property
    def efficiency(self) -> float:
        """Of the time, what is computing."""
        return self.compute / self.seconds


def share_of_rows(workers: int) -> float:
    """Rows that a share needs: its own group of panels, and about half of the others and one half more."""
    return min(1.0, 0.5 + 1.0 / workers)


def rows_bytes(n: int, d: int, workers: int, item: int) -> float:
    """Bytes of X that come to each worker, once a fit."""
    return n * d * item * share_of_rows(workers)


def modeled(n: int, b: int, workers: int, item: int, rates: Rates, added: bool | None = None) -> Pass:
    """A pass without cached tiles; `added`: whether workers add up, by default where the library lets them."""
    added = workers >= ADDED_BY_WORKERS_FROM if added is None else added
    block = float(n * b * item)
    parts = workers * share_of_rows(workers) * block
    count = PANELS_A_WORKER * workers + workers
    if added:
        count += workers + int(workers**2 * share_of_rows(workers))
    to_worker = block * share_of_rows(workers) + (parts / workers if added else 0.0)
    to_client = block if added else parts
    # V goes to the scheduler and from there to workers; what comes back goes through the scheduler too.
    move = (2.0 * block + to_worker + 2.0 * to_client) / rates.line
    return Pass(rates.entry * n * n / 2.0 / workers, move, rates.task * count, to_worker, to_client, count)


def model_table(rates: Rates, d: int, b: int, item: int) -> str:
    """8 and 64 workers at n = 10⁶ and 10⁷, sums on this process beside sums on the workers."""
    lines = [
        f"A model, not measured: {rates.entry * 1e9:.2f} ns an entry and worker, {rates.task * 1e3:.2f} ms a task, "
        f"lines of {rates.line / 1e9:.2f} GB/s, d = {d}, b = {b}, {item} bytes an item; no tiles kept, no overlap.",
        "",
        "| n | workers | sums on | a pass | computing | to a worker, a pass | back | X to a worker, once | tasks |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for n in (10**6, 10**7):
        for workers in (8, 64):
            for added in (False, True):
                one = modeled(n, b, workers, item, rates, added)
                where = "the workers" if added else "this process"
                chosen = " (chosen)" if added == (workers >= ADDED_BY_WORKERS_FROM) else ""
                moved = [one.to_worker, one.to_client, rows_bytes(n, d, workers, item)]
                cells = [f"{n:.0e}", str(workers), where + chosen, f"{one.seconds:.4g} s", f"{one.efficiency:.0%}"]
                cells += [f"{size / 1e9:.3g} GB" for size in moved] + [str(one.count)]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
