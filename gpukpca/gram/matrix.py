"""The kernel matrix itself, built tile by tile."""

from __future__ import annotations

from gpukpca._typing import Array
from gpukpca.backend.device import is_on_gpu, on_its_device
from gpukpca.backend.elementwise import place_for, put
from gpukpca.backend.namespace import cast, empty_like, namespace_of, writable
from gpukpca.backend.parallel import map_tiles, restore_order, row_slices, worker_count
from gpukpca.backend.rows import as_rows, check_widths
from gpukpca.gram.product import compute_tile, dense_row_bytes
from gpukpca.gram.tiled import TiledGram
from gpukpca.gram.tiling import tile_edge_for
from gpukpca.kernels.base import Kernel, resolved_on


@on_its_device
def gram_matrix(
    kernel: Kernel, X: Array, Y: Array | None = None, *, n_jobs: int | None = None, upper: bool = False
) -> Array:
    """The kernel matrix, built tile by tile with threads.

    Parameters
    ----------
    kernel : Kernel
    X : array or CSR matrix, shape (n, d)
    Y : array or CSR matrix, shape (m, d), optional
        Default: X itself; then the result is exactly symmetric with the exact diagonal.
    n_jobs : int, optional
        Threads (NumPy only). None: as many as BLAS may use now.
    upper : bool
        Of a square matrix only the upper triangle is wanted; what is below the diagonal is left to chance.

    Returns
    -------
    K : array, shape (n, n) or (n, m), in the library, dtype and device of X

    Raises
    ------
    InvalidParameterError, DeviceMismatchError
        As `kernel_matmat`.

    Notes
    -----
    Cost O(n m d), half of that for the symmetric case; memory n m items. Data-dependent parameters such as
    ``gamma="scale"`` are taken from X.
    """
    X = as_rows(X)
    kernel = resolved_on(kernel, X)
    return _square(kernel, X, n_jobs, upper) if Y is None else _rectangle(kernel, X, as_rows(Y), n_jobs)


def _square(kernel: Kernel, X: Array, n_jobs: int | None, upper: bool) -> Array:
    if kernel.stored_only:
        rows = kernel.prepare(X)
        return compute_tile(kernel, rows, rows, empty_like(X), diagonal=False)
    return TiledGram(kernel, X, cached_tiles=0, n_jobs=n_jobs).to_dense(upper=upper)


def _rectangle(kernel: Kernel, X: Array, Y: Array, n_jobs: int | None) -> Array:
    check_widths(X, Y)
    like = empty_like(X)
    rows_x = kernel.prepare(X)
    rows_y = kernel.prepare(cast(Y, X.dtype), like=rows_x)
    if kernel.stored_only:
        return compute_tile(kernel, rows_x, rows_y, like, diagonal=False)
    workers = worker_count(like, n_jobs)
    rows = max(X.shape[0], Y.shape[0])
    edge = tile_edge_for(rows, workers, is_on_gpu(like), dense_row_bytes(kernel, Y))
    K = writable((X.shape[0], Y.shape[0]), like)

    def panel(bounds: tuple[int, int]) -> Array:
        a, columns = rows_x.slice(*bounds), row_slices(rows_y.n_rows, edge)
        if K is None:
            tiles = [compute_tile(kernel, a, rows_y.slice(*inner), like, False) for inner in columns]
            return namespace_of(like).concat(tiles, axis=1)
        for inner in columns:
            block = K[slice(*bounds), slice(*inner)]
            put(block, compute_tile(kernel, a, rows_y.slice(*inner), like, False, place_for(block)))
        return None

    panels = row_slices(X.shape[0], edge)
    by_worker = map_tiles(panel, panels, workers)
    return K if K is not None else namespace_of(like).concat(restore_order(by_worker, len(panels)), axis=0)
