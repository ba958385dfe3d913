"""K as upper tiles: each is used twice in a product, and none, some or all of them are cached."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate, groupby
from typing import Any

from gpukpca._rules import NONE, integer, one_of
from gpukpca._typing import Array, ColumnPanels, Indices, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.device import free_bytes, is_on_gpu, on_its_device, operator_on_its_device
from gpukpca.backend.elementwise import put
from gpukpca.backend.limits import SHARE_ALONE
from gpukpca.backend.linalg import add_tile_product, symmetric_from_upper
from gpukpca.backend.namespace import cast, empty_like, is_numpy, item_size, namespace_of, writable
from gpukpca.backend.parallel import TileReport, map_tiles, occupied, row_slices, worker_count
from gpukpca.data.gate import as_rows
from gpukpca.data.slicing import place_of
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.arguments import check_block, check_indices
from gpukpca.gram.product import (
    N_JOBS,
    TILE_EDGE,
    column_panel,
    compute_tile,
    kernel_columns,
    matrix_of_tiles,
)
from gpukpca.gram.tiling import dense_row_bytes, prepared_at_once, tile_edge_for, tile_order, tiles_within, upper_tiles
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
        Threads (NumPy only). None: as many as BLAS may use now. Only the last digits of the result depend on it.
    report : callable, optional
        Called with (tiles done, tiles in all) during a product.

    Attributes
    ----------
    shape, dtype, like, rounding
        See `gpukpca.gram.SymmetricOperator`.
    rows : PreparedRows
        The prepared rows of X.
    tile_edge, tiles, cached_tiles, workers : int

    See Also
    --------
    kernel_matmat : The product of K(X, Y) with a block.
    DenseGram : The stored matrix.

    Notes
    -----
    A product costs n²/2 kernel values (for the tiles not cached) and 2 n² b operations. Memory: n (d + 2) items for
    the rows, the cached tiles, and for each thread one tile and one (n, b) block.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.gram import TiledGram, gram_matrix
    >>> from gpukpca.kernels import RBF
    >>> X = np.random.default_rng(0).standard_normal((300, 3))
    >>> op = TiledGram(RBF(gamma=0.5), X, tile_edge=128, cached_tiles=2)
    >>> op.tiles, op.cached_tiles
    (6, 2)
    >>> V = np.ones((300, 2))
    >>> bool(np.allclose(op @ V, gram_matrix(RBF(gamma=0.5), X) @ V))
    True
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
        self._set_up(kernel, X, False, None, 0, cached_tiles, tile_edge, n_jobs, report)

    def _set_up(
        self,
        kernel: Kernel,
        X: Array,
        centered: bool,
        template: PreparedRows | None,
        panel: int,
        cached_tiles: int | None = None,
        tile_edge: int | None = None,
        n_jobs: int | None = None,
        report: TileReport | None = None,
    ) -> None:
        """Set all attributes from rows X (n, d); `shifted_gram` describes the arguments."""
        if template is None:  # a template is that of a fit, whose rows and parameters are checked
            X = as_rows(X, "a kernel matrix")
            kernel = resolved_on(kernel, X)
            if kernel.stored_only:
                raise InvalidParameterError(
                    f"{type(kernel).__name__} cannot be evaluated tile by tile; store it: "
                    "DenseGram(gram_matrix(kernel, X))."
                )
            N_JOBS.check_argument("n_jobs", n_jobs)
            TILE_EDGE.check_argument("tile_edge", tile_edge)
            CACHED_TILES.check_argument("cached_tiles", cached_tiles)
            template = kernel.template(X, centered)
        n = int(X.shape[0])
        self.kernel: Kernel = kernel
        self.name: str = f"the kernel {type(kernel).__name__}"
        self.rounding: float = self.kernel.rounding(template)
        self.positive_definite: bool | None = self.kernel.positive_definite
        self.shape: tuple[int, int] = (n, n)
        self.dtype: Any = X.dtype
        self.like: Array = empty_like(place_of(X))
        self.workers: int = worker_count(self.like, n_jobs, n * n / 2 * (X.shape[1] + blocking.KERNEL_VALUE))
        row_bytes = dense_row_bytes(self.kernel, X)
        edge = tile_edge or tile_edge_for(n, self.workers, is_on_gpu(self.like), row_bytes)
        self.tile_edge: int = edge
        self.tiles: int = upper_tiles(n, edge)
        if cached_tiles is None:
            cached_tiles = tiles_within(int(SHARE_ALONE * free_bytes(self.like)), n, edge, item_size(self.dtype))
        self.cached_tiles: int = min(int(cached_tiles), self.tiles)
        self.rows: PreparedRows
        if panel:
            self.rows = StreamedRows(self.kernel, X, template, prepared_at_once(n, edge, self.workers, panel))
        else:
            self.rows = self.kernel.prepare(X, like=template)
        self._bounds, self._panel, self._report = row_slices(n, edge), panel, report
        self._class_of_tiles: type[UpperTiles] = UpperTiles

    @cached_property
    def _upper(self) -> UpperTiles:
        """The tiles, listed when a product first needs them: columns do not, and their number grows as n²."""
        order, kept = tile_order(len(self._bounds), self._panel), self.cached_tiles
        return self._class_of_tiles(
            self.kernel,
            self.rows,
            self.like,
            self._bounds,
            order,
            kept,
            self.workers,
            by_panels=self._panel > 0,
            report=self._report,
        )

    def __matmul__(self, V: Array) -> Array:
        xp = check_block(self, V)
        V = cast(V, self.dtype)
        return xp.concat(self._upper.sums(V), axis=0)

    def diagonal(self) -> Array:
        parts = [self.kernel.tile_diagonal(self.rows.slice(*bounds)) for bounds in self._bounds]
        return namespace_of(self.like).concat(parts, axis=0)

    def columns(self, indices: Indices) -> Array:
        check_indices(self, indices)
        edge, workers = self.tile_edge, self.workers
        return kernel_columns(self.kernel, self.rows, indices, self.like, tile_edge=edge, workers=workers)

    def column_panels(self, indices: Indices) -> ColumnPanels:
        check_indices(self, indices)
        panel = column_panel(self.kernel, self.rows, indices, self.like)
        if not self.kernel.densifies:
            return lambda start, stop: panel(start, stop, None)

        def joined(start: int, stop: int) -> Array:  # few sparse rows are dense at once
            slices = row_slices(stop - start, self.tile_edge)
            return namespace_of(self.like).concat([panel(start + a, start + b, None) for a, b in slices], axis=0)

        return joined

    def block(self, rows: Indices, columns: Indices) -> Array:
        return compute_tile(self.kernel, self.rows.take(rows), self.rows.take(columns), self.like, False)

    def to_dense(self) -> Array:
        upper = self._upper

        def tile(number: int, i: int, j: int, out: Array | None) -> Array:
            if (cached := upper.cache.get(number)) is not None:
                return cached
            a, b = self.rows.slice(*self._bounds[i]), self.rows.slice(*self._bounds[j])
            return upper.compute(number, a, b, out)

        K = matrix_of_tiles(tile, self._bounds, self._bounds, upper.tiles, self.like, self.workers, upper.report)
        return symmetric_from_upper(K, namespace_of(K).linalg.diagonal(K))


@on_its_device
def shifted_gram(
    kernel: Kernel,
    X: Array,
    template: PreparedRows | None = None,
    *,
    panel: int = 0,
    **options: Any,
) -> TiledGram:
    """Return the operator of K without terms of one argument alone, which centering removes.

    Its tiles keep the digits of offset data and of flat kernels. Use it inside a `CenteredGram` only: it is not K.

    Parameters
    ----------
    kernel, X
        See `TiledGram`.
    template : PreparedRows, optional
        ``kernel.template(X, centered=True)``, where it is known. One without centering makes K itself.
    panel : int
        0 holds all prepared rows of X. Else products read X, a memory map or batches, and hold the rows of so many tile
        columns.
    **options
        `cached_tiles`, `tile_edge`, `n_jobs` and `report` of `TiledGram`.
    """
    op = TiledGram.__new__(TiledGram)
    op._set_up(kernel, X, True, template, panel, **options)
    return op


@dataclass(eq=False, repr=False)
class UpperTiles:
    """Tiles T = K[I, J] with I <= J, each used twice in a product: ``out[I] += T @ V[J]`` and ``out[J] += T.T @ V[I]``.

    `bounds` are consecutive slices of the rows, and `tiles` pairs (i, j), i <= j, of them in the order of computation.
    The first `cached_tiles` are cached; every product recomputes the others. With `by_panels`, for rows that are read
    from a file, all tiles of a panel that share a left operand are one piece of work.
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
        self.cache: dict[int, Array] = {}  # tiles by number
        edges = [stop - start for start, stop in self.bounds]
        self.widest: int = max(edges, default=0)
        self._offsets = list(accumulate([edges[i] * edges[j] for i, j in self.tiles[: self.cached_tiles]], initial=0))
        self._memory: Array | None = None
        operand = (lambda tile: tile[1][0]) if self.by_panels else operator.itemgetter(0)
        self._turns = [list(turn) for _, turn in groupby(enumerate(self.tiles), operand)]

    def sums(self, V: Array) -> list[Array | None]:
        """Return the part of K @ V of these tiles, a block for each slice of rows; None where no tile has its rows."""
        if self._memory is None and is_numpy(self.like):
            # One piece of memory: the first use of 400 MiB in single tiles of 3 MiB took 0.1 s, and this a fifth of it.
            self._memory = writable((self._offsets[-1],), self.like)
        blocks = [V[start:stop, :] for start, stop in self.bounds]
        accumulators = [_WorkerAccumulator(self, blocks) for _ in range(self.workers)]

        def work(turn: int) -> None:
            for number, (i, j) in self._turns[turn]:
                accumulators[turn % self.workers].use(number, i, j)

        heavy = len(self.cache) < len(self.tiles) or occupied(2, V.shape[0] ** 2 * V.shape[1]) > 1
        map_tiles(work, list(range(len(self._turns))), self.workers, self.report, threads=heavy)
        return [_summed([worker.sums[i] for worker in accumulators]) for i in range(len(self.bounds))]

    def compute(self, number: int, a: PreparedRows, b: PreparedRows, buffer: Array | None) -> Array:
        """Return the tile with this number, computed from its rows; cache it if the cache has room for its number."""
        (i, j), shape = self.tiles[number], (a.n_rows, b.n_rows)
        if number >= self.cached_tiles:
            if buffer is not None and buffer.shape != shape:  # a tile at the edge of K takes a part of it
                buffer = buffer.reshape(-1)[: math.prod(shape)].reshape(shape)
            return compute_tile(self.kernel, a, b, self.like, i == j, buffer)
        place = self._place(number, shape)
        tile = compute_tile(self.kernel, a, b, self.like, i == j, place)
        if self._memory is not None and place is not None:
            put(place, tile)  # a tile that was computed elsewhere, as from sparse rows, would take memory twice
            tile = place
        self.cache[number] = tile
        return tile

    def _place(self, number: int, shape: tuple[int, int]) -> Array | None:
        """Return the memory of a cached tile; None where the library cannot write to it."""
        if self._memory is None:
            return writable(shape, self.like)
        return self._memory[self._offsets[number] : self._offsets[number + 1]].reshape(shape)


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
        if i != j:  # a tile of the diagonal is symmetric
            self.sums[i] = add_tile_product(self.sums[i], T, self.blocks[j])
        self.sums[j] = add_tile_product(self.sums[j], T, self.blocks[i], transposed=True)

    def _tile(self, number: int, i: int, j: int) -> Array:
        tiles = self.tiles
        if (cached := tiles.cache.get(number)) is not None:
            return cached
        left = tiles.rows.slice(*tiles.bounds[i])  # first: batches are then read from one end to the other
        if self._right is None or self._column != j:
            self._column, self._right = j, tiles.rows.slice(*tiles.bounds[j])
        if self._buffer is None and number >= tiles.cached_tiles:
            self._buffer = writable((tiles.widest, tiles.widest), tiles.like)
        return tiles.compute(number, left, self._right, self._buffer)


def _summed(parts: Sequence[Array | None]) -> Array | None:
    """Return the sum of the workers' shares in their fixed order; None where no worker had a share."""
    shares = [part for part in parts if part is not None]
    return reduce(operator.add, shares) if shares else None
