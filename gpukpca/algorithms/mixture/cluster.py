"""One cluster of a local PCA: its density, and its fit to weighted rows.

Tipping & Bishop, Neural Computation 11 (1999) 443.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.mixture.scaled_rows import ScaledRows
from gpukpca.algorithms.pca.gaussian import GaussianModel
from gpukpca.backend import blocking
from gpukpca.backend.elementwise import add
from gpukpca.backend.linalg import largest_eigenpairs
from gpukpca.backend.namespace import from_host, namespace_of, to_host, true_positions
from gpukpca.backend.parallel import single_threaded_blas
from gpukpca.data.slicing import gather_rows
from gpukpca.data.statistics import row_square_sums
from gpukpca.eigen import Dense, top_eigh
from gpukpca.eigen.residuals import signs
from gpukpca.gram import DenseGram

# Rows with less weight than this cannot change a digit of a cluster's sums.
NEGLIGIBLE = 1e-32


@record(eq=False)
class GaussianCluster:
    """x ~ N(mean, Vᵀ(Λ - σ²)V + σ²I), in the units of a fit."""

    weight: float = field_of("", "share of the rows", "positive")
    mean: Array = field_of("d", "of its rows")
    axes: Array = field_of("p d", "V, orthonormal rows")
    variances: np.ndarray = field_of("p", "Λ, descending, none below the noise; on the host", "nonnegative")
    noise: float = field_of("", "σ²", "positive")
    reseeded: bool = field_of("", "whether it was empty before, and moved", default=False)
    fallbacks: tuple[str, ...] = field_of("", "failures of the eigensolver on a device", default=())

    @cached_property
    def density(self) -> GaussianModel:
        """Return the density of its rows, whose variances are copied to a device once."""
        return GaussianModel(self.axes, self.variances, self.noise, None)

    def split(self, rows: Array) -> tuple[Array, Array]:
        """Return coordinates (m, p) in the plane of the cluster, and squared distances (m,) from it."""
        centered = rows - self.mean[None, :]
        scores = centered @ self.axes.T
        return scores, row_square_sums(add(-scores @ self.axes, centered))

    def point(self, scores: Array) -> Array:
        """Return the points (m, d) of the plane with these coordinates (m, p)."""
        return scores @ self.axes + self.mean[None, :]

    def in_all_directions(self, basis: Array | None) -> GaussianCluster:
        """Return the cluster of coordinates in a basis (d, r) in all d directions, the largest entries positive."""
        mean, axes = self.mean, self.axes
        if basis is not None:
            mean, axes = basis @ mean, axes @ basis.T
        return replace(self, mean=mean, axes=axes * signs(axes.T)[:, None])

    def joint_log_density(self, rows: Array, missing: int = 0) -> Array:
        """Return log(weight N(x)) of every row; in `missing` directions more all rows are at the mean."""
        scores, outside = self.split(rows)
        log_density = self.density.log_likelihood(outside, scores)
        log_weight = math.log(self.weight) if self.weight > 0 else -math.inf
        return log_density + (log_weight - 0.5 * missing * math.log(2.0 * math.pi * self.noise))


def fit_cluster(
    points: ScaledRows, weights: Array, mean: Array, count: float, p: int, floor: float, workers: int
) -> GaussianCluster:
    """Return the cluster of maximum likelihood for weighted rows, among noises of at least `floor`.

    `count` is the sum of the weights (n,) and `mean` (d,) the weighted mean of the rows; p < d.

    S = Σ w (x - mean)(x - mean)ᵀ / Σ w has the eigenvalues λ. As a function of a variance v, log v + λ/v falls up to
    v = λ and rises beyond. So the best noise is the mean of the d - p smallest λ, at least the floor, and the best
    variance along an axis is its λ, at least the noise (appendix A of the paper, without a floor). The maximum is
    exact, so that EM is monotone with the floor too.
    """
    xp = namespace_of(points.like)
    chosen = true_positions(weights > NEGLIGIBLE)
    own = gather_rows(weights, chosen)

    def part(rows: Array, start: int, stop: int) -> Array:
        centered = rows - mean[None, :]
        return (centered * own[start:stop, None]).T @ centered

    S = points.sum_panels(part, chosen, workers) / count
    S = 0.5 * (S + S.T)
    trace, values, vectors, fallbacks = _leading_pairs(S, p)
    noise = max((trace - float(np.sum(values))) / (points.true_width - p), floor)
    axes = xp.asarray(vectors.T, copy=True)
    return GaussianCluster(count / points.count, mean, axes, np.maximum(values, noise), noise, fallbacks=fallbacks)


def _leading_pairs(S: Array, p: int) -> tuple[float, np.ndarray, Array, tuple[str, ...]]:
    """Return trace and p largest eigenvalues of a covariance on the host, vectors (d, p), and failures of a device."""
    is_small = int(S.shape[0]) <= blocking.MIXTURE_HOST_UP_TO
    held = to_host(S) if is_small else S
    xp = namespace_of(held)
    trace = float(xp.sum(xp.linalg.diagonal(held)))
    if not is_small:
        eigen = top_eigh(DenseGram(S), p, Dense())
        values = np.maximum(to_host(eigen.eigenvalues).astype(np.float64), 0.0)
        return trace, values, eigen.eigenvectors, eigen.fallbacks
    with single_threaded_blas():
        values, vectors = largest_eigenpairs(held, lambda _: p)
    return trace, np.maximum(values[:p], 0.0), from_host(vectors, S), ()
