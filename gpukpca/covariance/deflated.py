"""A centered matrix without its leading directions, in which the small singular values keep their digits."""

from __future__ import annotations

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.linalg import inner_products, times_small
from gpukpca.backend.namespace import cast, to_host
from gpukpca.covariance.centered_matrix import CenteredMatrix, RowProducts, matrix_of_products


class DeflatedMatrix(RowProducts):
    """Z (I - V Vᵀ), for the leading right singular vectors V of a centered matrix Z, of any container of rows.

    A product of Z with itself holds every eigenvalue to eps λ₁. Here V is subtracted from blocks before Z multiplies
    them, so that of the leading directions only the rounding of Z remains, eps σ₁ of a singular value.

    Parameters
    ----------
    matrix : CenteredMatrix, shape (n, d)
        Measured.
    V : array, shape (d, k)
        Orthonormal columns.
    """

    def __init__(self, matrix: CenteredMatrix, V: Array) -> None:
        self.matrix: CenteredMatrix = matrix
        self.V = V
        self._set_rows(matrix.shape, matrix.like, matrix.center, matrix.frequencies)

    def measure(self) -> None:
        """Pass: mean and unit are those of Z."""

    def project(self, V: Array) -> Array:
        return V - cast(times_small(self.V, inner_products(self.V, V)), V.dtype)

    def times(self, V: Array) -> Array:
        return self.matrix.times(self.project(cast(V, self.dtype)))

    def adjoint(self, U: Array) -> Array:
        return self.project(self.matrix.adjoint(U))

    def scatter_times(self, V: Array) -> Array:
        return self.project(self.matrix.scatter_times(self.project(cast(V, self.dtype))))

    def materialized(self) -> Array | None:
        Z = self.matrix.materialized()
        return None if Z is None else Z - (Z @ self.V) @ self.V.T

    def own_triangle(self) -> np.ndarray:
        R, V = self.matrix.own_triangle(), to_host(self.V).astype(np.float64)
        return np.asarray(R - (R @ V) @ V.T)

    def triangle(self, V: Array) -> np.ndarray:
        return self.matrix.triangle(self.project(V))

    def scatter(self) -> Array:
        return matrix_of_products(self.scatter_times, self.shape[1], self)

    def gram(self) -> Array:
        return matrix_of_products(self.gram_times, self.shape[0], self)
