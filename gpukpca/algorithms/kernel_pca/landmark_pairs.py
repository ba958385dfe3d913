"""The eigenpairs of a Nyström factor, from the sums over its rows, and the fit that follows from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpukpca.algorithms.kernel_pca.landmark_basis import LandmarkBasis
from gpukpca.algorithms.kernel_pca.landmark_model import Approximation, finished_fit
from gpukpca.algorithms.kernel_pca.landmark_sums import FactorSums
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.sampled_error import measured_norm
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.plan import Plan
from gpukpca.backend.linalg import leading_ritz_pairs, reciprocals
from gpukpca.backend.namespace import dtype_name, epsilon, from_host, full, to_host
from gpukpca.backend.orthogonalization import orthonormal_columns
from gpukpca.eigen import EigenResult
from gpukpca.eigen.residuals import NULL_FACTOR, default_tolerance, signs
from gpukpca.eigen.result import without_rounding


def fit_of_sums(
    task: FitTask, plan: Plan, basis: LandmarkBasis, sums: FactorSums, second: Any = None, before: Any = None
) -> KernelPCAFit:
    """Return the fit of the rows that were added up; `second` multiplies their centered features by a small matrix.

    Components have the signs of those `before`, of the same basis.
    """
    solver: Any = plan.solver
    measured = measured_norm(task, basis, sums, solver)
    sums = replace(sums, slots=None) if task.kernel.stored_only else sums  # numbers of rows, which the norm is known of
    found = Approximation(basis, sums, *sums.about_mean(task.settings.center), measured)
    is_all = task.settings.n_components is None or task.settings.is_share
    count = min(max(1, len(found.mean)) if is_all else int(task.settings.n_components or 0), plan.n_samples)
    task = replace(task, basis=basis.rows) if task.is_on_cluster else task
    eigen, axes = _eigenpairs(found, count, solver.tol)
    if before is not None:
        axes *= _signs_of(before, sums.pivot_factor, axes)
    if second is not None:
        roots = reciprocals(np.sqrt(to_host(eigen.eigenvalues).astype(np.float64)))[None, :]
        U = second(found.mean, axes * roots * roots)  # whose square may overflow
        sign = signs(U)
        U = orthonormal_columns(U if task.frequencies is None else task.frequencies.rooted(U))
        U, axes = U * sign[None, :], axes * to_host(sign).astype(np.float64)
        eigen = replace(eigen, eigenvectors=U, products=U * eigen.eigenvalues[None, :])
    fit = finished_fit(task, plan, found, eigen, axes)
    return fit if second is not None else replace(fit, eigenvectors=None, scores=None)


def _signs_of(before: Any, L: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Return +1 or -1 for every column of axes (k, p), such that none is opposite to that of an earlier map."""
    A = to_host(before.projection)[: len(L)].astype(np.float64)
    kept = min(int(A.shape[1]), int(axes.shape[1]))
    opposite = np.sum((L.T @ A[:, :kept]) * axes[:, :kept], axis=0) < 0.0
    return np.pad(np.where(opposite, -1.0, 1.0), (0, axes.shape[1] - kept), constant_values=1.0)


def _eigenpairs(found: Approximation, count: int, tol: float) -> tuple[EigenResult, np.ndarray]:
    """Return `count` eigenvalues of F Fᵀ with bounds on their residuals for K itself, without vectors U; and FᵀU."""
    like, k = found.like, len(found.mean)
    ritz, vectors = leading_ritz_pairs(found.scatter, min(count + 1, k), like)
    threshold = NULL_FACTOR * epsilon(like) * max(float(np.max(ritz, initial=0.0)), found.gram.noise_scale)
    values = np.pad(ritz, (0, count + 1 - len(ritz)))
    following = float(without_rounding(values[count:], threshold)[0][0])
    values, dropped = without_rounding(values[:count], threshold)
    axes = np.zeros((k, count))
    axes[:, : min(count, len(ritz))] = vectors[:, :count]
    axes *= np.sqrt(np.maximum(values, 0.0))
    axes *= signs(axes.astype(dtype_name(like.dtype))).astype(np.float64) if k else 1.0
    eigenvalues, norms = from_host(values, like), from_host(np.full(count, found.bound), like)
    largest, tolerance = float(np.max(to_host(eigenvalues), initial=0.0)), tol or default_tolerance(like.dtype)
    converged = to_host(norms).astype(np.float64) <= tolerance * largest
    what = "certificate" if found.norm is None else "bound"
    why = f"; not converged: the {what} {found.bound:.1e} is above tol = {tolerance:.0e} of {largest:.3g}"
    why = f"{found.sums.drift or ''}{'' if np.all(converged) else why}"
    none = full((0, count), 0.0, like)
    eigen = EigenResult(
        eigenvalues=eigenvalues,
        eigenvectors=none,
        products=none,
        residual_norms=norms,
        converged=converged,
        tolerance=tolerance,
        next_eigenvalue=following,
        dropped=dropped,
        rounding=found.rounding,
        null_threshold=threshold,
        n_passes=0,
        n_products=found.basis.n_columns,
        solver=f"Nyström (rank {k}, stopped: {found.sums.stopped}{why})",
        smallest_seen=0.0,
    )
    return eigen, axes
