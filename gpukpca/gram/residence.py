"""Where the entries of K live: a memory model in integers, nothing allocated.

K is only ever touched as square tiles of its upper triangle, each used twice in a product. As many tiles as the
budget allows are kept after the first product; the others are recomputed in every pass. A full cache is K in half the
memory of the square matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

# Measured on two cores: 512 and 2048 are within 15 % of 1024. Devices need tiles that outlast a kernel launch.
CPU_TILE_EDGE = 1024
GPU_TILE_EDGE = 4096
SMALLEST_EDGE = 128
ONE_TILE_UP_TO = 640
LARGEST_SLICE = 64 * 2**20


@dataclass(frozen=True)
class Residence:
    """How K is held.

    Attributes
    ----------
    kind : "dense" or "tiled"
    n : int
    tile_edge : int
    cached_tiles : int
        Upper tiles kept after the first product; the rest are recomputed in every pass.
    workers : int
    """

    kind: str
    n: int
    tile_edge: int
    cached_tiles: int
    workers: int

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
        kept = "all" if self.cached_tiles >= self.tiles else str(self.cached_tiles)
        return f"tiled: {self.tiles} upper tiles of edge {self.tile_edge}, {kept} cached"


def tile_edge_for(n: int, workers: int, on_gpu: bool, row_bytes: int = 0) -> int:
    """Edge of a tile: about a thousand on a CPU, smaller where K would give the workers too few tiles to share.

    `row_bytes` is what one row takes once it is made dense; slices of such rows are held to 64 MiB.
    """
    edge = _tile_edge(n, workers, on_gpu)
    return min(edge, max(1, LARGEST_SLICE // row_bytes)) if row_bytes else edge


def _tile_edge(n: int, workers: int, on_gpu: bool) -> int:
    if on_gpu:
        return min(n, GPU_TILE_EDGE)
    if workers == 1:
        return max(1, min(n, CPU_TILE_EDGE))
    if n <= ONE_TILE_UP_TO:  # starting threads costs more than they save
        return max(1, n)
    # A few tiles along a side, so that the triangle splits evenly between the workers.
    return min(CPU_TILE_EDGE, max(SMALLEST_EDGE, -(-n // (2 * min(workers, 8)))))


def upper_tiles(n: int, edge: int) -> int:
    """Tiles of the upper triangle, the diagonal ones included."""
    side = -(-n // edge)
    return side * (side + 1) // 2


def full_cache_bytes(n: int, edge: int, item_size: int) -> int:
    """Bytes of all upper tiles."""
    full, rest = divmod(n, edge)
    entries = full * (full + 1) // 2 * edge * edge + full * edge * rest + rest * rest
    return entries * item_size


def tiled_residence(n: int, item_size: int, workers: int, budget: int, edge: int) -> Residence:
    """A tiled residence whose cache takes at most `budget` bytes (negative: nothing is cached)."""
    everything = upper_tiles(n, edge)
    if full_cache_bytes(n, edge, item_size) <= budget:
        return Residence("tiled", n, edge, everything, workers)
    return Residence("tiled", n, edge, min(max(0, budget) // (edge * edge * item_size), everything), workers)


def edges(n: int, edge: int) -> list[tuple[int, int]]:
    """(start, stop) of consecutive slices of n rows."""
    return [(start, min(start + edge, n)) for start in range(0, n, edge)]
