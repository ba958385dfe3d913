"""Where the entries of K live: a memory model in integers, nothing allocated.

K is only ever touched as square tiles of its upper triangle, each used twice in a product. As many tiles as the
budget allows are kept after the first product; the others are recomputed in every pass. A full cache is K in half the
memory of the square matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpukpca._formatting import pluralize
from gpukpca.backend import blocking
from gpukpca.backend.parallel import row_slices


@dataclass(frozen=True)
class GramStorage:
    """How K is held.

    Attributes
    ----------
    kind : "dense", "tiled", "factored" or "distributed"
    n : int
    tile_edge : int
    cached_tiles : int
        Upper tiles kept after the first product; the rest are recomputed in every pass.
    workers : int
        Threads, or machines of a cluster.
    panel : int
        Tile columns whose rows are held together while X is read from a file; 0: all rows are in memory.
    rank : int
        Columns of F, where K is known by a factor.
    """

    kind: str
    n: int
    tile_edge: int
    cached_tiles: int
    workers: int
    panel: int = 0
    rank: int = 0

    @property
    def tiles(self) -> int:
        """Upper tiles of K, the diagonal ones included."""
        return upper_tiles(self.n, self.tile_edge)

    def cache_bytes(self, item_size: int) -> int:
        """Bytes of K that stay in memory."""
        if self.kind == "dense":
            return self.n * self.n * item_size
        if self.cached_tiles >= self.tiles:
            return full_cache_bytes(self.n, self.tile_edge, item_size)
        return self.cached_tiles * self.tile_edge**2 * item_size

    def describe(self) -> str:
        """One phrase for the plan."""
        if self.kind == "dense":
            return f"dense: the square matrix, {self.n} x {self.n}"
        if self.kind == "distributed":
            workers = pluralize(self.workers, "worker")
            return f"distributed: upper tiles dealt out to {workers}, kept where their memory allows"
        if self.kind == "factored":
            return f"factored: K = F Fᵀ, F {self.n} x {self.rank}"
        kept = "all" if self.cached_tiles >= self.tiles else str(self.cached_tiles)
        tiles = "1 upper tile" if self.tiles == 1 else f"{self.tiles} upper tiles"
        return f"tiled: {tiles} of edge {self.tile_edge}, {kept} cached"

    @property
    def is_fully_cached(self) -> bool:
        """Whether a pass recomputes nothing."""
        return self.kind == "dense" or self.cached_tiles >= self.tiles

    @property
    def rows_held(self) -> int:
        """Most rows made ready at once: a panel, and two slices a worker, where X is read from a file."""
        return min(self.n, (self.panel + 2 * self.workers) * self.tile_edge) if self.panel else self.n

    def rows_read(self) -> int:
        """Rows of X that a pass over all tiles reads from its file: those up to the end of every panel."""
        if not self.panel:
            return 0
        width = self.panel * self.tile_edge
        return sum(min(start + width, self.n) for start in range(0, self.n, width))


def tile_edge_for(n: int, workers: int, on_gpu: bool, row_bytes: int = 0) -> int:
    """Edge of a tile: 640 on a CPU, 8192 or 4096 on a GPU; smaller where the workers would have too few to share.

    `row_bytes` is what one row takes once it is made dense; slices of such rows are held to 64 MiB.
    """
    edge = _tile_edge(n, workers, on_gpu)
    return min(edge, max(1, blocking.ROW_SLICE_BYTES // row_bytes)) if row_bytes else edge


def _tile_edge(n: int, workers: int, on_gpu: bool) -> int:
    if on_gpu:
        large, small = blocking.GPU_TILE_EDGES
        return min(n, large if n >= blocking.TILES_ALONG_A_SIDE * large else small)
    if workers == 1:
        return max(1, min(n, blocking.CPU_TILE_EDGE))
    if n <= blocking.ONE_TILE_UP_TO:  # starting threads costs more than they save
        return max(1, n)
    # A few tiles along a side, so that the triangle splits evenly between the workers.
    return min(blocking.CPU_TILE_EDGE, max(blocking.SMALLEST_TILE_EDGE.cpu, -(-n // (2 * min(workers, 8)))))


def upper_tiles(n: int, edge: int) -> int:
    """Tiles of the upper triangle, the diagonal ones included."""
    side = -(-n // edge)
    return side * (side + 1) // 2


def full_cache_bytes(n: int, edge: int, item_size: int) -> int:
    """Bytes of all upper tiles."""
    full, rest = divmod(n, edge)
    entries = full * (full + 1) // 2 * edge * edge + full * edge * rest + rest * rest
    return entries * item_size


def tiled_residence(n: int, item_size: int, workers: int, budget: int, edge: int, panel: int = 0) -> GramStorage:
    """A tiled residence whose cache takes at most `budget` bytes (negative: nothing is cached)."""
    everything = upper_tiles(n, edge)
    if full_cache_bytes(n, edge, item_size) <= budget:
        return GramStorage("tiled", n, edge, everything, workers, panel)
    kept = min(max(0, budget) // (edge * edge * item_size), everything)
    return GramStorage("tiled", n, edge, kept, workers, panel)


def tile_order(count: int, panel: int) -> list[tuple[int, int]]:
    """Upper tiles (i, j) of a grid of `count` edges, by panels of columns; inside a panel row by row.

    A panel of one column uses a right operand for all its tiles in turn; a wider one reads each left operand once.
    """
    panels = row_slices(count, max(1, panel))
    return [(i, j) for first, stop in panels for i in range(stop) for j in range(max(i, first), stop)]
