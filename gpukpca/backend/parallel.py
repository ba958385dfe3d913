"""Threads over the tiles of a product on NumPy; tiles one after another elsewhere.

NumPy's elementwise functions use one core, so threads over tiles are the only way to use the others. Tiles are
assigned to workers beforehand: with a queue, sums would depend on timing. BLAS is held to one thread a worker.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache, reduce
from pathlib import Path
from typing import Any, TypeVar

import scipy.linalg  # noqa: F401  (loads its BLAS before the controller searches for BLAS libraries)
from threadpoolctl import ThreadpoolController

from gpukpca.backend import blocking
from gpukpca.backend.elementwise import Scratch, add, put
from gpukpca.backend.limits import blas_variables, cpu_quotas, task_cpus
from gpukpca.backend.namespace import (
    accumulation_dtype,
    full,
    is_numpy,
    is_sparse,
    namespace_of,
    overflow_allowed,
    writable,
)

Result = TypeVar("Result")

# Called by the calling thread after its tiles with (tiles done, tiles in all).
TileReport = Callable[[int, int], None]


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


class _SingleThreadedBlas:
    """Hold BLAS at one thread while at least one product runs anywhere in the process.

    The limits of threadpoolctl are process-wide, and two that overlap leave BLAS at one thread for good: the second
    saves the first one's limit as the original. So there is one limiter, which counts its users.

    A forked process has only the thread that forks: the lock is taken for that moment, and the child has no users.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a handler of signals may fork in the thread that has it
        self._users = 0
        self._before: dict[Any, int] = {}  # the threads of the libraries, where one had several
        self._threads_before = 1
        if hasattr(os, "register_at_fork"):
            held, released = self._lock.acquire, self._lock.release
            os.register_at_fork(before=held, after_in_parent=released, after_in_child=self._restart)

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            try:
                if self._users == 1:
                    known = {library: library.get_num_threads() for library in _blas().lib_controllers}
                    self._threads_before = _most_threads(known.values())
                    self._before = {} if self._threads_before == 1 else known
                    _set_threads(dict.fromkeys(self._before, 1))
            except BaseException:  # an interrupt between two libraries
                self._leave()
                raise

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._leave()

    def _leave(self) -> None:
        """Count one user less, and restore the limits after the last one."""
        self._users = max(0, self._users - 1)  # a thread may fork in the context, and leave it in the child
        if self._users == 0:
            _set_threads(self._before)

    def _restart(self) -> None:
        """Restore the limits in a forked process."""
        self._lock.release()
        if self._users:
            self._users = 0
            _set_threads(self._before)

    def threads_allowed(self) -> int:
        """Return the threads that BLAS may use outside of this context."""
        with self._lock:
            if self._users:
                return self._threads_before
            return _most_threads([library.get_num_threads() for library in _blas().lib_controllers])


@cache
def _release() -> Callable[..., None]:
    """Return the function that ends the control of a thread over OpenBLAS, one for all its copies."""
    releases = (getattr(library, "clear_controlling_thread", None) for library in _blas().lib_controllers)
    return next(filter(None, releases), lambda force: None)


def _set_threads(numbers: dict[Any, int]) -> None:
    """Set the threads of BLAS libraries, from whatever thread calls.

    From threadpoolctl 3.8 on the first thread that sets those of OpenBLAS controls them while it lives, and calls of
    others do nothing: a fit in one would not be held at one thread, or would leave BLAS at one for good.
    """
    if numbers:
        _release()(force=True)
        for library, threads in numbers.items():
            library.set_num_threads(threads)
        _release()(force=True)


def _most_threads(known: Collection[int]) -> int:
    """Return the most threads of the libraries; the usable CPUs where threadpoolctl knows none, as for Accelerate."""
    return max(known) if known else min([usable_cpus(), *blas_variables(os.environ)])


_single_threaded_blas = _SingleThreadedBlas()


