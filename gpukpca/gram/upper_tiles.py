"""Some upper tiles of K with a cache: what one machine multiplies, the whole triangle or its share of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.namespace import namespace_of, writable
from gpukpca.backend.parallel import TileReport, map_tiles
from gpukpca.gram.product import compute_tile
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import PreparedRows


class UpperTiles:
    """Tiles T = K[I, J], I <= J, each used twice in a product: ``out[I] += T @ V[J]`` and ``out[J] += T.T @ V[I]``.

    Parameters
    ----------
    kernel : Kernel
    rows : Rows
        Made ready; its ``slice(start, stop)`` is asked for the edges that the tiles touch, and for no others.
    like : array
        Tells library, dtype and device.
    bounds : sequence of (start, stop)
        The edges: consecutive slices of the rows.
    tiles : sequence of (i, j)
        Numbers of edges, i <= j, in the order in which they are made.
    cached_tiles : int
        So many of the first tiles are kept once they are made; the others are made anew in every product.
    workers : int
        Threads.
    by_panels : bool
        Tiles that share a left operand are one piece of work: where rows are read from a file.
    report : callable, optional
        Called with (tiles done, tiles in all) during a product.
    """

    def __init__(
        self,
        kernel: Kernel,
        rows: PreparedRows,
        like: Array,
        bounds: Sequence[tuple[int, int]],
        tiles: Sequence[tuple[int, int]],
        cached_tiles: int,
        workers: int,
        *,
        by_panels: bool = False,
        report: TileReport | None = None,
    ) -> None:
        self.kernel, self.rows, self.like = kernel, rows, like
        self.bounds, self.tiles, self.cached_tiles, self.workers = list(bounds), list(tiles), cached_tiles, workers
        self.report = report
        self.widest = max((stop - start for start, stop in self.bounds), default=0)
        self._cache: dict[int, Array] = {}
        numbered = list(enumerate(self.tiles))
        # What a worker does in one go: a tile, or, where rows are read, all tiles of a panel that share a left operand.
        self._turns = [list(turn) for _, turn in groupby(numbered, lambda tile: tile[1][0] if by_panels else tile[0])]

    def sums(self, V: Array) -> list[Array | None]:
        """The rows of K @ V that these tiles add up to, one block for each edge; None for an edge they do not touch."""
        blocks = [V[start:stop, :] for start, stop in self.bounds]
        strands = [_WorkerAccumulator(self, blocks) for _ in range(self.workers)]

        def work(turn: int) -> None:
            for number, (i, j) in self._turns[turn]:
                strands[turn % self.workers].use(number, i, j)

        heavy = len(self._cache) < len(self.tiles) or V.shape[0] ** 2 * V.shape[1] > blocking.LIGHT_PRODUCT
        map_tiles(work, list(range(len(self._turns))), self.workers, self.report, threads=heavy)
        return [_summed([strand.sums[i] for strand in strands]) for i in range(len(self.bounds))]

    def tile(self, number: int, a: Any, b: Any, buffer: Array | None) -> Array:
        """A tile by its number, from the cache or newly made, kept if the cache has room for its number."""
        kept = self._cache.get(number)
        if kept is not None:
            return kept
        i, j = self.tiles[number]
        if number >= self.cached_tiles:
            return compute_tile(self.kernel, a, b, self.like, i == j, buffer)
        tile = compute_tile(self.kernel, a, b, self.like, i == j, writable((a.n_rows, b.n_rows), self.like))
        self._cache[number] = tile
        return tile

    def holds(self, number: int) -> bool:
        """Whether the tile with this number is kept by now."""
        return number in self._cache


class _WorkerAccumulator:
    """What one worker owns during one product: its sums, its tile buffer, the slices it used last."""

    def __init__(self, tiles: UpperTiles, blocks: list[Array]) -> None:
        self.tiles, self.blocks = tiles, blocks
        self.sums: list[Any] = [None] * len(blocks)
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
        if tiles.holds(number):
            return tiles.tile(number, None, None, None)
        if self._column != j:
            self._column, self._right = j, tiles.rows.slice(*tiles.bounds[j])
        if self._buffer is None and number >= tiles.cached_tiles:
            self._buffer = writable((tiles.widest, tiles.widest), tiles.like)
        return tiles.tile(number, tiles.rows.slice(*tiles.bounds[i]), self._right, self._buffer)

    def _add(self, i: int, part: Array) -> None:
        if self.sums[i] is None:
            self.sums[i] = part
        else:
            self.sums[i] += part


def _summed(parts: list[Any]) -> Array | None:
    """Sum of the workers' shares in their fixed order; a worker may have had no share, and so may all."""
    shares = [part for part in parts if part is not None]
    if not shares:
        return None
    total = shares[0]
    for share in shares[1:]:
        total = total + share
    return total
