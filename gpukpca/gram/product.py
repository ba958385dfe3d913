"""Kernel matrices tile by tile: the whole matrix, some columns of it, or its product with a block of vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, overload

import numpy as np

from gpukpca._rules import COUNT, NONE, NOT_ZERO, one_of
from gpukpca._typing import Array, Held, Indices, NumpyArray, NumpyRows, Real, UnknownRows
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu, on_its_device
from gpukpca.backend.elementwise import add, place_for, put
from gpukpca.backend.linalg import column_sums, symmetric_from_upper, with_diagonal, with_entries
from gpukpca.backend.namespace import (
    cast,
    concat,
    empty_like,
    full,
    namespace_of,
    overflow_allowed,
    to_host,
    writable,
)
from gpukpca.backend.parallel import TileReport, assemble_rows, map_in_order, row_slices, worker_count
from gpukpca.data.batches import rows_in_slices
from gpukpca.data.finite import FINITE, NumberSource, check_finite, not_finite, overflow
from gpukpca.data.gate import as_rows, check_not_empty, check_numbers
from gpukpca.data.rows import Rows
from gpukpca.data.slicing import check_widths, dense_rows, place_of, take_rows
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.arguments import checked_rows
from gpukpca.gram.tiling import dense_row_bytes, tile_edge_for, tile_order
from gpukpca.kernels.base import Kernel, resolved_on
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.kernels.streamed import StreamedRows
from gpukpca.kernels.user_defined import checked_tile

TILE_EDGE = one_of(NONE, COUNT)
N_JOBS = one_of(NONE, NOT_ZERO)


def compute_tile(
    kernel: Kernel, a: PreparedRows, b: PreparedRows, like: Array, diagonal: bool, out: Array | None = None
) -> Array:
    """Return the block of K between prepared rows; on the diagonal of K with the exact k(x, x)."""
    if out is not None and out.shape != (a.n_rows, b.n_rows):
        out = None
    with overflow_allowed():  # of squared distances, where k is 0
        tile = checked_tile(kernel, kernel.tile(a, b, out), a, b, like)
    return with_diagonal(tile, kernel.tile_diagonal(a)) if diagonal else tile


@on_its_device
def kernel_matmat(
    kernel: Kernel,
    X: Array,
    Y: Array,
    V: Held,
    *,
    tile_edge: int | None = None,
    n_jobs: int | None = None,
    report: TileReport | None = None,
) -> Held:
    """Return K(X, Y) @ V without storing K.

    Parameters
    ----------
    kernel : Kernel
        Parameters that depend on the data are taken from Y, the training side.
    X : array or CSR matrix, shape (m, d)
        A set of zarr or HDF5 is read by slices, and so is Y, once for every slice of X.
    Y : array or CSR matrix, shape (n, d), in the library of X
    V : array, shape (n, b), in the library of X and with the floating type of Y
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
        Shapes do not fit, X, Y or V holds NaN or infinity, or a block of the kernel is no array of the right shape or
        not finite.
    DeviceMismatchError
        X, Y and V live in different places.

    See Also
    --------
    TiledGram : The operator of K(X, X), which evaluates half of it.
    gram_matrix : The matrix K(X, Y) itself.

    Notes
    -----
    Cost: m n kernel values and 2 m n b operations. Memory: O((m + n) b), one tile a thread, and n (d + 2) items for the
    prepared Y. Each thread computes whole panels of rows of the result.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.gram import gram_matrix, kernel_matmat
    >>> from gpukpca.kernels import RBF
    >>> rng = np.random.default_rng(0)
    >>> X, Y, V = rng.standard_normal((40, 3)), rng.standard_normal((50, 3)), rng.standard_normal((50, 2))
    >>> product = kernel_matmat(RBF(gamma=0.5), X, Y, V)
    >>> bool(np.allclose(product, gram_matrix(RBF(gamma=0.5), X, Y) @ V))
    True
    """
    TILE_EDGE.check_argument("tile_edge", tile_edge)
    N_JOBS.check_argument("n_jobs", n_jobs)
    namespace_of(V)
    check_numbers(V, name="V")
    V = dense_rows(as_rows(V)) if V.ndim == 2 else V
    X, Y = checked_rows(V, X=rows_in_slices(X), Y=rows_in_slices(Y, name="Y"))
    W: Held = prepared_matmat(kernel, X, Y, None, V, tile_edge=tile_edge, n_jobs=n_jobs, report=report)
    if not bool(namespace_of(W).all(namespace_of(W).isfinite(W))):
        check_finite(V, FINITE, "Input V")
        raise overflow(_source(kernel, W), "a product with it is infinite, or NaN")
    return W


@on_its_device
def prepared_matmat(
    kernel: Kernel,
    X: Array,
    Y: Array,
    rows: PreparedRows | None,
    V: Array,
    *,
    tile_edge: int | None = None,
    n_jobs: int | None = None,
    report: TileReport | None = None,
) -> Array:
    """Return K(X, Y) @ V, shape (m, b), as `kernel_matmat`, from Y and its prepared rows; None prepares them.

    With rows that are prepared for centering, the columns of V must sum to zero.
    """
    X, Y = as_rows(X), as_rows(Y)
    namespace_of(place_of(X), place_of(Y), V)
    if X.shape[1] != Y.shape[1] or V.ndim != 2 or V.shape[0] != Y.shape[0]:
        raise InvalidParameterError(
            f"shapes do not fit: X {tuple(X.shape)}, Y {tuple(Y.shape)}, V {tuple(V.shape)}; expected (m, d), (n, d), "
            "(n, b)."
        )
    if rows is None:
        kernel = resolved_on(kernel, Y)
        rows = StreamedRows(kernel, Y, kernel.template(Y), 0) if isinstance(Y, Rows) else kernel.prepare(Y)
    if isinstance(X, Rows):
        how: dict[str, Any] = {"tile_edge": tile_edge, "n_jobs": n_jobs, "report": report}
        return concat([prepared_matmat(kernel, panel, Y, rows, V, **how) for panel in X], axis=0)
    like, V = empty_like(place_of(Y)), cast(V, Y.dtype)
    workers = _workers(X, Y, like, n_jobs)
    edge = tile_edge or tile_edge_for(max(X.shape[0], Y.shape[0]), workers, is_on_gpu(like), dense_row_bytes(kernel, Y))
    inner = row_slices(rows.n_rows, edge)

    def panel(bounds: tuple[int, int]) -> Array:
        a = kernel.prepare(cast(take_rows(X, *bounds), Y.dtype), like=rows.template)
        buffer = writable((a.n_rows, min(edge, rows.n_rows)), like)
        tiles = ((compute_tile(kernel, a, rows.slice(*b), like, False, buffer), V[b[0] : b[1], :]) for b in inner)
        return reduce(add, (tile @ block for tile, block in tiles))

    # Where every panel of X reads the rows of Y from a file, fewer panels are faster.
    panels = row_slices(X.shape[0], edge if rows.in_memory else blocking.STREAMED_EDGES * edge)
    if not panels or not inner:
        return full((X.shape[0], V.shape[1]), 0.0, like)
    return namespace_of(like).concat(map_in_order(panel, panels, workers, report), axis=0)


@overload
def gram_matrix(kernel: Kernel, X: UnknownRows, Y: Any = None, *, n_jobs: int | None = None) -> Array: ...
@overload
def gram_matrix(
    kernel: Kernel, X: NumpyRows[Real], Y: NumpyRows[Any] | None = None, *, n_jobs: int | None = None
) -> NumpyArray[Real]: ...
@overload
def gram_matrix(kernel: Kernel, X: Array, Y: Array | None = None, *, n_jobs: int | None = None) -> Array: ...
@on_its_device
def gram_matrix(kernel: Kernel, X: Array, Y: Array | None = None, *, n_jobs: int | None = None) -> Array:
    """Return the kernel matrix, built tile by tile with threads.

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
    array, shape (n, n) or (n, m), in the library, dtype and device of X

    Raises
    ------
    InvalidParameterError, DeviceMismatchError
        As `kernel_matmat`.

    See Also
    --------
    kernel_matmat : Products with K without storing it.
    double_center : Center the matrix.

    Notes
    -----
    Cost O(n m d), half of that for the symmetric case; memory n m items. Data-dependent parameters such as
    ``gamma="scale"`` are taken from X.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.gram import gram_matrix
    >>> from gpukpca.kernels import RBF
    >>> gram_matrix(RBF(gamma=0.5), np.array([[0.0], [1.0], [2.0]])).round(3)
    array([[1.   , 0.607, 0.135],
           [0.607, 1.   , 0.607],
           [0.135, 0.607, 1.   ]])
    """
    N_JOBS.check_argument("n_jobs", n_jobs)
    X, *others = checked_rows(X=X) if Y is None else checked_rows(X=X, Y=Y)
    check_not_empty(X, "a kernel matrix")
    kernel = resolved_on(kernel, X)
    K = _rectangle(kernel, X, others[0], n_jobs) if others else _square(kernel, X, n_jobs)
    _check_values(kernel, K)
    return K


def _check_values(kernel: Kernel, K: Array) -> None:
    """Raise `InvalidParameterError` where a kernel matrix holds NaN or infinity."""
    sums = to_host(column_sums(K))
    for j in np.flatnonzero(~np.isfinite(sums)):  # finite entries may have an infinite sum
        column = to_host(K[:, int(j)])
        if (bad := np.flatnonzero(~np.isfinite(column))).size:
            raise not_finite(_source(kernel, K), int(bad[0]), int(j), float(column[bad[0]]))


def _source(kernel: Kernel, K: Array) -> NumberSource:
    return NumberSource(f"the kernel {type(kernel).__name__}", K.dtype)


@on_its_device
def upper_triangle(kernel: Kernel, X: Array, *, n_jobs: int | None = None) -> Array:
    """Return a square array with the upper triangle of the kernel matrix; entries below the diagonal are undefined."""
    X = as_rows(X)
    return _square(resolved_on(kernel, X), X, n_jobs, mirrored=False)


def _square(kernel: Kernel, X: Array, n_jobs: int | None, mirrored: bool = True) -> Array:
    like = empty_like(X)
    if kernel.stored_only:
        rows = kernel.prepare(X)
        return compute_tile(kernel, rows, rows, like, diagonal=False)
    rows, workers = kernel.prepare(X, like=kernel.template(X)), _workers(X, X, like, n_jobs)
    edge = tile_edge_for(rows.n_rows, workers, is_on_gpu(like), dense_row_bytes(kernel, X))
    bounds = row_slices(rows.n_rows, edge)

    def tile(number: int, i: int, j: int, out: Array | None) -> Array:
        return compute_tile(kernel, rows.slice(*bounds[i]), rows.slice(*bounds[j]), like, i == j, out)

    K = matrix_of_tiles(tile, bounds, bounds, tile_order(len(bounds), 0), like, workers)
    return symmetric_from_upper(K, namespace_of(K).linalg.diagonal(K)) if mirrored else K


def matrix_of_tiles(
    tile: Callable[[int, int, int, Array | None], Array],
    rows: list[tuple[int, int]],
    columns: list[tuple[int, int]],
    order: list[tuple[int, int]],
    like: Array,
    workers: int,
    report: TileReport | None = None,
) -> Array:
    """Return the matrix with the tiles in `order`, pairs (i, j) of slices of its rows and columns.

    Entries of no tile are undefined. ``tile(number, i, j, out)`` returns tile (i, j), which has this number in `order`;
    it may write into `out`.
    """
    K = writable((rows[-1][1], columns[-1][1]), like)

    def work(numbered: tuple[int, tuple[int, int]]) -> Array | None:
        number, (i, j) = numbered
        if K is None:
            return tile(number, i, j, None)
        block = K[slice(*rows[i]), slice(*columns[j])]
        put(block, tile(number, i, j, place_for(block)))
        return None

    done = map_in_order(work, list(enumerate(order)), workers, report)
    if K is not None:
        return K
    # The library cannot assign to parts.
    tiles = dict(zip(order, done, strict=True))

    def strip(i: int, a: int, b: int) -> Array:
        known = (tiles.get((i, j), full((b - a, d - c), 0.0, like)) for j, (c, d) in enumerate(columns))
        return concat(list(known), axis=1)

    return concat([strip(i, *bounds) for i, bounds in enumerate(rows)])


def _workers(X: Array, Y: Array, like: Array, n_jobs: int | None) -> int:
    """Return the workers for the kernel values of the rows of X and Y."""
    return worker_count(like, n_jobs, X.shape[0] * Y.shape[0] * (Y.shape[1] + blocking.KERNEL_VALUE))


def _rectangle(kernel: Kernel, X: Array, Y: Array, n_jobs: int | None) -> Array:
    check_widths(X, Y)
    like, rows_x = empty_like(X), kernel.prepare(X)
    rows_y = kernel.prepare(cast(Y, X.dtype), like=rows_x)
    if kernel.stored_only:
        return compute_tile(kernel, rows_x, rows_y, like, diagonal=False)
    workers = _workers(X, Y, like, n_jobs)
    edge = tile_edge_for(max(X.shape[0], Y.shape[0]), workers, is_on_gpu(like), dense_row_bytes(kernel, Y))
    rows, columns = (row_slices(int(Z.shape[0]), edge) or [(0, 0)] for Z in (X, Y))

    def tile(number: int, i: int, j: int, out: Array | None) -> Array:
        return compute_tile(kernel, rows_x.slice(*rows[i]), rows_y.slice(*columns[j]), like, False, out)

    order = [(i, j) for i in range(len(rows)) for j in range(len(columns))]
    return matrix_of_tiles(tile, rows, columns, order, like, workers)


def kernel_columns(
    kernel: Kernel, rows: PreparedRows, chosen: Indices, like: Array, *, tile_edge: int, workers: int
) -> Array:
    """Return K[:, chosen], shape (n, m), from n prepared rows, by panels of rows with threads; k(x, x) is exact.

    The kernel has numbers in place of rules; `like` gives library, dtype and device. A panel has `tile_edge` rows, more
    where it is narrow and rows stay sparse. Memory: the result, m rows, and the scratch of one panel a thread.
    """
    panel, count = column_panel(kernel, rows, chosen, like), len(chosen)
    panels = row_slices(rows.n_rows, panel_rows(kernel, rows.n_rows, count, tile_edge, workers))
    return assemble_rows(panel, panels, (rows.n_rows, count), like, workers)


def column_panel(
    kernel: Kernel, rows: PreparedRows, chosen: Indices, like: Array
) -> Callable[[int, int, Array | None], Array]:
    """Return the function of (start, stop, out) that computes these rows of `kernel_columns`; it may use `out`."""
    picked, chosen = rows.take(chosen), np.asarray(chosen, dtype=np.int64)
    diagonal = kernel.tile_diagonal(picked)

    def panel(start: int, stop: int, out: Array | None) -> Array:
        tile = compute_tile(kernel, rows.slice(start, stop), picked, like, False, out)
        return with_entries(tile, chosen - start, diagonal)

    return panel


def panel_rows(kernel: Kernel, n: int, columns: int, tile_edge: int, workers: int) -> int:
    """Return the rows of a panel of few columns: the entries of a square tile, but some panels for every worker."""
    if kernel.densifies:
        return tile_edge
    rows = max(tile_edge, tile_edge * tile_edge // max(columns, 1))
    return max(1, min(rows, max(tile_edge, -(-n // (4 * workers)))))
