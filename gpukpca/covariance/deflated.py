"""A centered matrix without its leading directions, in which the small singular values keep their digits."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.linalg import inner_products, times_small
from gpukpca.backend.namespace import cast, concat, from_host, namespace_of, to_host
from gpukpca.backend.parallel import row_slices
from gpukpca.covariance.centered_matrix import CenteredMatrix

# Fewest columns of a panel in which a square matrix is computed.
FEWEST_COLUMNS = 32


class DeflatedMatrix(CenteredMatrix):
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
        self.matrix, self.V = matrix, V
        self.shape: tuple[int, int] = matrix.shape
        self.dtype: Any = matrix.dtype
        self.like: Array = matrix.like
        self.wide: Any = matrix.wide

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
        return None if Z is None else Z - (Z @ self.V) @ namespace_of(Z).matrix_transpose(self.V)

    def own_triangle(self) -> np.ndarray:
        R, V = self.matrix.own_triangle(), to_host(self.V).astype(np.float64)
        return np.asarray(R - (R @ V) @ V.T)

    def triangle(self, V: Array) -> tuple[np.ndarray, Array | None]:
        return self.matrix.triangle(self.project(V))

    def scatter(self) -> Array:
        return self._by_panels(self.scatter_times, self.shape[1])

    def gram(self) -> Array:
        return self._by_panels(self.gram_times, self.shape[0])

    def _by_panels(self, product: Any, size: int) -> Array:
        """Return the symmetric matrix (size, size) of a product with blocks, in the widest type."""
        unit = np.eye(size)
        panels = row_slices(size, max(FEWEST_COLUMNS, int(self.V.shape[1])))
        columns = [cast(product(from_host(unit[:, a:b], self.like)), self.wide) for a, b in panels]
        A = concat(columns, axis=1)
        return 0.5 * (A + namespace_of(A).matrix_transpose(A))
