"""K as upper tiles, each used twice in a product, none … all of them cached."""

from __future__ import annotations

from typing import Any

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.backend.device import free_bytes, is_on_gpu, operator_on_its_device
from gpukpca.backend.elementwise import place_for, put
from gpukpca.backend.limits import SHARE_ALONE
from gpukpca.backend.linalg import mirror_upper, symmetric_from_upper
from gpukpca.backend.namespace import cast, empty_like, item_size, namespace_of, writable
from gpukpca.backend.parallel import TileReport, map_tiles, restore_order, row_slices, worker_count
from gpukpca.backend.rows import as_rows
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.columns import kernel_columns
from gpukpca.gram.product import compute_tile, dense_row_bytes
from gpukpca.gram.tiling import rows_at_once, tile_edge_for, tile_order, tiles_within, upper_tiles
from gpukpca.gram.upper_tiles import UpperTiles
from gpukpca.kernels.base import Kernel, resolved_on
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.kernels.streamed import StreamedRows


@operator_on_its_device
class TiledGram(SymmetricOperator):
    """The kernel matrix of X as an operator: ``op @ V``, by square tiles of the upper triangle.

    Tile (I, J) gives ``out[I] += T @ V[J]`` and ``out[J] += T.T @ V[I]``, so half of K is evaluated. The first
    product fills the cache; tiles beyond it are recomputed in every product.

    Parameters
    ----------
    kernel : Kernel
    X : array or CSR matrix, shape (n, d)
    cached_tiles : int, optional
        How many upper tiles to keep. Default: as many as fit into half of the free memory.
    tile_edge : int, optional
        Default: 640 on a CPU, 8192 or 4096 on a GPU.
    n_jobs : int, optional
        Threads (NumPy only). None: as many as BLAS may use now. The result depends on the number of threads in the
        last digits, and on nothing else.
    centered : bool
        The operator will only be used inside a `CenteredGram`: terms of one argument alone are left out of the tiles,
        which keeps the digits of offset data and of flat kernels. The operator is then not K itself.
    report : callable, optional
        Called with (tiles done, tiles in all) during a product.
    template : Rows, optional
        ``kernel.template(X, centered)``, where it is at hand; it then decides about `centered`.
    panel : int
        0 holds the rows of X made ready in memory. Else they are read from X (a memory map) when they are wanted, and
        those of so many tile columns are held.

    Attributes
    ----------
    shape, dtype, like
        See `gpukpca._typing.SymmetricOperator`.
    rounding : float
        See `gpukpca._typing.SymmetricOperator`.
    rows : Rows
        The prepared rows of X.
    tile_edge, cached_tiles, workers : int

    Notes
    -----
    A product costs n²/2 kernel values (for the tiles not cached) and 2 n² b operations. Memory: n (d + 2) items for
    the rows, the cached tiles, and for each thread one tile and one (n, b) block.
    """

    def __init__(
        self,
        kernel: Kernel,
        X: Array,
        *,
        cached_tiles: int | None = None,
        tile_edge: int | None = None,
        n_jobs: int | None = None,
        centered: bool = False,
        report: TileReport | None = None,
        template: PreparedRows | None = None,
        panel: int = 0,
    ) -> None:
        X = as_rows(X)
        self.kernel = resolved_on(kernel, X)
        if self.kernel.stored_only:
            raise InvalidParameterError(
                f"{type(kernel).__name__} cannot be evaluated tile by tile; store it: "
                "DenseGram(gram_matrix(kernel, X))."
            )
        self.name = f"the kernel {type(self.kernel).__name__}"
        n = int(X.shape[0])
        self.shape = (n, n)
        self.dtype = X.dtype
        self.like = empty_like(X)
        self.workers = worker_count(self.like, n_jobs)
        self.tile_edge = self._edge(tile_edge, dense_row_bytes(self.kernel, X))
        self.cached_tiles = self._tiles_to_cache(cached_tiles)
        template = template or self.kernel.template(X, centered)
        self.rounding = self.kernel.rounding(template)
        self.rows: PreparedRows
        if panel:
            self.rows = StreamedRows(self.kernel, X, template, rows_at_once(n, self.tile_edge, self.workers, panel))
        else:
            self.rows = self.kernel.prepare(X, like=template)
        self._edges = row_slices(n, self.tile_edge)
        self._tiles = tile_order(len(self._edges), panel)
        self._triangle = UpperTiles(
            self.kernel,
            self.rows,
            self.like,
            self._edges,
            self._tiles,
            self.cached_tiles,
            self.workers,
            by_panels=panel > 0,
            report=report,
        )

    def _edge(self, tile_edge: int | None, row_bytes: int) -> int:
        if tile_edge is not None and tile_edge < 1:
            raise InvalidParameterError(f"tile_edge={tile_edge!r} is not allowed; it must be at least 1.")
        return tile_edge or tile_edge_for(self.shape[0], self.workers, is_on_gpu(self.like), row_bytes)

    def _tiles_to_cache(self, cached_tiles: int | None) -> int:
        n, edge = self.shape[0], self.tile_edge
        if cached_tiles is not None:
            return min(max(0, int(cached_tiles)), upper_tiles(n, edge))
        return tiles_within(int(SHARE_ALONE * free_bytes(self.like)), n, edge, item_size(self.dtype))

    # -- products --------------------------------------------------------------------------------------------------

    def __matmul__(self, V: Array) -> Array:
        """K @ V, shape (n, b), in the dtype of K."""
        if V.ndim != 2 or V.shape[0] != self.shape[0]:
            raise InvalidParameterError(f"expected a block of shape ({self.shape[0]}, b), got {tuple(V.shape)}.")
        xp = namespace_of(self.like, V)
        V = cast(V, self.dtype)
        product = xp.concat(self._triangle.sums(V), axis=0)
        return product

    # -- the rest of the protocol ----------------------------------------------------------------------------------

    def diagonal(self) -> Array:
        """k(x, x) of every row, shape (n,)."""
        parts = [self.kernel.tile_diagonal(self.rows.slice(*bounds)) for bounds in self._edges]
        return namespace_of(self.like).concat(parts, axis=0)

    def columns(self, indices: Any) -> Array:
        """The columns of K named by `indices`, shape (n, len(indices)), made with threads."""
        edge, workers = self.tile_edge, self.workers
        return kernel_columns(self.kernel, self.rows, indices, self.like, tile_edge=edge, workers=workers)

    def block(self, rows: Any, columns: Any) -> Array:
        """The entries of K in the named rows and columns."""
        return compute_tile(self.kernel, self.rows.take(rows), self.rows.take(columns), self.like, False)

    def to_dense(self, overwrite: bool = False, *, upper: bool = False) -> Array:
        """K as a new square array, exactly symmetric; with `upper` only its upper triangle need be right."""
        K = writable(self.shape, self.like)

        def work(numbered: tuple[int, tuple[int, int]]) -> Array | None:
            number, (i, j) = numbered
            a, b = self.rows.slice(*self._edges[i]), self.rows.slice(*self._edges[j])
            if K is None:
                return self._triangle.tile(number, a, b, None)
            block = K[slice(*self._edges[i]), slice(*self._edges[j])]
            put(block, self._triangle.tile(number, a, b, place_for(block)))
            return None

        by_worker = map_tiles(work, list(enumerate(self._tiles)), self.workers, self._triangle.report)
        if K is None:
            return self._assembled(restore_order(by_worker, len(self._tiles)))
        if not upper:
            mirror_upper(K)
        return K

    def _assembled(self, tiles: list[Array]) -> Array:
        """The square matrix from the upper tiles, where the library cannot assign to parts."""
        xp = namespace_of(self.like)
        upper = dict(zip(self._tiles, tiles, strict=True))
        for i in range(len(self._edges)):
            upper[i, i] = symmetric_from_upper(upper[i, i], xp.linalg.diagonal(upper[i, i]))
        count = len(self._edges)
        rows = [
            xp.concat([upper[i, j] if i <= j else xp.matrix_transpose(upper[j, i]) for j in range(count)], axis=1)
            for i in range(count)
        ]
        return xp.concat(rows, axis=0)
