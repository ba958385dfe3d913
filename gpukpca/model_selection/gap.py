"""The gap in a spectrum that is certain: eigenvalues with their residuals, and where they fall most steeply."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca.backend.namespace import to_host
from gpukpca.decomposition.diagnostics import samples_of, spectrum_of
from gpukpca.exceptions import InvalidParameterError


def certain_gaps(variances: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """How far every variance falls to the next for certain, as a share of itself, shape (p - 1,); at most 0: unknown.

    |λ_i - θ_i| <= ‖r_i‖ for the computed θ_i with residual r_i (Weyl), so λ_i is at least θ_i - ‖r_i‖ and λ_{i+1} at
    most θ_{i+1} + ‖r_{i+1}‖.
    """
    low, high = variances[:-1] - errors[:-1], variances[1:] + errors[1:]
    gaps = np.zeros(len(low))
    np.divide(low - high, low, out=gaps, where=low > 0)
    return gaps


def residuals_of(model: Any) -> np.ndarray:
    """Bounds on the errors of the variances of a model, in their units, on the host; zeros where it states none."""
    variances = spectrum_of(model)
    if not hasattr(model, "residual_norms_"):
        return np.zeros(len(variances))
    norms = to_host(model.residual_norms_).astype(np.float64)
    if hasattr(model, "components_"):  # in the units of variances already
        return norms
    return norms / max(kernel_samples_of(model) - 1, 1)


def kernel_samples_of(model: Any) -> int:
    """Rows that a kernel PCA, or another model, was fitted to."""
    return int(model.eigenvectors_.shape[0]) if hasattr(model, "eigenvectors_") else samples_of(model)


def largest_certain_gap(gaps: np.ndarray, shares: np.ndarray, within: float, rounding: float) -> int:
    """Return the number of components before the largest certain gap, of those that begin below a share `within`.

    Raises `InvalidParameterError` where no gap is certain.
    """
    begins = np.append(0.0, np.cumsum(shares))[: len(gaps)] < within - rounding
    candidates = np.where(begins, gaps, 0.0)
    if not np.any(candidates > 0):
        raise InvalidParameterError(
            'rule "gap": no gap between the components is certain. Fit more of them, to a smaller tol or by '
            'eigen_solver="dense", or allow a larger share.'
        )
    return int(np.argmax(candidates)) + 1
