"""Rows of data in panels on the workers of a cluster, made anew from their source when a worker dies."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import is_sparse, namespace_of, overflow_allowed, to_host
from gpukpca.backend.panelled import Panelled
from gpukpca.backend.rows import as_rows, pick_rows
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.distributed.cluster import Cluster
from gpukpca.gram.residence import edges

# Panels for each thread of the workers, so that pairs of panels can be dealt out evenly.
PANELS_A_SHARE = 4


class ClusterRows(Panelled):
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
    """

    def __init__(self, cluster: Cluster, panels: Sequence[Any], sizes: Sequence[int], d: int, dtype: Any) -> None:
        self.cluster, self.panels = cluster, list(panels)
        stops = np.cumsum(sizes).tolist()
        self.bounds = [(stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]
        self.shape = (stops[-1], d)
        self.chunks = list(sizes)
        self.local: Array | None = None
        self.like = np.empty((0, d), dtype=dtype)

    @classmethod
    def of_array(cls, X: Any, cluster: Cluster) -> ClusterRows:
        """Rows in the memory of this process: every panel is part of the task that brings it to a worker."""
        n, d = (int(side) for side in X.shape)
        shares = sum(worker.threads for worker in cluster.workers)
        bounds = edges(n, -(-n // min(n, PANELS_A_SHARE * shares)))
        panels = [cluster.submit(as_panel, _host_rows(X, *pair), str(X.dtype), name="panel") for pair in bounds]
        rows = cls(cluster, panels, [stop - start for start, stop in bounds], d, X.dtype)
        rows.local = X
        return rows

    @classmethod
    def of_dask(cls, X: Any, cluster: Cluster) -> ClusterRows:
        """Rows of a Dask array; what made its chunks makes them again when a worker dies.

        Chunks may be of unknown or unequal length, cut the columns, be empty or of several dtypes.

        Raises
        ------
        ValueError
            Not two-dimensional, no rows, complex or non-numeric, or chunks whose widths differ.
        """
        if X.ndim != 2:
            raise ValueError(f"expected a 2D Dask array, got {X.ndim} dimension(s). Reshape your data.")
        X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        dtype = str(X.dtype) if str(X.dtype) in ("float32", "float64") else "float64"
        chunks = cluster.client.compute(list(X.to_delayed().ravel()))
        names = [f"chunk {k}" for k in range(len(chunks))]
        panels = [cluster.submit(as_panel, chunk, dtype, name="panel") for chunk in chunks]
        shapes = cluster.results([cluster.submit(shape_of, panel, name="shape") for panel in panels], names)
        d = _common_width(shapes)
        full = [(panel, shape[0]) for panel, shape in zip(panels, shapes, strict=True) if shape[0]]
        if not full:
            raise ValueError("Found array with 0 sample(s): every chunk is empty, and a minimum of 1 is required.")
        rows = cls(cluster, *_regrouped(cluster, full), d, np.dtype(dtype))
        rows.chunks = [shape[0] for shape in shapes]
        return rows

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


def _common_width(shapes: list[tuple[int, ...]]) -> int:
    """The width that all chunks have."""
    for k, shape in enumerate(shapes):
        if len(shape) != 2 or shape[1] != shapes[0][1]:
            raise ValueError(f"chunk {k} has the shape {shape}, and chunk 0 {shapes[0]}; rows must be of one width.")
    return int(shapes[0][1])


def _regrouped(cluster: Cluster, full: list[tuple[Any, int]]) -> tuple[list[Any], list[int]]:
    """Panels and their rows as they are, or cut and joined where they are too long, or too many, to be dealt out."""
    panels, sizes = [panel for panel, _ in full], [size for _, size in full]
    shares = sum(worker.threads for worker in cluster.workers)
    n, wanted = sum(sizes), PANELS_A_SHARE * shares
    longest = -(-n // min(n, wanted))
    if len(sizes) <= 4 * wanted and max(sizes) <= 2 * longest:
        return panels, sizes
    stops = np.cumsum(sizes)
    regrouped = []
    bounds = edges(n, longest)
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


# -- what runs on the workers ------------------------------------------------------------------------------------------


def as_panel(rows: Any, dtype: str) -> Array:
    """Rows as an array that kernels take."""
    if rows.dtype.kind not in "biuf":
        raise ValueError(f"a chunk holds {rows.dtype}; real numbers are needed.")
    rows = as_rows(rows)
    return rows if str(rows.dtype) == dtype else rows.astype(dtype)


def shape_of(panel: Array) -> tuple[int, ...]:
    """The shape of a panel."""
    return tuple(int(side) for side in panel.shape)


def joined(skipped: int, count: int, *panels: Array) -> Array:
    """So many rows of consecutive panels, without the first few."""
    xp = namespace_of(*panels)
    rows = panels[0] if len(panels) == 1 else xp.concat(list(panels), axis=0)
    return xp.asarray(rows[skipped : skipped + count, :], copy=True)


def on_panel(panel: Array, function: Callable[..., Any], *arguments: Any) -> Any:
    """A function of a panel."""
    with overflow_allowed():
        return function(panel, *arguments)


def picked(panel: Array, chosen: np.ndarray) -> np.ndarray:
    """Some rows of a panel."""
    return to_host(pick_rows(panel, chosen))
