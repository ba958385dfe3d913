"""Angles between computed eigenvectors and true ones, from residuals and bounds on all eigenvalues."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

# Coordinates of unit vectors err by so many eps.
COORDINATES = 10.0


def eigenvalue_bounds(
    T: np.ndarray, S: np.ndarray, missed: float, known: np.ndarray, rounding: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return lower bounds (p,) on the first eigenvalues of A, and upper ones (p + 1,), index for index.

    Q (n, r) is orthonormal, r <= p, T = QᵀAQ, S = RᵀR with R = AQ - QT. On the complement of Q no eigenvalue of A
    exceeds `missed`; ``known[i]`` is an upper bound on eigenvalue i + 1, or infinite. All err by `rounding`.

    Eigenvalue i is at least that of T (Cauchy). On Q and its complement A is [[T, Bᵀ], [B, C]] with ‖B‖ = ‖R‖. It
    exceeds that of [[T, 0], [0, C]], at most max(ρ_i, missed), by at most 2 ‖R‖² / (η + √(η² + 4 ‖R‖²)), where
    η is the distance of ρ_i from the eigenvalues of C: Li & Li, Linear Algebra Appl. 395 (2005) 183. And at most r of
    its eigenvalues exceed ``known[r] + ‖R‖`` (Weyl): where all r of T do, none of C does.
    """
    r, p = len(T), len(known) - 1
    ritz = np.linalg.eigvalsh(T)[::-1]
    coupling = _root(S) + rounding
    if 0 < r == p and ritz[-1] - rounding > known[p] + coupling:
        missed = min(missed, float(known[p]) + coupling)
    distance = np.maximum(ritz - missed, 0.0)
    lift = 2.0 * coupling**2 / np.maximum(distance + np.sqrt(distance**2 + 4.0 * coupling**2), np.finfo(float).tiny)
    lower, upper = np.full(p, -math.inf), np.full(p + 1, missed)
    lower[:r] = ritz - rounding
    upper[:r] = np.maximum(ritz, missed) + lift + rounding
    return lower, np.minimum(upper, known)


def sines_of_angles(
    T: np.ndarray, S: np.ndarray, R: np.ndarray, bounds: tuple[np.ndarray, np.ndarray], rounding: float, eps: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds on the sines of the angles between vectors Q R and eigenvectors of A, and their groups, (p,).

    The `bounds` are those of `eigenvalue_bounds`. Where they separate eigenvalues m and m + 1 a group ends. A span Z of
    a group with M = ZᵀAZ satisfies ‖sin Θ‖ <= ‖AZ - ZM‖ / δ, where δ is the distance of the eigenvalues of M, as an
    interval, from those of other groups: Davis & Kahan, SIAM J. Numer. Anal. 7 (1970) 1. NaN is a bound that is not
    below 1. Neighbors without one, as of vectors that are rotated among each other, become one group. Vectors after the
    last end have group -1.
    """
    p, (lower, upper) = R.shape[1], bounds

    def sine(first: int, last: int) -> float:
        Z, sizes, _ = np.linalg.svd(R[:, first:last], full_matrices=False)
        if len(sizes) != last - first or not sizes[-1] > 0.0:
            return math.nan
        TZ = T @ Z
        M = Z.T @ TZ
        rest, values = TZ - Z @ M, np.linalg.eigvalsh((M + M.T) / 2.0)
        above = lower[first - 1] - values[-1] if first else math.inf
        distance = min(above, values[0] - upper[last])
        bound = math.inf
        if distance > 0.0:
            bound = (_root(Z.T @ S @ Z + rest.T @ rest) + rounding) / distance + COORDINATES * eps / sizes[-1]
        return float(bound) if bound < 1.0 else math.nan

    ends = [0, *(m for m in range(1, p + 1) if lower[m - 1] > upper[m])]
    sines = [sine(*group) for group in pairwise(ends)]
    unknown = [False, *np.isnan(sines), False]
    ends = [end for end, pair in zip(ends, pairwise(unknown), strict=True) if not all(pair)]
    angles, groups = np.full(p, math.nan), np.full(p, -1)
    for number, (first, last) in enumerate(pairwise(ends)):
        angles[first:last], groups[first:last] = sine(first, last), number
    return angles, groups


def _root(S: np.ndarray) -> float:
    """Return the root of the largest eigenvalue of a Gram matrix, the norm of its factor."""
    return math.sqrt(max(0.0, float(np.max(np.linalg.eigvalsh(S), initial=0.0))))
