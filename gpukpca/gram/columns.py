"""Some columns of K, all rows of them: what a factor from few landmarks is made of."""

from __future__ import annotations

from typing import Any

from gpukpca._typing import Array
from gpukpca.backend.elementwise import put
from gpukpca.backend.linalg import with_entries
from gpukpca.backend.namespace import full, namespace_of, writable
from gpukpca.backend.parallel import map_tiles, restore_order, row_slices
from gpukpca.gram.product import compute_tile
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import PreparedRows


def kernel_columns(
    kernel: Kernel, rows: PreparedRows, chosen: Any, like: Array, *, tile_edge: int, workers: int
) -> Array:
    """K[:, chosen] from prepared rows, by panels of rows with threads.

    Parameters
    ----------
    kernel : Kernel
        With numbers in place of rules (`Kernel.resolve`).
    rows : Rows
        ``kernel.prepare(X)``, n of them.
    chosen : host sequence of m integers
    like : array
        Tells library, dtype and device.
    tile_edge : int
        Rows of a panel; more of them where the panel is narrow and rows are not made dense.
    workers : int
        Threads (`gpukpca.backend.parallel.worker_count`).

    Returns
    -------
    array, shape (n, m)
        The entries k(x, x) are exact.

    Notes
    -----
    Cost: n m kernel values, one matrix product and one elementwise pass a panel. Memory: the result, m rows, and the
    scratch of one panel a thread.
    """
    picked = rows.take(chosen)
    panels = row_slices(rows.n_rows, panel_rows(kernel, rows.n_rows, picked.n_rows, tile_edge, workers))
    C = writable((rows.n_rows, picked.n_rows), like)

    def panel(bounds: tuple[int, int]) -> Array | None:
        part = None if C is None else C[slice(*bounds), :]
        tile = compute_tile(kernel, rows.slice(*bounds), picked, like, False, part)
        if part is None:
            return tile
        put(part, tile)
        return None

    by_worker = map_tiles(panel, panels, workers)
    if C is None:
        parts = restore_order(by_worker, len(panels)) or [full((0, picked.n_rows), 0.0, like)]
        C = namespace_of(like).concat(parts, axis=0)
    return with_entries(C, chosen, kernel.tile_diagonal(picked))


def panel_rows(kernel: Kernel, n: int, columns: int, tile_edge: int, workers: int) -> int:
    """Rows of a panel of few columns: as many entries as a square tile has, but some panels for every worker."""
    if kernel.densifies:
        return tile_edge
    wanted = max(tile_edge, tile_edge * tile_edge // max(columns, 1))
    return max(1, min(wanted, max(tile_edge, -(-n // (4 * workers)))))
