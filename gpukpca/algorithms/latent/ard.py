"""Automatic relevance determination on the spectrum of complete data: a precision for every direction of W.

p(w_i | α_i) = N(0, α_i⁻¹ I), and α_i = d/‖w_i‖² after every step, which prunes directions without use. Bishop, Bayesian
PCA, NIPS 11 (1998) 382; Variational principal components, ICANN (1999) 509 (the prior). The steps are Bishop's with
parameter expansion as in `m_step`: the same fixed points in fewer steps.

Directions without variance do not determine the noise, and would pull it to 0 until every other direction exceeded it.
So the span of the data alone decides which directions stay, as Minka's program for his rule drops eigenvalues of 0. The
lengths of those that stay, and σ², are then those of all d features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import documented, field_of
from gpukpca.algorithms.latent.initialization import NOISE_FLOOR
from gpukpca.backend.namespace import epsilon, to_host

# A direction whose squared length is at most this share of the noise is pruned: the next steps would cube it.
PRUNED_BELOW = 1e-12
# Relative change at which the iteration has converged.
SETTLED = 1e-12
MOST_STEPS = 100_000


@documented
@dataclass(frozen=True)
class ARDResult:
    """Lengths of the columns of W after automatic relevance determination."""

    lengths: np.ndarray = field_of("q", "‖w_i‖² of all candidates; 0 for those that are pruned; on the host")
    noise: float = field_of("", "σ²")
    n_steps: int = field_of("", "of the iteration")
    converged: bool = field_of("", "whether the iteration converged")

    @property
    def kept(self) -> np.ndarray:
        """Return which candidates stay, shape (q,)."""
        return self.lengths > 0


def span_rank(spectrum: np.ndarray, rest: float, n: int, d: int, rounding: float) -> int:
    """Return the dimension of the span of centered data; an upper bound where others share `rest`.

    `spectrum` (q,) are variances over n; rounding of the data gives a direction a variance of at most `rounding`.
    """
    return min(n - 1, d) if rest > rounding else int(np.sum(spectrum > rounding))


def rounding_of(means: Array, like: Array) -> float:
    """Return the variance that rounding gives data with these means in the dtype of `like`, all features together."""
    return float(np.sum((epsilon(like) * to_host(means).astype(np.float64)) ** 2))


def ard_in_span(spectrum: np.ndarray, rest: float, rank: int, n: int, d: int) -> ARDResult:
    """Return the candidates that stay: chosen in the span of the data, then fitted in all d features.

    `spectrum` (q,) are their variances over n, descending, `rest` is the sum of the others, `rank` the dimension of the
    span. Only rank - 1 candidates count, so that a direction is left for the noise.
    """
    lengths, q = np.zeros(len(spectrum)), min(len(spectrum), rank - 1)
    total = float(np.sum(spectrum)) + rest
    if q < 1 or not spectrum[0] > 0:
        return ARDResult(lengths, total / d, 1, True)
    solution = ard_of_spectrum(spectrum[:q], float(np.sum(spectrum[q:])) + rest, n, rank)
    chosen = np.flatnonzero(solution.kept)
    if rank < d and len(chosen):
        values = spectrum[chosen]
        again = ard_of_spectrum(values, total - float(np.sum(values)), n, d)
        lengths[chosen] = again.lengths
        return ARDResult(lengths, again.noise, solution.n_steps + again.n_steps, solution.converged and again.converged)
    lengths[:q] = solution.lengths
    return ARDResult(lengths, solution.noise if rank == d else total / d, solution.n_steps, solution.converged)


def ard_of_spectrum(spectrum: np.ndarray, rest: float, n: int, d: int) -> ARDResult:
    """Return the result of EM for complete data, from their variances alone: O(q) a step.

    Without missing entries W stays V diag(w) in the eigenvectors V of the covariance matrix, so that a step is one of
    numbers. A direction of variance λ that stays has c = w² + σ² with n (λ - c)(c - σ²) = d c², which has a solution
    only where (λ + σ²)² >= 4 (1 + d/n) λ σ². `spectrum` (q,) descends, 1 <= q < d, and its first entry is positive;
    `rest` is the sum of the other d - q variances.
    """
    unit = float(spectrum[0])  # squares of variances neither overflow nor underflow
    spectrum, rest = spectrum / unit, rest / unit
    noise = max(rest / (d - len(spectrum)), NOISE_FLOOR)
    w = np.sqrt(np.maximum(spectrum - noise, 0.0))
    for step in range(1, MOST_STEPS + 1):
        c = w * w + noise
        cross, second = spectrum * w / c, w * w * spectrum / c**2 + noise / c
        # W_new = (Σ x zᵀ)(Σ z zᵀ + σ² A)⁻¹ with A = d / w², both sides times w².
        moved = cross * w * w / (second * w * w + noise * d / n)
        missed = spectrum * (1.0 - moved * w / c) ** 2 + moved**2 * noise / c
        left = max((rest + float(np.sum(missed))) / d, NOISE_FLOOR)
        # As `m_step.stretch_columns`: z with its estimated variance.
        moved = moved * np.sqrt(second * n / (n + d))
        moved[moved * moved <= PRUNED_BELOW * noise] = 0.0
        change = max(abs(left / noise - 1.0), float(np.max(np.abs(moved - w) / np.maximum(w, math.sqrt(noise)))))
        w, noise = moved, left
        if change <= SETTLED:
            return ARDResult(w * w * unit, noise * unit, step, True)
    return ARDResult(w * w * unit, noise * unit, MOST_STEPS, False)