def single_threaded_blas(when: bool = True) -> AbstractContextManager[None]:
    """Return the context in which BLAS uses one thread; `map_tiles` inside it still uses as many workers as before.

    Otherwise (`when` is False) the context changes nothing.
    """
    return _single_threaded_blas if when else nullcontext()


def usable_cpus() -> int:
    """Return the number of CPUs this process may use: those it may run on, within the quotas of its control groups."""
    may_run_on = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([may_run_on, *_cpu_quotas()]))


@cache
def _cpu_quotas() -> tuple[int, ...]:
    """Return the CPU quotas, read once: every product needs them."""
    return tuple(cpu_quotas(Path("/")))


def blas_threads() -> int:
    """Return the threads that BLAS may use now."""
    return _single_threaded_blas.threads_allowed()


def worker_count(like: Any, n_jobs: int | None = None, multiplications: float = math.inf) -> int:
    """Return the workers for tiles of arrays like `like`: 1 outside NumPy, else `n_jobs`, at most the usable CPUs.

    None is what BLAS may use now, within the CPUs of a task of a batch job and `n_jobs` of joblib's `parallel_config`.
    A process that limits BLAS, as joblib's workers do, therefore computes products serially. Negative `n_jobs` counts
    from the number of CPUs as in scikit-learn: -1 means all. Work of few `multiplications` gets fewer workers.
    """
    if occupied(2, multiplications) < 2 or not (is_numpy(like) or is_sparse(like)):
        return 1
    if n_jobs is None:
        limit = max(1, min(blas_threads(), usable_cpus(), *task_cpus(os.environ), *_joblib_workers()))
    else:
        limit = _workers_of(n_jobs)
    return occupied(limit, multiplications)


