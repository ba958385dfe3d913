"""Rows in panels on the workers of a cluster. What a dead worker held is computed again, or sent again."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, TypeVar

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.device import cuda_place, device_context, placed_rows
from gpukpca.backend.namespace import (
    concat,
    is_foreign,
    is_numpy,
    is_sparse,
    move,
    namespace_of,
    overflow_allowed,
    to_host,
)
from gpukpca.backend.parallel import row_slices
from gpukpca.data.gate import as_rows
from gpukpca.data.rows import Merge, Rows, itself
from gpukpca.data.slicing import dense_rows, gather_rows
from gpukpca.distributed.client import Cluster, LostWorkError
from gpukpca.exceptions import DeviceUnavailableError, InvalidParameterError, held_warnings

Result = TypeVar("Result")
Leaf = TypeVar("Leaf")

# Panels for every thread, so that none waits long for the last one.
PANELS_A_THREAD = 2
# Pairs of groups of rows for every thread: with fewer the work of threads differs by more than a tenth.
PAIRS_A_THREAD = 4
# Results of panels that one task merges.
JOINED = 8
# Losses after which a piece of work is given up: Dask's own limit for a task.
ATTEMPTS = 4


class ClusterRows(Rows):
    """Rows (n, d) as panels on the workers.

    Parameters
    ----------
    cluster : Cluster
    sizes : sequence of int
        Rows of every panel.
    d : int
    dtype : numpy.dtype
    submit : callable
        ``submit(k)`` returns the future of panel k: of an array of one floating-point type.
    sources : sequence of ClusterRows
        The rows that the panels are computed from.
    is_sent : bool
        Whether the panels come from the memory of this process, and are sent again when their worker ends. Others, and
        what is computed from them, the scheduler computes again by itself.

    Attributes
    ----------
    shape : (n, d)
    panels : list of distributed.Future
    bounds : list of (start, stop)
        Of every panel.
    chunks : list of int
        Rows of the chunks that the user passed, empty ones included.
    local : host array or None
        The rows, where they come from the memory of this process.
    on_gpu : bool
        Whether the panels are on the GPUs of their workers.
    """

    reports = True
    is_checked = True

    def __init__(
        self,
        cluster: Cluster,
        sizes: Sequence[int],
        d: int,
        dtype: Any,
        submit: Callable[[int], Any],
        sources: Sequence[ClusterRows] = (),
        is_sent: bool = False,
    ) -> None:
        self.cluster = cluster
        self._describe(sizes, d, dtype)
        self.on_gpu: bool = any(source.on_gpu for source in sources)
        self.panels: list[Any] = [submit(k) for k in range(len(self.sizes))]
        self.is_sent: bool = is_sent or any(source.is_sent for source in sources)
        # Else the panels of the sources would stay on the workers for as long as these rows do.
        self._submit, self._sources = (submit, sources) if self.is_sent else (self.panels.__getitem__, ())

    def _describe(self, sizes: Sequence[int], d: int, dtype: Any) -> None:
        """Set what is known of the rows without their panels."""
        self.sizes: list[int] = list(sizes)
        self.chunks: list[int] = list(sizes)
        stops = np.cumsum(sizes).tolist()
        self.bounds: list[tuple[Any, Any]] = [(stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]
        self.shape: tuple[int, int] = (stops[-1], d)
        self.like: Array = np.empty((0, d), dtype=dtype)
        self.local: Array | None = None
        self.is_sent = False

    @classmethod
    def of_array(cls, X: Any, cluster: Cluster, *, cuda: bool = False) -> ClusterRows:
        """Send dense rows in the memory of this process to the workers; with `cuda` those move them to their GPU."""
        if is_sparse(X):
            raise InvalidParameterError("sparse rows cannot be shared out to a cluster; pass X.toarray().")
        if cuda:
            cluster.check_gpus()
        n, d = (int(side) for side in X.shape)
        bounds = row_slices(n, -(-n // min(n, panels_for(cluster))))

        def send(k: int) -> Any:
            workers, (start, stop) = cluster.workers_now(), bounds[k]
            # A copy: workers that are threads of this process are handed the block itself.
            return cluster.scatter(
                np.array(to_host(X[start:stop, :])), workers[k * len(workers) // len(bounds)] if workers else None
            )

        rows = cls(cluster, [stop - start for start, stop in bounds], d, X.dtype, send, is_sent=True)
        if cuda:
            rows = rows.map(as_panel, str(X.dtype), True, width=d)
        rows.local, rows.on_gpu = X, cuda
        return rows

    def grouped(self, count: int, limit: int | None = None) -> ClusterRows:
        """Return the rows in about `count` panels of one length; as they are where at most `limit` are nearly so."""
        n, stops = self.shape[0], np.cumsum(self.sizes)
        longest = -(-n // min(n, count))
        if len(self.sizes) <= (limit or count) and max(self.sizes) <= 2 * longest:
            return self
        bounds = row_slices(n, longest)

        def join(k: int) -> Any:
            start, stop = bounds[k]
            first, last = np.searchsorted(stops, [start, stop - 1], side="right")
            skipped = start - int(stops[first] - self.sizes[first])
            return self.cluster.submit(
                joined_panels, *self.panels[first : last + 1], arguments=(skipped, stop - start), name="panel"
            )

        rows = ClusterRows(self.cluster, [b - a for a, b in bounds], self.shape[1], self.dtype, join, [self])
        rows.local = self.local
        return rows

    def kept(self, numbers: np.ndarray) -> ClusterRows:
        """Return the rows of these numbers, ascending, which stay on the workers."""
        places = [numbers[(start <= numbers) & (numbers < stop)] - start for start, stop in self.bounds]
        filled = [k for k, place in enumerate(places) if len(place)]

        def take(number: int) -> Any:
            k = filled[number]
            task = partial(on_panel, (places[k],))
            return self.cluster.submit(task, self.panels[k], arguments=(gather_rows, True), name="panel")

        return ClusterRows(self.cluster, [len(places[k]) for k in filled], self.shape[1], self.dtype, take, [self])

    def in_pairs(self) -> tuple[ClusterRows, list[tuple[int, int]]]:
        """Return the rows in so many groups as the threads need, and all pairs of these."""
        count = group_count(self.cluster.threads)
        rows = self.grouped(count, limit=count + count // 2)
        return rows, [(i, j) for j in range(len(rows.sizes)) for i in range(j + 1)]

    @property
    def held(self) -> ClusterRows:
        """The rows in panels of about one length that stay on the workers."""
        return self

    @property
    def threads(self) -> int:
        return self.cluster.threads

    @property
    def notes(self) -> tuple[str, ...]:
        return (f"cluster: {self.cluster.describe()}",)

    # -- work on panels ------------------------------------------------------------------------------------------------

    def retried(self, work: Callable[[], Result]) -> Result:
        """Return ``work()``, done again where rows that were sent to a worker ended with it."""
        for _ in range(ATTEMPTS - 1 if self.is_sent else 0):
            try:
                return work()
            except LostWorkError:
                self.restore()
        return work()

    def restore(self) -> None:
        """Submit the panels again that were lost with their worker."""
        for source in self._sources:
            source.restore()
        for k, panel in enumerate(self.panels):
            if panel.status == "cancelled":
                self.panels[k] = self._submit(k)

    def each(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        def results() -> list[Any]:
            submit = self._task(function, arguments, stays=False)
            return self.cluster.results([submit(k) for k in range(len(self.sizes))], self._names(function))

        return self.retried(results)

    def _names(self, function: Callable[..., Any]) -> list[str]:
        """Return the names of the results of all panels, for errors."""
        return [f"{short_name(function)} of panel {k} (rows {a} to {b - 1})" for k, (a, b) in enumerate(self.bounds)]

    def map(self, function: Callable[..., Array], *arguments: Any, width: int) -> ClusterRows:
        sources = [self, *(argument for argument in arguments if isinstance(argument, ClusterRows))]
        submit = self._task(function, arguments, stays=True)
        return ClusterRows(self.cluster, self.sizes, width, self.dtype, submit, sources)

    def fold(self, function: Callable[..., Any], *arguments: Any, merge: Merge = operator.add) -> Any:
        """Return the merged results on the host, which do not depend on the workers; see `merged_in_tree`."""
        name = short_name(function)

        def merged() -> list[Any]:
            submit = self._task(function, arguments, stays=False)

            def join(some: list[Any]) -> Any:
                return self.cluster.submit(merge_results, *some, arguments=(merge,), name=name)

            total = merged_in_tree(map(submit, range(len(self.sizes))), join)
            return self.cluster.results([total], [f"{name} of {self.shape[0]} rows"])

        return self.retried(merged)[0]

    def _task(self, function: Callable[..., Any], arguments: Sequence[Any], stays: bool) -> Callable[[int], Any]:
        """Return the submission of ``function(panel, *arguments)``; results that do not stay are host arrays."""
        rows = [self, *(argument for argument in arguments if isinstance(argument, ClusterRows))]
        others, name = arguments[len(rows) - 1 :], short_name(function)
        task, shared = (on_panel, [self.cluster.share(*others)]) if others else (partial(on_panel, ()), [])
        return lambda k: self.cluster.submit(
            task, *shared, *(one.panels[k] for one in rows), arguments=(function, stays), name=name
        )

    def split(self, A: Array) -> ClusterRows:
        A = to_host(A)

        def send(k: int) -> Any:
            start, stop = self.bounds[k]
            return self.cluster.submit(np.ascontiguousarray, arguments=(A[start:stop],), name="block")

        return ClusterRows(self.cluster, self.sizes, A.shape[-1], A.dtype, send)

    def take(self, chosen: Any, *others: ClusterRows) -> Array:
        chosen = np.asarray(chosen, dtype=np.int64).reshape(-1)
        out = np.empty((len(chosen), sum(rows.shape[1] for rows in (self, *others))), dtype=self.dtype)
        owners = np.searchsorted([stop for _, stop in self.bounds], chosen, side="right")
        places = {k: chosen[owners == k] - self.bounds[k][0] for k in np.unique(owners).tolist()}
        for k, found in zip(places, self._picked(places, *others), strict=True):
            out[owners == k] = found
        return out

    def _picked(self, places: Mapping[int, np.ndarray], *others: ClusterRows) -> list[Array]:
        """Return the rows at some places of numbered panels, joined with those of others."""
        every = (self, *others)

        def picked() -> list[Any]:
            futures = [
                self.cluster.submit(picked_rows, *(rows.panels[k] for rows in every), arguments=(place,), name="rows")
                for k, place in places.items()
            ]
            return self.cluster.results(futures, [f"rows of panel {k}" for k in places])

        return every[-1].retried(picked)

    def pairs(self, function: Callable[..., Any], shared: Any, column: Array | None) -> np.ndarray:
        """Return the symmetric matrix of all pairs, computed by the workers; see `Rows.pairs`."""
        (rows, pairs), G = self.in_pairs(), np.empty((self.shape[0],) * 2)
        named = [(*rows.bounds[i], *rows.bounds[j]) for i, j in pairs]
        names = ["products of rows {} to {} with {} to {}".format(*bounds) for bounds in named]

        def blocks() -> list[Any]:
            sent = self.cluster.share(shared)
            columns = [] if column is None else [rows.split(column).panels]
            parts = list(zip(rows.panels, *columns, strict=True))
            futures = [self.cluster.submit(function, sent, *parts[i], *parts[j], name="gram") for i, j in pairs]
            return self.cluster.results(futures, names)

        for (a, b, p, q), block in zip(named, rows.retried(blocks), strict=True):
            G[a:b, p:q] = block
            G[p:q, a:b] = block.T
        return G


def short_name(function: Callable[..., Any]) -> str:
    """Return the name of a function for keys and errors."""
    return getattr(function, "__name__", type(function).__name__).strip("_")


def merged_in_tree(leaves: Iterable[Leaf], join: Callable[[list[Leaf]], Leaf]) -> Leaf:
    """Return all leaves joined, consecutive ones first, as soon as there are `JOINED` of them."""
    levels: list[list[Leaf]] = [[]]
    for leaf in leaves:
        levels[0].append(leaf)
        for level, nodes in enumerate(levels):
            if len(nodes) == JOINED:
                if level + 1 == len(levels):
                    levels.append([])
                levels[level + 1].append(join(nodes))
                levels[level] = []
    last: list[Leaf] = []
    for nodes in levels:  # later leaves are on lower levels
        last = [*nodes, *last]
        last = [join(last)] if len(last) > 1 else last
    return last[0]


def group_count(threads: int) -> int:
    """Return the groups of rows whose pairs are shared out: so few that pairs grow as the threads do."""
    return math.ceil(math.sqrt(2 * PAIRS_A_THREAD * threads))


def panels_for(cluster: Cluster) -> int:
    """Return the number of panels that keeps every thread busy."""
    return max(PANELS_A_THREAD * cluster.threads, group_count(cluster.threads))


def is_dask_array(X: Any) -> bool:
    """Return whether X is a Dask array, without an import of Dask."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(X, module.Array)


