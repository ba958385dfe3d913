"""The centered matrix of rows on a cluster: every panel is a `DenseCenteredMatrix` about one shift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import cast, from_host, move, overflow_allowed, to_host
from gpukpca.backend.orthogonalization import joined_triangle
from gpukpca.backend.parallel import row_slices
from gpukpca.backend.rows import feature_bounds
from gpukpca.covariance.centered_matrix import CenteredMatrix, mean_of_sample, sampling_step
from gpukpca.covariance.dense import DenseCenteredMatrix
from gpukpca.distributed.client import Cluster
from gpukpca.distributed.rows import ClusterRows, group_count, on_host

# Chains of panels for every thread, and sums that one task joins. A worker holds a sum for every chain.
CHAINS_A_THREAD, JOINED = 2, 4

# From two results of panels, arrays or tuples of arrays on the host, to one.
Merge = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class CenteringSpec:
    """The shift, mean and weights that all panels share, on the host; see `CenteredMatrix`."""

    by_rows: bool
    shift: np.ndarray
    rest: np.ndarray | None
    weights: np.ndarray | None

    def rows(self, panel: Array) -> DenseCenteredMatrix:
        """Return the centered matrix of a panel, where that is."""
        # One thread: there are more panels than threads, and Dask has one for each.
        rows = DenseCenteredMatrix(panel, self.by_rows, 1, from_host(self.shift, panel))
        rows.rest = None if self.rest is None else from_host(self.rest, panel, rows.wide)
        rows.weights = None if self.weights is None else from_host(self.weights, panel, rows.wide)
        return rows


class ClusterCenteredMatrix(CenteredMatrix):
    """The rows on a cluster less their mean, in units of a scale; see `CenteredMatrix`.

    Parameters
    ----------
    rows : ClusterRows
    by_rows : bool
        Whether panels are read in blocks of rows, else of columns.

    Raises
    ------
    ClusterError
        Workers or scheduler are lost; not from `rescale`.

    Notes
    -----
    Sums are made in float64 and in a fixed order: chains of consecutive panels first, then a tree of the chains. A
    product is one round trip of a block of b columns: d b items to a worker for `times` and `scatter_times`, its rows
    of n b for `adjoint`. Results are NumPy arrays on this machine.
    """

    wide = np.float64
    workers = 1

    def __init__(self, rows: ClusterRows, by_rows: bool) -> None:
        self.source = rows
        self.cluster: Cluster = rows.cluster
        self.by_rows = by_rows
        self.shape: tuple[int, int] = rows.shape
        self.dtype: Any = rows.dtype
        self.like: Array = rows.like[:, 0]
        sample = rows.take(np.arange(0, rows.shape[0], sampling_step(*rows.shape)))
        self.shift: Array = cast(mean_of_sample(sample, np.float64), self.dtype)

    def check_entries(self) -> None:
        """Pass: rows on a cluster were checked as they came."""

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest entry of every column of X, shapes (d,)."""
        return feature_bounds(self.source)

    # -- products ------------------------------------------------------------------------------------------------------

    def times(self, V: Array) -> Array:
        """Return Z V for V (d, b), shape (n, b)."""
        self.measure()
        return self.joined(method_of_rows, self._spec, "times", to_host(V))

    def adjoint(self, U: Array) -> Array:
        """Return Zᵀ U for U (n, b), shape (d, b)."""
        self.measure()
        return cast(self._sum("wide_adjoint", U, by_panel=True), self.dtype)

    def scatter_times(self, V: Array) -> Array:
        """Return ZᵀZ V, shape (d, b)."""
        self.measure()
        return cast(self._sum("wide_scatter_times", V), self.dtype) if self.by_rows else self.adjoint(self.times(V))

    def triangle(self, V: Array) -> tuple[np.ndarray, None]:
        """Return R of Z V = Q R, by QR of the panels and of their R."""
        self.measure()
        return self._sum("triangular_factor", V, merge=joined_triangle), None

    def own_triangle(self) -> np.ndarray:
        self.measure()
        R: np.ndarray = self._sum("own_triangle", merge=joined_triangle)
        return R

    def materialized(self) -> None:
        """Return None: no process holds Z."""

    # -- matrices ------------------------------------------------------------------------------------------------------

    def moments(self) -> np.ndarray:
        """Return sums and sums of squares of the shifted columns, shape (2, d)."""
        moments: np.ndarray = self._sum("moments")
        return moments

    def scatter_and_sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the scatter matrix about the shift, shape (d, d), and the sums of the shifted columns, shape (d,)."""
        found: tuple[np.ndarray, np.ndarray] = self._sum("scatter_and_sums")
        return found

    def shifted_gram(self) -> np.ndarray:
        """Return the products of the shifted rows in units of the scale, shape (n, n), by pairs of groups of rows."""
        count = group_count(self.cluster.threads)
        rows, G = self.source.grouped(count, most=count + count // 2), np.empty((self.shape[0],) * 2)
        pairs = [(i, j) for j in range(len(rows.sizes)) for i in range(j + 1)]
        names = ["products of rows {} to {} with {} to {}".format(*rows.bounds[i], *rows.bounds[j]) for i, j in pairs]

        def blocks() -> list[Any]:
            spec = self.cluster.share(self._spec)
            futures = [
                self.cluster.submit(products_of_rows, spec, rows.panels[i], rows.panels[j], name="gram")
                for i, j in pairs
            ]
            return self.cluster.results(futures, names)

        for (i, j), block in zip(pairs, rows.retried(blocks), strict=True):
            (a, b), (p, q) = rows.bounds[i], rows.bounds[j]
            G[a:b, p:q] = block
            G[p:q, a:b] = block.T
        return G

    # -- round trips ---------------------------------------------------------------------------------------------------

    @property
    def _spec(self) -> CenteringSpec:
        return CenteringSpec(self.by_rows, self.shift, self.rest, self.weights)

    def joined(self, function: Callable[..., Any], *arguments: Any) -> np.ndarray:
        """Join ``function(panel, *arguments)`` of all panels."""
        return np.concatenate(self.source.over_panels(function, *arguments))

    def _sum(self, method: str, *blocks: Array, by_panel: bool = False, merge: Merge | None = None) -> Any:
        """Return the merged results of a method of all panels; with `by_panel` a panel gets its rows of a block."""
        submit, panels = self.cluster.submit, self.source.panels
        chains = row_slices(len(panels), -(-len(panels) // (CHAINS_A_THREAD * self.cluster.threads)))

        def merged() -> list[Any]:
            parts = [self.source.split(block).panels if by_panel else None for block in blocks]
            spec = self.cluster.share(self._spec, *(() if by_panel else map(to_host, blocks)))
            sums = []
            for start, stop in chains:
                total: list[Any] = []
                for k in range(start, stop):
                    given = (spec, panels[k], *(part[k] for part in parts if part), *total)
                    arguments = (method, merge or add_results, len(total))
                    total = [submit(merge_panel, *given, arguments=arguments, name=method)]
                sums += total
            while len(sums) > 1:
                joins = [sums[a:b] for a, b in row_slices(len(sums), JOINED)]
                sums = [submit(merge_sums, *some, arguments=(merge or add_results,), name=method) for some in joins]
            return self.cluster.results(sums, [f"{method} of {self.shape[0]} rows"])

        return self.source.retried(merged)[0]


# -- functions that run on the workers ---------------------------------------------------------------------------------


def method_of_rows(panel: Array, spec: CenteringSpec, method: str, *blocks: np.ndarray) -> Any:
    """Return the result of a method of `DenseCenteredMatrix` of a panel, on the host."""
    return on_host(getattr(spec.rows(panel), method)(*(move(block, panel) for block in blocks)))


def products_of_rows(shared: tuple[CenteringSpec], panel: Array, other: Array) -> np.ndarray:
    """Return the products of the rows of two panels."""
    with device_context(panel), overflow_allowed():
        rows = shared[0].rows(panel)
        return to_host(rows.products_with(rows if other is panel else shared[0].rows(other)))


def merge_panel(shared: tuple[Any, ...], panel: Array, *arguments: Any) -> Any:
    """Return the result of a panel, merged with the total of those before it."""
    *given, method, merge, has_total = arguments
    blocks, total = (given[:-1], given[-1:]) if has_total else (given, [])
    with device_context(panel), overflow_allowed():
        found = method_of_rows(panel, shared[0], method, *blocks, *shared[1:])
        return merge(total[0], found) if total else found


def merge_sums(*arguments: Any) -> Any:
    """Return one result of several, for (*sums, merge)."""
    total, *others, merge = arguments
    for other in others:
        total = merge(total, other)
    return total


def add_results(a: Any, b: Any) -> Any:
    """Return the sum of two arrays, or of two tuples of them."""
    if isinstance(a, tuple):
        return tuple(map(add_results, a, b))
    with overflow_allowed():
        return a + b