def occupied(workers: int, multiplications: float) -> int:
    """Return how many of the workers some work occupies longer than a thread takes to start; at least 1."""
    return int(max(1, min(workers, multiplications // blocking.MULTIPLICATIONS_A_THREAD)))


def _workers_of(n_jobs: int) -> int:
    """Return the workers that `n_jobs` stands for."""
    return max(1, min(usable_cpus(), n_jobs if n_jobs > 0 else usable_cpus() + 1 + n_jobs))


def _joblib_workers() -> tuple[int, ...]:
    """Return the workers of joblib's active `parallel_config`, if one sets them."""
    joblib = sys.modules.get("joblib.parallel")  # a process without it cannot have set them
    n_jobs = None if joblib is None else joblib.get_active_backend()[1]
    return () if n_jobs is None else (_workers_of(n_jobs),)


def map_tiles(
    work: Callable[[Any], Result],
    tiles: list[Any],
    workers: int,
    report: TileReport | None = None,
    *,
    threads: bool = True,
) -> list[list[Result]]:
    """Return the results of `work` for all tiles, grouped by worker; worker w takes tiles w, w + workers, ... in order.

    The calling thread is worker 0. The other threads end with the call, so that a fork between two calls is safe. An
    interrupt or an exception ends every worker at its next tile. Without `threads`, for little work, the calling thread
    does it all, in the same groups.
    """
    # One BLAS thread also with one worker: products of other threads must not change the last digits here.
    with _single_threaded_blas, overflow_allowed():
        if workers > 1 and len(tiles) > 1 and threads:
            return _threaded(work, [tiles[worker::workers] for worker in range(workers)], len(tiles), report)
        results: list[list[Result]] = [[] for _ in range(workers)]
        for number, tile in enumerate(tiles):
            results[number % workers].append(work(tile))
            if report is not None:
                report(number + 1, len(tiles))
        return results


def _threaded(
    work: Callable[[Any], Result], shares: Sequence[Iterable[Any]], count: int, report: TileReport | None
) -> list[list[Result]]:
    """Return the results of `count` tiles, one list for each share; the iterators of shares may empty one queue."""
    workers = len(shares)
    results: list[list[Result]] = [[] for _ in range(workers)]
    stop = threading.Event()

    def run(worker: int) -> None:
        if worker:
            _hold_thread_local_blas()
        try:
            with overflow_allowed():
                for tile in shares[worker]:
                    if stop.is_set():
                        break
                    results[worker].append(work(tile))
                    if worker == 0 and report is not None:
                        report(sum(map(len, results)), count)
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(max(1, workers - 1)) as pool:
        try:
            futures = [pool.submit(run, worker) for worker in range(1, workers)]
            run(0)
            for future in futures:
                future.result()
        finally:  # an interrupt while this thread waits ends the others too
            stop.set()
    return results


def map_in_order(
    work: Callable[[Any], Result], tiles: list[Any], workers: int, report: TileReport | None = None
) -> list[Result]:
    """Return the results of `work` for all tiles as `map_tiles`, in the order of the tiles."""
    by_worker = map_tiles(work, tiles, workers, report)
    return [by_worker[i % workers][i // workers] for i in range(len(tiles))]


def fold_over(
    part: Callable[..., Any],
    merged: Callable[[Any, Any], Any],
    first: Callable[[Any], Any],
    panels: list[tuple[int, int]],
    workers: int,
    like: Any,
) -> Any:
    """Return ``merged(... merged(first(part 0), part 1) ...)`` over all panels; each worker starts a result.

    A part is ``part(start, stop, scratch)`` and may lie in the memory of `scratch`, arrays like `like`, but not its
    ``first``. The results of the workers are merged in their order.
    """
    if len(panels) == 1:  # half of the time that a few rows take is spent on what follows
        with _single_threaded_blas, overflow_allowed():
            return first(part(*panels[0], Scratch(like)))
    workers = min(workers, len(panels))
    totals: list[Any] = [None] * workers
    scratch = [Scratch(like) for _ in range(workers)]

    def work(number: int) -> None:
        worker = number % workers
        piece = part(*panels[number], scratch[worker])
        totals[worker] = first(piece) if totals[worker] is None else merged(totals[worker], piece)

    map_tiles(work, list(range(len(panels))), workers)
    return reduce(merged, totals)


def sum_over(part: Callable[..., Any], panels: list[tuple[int, int]], workers: int, like: Any) -> Any:
    """Return the sum of ``part(start, stop, scratch)`` over all panels in the widest type; see `fold_over`."""
    xp, wide = namespace_of(like), accumulation_dtype(like)
    return fold_over(part, add, lambda piece: xp.astype(piece, wide), panels, workers, like)


def assemble_rows(
    make: Callable[[int, int, Any], Any], panels: list[tuple[int, int]], shape: tuple[int, int], like: Any, workers: int
) -> Any:
    """Return the array, of the type of `like`, whose rows from start to stop are ``make(start, stop, part)``.

    The panels of rows are computed with threads. `part` is the memory of these rows, which `make` may use, or None
    where the library cannot write to it.
    """
    out = writable(shape, like)

    def work(bounds: tuple[int, int]) -> Any:
        part = None if out is None else out[slice(*bounds), :]
        values = make(*bounds, part)
        if part is None:
            return values
        put(part, values)
        return None

    parts = map_in_order(work, panels, workers)
    if out is not None:
        return out
    return namespace_of(like).concat(parts or [full(shape, 0.0, like)], axis=0)


def _hold_thread_local_blas() -> None:
    """Limit BLAS built on OpenMP, whose limit belongs to the thread; the thread ends with the call."""
    for library in _blas().lib_controllers:
        if getattr(library, "threading_layer", "") == "openmp":
            library.set_num_threads(1)


def row_slices(n: int, edge: int) -> list[tuple[int, int]]:
    """Return (start, stop) of consecutive slices of n rows."""
    return [(start, min(start + edge, n)) for start in range(0, n, edge)]


def even_slices(n: int, longest: int, workers: int) -> list[tuple[int, int]]:
    """Return (start, stop) of consecutive slices of n rows of about one length, as many for every worker."""
    count = -(-n // (longest * workers)) * workers
    return row_slices(n, max(1, -(-n // max(1, count))))
