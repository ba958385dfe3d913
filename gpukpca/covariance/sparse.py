"""CSR rows less their mean: X stays sparse, and the mean is subtracted from products."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.namespace import cast
from gpukpca.backend.sparse import sparse_row_products
from gpukpca.covariance.centered_matrix import OF_MISSING, CenteredMatrix
from gpukpca.data.csr import less_full_columns
from gpukpca.data.finite import FINITE, check_finite
from gpukpca.data.frequencies import Frequencies
from gpukpca.data.statistics import feature_bounds
from gpukpca.exceptions import InvalidParameterError


class SparseCenteredMatrix(CenteredMatrix):
    """The rows of a CSR matrix less their mean, weighted; see `CenteredMatrix`.

    Columns stored in more than half of the rows are shifted by their mean. In every other column at least half of the
    rows are 0, so that n mean² is at most the sum of squared deviations: subtracting the mean from products costs no
    digits. Products are computed in float64, with one thread.

    Parameters
    ----------
    X : CSR matrix, shape (n, d)
        Canonical: sorted indices, no duplicates.
    by_rows : bool
        Whether there are fewer features than rows.
    center : bool
        False: the mean, and what is subtracted, are 0.
    frequencies : Frequencies, optional
        Of the rows.
    """

    def __init__(self, X: Array, by_rows: bool, center: bool = True, frequencies: Frequencies | None = None) -> None:
        self._set_rows(X.shape, np.empty(0, X.dtype), center, frequencies)
        self.by_rows = by_rows
        self.source = X
        self._narrow = 0  # columns of narrow blocks so far
        sums = np.bincount(X.indices, self._often(X), minlength=self.shape[1]) if center else np.zeros(self.shape[1])
        self._subtract(sums / self.count)

    def _often(self, X: Array) -> np.ndarray:
        """Return the stored entries of a matrix like X times the frequencies of their rows."""
        entries: np.ndarray = X.data
        if self.frequencies is None:
            return entries
        often: np.ndarray = entries * np.repeat(self.frequencies.roots[:, 0] ** 2, np.diff(X.indptr))
        return often

    def check_entries(self) -> None:
        check_finite(self.source, FINITE, of_missing=OF_MISSING)

    def _subtract(self, shift: np.ndarray) -> None:
        self.deviations: Any
        self.shift: Array
        self.deviations, self.shift = less_full_columns(self.source, shift)
        self._set_matrix(self.deviations)
        if self.multipliers is not None:
            self._multiply_columns(self.multipliers)

    def _multiply_columns(self, multipliers: np.ndarray) -> None:
        super()._multiply_columns(multipliers)
        X = self.deviations.copy()
        X.data *= self.multipliers[X.indices]
        self._set_matrix(X)

    def _set_matrix(self, X: Any) -> None:
        self.X: Any = X
        self.transposed: Any = X.T  # which shares memory, and takes a fiftieth of a narrow product
        vars(self).pop("_by_columns", None)

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest entry of every column of X less the shift, shapes (d,)."""
        return feature_bounds(self.deviations)

    @cached_property
    def _by_columns(self) -> Any:
        return self.X.tocsc()

    def _product(self, V: Array) -> np.ndarray:
        """Return X V, of narrow blocks by the columns of X once their copy pays: the same sums in less time."""
        is_narrow = V.shape[1] <= blocking.SPARSE_NARROW_COLUMNS
        self._narrow += is_narrow * int(V.shape[1])
        by_columns = is_narrow and self._narrow > blocking.SPARSE_COPY_AFTER
        return np.asarray((self._by_columns if by_columns else self.X) @ V)

    def moments(self) -> np.ndarray:
        data, places = self._often(self.X), self.X.indices
        return np.stack([np.bincount(places, sums, minlength=self.shape[1]) for sums in (data, data * self.X.data)])

    def times(self, V: Array) -> Array:
        self.measure()
        V = cast(V, np.float64)
        product = self._product(V)
        product -= (self.multiplied(self.rest) @ V)[None, :]
        return cast(self.rooted(product), self.dtype)

    def adjoint(self, U: Array) -> Array:
        self.measure()
        U = self.rooted(cast(U, np.float64))
        return cast(self.transposed @ U - self.multiplied(self.rest)[:, None] * U.sum(axis=0)[None, :], self.dtype)

    def scatter_times(self, V: Array) -> Array:
        # The columns of Z V, times the roots, sum to zero: the left factor needs no correction for the mean.
        return cast(self.transposed @ self.rooted(cast(self.times(V), np.float64)), self.dtype)

    def gram_times(self, U: Array) -> Array:
        W = self._product(self.transposed @ self.rooted(cast(U, np.float64)))
        return cast(self.without_mean(self.rooted(W)), self.dtype)  # which removes the mean

    def materialized(self) -> np.ndarray:
        raise InvalidParameterError(
            'svd_solver="full" would fill the zeros of a sparse matrix; use "covariance_eigh", "dual" or '
            '"randomized", or pass X.toarray().'
        )

    def scatter_and_sums(self) -> tuple[np.ndarray, np.ndarray]:
        often = type(self.X)((self._often(self.X), self.X.indices, self.X.indptr), shape=self.shape)
        return sparse_row_products(self.transposed.tocsr(), often.T), np.asarray(often.sum(axis=0)).reshape(-1)

    def shifted_gram(self) -> np.ndarray:
        return sparse_row_products(self.X, self.X)
