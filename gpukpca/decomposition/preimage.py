"""From scores back to data: exact for the linear kernel, a ridge regression for the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.linalg import add_to_diagonal, solve_positive_definite
from gpukpca.backend.namespace import cast, namespace_of
from gpukpca.backend.rows import by_panels, feature_means, row_panels
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import gram_matrix, kernel_matmat
from gpukpca.kernels import Kernel


@dataclass(frozen=True)
class LinearPreimage:
    """x = mean + z Vᵀ, the reconstruction of PCA.

    Attributes
    ----------
    components : array, shape (p, d)
    mean, wide_mean : array, shape (d,)
        In the dtype of X, and in the widest.
    """

    components: Array
    mean: Array
    wide_mean: Array

    @classmethod
    def fitted(cls, X: Array, projection: Array) -> LinearPreimage:
        """Axes V = Xcᵀ A with the projection A = U λ^(-1/2)."""
        xp = namespace_of(X)
        mean = feature_means(X)
        components: Array = None
        for start, stop in row_panels(X):
            centred = cast(cast(X[start:stop, :], mean.dtype) - mean[None, :], X.dtype)
            part = xp.matrix_transpose(projection[start:stop, :]) @ centred
            components = part if components is None else components + part
        return cls(components, cast(mean, X.dtype), mean)

    def __call__(self, Z: Array) -> Array:
        return Z @ self.components + self.mean[None, :]

    def scores(self, Y: Array) -> Array:
        """The scores of new rows: (y - mean) V, a panel at a time; d products a row, not n."""
        axes = namespace_of(self.components).matrix_transpose(self.components)
        wide = self.wide_mean

        def panel(rows: Array, *_: int) -> Array:
            return cast(cast(rows, wide.dtype) - wide[None, :], axes.dtype) @ axes

        return by_panels(Y, panel)


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
