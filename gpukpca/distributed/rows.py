"""Rows in panels on the workers of a cluster. What a dead worker held is computed again, or sent again."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.device import cuda_place, device_context, placed_rows
from gpukpca.backend.namespace import is_foreign, is_numpy, is_sparse, move, namespace_of, overflow_allowed, to_host
from gpukpca.backend.parallel import row_slices
from gpukpca.data.gate import LARGEST_EXACT, OF_EXTENDED, OF_INTEGERS, as_rows
from gpukpca.data.rows import Merge, Rows
from gpukpca.data.slicing import gather_rows
from gpukpca.distributed.client import Cluster, LostWorkError
from gpukpca.exceptions import DeviceUnavailableError, InvalidParameterError, held_warnings
from gpukpca.kernels.prepared import PreparedRows

# Entries of one kind: their count, and row and column of the first.
Entries = tuple[int, int, int]
Result = TypeVar("Result")

# Panels for every thread, so that none waits long for the last one.
PANELS_A_THREAD = 2
# Pairs of groups of rows for every thread: with fewer the work of threads differs by more than a tenth.
PAIRS_A_THREAD = 4
# Chains of panels for every thread, and sums that one task joins. A worker holds a sum for every chain.
CHAINS_A_THREAD, JOINED = 2, 4
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
    lost_digits : str
        What of the chunks float64 cannot hold; empty where it holds all.
    nan, infinity : (count, row, column)
        Of such entries in a Dask array, and the place of the first.
    """

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
        self.sizes: list[int] = list(sizes)
        self.chunks: list[int] = list(sizes)
        stops = np.cumsum(sizes).tolist()
        self.bounds: list[tuple[Any, Any]] = [(stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]
        self.shape: tuple[int, int] = (stops[-1], d)
        self.like: Array = np.empty((0, d), dtype=dtype)
        self.local: Array | None = None
        self.on_gpu: bool = False
        self.lost_digits: str = ""
        self.nan: Entries = (0, 0, 0)
        self.infinity: Entries = (0, 0, 0)
        self.panels: list[Any] = [submit(k) for k in range(len(self.sizes))]
        self.is_sent: bool = is_sent or any(source.is_sent for source in sources)
        # Else the panels of the sources would stay on the workers for as long as these rows do.
        self._submit, self._sources = (submit, sources) if self.is_sent else (self.panels.__getitem__, ())

    @classmethod
    def of_array(cls, X: Any, cluster: Cluster, *, cuda: bool = False) -> ClusterRows:
        """Send dense rows in the memory of this process to the workers; with `cuda` those move them to their GPU."""
        if is_sparse(X):
            raise InvalidParameterError("sparse rows cannot be shared out to a cluster; pass X.toarray().")
        if cuda:
            cluster.check_gpus()
        n, d = (int(side) for side in X.shape)
        bounds = row_slices(n, -(-n // min(n, _panels_for(cluster))))

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

    @classmethod
    def of_dask(cls, X: Any, cluster: Cluster, *, cuda: bool = False) -> ClusterRows:
        """Return the rows of a Dask array, which stay on the workers; raise for chunks that are no table of numbers.

        Chunks may be of unknown or unequal length, cut the columns, be empty or be of several dtypes: float32 where all
        are, float64 else. Where one is on a GPU, or with `cuda`, all move to the GPUs of their workers.
        """
        chunks = _chunks_of(X, cluster)
        names = [f"chunk {k}" for k in range(len(chunks))]
        tasks = [cluster.submit(chunk_facts, chunk, arguments=(k,), name="facts") for k, chunk in enumerate(chunks)]
        facts = cluster.results(tasks, names)
        d = checked_width(facts)
        if cuda := cuda or any(fact.on_gpu for fact in facts):
            cluster.check_gpus()
        full = [(chunk, fact) for chunk, fact in zip(chunks, facts, strict=True) if fact.shape[0]]
        dtype = "float32" if all(fact.dtype == "float32" for _, fact in full) else "float64"
        panels = [cluster.submit(as_panel, chunk, arguments=(dtype, cuda), name="panel") for chunk, _ in full]
        rows = cls(cluster, [fact.shape[0] for _, fact in full], d, np.dtype(dtype), panels.__getitem__)
        rows = rows.grouped(_panels_for(cluster), limit=8 * _panels_for(cluster))
        rows.chunks, rows.on_gpu, rows.lost_digits = [fact.shape[0] for fact in facts], cuda, lost_digits(facts)
        rows.nan = first_of_all([fact.nan for fact in facts], rows.chunks)
        rows.infinity = first_of_all([fact.infinity for fact in facts], rows.chunks)
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
        rows.local, rows.on_gpu = self.local, self.on_gpu
        return rows

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
        names = [f"{_name(function)} of panel {k} (rows {a} to {b - 1})" for k, (a, b) in enumerate(self.bounds)]

        def results() -> list[Any]:
            submit = self._task(function, arguments, stays=False)
            return self.cluster.results([submit(k) for k in range(len(names))], names)

        return self.retried(results)

    def map(self, function: Callable[..., Array], *arguments: Any, width: int) -> ClusterRows:
        sources = [self, *(argument for argument in arguments if isinstance(argument, ClusterRows))]
        submit = self._task(function, arguments, stays=True)
        return ClusterRows(self.cluster, self.sizes, width, self.dtype, submit, sources)

    def fold(self, function: Callable[..., Any], *arguments: Any, merge: Merge = operator.add) -> Any:
        """Return the merged results on the host: chains of consecutive panels first, then a tree of the chains."""
        name, submit = _name(function), self.cluster.submit
        rows = [self, *(argument for argument in arguments if isinstance(argument, ClusterRows))]
        chains = row_slices(len(self.panels), -(-len(self.panels) // (CHAINS_A_THREAD * self.cluster.threads)))

        def merged() -> list[Any]:
            shared, sums = self.cluster.share(*arguments[len(rows) - 1 :]), []
            for start, stop in chains:
                total: list[Any] = []
                for k in range(start, stop):
                    panels = [one.panels[k] for one in rows]
                    settings = function, merge, len(total)
                    total = [submit(fold_panel, shared, *panels, *total, arguments=settings, name=name)]
                sums += total
            while len(sums) > 1:
                joins = [sums[a:b] for a, b in row_slices(len(sums), JOINED)]
                sums = [submit(merge_results, *some, arguments=(merge,), name=name) for some in joins]
            return self.cluster.results(sums, [f"{name} of {self.shape[0]} rows"])

        return self.retried(merged)[0]

    def _task(self, function: Callable[..., Any], arguments: Sequence[Any], stays: bool) -> Callable[[int], Any]:
        """Return the submission of ``function(panel, *arguments)``; results that do not stay are host arrays."""
        rows = [self, *(argument for argument in arguments if isinstance(argument, ClusterRows))]
        shared = self.cluster.share(*arguments[len(rows) - 1 :])
        return lambda k: self.cluster.submit(
            on_panel, shared, *(one.panels[k] for one in rows), arguments=(function, stays), name=_name(function)
        )

    def split(self, A: Array) -> ClusterRows:
        A = to_host(A)

        def send(k: int) -> Any:
            start, stop = self.bounds[k]
            return self.cluster.submit(np.ascontiguousarray, arguments=(A[start:stop],), name="block")

        return ClusterRows(self.cluster, self.sizes, A.shape[-1], A.dtype, send)

    def take(self, chosen: Any, *others: ClusterRows) -> Array:
        chosen, every = np.asarray(chosen, dtype=np.int64).reshape(-1), (self, *others)
        out = np.empty((len(chosen), sum(rows.shape[1] for rows in every)), dtype=self.dtype)
        owners = np.searchsorted([stop for _, stop in self.bounds], chosen, side="right")
        touched = np.unique(owners).tolist()

        def picked() -> list[Any]:
            futures = [
                self.cluster.submit(
                    picked_rows, *(rows.panels[k] for rows in every), arguments=(places[k],), name="rows"
                )
                for k in touched
            ]
            return self.cluster.results(futures, [f"rows of panel {k}" for k in touched])

        places = {k: chosen[owners == k] - self.bounds[k][0] for k in touched}
        for k, found in zip(touched, every[-1].retried(picked), strict=True):
            out[owners == k] = found
        return out

    def as_dask(self, A: Array) -> Any:
        """Return a host array with a row for every row as a Dask array in the chunks of the user."""
        import dask.array

        return dask.array.from_array(A, chunks=(tuple(self.chunks), A.shape[1]))


def _name(function: Callable[..., Any]) -> str:
    return function.__name__.strip("_")


def group_count(threads: int) -> int:
    """Return the groups of rows whose pairs are shared out: so few that pairs grow as the threads do."""
    return math.ceil(math.sqrt(2 * PAIRS_A_THREAD * threads))


def _panels_for(cluster: Cluster) -> int:
    """Return the number of panels that keeps every thread busy."""
    return max(PANELS_A_THREAD * cluster.threads, group_count(cluster.threads))


def _chunks_of(X: Any, cluster: Cluster) -> list[Any]:
    """Return futures of the chunks of a Dask array, all columns in each."""
    if X.ndim != 2:
        raise ValueError(f"expected a 2D Dask array, got {X.ndim} dimension(s). Reshape your data.")
    if X.numblocks[1] > 1:
        if np.isnan(X.shape[1]):
            raise ValueError(
                "axis 1 (columns) is cut into chunks of unknown width; call X.compute_chunk_sizes() first."
            )
        X = X.rechunk({1: -1})
    return list(cluster.client.compute(list(X.to_delayed().ravel())))


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


def fold_panel(shared: tuple[Any, ...], *arguments: Any) -> Any:
    """Return the result of a panel for (*panels, *total, function, merge, count of totals), merged with the total."""
    *settings, function, merge, totals = arguments
    panels, total = settings[: len(settings) - totals], settings[len(settings) - totals :]
    found = on_panel(shared, *panels, function, False)
    with overflow_allowed():
        return merge(total[0], found) if totals else found


def merge_results(*arguments: Any) -> Any:
    """Return one result of several, for (*results, merge)."""
    *results, merge = arguments
    with overflow_allowed():
        return reduce(merge, results)


def moved_to(argument: Any, panel: Any) -> Any:
    """Return an argument where the panel is: rows and floating-point arrays; host integers index, and stay."""
    if isinstance(argument, PreparedRows):
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


def as_panel(rows: Any, dtype: str, cuda: bool) -> Array:
    """Return rows as an array that kernels take; with `cuda` on the GPU of this worker."""
    # What the chunks lose is reported once, by the process of the user.
    with device_context(rows), held_warnings():
        rows = as_rows(rows)
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
        xp = namespace_of(*panels)
        rows = panels[0] if len(panels) == 1 else xp.concat(list(panels), axis=0)
        return xp.asarray(rows[skipped : skipped + count, :], copy=True)


# -- the contents of chunks of a Dask array ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ChunkFacts:
    """The contents of a chunk; `largest` is its largest integer that float64 cannot hold, 0 without one."""

    shape: tuple[int, ...]
    dtype: str
    on_gpu: bool
    largest: int
    nan: Entries
    infinity: Entries


def chunk_facts(chunk: Any, k: int) -> ChunkFacts:
    """Return the contents of chunk k; raise where it is no array of real numbers."""
    dtype = str(getattr(chunk, "dtype", ""))
    if dtype.startswith("complex"):
        raise ValueError(f"Complex data not supported: chunk {k} holds {dtype}.")
    if fault := _fault(chunk):
        raise TypeError(f"chunk {k} of the Dask array {fault}.")
    kind, largest = chunk.dtype.kind, 0
    with device_context(chunk):
        if kind in "iu" and chunk.size:
            largest = max(abs(int(chunk.max())), abs(int(chunk.min())))
        nan, infinity = entries_not_finite(chunk) if kind == "f" else ((0, 0, 0),) * 2
    largest = largest if largest > LARGEST_EXACT else 0
    return ChunkFacts(tuple(map(int, chunk.shape)), dtype, is_foreign(chunk), largest, nan, infinity)


def _fault(chunk: Any) -> str:
    """Return why a chunk is not an array of real numbers."""
    if is_sparse(chunk) or hasattr(chunk, "todense") or type(chunk).__module__.startswith("cupyx."):
        return "is sparse; make it dense with X.map_blocks(lambda block: block.toarray())"
    if isinstance(chunk, np.ma.MaskedArray):
        return "is masked; fill the array first, with dask.array.ma.filled"
    if not (is_numpy(chunk) or is_foreign(chunk)):
        return f"is of the type {type(chunk).__name__}; arrays are needed"
    return "" if chunk.dtype.kind in "biuf" else f"holds {chunk.dtype}; real numbers are needed: X.astype(float)"


def entries_not_finite(panel: Array) -> tuple[Entries, Entries]:
    """Return count and first place of NaN and of infinity."""
    xp = namespace_of(panel)
    if bool(xp.all(xp.isfinite(panel))):
        return (0, 0, 0), (0, 0, 0)
    nan, infinity = (np.argwhere(test(to_host(panel))) for test in (np.isnan, np.isinf))
    return _entries(nan), _entries(infinity)


def _entries(places: np.ndarray) -> Entries:
    return (len(places), int(places[0, -2]), int(places[0, -1])) if len(places) else (0, 0, 0)


def first_of_all(found: Sequence[Entries], lengths: Sequence[int]) -> Entries:
    """Return the count over chunks of these lengths, and the first place with its row counted over all of them."""
    start = 0
    for (count, row, column), length in zip(found, lengths, strict=True):
        if count:
            return sum(other[0] for other in found), start + row, column
        start += length
    return 0, 0, 0


def checked_width(facts: Sequence[ChunkFacts]) -> int:
    """Return the width that all chunks have; raise an error that names the chunk that is wrong."""
    for k, fact in enumerate(facts):
        if len(fact.shape) != 2 or fact.shape[1] != facts[0].shape[1]:
            raise ValueError(
                f"chunk {k} has the shape {fact.shape}, and chunk 0 {facts[0].shape}: along axis 1 all must be of one "
                "width."
            )
    n, d = sum(fact.shape[0] for fact in facts), facts[0].shape[1]
    if not n:
        raise ValueError("Found array with 0 sample(s): every chunk is empty, and a minimum of 1 is required.")
    if not d:
        raise ValueError(f"Found array with 0 feature(s) (shape=({n}, 0)) while a minimum of 1 is required.")
    return d


def lost_digits(facts: Sequence[ChunkFacts]) -> str:
    """Return what of the chunks float64 cannot hold; nothing where it holds all."""
    if max(fact.largest for fact in facts):
        return OF_INTEGERS
    extended = any(fact.dtype.startswith("float") and np.dtype(fact.dtype).itemsize > 8 for fact in facts)
    return OF_EXTENDED if extended else ""
