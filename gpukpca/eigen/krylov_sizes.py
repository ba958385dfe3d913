"""The sizes that a block Krylov iteration compares residuals with, all divided by 2**exponent."""

from __future__ import annotations

import math

import numpy as np

from gpukpca._typing import Array
from gpukpca.eigen.krylov_state import KrylovState, KrylovTask
from gpukpca.eigen.residuals import allowed_residuals, residual_lengths

# Residuals of this many eps of the operator's size are rounding.
FLOOR = 4.0
# Directions smaller than this many eps of the operator's size are rounding noise.
DROP_FACTOR = 50.0


def operator_scale(task: KrylovTask, state: KrylovState) -> float:
    """Return the size of the operator: rounding errors of a product are eps times this.

    What centering cancels errs entry by entry with random signs, which costs a factor of sqrt(n) less.
    """
    noise = float(np.ldexp(task.op.noise_scale, -(state.exponent or 0))) / float(task.op.shape[0] ** 0.5)
    return max(noise, -state.smallest, float(np.abs(state.T.diagonal()).max(initial=0.0)))


def rounding_level(task: KrylovTask, state: KrylovState) -> float:
    """Return the largest Ritz value that may be rounding, in the units of the operator."""
    return float(np.ldexp(DROP_FACTOR * task.eps * operator_scale(task, state), state.exponent or 0))


def residual_excess(task: KrylovTask, state: KrylovState, theta: np.ndarray, norms: np.ndarray) -> float:
    """Return the largest ratio of the residuals `norms` of the first pairs to those allowed."""
    if not np.isfinite(norms).all():  # fewer pairs than requested
        return math.inf
    targets = allowed_by_pair(task, state, theta)
    return float(np.max(np.divide(norms, targets, out=np.zeros_like(norms), where=norms > 0.0), initial=0.0))


def allowed_by_pair(task: KrylovTask, state: KrylovState, theta: np.ndarray) -> np.ndarray:
    """Return the largest residuals allowed, shape (p,): what the tolerance leaves or rounding allows."""
    theta = theta[: task.p]
    allowed = allowed_residuals(task.op, task.tol, theta, state.exponent or 0)
    noise = float(np.ldexp(task.op.entry_noise, -(state.exponent or 0)))
    floor = FLOOR * task.eps * max(operator_scale(task, state), noise, largest_modulus_of(theta, task))
    return np.asarray(np.maximum(allowed, floor))


def largest_modulus_of(theta: np.ndarray, task: KrylovTask) -> float:
    """Return the largest modulus of the first p Ritz values."""
    return float(np.max(np.abs(theta[: task.p]), initial=0.0))


def residuals_of_first(U: Array, W: Array, values: np.ndarray, task: KrylovTask) -> np.ndarray:
    """Return the residuals of the first p pairs."""
    return residual_lengths(U[:, : task.p], W[:, : task.p], values[: task.p])
