"""Rows of data in panels on the workers of a cluster, made anew from their source when a worker dies."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import is_sparse, to_host
from gpukpca.backend.parallel import row_slices
from gpukpca.backend.partitioned_rows import PartitionedRows
from gpukpca.distributed.chunks import ChunkFacts, Found, as_panel, chunk_facts, joined, joined_facts, not_finite
from gpukpca.distributed.client import Cluster, large_graphs_are_meant
from gpukpca.distributed.panel import on_panel, picked
from gpukpca.exceptions import InvalidParameterError

# Panels for each worker, so that pairs of panels can be dealt out evenly.
PANELS_A_WORKER = 4
# Panels on their way from this process, for each worker.
ON_THE_WAY = 2


class ClusterRows(PartitionedRows):
    """Rows (n, d) as panels on the workers.

    Parameters
    ----------
    cluster : Cluster
    panels : sequence of futures
        Of arrays (rows, d) of one floating-point type.
    sizes : sequence of int
        Rows of every panel.
    d : int
    dtype : numpy.dtype

    Attributes
    ----------
    shape : (n, d)
    bounds : list of (start, stop)
        Of every panel.
    chunks : list of int
        Rows of the chunks as they were given, empty ones included.
    local : host array or None
        The rows, where they came from the memory of this process.
    lost_digits : str
        What of the chunks float64 cannot hold; empty where it holds all.
    """

    def __init__(self, cluster: Cluster, panels: Sequence[Any], sizes: Sequence[int], d: int, dtype: Any) -> None:
        self.cluster, self.panels = cluster, list(panels)
        stops = np.cumsum(sizes).tolist()
        self.bounds = [(stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]
        self.shape = (stops[-1], d)
        self.chunks = list(sizes)
        self.local: Array | None = None
        self.lost_digits = ""
        self.like = np.empty((0, d), dtype=dtype)
        self._facts: list[ChunkFacts] = []

    @classmethod
    def of_array(cls, X: Any, cluster: Cluster, *, cuda: bool = False) -> ClusterRows:
        """Rows in the memory of this process: every panel is part of the task that brings it to a worker.

        The scheduler keeps them too, n d items, so that it can send them again when a worker dies. With `cuda` workers
        move them to their GPU.

        Raises
        ------
        InvalidParameterError
            The rows are sparse.
        DeviceUnavailableError
            A worker has no GPU, with `cuda`.
        """
        if cuda:
            cluster.check_gpus()
        n, d = (int(side) for side in X.shape)
        bounds = row_slices(n, -(-n // min(n, _panels_wanted(cluster))))
        panels: list[Any] = []
        window = ON_THE_WAY * len(cluster.workers)
        for k, (start, stop) in enumerate(bounds):
            panels.append(cluster.submit(as_panel, _host_rows(X, start, stop), str(X.dtype), cuda, name="panel"))
            if k >= window:  # or this process would hold a second copy of all
                cluster.waited([panels[k - window]], [f"panel {k - window} (rows {bounds[k - window][0]} and on)"])
        rows = cls(cluster, panels, [stop - start for start, stop in bounds], d, X.dtype)
        rows.local = X
        return rows

    @classmethod
    def of_dask(cls, X: Any, cluster: Cluster, *, cuda: bool = False) -> ClusterRows:
        """Rows of a Dask array; what made its chunks makes them again when a worker dies.

        Chunks may be of unknown or unequal length, cut the columns, be empty or of several dtypes: float32 where all
        are, float64 else. Where one is on a GPU, or with `cuda`, all come to the GPUs of their workers.

        Raises
        ------
        ValueError
            Not two-dimensional, no rows, no features, or chunks whose widths differ.
        TypeError
            Chunks that are no arrays of real numbers.
        DeviceUnavailableError
            A worker has no GPU, where they are wanted.
        """
        chunks = _chunks_of(X, cluster)
        names = [f"chunk {k}" for k in range(len(chunks))]
        facts = cluster.results([cluster.submit(chunk_facts, chunk, name="facts") for chunk in chunks], names)
        d = _checked_width(facts)
        if cuda := cuda or any(fact.on_gpu for fact in facts):
            cluster.check_gpus()
        full = [(chunk, fact) for chunk, fact in zip(chunks, facts, strict=True) if fact.shape[0]]
        dtype = "float32" if all(fact.dtype == "float32" for _, fact in full) else "float64"
        panels = [cluster.submit(as_panel, chunk, dtype, cuda, name="panel") for chunk, _ in full]
        rows = cls(cluster, *_regrouped(cluster, panels, [fact.shape[0] for _, fact in full]), d, np.dtype(dtype))
        rows.chunks, rows._facts = [fact.shape[0] for fact in facts], facts
        rows.lost_digits = _lost_digits(facts)
        return rows

    def not_finite(self) -> tuple[Found, Found]:
        """For NaN and for infinity: how many, and row and column of the first."""
        if not self._facts:
            found = self.over_panels(not_finite)
            shapes = [(stop - start, self.shape[1]) for start, stop in self.bounds]
            self._facts = [
                ChunkFacts(shape, str(self.dtype), nan=nan, infinity=infinity)
                for shape, (nan, infinity) in zip(shapes, found, strict=True)
            ]
        return joined_facts(self._facts, "nan"), joined_facts(self._facts, "infinity")

    def names(self, what: str) -> list[str]:
        """What a task for every panel is called in errors."""
        return [f"{what} of panel {k} (rows {a} to {b - 1})" for k, (a, b) in enumerate(self.bounds)]

    def futures(self, function: Callable[..., Any], *arguments: Any, name: str) -> list[Any]:
        """Futures of ``function(panel, *arguments)``."""
        return [self.cluster.submit(function, panel, *arguments, name=name) for panel in self.panels]

    def over_panels(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        name = getattr(function, "__name__", "work").strip("_")
        futures = self.futures(on_panel, function, *arguments, name=name)
        return self.cluster.results(futures, self.names(name))

    def as_dask(self, A: Array) -> Any:
        """A host array with a row for every row, as a Dask array in the chunks that were given."""
        import dask.array

        return dask.array.from_array(A, chunks=(tuple(self.chunks), A.shape[1]))

    def take(self, chosen: Any) -> Array:
        chosen = np.asarray(chosen, dtype=np.int64).reshape(-1)
        out = np.empty((len(chosen), self.shape[1]), dtype=self.dtype)
        wanted, futures, names = [], [], []
        for panel, name, (start, stop) in zip(self.panels, self.names("rows"), self.bounds, strict=True):
            places = np.flatnonzero((chosen >= start) & (chosen < stop))
            if places.size:
                wanted.append(places)
                futures.append(self.cluster.submit(picked, panel, chosen[places] - start, name="rows"))
                names.append(name)
        for places, rows in zip(wanted, self.cluster.results(futures, names), strict=True):
            out[places] = rows
        return out


def _panels_wanted(cluster: Cluster) -> int:
    """Panels that keep every thread busy, and can be dealt out evenly."""
    return max(PANELS_A_WORKER * len(cluster.workers), sum(worker.threads for worker in cluster.workers))


def _chunks_of(X: Any, cluster: Cluster) -> list[Any]:
    """Futures of the chunks of a Dask array, all columns in each."""
    if X.ndim != 2:
        raise ValueError(f"expected a 2D Dask array, got {X.ndim} dimension(s). Reshape your data.")
    if X.numblocks[1] > 1:
        if np.isnan(X.shape[1]):
            raise ValueError(
                "axis 1 (columns) is cut into chunks of unknown width; call X.compute_chunk_sizes() first."
            )
        X = X.rechunk({1: -1})
    with large_graphs_are_meant():
        return list(cluster.client.compute(list(X.to_delayed().ravel())))


def _checked_width(facts: list[ChunkFacts]) -> int:
    """The width that all chunks have, or an error that names the chunk that is wrong."""
    for k, fact in enumerate(facts):
        if fact.dtype.startswith("complex"):
            raise ValueError(f"Complex data not supported: chunk {k} holds {fact.dtype}.")
        if fact.fault:
            raise TypeError(f"chunk {k} of the Dask array {fact.fault}.")
        if len(fact.shape) != 2 or fact.shape[1] != facts[0].shape[1]:
            raise ValueError(
                f"chunk {k} has the shape {fact.shape}, and chunk 0 {facts[0].shape}: along axis 1 all must be of one "
                "width."
            )
    if not any(fact.shape[0] for fact in facts):
        raise ValueError("Found array with 0 sample(s): every chunk is empty, and a minimum of 1 is required.")
    if not facts[0].shape[1]:
        n = sum(fact.shape[0] for fact in facts)
        raise ValueError(f"Found array with 0 feature(s) (shape=({n}, 0)) while a minimum of 1 is required.")
    return int(facts[0].shape[1])


def _lost_digits(facts: list[ChunkFacts]) -> str:
    """What of the chunks float64 cannot hold."""
    if largest := max(fact.largest for fact in facts):
        return f"integers up to {largest} exceed 2**53 and lose digits in float64."
    extended = any(fact.dtype.startswith("float") and np.dtype(fact.dtype).itemsize > 8 for fact in facts)
    return "extended precision is reduced to float64." if extended else ""


def _regrouped(cluster: Cluster, panels: list[Any], sizes: list[int]) -> tuple[list[Any], list[int]]:
    """Panels and their rows as they are, or cut and joined where they are too long, or too many, to be dealt out."""
    n, wanted = sum(sizes), _panels_wanted(cluster)
    longest = -(-n // min(n, wanted))
    if len(sizes) <= 4 * wanted and max(sizes) <= 2 * longest:
        return panels, sizes
    stops = np.cumsum(sizes)
    regrouped = []
    bounds = row_slices(n, longest)
    for start, stop in bounds:
        first, last = np.searchsorted(stops, [start, stop - 1], side="right")
        skipped = start - int(stops[first] - sizes[first])
        regrouped.append(cluster.submit(joined, skipped, stop - start, *panels[first : last + 1], name="panel"))
    return regrouped, [stop - start for start, stop in bounds]


def _host_rows(X: Any, start: int, stop: int) -> Any:
    """Rows of X in memory of their own on the host."""
    if is_sparse(X):
        raise InvalidParameterError("sparse rows cannot be dealt out to a cluster; pass X.toarray().")
    return np.array(to_host(X[start:stop, :]))


def is_dask_array(X: Any) -> bool:
    """Whether X is a Dask array; who has one has imported Dask."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(X, module.Array)


def dask_kind(X: Any) -> str:
    """What of Dask X is, or the first entry of a list: Array, DataFrame, Delayed, Future ...; empty for all else."""
    X = X[0] if isinstance(X, (list, tuple)) and X else X
    dask, distributed = sys.modules.get("dask"), sys.modules.get("distributed")
    is_future = distributed is not None and isinstance(X, distributed.Future)
    return type(X).__name__.removesuffix("Leaf") if is_future or (dask and dask.is_dask_collection(X)) else ""
