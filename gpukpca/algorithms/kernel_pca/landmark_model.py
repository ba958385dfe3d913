"""The fit result of an approximation by landmarks, from the sums over its factor."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.feature_space import AffineProjection
from gpukpca.algorithms.kernel_pca.landmark_basis import LandmarkBasis
from gpukpca.algorithms.kernel_pca.landmark_sums import FactorSums
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings
from gpukpca.algorithms.kernel_pca.spectrum import (
    Spectrum,
    check_underflow,
    has_equal_shares,
    is_unresolved,
    warn_of_dropped,
    warn_of_gap,
    warn_of_identity,
    warn_of_rank,
    warn_of_rounding,
)
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.slots import NormBound
from gpukpca.backend.linalg import reciprocals, solve_triangular
from gpukpca.backend.namespace import accumulation_dtype, dtype_name, from_host, full, to_host
from gpukpca.eigen import EigenResult
from gpukpca.eigen.partial_cholesky import NOISE
from gpukpca.exceptions import ConvergenceWarning, InvalidParameterError, PrecisionWarning, warn_user
from gpukpca.gram.low_rank import LowRankGram

# Landmarks whose columns show whether K is near the identity.
SEEN_LANDMARKS = 200


@dataclass(frozen=True)
class Approximation:
    """K ≈ F Fᵀ by landmarks, known by the sums over the rows of F.

    Attributes
    ----------
    basis : LandmarkBasis
    sums : FactorSums
    mean : array, shape (k,)
        That of the rows of F; 0 without centering.
    scatter : array, shape (k, k)
        FᵀF about the mean.
    norm : NormBound, optional
        On the norm of K - F Fᵀ without rounding, where the tolerance is compared with it.
    """

    basis: LandmarkBasis
    sums: FactorSums
    mean: np.ndarray
    scatter: np.ndarray
    norm: NormBound | None = None

    @property
    def like(self) -> Array:
        """Return an array (0,) in the place and the type of K."""
        return self.basis.features.like

    @property
    def rounding(self) -> float:
        """Return the allowance for rounding, in the units of the trace."""
        return self.basis.features.rounding * self.sums.sizes + self.sums.count * NOISE * self.sums.noise

    @property
    def certificate(self) -> float:
        """Return the bound of `PivotedCholesky.certificate`."""
        return max(self.sums.residual, 0.0) + self.rounding

    @property
    def bound(self) -> float:
        """Return what every eigenvalue may be too small by: the certificate, or the bound on the norm."""
        norm = math.inf if self.norm is None or self.norm.value is None else self.norm.value
        return min(self.certificate, norm + self.rounding)

    @cached_property
    def gram(self) -> LowRankGram:
        """Return F Fᵀ without its rows, with the size of the numbers that cancel where rows are centered."""
        apart = self.sums.sums / self.sums.count  # the mean less the shift
        cancelled = self.sums.sizes - self.sums.trace + self.sums.count * float(self.mean @ self.mean + apart @ apart)
        return LowRankGram(full((0, len(self.mean)), 0.0, self.like), cancelled)


def finished_fit(task: FitTask, plan: Plan, found: Approximation, eigen: EigenResult, axes: np.ndarray) -> KernelPCAFit:
    """Return the fit of an approximation by landmarks, and warn of what it shows.

    With F = K(X, S) L⁻ᵀ, S the landmarks and K(S, S) = L Lᵀ, a point x has the features f(x) = L⁻¹ k(S, x). Their PCA
    with axes V = FᵀU of the eigenpairs λ, U gives A = L⁻ᵀ V λ^(-1/2) and b = mean(f) V λ^(-1/2). Projected onto the
    span of the landmarks, the mean is Σ c_j φ(s_j) with c = L⁻ᵀ mean(f), and its squared norm is ‖mean(f)‖². Without
    eigenvectors those of `eigen` have no rows.
    """
    settings, sums, like, n = task.settings, found.sums, found.like, found.sums.count
    values = np.maximum(to_host(eigen.eigenvalues).astype(np.float64), 0.0)
    spectrum, interval = _total(found, values)
    scale = reciprocals(np.sqrt(values))
    A, b, c, mean_norm = _host_map(found, axes * scale[None, :])
    scores = eigen.products * from_host(scale, like)[None, :]
    if task.frequencies is not None and scores.shape[0]:
        scores = task.frequencies.unrooted(scores)
    # λ_p >= θ_p - rounding and λ_{p+1} <= θ_{p+1} + bound, so that the gap is a lower bound.
    certified = replace(eigen, next_eigenvalue=(eigen.next_eigenvalue or 0.0) + (found.bound + found.rounding))
    fit = KernelPCAFit.of_eigenpairs(
        task.kernel,
        plan,
        certified,
        spectrum,
        scores=scores,
        map=AffineProjection(
            basis=found.basis.rows,
            projection=from_host(A, like),
            offset=from_host(b, like),
            mean_weights=from_host(c, like, accumulation_dtype(like)),
            mean_norm=mean_norm,
            template=task.empty_template,
            rows=found.basis.features.rows,
            center=settings.center,
        ),
        n_jobs=task.resources.n_jobs,
        # Eigenvalues that count as rounding are lost by both rules: set to 0, or left out.
        certificate=found.certificate + (eigen.dropped + float(np.sum(spectrum.eigenvalues[task.n_kept(spectrum) :]))),
        total_interval=interval,
        stream=sums,
        measured=found.norm,
    )
    check_underflow(task.basis, task.kernel, np.max(values, initial=0.0))
    keep = _certain_components(settings, spectrum) if settings.is_share else task.n_kept(spectrum)
    fit = replace(fit.leading(keep), plan=replace(plan, n_components=keep))
    is_far = not sums.relative and _warn_of_far_landmarks(task, sums)
    # One row has no variance.
    if n > 1 and not is_far and is_unresolved(values, eigen, found.gram) and not task.is_constant():
        warn_of_rounding(values, eigen, found.gram)
    warn_of_dropped(eigen, spectrum)
    _warn_of_bound(fit, found, plan.solver)
    if not is_far:
        warn_of_rank(fit.spectrum, keep, n, "the approximation")
    is_poor = is_far or (
        not sums.relative
        and has_equal_shares(task.kernel, n, spectrum)
        and warn_of_identity(task.kernel, n, lambda: sums.trace, _suggested_spectrum(found), task.basis)
    )
    if not is_poor and not settings.drops_zeros:
        warn_of_gap(eigen.truncated(keep), keep, max(0.0, sums.residual))
    return fit


def _host_map(found: Approximation, axes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return A = L⁻ᵀ V, b = mean(f) V, c = L⁻ᵀ mean(f) and ‖Σ c_j φ(s_j)‖² on the host, for axes V (r, p).

    Relative to a base point x₀, the last row of the basis, k'(x, s) = k(x, s) - k(x, x₀) - k(x₀, s) + k(x₀, x₀). In
    terms of k itself A gets a row -1ᵀA, and b the constant terms. The mean is φ(x₀) + Σ c_j (φ(s_j) - φ(x₀)).
    """
    L, mean = found.sums.pivot_factor, found.mean
    A, b = solve_triangular(L, axes, transposed=True), mean @ axes
    c = solve_triangular(L, mean[:, None], transposed=True)[:, 0]
    mean_norm = float(mean @ mean)
    if found.sums.relative:
        features = found.basis.features
        last = features.rows.slice(len(L), len(L) + 1)
        itself = float(to_host(features.kernel.tile_diagonal(last))[0])
        above = to_host(features.base_column)[:-1].astype(np.float64) - itself
        b, mean_norm = b + above @ A, mean_norm + itself + 2.0 * float(above @ c)
        A, c = np.concatenate([A, -A.sum(axis=0, keepdims=True)]), np.append(c, 1.0 - c.sum())
    elif not len(L):  # K is zero, and so are the scores; a basis needs a row
        A, c = np.zeros((1, A.shape[1])), np.zeros(1)
    return A, b, c, mean_norm


