"""What a fit leaves: eigenpairs, scores, and the affine map of new points; from an operator, or from landmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.spectrum import UNRESOLVED, Spectrum
from gpukpca.backend.elementwise import add
from gpukpca.backend.linalg import column_sums, inner_products, reciprocals, solve_triangular
from gpukpca.backend.namespace import accumulation_dtype, cast, dtype_name, from_host, full, to_host
from gpukpca.backend.random import random_subset
from gpukpca.backend.rows import gather_rows
from gpukpca.eigen import EigenResult, LowRank, Nystrom, PivotedCholesky
from gpukpca.eigen.residuals import default_tolerance
from gpukpca.exceptions import ConvergenceWarning, PrecisionWarning, RankWarning, warn_user
from gpukpca.gram import BasePointGram, CenteredGram, FactoredGram
from gpukpca.gram.storage import GramOperator
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import PreparedRows

ANCHOR_CANDIDATES = 32


@dataclass(frozen=True)
class Model:
    """A fitted kernel PCA: scores(x) = k(x, basis) A - b.

    Attributes
    ----------
    eigen : EigenResult
    spectrum : Spectrum
        Checked eigenvalues, as many as `eigen` has, and the total variance.
    scores : array, shape (n, p)
    projection : array, shape (m, p)
        A.
    offset : array, shape (p,)
        b.
    mean_weights : array, shape (m,)
        c: Σ c_j φ(basis_j) is the mean of the features, or of their projections onto those of the landmarks. In the
        widest floating type.
    mean_norm : float
        The squared norm of that mean, as the tiles of the prepared basis have it.
    basis : array or CSR matrix, shape (m, d)
        The training rows, or the landmarks.
    rows : Rows or None
        The basis made ready, where it is at hand.
    template : Rows or None
        What the kernel learned from the training set.
    landmarks : host array of int, or None
        Which training rows the basis consists of, if not of all.
    certificate : float or None
        Bound on what every eigenvalue may be too small by; None where residuals bound the error.
    total_interval : (float, float)
        Between these lies the total variance.
    """

    eigen: EigenResult
    spectrum: Spectrum
    scores: Array
    projection: Array
    offset: Array
    mean_weights: Array
    mean_norm: float
    basis: Any
    rows: PreparedRows | None
    template: PreparedRows | None = None
    landmarks: np.ndarray | None = None
    certificate: float | None = None
    total_interval: tuple[float, float] | None = None

    def bounds(self, degrees: int) -> dict[str, Any]:
        """Return the attributes that only an approximation has, for variances with so many degrees of freedom."""
        if self.certificate is None:
            return {}
        low, high = self.total_interval or (self.spectrum.total_variance, self.spectrum.total_variance)
        bounds = {"certificate_": self.certificate, "total_variance_interval_": (low / degrees, high / degrees)}
        return bounds if self.landmarks is None else bounds | {"landmarks_": self.landmarks}

    def truncated(self, keep: int) -> Model:
        """The model with the first `keep` components only."""
        return replace(
            self,
            eigen=self.eigen.truncated(keep),
            spectrum=self.spectrum.truncated(keep),
            scores=self.scores[:, :keep],
            projection=self.projection[:, :keep],
            offset=self.offset[:keep],
        )


def inverse_roots(values: np.ndarray) -> np.ndarray:
    """Return 1 / sqrt(value), 0 where the value is 0."""
    return reciprocals(np.sqrt(values))


def exact_model(X: Any, op: CenteredGram, rows: PreparedRows | None, eigen: EigenResult, spectrum: Spectrum) -> Model:
    """The model whose basis is all training rows: A = U λ^(-1/2), b = mᵀA with the column means m of K."""
    scale = from_host(inverse_roots(spectrum.eigenvalues), op.like)[None, :]
    # LAPACK's vectors sum to zero up to rounding, which new points would multiply by the mean of K.
    projection = op.project(eigen.eigenvectors) * scale
    wide = accumulation_dtype(op.like)
    means = op.column_means
    offset = (means[None, :] @ cast(projection, wide))[0, :]
    n = op.shape[0]
    return Model(
        eigen,
        spectrum,
        eigen.products * scale,
        projection,
        cast(offset, op.dtype),
        mean_weights=full((n,), 1.0 / n, means),
        mean_norm=float(column_sums(means[:, None])[0]) / n,
        basis=X,
        rows=rows if rows is not None and rows.is_local else None,
    )


# -- Nyström -----------------------------------------------------------------------------------------------------------


def nystrom_model(
    X: Any, op: GramOperator, settings: Nystrom, p: int | None, rng: np.random.Generator, report: Any = None
) -> Model:
    """The model of K ≈ F Fᵀ whose basis is the landmarks, with p components, or as many as F has columns.

    With F = K(X, S) L⁻ᵀ, S the landmarks and K(S, S) = L Lᵀ, a point x has the features f(x) = L⁻¹ k(S, x). Their PCA
    with axes V gives A = L⁻ᵀ V and b = mean(f) V; the mean of what the features have in the span of the landmarks is
    Σ c_j φ(s_j) with c = L⁻ᵀ mean(f), and its squared norm ‖mean(f)‖².
    """
    rows = op.rows
    n = int(op.shape[0])
    anchored = BasePointGram(op, _central_row(op, rng)) if rows is not None and rows.shifted else None
    factor = settings.factor(anchored or op, p or 1, rng, report)
    F, means = factor.F, column_sums(factor.F) / n
    mean = to_host(means).astype(np.float64)
    F = add(F, -cast(means, F.dtype)[None, :])  # in place where the library can: F is as large as memory allows
    cancelled = factor.uncancelled_trace - factor.trace + n * float(mean @ mean)
    eigen = LowRank().solve(FactoredGram(F, cancelled), p or max(1, factor.rank), rng)
    values = np.maximum(to_host(eigen.eigenvalues).astype(np.float64), 0.0)
    spectrum, interval = _total(factor, mean, values)
    scale = inverse_roots(values)
    axes = inner_products(F, eigen.eigenvectors) * scale[None, :]
    A = solve_triangular(factor.pivot_factor, axes, transposed=True)
    b = mean @ axes
    c = solve_triangular(factor.pivot_factor, mean[:, None], transposed=True)[:, 0]
    affine = _AffineMap(A, b, c, float(mean @ mean), factor.pivots)
    if not len(factor.pivots):  # K is zero, and so are the scores; a basis wants a row
        affine = replace(affine, A=np.zeros((1, A.shape[1])), c=np.zeros(1), landmarks=np.zeros(1, dtype=np.int64))
    if anchored is not None:
        affine = affine.without_anchor(anchored)
    landmarks = affine.landmarks
    return Model(
        _certified(eigen, factor, settings.tol),
        spectrum,
        eigen.products * from_host(scale, op.like)[None, :],
        from_host(affine.A, op.like),
        from_host(affine.b, op.like),
        mean_weights=from_host(affine.c, op.like, accumulation_dtype(op.like)),
        mean_norm=affine.mean_norm,
        basis=gather_rows(X, landmarks),
        rows=None if rows is None else rows.take(landmarks),
        landmarks=landmarks,
        certificate=factor.certificate,
        total_interval=interval,
    )


def _central_row(op: Any, rng: np.random.Generator) -> int:
    """Of a few random rows the one most like all others: an anchor far from them would cost their digits."""
    candidates = random_subset(rng, op.shape[0], min(op.shape[0], ANCHOR_CANDIDATES))
    return int(candidates[int(np.argmax(to_host(column_sums(op.columns(candidates)))))])


def _total(factor: PivotedCholesky, means: np.ndarray, values: np.ndarray) -> tuple[Spectrum, tuple[float, float]]:
    """Eigenvalues with the total variance: at least that of F, at most as much more as the factor leaves.

    The upper end is reported, so that shares of the variance are not too large. It is also the better estimate: what
    is left has no mean to speak of.
    """
    n = factor.F.shape[0]
    held = factor.trace - factor.residual_trace - n * float(means @ means)
    low = max(0.0, held - factor.rounding)
    high = max(held + factor.certificate, float(np.sum(values)))
    nothing = float(np.max(values, initial=0.0)) == 0.0 and factor.residual_trace <= factor.rounding
    return Spectrum(values, 0.0 if nothing else high, dtype_name(factor.F.dtype)), (low, high)


def _certified(eigen: EigenResult, factor: PivotedCholesky, tol: float) -> EigenResult:
    """The result with bounds on the residuals of K itself in place of those of F Fᵀ."""
    norms = from_host(to_host(eigen.residual_norms).astype(np.float64) + factor.certificate, eigen.residual_norms)
    largest = float(np.max(to_host(eigen.eigenvalues), initial=0.0))
    tolerance = tol or default_tolerance(factor.F.dtype)
    converged = to_host(norms).astype(np.float64) <= tolerance * largest
    why = f"; not converged: the certificate {factor.certificate:.1e} is above tol = {tolerance:.0e} of {largest:.3g}"
    return replace(
        eigen,
        residual_norms=norms,
        converged=converged,
        tolerance=tolerance,
        rounding=factor.rounding,
        next_eigenvalue=None if eigen.next_eigenvalue is None else eigen.next_eigenvalue + factor.certificate,
        n_passes=0,
        n_products=factor.n_columns,
        solver=f"Nyström (rank {factor.rank}, stopped: {factor.stopped}{'' if np.all(converged) else why})",
    )


@dataclass(frozen=True)
class _AffineMap:
    """A, b and c of a model on landmarks, with the squared norm of the mean, on the host."""

    A: np.ndarray
    b: np.ndarray
    c: np.ndarray
    mean_norm: float
    landmarks: np.ndarray

    def without_anchor(self, anchored: BasePointGram) -> _AffineMap:
        """The same map in terms of k itself, with the anchor x₀ as one more landmark.

        k'(x, s) = k(x, s) - k(x, x₀) - k(x₀, s) + k(x₀, x₀), so A gets a row -1ᵀA, and b the constant terms. The mean
        is φ(x₀) + Σ c_j (φ(s_j) - φ(x₀)).
        """
        x0 = np.asarray([anchored.anchor])
        own = to_host(anchored.base.columns(x0))[:, 0].astype(np.float64)
        itself = float(own[anchored.anchor])
        above = own[self.landmarks] - itself
        return _AffineMap(
            np.concatenate([self.A, -self.A.sum(axis=0, keepdims=True)]),
            self.b + above @ self.A,
            np.append(self.c, 1.0 - self.c.sum()),
            self.mean_norm + itself + 2.0 * float(above @ self.c),
            np.concatenate([self.landmarks, x0]),
        )


def warn_of_certificate(model: Model, settings: Nystrom, is_constant: Callable[[], bool]) -> None:
    """Warn where rounding hides the components, the tolerance was not met, or there are fewer components than `p`.

    `is_constant` says whether all rows of the data are the same, which leaves nothing to resolve.
    """
    values = model.spectrum.eigenvalues
    largest = float(np.max(values, initial=0.0))
    if model.eigen.null_threshold > UNRESOLVED * largest and not is_constant():
        warn_user(
            f"{model.spectrum.dtype} cannot resolve these components: eigenvalues below "
            f"{model.eigen.null_threshold:.3g} are lost in the rounding of what centering cancels, and the largest is "
            f"{largest:.3g}. Subtract the feature means, or take a large, nearly constant term out of the kernel"
            f"{', or pass float64' if model.spectrum.dtype == 'float32' else ''}.",
            PrecisionWarning,
        )
    if settings.tol and model.certificate is not None and model.certificate > settings.tol * largest:
        why, remedy = "the rank was spent before the tolerance was met", "a larger rank, or a larger tol"
        if model.eigen.rounding > settings.tol * largest:
            why, remedy = "the kernel's rounding exceeds the tolerance", "a larger tol"
        warn_user(
            f"{why}: eigenvalues may be too small by up to {model.certificate:.3g}, and the largest is {largest:.3g} "
            f"(tol = {settings.tol:.0e}). Allow {remedy}.",
            ConvergenceWarning,
        )
    missing = int(np.sum(values <= 0))
    if missing:
        warn_user(
            f"only {len(values) - missing} of the {len(values)} components carry variance in an approximation of this "
            "rank. The others have eigenvalue 0 and zero scores.",
            RankWarning,
        )


class MapArrays:
    """The affine map of new points, scores(x) = k(x, basis) A - b, where it is computed.

    Attributes
    ----------
    basis : array or CSR matrix, shape (m, d)
    projection, offset : array, shape (m, p), (p,)
        A and b.
    mean_weights, mean_norm : array of shape (m,), float
        c with the mean Σ c_j φ(basis_j) in feature space, and the squared norm of that.
    template : Rows or None
        What the kernel learned from the training set.
    """

    def __init__(
        self,
        basis: Any,
        projection: Array,
        offset: Array,
        mean_weights: Array,
        mean_norm: float,
        template: PreparedRows | None = None,
        rows: PreparedRows | None = None,
    ) -> None:
        self.basis, self.projection, self.offset = basis, projection, offset
        self.mean_weights, self.mean_norm = mean_weights, mean_norm
        self.template, self._rows = template, rows

    @classmethod
    def of(cls, model: Model) -> MapArrays:
        """The map of a model just fitted, with its basis as it was made ready there."""
        return cls(
            model.basis,
            model.projection,
            model.offset,
            model.mean_weights,
            model.mean_norm,
            model.template,
            model.rows,
        )

    @property
    def like(self) -> Array:
        """A zero-size array where the map is computed."""
        return self.offset[:0]

    def prepared(self, kernel: Kernel) -> PreparedRows:
        """The basis made ready for the kernel, kept for speed, and made again where a pickle left it out.

        With landmarks for a basis, mean and flatness cannot be learned again from what the model holds: they are kept.
        """
        if self._rows is None:
            self._rows = kernel.prepare(self.basis, like=self.template, centered=True)
        return self._rows

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_rows": None}
