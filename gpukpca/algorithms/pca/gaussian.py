"""The Gaussian model behind PCA: covariance, precision, likelihood.

x ~ N(m, V (Λ - σ²I) Vᵀ + σ²I): Tipping & Bishop, J. R. Stat. Soc. B 61 (1999) 611; Bishop, Pattern Recognition and
Machine Learning (2006), 12.2.1.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.backend.linalg import add_to_diagonal
from gpukpca.backend.namespace import accumulation_dtype, cast, epsilon, from_host, namespace_of

UNCENTERED = (
    "the components are of rows that were not centered (center=False), so there is no covariance and no likelihood; "
    "fit with center=True for the Gaussian model."
)


@record()
class GaussianModel:
    """The model of scaled data z = (x - m) / s."""

    components: Array = field_of("p d", "V, unit rows")
    variances: np.ndarray = field_of("p", "Λ, on the host")
    noise: float = field_of("", "σ², the variance in every other direction")
    scale: Array | None = field_of("d", "s; None stands for ones")

    @property
    def d(self) -> int:
        """Return the number of features."""
        return int(self.components.shape[1])

    def covariance(self) -> Array:
        """Return the covariance, shape (d, d), in the units of the data."""
        above = np.maximum(self.variances - self.noise, 0.0)
        C = self._spread(above, self.noise)
        return C if self.scale is None else C * self.scale[:, None] * self.scale[None, :]

    def precision(self) -> Array:
        """Return the inverse of the covariance, shape (d, d); see `regular`."""
        variances, noise = self.regular()
        elsewhere = 1.0 / noise if len(variances) < self.d else 0.0  # there is no other direction
        P = self._spread(1.0 / variances - elsewhere, elsewhere)
        return P if self.scale is None else P / self.scale[:, None] / self.scale[None, :]

    def _spread(self, values: np.ndarray, everywhere: float) -> Array:
        """Return V diag(values) Vᵀ + everywhere I."""
        V = self.components
        weighted = V.T * from_host(values, V)[None, :]
        return add_to_diagonal(weighted @ V, everywhere)

    def log_likelihood(self, outside: Array, scores: Array) -> Array:
        """Return the log-likelihood (m,), wide, of rows with scores (m, p) at squared distances (m,) outside of V."""
        xp, p = namespace_of(scores), int(scores.shape[1])
        variances, noise = self.regular()
        # Squares of small single precision data are 0 in single precision.
        scores = cast(scores, accumulation_dtype(scores))
        distance = xp.sum(scores * scores / self._divisors[None, :], axis=1)
        constant = self.d * math.log(2.0 * math.pi) + float(np.sum(np.log(variances)))
        if self.scale is not None:
            constant += 2.0 * float(xp.sum(xp.log(self.scale)))
        if p < self.d:
            constant += (self.d - p) * math.log(noise)
            distance = distance + outside / noise
        return -0.5 * (distance + constant)

    @cached_property
    def _divisors(self) -> Array:
        """Return the variances, all positive, where the components are, wide."""
        return from_host(self.regular()[0], self.components, accumulation_dtype(self.components))

    def regular(self) -> tuple[np.ndarray, float]:
        """Return variances and noise, all positive: eps times the largest one in place of 0.

        A row outside the space of the data then has a very small likelihood, not 0.
        """
        noise = self.noise
        if not noise > 0:
            noise = epsilon(self.components) * float(np.max(self.variances, initial=0.0))
        if not noise > 0:
            raise np.linalg.LinAlgError("the data have no variance that float64 can hold: their model has no density.")
        return np.maximum(self.variances, noise), noise
