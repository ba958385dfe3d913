"""Products of CSR rows, at a cost that their entries bound: a matrix need not hold its number of columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.parallel import row_slices

# Columns for each stored entry, beyond which those without entries are left out of a product before it.
MOST_COLUMNS = 16


def sparse_row_products(a: Any, b: Any, out: Array | None = None) -> np.ndarray:
    """Return ``a @ b.T`` of CSR rows as a dense array, by strips of rows; `b` may be CSC. `out` may be used.

    SciPy's product is sparse, and takes one and a half times the bytes of the dense array where few entries are 0.
    """
    if b.format == "csr" and b.shape[1] > MOST_COLUMNS * (a.nnz + b.nnz):  # its transpose has a number for each
        a, b = narrowed(a, b)
    right, dtype, shape = b.T.tocsr(), np.result_type(a.dtype, b.dtype), (a.shape[0], b.shape[0])
    is_usable = out is not None and out.shape == shape and out.dtype == dtype and out.flags.c_contiguous
    product: np.ndarray = out if is_usable else np.empty(shape, dtype)  # type: ignore[assignment]
    for start, stop in row_slices(shape[0], max(1, blocking.SPARSE_PRODUCT_ENTRIES // max(1, shape[1]))):
        rows = a if stop - start == shape[0] else a[start:stop]
        (rows @ right).toarray(out=product[start:stop])
    return product


def narrowed(a: Any, b: Any) -> tuple[Any, Any]:
    """Return CSR rows of the same columns without those in which neither has an entry.

    Such columns add nothing to inner products and distances.
    """
    kept = np.union1d(a.indices, b.indices)
    return _relabeled(a, kept), _relabeled(b, kept)


def _relabeled(X: Any, kept: np.ndarray) -> Any:
    """Return the rows of X, column kept[j] of which is column j; `kept` ascends, and X stores no entry elsewhere."""
    places = np.searchsorted(kept, X.indices).astype(X.indices.dtype)
    return type(X)((X.data, places, X.indptr), shape=(X.shape[0], len(kept)))
