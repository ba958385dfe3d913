"""The centered matrix of rows on a cluster: every panel is a `DenseCenteredMatrix` about one shift.

Sums are made in float64 and in a fixed order. Chains of consecutive panels are summed on the workers, and a tree joins
the sums of the chains. So the workers hold a few matrices a thread, however many panels there are, and this machine
receives one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import cast, from_host, move, overflow_allowed, to_host
from gpukpca.backend.parallel import row_slices
from gpukpca.backend.rows import feature_bounds
from gpukpca.covariance.centered_matrix import CenteredMatrix, mean_of_sample, sampled_places
from gpukpca.covariance.dense import DenseCenteredMatrix
from gpukpca.distributed.partitions import ClusterRows
from gpukpca.distributed.tiles import as_it_is, assign_tiles
from gpukpca.exceptions import InvalidParameterError

# Chains for every thread: a panel is sum_partials where it is, so with one a thread some would wait for others.
CHAINS_A_THREAD = 2
# Sums that one task joins.
JOINED = 4

# Of arrays and tuples of arrays on the host, one.
Merged = Callable[[Any, Any], Any]


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
        From everything but `rescale`: workers or scheduler are gone.

    Notes
    -----
    A product is one round trip: a block of b columns goes out and one comes back, d b items to a worker for `times` and
    `scatter_times`, its rows of n b for `adjoint`. What is small, and what comes back, is NumPy's on this machine.
    """

    wide = np.float64
    workers = 1

    def __init__(self, rows: ClusterRows, by_rows: bool) -> None:
        self.source, self.cluster, self.by_rows = rows, rows.cluster, by_rows
        self.shape, self.dtype, self.like = rows.shape, rows.dtype, rows.like[:, 0]
        sample = rows.take(sampled_places(*rows.shape))
        self.shift = cast(mean_of_sample(sample, np.float64), self.dtype)

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest entry of every column of X, shapes (d,)."""
        low, high = zip(*self.source.over_panels(bounds_of), strict=True)
        return np.min(low, axis=0), np.max(high, axis=0)

    # -- products ------------------------------------------------------------------------------------------------------

    def times(self, V: Array) -> Array:
        """Return Z V for V (d, b), shape (n, b)."""
        self.measure()
        return self.joined(panel_result, self._frame, "times", self._sent(V))

    def adjoint(self, U: Array) -> Array:
        """Return Zᵀ U for U (n, b), shape (d, b)."""
        return cast(self._result(self._adjoint(U), "the product with the adjoint"), self.dtype)

    def scatter_times(self, V: Array) -> Array:
        """Return ZᵀZ V, shape (d, b)."""
        self.measure()
        if not self.by_rows:
            return self.adjoint(self.times(V))
        return cast(self._result(self._sum("wide_scatter_times", self._sent(V)), "the product"), self.dtype)

    def gram_times(self, U: Array) -> Array:
        """Return Z ZᵀU, shape (n, b); ZᵀU stays on the cluster."""
        Y = self._adjoint(U)
        return self.joined(panel_result, self._frame, "times", Y)

    def triangle(self, V: Array) -> tuple[np.ndarray, None]:
        """Return R of Z V = Q R, by QR of the panels and of their R."""
        self.measure()
        factors = self._sum("triangular_factor", self._sent(V), merged=triangle_of)
        return self._result(factors, "the triangular factor"), None

    def materialized(self) -> None:
        """Return None: no process holds Z. Raise `InvalidParameterError` where a triangular factor is no smaller."""
        n, d = self.shape
        if n < d:
            raise InvalidParameterError(
                f'svd_solver="full" on a cluster needs as many samples as features, and there are {n} and {d}; use '
                '"dual".'
            )

    def _adjoint(self, U: Array) -> Any:
        """Return a future of Zᵀ U in float64."""
        self.measure()
        U = to_host(U)
        blocks = [self._sent(U[start:stop, :]) for start, stop in self.source.bounds]
        return self._sum("wide_adjoint", each=blocks)

    # -- matrices ------------------------------------------------------------------------------------------------------

    def moments(self) -> np.ndarray:
        """Return sums and sums of squares of the shifted columns, shape (2, d)."""
        moments: np.ndarray = self._result(self._sum("moments"), "mean and variances")
        return moments

    def scatter_and_sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the scatter matrix about the shift, shape (d, d), and the sums of the shifted columns, shape (d,)."""
        found: tuple[np.ndarray, np.ndarray] = self._result(self._sum("scatter_and_sums"), "the scatter matrix")
        return found

    def shifted_gram(self) -> np.ndarray:
        """Return the products of the shifted rows in units of the scale, shape (n, n), by pairs of panels."""
        bounds, panels, frame = self.source.bounds, self.source.panels, self._shared(self._frame)
        sizes = [stop - start for start, stop in bounds]
        futures, places = [], []
        workers = self.cluster.workers
        for worker, (_, pairs) in zip(workers, assign_tiles(sizes, [one.threads for one in workers]), strict=True):
            for i, j in pairs:
                pair = (panels[i], panels[j])
                futures.append(self.cluster.submit(products_of, frame, *pair, name="gram", worker=worker.address))
                places.append((bounds[i], bounds[j]))
        names = [f"products of the rows {a} to {b - 1} with {p} to {q - 1}" for (a, b), (p, q) in places]
        G = np.empty((self.shape[0],) * 2)
        for ((a, b), (p, q)), block in zip(places, self.cluster.results(futures, names), strict=True):
            G[a:b, p:q] = block
            G[p:q, a:b] = block.T
        return G

    # -- round trips ---------------------------------------------------------------------------------------------------

    def _sent(self, V: Array) -> Any:
        """Return a future of a block."""
        return self._shared(np.ascontiguousarray(to_host(V)))

    def _shared(self, thing: Any) -> Any:
        """Return a future of an object that is sent once, and that workers copy from each other."""
        return self.cluster.submit(as_it_is, thing, name="shared")

    @property
    def _frame(self) -> CenteringSpec:
        return CenteringSpec(self.by_rows, self.shift, self.rest, self.weights)

    def joined(self, function: Callable[..., Any], shared: Any, *arguments: Any) -> np.ndarray:
        """Join ``function(panel, shared, *arguments)`` of all panels; `shared` is sent once."""
        return np.concatenate(self.source.over_panels(function, self._shared(shared), *arguments))

    def _sum(
        self, method: str, *arguments: Any, each: Sequence[Any] | None = None, merged: Merged | None = None
    ) -> Any:
        """Return a future of the merged results of a method of all panels; `each` adds an argument for each panel."""
        frame, panels, merged = self._shared(self._frame), self.source.panels, merged or sum_partials
        chains = CHAINS_A_THREAD * sum(worker.threads for worker in self.cluster.workers)
        sums = []
        for start, stop in row_slices(len(panels), -(-len(panels) // chains)):
            total = None
            for k in range(start, stop):
                own = () if each is None else (each[k],)
                given = (merged, total, panels[k], frame, method, *arguments, *own)
                total = self.cluster.submit(merge_panel, *given, name=f"{method}-{k}")
            sums.append(total)
        while len(sums) > 1:
            groups = row_slices(len(sums), JOINED)
            sums = [self.cluster.submit(merge_sums, merged, *sums[a:b], name=method) for a, b in groups]
        return sums[0]

    def _result(self, future: Any, name: str) -> Any:
        return self.cluster.results([future], [f"{name} of {self.shape[0]} rows"])[0]


# -- what runs on the workers ------------------------------------------------------------------------------------------


def panel_result(panel: Array, frame: CenteringSpec, method: str, *blocks: np.ndarray) -> Any:
    """Return the result of a method of `DenseCenteredMatrix` of a panel, on the host."""
    with overflow_allowed():
        found = getattr(frame.rows(panel), method)(*(move(block, panel) for block in blocks))
    return tuple(map(to_host, found)) if isinstance(found, tuple) else to_host(found)


def products_of(frame: CenteringSpec, panel: Array, other: Array) -> np.ndarray:
    """Return the products of the rows of two panels."""
    rows = frame.rows(panel)
    with overflow_allowed():
        return to_host(rows.products_with(rows if other is panel else frame.rows(other)))


def merge_panel(merged: Merged, total: Any, panel: Array, *question: Any) -> Any:
    """Return the result of a panel, merged with the total of those before it."""
    found = panel_result(panel, *question)
    return found if total is None else merged(total, found)


def merge_sums(merged: Merged, *sums: Any) -> Any:
    """Merge several sums."""
    total = sums[0]
    for other in sums[1:]:
        total = merged(total, other)
    return total


def sum_partials(a: Any, b: Any) -> Any:
    """Return the sum of two arrays, or of two tuples of them."""
    if isinstance(a, tuple):
        return tuple(map(sum_partials, a, b))
    with overflow_allowed():
        return a + b


def triangle_of(R: np.ndarray, S: np.ndarray) -> np.ndarray:
    """Return R of two triangular factors, one above the other."""
    return np.asarray(np.linalg.qr(np.concatenate([R, S]), mode="r"))


def bounds_of(panel: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest entry of every column of a panel on the host."""
    low, high = feature_bounds(panel)
    return to_host(low), to_host(high)
