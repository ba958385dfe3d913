"""From scores back to data: exact for the linear kernel, a ridge regression for the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.linalg import add_to_diagonal, solve_positive_definite
from gpukpca.backend.namespace import cast, namespace_of
from gpukpca.backend.rows import feature_means
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import gram_matrix, kernel_matmat
from gpukpca.kernels import Kernel


@dataclass(frozen=True)
class LinearPreimage:
    """x = mean + z Vᵀ, the reconstruction of PCA.

    Attributes
    ----------
    components : array, shape (p, d)
    mean : array, shape (d,)
    """

    components: Array
    mean: Array

    @classmethod
    def fitted(cls, X: Array, projection: Array) -> LinearPreimage:
        """Axes V = Xcᵀ A with the projection A = U λ^(-1/2)."""
        xp = namespace_of(X)
        mean = feature_means(X)
        centred = cast(cast(X, mean.dtype) - mean[None, :], X.dtype)
        return cls(xp.matrix_transpose(projection) @ centred, cast(mean, X.dtype))

    def __call__(self, Z: Array) -> Array:
        return Z @ self.components + self.mean[None, :]


@dataclass(frozen=True)
class RidgePreimage:
    """Kernel ridge regression of the data on the scores (Bakır, Weston & Schölkopf 2004).

    Attributes
    ----------
    kernel : Kernel
        Between scores.
    scores : array, shape (n, p)
    dual_coef : array, shape (n, d)
        (K(Z, Z) + alpha I)⁻¹ X.
    """

    kernel: Kernel
    scores: Array
    dual_coef: Array
    n_jobs: int | None = None

    @classmethod
    def fitted(cls, X: Array, scores: Array, kernel: Kernel, alpha: float, n_jobs: int | None) -> RidgePreimage:
        """Solve once; O(n³/3 + n² d), memory one n × n matrix."""
        xp = namespace_of(X)
        K = gram_matrix(kernel, scores, n_jobs=n_jobs)
        K = add_to_diagonal(K, alpha)
        try:
            dual_coef = solve_positive_definite(K, X)
        except np.linalg.LinAlgError as error:
            raise _not_solvable(alpha) from error
        if not bool(xp.all(xp.isfinite(dual_coef))):
            raise _not_solvable(alpha)
        return cls(kernel, scores, dual_coef, n_jobs)

    def __call__(self, Z: Array) -> Array:
        return kernel_matmat(self.kernel, Z, self.scores, self.dual_coef, n_jobs=self.n_jobs)


def _not_solvable(alpha: float) -> InvalidParameterError:
    return InvalidParameterError(
        f"the pre-image cannot be learned: the kernel matrix of the scores plus alpha={alpha!r} is not positive "
        "definite. Use a larger alpha."
    )
