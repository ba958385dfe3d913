"""Products of tall blocks with small matrices, as those of `backend.linalg`, for blocks in panels too."""

from __future__ import annotations

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend import linalg
from gpukpca.backend.namespace import from_host
from gpukpca.data.rows import Rows


def column_sums(V: Array, workers: int = 1) -> Array:
    """Return the sums of the columns of V, shape (b,), accumulated in the widest floating type."""
    return V.fold(linalg.column_sums) if isinstance(V, Rows) else linalg.column_sums(V, workers)


def inner_products(A: Array, B: Array, workers: int = 1) -> np.ndarray:
    """Return ``A.T @ B``, shape (a, b), small, on the host, accumulated in the widest floating type."""
    if isinstance(A, Rows):
        products: np.ndarray = A.fold(linalg.inner_products, B if isinstance(B, Rows) else A.split(B))
        return products
    return linalg.inner_products(A, B, workers)


def times_small(A: Array, S: np.ndarray, workers: int = 1) -> Array:
    """Return A (n, k) times a small host matrix (k, b)."""
    return A @ from_host(S, A.like) if isinstance(A, Rows) else linalg.times_small(A, S, workers)
