"""Rules for tolerances, checks of an operator before a factor of K is computed, and the errors of such factors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpukpca._rules import Rule, is_real
from gpukpca._typing import SymmetricOperator
from gpukpca.backend.finite import not_finite, overflow
from gpukpca.backend.namespace import dtype_name, overflow_allowed, to_host
from gpukpca.exceptions import IndefiniteKernelError

# A negative residual beyond this share of the largest diagonal entry is no rounding of any kernel in this library.
INDEFINITE = {"float64": 1e-6, "float32": 1e-3}
REMEDY = (
    "Nyström needs a positive semidefinite kernel: use another one (rbf, laplacian, matern, poly with coef0 >= 0), for "
    "sigmoid a smaller gamma, or an exact solver."
)

TOLERANCE = Rule("a number in [0, 1) (0: the default)", lambda value: is_real(value) and 0 <= value < 1)
LANDMARK_TOLERANCE = replace(TOLERANCE, text="a number in [0, 1) (0: no stop)")


def checked_diagonal(op: SymmetricOperator) -> tuple[np.ndarray, np.ndarray]:
    """Return the diagonal on the host in float64, finite and not negative beyond rounding, and its sizes.

    The sizes are the diagonal before anything was subtracted from it; rounding is relative to them.
    """
    with overflow_allowed():
        diagonal = to_host(op.diagonal()).astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(diagonal))
    if bad.size:
        raise not_finite(op, int(bad[0]), int(bad[0]), float(diagonal[bad[0]]))
    with overflow_allowed():
        if not np.isfinite(np.sum(diagonal)):
            raise overflow(op, "its trace is infinite")
    sizes = np.abs(diagonal)
    uncancelled = op.sizes()
    if uncancelled is not None:
        sizes = np.maximum(to_host(uncancelled).astype(np.float64), sizes)
    lowest = int(np.argmin(diagonal)) if diagonal.size else 0
    if diagonal.size and diagonal[lowest] < -INDEFINITE[dtype_name(op.dtype)] * np.max(sizes):
        raise indefinite(op, f"k(x, x) = {diagonal[lowest]:.4g} for row {lowest}")
    return np.maximum(diagonal, 0.0), sizes


def indefinite(op: SymmetricOperator, why: str) -> IndefiniteKernelError:
    """Return the error for a matrix that shows a negative eigenvalue."""
    return IndefiniteKernelError(f"{op.name} is not positive semidefinite on these data: {why}. {REMEDY}")
