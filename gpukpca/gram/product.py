"""The one hot loop: products with a kernel matrix, made tile by tile and never stored whole."""

from __future__ import annotations

from typing import Any

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu, on_its_device
from gpukpca.backend.elementwise import add
from gpukpca.backend.linalg import with_diagonal
from gpukpca.backend.namespace import cast, empty_like, full, is_sparse, namespace_of, writable
from gpukpca.backend.parallel import TileReport, map_tiles, restore_order, row_slices, worker_count
from gpukpca.backend.rows import as_rows, take_rows
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.tiling import tile_edge_for
from gpukpca.kernels.base import Kernel, resolved_on
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.kernels.user_defined import checked_tile


def dense_row_bytes(kernel: Kernel, X: Any) -> int:
    """Bytes of a CSR row that the kernel makes dense, 0 where it does not."""
    return 8 * int(X.shape[1]) if kernel.densifies and is_sparse(X) else 0


def compute_tile(
    kernel: Kernel, a: PreparedRows, b: PreparedRows, like: Array, diagonal: bool, out: Array | None = None
) -> Array:
    """One block of K; on the diagonal of K with the exact k(x, x)."""
    if out is not None and out.shape != (a.n_rows, b.n_rows):
        out = None
    tile = checked_tile(kernel, kernel.tile(a, b, out), a, b, like)
    return with_diagonal(tile, kernel.tile_diagonal(a)) if diagonal else tile


@on_its_device
def kernel_matmat(
    kernel: Kernel,
    X: Array,
    Y: Array,
    V: Array,
    *,
    prepared: PreparedRows | None = None,
    tile_edge: int | None = None,
    n_jobs: int | None = None,
    report: TileReport | None = None,
) -> Array:
    """K(X, Y) @ V without ever holding K.

    Parameters
    ----------
    kernel : Kernel
        Parameters that depend on the data are taken from Y, the training side.
    X : array or CSR matrix, shape (m, d)
    Y : array or CSR matrix, shape (n, d), in the library of X
    V : array, shape (n, b), in the library of X and with the floating type of Y
    prepared : Rows, optional
        ``kernel.prepare(Y)``, where it is at hand. With rows prepared for centering, the result is only right for
        V whose columns sum to zero.
    tile_edge : int, optional
        Default: 640 on a CPU, 8192 or 4096 on a GPU.
    n_jobs : int, optional
        Threads (NumPy only). None: as many as BLAS may use now. The last digits may depend on it.
    report : callable, optional
        Called with (tiles done, tiles in all).

    Returns
    -------
    array, shape (m, b), dtype of Y

    Raises
    ------
    InvalidParameterError
        Shapes do not fit, or the kernel's blocks are not what they should be.
    DeviceMismatchError
        X, Y and V live in different places.

    Notes
    -----
    Cost: m n kernel values and 2 m n b operations; memory O((m + n) b) and one tile a thread, and n (d + 2) items for
    the prepared Y. Each thread owns whole panels of rows of the result.
    """
    X, Y = as_rows(X), as_rows(Y)
    like = empty_like(Y)
    namespace_of(X, Y, V)
    if X.shape[1] != Y.shape[1] or V.ndim != 2 or V.shape[0] != Y.shape[0]:
        raise InvalidParameterError(
            f"shapes do not fit: X {tuple(X.shape)}, Y {tuple(Y.shape)}, V {tuple(V.shape)}; expected (m, d), (n, d), "
            "(n, b)."
        )
    if prepared is None:
        kernel = resolved_on(kernel, Y)
        prepared = kernel.prepare(Y)
    V = cast(V, Y.dtype)
    workers = worker_count(like, n_jobs)
    rows = max(X.shape[0], Y.shape[0])
    edge = tile_edge or tile_edge_for(rows, workers, is_on_gpu(like), dense_row_bytes(kernel, Y))
    inner = row_slices(prepared.n_rows, edge)

    def panel(bounds: tuple[int, int]) -> Array:
        a = kernel.prepare(cast(take_rows(X, *bounds), Y.dtype), like=prepared.template)
        buffer = writable((a.n_rows, min(edge, prepared.n_rows)), like)
        total: Any = None
        for start, stop in inner:
            tile = compute_tile(kernel, a, prepared.slice(start, stop), like, False, buffer)
            part = tile @ V[start:stop, :]
            total = part if total is None else add(total, part)
        return total

    # Where the rows of Y must be read for every panel of X, there had better be few panels.
    panels = row_slices(X.shape[0], edge if prepared.in_memory else blocking.STREAMED_EDGES * edge)
    by_worker = map_tiles(panel, panels, workers, report)
    xp = namespace_of(like)
    if not panels or not inner:
        return full((X.shape[0], V.shape[1]), 0.0, like)
    return xp.concat(restore_order(by_worker, len(panels)), axis=0)
