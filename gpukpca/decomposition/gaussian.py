"""The Gaussian model behind PCA: covariance, precision, likelihood, and how many components the data speak for.

x ~ N(m, V (Λ - σ²I) Vᵀ + σ²I): Tipping & Bishop, J. R. Stat. Soc. B 61 (1999) 611; Bishop, Pattern Recognition and
Machine Learning (2006), 12.2.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from gpukpca._typing import Array
from gpukpca.backend.linalg import add_to_diagonal
from gpukpca.backend.namespace import epsilon, from_host, namespace_of

# scikit-learn's: eigenvalues below it count as zero in Minka's likelihood.
MINKA_EPS = 1e-15


@dataclass(frozen=True)
class GaussianModel:
    """The model of scaled data z = (x - m) / s.

    Attributes
    ----------
    components : array, shape (p, d)
    variances : host array, shape (p,)
    noise : float
        σ², the variance in every other direction.
    scale : array, shape (d,), or None
    """

    components: Array
    variances: np.ndarray
    noise: float
    scale: Array | None

    @property
    def d(self) -> int:
        """Features."""
        return int(self.components.shape[1])

    def covariance(self) -> Array:
        """Shape (d, d), in the units of the data."""
        above = np.maximum(self.variances - self.noise, 0.0)
        C = self._spread(above, self.noise)
        return C if self.scale is None else C * self.scale[:, None] * self.scale[None, :]

    def precision(self) -> Array:
        """The inverse of the covariance, shape (d, d); see `floor`."""
        variances, noise = self._regular()
        elsewhere = 1.0 / noise if len(variances) < self.d else 0.0  # no other direction: nothing to cancel
        P = self._spread(1.0 / variances - elsewhere, elsewhere)
        return P if self.scale is None else P / self.scale[:, None] / self.scale[None, :]

    def _spread(self, values: np.ndarray, everywhere: float) -> Array:
        """V diag(values) Vᵀ + everywhere I."""
        V = self.components
        xp = namespace_of(V)
        weighted = xp.matrix_transpose(V) * from_host(values, V)[None, :]
        return add_to_diagonal(weighted @ V, everywhere)

    def log_likelihood(self, outside: Array, scores: Array) -> Array:
        """Of rows z with scores z V (m, p) and ‖z - V Vᵀz‖² outside of their space, shape (m,)."""
        xp, p = namespace_of(scores), int(scores.shape[1])
        variances, noise = self._regular()
        distance = xp.sum(scores * scores / from_host(variances, scores)[None, :], axis=1)
        constant = self.d * math.log(2.0 * math.pi) + float(np.sum(np.log(variances)))
        if self.scale is not None:
            constant += 2.0 * float(xp.sum(xp.log(self.scale)))
        if p < self.d:
            constant += (self.d - p) * math.log(noise)
            distance = distance + outside / noise
        return -0.5 * (distance + constant)

    @property
    def floor(self) -> float:
        """The variance that directions without any are given where the covariance is inverted: eps times the largest.

        A row off the space of the data so has a very small likelihood, not none.
        """
        return epsilon(self.components) * float(np.max(self.variances, initial=0.0))

    def _regular(self) -> tuple[np.ndarray, float]:
        """Variances and noise, all positive."""
        noise = self.noise if self.noise > 0 else self.floor
        if not noise > 0:
            raise np.linalg.LinAlgError("the data have no variance, so their Gaussian model has no density.")
        return np.maximum(self.variances, noise), noise


def minka_dimension(spectrum: np.ndarray, n: int) -> int:
    """The number of components in [1, d - 1] with the largest evidence, from all d variances.

    Minka, Automatic choice of dimensionality for PCA, NIPS 13 (2000) 598, equation 30.
    """
    d = len(spectrum)
    evidence = [-math.inf, *(_evidence(spectrum, rank, n) for rank in range(1, d))]
    return int(np.argmax(evidence)) if d > 1 else 0


def _evidence(spectrum: np.ndarray, rank: int, n: int) -> float:
    """The log-evidence of one dimension."""
    d = len(spectrum)
    if spectrum[rank - 1] < MINKA_EPS:
        return -math.inf
    halves = (d - np.arange(1, rank + 1) + 1) / 2.0
    volume = -rank * math.log(2.0) + float(np.sum(gammaln(halves) - math.log(math.pi) * halves))
    leading = -float(np.sum(np.log(spectrum[:rank]))) * n / 2.0
    noise = max(MINKA_EPS, float(np.sum(spectrum[rank:])) / (d - rank))
    trailing = -math.log(noise) * n * (d - rank) / 2.0
    m = d * rank - rank * (rank + 1.0) / 2.0
    constant = math.log(2.0 * math.pi) * (m + rank) / 2.0
    flattened = np.append(spectrum[:rank], np.full(d - rank, noise))
    hessian = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        for i in range(rank):
            gaps = spectrum[i] - spectrum[i + 1 :]
            curvature = 1.0 / flattened[i + 1 :] - 1.0 / flattened[i]
            hessian += float(np.sum(np.log(gaps * curvature) + math.log(n)))
    total = volume + leading + trailing + constant - hessian / 2.0 - rank * math.log(n) / 2.0
    return total if not math.isnan(total) else -math.inf
