"""Warnings about a solver: residuals, tolerances, and solvers of a device that failed."""

from __future__ import annotations

import numpy as np

from gpukpca.backend.namespace import dtype_name, to_host
from gpukpca.eigen import EigenResult
from gpukpca.eigen.residuals import default_tolerance, resolved_share
from gpukpca.exceptions import ConvergenceError, ConvergenceWarning, DeviceFallbackWarning, PrecisionWarning, warn_user

# With every residual above this share of the largest eigenvalue, nothing was found.
USELESS_RESIDUAL = 0.1


def warn_of_fallbacks(eigen: EigenResult) -> None:
    """Warn where the solver of a device failed and another one took its place."""
    if eigen.fallbacks:
        n = eigen.eigenvectors.shape[0]
        warn_user(
            f"n = {n}: {'; '.join(eigen.fallbacks)}. The components come from: {eigen.solver}.", DeviceFallbackWarning
        )


def warn_of_tolerance(eigen: EigenResult, noise_scale: float = 0.0) -> None:
    """Warn where rounding keeps residuals above the tolerance; `noise_scale` is the size that centering cancels."""
    dtype = dtype_name(eigen.eigenvalues.dtype)
    tol = eigen.requested_tolerance or default_tolerance(dtype)
    largest = float(np.max(to_host(eigen.eigenvalues), initial=0.0))
    if eigen.tolerance <= tol or largest == 0.0:
        return
    remedy = "Pass float64, or a larger tol." if dtype == "float32" else "Pass a larger tol."
    if noise_scale > largest:
        remedy += (
            f" Centering cancels numbers of size {noise_scale:.3g}: subtract the feature means, or the constant from a "
            "precomputed matrix, or change gamma and coef0."
        )
    warn_user(
        f"tol = {tol:.0e} of the largest eigenvalue {largest:.3g} is below what rounding allows in {dtype} for this "
        f"matrix, so converged_ is judged by {eigen.tolerance:.1e}. {remedy}",
        PrecisionWarning,
    )


def warn_of_unresolved(values: np.ndarray, norms: np.ndarray, tol: float, advice: str) -> None:
    """Warn of eigenvalues (p,) whose residuals are large beside themselves, though not beside the largest one."""
    unresolved = np.flatnonzero((values > 0.0) & (norms > resolved_share(tol) * values))
    if unresolved.size:
        named = ", ".join(f"{i + 1} ({norms[i] / values[i]:.1e})" for i in unresolved[:10])
        warn_user(
            f"components are uncertain, because their residuals exceed {resolved_share(tol):.0e} of their own "
            f"eigenvalues (residual_norms_): {named}. {advice}",
            PrecisionWarning,
        )


def warn_of_share(kept: int, reached: float, share: float) -> None:
    """Warn of components that hold less than a share of the variance, as those of too few passes may."""
    warn_user(
        f"the {kept} components hold {reached:.3g} of the variance, less than n_components={share}. Allow more passes.",
        ConvergenceWarning,
    )


def warn_of_convergence(eigen: EigenResult, advice: str, *, may_fail: bool = False) -> None:
    """Warn of residuals above the tolerance; raise where nothing was found, unless the fit `may_fail`."""
    if bool(np.all(eigen.converged)):
        return
    norms = to_host(eigen.residual_norms).astype(np.float64)
    largest = float(np.max(np.abs(to_host(eigen.eigenvalues)), initial=0.0)) or 1.0
    if not may_fail and not eigen.converged.any() and float(np.min(norms)) > USELESS_RESIDUAL * largest:
        raise ConvergenceError(
            f"no component was found in {eigen.n_passes} passes: every residual is above {USELESS_RESIDUAL} of the "
            f"largest eigenvalue {largest:.4g}. {advice}",
            partial_result=eigen,
        )
    passes = "1 pass" if eigen.n_passes == 1 else f"{eigen.n_passes} passes"
    worst = ", ".join(f"{i + 1} ({norms[i] / largest:.1e})" for i in np.flatnonzero(~eigen.converged)[:10])
    warn_user(
        f"{int(np.sum(~eigen.converged))} of {len(norms)} components have a residual above tol = {eigen.tolerance:.0e} "
        f"of the largest eigenvalue after {passes}: components {worst}. {advice}",
        ConvergenceWarning,
    )