def _total(found: Approximation, values: np.ndarray) -> tuple[Spectrum, tuple[float, float]]:
    """Return the eigenvalues with the total variance, and an interval that contains it.

    The total exceeds that of F by at most the residual trace. The upper end is reported: shares of the variance are
    then not too large, and it is the better estimate, as the rest has hardly any mean.
    """
    sums = found.sums
    held = sums.trace - sums.residual - sums.count * float(found.mean @ found.mean)
    low = max(0.0, held - found.rounding)
    high = max(held + found.certificate, float(np.sum(values)))
    nothing = float(np.max(values, initial=0.0)) == 0.0 and sums.residual <= found.rounding
    return Spectrum(values, 0.0 if nothing else high, dtype_name(found.like.dtype)), (low, high)


def _suggested_spectrum(found: Approximation) -> Spectrum:
    """Return the largest eigenvalue and the total variance that the columns of the first landmarks suggest.

    Of a matrix near the identity the landmarks explain themselves alone, so the first eigenvalue and the mean of F Fᵀ
    are too small. With B = K - diag(K), σ the largest singular value of H B(:, S) and r random landmarks, λ₁ of K is
    about k(s, s) + σ √(n/r). Centering takes 1ᵀK1/n from the trace, n times the mean of K(:, S). F is centered here.
    """
    n, r = found.sums.count, min(len(found.mean), SEEN_LANDMARKS)
    L = found.sums.pivot_factor[:r, :r]
    inside, means = L @ L.T, L @ found.mean[:r]  # K(S, S), and the mean of each column
    sizes = np.diag(inside)
    crossed = (inside - means[:, None]) * sizes[None, :]
    squares = L @ found.scatter[:r, :r] @ L.T - crossed - crossed.T
    squares += np.diag(sizes**2) - np.outer(sizes, sizes) / n
    sigma = math.sqrt(max(0.0, float(np.linalg.eigvalsh(squares)[-1])))
    largest = float(np.max(sizes)) + sigma * math.sqrt(n / r)
    return Spectrum(np.array([largest]), found.sums.trace - n * float(np.mean(means)), dtype_name(found.like.dtype))


