"""K of rows on the workers of a cluster as an operator, and its storage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from gpukpca._formatting import pluralize
from gpukpca._typing import Array, Indices, SymmetricOperator
from gpukpca.backend.limits import SHARE_OF_WORKER
from gpukpca.backend.linalg import mirror_upper
from gpukpca.backend.namespace import cast, item_size, to_host
from gpukpca.backend.parallel import TileReport, worker_count
from gpukpca.distributed.client import Cluster, released
from gpukpca.distributed.pairs import (
    Group,
    TilePair,
    added,
    panel_columns,
    panel_diagonal,
    place_pairs,
    prepare_rows,
    warn_of_panels,
)
from gpukpca.distributed.rows import ClusterRows, group_count
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.product import compute_tile
from gpukpca.gram.storage import StorageInput, TiledStorage
from gpukpca.gram.tiling import tile_edge_for
from gpukpca.kernels.base import Kernel, resolved_on
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.kernels.streamed import LazyRows


class DaskGram(SymmetricOperator):
    """The kernel matrix of rows on a cluster as an operator: ``op @ V`` for V on this machine.

    The rows are cut into groups. Every pair of groups has a worker, which caches as many of its tiles as its memory
    allows; each tile is used twice, as in `TiledGram`. A pair gets the rows of V of its two groups, and its parts of
    the product are summed by group on the workers. Pairs move to other workers when theirs ends, and to workers that
    join later.

    Parameters
    ----------
    kernel : Kernel
    rows : ClusterRows
    cached : float, optional
        Share of the tiles that are cached. Default: what half of the memory of the workers holds.
    report : callable, optional
        Called with (pairs done, pairs in all) during a product.
    template : PreparedRows, optional
        What the kernel learned from all rows. Default ``kernel.template(rows)``. One for centering makes an operator
        for use inside a `CenteredGram` only.

    Attributes
    ----------
    shape, dtype, like
        See `gpukpca.gram.SymmetricOperator`; blocks are NumPy arrays.
    rows : PreparedRows
        ``rows.take(chosen)`` prepares rows on this machine.

    Raises
    ------
    ClusterError
        Workers or scheduler are lost during a product.

    Notes
    -----
    A product has 2 g + g (g + 1) / 2 tasks for g groups. For t threads g = ⌈√(8 t)⌉, or up to half more where the rows
    are in that many panels already. A product moves at most n b items to a worker and 2 n b from it; rows of X move
    once, n d items to a worker at most. Dask's work stealing moves more: a worker that idles takes the tiles of a pair
    from a busy one, which ``distributed.scheduler.work-stealing: false`` prevents. Sums are made in float64 in an order
    that depends on the groups alone, so a product is the same to the last bit whichever workers end or join.
    """

    def __init__(
        self,
        kernel: Kernel,
        rows: ClusterRows,
        *,
        cached: float | None = None,
        report: TileReport | None = None,
        template: PreparedRows | None = None,
    ) -> None:
        self.kernel: Kernel = resolved_on(kernel, rows)
        if self.kernel.stored_only:
            raise InvalidParameterError(
                f"{type(kernel).__name__} cannot be evaluated tile by tile, so a cluster cannot share the work."
            )
        rows = rows.held
        n = rows.shape[0]
        self.name: str = f"the kernel {type(self.kernel).__name__}"
        self.shape: tuple[int, int] = (n, n)
        self.dtype: Any = rows.dtype
        self.source = rows
        self.report = report
        self._cached = cached
        self.template: PreparedRows = template or self.kernel.template(rows)
        self.rounding: float = self.kernel.rounding(self.template)
        self.positive_definite: bool | None = self.kernel.positive_definite
        self.rows: _TakenRows = _TakenRows(self.kernel, rows, self.template)
        self.like: Array = rows.like[:, 0]
        self.workers: int = worker_count(rows.like)

    @cached_property
    def pairs(self) -> TilePairs:
        """The tiles on the workers, from the first product on."""
        cached = self._cached
        if cached is None:
            cached = ClusterStorage.of(self.source, self.template.row_bytes).cached_share
        return TilePairs(self.kernel, self.source, self.template, cached)

    def __matmul__(self, V: Array) -> Array:
        """Return K @ V, shape (n, b), in the dtype of K."""
        if V.ndim != 2 or V.shape[0] != self.shape[0]:
            raise InvalidParameterError(f"expected a block of shape ({self.shape[0]}, b), got {tuple(V.shape)}.")
        return self.pairs.product(cast(to_host(V), self.dtype), self.report)

    # -- the rest of the protocol --------------------------------------------------------------------------------------

    def diagonal(self) -> Array:
        """Return k(x, x) of every row, shape (n,), with the warnings of the kernel about the rows."""
        found = self.source.each(panel_diagonal, self.kernel, self.template)
        warn_of_panels([held for _, held in found])
        return np.concatenate([diagonal for diagonal, _ in found])

    def columns(self, indices: Indices) -> Array:
        """Return the columns of K named by `indices`, shape (n, len(indices)), on this machine."""
        named = np.asarray(indices, dtype=np.int64).reshape(-1)
        chosen = self.kernel, self.template, self.source.take(named), named
        return self.source.joined(panel_columns, self._numbers, *chosen)

    @cached_property
    def _numbers(self) -> ClusterRows:
        return self.source.split(np.arange(self.shape[0]))

    def block(self, rows: Indices, columns: Indices) -> Array:
        """Return the entries of K in the named rows and columns, computed on this machine."""
        return compute_tile(self.kernel, self.rows.take(rows), self.rows.take(columns), self.source.like[:, 0], False)

    def to_dense(self) -> Array:
        """Return K as a new square array on this machine, exactly symmetric."""
        K = self.columns(np.arange(self.shape[0]))
        mirror_upper(K)
        return K


class TilePairs:
    """The tiles of K on the workers, by pairs of row groups.

    Attributes
    ----------
    groups : list of (int, int)
        The groups of every pair.
    owners : list of str
        The address of the worker of every pair.
    """

    def __init__(self, kernel: Kernel, source: ClusterRows, template: PreparedRows, cached: float) -> None:
        self.cluster: Cluster = source.cluster
        self._cached = cached
        self.groups: list[tuple[int, int]]
        rows, self.groups = source.in_pairs()
        self.rows: ClusterRows = rows.map(Group, kernel, template, width=source.shape[1])
        self._costs = [rows.sizes[i] * rows.sizes[j] / (2.0 if i == j else 1.0) for i, j in self.groups]
        self.owners: list[str] = [""] * len(self.groups)
        self._tiles: list[Any] = [None] * len(self.groups)
        self._threads: dict[str, int] = {}
        self._kernel = self.cluster.share(kernel)

    def resubmit(self) -> None:
        """Submit the pairs that were lost, and those whose worker changes with the workers of now."""
        owners, workers = self.owners, self.cluster.workers_now() or self.cluster.workers
        now = {worker.address: worker.threads for worker in workers}
        if now != self._threads:
            owners = place_pairs(self._costs, owners, now)
        # With fewer workers than at the start each has more pairs, and no room for more tiles.
        cached = self._cached if sum(now.values()) >= self.cluster.threads else 0.0
        for k, (pair, owner) in enumerate(zip(self.groups, owners, strict=True)):
            if owner != self.owners[k] or self._tiles[k].status == "cancelled":
                groups = [self.rows.panels[group] for group in dict.fromkeys(pair)]
                self._tiles[k] = self.cluster.submit(
                    TilePair, self._kernel, *groups, arguments=(cached,), name="tiles", worker=owner
                )
        self.owners, self._threads = owners, now

    def product(self, V: Array, report: TileReport | None) -> Array:
        """Return K @ V in this process."""
        return self.rows.retried(lambda: self._product(V, report))

    def _product(self, V: Array, report: TileReport | None) -> Array:
        self.resubmit()
        bounds, submit, blocks = self.rows.bounds, self.cluster.submit, self.rows.split(V).panels
        products = [
            submit(TilePair.times, tiles, *(blocks[k] for k in dict.fromkeys(pair)), name="product", worker=owner)
            for tiles, pair, owner in zip(self._tiles, self.groups, self.owners, strict=True)
        ]
        spans = [f"rows {start} to {stop - 1}" for start, stop in bounds]
        with released(products):
            self.cluster.wait(products, [f"the product of {spans[i]} with {spans[j]}" for i, j in self.groups], report)
            sums = []
            for group in range(len(bounds)):
                touching = [k for k, pair in enumerate(self.groups) if group in pair]
                places = [0 if self.groups[k][0] == group else 1 for k in touching]
                parts = [products[k] for k in touching]
                sums.append(submit(added, *parts, arguments=(places, str(V.dtype)), name="sum"))
            return np.concatenate(self.cluster.results(sums, [f"the sum of {span}" for span in spans]), axis=0)


class _TakenRows(LazyRows):
    """Rows of a cluster that `take` prepares on this machine."""

    is_local = False

    def __init__(self, kernel: Kernel, source: ClusterRows, template: PreparedRows) -> None:
        super().__init__(kernel, source.shape[0], template)
        self.source = source

    def take(self, indices: Indices) -> PreparedRows:
        return prepare_rows(self.kernel, self.source.take(indices), self._template)[0]


# -- storages ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClusterStorage(TiledStorage):
    """Upper tiles on the workers of a cluster, cached where their memory allows."""

    @classmethod
    def of(cls, rows: ClusterRows, row_bytes: int) -> Self:
        """Return the storage whose cached tiles and prepared rows fill half of the workers' memory."""
        cluster, (n, d), item = rows.cluster, rows.shape, item_size(rows.dtype)
        groups, memory_of = group_count(cluster.threads), cluster.memory(rows.on_gpu)
        rooms = []
        for worker, memory in zip(cluster.workers, memory_of, strict=True):
            share = worker.threads / cluster.threads
            touched = min(1.0, share * (groups + 1) / 2.0 + 2.0 / groups)  # of the groups, by the pairs of a worker
            room = SHARE_OF_WORKER * memory - touched * n * (d * item + row_bytes)
            rooms.append(room / share)
        edge = tile_edge_for(-(-n // groups), 1, rows.on_gpu)
        within = TiledStorage.within(int(min(rooms)), n, item, len(cluster.workers), edge)
        return cls(n, within.workers, edge, within.cached_tiles)

    @property
    def cached_share(self) -> float:
        """Return the share of the tiles that are cached."""
        return self.cached_tiles / self.tiles

    def bytes_held(self, item_size: int) -> int:
        """Return the bytes of K in this process: none."""
        return 0

    def build(self, source: StorageInput) -> Any:
        template = source.template or source.kernel.template(source.X, centered=True)
        return DaskGram(source.kernel, source.X, cached=self.cached_share, report=source.report, template=template)

    def __str__(self) -> str:
        cached = "all" if self.is_fully_cached else str(self.cached_tiles)
        tiles, where = pluralize(self.tiles, "upper tile"), pluralize(self.workers, "worker")
        return f"distributed: {tiles} of edge {self.tile_edge} on {where}, {cached} cached"


# The storages that model files hold.
STORED = (ClusterStorage,)
