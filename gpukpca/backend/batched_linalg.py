"""Linear algebra of many small symmetric matrices at once, as arrays (p, p, b).

The batch comes last, so that elementwise steps run along it for any p. Packed matrices are the q = p (p + 1)/2
rows of an array (q, b): the upper triangle, row by row.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import device_of, indices, namespace_of, writes_in_place

# Up to this size steps along the batch are faster than one LAPACK call a matrix: three times at 5, equal at 16 to 20.
SWEPT_UP_TO = 16


@cache
def triangle(p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of the packed entries, on the host."""
    return np.triu_indices(p)


def packed_symmetric(A: np.ndarray) -> np.ndarray:
    """Return the packed entries of one symmetric host matrix, shape (q,)."""
    return A[triangle(len(A))]


def unpacked_symmetric(entries: Array, p: int) -> Array:
    """Return symmetric matrices (p, p, b) from packed entries (q, b)."""
    rows, columns = triangle(p)
    where = np.zeros((p, p), dtype=np.int64)
    where[rows, columns] = where[columns, rows] = np.arange(len(rows))
    xp = namespace_of(entries)
    return xp.reshape(xp.take(entries, indices(where, entries), axis=0), (p, p, int(entries.shape[1])))


def products_of_pairs(A: Array) -> Array:
    """Return the packed outer products of the columns of A (p, b), shape (q, b)."""
    xp = namespace_of(A)
    rows, columns = triangle(int(A.shape[0]))
    return xp.take(A, indices(rows, A), axis=0) * xp.take(A, indices(columns, A), axis=0)


def packed_entries(A: Array) -> Array:
    """Return the packed entries (q, b) of matrices (p, p, b)."""
    xp, p, b = namespace_of(A), int(A.shape[0]), int(A.shape[2])
    rows, columns = triangle(p)
    return xp.take(xp.reshape(A, (p * p, b)), indices(rows * p + columns, A), axis=0)


def definite_inverses(A: Array, least: float) -> tuple[Array, Array]:
    """Return inverses (p, p, b) and logarithms of determinants (b,); no eigenvalue is below `least` > 0.

    A may be overwritten.
    """
    if writes_in_place(A) and A.shape[0] <= SWEPT_UP_TO:
        return _swept(A, least)
    xp = namespace_of(A)
    stacked = xp.permute_dims(A, (2, 0, 1))
    roots = xp.linalg.diagonal(xp.linalg.cholesky(stacked))
    inverses = xp.permute_dims(xp.linalg.inv(stacked), (1, 2, 0))
    return inverses, 2.0 * xp.sum(xp.log(roots), axis=1)


def _swept(A: Array, least: float) -> tuple[Array, Array]:
    """Invert in place by Gauss and Jordan without pivoting, which definite matrices do not need."""
    xp = namespace_of(A)
    log_determinants = xp.zeros(A.shape[2], dtype=A.dtype, device=device_of(A))
    update = xp.empty_like(A)
    for k in range(A.shape[0]):
        row = xp.asarray(A[k, :, :], copy=True)
        # A pivot is a diagonal entry of a Schur complement: only rounding can bring it below the least eigenvalue.
        pivot = xp.maximum(row[k, :], least)
        log_determinants += xp.log(pivot)
        scaled = row / pivot[None, :]
        xp.multiply(row[:, None, :], scaled[None, :, :], out=update)
        A -= update
        A[k, :, :] = scaled
        A[:, k, :] = scaled
        A[k, k, :] = -1.0 / pivot
    return -A, log_determinants


def batched_products(A: Array, V: Array) -> Array:
    """Return A_i v_i for matrices (p, p, b) and vectors (p, b), shape (p, b)."""
    return namespace_of(A).sum(A * V[None, :, :], axis=1)


def batched_solutions(A: Array, V: Array) -> Array:
    """Return A_i⁻¹ v_i for matrices (p, p, b) and vectors (p, b), shape (p, b)."""
    xp = namespace_of(A)
    stacked = xp.permute_dims(A, (2, 0, 1))
    right = V.T[:, :, None]
    return xp.linalg.solve(stacked, right)[:, :, 0].T
