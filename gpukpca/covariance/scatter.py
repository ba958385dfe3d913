"""Scatter matrices of centered rows as operators: ZᵀZ of the features and Z Zᵀ of the samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.backend.device import operator_on_its_device
from gpukpca.backend.namespace import cast, from_host
from gpukpca.covariance.centered_matrix import RowProducts


@operator_on_its_device
class ScatterOperator(SymmetricOperator):
    """ZᵀZ, shape (d, d), or with `of_samples` Z Zᵀ, shape (n, n), of centered rows Z, as an operator.

    A product with b columns is one sweep over the data and costs 4 n d b operations. Sums over samples or features are
    accumulated in the widest floating type.
    """

    def __init__(self, matrix: RowProducts, of_samples: bool) -> None:
        self.matrix = matrix
        self.of_samples = of_samples
        size = matrix.shape[0 if of_samples else 1]
        self.shape: tuple[int, int] = (size, size)
        self.dtype: Any = matrix.dtype
        self.like: Array = matrix.like
        self.noise_scale: float = matrix.noise

    @property
    def trace(self) -> float:  # type: ignore[override]
        """Return the sum of the squares of all entries of Z."""
        return self.matrix.total

    def __matmul__(self, V: Array) -> Array:
        return self.matrix.gram_times(self.project(V)) if self.of_samples else self.matrix.scatter_times(V)

    def project(self, V: Array) -> Array:
        """Return the projection onto a space that holds the range, by the matrix."""
        if not self.of_samples:
            return self.matrix.project(V)
        return self.matrix.without_mean(V)

    def diagonal(self) -> Array:
        return self.matrix.xp.linalg.diagonal(self.to_dense())

    def columns(self, indices: Any) -> Array:
        return self @ from_host(np.equal.outer(np.arange(self.shape[0]), np.asarray(indices)), self.like)

    def to_dense(self) -> Array:
        return cast(self.matrix.gram() if self.of_samples else self.matrix.scatter(), self.dtype)
