"""K as upper tiles: each is used twice in a product, and none, some or all of them are cached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from gpukpca._rules import NONE, integer, one_of
from gpukpca._typing import Array, Indices, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.device import free_bytes, is_on_gpu, on_its_device, operator_on_its_device
from gpukpca.backend.limits import SHARE_ALONE
from gpukpca.backend.namespace import cast, empty_like, item_size, namespace_of, writable
from gpukpca.backend.parallel import TileReport, map_tiles, row_slices, worker_count
from gpukpca.backend.rows import as_rows, check_not_empty
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.arguments import check_block, check_indices
from gpukpca.gram.product import N_JOBS, TILE_EDGE, compute_tile, dense_row_bytes, kernel_columns, square_from_tiles
from gpukpca.gram.tiling import rows_at_once, tile_edge_for, tile_order, tiles_within, upper_tiles
from gpukpca.kernels.base import Kernel, resolved_on
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.kernels.streamed import StreamedRows

CACHED_TILES = one_of(NONE, integer(at_least=0))


@operator_on_its_device
class TiledGram(SymmetricOperator):
    """The kernel matrix of X as an operator ``op @ V``, by square tiles of the upper triangle.

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
    report : callable, optional
        Called with (tiles done, tiles in all) during a product.

    Attributes
    ----------
    shape, dtype, like
        See `gpukpca._typing.SymmetricOperator`.
    rounding : float
        See `gpukpca._typing.SymmetricOperator`.
    rows : PreparedRows
        The prepared rows of X.
    tile_edge, tiles, cached_tiles, workers : int

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
        report: TileReport | None = None,
    ) -> None:
        X = as_rows(X)
        kernel = _tileable(kernel, X)
        self._set_up(kernel, X, kernel.template(X), cached_tiles, tile_edge, n_jobs, report, 0)

    def _set_up(
        self,
        kernel: Kernel,
        X: Array,
        template: PreparedRows,
        cached_tiles: int | None,
        tile_edge: int | None,
        n_jobs: int | None,
        report: TileReport | None,
        panel: int,
    ) -> None:
        """Set all attributes from rows X (n, d), a resolved kernel and what it learned from X."""
        self.name = f"the kernel {type(kernel).__name__}"
        n = int(X.shape[0])
        self.kernel, self.shape, self.dtype, self.like = kernel, (n, n), X.dtype, empty_like(X)
        N_JOBS.check_argument("n_jobs", n_jobs)
        self.workers = worker_count(self.like, n_jobs)
        TILE_EDGE.check_argument("tile_edge", tile_edge)
        row_bytes = dense_row_bytes(kernel, X)
        self.tile_edge = tile_edge or tile_edge_for(n, self.workers, is_on_gpu(self.like), row_bytes)
        self.tiles = upper_tiles(n, self.tile_edge)
        self.cached_tiles = self._tiles_to_cache(cached_tiles)
        self.rounding = kernel.rounding(template)
        self.rows: PreparedRows
        if panel:
            self.rows = StreamedRows(kernel, X, template, rows_at_once(n, self.tile_edge, self.workers, panel))
        else:
            self.rows = kernel.prepare(X, like=template)
        self._bounds = row_slices(n, self.tile_edge)
        self._upper = UpperTiles(
            kernel,
            self.rows,
            self.like,
            self._bounds,
            tile_order(len(self._bounds), panel),
            self.cached_tiles,
            self.workers,
            by_panels=panel > 0,
            report=report,
        )

    def _tiles_to_cache(self, cached_tiles: int | None) -> int:
        n, edge = self.shape[0], self.tile_edge
        CACHED_TILES.check_argument("cached_tiles", cached_tiles)
        if cached_tiles is not None:
            return min(int(cached_tiles), self.tiles)
        return tiles_within(int(SHARE_ALONE * free_bytes(self.like)), n, edge, item_size(self.dtype))

    # -- products --------------------------------------------------------------------------------------------------

    def __matmul__(self, V: Array) -> Array:
        """Return K @ V, shape (n, b), in the dtype of K."""
        check_block(self, V)
        xp = namespace_of(self.like, V)
        V = cast(V, self.dtype)
        return xp.concat(self._upper.sums(V), axis=0)

    # -- the rest of the protocol ----------------------------------------------------------------------------------

    def diagonal(self) -> Array:
        """Return k(x, x) of every row, shape (n,)."""
        parts = [self.kernel.tile_diagonal(self.rows.slice(*bounds)) for bounds in self._bounds]
        return namespace_of(self.like).concat(parts, axis=0)

    def columns(self, indices: Indices) -> Array:
        """Return the columns of K named by `indices`, shape (n, len(indices)), computed with threads."""
        check_indices(self, indices)
        edge, workers = self.tile_edge, self.workers
        return kernel_columns(self.kernel, self.rows, indices, self.like, tile_edge=edge, workers=workers)

    def block(self, rows: Indices, columns: Indices) -> Array:
        return compute_tile(self.kernel, self.rows.take(rows), self.rows.take(columns), self.like, False)

    def to_dense(self, overwrite: bool = False) -> Array:
        """Return K as a new square array, exactly symmetric."""
        upper = self._upper

        def tile(number: int, i: int, j: int, out: Array | None) -> Array:
            if (cached := upper.cached(number)) is not None:
                return cached
            a, b = self.rows.slice(*self._bounds[i]), self.rows.slice(*self._bounds[j])
            return upper.compute(number, a, b, out)

        return square_from_tiles(tile, self._bounds, upper.tiles, self.like, self.workers, upper.report)


