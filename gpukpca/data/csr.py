"""CSR matrices with checked index arrays: compiled products of SciPy read from any address that an index gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from gpukpca.backend.namespace import (
    cast,
    is_sparse,
)

CSR = {"csr_matrix": scipy.sparse.csr_matrix, "csr_array": scipy.sparse.csr_array}


def csr_from_parts(name: str, data: Any, indices: Any, indptr: Any, shape: Any) -> Any:
    """Return the matrix of class `name` in `CSR`; raise ValueError unless the parts make a canonical one.

    To sort the indices of a file would copy its arrays once for every matrix that names them.
    """
    check_csr_parts(data, indices, indptr, shape)
    X = CSR[name]((data, indices, indptr), shape=shape)
    if not X.has_canonical_format:
        raise ValueError("column indices must ascend in every row, each once")
    return X


def check_csr_parts(data: Any, indices: Any, indptr: Any, shape: Any) -> None:
    """Raise ValueError unless every stored entry lies inside a matrix of this shape."""
    if not (isinstance(shape, tuple) and len(shape) == 2 and all(type(size) is int and size >= 0 for size in shape)):
        raise ValueError(f"the shape must be two integers >= 0; it is {shape!r:.80}")
    for what, part, kinds in (("data", data, "biufc"), ("indices", indices, "i"), ("indptr", indptr, "i")):
        if not isinstance(part, np.ndarray) or part.ndim != 1 or part.dtype.kind not in kinds:
            raise ValueError(f"{what} must be a vector of {'integers' if kinds == 'i' else 'numbers'}")
    n, d = shape
    if len(indptr) != n + 1 or indptr[0] != 0:
        raise ValueError(f"indptr must have {n + 1} entries for {n} rows and begin with 0")
    # A difference of two entries could overflow.
    if np.any(indptr[1:] < indptr[:-1]) or not indptr[-1] == len(indices) == len(data):
        raise ValueError(
            f"indptr must never decrease and end at the number of entries; it ends at {indptr[-1]}, with {len(data)} "
            f"values and {len(indices)} column indices"
        )
    if len(indices) and not 0 <= indices.min() <= indices.max() < d:
        raise ValueError(
            f"column indices must lie between 0 and {d - 1}; they reach from {indices.min()} to {indices.max()}"
        )


def check_compressed(X: Any) -> None:
    """Raise ValueError where a sparse container is CSR or CSC and stores entries outside its shape."""
    if X.format in ("csr", "csc") and X.ndim == 2:
        shape = tuple(map(int, X.shape))
        check_csr_parts(X.data, X.indices, X.indptr, shape if X.format == "csr" else shape[::-1])


def canonical(X: Any) -> Any:
    """Return a checked CSR matrix with sorted indices and summed duplicates; X itself where it has them."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def as_csr(X: Any) -> Any:
    """Return a host array or sparse matrix as CSR."""
    return X.tocsr() if is_sparse(X) else scipy.sparse.csr_array(X)


def less_full_columns(X: Any, shift: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return a canonical CSR X less `shift` in columns that more than half of the rows store, and what was subtracted.

    Only such columns can have a mean that is large relative to their deviations. In a column of which half is zero the
    deviations have the size of the mean. The result has at most twice the entries of X. Both results
    are float64, and the subtracted row (d,) is 0 in all other columns.
    """
    subtracted, full = np.zeros(X.shape[1]), _full_columns(X)
    subtracted[full] = shift[full]
    return less_row(cast(X, np.float64), subtracted), subtracted


def stored_means(X: Any) -> np.ndarray:
    """Return float64 means (d,) of stored entries in full columns; 0 in the others."""
    X = canonical(X)
    means, full = np.zeros(X.shape[1]), _full_columns(X)
    if len(full):
        columns = X[:, full].tocsc()
        values, starts, counts = columns.data.astype(np.float64), columns.indptr[:-1], np.diff(columns.indptr)
        first = values[starts]
        # About the first entry: a constant column has its mean to the last bit.
        means[full] = first + np.add.reduceat(values - np.repeat(first, counts), starts) / counts
    return means


def _full_columns(X: Any) -> np.ndarray:
    """Return which columns more than half of the rows of a canonical CSR X store."""
    return np.flatnonzero(2 * np.bincount(X.indices, minlength=X.shape[1]) > X.shape[0])


def less_row(X: Any, row: np.ndarray) -> Any:
    """Return a float64 CSR X less a row that is mostly zeros; X itself where it is all zeros."""
    n, kept = int(X.shape[0]), np.flatnonzero(row)
    if not kept.size:
        return X
    rows = (np.tile(row[kept], n), np.tile(kept, n), np.arange(n + 1) * kept.size)
    return (X - type(X)(rows, shape=X.shape)).tocsr()


def sparse_square_distances(a: Any, b: Any) -> np.ndarray:
    """Return ‖x - y‖² of the rows of two CSR matrices by differences, which stay sparse; equal rows give exactly 0."""
    distances = np.empty((a.shape[0], b.shape[0]))
    for i in range(a.shape[0]):
        row = a[i : i + 1]
        columns, m = row.indices, b.shape[0]
        starts = len(columns) * np.arange(m + 1)
        same = scipy.sparse.csr_array((np.tile(row.data, m), np.tile(columns, m), starts), shape=b.shape)
        difference = b - same
        distances[i, :] = np.asarray(difference.multiply(difference).sum(axis=1)).reshape(-1)
    return distances
