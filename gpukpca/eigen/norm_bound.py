"""Bounds on ‖E‖₂ of a semidefinite E (n, n), from a few of its rows or from products with random vectors.

Statement. Let d_i >= E_ii be fixed numbers, and a₁ … a_s independent draws of rows, i with probability d_i / Σd. Let
C_ab = E_ab / √(d_a d_b) for the drawn rows, repeats kept. Then ‖E‖₂ <= p⁺ Σd but for the probability `failure`, where
p⁺ = share_bound(entrywise_powers(C), s, failure). No gap, dimension or unnamed constant enters.

Proof. E = ΦΦᵀ with rows φ_i. Let v be a unit top eigenvector of ΦᵀΦ, and y_a = (vᵀφ_a)² / d_a. These are independent,
lie in [0, 1] as d_a >= ‖φ_a‖², and have mean p = ‖E‖₂ / Σd exactly. For each t in [0, 1)

    E Π_a (1 - t y_a) / (1 - t p)^s = 1,   so a mixture over t of these products exceeds 1/failure with at most the
                                           probability `failure` (Markov; Ville: at all s at once, for growing s)
    -Σ_a log(1 - t y_a) <= h_t = t Λ₁ + t²/2 Λ₂ + (-log(1 - t) - t - t²/2) Λ₃,   Λ_k >= Σ_a y_a^k

and Σ_a y_a^k = Σ_a ⟨v^⊗k, u_a^⊗k⟩², u_a = φ_a / √d_a, is at most the largest eigenvalue of the k-th entrywise power of
C, which is the Gram matrix of the u_a^⊗k. So Σ_t w_t e^(-h_t) (1 - t p)^(-s) is below 1/failure but for that
probability, and p⁺ is the largest number in place of p for which it is.

References: for one fixed bet t, Waudby-Smith & Ramdas, J. R. Stat. Soc. B 86 (2024) 1. Sampling rows by their squared
norms, Rudelson & Vershynin, J. ACM 54 (2007) 21; Holodnak & Ipsen, SIAM J. Matrix Anal. Appl. 36 (2015) 110. Top
eigenvalues from principal submatrices, Swartworth & Woodruff, arXiv 2411.03227. Matrix versions with a factor of the
dimension, which a fixed v avoids, Wang & Ramdas, arXiv 2411.09516. Another computed bound for kernel PCA by landmarks,
Hallgren, arXiv 2109.05578. We found no earlier bound of this form.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.linalg import ArpackError, eigsh

from gpukpca._typing import Array
from gpukpca.backend.lapack import failing_minor
from gpukpca.backend.linalg import column_norms, solve_triangular, triangular_inverse
from gpukpca.backend.namespace import EPSILON, epsilon, indices, to_host
from gpukpca.backend.parallel import row_slices
from gpukpca.backend.random import seeded_uniform, weighted_draws
from gpukpca.eigen.elimination import error_share, growth_of

# The probability that a bound fails, and the random vectors of `gaussian_bound`, which have it.
FAILURE, VECTORS = 2.0**-30, 30
# Of so many rows no bound is below 0.19 of the trace, and of fewer it is larger.
SMALLEST_SAMPLE = 100
# The bets t and their weights, fixed before any draw. Five mixtures were compared; the others differ by less than 3 %.
BETS, WEIGHTS = np.array([0.1, 0.3, 0.6, 0.85, 0.95]), np.array([0.1, 0.1, 0.2, 0.3, 0.3])
# Lanczos ends at a residual of this share; the proof is tried at so many times the Ritz value. Of so few rows LAPACK
# computes all eigenvalues.
RESIDUAL, PROOF, SMALL = 0.01, 1.01, 32
# Products for the bounds on entrywise powers, fewer where a bound is within this share of a Rayleigh quotient.
PRODUCTS, CLOSE = 16, 0.003
# The smallest entry of a positive vector, beside the largest of 1.
FLOOR = 1e-12
# Rows of a panel, which stays in the cache of a processor.
PANEL = 32
EPS = EPSILON["float64"]
# The share of a target that the smallest bound from the rows of a look is, so that twice the norm is bounded by it.
TARGET = 0.15
# Rows whose number d is less than so many times what a factor lacks are counted by that, at most.
LARGEST_SPLIT = 100.0
# Rows of a look that are tried first: they may show that all of them miss the target. Both bounds hold (Ville).
FIRST_ROWS = 500


def largest_eigenvalue(C: np.ndarray) -> float:
    """Return a certain upper bound on the largest eigenvalue of a symmetric C (s, s), at most 1 % above it.

    Lanczos proposes x. Cholesky of x I - C proves it for any start and any gap: where it ends, the eigenvalue is at
    most x + (s + 1) u tr(x I - C). Where it fails, x is too small, and another start and a larger x follow. Memory: one
    copy of C. Infinity for entries that are not finite. Rump, BIT 46 (2006) 433.
    """
    s, size = len(C), max(float(np.max(C, initial=0.0)), -float(np.min(C, initial=0.0)))
    if not 0.0 < size < math.inf:
        return 0.0 if size == 0.0 else math.inf
    exponent, attempt = max(math.frexp(size)[1], -1021), 0
    unit = math.ldexp(1.0, -exponent)
    x = max(float(np.max(np.diagonal(C))) * unit, EPS)
    while True:
        attempt += 1
        A = np.multiply(C, unit, order="C")
        x = PROOF * max(x, _ritz_value(A, seeded_uniform((attempt, s))[-1] - 0.5))
        np.negative(A, out=A)
        A.reshape(-1)[:: s + 1] += x
        # One of s + 2 is for x and the entries of the diagonal, which are rounded; eps = 2 u is for terms of order u².
        margin = (s + 2) * EPS * float(np.trace(A))
        if failing_minor(A) == 0:
            return math.nextafter(float(np.ldexp(x + margin, exponent)), math.inf)


def _ritz_value(A: np.ndarray, start: np.ndarray) -> float:
    """Return about the largest eigenvalue of A (s, s), by Lanczos where it is large."""
    if len(A) > SMALL:
        with suppress(ArpackError):
            return float(eigsh(A, 1, which="LA", v0=start, tol=RESIDUAL, return_eigenvectors=False)[0])
    return float(np.linalg.eigvalsh(A)[-1])


def entrywise_powers(C: np.ndarray, slack: np.ndarray | None = None) -> np.ndarray:
    """Return certain bounds (3,) on the largest eigenvalues of C, C∘C and of the cubes |C_ab|³.

    C (s, s) is symmetric, and its true entries lie within slack_a slack_b of those given; they are those of unit
    vectors or shorter ones. So each bound may be the one before it, or s. Memory: one copy of C.

    max (A x)_i / x_i is at least the largest eigenvalue of A >= 0 for any x > 0: Collatz, Math. Z. 48 (1942) 221;
    Wielandt, Math. Z. 52 (1950) 642.
    """
    s = len(C)
    slack = np.zeros(s) if slack is None else slack
    up = 1.0 + (s + 8) * EPS
    bounds = [min(up * (largest_eigenvalue(C) + float(slack @ slack)), float(s))]
    power = np.ones((s, s))
    for k in (1, 2, 3):
        for start, stop in row_slices(s, PANEL):
            power[start:stop] *= np.abs(C[start:stop]) + slack[start:stop, None] * slack
        if k > 1:
            bounds.append(min(up * _perron_bound(power), bounds[-1]))
    return np.array(bounds)


def _perron_bound(A: np.ndarray) -> float:
    """Return the least of max (A x)_i / x_i for a few x > 0."""
    x, bound = np.ones(len(A)), math.inf
    for _ in range(PRODUCTS):
        y = A @ x
        bound = min(bound, float(np.max(y / x)))
        if bound <= (1.0 + CLOSE) * float(x @ y) / float(x @ x):
            break
        # Without the floor rows of zeros, and blocks of smaller eigenvalues, would end at 0.
        x = y / np.max(y) + FLOOR
    return bound


def share_bound(powers: np.ndarray, s: int, failure: float = FAILURE) -> float:
    """Return p⁺ in (0, 1], from the bounds of `entrywise_powers` for s draws: ‖E‖₂ <= p⁺ Σd but for `failure`."""
    squares = BETS**2 / 2.0
    h = np.stack([BETS, squares, -np.log1p(-BETS) - BETS - squares], axis=1) @ powers
    # Rounding of the exponents, of some 5 s at most, is far below this.
    limit = -math.log(failure) + 1e-9

    def is_refuted(p: float) -> bool:
        exponents = -s * np.log1p(-BETS * p) - h
        top = float(np.max(exponents))
        return top + math.log(float(WEIGHTS @ np.exp(exponents - top))) > limit

    low, high = 0.0, 1.0
    while is_refuted(high) and low < (middle := (low + high) / 2.0) < high:
        low, high = (low, middle) if is_refuted(middle) else (middle, high)
    return high


def smallest_share(s: int, failure: float = FAILURE) -> float:
    """Return 1 - failure^(1/s), below which no bound from s rows can be: (1 - p)^s draws show nothing of a share p."""
    return -math.expm1(math.log(failure) / s)


def gaussian_bound(norms: list[float], rounding: float) -> float:
    """Return a bound on ‖E‖₂ from max ‖Eω‖, or max ‖Eω‖ and max ‖E²ω‖, of `VECTORS` Gaussian vectors ω.

    ‖E‖₂ <= α √(2/π) max ‖Eω‖ but for a probability of α^-r with r vectors, here α = 2; the same holds for E², whose
    norm is the square. Products with unit vectors err by `rounding`, and so do the entries. Halko, Martinsson & Tropp,
    SIAM Review 53 (2011) 217, lemma 4.1.
    """
    factor = 2.0 * math.sqrt(2.0 / math.pi)
    if len(norms) == 1:
        return factor * (norms[0] + rounding) + rounding
    return math.sqrt(factor * (norms[1] + rounding * norms[0])) + (factor + 1.0) * rounding


def longest_column(V: Array) -> float:
    """Return the largest norm of a column."""
    return float(np.max(column_norms(V)))


# -- the error of a partial Cholesky factor ----------------------------------------------------------------------------


def bound_of_all(E: np.ndarray, allowances: np.ndarray, weights: np.ndarray) -> float:
    """Return a certain bound on λ_max(W^½ E W^½) of a whole matrix E (n, n), whose entries err by √(a_i a_j)."""
    roots = np.sqrt(weights)
    return max(0.0, largest_eigenvalue(E * roots[:, None] * roots[None, :])) + float(allowances @ weights)


def excess(L: np.ndarray, E: np.ndarray) -> float:
    """Return by which share of F Fᵀ this exceeds K at most: λ_max(L⁻¹ K(S, S) L⁻ᵀ) - 1, K as it is computed.

    E is K - F Fᵀ between the landmarks S.
    """
    B = solve_triangular(L, solve_triangular(L, E).T)
    return max(0.0, largest_eigenvalue((B + B.T) / 2.0)) if len(B) else 0.0


def split_of(total: float, s: int, sum_of_lacking: float) -> float:
    """Return the m of `bound_of_draws` for s rows: about the best where the bound is three times the smallest."""
    if not sum_of_lacking:
        return LARGEST_SPLIT
    return min(LARGEST_SPLIT, max(1.0, math.sqrt(3.0 * total * smallest_share(s) / sum_of_lacking)))


def powers_of_draws(
    E: np.ndarray, allowances: np.ndarray, limits: np.ndarray, lacking: np.ndarray, split: float
) -> np.ndarray:
    """Return the `entrywise_powers` of C, from entries of E (s, s) between rows that were drawn, repeats kept.

    `limits` are the d of the drawn rows, d_i >= E_ii. Entries err by √(a_i a_j) for allowances a. E with `lacking`
    numbers e (s,) is semidefinite: some E⁺ >= E has entries within √(e_i e_j) of those of E. Rows that lack much beside
    their d are left out, which `bound_of_draws` counts otherwise.
    """
    kept = (limits >= split * lacking) & (limits > 0.0)
    if not np.any(kept):
        return np.zeros(3)
    roots = np.sqrt(limits[kept])
    C = (E if np.all(kept) else E[np.ix_(kept, kept)]) / roots[:, None]
    C /= roots[None, :]
    return entrywise_powers(C, np.sqrt(allowances[kept] + lacking[kept]) / roots)


def bound_of_draws(
    powers: np.ndarray, s: int, total: float, sum_of_lacking: float, split: float, failure: float = FAILURE
) -> float:
    """Return a bound on λ_max(W^½ E W^½) from `powers_of_draws` of s rows, i with the probability w_i d_i / total.

    Rows with d_i >= m e_i, m = `split`, have E⁺_ii <= (1 + 1/m) d_i, which the statement needs. Those of the others sum
    to (1 + m) Σ w e at most, `sum_of_lacking` of all rows, and count by that. The draws must not decide m.
    """
    return (1.0 + 1.0 / split) * total * share_bound(powers, s, failure) + (1.0 + split) * sum_of_lacking


@dataclass
class NormLooks:
    """Bounds on the norm of K - F Fᵀ while F grows, each from rows that are drawn for it alone.

    Attributes
    ----------
    rng : numpy.random.Generator
        Independent of the draws that choose landmarks.
    most : int
        Rows of a look.
    count, rows, value, rank
        Looks so far; of the last one the rows, the bound and the columns of F. Look k fails with a probability of at
        most FAILURE / (k (k + 1)), all together with FAILURE.
    """

    rng: np.random.Generator
    most: int
    count: int = 0
    rows: int = 0
    value: float = math.inf
    rank: int = 0

    @property
    def failure(self) -> float:
        """Return the failure probability of the next look."""
        return FAILURE / ((self.count + 1) * (self.count + 2))

    def least(self, total: float, n: int) -> float:
        """Return what no bound from so many of n rows goes below."""
        return total / n if n <= self.most else total * smallest_share(self.most, self.failure)

    def bound(self, builder: Any, target: float) -> float:
        """Return a bound on the norm for the factor that a builder has so far, with rounding.

        From as many rows as bound a norm of half the `target` by it; 0: from all that are allowed.
        """
        n, k, failure = builder.n, len(builder.pivots), self.failure
        L = builder.L[:k, :k]
        share = error_share(k, growth_of(L, triangular_inverse(L)), builder.entries, epsilon(builder.op.like))
        allowances = share * builder.sizes + builder.unexpected
        limits = builder.xp.maximum(builder.residuals, 0.0) + allowances
        chances = builder.sample_weight * limits
        total = float(builder.xp.sum(chances))
        enough = math.log(failure) / math.log1p(-min(0.5, TARGET * target / total)) if target else self.most
        most = self.most if n <= self.most else max(SMALLEST_SAMPLE, min(self.most, math.ceil(enough)))
        numbers = np.arange(n) if n <= most else weighted_draws(self.rng, chances, most)
        first = FIRST_ROWS if target and 2 * FIRST_ROWS < most < n else most
        is_estimate = n <= most or epsilon(builder.op.like) > EPS
        lack = 0.0 if is_estimate else excess(L, builder.errors_of(builder.pivots))
        lacking = lack * float(builder.sample_weight @ builder.sizes)
        split = split_of(total, most, lacking)
        for self.rows in sorted({first, most}):
            E, at = builder.errors_of(numbers[: self.rows]), indices(numbers[: self.rows], builder.place)
            of_rows = builder.xp.stack([allowances[at], limits[at], builder.sample_weight[at], builder.sizes[at]])
            a, d, w, sizes = to_host(of_rows)
            if n <= most:
                self.value = bound_of_all(E, a, w)
                continue
            powers = powers_of_draws(E, a, d, lack * sizes, split)
            self.value = bound_of_draws(powers, self.rows, total, lacking, split, failure)
            # The powers of all are no smaller.
            if bound_of_draws(powers, most, total, lacking, split, failure) > target:
                break
        self.count, self.rank = self.count + 1, k
        return self.value + float(builder.rounding())
