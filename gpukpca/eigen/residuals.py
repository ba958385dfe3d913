"""The last steps that all solvers share: true residuals, orthonormality, signs, traces."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.linalg import column_norms, down_columns, entries_of_columns, times_small
from gpukpca.backend.namespace import (
    EPSILON,
    accumulation_dtype,
    cast,
    dtype_name,
    epsilon,
    from_host,
    namespace_of,
)
from gpukpca.backend.parallel import row_slices
from gpukpca.data.products import inner_products

# Eigenvalues of modulus up to this many eps of the operator's size are rounding noise.
NULL_FACTOR = 20.0
DEFAULT_TOLERANCE = {"float64": 1e-8, "float32": 1e-5}
# The tightest tolerance that iterations can reach, in eps.
TIGHT = 100.0
# Powers of two up to this exponent are numbers of both types.
ONE_STEP = 100
# A residual above this share of its eigenvalue leaves the direction uncertain, however small it is beside the largest.
RESOLVED = 1e-3


def default_tolerance(dtype: object, to_rounding: bool = False) -> float:
    """Return the relative residual that solvers stop at by default, 1e-8 in float64 and 1e-5 in float32, or 100 eps."""
    name = dtype_name(dtype)
    return min(DEFAULT_TOLERANCE[name], TIGHT * EPSILON[name]) if to_rounding else DEFAULT_TOLERANCE[name]


def operator_size(op: SymmetricOperator, eigenvalues: np.ndarray) -> float:
    """Return the largest of |lambda| and the sizes of noise: rounding errors are u times this."""
    largest = float(np.abs(eigenvalues).max(initial=0.0))
    return max(largest, op.noise_scale, op.entry_noise)


def total_of(op: SymmetricOperator, values: np.ndarray) -> float:
    """Return the trace of an operator with these leading eigenvalues.

    Where they are all, and show that the operator is indefinite, return the sum of the positive ones.
    """
    if len(values) == op.shape[0] and float(values.min()) < -spectral_rounding(op, values):
        return float(np.sum(np.maximum(values, 0.0)))
    if op.trace is not None:
        return op.trace
    return float(namespace_of(op.like).sum(cast(op.diagonal(), accumulation_dtype(op.like))))


def spectral_rounding(op: SymmetricOperator, values: np.ndarray) -> float:
    """Return the modulus up to which a negative eigenvalue may be rounding, given eigenvalues."""
    eps = epsilon(op.like)
    return max(NULL_FACTOR * operator_size(op, values), op.shape[0] * float(values.max(initial=0.0))) * eps


def entry_rounding(op: SymmetricOperator, largest: float) -> float:
    """Return the residual that the rounding of the operator's entries may cause.

    The entries err by up to ``op.rounding`` eps of their size, and `entry_noise` is that of what centering cancels.
    """
    return op.rounding * epsilon(op.like) * (largest + op.entry_noise)


def allowed_residuals(op: SymmetricOperator, tol: float, values: np.ndarray, exponent: int) -> np.ndarray:
    """Return the residuals at which an iteration may stop; they and the Ritz values (p,) in units of 2**exponent.

    With the rounding of the entries each is within the tolerance of the largest value, and within `resolved_share` of
    its own. It is at least that rounding, below which no residual helps, or the tolerance where that is smaller.
    """
    largest = float(np.abs(values).max(initial=0.0))
    rounding = float(np.ldexp(entry_rounding(op, float(np.ldexp(largest, exponent))), -exponent))
    within = np.minimum(tol * largest, resolved_share(tol) * np.abs(values))
    return np.asarray(np.maximum(within - rounding, np.minimum(within, rounding)))


def resolved_share(tol: float) -> float:
    """Return the largest residual of a resolved pair as a share of its eigenvalue; a large tolerance allows more."""
    return max(RESOLVED, tol)


def rayleigh_ritz(U: Array, W: Array) -> tuple[np.ndarray, Array, Array]:
    """Return the Ritz values of an orthonormal block U, descending, the Ritz vectors, and their products W = op @ U."""
    T = inner_products(U, W)
    theta, S = np.linalg.eigh((T + T.T) / 2.0)
    S = from_host(S[:, ::-1], U)
    return theta[::-1], U @ S, W @ S


def residual_lengths(U: Array, W: Array, eigenvalues: np.ndarray) -> np.ndarray:
    """Return the norms of ``W - U diag(eigenvalues)``, W = op @ U, on the host."""
    wide = accumulation_dtype(U)
    values = from_host(eigenvalues, U, wide)
    norms = [np.zeros(0)]
    for bounds in row_slices(U.shape[1], blocking.WIDENED_COLUMNS):  # wide copies of a few columns, not of all
        few = slice(*bounds)
        norms.append(column_norms(cast(W[:, few], wide) - cast(U[:, few], wide) * values[None, few]))
    return np.concatenate(norms)


def value_bounds(U: Array, W: Array, values: np.ndarray) -> np.ndarray:
    """Return bounds on the errors of the last of `values`, of very different size; W = op @ U[:, -k:], shape (n, k).

    A part of the residual that lies along another column of U, of length c, turns the two by c over the gap of their
    values, and changes these by its square over the gap, which is far less than c. The rest of the residual counts as
    it is. The columns are stored to eps, which alone leaves residuals of eps times the largest value.

    Li & Li, Linear Algebra Appl. 395 (2005) 183 (eigenvalues of block matrices with small couplings).
    """
    wide, own = accumulation_dtype(W), values[len(values) - int(W.shape[1]) :]
    T = inner_products(U, W)
    rest = column_norms(cast(W, wide) - times_small(cast(U, wide), T))
    couplings = np.abs(T - np.diag(values)[:, len(values) - len(own) :])
    gaps = np.abs(values[:, None] - own[None, :])
    far = couplings < gaps
    squares = couplings**2
    turned = np.divide(squares, gaps, out=np.zeros(gaps.shape), where=far)
    near = np.where(far, 0.0, squares).sum(axis=0)
    return np.asarray(np.sqrt(rest**2 + near) + turned.sum(axis=0))


def signs(U: Array) -> Array:
    """Return +1 or -1 for every column, so that its entry of largest modulus becomes positive.

    Among moduli within 8 sqrt(eps) of the largest the first one counts: symmetric data give many entries that are equal
    up to rounding, on which the sign must not depend.
    """
    xp = namespace_of(U)
    modulus = xp.abs(U)
    near = modulus >= (1.0 - 8.0 * math.sqrt(epsilon(U))) * down_columns(modulus, xp.max)[None, :]
    first = xp.argmax(cast(near, xp.int8), axis=0)
    return 1.0 - 2.0 * cast(entries_of_columns(U, first) < 0, U.dtype)


def estimated_residuals(S: np.ndarray, outside: np.ndarray, p: int) -> np.ndarray:
    """Return the residuals of the first p Ritz pairs with coordinates S; infinite where there are fewer.

    `outside` is the Gram matrix of the part of the last product outside the basis.
    """
    if S.shape[0] < p:
        return np.full(p, np.inf)
    last = S[-len(outside) :, :p]
    return np.asarray(np.sqrt(np.maximum(np.einsum("ij,ik,kj->j", last, outside, last), 0.0)))


def ldexp(W: Array, exponent: int, times: Callable[[Array, float], Array] = operator.mul) -> Array:
    """Return W times 2**exponent by `times`, in two exact steps where one would leave the range."""
    if abs(exponent) <= ONE_STEP:
        return times(W, 2.0**exponent) if exponent else W
    first = exponent // 2
    return times(times(W, 2.0**first), 2.0 ** (exponent - first))
