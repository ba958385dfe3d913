"""Warnings about a solver: residuals, tolerances, and solvers of a device that failed."""

from __future__ import annotations

import numpy as np

from gpukpca.backend.namespace import dtype_name, epsilon, to_host
from gpukpca.eigen import EigenResult
from gpukpca.eigen.residuals import default_tolerance, resolved_share
from gpukpca.exceptions import ConvergenceError, ConvergenceWarning, DeviceFallbackWarning, PrecisionWarning, warn_user

# Advice of PCA and kernel PCA where columns seem to have different units, and what standardizes them in Python.
OF_UNITS = "Standardize columns of different units, with {}, or --scale in the shell."
# With every residual above this share of the largest eigenvalue, nothing was found.
USELESS_RESIDUAL = 0.1
# A fit without a tolerance promises the default one, or so many eps: kernel matrices lose as much in float32, where the
# default, 1e-5, is 84 eps.
ORDINARY_ROUNDING = 1e4


def warn_of_fallbacks(eigen: EigenResult) -> None:
    """Warn where the solver of a device failed and another one took its place."""
    if eigen.fallbacks:
        warn_user(
            "the eigensolver of the device failed, and another one took its place: fallbacks_ has the reasons, and "
            "solver_ names what computed the components.",
            DeviceFallbackWarning,
            n=int(eigen.eigenvectors.shape[0]),
            fallbacks=list(eigen.fallbacks),
            solver=eigen.solver,
        )


def warn_of_tolerance(eigen: EigenResult, tol: float, noise_scale: float = 0.0) -> None:
    """Warn where rounding keeps residuals above a tolerance: `tol`, or where it is 0, what a fit without one promises.

    `noise_scale` is the size that centering cancels.
    """
    dtype = dtype_name(eigen.eigenvalues.dtype)
    largest = float(to_host(eigen.eigenvalues).max(initial=0.0))
    promised = tol or max(default_tolerance(dtype), ORDINARY_ROUNDING * epsilon(eigen.eigenvalues))
    worst = float(to_host(eigen.residual_norms).max(initial=0.0))
    if min(eigen.tolerance * largest, worst) <= promised * largest:
        return
    cause = "tol is below what rounding allows" if tol else "rounding leaves large residuals (residual_norms_)"
    remedy = f"{'Pass float64, or allow' if dtype == 'float32' else 'Allow'} a larger tol."
    if noise_scale > largest:
        remedy += (
            " Centering cancels numbers larger than the eigenvalues: subtract the feature means, or the constant from "
            "a precomputed matrix, or change gamma and coef0."
        )
    warn_user(
        f"{cause} in {dtype} for this matrix, so converged_ is judged by what rounding allows. {remedy}",
        PrecisionWarning,
        tol=promised,
        reached=eigen.tolerance,
        largest=largest,
        cancelled=noise_scale,
    )


def warn_of_unresolved(values: np.ndarray, norms: np.ndarray, converged: np.ndarray, tol: float, advice: str) -> None:
    """Warn of eigenvalues (p,), of those that converged, whose residuals are large beside themselves."""
    unresolved = (converged & (values > 0.0) & (norms > resolved_share(tol) * values)).nonzero()[0]
    if unresolved.size:
        warn_user(
            "some components are uncertain: their residuals (residual_norms_) exceed a thousandth of their own "
            f"eigenvalues, though not the tolerance, which is relative to the largest. {advice}",
            PrecisionWarning,
            components=(unresolved + 1).tolist(),
            residuals=(norms[unresolved] / values[unresolved]).tolist(),
        )


def warn_of_share(kept: int, reached: float, share: float) -> None:
    """Warn of components that hold less than a share of the variance, as those of too few passes may."""
    warn_user(
        "the components hold less of the variance than the share n_components. Allow more passes.",
        ConvergenceWarning,
        n_components=kept,
        reached=reached,
        share=share,
    )


def warn_of_convergence(eigen: EigenResult, advice: str, *, may_fail: bool = False) -> None:
    """Warn of residuals above the tolerance; raise where nothing was found, unless the fit `may_fail`."""
    if bool(eigen.converged.all()):
        return
    norms = to_host(eigen.residual_norms).astype(np.float64)
    largest = float(np.max(np.abs(to_host(eigen.eigenvalues)), initial=0.0)) or 1.0
    if not may_fail and not eigen.converged.any() and float(norms.min()) > USELESS_RESIDUAL * largest:
        raise ConvergenceError(
            f"no component was found in {eigen.n_passes} passes: every residual is above {USELESS_RESIDUAL} of the "
            f"largest eigenvalue {largest:.4g}. {advice}",
            partial_result=eigen,
        )
    above = np.flatnonzero(~eigen.converged)
    warn_user(
        "some components have a residual above tol of the largest eigenvalue after the last pass (residual_norms_). "
        + advice,
        ConvergenceWarning,
        components=(above + 1).tolist(),
        residuals=(norms[above] / largest).tolist(),
        tol=eigen.tolerance,
        n_passes=eigen.n_passes,
    )