def _tileable(kernel: Kernel, X: Array) -> Kernel:
    """Return the kernel with numbers in place of rules; raise where it cannot be evaluated tile by tile."""
    check_not_empty(X, "a kernel matrix")
    resolved = resolved_on(kernel, X)
    if resolved.stored_only:
        raise InvalidParameterError(
            f"{type(kernel).__name__} cannot be evaluated tile by tile; store it: DenseGram(gram_matrix(kernel, X))."
        )
    return resolved


@on_its_device
def shifted_gram(
    kernel: Kernel,
    X: Array,
    template: PreparedRows | None = None,
    *,
    cached_tiles: int | None = None,
    tile_edge: int | None = None,
    n_jobs: int | None = None,
    report: TileReport | None = None,
    panel: int = 0,
) -> TiledGram:
    """Return the operator of K without terms of one argument alone, which centering removes.

    Its tiles keep the digits of offset data and of flat kernels. Use it inside a `CenteredGram` only: it is not K.

    Parameters
    ----------
    kernel, X, cached_tiles, tile_edge, n_jobs, report
        See `TiledGram`.
    template : PreparedRows, optional
        ``kernel.template(X, centered=True)``, where it is at hand.
    panel : int
        0 holds all prepared rows of X. Else X (a memory map) is read during products, and the rows of so many tile
        columns are held.
    """
    X = as_rows(X)
    kernel = _tileable(kernel, X)
    op = TiledGram.__new__(TiledGram)
    template = template or kernel.template(X, centered=True)
    op._set_up(kernel, X, template, cached_tiles, tile_edge, n_jobs, report, panel)
    return op


