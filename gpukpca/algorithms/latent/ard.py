"""Automatic relevance determination: a precision for every direction of W, which lets those without use die out.

p(w_i | α_i) = N(0, α_i⁻¹ I), and α_i = d/‖w_i‖² after every step. Bishop, Bayesian PCA, NIPS 11 (1998) 382; Variational
principal components, ICANN (1999) 509 (the prior).

The steps are Bishop's, made longer as in `maximization`: the same fixed points in fewer steps.

Directions in which the data have no variance say nothing of the noise, and would pull it to 0 until every other
direction stood out from it. So which directions stay is asked in the span of the data alone, as Minka's own program for
his rule leaves out eigenvalues that are 0; the lengths of those that do, and σ², are then those of all d features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import documented, field_of
from gpukpca.algorithms.latent.e_step import Parameters, SufficientStatistics
from gpukpca.algorithms.latent.em import EMProblem, EMResult, run_em
from gpukpca.algorithms.latent.initialization import NOISE_FLOOR
from gpukpca.algorithms.latent.m_step import m_step, orthogonal_columns, stretch_columns
from gpukpca.backend.linalg import column_sums
from gpukpca.backend.namespace import epsilon, to_host
from gpukpca.backend.rows import take_columns

# A direction whose squared length has come down to this share of the noise is gone: the next steps would cube it.
GONE = 1e-12
# Relative change at which the iteration on a spectrum has come to its end.
SETTLED = 1e-12
MOST_STEPS = 100_000


@documented
@dataclass(frozen=True)
class ARDResult:
    """Lengths of the columns of W after automatic relevance determination."""

    lengths: np.ndarray = field_of("q", "‖w_i‖² of all candidates; 0 for those that are gone; on the host")
    noise: float = field_of("", "σ²")
    n_steps: int = field_of("", "of the iteration")
    converged: bool = field_of("", "whether the iteration settled")

    @property
    def kept(self) -> np.ndarray:
        """Return which candidates are left, shape (q,)."""
        return self.lengths > 0


def span_rank(spectrum: np.ndarray, rest: float, n: int, d: int, rounding: float) -> int:
    """Return the dimension of the span of centered data; an upper bound where others share `rest`.

    `spectrum` (q,) are variances over n; rounding of the data gives a direction a variance of at most `rounding`.
    """
    return min(n - 1, d) if rest > rounding else int(np.sum(spectrum > rounding))


def rounding_of(means: Array, like: Array) -> float:
    """Return the variance that rounding gives data with these means in the dtype of `like`, all features together."""
    return float(np.sum((epsilon(like) * to_host(means).astype(np.float64)) ** 2))


def relevance_in_span(spectrum: np.ndarray, rest: float, rank: int, n: int, d: int) -> ARDResult:
    """Return the candidates that are left: chosen in the span of the data, and then fitted in all d features.

    `spectrum` (q,) are their variances over n, descending, `rest` is the sum of the others, `rank` the dimension of the
    span. Only rank - 1 candidates count, so that a direction is left for the noise.
    """
    lengths, q = np.zeros(len(spectrum)), min(len(spectrum), rank - 1)
    total = float(np.sum(spectrum)) + rest
    if q < 1 or not spectrum[0] > 0:
        return ARDResult(lengths, total / d, 1, True)
    found = relevance_of(spectrum[:q], float(np.sum(spectrum[q:])) + rest, n, rank)
    chosen = np.flatnonzero(found.kept)
    if rank < d and len(chosen):
        values = spectrum[chosen]
        again = relevance_of(values, total - float(np.sum(values)), n, d)
        lengths[chosen] = again.lengths
        return ARDResult(lengths, again.noise, found.n_steps + again.n_steps, found.converged and again.converged)
    lengths[:q] = found.lengths
    return ARDResult(lengths, found.noise if rank == d else total / d, found.n_steps, found.converged)


def relevance_of(spectrum: np.ndarray, rest: float, n: int, d: int) -> ARDResult:
    """Return the result of EM for complete data, from their variances alone: O(q) a step.

    Without missing entries W stays V diag(w) in the eigenvectors V of the covariance matrix, so that each step is one
    of numbers. A direction of variance λ that stays has c = w² + σ² with n (λ - c)(c - σ²) = d c², which has a solution
    only where (λ + σ²)² >= 4 (1 + d/n) λ σ². `spectrum` (q,) descends, 1 <= q < d, and its first entry is positive;
    `rest` is the sum of the other d - q variances.
    """
    unit = float(spectrum[0])  # squares of variances neither overflow nor vanish
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
        # As `maximization.stretch_columns`: z with the variance that it was found to have.
        moved = moved * np.sqrt(second * n / (n + d))
        moved[moved * moved <= GONE * noise] = 0.0
        change = max(abs(left / noise - 1.0), float(np.max(np.abs(moved - w) / np.maximum(w, math.sqrt(noise)))))
        w, noise = moved, left
        if change <= SETTLED:
            return ARDResult(w * w * unit, noise * unit, step, True)
    return ARDResult(w * w * unit, noise * unit, MOST_STEPS, False)


def most_probable(em: EMProblem, d: int) -> EMResult:
    """Return the maximum of likelihood times prior by EM; every step makes their product larger.

    `d` is the dimension in which a column of W has its prior. What the prior of a direction was worth when it went
    stays in the trace, so that nothing is lost with it.
    """
    State = tuple[Parameters, _Prior]

    def value_of(state: State, sums: SufficientStatistics) -> float:
        parameters, prior = state
        return sums.log_likelihood(parameters.noise) + prior.log_density(parameters)

    def moved(state: State, sums: SufficientStatistics) -> State:
        parameters, prior = state
        parameters = stretch_columns(sums, m_step(sums, parameters, prior.pull(parameters.noise), em.floor))
        return prior.updated(orthogonal_columns(parameters))

    start = (em.start, _Prior(d, _lengths(em.start)))
    (parameters, _), trace, gain, converged = run_em(em, start, lambda state: em.sums_at(state[0]), value_of, moved)
    return EMResult(parameters, trace, gain, converged)


@dataclass(frozen=True)
class _Prior:
    """α = d / length of the directions that are left, and the log densities of those that are gone as they went."""

    d: int
    lengths: np.ndarray
    past: float = 0.0

    def pull(self, noise: float) -> np.ndarray:
        """Return σ² α, shape (q,): α itself need not be a number where the data are tiny."""
        return self.d * (noise / self.lengths)

    def log_density(self, parameters: Parameters) -> float:
        """Return the log density of the loadings, without the constant of normal densities."""
        log_precisions = math.log(self.d) - np.log(self.lengths)
        return 0.5 * self.d * float(np.sum(log_precisions - _lengths(parameters) / self.lengths)) + self.past

    def updated(self, parameters: Parameters) -> tuple[Parameters, _Prior]:
        """Return the parameters without the directions that are gone, and the most probable prior of the others."""
        lengths = _lengths(parameters)
        stays = lengths > GONE * parameters.noise
        gone = np.maximum(lengths[~stays], math.ulp(0.0))
        past = self.past + 0.5 * self.d * float(np.sum(math.log(self.d) - np.log(gone) - 1.0))
        if not np.all(stays):
            loadings = take_columns(parameters.loadings, np.flatnonzero(stays))
            parameters = replace(parameters, loadings=loadings)
        return parameters, _Prior(self.d, lengths[stays], past)


def _lengths(parameters: Parameters) -> np.ndarray:
    """Return ‖w_i‖² on the host, shape (q,)."""
    return to_host(column_sums(parameters.loadings**2)).astype(np.float64)
