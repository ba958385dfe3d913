"""The same for CSR rows, centred implicitly: X stays sparse, and the mean is taken off products."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca.backend.linalg import subtract_outer_sum
from gpukpca.backend.namespace import cast
from gpukpca.gram.residence import edges

# Rows of a block of a product of two sparse matrices.
BLOCK_ROWS = 1024


class SparseRows:
    """The rows of a CSR matrix less their mean, in units of a scale; see `gpukpca.gram.feature_rows.FeatureRows`.

    Products are computed in float64. Where the means are large beside the deviations from them, digits cancel:
    `noise_scale` says how large, and rank decisions depend on it.

    Parameters
    ----------
    X : CSR matrix, shape (n, d)
    by_rows : bool
        Whether the smaller side are the features.
    n_jobs : int, optional
        Not used: SciPy's sparse products have one thread.
    """

    workers = 1

    def __init__(self, X: Any, by_rows: bool, n_jobs: int | None = None) -> None:
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.by_rows = by_rows
        self.dtype = X.dtype
        self.like = np.empty(0, X.dtype)
        self.wide = np.float64
        # A copy where entries are given twice, or in float32, which float64 operands would widen in every product.
        self.X = X if X.has_canonical_format else X.copy()
        self.X.sum_duplicates()
        self.X = cast(self.X, np.float64)
        self.mean = np.asarray(self.X.sum(axis=0)).reshape(-1) / self.shape[0]
        stored = np.bincount(self.X.indices, minlength=self.shape[1])
        deviations = (self.X.data - self.mean[self.X.indices]) ** 2
        squares = np.bincount(self.X.indices, weights=deviations, minlength=self.shape[1])
        self.squares = squares + (self.shape[0] - stored) * self.mean**2
        self.weights: np.ndarray | None = None
        self._mean = self.mean

    def measure(self) -> None:
        """Nothing: mean and squares are known."""

    def rescale(self, scale: np.ndarray) -> None:
        """Divide every feature by its entry from here on."""
        self.X = self.X.copy()
        self.X.data = self.X.data / scale[self.X.indices]
        self.weights = 1.0 / scale
        self._mean = self.mean * self.weights

    @property
    def total(self) -> float:
        """The sum of the squares of all entries of Z."""
        return float(np.sum(self.squares * (1.0 if self.weights is None else self.weights**2)))

    @property
    def size(self) -> float:
        """n ‖m‖²."""
        return self.shape[0] * float(self._mean @ self._mean)

    noise_scale = size

    def times(self, V: Any) -> np.ndarray:
        """Z V."""
        V = cast(V, np.float64)
        return cast(self.X @ V - (self._mean @ V)[None, :], self.dtype)

    def adjoint(self, U: Any) -> np.ndarray:
        """Zᵀ U."""
        U = cast(U, np.float64)
        return cast(self.X.T @ U - self._mean[:, None] * U.sum(axis=0)[None, :], self.dtype)

    def scatter_times(self, V: Any) -> np.ndarray:
        """ZᵀZ V."""
        return cast(self.adjoint(self.times(V)), self.dtype)

    def gram_times(self, U: Any) -> np.ndarray:
        """Z ZᵀU."""
        return self.times(self.adjoint(U))

    def scatter(self) -> np.ndarray:
        """ZᵀZ, dense, shape (d, d)."""
        S = _by_blocks(self.X.T.tocsr(), self.X)
        return S - self.shape[0] * self._mean[:, None] * self._mean[None, :]

    def gram(self) -> np.ndarray:
        """Z Zᵀ, dense, shape (n, n)."""
        G = _by_blocks(self.X, self.X.T.tocsr())
        means = G.mean(axis=0)
        half = float(means.sum()) / len(G) / 2.0
        return subtract_outer_sum(G, means - half, means - half)


def _by_blocks(A: Any, B: Any) -> np.ndarray:
    """A B as a dense array, a block of rows at a time."""
    product = np.empty((A.shape[0], B.shape[1]))
    for start, stop in edges(A.shape[0], BLOCK_ROWS):
        product[start:stop, :] = (A[start:stop] @ B).toarray()
    return product