@dataclass(eq=False, repr=False)
class UpperTiles:
    """Tiles T = K[I, J] with I <= J, each used twice in a product: ``out[I] += T @ V[J]`` and ``out[J] += T.T @ V[I]``.

    Parameters
    ----------
    kernel : Kernel
    rows : PreparedRows
        Only slices that tiles touch are used.
    like : array
        Gives library, dtype and device.
    bounds : list of (start, stop)
        Consecutive slices of the rows.
    tiles : list of (i, j)
        Numbers of slices, i <= j, in the order in which the tiles are computed.
    cached_tiles : int
        So many of the first tiles are cached; the others are recomputed in every product.
    workers : int
        Threads.
    by_panels : bool
        Whether tiles that share a left operand are one piece of work, which suits rows that are read from a file.
    report : callable, optional
        Called with (tiles done, tiles in all) during a product.
    """

    kernel: Kernel
    rows: PreparedRows
    like: Array
    bounds: list[tuple[int, int]]
    tiles: list[tuple[int, int]]
    cached_tiles: int
    workers: int
    by_panels: bool = False
    report: TileReport | None = None

    def __post_init__(self) -> None:
        self.widest = max((stop - start for start, stop in self.bounds), default=0)
        self._cache: dict[int, Array] = {}
        numbered = list(enumerate(self.tiles))
        # A worker's piece of work: a tile, or, where rows are read, all tiles of a panel that share a left operand.
        self._turns = [
            list(turn) for _, turn in groupby(numbered, lambda tile: tile[1][0] if self.by_panels else tile[0])
        ]

    def sums(self, V: Array) -> list[Array | None]:
        """Return what these tiles add to K @ V, one block for each slice of rows; None where they do not touch it."""
        blocks = [V[start:stop, :] for start, stop in self.bounds]
        strands = [_WorkerAccumulator(self, blocks) for _ in range(self.workers)]

        def work(turn: int) -> None:
            for number, (i, j) in self._turns[turn]:
                strands[turn % self.workers].use(number, i, j)

        heavy = len(self._cache) < len(self.tiles) or V.shape[0] ** 2 * V.shape[1] > blocking.LIGHT_PRODUCT
        map_tiles(work, list(range(len(self._turns))), self.workers, self.report, threads=heavy)
        return [_summed([strand.sums[i] for strand in strands]) for i in range(len(self.bounds))]

    def cached(self, number: int) -> Array | None:
        """Return the tile with this number if it is cached by now."""
        return self._cache.get(number)

    def compute(self, number: int, a: PreparedRows, b: PreparedRows, buffer: Array | None) -> Array:
        """Return the tile with this number, computed from its rows; cache it if the cache has room for its number."""
        i, j = self.tiles[number]
        if number >= self.cached_tiles:
            return compute_tile(self.kernel, a, b, self.like, i == j, buffer)
        tile = compute_tile(self.kernel, a, b, self.like, i == j, writable((a.n_rows, b.n_rows), self.like))
        self._cache[number] = tile
        return tile


class _WorkerAccumulator:
    """The sums, the tile buffer and the latest right operand of one worker during one product."""

    def __init__(self, tiles: UpperTiles, blocks: list[Array]) -> None:
        self.tiles, self.blocks = tiles, blocks
        self.sums: list[Array | None] = [None] * len(blocks)
        self._buffer: Array | None = None
        self._column = -1
        self._right: PreparedRows | None = None

    def use(self, number: int, i: int, j: int) -> None:
        """Add both products of tile (i, j)."""
        T = self._tile(number, i, j)
        self._add(i, T @ self.blocks[j])
        if i != j:
            self._add(j, namespace_of(T).matrix_transpose(T) @ self.blocks[i])

    def _tile(self, number: int, i: int, j: int) -> Array:
        tiles = self.tiles
        if (cached := tiles.cached(number)) is not None:
            return cached
        if self._right is None or self._column != j:
            self._column, self._right = j, tiles.rows.slice(*tiles.bounds[j])
        if self._buffer is None and number >= tiles.cached_tiles:
            self._buffer = writable((tiles.widest, tiles.widest), tiles.like)
        return tiles.compute(number, tiles.rows.slice(*tiles.bounds[i]), self._right, self._buffer)

    def _add(self, i: int, part: Array) -> None:
        if self.sums[i] is None:
            self.sums[i] = part
        else:
            self.sums[i] += part


def _summed(parts: Sequence[Array | None]) -> Array | None:
    """Return the sum of the workers' shares in their fixed order; None where no worker had a share."""
    shares = [part for part in parts if part is not None]
    if not shares:
        return None
    total = shares[0]
    for share in shares[1:]:
        total = total + share
    return total
