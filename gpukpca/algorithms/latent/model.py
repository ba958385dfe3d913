"""What is known of z given x in the model x | z ~ N(W z + μ, σ² I), z ~ N(0, I), also where entries are missing.

In the principal form W = V (Λ - σ²)^½ with orthonormal V, and for complete rows M = WᵀW + σ² I is Λ itself.

Tipping & Bishop, J. R. Stat. Soc. B 61 (1999) 611, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.latent.e_step import EStep, Parameters, panel_rows
from gpukpca.algorithms.latent.initialization import NOISE_FLOOR
from gpukpca.algorithms.magnitude import scaled_rows
from gpukpca.algorithms.pca.gaussian import GaussianModel
from gpukpca.algorithms.placement import panels_of
from gpukpca.backend.linalg import thin_svd
from gpukpca.backend.namespace import cast, epsilon, from_host, move, namespace_of, to_host
from gpukpca.backend.parallel import map_tiles, restore_order, worker_count
from gpukpca.backend.rows import dense_rows, gather_rows, take_rows
from gpukpca.eigen.residuals import signs

# The noise floor of EM is a share of the largest variance at its start, which may have grown since: by 1 / GROWN.
GROWN = 0.01

# From centered complete rows (b, d), or from such rows with zeros in the holes and the mask, to results for every row.
OfComplete = Callable[[Array], Array]
OfIncomplete = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class LatentModel:
    """The model in its principal form, in the widest floating type where it is computed.

    Attributes
    ----------
    axes : array, shape (d, p)
        V.
    variances : host array, shape (p,)
        Λ, descending, of the model's covariance in the directions V; at least the noise.
    noise : float
        σ²; 0 where the data are in the space of V.
    mean : array, shape (d,)
    scale : float
        The power of two that rows are multiplied by: all of the above is in these units.
    """

    axes: Array
    variances: np.ndarray
    noise: float
    mean: Array
    scale: float = 1.0

    @classmethod
    def of(cls, parameters: Parameters, factor: float, scale: float) -> LatentModel:
        """Return the principal form of W, μ, σ² of rows times `scale`; the covariance times `factor`."""
        W, noise = parameters.loadings, factor * parameters.noise
        if W.shape[1] == 0:
            return cls(W, np.zeros(0), noise, parameters.mean, scale)
        U, values, _ = thin_svd(namespace_of(W).asarray(W, copy=True))
        return cls(U * signs(U)[None, :], factor * values**2 + noise, noise, parameters.mean, scale)

    @property
    def n_components(self) -> int:
        """p."""
        return len(self.variances)

    @property
    def total(self) -> float:
        """Return the trace of the model's covariance, of scaled rows."""
        return float(np.sum(self.variances)) + (int(self.mean.shape[0]) - self.n_components) * self.noise

    @property
    def roots(self) -> np.ndarray:
        """(Λ - σ²)^½, the lengths of the loadings, on the host."""
        return np.sqrt(np.maximum(self.variances - self.noise, 0.0))

    @property
    def loadings(self) -> Array:
        """Return W, shape (d, p), of scaled rows."""
        return self.axes * from_host(self.roots, self.axes)[None, :]

    @property
    def posterior_variances(self) -> np.ndarray:
        """The diagonal of σ² M⁻¹ of a complete row, on the host; the prior's 1 where nothing varies."""
        nothing = self.variances <= 0
        return np.where(nothing, 1.0, self.noise / np.where(nothing, 1.0, self.variances))

    def posterior_means(self, Y: Any) -> Array:
        """⟨z⟩ of new rows, shape (m, p)."""
        weights = from_host(self.roots / np.where(self.variances > 0, self.variances, 1.0), self.axes)
        step = self._expectation()

        def incomplete(R: Array, mask: Array) -> Array:
            return namespace_of(R).matrix_transpose(step.posterior(R, mask).means)

        return self._by_rows(Y, step, lambda R: (R @ self.axes) * weights[None, :], incomplete)

    def posterior_covariances(self, Y: Any) -> Array:
        """cov z of new rows, shape (m, p, p)."""
        shared = from_host(np.diag(self.posterior_variances), self.axes)[None, :, :]
        step = self._expectation()

        def complete(R: Array) -> Array:
            ones = namespace_of(R).ones_like(R[:, :1])
            return ones[:, :, None] * shared

        def incomplete(R: Array, mask: Array) -> Array:
            return namespace_of(R).permute_dims(step.posterior(R, mask).covariances, (2, 0, 1))

        return self._by_rows(Y, step, complete, incomplete)

    def points(self, Z: Array) -> Array:
        """Return W z + μ for the rows of Z, in the units of the data."""
        return (Z @ namespace_of(Z).matrix_transpose(self.loadings) + self.mean[None, :]) / self.scale

    def log_likelihood(self, Y: Any) -> Array:
        """Of the observed entries of every new row, shape (m,).

        Raises
        ------
        numpy.linalg.LinAlgError
            The model has no variance at all.
        """
        xp = namespace_of(self.axes)
        model = GaussianModel(xp.matrix_transpose(self.axes), self.variances, self.noise, None)
        step = self._expectation(model.regular()[1])

        log_scale = math.log(self.scale)

        def complete(R: Array) -> Array:
            scores = R @ self.axes
            off = R - scores @ model.components
            return model.log_likelihood(xp.sum(off * off, axis=1), scores) + model.d * log_scale

        def incomplete(R: Array, mask: Array) -> Array:
            found, noise = step.posterior(R, mask), step.parameters.noise
            Z = xp.matrix_transpose(found.means)
            off = R - mask * (Z @ xp.matrix_transpose(step.parameters.loadings))
            misfit = xp.sum(off * off, axis=1) / noise + xp.sum(Z * Z, axis=1)
            counts = xp.sum(mask, axis=1)
            constant = counts * math.log(2.0 * math.pi) + (counts - self.n_components) * math.log(noise)
            return counts * log_scale - 0.5 * (constant + found.log_determinants + misfit)

        return self._by_rows(Y, step, complete, incomplete)

    def _expectation(self, noise: float | None = None) -> EStep:
        """The E step for incomplete rows, with a noise variance that lets it be computed where there is none."""
        noise = self.noise if noise is None else noise
        least = max(NOISE_FLOOR, 8.0 * epsilon(self.axes)) * float(np.max(self.variances, initial=0.0))
        regular = noise if noise > GROWN * least else least
        return EStep(Parameters(self.loadings, self.mean, regular if regular > 0 else 1.0))

    def _by_rows(self, Y: Any, step: EStep, complete: OfComplete, incomplete: OfIncomplete) -> Array:
        """Panel by panel, which threads share; a row's result does not depend on whether others have holes."""

        def part(cut: tuple[int, int]) -> Array:
            rows = scaled_rows(move(dense_rows(take_rows(Y, *cut)), self.axes), self.scale)
            return self._of_panel(rows, step, complete, incomplete)

        cuts = panels_of(Y, panel_rows(Y, self.n_components))
        parts = restore_order(map_tiles(part, cuts, worker_count(self.axes, None)), len(cuts))
        return parts[0] if len(parts) == 1 else namespace_of(parts[0]).concat(parts, axis=0)

    def _of_panel(self, rows: Array, step: EStep, complete: OfComplete, incomplete: OfIncomplete) -> Array:
        xp = namespace_of(rows)
        seen = ~xp.isnan(rows)
        is_complete = to_host(xp.all(seen, axis=1))
        whole, others = np.flatnonzero(is_complete), np.flatnonzero(~is_complete)
        if not len(others):
            return complete(step.centered(rows))
        if not len(whole):
            return incomplete(*step.without_missing(rows, seen))
        found = xp.concat(
            [
                complete(step.centered(gather_rows(rows, whole))),
                incomplete(*step.without_missing(gather_rows(rows, others), gather_rows(seen, others))),
            ],
            axis=0,
        )
        return gather_rows(found, np.argsort(np.concatenate([whole, others])))


def filled(Y: Array, points: Array) -> Array:
    """Y with the entries of `points` in the place of missing ones, in the dtype of Y."""
    xp = namespace_of(Y)
    return xp.where(xp.isnan(Y), cast(points, Y.dtype), Y)
