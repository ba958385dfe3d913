"""CSR matrices with checked index arrays: compiled products of SciPy read from any address that an index gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

CSR = {"csr_matrix": scipy.sparse.csr_matrix, "csr_array": scipy.sparse.csr_array}


def csr_from_parts(name: str, data: Any, indices: Any, indptr: Any, shape: Any) -> Any:
    """Return the canonical matrix of class `name` in `CSR`; raise ValueError where the parts make none."""
    check_csr_parts(data, indices, indptr, shape)
    return canonical(CSR[name]((data, indices, indptr), shape=shape))


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


def relabeled(X: Any, kept: np.ndarray) -> Any:
    """Return CSR rows of `len(kept)` columns, column j of which is column kept[j] of X; X stores no entry elsewhere.

    `kept` is ascending. The cost does not depend on the number of columns of X, which a matrix need not hold.
    """
    places = np.searchsorted(kept, X.indices).astype(X.indices.dtype)
    return type(X)((X.data, places, X.indptr), shape=(X.shape[0], len(kept)))


def canonical(X: Any) -> Any:
    """Return a checked CSR matrix with sorted indices and summed duplicates; X itself where it has them."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X
