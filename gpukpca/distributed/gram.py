"""K of rows on the workers of a cluster as an operator, and its storage."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpukpca._formatting import pluralize
from gpukpca._typing import Array, Indices, SymmetricOperator
from gpukpca.backend.linalg import mirror_upper, with_entries
from gpukpca.backend.namespace import cast, to_host
from gpukpca.backend.parallel import TileReport, worker_count
from gpukpca.distributed.client import Worker
from gpukpca.distributed.panel import panel_columns, panel_diagonal, prepared, tell
from gpukpca.distributed.partitions import ClusterRows
from gpukpca.distributed.tiles import ShareSpec, TileAssignment, added, as_it_is, assign_tiles, owners, some, times
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.product import compute_tile
from gpukpca.gram.storage import KernelRows, Storage
from gpukpca.kernels.base import Kernel, resolved_on
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.kernels.streamed import LazyRows

# From so many workers on they add up among themselves: each sends about n b / 2 items, which are too many for one
# process, while the sums take a task for every two workers.
ADDED_BY_WORKERS_FROM = 8


class DaskGram(SymmetricOperator):
    """The kernel matrix of rows on a cluster as an operator: ``op @ V`` for V on this machine.

    Every worker holds the rows that its tiles are made from, and as many tiles as its memory allows; each tile is used
    twice, as in `TiledGram`. In a product a worker gets the rows of V that its tiles touch, and sends back as many.

    Parameters
    ----------
    kernel : Kernel
    rows : ClusterRows
    cache : bool
        Whether workers keep tiles.
    report : callable, optional
        Called with (shares done, shares in all) during a product.
    template : PreparedRows, optional
        What the kernel learned from all rows. Default ``kernel.template(rows)``. One for centering makes an operator
        for use inside a `CenteredGram` only.

    Attributes
    ----------
    shape, dtype, like
        See `gpukpca._typing.SymmetricOperator`; blocks are NumPy arrays.
    rows : Rows
        ``rows.take(chosen)`` makes rows ready on this machine.

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
        cache: bool = True,
        report: TileReport | None = None,
        template: PreparedRows | None = None,
    ) -> None:
        self.kernel = resolved_on(kernel, rows)
        if self.kernel.stored_only:
            raise InvalidParameterError(
                f"{type(kernel).__name__} cannot be evaluated tile by tile, so a cluster cannot share the work."
            )
        n, self.name = rows.shape[0], f"the kernel {type(self.kernel).__name__}"
        self.shape, self.dtype, self.like = (n, n), rows.dtype, rows.like[:, 0]
        self.source, self.cluster, self.report = rows, rows.cluster, report
        self.template = template or self.kernel.template(rows)
        self.rounding = self.kernel.rounding(self.template)
        self.rows = _TakenRows(self.kernel, rows, self.template)
        self.workers = worker_count(self.like)
        self.specs, self._homes = _specs(rows, cache)
        sizes = [stop - start for start, stop in rows.bounds]
        self._owners = owners(sizes, [home.threads for home in self._homes])
        self._shares = [self._share(spec, home) for spec, home in zip(self.specs, self._homes, strict=True)]

    def _share(self, spec: ShareSpec, home: Worker) -> Any:
        """Return the future of a share on its worker."""
        panels = [self.source.panels[k] for k in spec.panels]
        return self.cluster.submit(
            TileAssignment, self.kernel, self.template, spec, *panels, name="tiles", worker=home.address
        )

    def _settle(self) -> None:
        """Move shares whose worker is gone to the worker that has fewest."""
        there = self.cluster.workers_now()
        gone = {home.address for home in self._homes} - {worker.address for worker in there}
        candidates = [worker for worker in there if worker.running]
        for k, home in enumerate(self._homes if gone and candidates else []):
            if home.address in gone:
                load = Counter(other.address for other in self._homes)
                self._homes[k] = min(candidates, key=lambda worker: load[worker.address])
                self.specs[k] = replace(self.specs[k], memory=self._homes[k].memory)
                self._shares[k] = self._share(self.specs[k], self._homes[k])

    def __matmul__(self, V: Array) -> Array:
        """Return K @ V, shape (n, b), in the dtype of K."""
        if V.ndim != 2 or V.shape[0] != self.shape[0]:
            raise InvalidParameterError(f"expected a block of shape ({self.shape[0]}, b), got {tuple(V.shape)}.")
        V = cast(to_host(V), self.dtype)
        self._settle()
        blocks = [
            self.cluster.submit(as_it_is, np.ascontiguousarray(V[a:b, :]), name="block") for a, b in self.source.bounds
        ]
        products = [
            self.cluster.submit(times, share, *(blocks[k] for k in spec.panels), name="product", worker=home.address)
            for share, spec, home in zip(self._shares, self.specs, self._homes, strict=True)
        ]
        names = [f"the product with panels {', '.join(map(str, spec.panels))}" for spec in self.specs]
        if len(products) < ADDED_BY_WORKERS_FROM:
            parts = self.cluster.results(products, names, self.report)
            sums = added(str(self.dtype), [spec.panels for spec in self.specs], *parts)
        else:
            self.cluster.waited(products, names, self.report)
            sums = self._added_by_workers(products)
            for product in products:
                product.release()
        return np.concatenate(sums, axis=0)

    def _added_by_workers(self, products: list[Any]) -> list[np.ndarray]:
        """Return the sum of each panel; each worker adds the parts of the panels that it owns."""
        futures, names = [], []
        for owner, home in enumerate(self._homes):
            owned = [[k for k in spec.panels if self._owners[k] == owner] for spec in self.specs]
            parts = [
                self.cluster.submit(some, product, list(map(spec.panels.index, mine)), name="part", worker=at.address)
                for product, spec, mine, at in zip(products, self.specs, owned, self._homes, strict=True)
                if mine
            ]
            mine = [panels for panels in owned if panels]
            futures.append(self.cluster.submit(added, str(self.dtype), mine, *parts, name="sum", worker=home.address))
            names.append(f"the sum for the panels of {home.address}")
        return [block for blocks in self.cluster.results(futures, names) for block in blocks]

    # -- the rest of the protocol --------------------------------------------------------------------------------------

    def diagonal(self) -> Array:
        """Return k(x, x) of every row, shape (n,).

        Warns
        -----
        UserWarning
            The warnings of the kernel about the rows.
        """
        answers = self.source.over_panels(panel_diagonal, self.kernel, self.template)
        tell([warned for _, warned in answers])
        return np.concatenate([diagonal for diagonal, _ in answers])

    def columns(self, indices: Indices) -> Array:
        """Return the columns of K named by `indices`, shape (n, len(indices))."""
        chosen = self.source.take(indices)
        shared = self.cluster.submit(as_it_is, chosen, name="rows")  # or every panel's task would carry them
        C = np.concatenate(self.source.over_panels(panel_columns, self.kernel, self.template, shared))
        picked, _ = prepared(self.kernel, chosen, self.template)
        return with_entries(C, indices, self.kernel.tile_diagonal(picked))

    def block(self, rows: Indices, columns: Indices) -> Array:
        """Return the entries of K in the named rows and columns, computed on this machine."""
        return compute_tile(self.kernel, self.rows.take(rows), self.rows.take(columns), self.like, False)

    def to_dense(self, overwrite: bool = False) -> Array:
        """Return K as a new square array on this machine, exactly symmetric."""
        K = self.columns(np.arange(self.shape[0]))
        mirror_upper(K)
        return K


