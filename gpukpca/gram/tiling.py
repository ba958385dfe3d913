"""Edges, counts and bytes of the square tiles of the upper triangle of K.

A product uses each tile twice. As many tiles as the budget allows are cached in the first product; every pass
recomputes the others. A full cache takes half the memory of the square matrix.
"""

from __future__ import annotations

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.namespace import is_sparse
from gpukpca.backend.parallel import row_slices
from gpukpca.kernels.base import Kernel


def tile_edge_for(n: int, workers: int, on_gpu: bool, row_bytes: int = 0) -> int:
    """Return the edge of a tile: 640 on a CPU, 8192 or 4096 on a GPU; smaller where workers have too few.

    `row_bytes` are the bytes of a CSR row that is converted to a dense one; slices of such rows take at most 64 MiB.
    """
    if on_gpu:
        large, small = blocking.GPU_TILE_EDGES
        edge = min(n, large if n >= blocking.TILES_ALONG_A_SIDE * large else small)
    elif workers == 1:
        edge = max(1, min(n, blocking.CPU_TILE_EDGE))
    elif n <= blocking.ONE_TILE_UP_TO:  # starting threads costs more than they save
        edge = max(1, n)
    else:  # a few tiles along a side, so that the triangle splits evenly between the workers
        edge = min(blocking.CPU_TILE_EDGE, max(blocking.SMALLEST_TILE_EDGE.cpu, -(-n // (2 * min(workers, 8)))))
    return min(edge, max(1, blocking.ROW_SLICE_BYTES // row_bytes)) if row_bytes else edge


def dense_row_bytes(kernel: Kernel, X: Array) -> int:
    """Return the bytes of a CSR row that the kernel converts to a dense one; 0 for other rows."""
    return 8 * int(X.shape[1]) if kernel.densifies and is_sparse(X) else 0


def upper_tiles(n: int, edge: int) -> int:
    """Return the number of tiles of the upper triangle, the diagonal ones included."""
    side = -(-n // edge)
    return side * (side + 1) // 2


def full_cache_bytes(n: int, edge: int, item_size: int) -> int:
    """Return the bytes of all upper tiles."""
    full, rest = divmod(n, edge)
    entries = full * (full + 1) // 2 * edge * edge + full * edge * rest + rest * rest
    return entries * item_size


def tiles_within(budget: int, n: int, edge: int, item_size: int) -> int:
    """Return how many upper tiles take at most `budget` bytes; 0 where that is negative."""
    everything = upper_tiles(n, edge)
    if full_cache_bytes(n, edge, item_size) <= budget:
        return everything
    return min(max(0, budget) // (edge * edge * item_size), everything)


def shares_of(tiles: int, devices: int) -> list[int]:
    """Return how many consecutive tiles each device has; the numbers differ by 1 at most."""
    return [tiles // devices + (k < tiles % devices) for k in range(devices)]


def prepared_at_once(n: int, edge: int, workers: int, panel: int) -> int:
    """Return the most rows that are prepared at once: a panel and two slices a worker where X is read from a file."""
    return min(n, (panel + 2 * workers) * edge) if panel else n


def tile_order(count: int, panel: int) -> list[tuple[int, int]]:
    """Return the upper tiles (i, j) of a grid of `count` edges, by panels of columns; inside a panel row by row.

    A panel of one column keeps its right operand for all tiles; a wider panel reads each left operand once.
    """
    panels = row_slices(count, max(1, panel))
    return [(i, j) for first, stop in panels for i in range(stop) for j in range(max(i, first), stop)]
