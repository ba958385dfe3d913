"""The one hot loop: products with a kernel matrix, made tile by tile and never stored whole."""

from __future__ import annotations

from typing import Any

from gpukpca._typing import Array
from gpukpca.backend.creation import full, writable
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.elementwise import add
from gpukpca.backend.linalg import symmetric_from_upper
from gpukpca.backend.namespace import cast, empty_like, namespace_of
from gpukpca.backend.rows import as_rows, take_rows
from gpukpca.backend.tiles import TileReport, map_tiles, worker_count
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.residence import tile_edge_for
from gpukpca.kernels.base import Kernel, Rows
from gpukpca.kernels.given import checked_tile


def edges(n: int, edge: int) -> list[tuple[int, int]]:
    """(start, stop) of consecutive slices of n rows."""
    return [(start, min(start + edge, n)) for start in range(0, n, edge)]


def compute_tile(kernel: Kernel, a: Rows, b: Rows, like: Array, diagonal: bool, out: Array | None = None) -> Array:
    """One block of K; on the diagonal exactly symmetric with the exact k(x, x)."""
    if out is not None and out.shape != (a.n_rows, b.n_rows):
        out = None
    tile = checked_tile(kernel, kernel.tile(a, b, out), a, b, like)
    return symmetric_from_upper(tile, kernel.tile_diagonal(a)) if diagonal else tile


def kernel_matmat(
    kernel: Kernel,
    X: Array,
    Y: Array,
    V: Array,
    *,
    prepared: Rows | None = None,
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
        ``kernel.prepare(Y)``, where it is at hand. With rows prepared for centring, the result is only right for
        V whose columns sum to zero.
    tile_edge : int, optional
        Default: about 1000 on a CPU, 4096 on a GPU.
    n_jobs : int, optional
        Threads (NumPy only). None: as many as BLAS may use now.
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
    the prepared Y. Each thread owns whole panels of rows of the result, so sums do not depend on the thread count.
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
        kernel = kernel.resolve(Y)
        prepared = kernel.prepare(Y)
    V = cast(V, Y.dtype)
    workers = worker_count(like, n_jobs)
    edge = tile_edge or tile_edge_for(max(X.shape[0], Y.shape[0]), workers, is_on_gpu(like))
    inner = edges(prepared.n_rows, edge)

    def panel(bounds: tuple[int, int]) -> Array:
        a = kernel.prepare(cast(take_rows(X, *bounds), Y.dtype), like=prepared)
        buffer = writable((a.n_rows, min(edge, prepared.n_rows)), like)
        total: Any = None
        for start, stop in inner:
            out = buffer if stop - start == edge else None
            tile = compute_tile(kernel, a, prepared.slice(start, stop), like, False, out)
            part = tile @ V[start:stop, :]
            total = part if total is None else add(total, part)
        return total

    panels = edges(X.shape[0], edge)
    by_worker = map_tiles(panel, panels, workers, report)
    xp = namespace_of(like)
    if not panels:
        return full((0, V.shape[1]), 0.0, like)
    return xp.concat(dealt_back(by_worker, len(panels)), axis=0)


def dealt_back(by_worker: list[list[Any]], count: int) -> list[Any]:
    """Results in the order of their tiles, undoing the round-robin deal of `map_tiles`."""
    workers = len(by_worker)
    return [by_worker[i % workers][i // workers] for i in range(count)]


def gram_matrix(kernel: Kernel, X: Array, Y: Array | None = None, *, n_jobs: int | None = None) -> Array:
    """The kernel matrix, built tile by tile with threads.

    Parameters
    ----------
    kernel : Kernel
    X : array or CSR matrix, shape (n, d)
    Y : array or CSR matrix, shape (m, d), optional
        Default: X itself; then the result is exactly symmetric with the exact diagonal.
    n_jobs : int, optional
        Threads (NumPy only). None: as many as BLAS may use now.

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
    kernel = kernel.resolve(X)
    return _square(kernel, X, n_jobs, centered=False) if Y is None else _rectangle(kernel, X, as_rows(Y), n_jobs)


def _square(kernel: Kernel, X: Array, n_jobs: int | None, centered: bool) -> Array:
    from gpukpca.gram.tiled import TiledGram

    if kernel.stored_only:
        rows = kernel.prepare(X, centered=centered)
        return compute_tile(kernel, rows, rows, empty_like(X), diagonal=False)
    return TiledGram(kernel, X, cached_tiles=0, n_jobs=n_jobs, centered=centered).to_dense()


def _rectangle(kernel: Kernel, X: Array, Y: Array, n_jobs: int | None) -> Array:
    namespace_of(X, Y)
    if X.shape[1] != Y.shape[1]:
        raise InvalidParameterError(
            f"X has {X.shape[1]} features and Y has {Y.shape[1]}; the rows of both must be of one width."
        )
    like = empty_like(X)
    rows_x = kernel.prepare(X)
    rows_y = kernel.prepare(cast(Y, X.dtype), like=rows_x)
    if kernel.stored_only:
        return compute_tile(kernel, rows_x, rows_y, like, diagonal=False)
    workers = worker_count(like, n_jobs)
    edge = tile_edge_for(max(X.shape[0], Y.shape[0]), workers, is_on_gpu(like))
    K = writable((X.shape[0], Y.shape[0]), like)

    def panel(bounds: tuple[int, int]) -> Array:
        a = rows_x.slice(*bounds)
        parts = [compute_tile(kernel, a, rows_y.slice(*inner), like, False) for inner in edges(rows_y.n_rows, edge)]
        if K is None:
            return namespace_of(like).concat(parts, axis=1)
        for inner, part in zip(edges(rows_y.n_rows, edge), parts, strict=True):
            K[slice(*bounds), slice(*inner)] = part
        return None

    panels = edges(X.shape[0], edge)
    by_worker = map_tiles(panel, panels, workers)
    return K if K is not None else namespace_of(like).concat(dealt_back(by_worker, len(panels)), axis=0)
