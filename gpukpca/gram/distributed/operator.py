"""K of rows on the workers of a cluster as an operator: V goes out once a product, sums of tiles come back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.linalg import mirror_upper, with_entries
from gpukpca.backend.namespace import cast, overflow_allowed, to_host
from gpukpca.backend.tiles import TileReport, worker_count
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.distributed.cluster import Worker
from gpukpca.gram.distributed.rows import ClusterRows
from gpukpca.gram.distributed.share import ShareSpec, TileShare, as_it_is, dealt, times
from gpukpca.gram.product import compute_tile
from gpukpca.kernels.base import Kernel, Rows, resolved_on


class DaskGram:
    """The kernel matrix of rows on a cluster as an operator: ``op @ V`` for V on this machine.

    Every worker holds the rows that its tiles are made from, and as many tiles as its memory allows; each tile is used
    twice, as in `TiledGram`. In a product a worker gets the rows of V that its tiles touch, and sends back as many.

    Parameters
    ----------
    kernel : Kernel
    rows : ClusterRows
    centered : bool
        As in `TiledGram`.
    cache : bool
        Whether workers keep tiles.
    report : callable, optional
        Called with (shares done, shares in all) during a product.
    template : Rows, optional
        ``kernel.template(rows, centered)``, where it is at hand.

    Attributes
    ----------
    shape, dtype, like
        See `gpukpca._typing.SymmetricOperator`; blocks are NumPy arrays.
    rows : Rows
        ``rows.take(chosen)`` makes rows ready on this machine.
    workers : int
        Threads of this machine, for what solvers do with blocks.
    products : int

    Raises
    ------
    ClusterError
        From products: workers or scheduler are gone.

    Notes
    -----
    A product moves at most n b items to every worker and from it; rows of X move once, n d items to a worker at most,
    and again to those that take over from one that died. Sums are made in float64 in a fixed order.
    """

    def __init__(
        self,
        kernel: Kernel,
        rows: ClusterRows,
        *,
        centered: bool = False,
        cache: bool = True,
        report: TileReport | None = None,
        template: Rows | None = None,
    ) -> None:
        self.kernel = resolved_on(kernel, rows)
        if self.kernel.stored_only:
            raise InvalidParameterError(
                f"{type(kernel).__name__} cannot be evaluated tile by tile, so a cluster cannot share the work."
            )
        n = rows.shape[0]
        self.shape, self.dtype, self.like = (n, n), rows.dtype, rows.like[:, 0]
        self.source, self.cluster, self.report = rows, rows.cluster, report
        self.template = template or self.kernel.template(rows, centered)
        self.rows = _TakenRows(self.kernel, rows, self.template)
        self.products = 0
        self.specs, self._homes = _specs(rows, cache)
        self.workers = worker_count(self.like)
        self._shares = [
            self.cluster.submit(
                TileShare,
                self.kernel,
                self.template,
                spec,
                *(rows.panels[k] for k in spec.panels),
                name="tiles",
                worker=worker.address,
            )
            for spec, worker in zip(self.specs, self._homes, strict=True)
        ]

    def __matmul__(self, V: Array) -> Array:
        """K @ V, shape (n, b), in the dtype of K."""
        if V.ndim != 2 or V.shape[0] != self.shape[0]:
            raise InvalidParameterError(f"expected a block of shape ({self.shape[0]}, b), got {tuple(V.shape)}.")
        V = cast(to_host(V), self.dtype)
        blocks = [
            self.cluster.submit(as_it_is, np.ascontiguousarray(V[a:b, :]), name="block") for a, b in self.source.bounds
        ]
        futures = [
            self.cluster.submit(times, share, *(blocks[k] for k in spec.panels), name="product", worker=worker.address)
            for share, spec, worker in zip(self._shares, self.specs, self._homes, strict=True)
        ]
        out = np.zeros(V.shape, dtype=np.float64)
        for spec, part in zip(self.specs, self.cluster.results(futures, self._names(), self.report), strict=True):
            start = 0
            for k in spec.panels:
                a, b = self.source.bounds[k]
                out[a:b] += part[start : start + b - a]
                start += b - a
        self.products += 1
        return cast(out, self.dtype)

    def _names(self) -> list[str]:
        """What the shares of a product are called in errors."""
        return [f"the product with panels {', '.join(map(str, spec.panels))}" for spec in self.specs]

    # -- the rest of the protocol --------------------------------------------------------------------------------------

    def diagonal(self) -> Array:
        """k(x, x) of every row, shape (n,)."""
        return np.concatenate(self.source.over_panels(panel_diagonal, self.kernel, self.template))

    def columns(self, indices: Any) -> Array:
        """The columns of K named by `indices`, shape (n, len(indices))."""
        picked = self.rows.take(indices)
        C = np.concatenate(self.source.over_panels(panel_columns, self.kernel, self.template, picked))
        return with_entries(C, indices, self.kernel.tile_diagonal(picked))

    def block(self, rows: Any, columns: Any) -> Array:
        """The entries of K in the named rows and columns, made on this machine."""
        return compute_tile(self.kernel, self.rows.take(rows), self.rows.take(columns), self.like, False)

    def to_dense(self, overwrite: bool = False) -> Array:
        """K as a new square array on this machine, exactly symmetric."""
        K = self.columns(np.arange(self.shape[0]))
        mirror_upper(K)
        return K

    def factor(self) -> None:
        """None: K is not known by a factor."""
        return None

    def bytes_needed(self) -> int:
        """0: the tiles are on the workers."""
        return 0


class _TakenRows(Rows):
    """Rows made ready on this machine when they are asked for."""

    def __init__(self, kernel: Kernel, source: ClusterRows, template: Rows) -> None:
        self.kernel, self.source, self._template = kernel, source, template
        self.n_rows = source.shape[0]

    @property
    def template(self) -> Rows:
        return self._template

    @property
    def shifted(self) -> bool:
        return self._template.shifted

    def take(self, indices: Any) -> Rows:
        with overflow_allowed():
            return self.kernel.prepare(self.source.take(indices), like=self._template)


def _specs(rows: ClusterRows, cache: bool) -> tuple[list[ShareSpec], list[Worker]]:
    """One share for every worker, with as many threads as it has."""
    workers = rows.cluster.workers
    hosts = Counter(worker.host for worker in workers)
    sizes = [stop - start for start, stop in rows.bounds]
    found = dealt(sizes, len(workers))
    specs = [
        ShareSpec(panels, pairs, worker.threads, worker.memory, hosts[worker.host], cache)
        for (panels, pairs), worker in zip(found, workers, strict=False)
    ]
    return specs, workers[: len(specs)]


# -- what runs on the workers ------------------------------------------------------------------------------------------


def panel_diagonal(panel: Array, kernel: Kernel, template: Rows) -> np.ndarray:
    """k(x, x) of the rows of a panel."""
    return to_host(kernel.tile_diagonal(kernel.prepare(panel, like=template)))


def panel_columns(panel: Array, kernel: Kernel, template: Rows, picked: Rows) -> np.ndarray:
    """K between a panel and a few prepared rows."""
    return to_host(compute_tile(kernel, kernel.prepare(panel, like=template), picked, panel[:0, 0], False))