class _TakenRows(LazyRows):
    """Rows of a cluster that `take` prepares on this machine."""

    is_local = False

    def __init__(self, kernel: Kernel, source: ClusterRows, template: PreparedRows) -> None:
        super().__init__(kernel, source.shape[0], template)
        self.source = source

    def take(self, indices: Indices) -> PreparedRows:
        return prepared(self.kernel, self.source.take(indices), self._template)[0]


def _specs(rows: ClusterRows, cache: bool) -> tuple[list[ShareSpec], list[Worker]]:
    """Return one share for every worker, with its threads; none where there are too few panels."""
    workers = rows.cluster.workers
    hosts = Counter(worker.host for worker in workers)
    sizes = [stop - start for start, stop in rows.bounds]
    found = assign_tiles(sizes, [worker.threads for worker in workers])
    shares = [
        (ShareSpec(panels, pairs, worker.threads, worker.memory, hosts[worker.host], cache), worker)
        for (panels, pairs), worker in zip(found, workers, strict=True)
        if pairs
    ]
    return [spec for spec, _ in shares], [worker for _, worker in shares]


@dataclass(frozen=True)
class ClusterStorage(Storage):
    """Upper tiles on the workers of a cluster, cached where their memory allows."""

    def bytes_held(self, item_size: int) -> int:
        """Return the bytes of K in this process: none."""
        return 0

    def build(self, source: KernelRows) -> DaskGram:
        template = source.template or source.kernel.template(source.X, centered=True)
        return DaskGram(source.kernel, source.X, report=source.report, template=template)

    def __str__(self) -> str:
        workers = pluralize(self.workers, "worker")
        return f"distributed: upper tiles dealt out to {workers}, kept where their memory allows"
