"""Kernel ridge regression of the data on the scores: by all rows, or by landmarks among the scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from gpukpca._rules import is_integer
from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.kernel_pca.feature_space import FeatureSpace
from gpukpca.algorithms.kernel_pca.settings import PreimageMethod
from gpukpca.algorithms.preimage.linear import LinearPreimage
from gpukpca.algorithms.preimage.result import Preimage, PreimageInfo, Preimages
from gpukpca.backend import blocking
from gpukpca.backend.linalg import (
    add_to_diagonal,
    inner_products,
    solve_positive_definite,
    solve_triangular,
)
from gpukpca.backend.namespace import cast, epsilon, from_host, namespace_of, overflow_allowed, to_host
from gpukpca.backend.work import Work
from gpukpca.data.slicing import gather_rows, row_panels, shifted_rows
from gpukpca.data.statistics import feature_means, row_square_sums
from gpukpca.eigen import pivoted_cholesky
from gpukpca.exceptions import InvalidParameterError, PrecisionWarning, warn_user
from gpukpca.gram import TiledGram
from gpukpca.gram.product import prepared_matmat, upper_triangle
from gpukpca.kernels import Kernel
from gpukpca.kernels.prepared import PreparedRows

# Rows up to which the ridge of "auto" uses all of them; the landmarks it uses beyond, and at most what share of rows.
ALL_ROWS_UP_TO = 10_000
AUTO_LANDMARKS = 2000
ROWS_A_LANDMARK = 5


@record()
class RidgeRule:
    """The options of a ridge regression: see `RidgePreimage`. The gamma of the kernel may be a rule."""

    kernel: Kernel = field_of("", "Between scores.")
    alpha: float = field_of("", "Added to the diagonal of the kernel matrix of the scores.", "nonnegative")
    centered: bool = field_of("", "Whether the data are regressed less their mean.")
    landmarks: int = field_of("", "0: all rows.", "nonnegative")
    n_jobs: int | None = field_of("", "Threads.", default=None)


@record()
class RidgeRegression(Preimage):
    """x = mean + k(z, knots) C."""

    rule: RidgeRule = field_of("", "Its options.")
    X: Array = field_of("n d", "Kept for regressions on fewer components.")
    scores: Array = field_of("n p", "Of the training rows.")
    kernel: Kernel = field_of("", "Between scores, with numbers in place of rules.")
    knots: Array = field_of("r p", "The scores, or the landmarks among them.")
    dual_coef: Array = field_of("r d", "C.")
    mean: Array | None = field_of("d", "None where the data were not centered.")

    @classmethod
    def learn(cls, X: Array, scores: Array, rule: RidgeRule) -> RidgeRegression:
        """Return the regression. Cost: n³/3 + n² d and one n × n matrix; with r landmarks n r (r + d) and n r items."""
        kernel = rule.kernel.resolve(scores)
        mean = feature_means(X) if rule.centered else None
        solve = _by_landmarks if rule.landmarks else _by_all
        try:
            knots, dual_coef, left = solve(X, scores, kernel, mean, rule)
        except np.linalg.LinAlgError as error:
            raise _not_solvable(rule.alpha, kernel, scores) from error
        if not bool(namespace_of(dual_coef).all(namespace_of(dual_coef).isfinite(dual_coef))):
            raise _not_solvable(rule.alpha, kernel, scores)
        _warn_of_distance(X, left, kernel)
        return cls(rule, X, scores, kernel, knots, dual_coef, mean)

    def __call__(self, Z: Array, start: Array | None = None) -> Preimages:
        """Return the points of scores Z (m, p), with as many columns as the scores; see `of_first`."""
        points = prepared_matmat(self.kernel, Z, self.knots, self._rows, self.dual_coef, n_jobs=self.rule.n_jobs)
        if self.mean is not None:
            points = cast(cast(points, self.mean.dtype) + self.mean[None, :], points.dtype)
        return points, PreimageInfo.direct(int(Z.shape[0]))

    @cached_property
    def _rows(self) -> PreparedRows:
        """Return the prepared knots."""
        return self.kernel.prepare(self.knots)

    def of_first(self, count: int) -> RidgeRegression:
        """Return the regression on the first `count` scores, solved again where these are not all."""
        if count == self.scores.shape[1]:
            return self
        xp = namespace_of(self.scores)
        return RidgeRegression.learn(self.X, xp.asarray(self.scores[:, :count], copy=True), self.rule)


@dataclass(frozen=True)
class RidgeMethod(PreimageMethod):
    """The regression with the options of `RidgePreimage`; the gamma of the kernel between scores may be a rule."""

    options = "RidgePreimage"
    kernel: Kernel | None
    alpha: float
    centered: bool
    n_landmarks: int | Literal["auto"] | None

    def landmarks_for(self, n: int, fits: bool) -> int:
        if self.n_landmarks is None:
            return 0
        if is_integer(self.n_landmarks):
            return min(int(self.n_landmarks), n)
        return 0 if fits and n <= ALL_ROWS_UP_TO else min(AUTO_LANDMARKS, max(1, n // ROWS_A_LANDMARK))

    def peak_bytes(self, n: int, basis: int, d: int, p: int, item: int, on_gpu: bool, landmarks: int) -> int:
        """Return the bytes that the fit allocates: the matrix of the scores, or its factor, and arrays like X."""
        # cuSOLVER factors a copy. The data, their prepared rows, the centered ones and the solution; panels in float64.
        columns = landmarks or (2 if on_gpu else 1) * n
        panel = (2 * 8 + item) * min(n * d, blocking.PANEL_ENTRIES.on(on_gpu))
        inner = min(n, blocking.GPU_INNER_PANEL if on_gpu else 2 * blocking.INNER_PANEL) * (item < 8)
        return n * (columns + 4 * d + 8 * p + 4) * item + 8 * landmarks * (4 * landmarks + 3 * d + inner) + panel

    def fit_work(self, n: int, d: int, p: int, landmarks: int) -> Work:
        if landmarks:
            # r columns of K from p scores, their products with X, and n r² for the factor and its square.
            return Work(products=2 * n * landmarks * (p + d) + 4 * n * landmarks**2, functions=n * landmarks)
        # Half of the symmetric matrix of scores, its Cholesky factor, and two triangular solves for d columns.
        return Work(products=n * n * p + n**3 / 3 + 2 * n * n * d, functions=n * n / 2)

    def learn(self, X: Array, space: FeatureSpace, scores: Array, landmarks: int) -> RidgeRegression | LinearPreimage:
        """Return the regression of X on the scores (n, p); on no scores every point is the mean."""
        if not scores.shape[1]:
            return LinearPreimage.of_rows(X, scores)
        kernel: Any = self.kernel
        return RidgeRegression.learn(X, scores, RidgeRule(kernel, self.alpha, self.centered, landmarks, space.n_jobs))


# The knots, the coefficients, and the sum of squares that the regression leaves of the training rows.
Solution = tuple[Array, Array, float]


def _by_all(X: Array, scores: Array, kernel: Kernel, mean: Array | None, rule: RidgeRule) -> Solution:
    """Return the scores and C = (K(Z, Z) + alpha I)⁻¹ (X - mean), which leaves alpha C."""
    K = add_to_diagonal(upper_triangle(kernel, scores, n_jobs=rule.n_jobs), rule.alpha)
    targets = X if mean is None else shifted_rows(X, mean, 1.0, X.dtype)
    C = solve_positive_definite(K, targets)
    return scores, C, rule.alpha**2 * _squares(C)


def _by_landmarks(X: Array, scores: Array, kernel: Kernel, mean: Array | None, rule: RidgeRule) -> Solution:
    """Return landmarks S and coefficients for K ≈ F Fᵀ: L⁻ᵀ W, W = (FᵀF + alpha I)⁻¹ Fᵀ(X - mean), f = L⁻¹ k(S, z).

    ‖X - mean - F W‖² is ‖X - mean‖² - tr WᵀFᵀ(X - mean) - alpha ‖W‖².
    """
    op = TiledGram(kernel, scores, cached_tiles=0, n_jobs=rule.n_jobs)
    # A fixed generator gives the same landmarks in every fit.
    factor = pivoted_cholesky(op, rule.landmarks, 0)
    F = factor.F
    products, left = np.zeros((factor.rank, int(X.shape[1]))), 0.0
    for start, stop in row_panels(X):
        rows = X[start:stop, :] if mean is None else shifted_rows(X[start:stop, :], mean, 1.0, X.dtype)
        products += inner_products(F[start:stop, :], rows)
        left += _squares(rows)
    W = solve_positive_definite(add_to_diagonal(inner_products(F, F), rule.alpha), products)
    dual_coef = solve_triangular(factor.pivot_factor, W, transposed=True)
    left -= float(np.sum(W * (products + rule.alpha * W)))
    return gather_rows(scores, factor.pivots), from_host(dual_coef, X), left


def _squares(rows: Array) -> float:
    """Return the sum of squares of all entries; infinity where they overflow."""
    with overflow_allowed():
        return float(np.sum(to_host(row_square_sums(rows)).astype(np.float64)))


def _warn_of_distance(X: Array, left: float, kernel: Kernel) -> None:
    """Warn where a regression leaves more of the training rows than their mean does; `left` is a sum of squares."""
    mean = feature_means(X)
    spread = sum(_squares(shifted_rows(X[a:b, :], mean, 1.0, mean.dtype)) for a, b in row_panels(X))
    if spread * (1.0 + X.shape[0] * epsilon(X)) < left < math.inf:
        warn_user(
            f"inverse_transform is worse than the mean of the data: the ridge regression on the scores by "
            f'{type(kernel).__name__} leaves more of the training rows than their mean does. Pass preimage="ridge", '
            "which regresses by RBF about the mean, or subtract the means first, or choose a smaller alpha.",
            PrecisionWarning,
            left=left / X.shape[0],
            variance=spread / X.shape[0],
        )


def _not_solvable(alpha: float, kernel: Kernel, scores: Array) -> InvalidParameterError:
    largest = float(namespace_of(scores).max(kernel.diagonal(scores)))
    advice = "Use a larger alpha."
    if not largest * epsilon(scores) * int(scores.shape[0]) < 1.0:
        advice = f"Its entries reach {largest:.1g}: use a smaller gamma, or multiply the data by a constant above 1."
    return InvalidParameterError(
        f"the pre-image cannot be learned: the kernel matrix of the scores plus alpha={alpha!r} is not positive "
        f"definite. {advice}"
    )
