"""CSR rows less their mean: X stays sparse, and the mean is subtracted from products."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.linalg import column_sums
from gpukpca.backend.namespace import cast
from gpukpca.backend.parallel import row_slices
from gpukpca.covariance.centered_matrix import OF_MISSING, CenteredMatrix
from gpukpca.data.csr import less_full_columns
from gpukpca.data.finite import FINITE, check_finite
from gpukpca.data.statistics import feature_bounds
from gpukpca.exceptions import InvalidParameterError


class SparseCenteredMatrix(CenteredMatrix):
    """The rows of a CSR matrix less their mean, weighted; see `CenteredMatrix`.

    Columns stored in more than half of the rows are shifted by their mean. In every other column at least half of the
    rows are 0, so that n mean² is at most the sum of squared deviations: subtracting the mean from products costs no
    digits. Products are computed in float64.

    Parameters
    ----------
    X : CSR matrix, shape (n, d)
        Canonical: sorted indices, no duplicates.
    by_rows : bool
        Whether there are fewer features than rows.
    center : bool
        False: the mean, and what is subtracted, are 0.
    """

    workers = 1  # SciPy's sparse products have one thread
    wide = np.float64

    def __init__(self, X: Array, by_rows: bool, center: bool = True) -> None:
        self.center = center
        self.shape: tuple[int, int] = (int(X.shape[0]), int(X.shape[1]))
        self.by_rows = by_rows
        self.dtype: Any = X.dtype
        self.like: Array = np.empty(0, X.dtype)
        self.source = X
        sums = np.bincount(X.indices, X.data, minlength=self.shape[1]) if center else np.zeros(self.shape[1])
        self._subtract(sums / self.shape[0])

    def check_entries(self) -> None:
        check_finite(self.source, FINITE, of_missing=OF_MISSING)

    def _subtract(self, shift: np.ndarray) -> None:
        self.deviations, self.shift = less_full_columns(self.source, shift)
        self.X = self.deviations
        if self.weights is not None:
            self._weigh(self.weights)

    def _weigh(self, weights: np.ndarray) -> None:
        super()._weigh(weights)
        self.X = self.deviations.copy()
        self.X.data *= self.weights[self.X.indices]

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest entry of every column of X less the shift, shapes (d,)."""
        return feature_bounds(self.deviations)

    def moments(self) -> np.ndarray:
        data, places = self.X.data, self.X.indices
        return np.stack([np.bincount(places, weights, minlength=self.shape[1]) for weights in (data, data * data)])

    def times(self, V: Array) -> Array:
        self.measure()
        V = cast(V, np.float64)
        return cast(_product(self.X, V) - (self.weighted(self.rest) @ V)[None, :], self.dtype)

    def adjoint(self, U: Array) -> Array:
        self.measure()
        U = cast(U, np.float64)
        return cast(self.X.T @ U - self.weighted(self.rest)[:, None] * U.sum(axis=0)[None, :], self.dtype)

    def scatter_times(self, V: Array) -> Array:
        # The columns of Z V sum to zero: the left factor needs no correction for the mean.
        return cast(self.X.T @ cast(self.times(V), np.float64), self.dtype)

    def gram_times(self, U: Array) -> Array:
        W = _product(self.X, self.X.T @ cast(U, np.float64))
        # Centering removes the mean.
        return cast(W - column_sums(W)[None, :] / self.shape[0] if self.center else W, self.dtype)

    def materialized(self) -> np.ndarray:
        raise InvalidParameterError(
            'svd_solver="full" would fill the zeros of a sparse matrix; use "covariance_eigh", "dual" or '
            '"randomized", or pass X.toarray().'
        )

    def scatter_and_sums(self) -> tuple[np.ndarray, np.ndarray]:
        return _by_blocks(self.X.T.tocsr(), self.X), np.asarray(self.X.sum(axis=0)).reshape(-1)

    def shifted_gram(self) -> np.ndarray:
        return _by_blocks(self.X, self.X.T.tocsr())


def _product(X: Array, V: Array) -> np.ndarray:
    """Return X V for CSR rows; SciPy takes up to twice as long for a narrow block as for its columns."""
    if V.shape[1] > blocking.SPARSE_SINGLE_COLUMNS:
        return np.asarray(X @ V)
    return np.stack([X @ column for column in V.T]).T


def _by_blocks(A: Array, B: Array) -> np.ndarray:
    """Return A B as a dense array, computed by blocks of rows."""
    product = np.empty((A.shape[0], B.shape[1]))
    for start, stop in row_slices(A.shape[0], blocking.SPARSE_PANEL_ROWS):
        product[start:stop, :] = (A[start:stop] @ B).toarray()
    return product