# -- functions that run on the workers ---------------------------------------------------------------------------------


def on_panel(shared: tuple[Any, ...], *arguments: Any) -> Any:
    """Return ``function(*panels, *shared)`` for arguments (*panels, function, stays), where the first panel is."""
    (panel, *others), (function, stays) = arguments[:-2], arguments[-2:]
    with device_context(panel), overflow_allowed():
        result = function(panel, *(moved_to(argument, panel) for argument in (*others, *shared)))
        return result if stays else result_on_host(result)


def merge_results(*arguments: Any) -> Any:
    """Return one result of several, for (*results, merge)."""
    *results, merge = arguments
    with overflow_allowed():
        return reduce(merge, results)


def moved_to(argument: Any, panel: Any) -> Any:
    """Return an argument where the panel is: what has `moved`, and floating-point arrays; host integers stay."""
    if hasattr(argument, "moved"):
        return argument.moved(panel)
    return move(argument, panel) if is_numpy(argument) and argument.dtype.kind == "f" else argument


def result_on_host(result: Any) -> Any:
    """Return a result with host arrays."""
    if isinstance(result, tuple | list):
        return type(result)(result_on_host(part) for part in result)
    return to_host(result) if is_foreign(result) else result


def picked_rows(*arguments: Any) -> np.ndarray:
    """Return some rows of panels side by side, on the host, for (*panels, chosen)."""
    *panels, chosen = arguments
    with device_context(panels[0]):
        return np.concatenate([to_host(gather_rows(panel, chosen)) for panel in panels], axis=1)


def as_panel(rows: Any, dtype: str, cuda: bool, chosen: Callable[[Any], Any] = itself) -> Array:
    """Return rows, or some `chosen` of them, as a dense array; with `cuda` on the GPU of this worker."""
    # What the chunks lose is reported once, by the process of the user.
    with device_context(rows), held_warnings():
        rows = dense_rows(chosen(as_rows(rows)))
        rows = rows if str(rows.dtype) == dtype else rows.astype(dtype)
    if not cuda or not is_numpy(rows):
        return rows
    place, what = cuda_place(None, dtype)
    if place is None:
        raise DeviceUnavailableError(f"this worker cannot compute on a GPU: {what}.")
    with device_context(place):
        return placed_rows(rows, place)


def joined_panels(*arguments: Any) -> Array:
    """Return `count` rows of consecutive panels without the first `skipped`, for (*panels, skipped, count)."""
    *panels, skipped, count = arguments
    with device_context(panels[0]):
        rows = concat(panels)
        return namespace_of(rows).asarray(rows[skipped : skipped + count, :], copy=True)
