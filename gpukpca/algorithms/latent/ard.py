"""Automatic relevance determination on the spectrum of complete data: a precision for every direction of W.

p(w_i | α_i) = N(0, α_i⁻¹ I), and α_i = d/‖w_i‖² after every step, which prunes directions without use. Bishop, Bayesian
PCA, NIPS 11 (1998) 382; Variational principal components, ICANN (1999) 509 (the prior). The steps are Bishop's with
parameter expansion as in `m_step`: the same fixed points in fewer steps.

Features that do not vary, and directions beyond n - 1 rows, say nothing of the noise: the span of the others alone
decides which directions stay, and their lengths and σ² are then those of all d features.

Where features that vary leave directions without variance, the model has no noise, as in the limit of small noise: all
directions that vary stay. But a few combinations of noisy features must not hide the noise of the others: directions in
the span that clearly look alike are noise, as Minka's program for his rule drops eigenvalues of 0.
"""

from __future__ import annotations

import math

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.latent.initialization import NOISE_FLOOR
from gpukpca.backend.namespace import epsilon, to_host

# A direction whose squared length is at most this share of the noise is pruned: the next steps would cube it.
PRUNED_BELOW = 1e-12
# Relative change at which the iteration has converged.
SETTLED = 1e-12
# Variances up to so many eps of the total, squared, are rounding, as in `PCA`.
ROUNDING = 20.0
# The evidence, in units of the log-likelihood, that noise in the span of the data needs against data without noise.
CLEAR = 50.0
# ... and the rows, as those of fewer spread too far. Of 500 data without noise, of any rank, one seemed to have some.
ROWS_A_FEATURE = 2
MOST_STEPS = 100_000


@record()
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


def rounding_of(means: Array, like: Array, total: float) -> float:
    """Return the variance up to which directions of data are rounding, given their means, dtype and total variance."""
    shifts = float(np.sum(to_host(means).astype(np.float64) ** 2))
    return epsilon(like) ** 2 * (shifts + ROUNDING**2 * total)


def varying_features(axes: Array, spectrum: np.ndarray, rest: float, rounding: float) -> int:
    """Return how many features vary, given axes (d, q) and their variances; all d where others share `rest`."""
    if rest > rounding:
        return int(axes.shape[0])
    return int(np.sum(to_host(axes).astype(np.float64) ** 2 @ spectrum > rounding))


def ard_in_span(spectrum: np.ndarray, rest: float, rounding: float, n: int, varying: int, d: int) -> ARDResult:
    """Return the candidates that stay: chosen in the span of the data, then fitted in all d features.

    `spectrum` (q,) are their variances over n, descending, `rest` is the sum of the others, 0 up to `rounding`. One
    direction of the span is left for the noise, unless the data have none.
    """
    possible = min(n - 1, varying)
    rank = possible if rest > rounding else int(np.sum(spectrum > rounding))
    lengths, q = np.zeros(len(spectrum)), min(len(spectrum), rank - 1)
    total = float(np.sum(spectrum)) + rest
    solution = ARDResult(lengths, total / d, 1, True)
    if q > 0:
        solution = ard_of_spectrum(spectrum[:q], float(np.sum(spectrum[q:])) + rest, n, rank)
    chosen = np.flatnonzero(solution.kept)
    others = np.delete(spectrum[:rank], chosen)
    is_noisy = n > ROWS_A_FEATURE * varying and len(others) > possible - rank and is_isotropic(others, n)
    if 0 < rank < possible and not is_noisy:
        return ARDResult(np.where(spectrum > rounding, spectrum, 0.0), 0.0, 1, True)
    if rank < d and len(chosen):
        values = spectrum[chosen]
        again = ard_of_spectrum(values, total - float(np.sum(values)), n, d)
        lengths[chosen] = again.lengths
        return ARDResult(lengths, again.noise, solution.n_steps + again.n_steps, solution.converged and again.converged)
    lengths[:q] = solution.lengths[:q]
    return ARDResult(lengths, solution.noise if rank == d else total / d, solution.n_steps, solution.converged)


def is_isotropic(variances: np.ndarray, n: int) -> bool:
    """Return whether variances (m,) of n rows clearly are equal noise.

    By the Bayesian information criterion, a covariance matrix having m (m + 1) / 2 - 1 more numbers than its trace.
    Schwarz, Annals of Statistics 6 (1978) 461.
    """
    m = len(variances)
    gain = 0.5 * n * (m * math.log(float(np.mean(variances))) - float(np.sum(np.log(variances))))
    return 0.5 * math.log(n) * (m * (m + 1) / 2 - 1) - gain > CLEAR


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
