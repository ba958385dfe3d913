"""Linear algebra that the standard lacks: partial eigenproblems, products of sparse rows, writes in place."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, Literal

import numpy as np
import scipy.linalg
from scipy.spatial.distance import cdist

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.elementwise import Scratch
from gpukpca.backend.lapack import cholesky_solution, leading_eigenpairs
from gpukpca.backend.namespace import (
    SAFE_NORMS,
    accumulation_dtype,
    arange,
    cast,
    dtype_name,
    from_host,
    indices,
    is_cupy,
    is_numpy,
    is_sparse,
    namespace_of,
    overflow_allowed,
    to_host,
    writes_in_place,
)
from gpukpca.backend.parallel import assemble_rows, row_slices, sum_over
from gpukpca.backend.sparse import sparse_row_products
from gpukpca.cuda import distances as cuda_distances
from gpukpca.cuda import linalg as cuda_linalg
from gpukpca.cuda.eigh import leading_pairs, syevd

Metric = Literal["sqeuclidean", "cityblock"]
in_float16: Callable[[Any, float], Any] = cuda_linalg.in_float16


def row_products(a: Any, b: Any, out: Array | None = None) -> Array:
    """Return ``a @ b.T`` for two blocks of rows, dense or CSR; `out` may be used.

    Large `a` and `b` must not share memory: a buffer times its own transpose takes BLAS's syrk path, which crashes for
    large shapes with the OpenBLAS inside current NumPy wheels.
    """
    if is_numpy(a) and is_numpy(b):
        return np.matmul(a, b.T, out=out)
    if is_cupy(a):
        # CuPy computes a product for strided memory elsewhere and copies it, so a later function may as well write it.
        direct = out is not None and out.flags.c_contiguous
        return a.dot(b.T, out if direct else None)  # two thirds of the time of `matmul`
    if is_sparse(a) and is_sparse(b):
        return sparse_row_products(a, b, out)
    if is_sparse(a) or is_sparse(b):
        return np.asarray(a @ b.T)
    return a @ b.T


def distances(a: Array, b: Array, metric: Metric) -> Array:
    """Return sums over the features of squared or absolute differences; those of equal rows are exactly 0."""
    if is_numpy(a):
        return cdist(a, b, metric)
    if is_cupy(a):
        return cuda_distances.distances(a, b, metric)
    xp = namespace_of(a, b)
    term, b_columns = xp.square if metric == "sqeuclidean" else xp.abs, b.T
    total = term(a[:, 0:1] - b_columns[0:1, :])
    for k in range(1, a.shape[1]):
        total = total + term(a[:, k : k + 1] - b_columns[k : k + 1, :])
    return total


def differences_dtype(a: Array, b: Array) -> Any:
    """Return the type in which rows are subtracted: their own on a GPU, where sums are wide, else the widest."""
    return np.promote_types(a.dtype, b.dtype) if is_cupy(a) else accumulation_dtype(a)


def column_sums(V: Array, workers: int = 1) -> Array:
    """Return the sums of the columns of V, shape (b,), accumulated in the widest floating type."""
    if workers == 1 and is_numpy(V):  # a third of the time, of which passes over few rows need dozens
        with overflow_allowed():
            return np.add.reduce(V, axis=0, dtype=np.float64)
    xp, wide = namespace_of(V), accumulation_dtype(V)
    if workers > 1:
        panels = row_slices(V.shape[0], cached_rows(V.shape[1]))
        return sum_over(lambda a, b, _: xp.sum(V[a:b, :], axis=0, dtype=wide), panels, workers, V)
    with overflow_allowed():
        return down_columns(V, partial(xp.sum, dtype=wide))


def down_columns(V: Array, reduce: Callable[..., Array]) -> Array:
    """Return ``reduce(V, axis=0)`` for a sum or an extreme, in two stages on CuPy.

    CuPy's reductions along anything but the last axis launch one block of threads for 32 results, so that a tall block
    would occupy two of a card's hundred multiprocessors.
    """
    n, b = V.shape
    parts = row_parts(V)
    if parts < 2 or not V.flags.c_contiguous:
        return reduce(V, axis=0)
    xp, rows = namespace_of(V), n // parts
    first = reduce(xp.reshape(V[: parts * rows, :], (parts, rows, b)), axis=1)
    if parts * rows < n:
        first = xp.concat([first, reduce(V[parts * rows :, :], axis=0)[None, :]], axis=0)
    return reduce(first, axis=0)


def row_parts(V: Array, blocks: int = 1) -> int:
    """Return the number of parts of V's rows, with `blocks` of threads each, that occupy a card; 0 without use."""
    return min(blocking.ROW_BLOCK_STAGES // blocks, V.shape[0] // blocking.ROW_BLOCK_STAGES) if is_cupy(V) else 0


def transposed_product(A: Array, B: Array) -> Array:
    """Return ``A.T @ B`` of tall blocks; on CuPy by parts of the rows where the answer alone occupies few processors.

    Estimated at a tenth of the time for 10⁶ rows; not yet measured on a card.
    """
    if is_cupy(A):
        blocks = -(-A.shape[1] // blocking.ANSWER_TILE) * -(-B.shape[1] // blocking.ANSWER_TILE)
        parts = row_parts(A, blocks) if blocks else 0
        if parts > 1 and A.dtype == B.dtype == namespace_of(A).float64 and A.flags.forc and B.flags.forc:
            return cuda_linalg.product_by_parts(A, B, parts)
    return A.T @ B


def row_squares(A: Array) -> Array:
    """Return Σ_j A_ij² of every row, shape (n,), in the widest type."""
    A = cast(A, accumulation_dtype(A))
    if is_numpy(A):  # half of the time, and no temporary
        return np.einsum("ij,ij->i", A, A)
    return namespace_of(A).sum(A * A, axis=1)


def column_norms(V: Array) -> np.ndarray:
    """Return Euclidean norms of the columns of V on the host in float64; squares neither overflow nor vanish."""
    if V.shape[1] == 0:
        return np.zeros(0)
    xp = namespace_of(V)
    wide = cast(V, accumulation_dtype(V))
    with overflow_allowed():
        norms = np.sqrt(to_host(down_columns(wide * wide, xp.sum)).astype(np.float64))
    low, high = SAFE_NORMS[dtype_name(wide.dtype)]
    if low < norms.min() and norms.max() < high:
        return norms
    largest = to_host(down_columns(xp.abs(wide), xp.max)).astype(np.float64)
    units = np.ldexp(1.0, np.frexp(largest)[1] - 1)  # powers of two: the largest quotient is below 2
    scaled = wide / from_host(units, wide)[None, :]
    return np.sqrt(to_host(column_sums(scaled * scaled)).astype(np.float64)) * units


def inner_products(A: Array, B: Array, workers: int = 1) -> np.ndarray:
    """Return ``A.T @ B``, shape (a, b), small, on the host, accumulated in the widest floating type.

    Panels of rows are widened without a copy of the whole. With A = B, a buffer times its own transpose, they must be
    small (`row_products` gives the reason). Several workers share the panels, and compute half of ``A.T @ A``.
    """
    n, wide = A.shape[0], accumulation_dtype(A)
    is_wide = A.dtype == wide and B.dtype == wide
    if is_wide and is_numpy(A) and is_numpy(B) and workers == 1 and n <= blocking.WIDE_INNER_PANEL:
        return A.T @ B
    namespace_of(A, B)  # raises where they are of two libraries or on two devices
    panel = inner_panel(A, is_wide)

    def product(start: int, stop: int, _: Scratch | None = None) -> Array:
        left = widened_rows(A, start, stop, wide)
        return transposed_product(left, left if B is A else widened_rows(B, start, stop, wide))

    if workers > 1 and n:
        rows = max(1, min(panel // workers, cached_rows(A.shape[1])))
        total = sum_over(product, row_slices(n, rows), workers, A)
    else:
        total = reduce(operator.add, (product(*bounds) for bounds in row_slices(n, panel) or [(0, 0)]))
    return to_host(total).astype(np.float64)


def has_narrow_square(A: Array) -> bool:
    """Return whether `narrow_square` takes less time than `inner_products`: for float32 on NumPy."""
    return is_numpy(A) and A.dtype != accumulation_dtype(A)


def narrow_square(A: np.ndarray, workers: int) -> np.ndarray:
    """Return ``A.T @ A`` summed in the widest type from products of short panels in the type of A.

    It takes half the time of `inner_products` in float32. Its error is a tenth of eps times the largest eigenvalue, and
    up to 20 eps where few rows hold most of the sum.
    """
    k = A.shape[1]

    def product(start: int, stop: int, scratch: Scratch) -> Array:
        return row_products(A[start:stop, :].T, A[start:stop, :].T, scratch.place("product", (k, k)))

    square: np.ndarray = sum_over(product, row_slices(A.shape[0], blocking.SQUARE_ROWS), workers, A)
    return square


def times_small(A: Array, S: np.ndarray, workers: int = 1) -> Array:
    """Return A (n, k) times a small host matrix (k, b); on NumPy with contiguous columns, as bases are stored."""
    S = from_host(S, A)
    if workers > 1:

        def product(start: int, stop: int, part: Array) -> Array:
            return namespace_of(part).matmul(A[start:stop, :], S, out=part)

        panels = row_slices(A.shape[0], min(blocking.PANEL_ROWS, cached_rows(A.shape[1])))
        return assemble_rows(product, panels, (A.shape[0], S.shape[1]), S, workers)
    return (S.T @ A.T).T if is_numpy(A) else A @ S


def add_tile_product(total: Array | None, T: Array, V: Array, transposed: bool = False) -> Array:
    """Return total + T @ V, or total + Tᵀ @ V, for a tile T and a narrow block V; in place where the library can.

    On NumPy in float64 as (Vᵀ Tᵀ)ᵀ: OpenBLAS for AVX-512 takes two thirds of the time, and twice as long in float32.
    The transposed product is faster as (Vᵀ T)ᵀ in both. cuBLAS adds in the launch of the product,
    in float32 where both are float16.
    """
    if is_cupy(T) and (added := cuda_linalg.add_product(total, T, V, transposed)) is not None:
        return added
    if is_numpy(T):
        part = (V.T @ (T if transposed else T.T)).T if transposed or T.dtype == np.float64 else T @ V
    else:
        part = (T.T if transposed else T) @ V
    if total is None:
        return part
    total += part
    return total


def widened_rows(A: Array, start: int, stop: int, dtype: Any) -> Array:
    """Return some rows of A in a wider type, by way of the transpose: devices read contiguous columns in one access."""
    if stop - start == A.shape[0]:
        return cast(A, dtype)
    return cast(A.T[:, start:stop], dtype).T


def cached_rows(k: int) -> int:
    """Return the rows of k columns that stay in a core's cache while they are multiplied by a narrow block."""
    return max(blocking.FEWEST_CACHED_ROWS, blocking.CACHED_ENTRIES // max(k, 1))


def inner_panel(like: Array, is_wide: bool) -> int:
    """Return the rows that `inner_products` widens together; on a device all of them where nothing needs widening."""
    if is_on_gpu(like):
        return 2**31 if is_wide else blocking.GPU_INNER_PANEL
    return blocking.WIDE_INNER_PANEL if is_wide else blocking.INNER_PANEL


def largest_eigenpairs(A: Array, count: Callable[[np.ndarray], int]) -> tuple[np.ndarray, Array]:
    """Return all eigenvalues of a symmetric A, descending, in float64 on the host, and leading vectors (n, p).

    ``p = count(values)``. A may be overwritten. NumPy's `eigh` fails at n >= 32 767 and computes float32 in float64;
    LAPACK is called in the precision of A.
    """
    if is_numpy(A):
        values, vectors = leading_eigenpairs(A, count)
        vectors = np.ascontiguousarray(vectors)
        if vectors.shape[1] < len(values):  # bisection and inverse iteration lose a digit or two
            vectors = vectors @ from_host(newton_factor(vectors), vectors)
        return values.astype(np.float64), vectors
    values, vectors = all_eigenpairs(A)
    descending = values[::-1]
    return descending, namespace_of(A).flip(vectors, axis=1)[:, : count(descending)]


def all_eigenpairs(A: Array) -> tuple[np.ndarray, Array]:
    """Return every eigenvalue of a symmetric A, ascending, in float64 on the host, and the vectors.

    A may be overwritten. On CuPy the answer of cuSOLVER is a proposal, which the caller verifies. Raise LinAlgError
    where the library fails.
    """
    if is_cupy(A):
        return syevd(A)
    values, vectors = namespace_of(A).linalg.eigh(A)
    return to_host(values).astype(np.float64), vectors


def newton_factor(U: Array) -> np.ndarray:
    """Return (3 I - UᵀU) / 2 on the host: U times it is one Newton step nearer to orthonormal columns.

    The step squares the distance from I. Higham, SIAM J. Sci. Stat. Comput. 7 (1986) 1160 (polar decomposition).
    """
    return 1.5 * np.eye(U.shape[1]) - 0.5 * inner_products(U, U)


def ritz_pairs(T: np.ndarray, keep: int, like: Array) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the `keep` largest eigenpairs of a small symmetric host matrix, descending, and its least eigenvalue."""
    if (found := _pairs_on_device(T, keep, like)) is not None:
        return found[0][:keep], found[1], float(found[0][-1])
    if keep < len(T) and len(T) > blocking.SMALL_MATRIX:
        return *_some_ritz_pairs(T, keep), smallest_eigenvalue(T, like)
    values, vectors = np.linalg.eigh(T)
    return values[::-1][:keep], vectors[:, ::-1][:, :keep], float(values[0])


def leading_ritz_pairs(T: np.ndarray, keep: int, like: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the `keep` largest eigenpairs of a small symmetric host matrix, descending."""
    if keep == 0:
        return np.zeros(0), np.zeros((len(T), 0))
    if (found := _pairs_on_device(T, keep, like)) is not None:
        return found[0][:keep], found[1]
    if 4 * keep < len(T):  # a third of the time of all pairs
        return _some_ritz_pairs(T, keep)
    values, vectors = np.linalg.eigh(T)
    return values[::-1][:keep], vectors[:, ::-1][:, :keep]


def _pairs_on_device(T: np.ndarray, keep: int, like: Array) -> tuple[np.ndarray, np.ndarray] | None:
    """Return all eigenvalues, descending, and `keep` vectors by the card of `like`; None where the host is left."""
    if len(T) <= blocking.HOST_MATRIX or not is_on_gpu(like):
        return None
    try:
        return leading_pairs(T, keep, like.device)
    except (np.linalg.LinAlgError, MemoryError):
        return None


def _some_ritz_pairs(T: np.ndarray, keep: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the same by bisection, or from all pairs where bisection loses members of a cluster."""
    k = len(T)
    values, vectors = scipy.linalg.eigh(T, subset_by_index=(k - keep, k - 1), driver="evr", check_finite=False)
    if len(values) < keep:
        values, vectors = np.linalg.eigh(T)
    return values[::-1][:keep], vectors[:, ::-1][:, :keep]


def smallest_eigenvalue(T: np.ndarray, like: Array) -> float:
    """Return the smallest eigenvalue of a small symmetric host matrix."""
    if (found := _pairs_on_device(T, 1, like)) is not None:
        return float(found[0][-1])
    lowest = scipy.linalg.eigh(T, eigvals_only=True, subset_by_index=(0, 0), driver="evr", check_finite=False)
    return float(lowest[0]) if len(lowest) else float(np.linalg.eigvalsh(T)[0])


def solve_positive_definite(A: Array, B: Array) -> Array:
    """Return ``A⁻¹ B`` for positive definite A, which may be overwritten; raise LinAlgError for other matrices.

    Where the library can write into parts of an array, only the upper triangle of A is read.
    """
    if is_numpy(A):
        return cholesky_solution(A, B)
    if is_cupy(A):
        mirror_upper(A)
        return cuda_linalg.solve_positive_definite(A, B)
    xp = namespace_of(A, B)
    try:
        # Definiteness is tested by the factor; two triangular solves are not in the standard, so `solve` follows.
        positive = bool(xp.all(xp.isfinite(xp.linalg.cholesky(A))))
        solution = xp.linalg.solve(A, B)
    except RuntimeError as error:  # what PyTorch raises
        raise np.linalg.LinAlgError(str(error)) from error
    if not positive:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return solution


def smallest_in_rows(A: Array, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `count` smallest entries of every row in float64, and their columns; both (m, count) on the host."""
    if is_numpy(A):
        columns = np.argpartition(A, count - 1, axis=1)[:, :count]
        return np.take_along_axis(A, columns, axis=1).astype(np.float64), columns
    xp = namespace_of(A)
    columns = xp.argsort(A, axis=1)[:, :count]
    return to_host(xp.sort(A, axis=1)[:, :count]).astype(np.float64), to_host(columns)


def largest_asymmetry(K: Array) -> tuple[float, int, int]:
    """Return max |K_ij - K_ji| and its place, by panels: no array of the size of K is made."""
    xp = namespace_of(K)
    n, worst = K.shape[0], (0.0, 0, 0)
    for start, stop in row_slices(n, blocking.ROW_BLOCK):
        difference = xp.abs(K[start:stop, :] - K[:, start:stop].T)
        largest = float(xp.max(difference))
        if largest > worst[0]:
            i, j = divmod(int(xp.argmax(xp.reshape(difference, (-1,)))), n)
            worst = (largest, start + i, j)
    return worst


def largest_modulus(K: Array) -> float:
    """Return max |K_ij|."""
    xp = namespace_of(K)
    return max(float(xp.max(K)), -float(xp.min(K)))


def with_diagonal(K: Array, diagonal: Array) -> Array:
    """Return K with another diagonal; in place where the library can."""
    if writes_in_place(K):
        view = K.diagonal() if is_cupy(K) else np.einsum("ii->i", K)  # index arrays take a launch each, and 60 µs
        view[...] = diagonal
        return K
    every = arange(K.shape[0], K)
    return namespace_of(K).where(every[:, None] == every[None, :], diagonal[:, None], K)


def symmetric_from_upper(K: Array, diagonal: Array) -> Array:
    """Return K with its upper triangle mirrored and another diagonal; in place where the library can.

    Rounding in a matrix product is not symmetric.
    """
    if writes_in_place(K):
        mirror_upper(K)
        return with_diagonal(K, diagonal)
    xp = namespace_of(K)
    upper = xp.triu(K, k=1)
    return with_diagonal(upper + upper.T, diagonal)


def add_to_diagonal(K: Array, value: float) -> Array:
    """Return K + value I; in place where the library can."""
    return with_diagonal(K, namespace_of(K).linalg.diagonal(K) + value)


def subtract_outer_sum(K: Array, rows: Array, columns: Array) -> Array:
    """Return K_ij - (r_i + c_j); in place where the library can.

    The sum comes first, so that a symmetric K stays symmetric to the last bit.
    """
    return _by_row_blocks(K, operator.isub, lambda part: rows[part, None] + columns[None, :], rows.dtype)


def subtract_outer_product(A: Array, rows: Array, columns: Array) -> Array:
    """Return A - r cᵀ; in place where the library can, without a second matrix."""
    return _by_row_blocks(A, operator.isub, lambda part: rows[part, None] * columns[None, :], rows.dtype)


def times_outer_product(K: Array, v: Array) -> Array:
    """Return K_ij (v_i v_j), symmetric as K is; in place where the library can, without a second matrix."""
    return _by_row_blocks(K, operator.imul, lambda part: v[part, None] * v[None, :], v.dtype)


def _by_row_blocks(
    K: Array, update: Callable[[Array, Array], Array], of_rows: Callable[[slice], Array], dtype: Any
) -> Array:
    """Return ``update(K, of_rows(all rows))``, an update in place, by blocks where the library can write to parts."""
    if not writes_in_place(K):
        return cast(update(cast(K, dtype), of_rows(slice(None))), K.dtype)
    for part in (slice(*bounds) for bounds in row_slices(K.shape[0], blocking.ROW_BLOCK)):
        update(K[part, :], of_rows(part))
    return K


def mirror_upper(K: Array) -> None:
    """Copy the upper triangle of a square K onto the lower one, block by block (NumPy and CuPy)."""
    xp = namespace_of(K)
    for start, stop in row_slices(K.shape[0], blocking.ROW_BLOCK):
        K[stop:, start:stop] = K[start:stop, stop:].T
        block = K[start:stop, start:stop]
        block[...] = xp.triu(block) + xp.triu(block, k=1).T


def with_entries(C: Array, rows: Any, values: Array) -> Array:
    """Return C with C[rows[j], j] = values[j] for `rows` on the host that C has; in place where the library can."""
    if writes_in_place(C):
        rows = np.asarray(rows, dtype=np.int64)
        there = np.flatnonzero((rows >= 0) & (rows < C.shape[0]))
        if there.size:
            C[indices(rows[there], C), indices(there, C)] = values[indices(there, C)]
        return C
    chosen = indices(rows, C)
    every = arange(C.shape[0], C, chosen.dtype)
    return namespace_of(C).where(every[:, None] == chosen[None, :], values[None, :], C)


def entries_of_columns(C: Array, rows: Array) -> Array:
    """Return the entries C[rows[j], j] of all columns, shape (b,), for an index array `rows` where C lives."""
    if writes_in_place(C):  # these libraries take two index arrays, in a third of the time
        return C[rows, arange(C.shape[1], C)]
    return namespace_of(C).take_along_axis(C, rows[None, :], axis=0)[0, :]


def pivot_order(A: np.ndarray, floor: float) -> np.ndarray:
    """Return the pivots of the Cholesky factor of a small host matrix, the largest residual first, while above `floor`.

    A matrix that is not positive semidefinite raises nothing.
    """
    _, pivots, rank, _ = scipy.linalg.lapack.dpstrf(A, tol=floor, lower=1)
    return pivots[:rank].astype(np.int64) - 1


def triangular_inverse(L: np.ndarray) -> np.ndarray:
    """Return the inverse of a small lower triangular host matrix."""
    return solve_triangular(L, np.eye(len(L)))


def solve_triangular(L: np.ndarray, B: np.ndarray, transposed: bool = False) -> np.ndarray:
    """Return ``L⁻¹ B``, or ``L⁻ᵀ B``, for a lower triangular host matrix."""
    if not len(L):
        return np.zeros((0, B.shape[1]))
    return scipy.linalg.solve_triangular(L, B, lower=True, trans="T" if transposed else "N", check_finite=False)


def reciprocals(values: np.ndarray) -> np.ndarray:
    """Return 1 / value of values >= 0, 0 where the value is 0."""
    return np.divide(1.0, values, out=np.zeros(len(values)), where=values > 0)