def _warn_of_bound(fit: KernelPCAFit, found: Approximation, solver: Any) -> None:
    """Warn where the bound on the errors exceeds the tolerance."""
    largest = float(np.max(fit.spectrum.eigenvalues, initial=0.0))
    if not solver.tol or fit.certificate is None or found.bound <= solver.tol * largest:
        return
    why, remedy = "the rank was spent before the tolerance was met", "a larger rank, or a larger tol"
    if found.sums.stopped == "tolerance":
        why = "the landmarks meet the tolerance among the rows that they were chosen from, and not among all"
        remedy = "a larger tol, or a larger rank, which samples more rows"
    if found.rounding > solver.tol * largest:
        why, remedy = "the kernel's rounding exceeds the tolerance", "a larger tol"
    which, name = "all eigenvalues together", "certificate"
    if solver.bound == "norm":
        which, name, remedy = "each eigenvalue", "norm_bound", f"{remedy}, or more rows for the bound, bound_rows"
    warn_user(
        f"{why}: {which} may be too small by up to {name}_. Allow {remedy}.",
        ConvergenceWarning,
        **{name: found.bound},
        largest=largest,
        tol=solver.tol,
    )


def _warn_of_far_landmarks(task: FitTask, sums: FactorSums) -> bool:
    """Warn where landmarks explain less of K than half of one of its rows, and return whether.

    A landmark that is a row explains that row.
    """
    n, explained = sums.count, sums.trace - sums.residual
    if task.frequencies is not None or not task.kernel.depends_on_distance or n * explained >= 0.5 * sums.trace:
        return False
    warn_user(
        "the landmarks are far from all rows for this gamma: they explain less of K than one row would. Give landmarks "
        "in the units of the rows, or leave them to the fit.",
        PrecisionWarning,
        explained=explained,
        trace=sums.trace,
    )
    return True


def _certain_components(settings: KernelPCASettings, spectrum: Spectrum) -> int:
    """Return how many components certainly hold a share of the variance; raise where not even all of them do."""
    if (enough := spectrum.count_of_share(settings.share)) is None:
        raise InvalidParameterError(
            f"n_components={settings.share}: the approximation is known to hold {float(np.sum(spectrum.ratios)):.4f} "
            "of the variance. Allow a larger rank, Nystrom(rank=...), or use an exact solver."
        )
    return enough
