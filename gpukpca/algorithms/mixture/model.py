"""Fit results of local PCA: clusters in the units of the fit, and labels, coordinates and densities of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.inputs import ComponentsResult
from gpukpca.algorithms.mixture.assignment import ASSIGNMENTS, Assignment
from gpukpca.algorithms.mixture.cluster import GaussianCluster
from gpukpca.algorithms.mixture.iteration import ClusterIteration
from gpukpca.algorithms.mixture.scaled_rows import RowScaling, ScaledRows
from gpukpca.algorithms.mixture.settings import MixtureMethod
from gpukpca.backend.namespace import (
    cast,
    from_host,
    full,
    host_values,
    index_dtype,
    indices,
    namespace_of,
)
from gpukpca.backend.random import standard_normal, weighted_draws
from gpukpca.data.finite import check_finite
from gpukpca.data.scale import variances_of_data
from gpukpca.exceptions import InvalidParameterError

TOO_LARGE = "The new points are too large."


@record(eq=False)
class LocalModel:
    """Clusters, heaviest first."""

    method: MixtureMethod = field_of("", '"mixture" or "hard"')
    frame: RowScaling = field_of("", "the units of the fit")
    clusters: list[GaussianCluster] = field_of("", "in these units, in all d directions")

    @property
    def assignment(self) -> Assignment:
        """Return the assignment of rows to clusters."""
        return ASSIGNMENTS[self.method]

    def assign(self, rows: Array) -> tuple[Array, Array]:
        """Return weights (m, k) and values (m,) of rows in the units of the fit; ValueError where they overflow."""
        weights, values = self.assignment.assign(self.clusters, rows)
        check_finite(values[:, None], TOO_LARGE, "The array of distances")
        return weights, values

    def labels(self, X: Array, n_jobs: int | None) -> Array:
        """Return the cluster of every row of data, shape (m,), in `index_dtype`."""
        xp = namespace_of(self.frame.shift)
        labels = self._map_rows(X, n_jobs, lambda rows: xp.argmax(self.assign(rows)[0], axis=1))
        return xp.astype(labels, index_dtype(labels))

    def memberships(self, X: Array, n_jobs: int | None) -> Array:
        """Return the weights of rows of data in the clusters, shape (m, k)."""
        return self._map_rows(X, n_jobs, lambda rows: self.assign(rows)[0])

    def values(self, X: Array, n_jobs: int | None) -> Array:
        """Return log-densities, or minus squared distances, in the units of the data, shape (m,)."""
        return self.in_data_units(self._map_rows(X, n_jobs, lambda rows: self.assign(rows)[1]))

    def in_data_units(self, values: Any) -> Any:
        """Convert values of rows from the units of the fit to those of the data."""
        return self.assignment.in_data_units(values, self.frame.factor, int(self.frame.shift.shape[0]))

    def coordinates(self, X: Array, n_jobs: int | None) -> Array:
        """Return the coordinates of rows of data in the planes of their clusters, shape (m, p)."""
        scores = self._map_rows(X, n_jobs, lambda rows: self._of_own(rows, lambda cluster: cluster.split(rows)[0]))
        return scores / self.frame.factor

    def project(self, X: Array, n_jobs: int | None) -> Array:
        """Return the nearest points of rows of data in the planes of their clusters, shape (m, d)."""

        def part(rows: Array) -> Array:
            return self._of_own(rows, lambda cluster: cluster.point(cluster.split(rows)[0]))

        return self.frame.in_data_units(self._map_rows(X, n_jobs, part))

    def points(self, scores: Array, labels: Array) -> Array:
        """Return points of data space for coordinates (m, p) in the planes of the labeled clusters."""
        scores = cast(scores, self.frame.shift.dtype) * self.frame.factor
        return self.frame.in_data_units(self._select(labels, [cluster.point(scores) for cluster in self.clusters]))

    def check_labels(self, labels: Any, m: int) -> Array:
        """Return labels of m rows where it is computed; raise `InvalidParameterError` where they are none."""
        host, k = host_values(labels), len(self.clusters)
        is_whole = host.shape == (m,) and host.dtype.kind in "iu" and not np.ma.is_masked(labels)
        if not is_whole or (host.size and not 0 <= int(host.min()) <= int(host.max()) < k):
            raise InvalidParameterError(
                f"labels must be integers from 0 to n_clusters_ - 1 = {k - 1}, one a row, shape ({m},), and none "
                f"masked; got {host.dtype} of shape {host.shape}."
            )
        return indices(host, self.frame.shift)

    def likeliest_labels(self, scores: Array) -> Array:
        """Return the cluster in which coordinates are the most probable, weight times N(z; 0, Λ), shape (m,)."""
        xp = namespace_of(scores)
        scores = cast(scores, self.frame.shift.dtype) * self.frame.factor
        joint = []
        for cluster in self.clusters:
            distance = xp.sum(scores * scores / from_host(cluster.variances, scores)[None, :], axis=1)
            constant = math.log(max(cluster.weight, math.ulp(0.0))) - 0.5 * float(np.sum(np.log(cluster.variances)))
            joint.append(constant - 0.5 * distance)
        return xp.argmax(xp.stack(joint, axis=1), axis=1)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw rows (n, d) of the mixture in the units of the data; return them and their labels (n,)."""
        xp, like = namespace_of(self.frame.shift), self.frame.shift
        labels = indices(weighted_draws(rng, np.asarray([c.weight for c in self.clusters]), n), like)
        along = standard_normal(rng, (n, len(self.clusters[0].variances)), like)
        around = standard_normal(rng, (n, int(like.shape[0])), like)
        parts = []
        for cluster in self.clusters:
            roots = from_host(np.sqrt(cluster.variances - cluster.noise), like)
            parts.append(cluster.point(along * roots[None, :]) + math.sqrt(cluster.noise) * around)
        return self.frame.in_data_units(self._select(labels, parts)), xp.astype(labels, index_dtype(labels))

    def _map_rows(self, X: Array, n_jobs: int | None, work: Callable[[Array], Array]) -> Array:
        return ScaledRows(X, self.frame, n_jobs).concatenate(work)

    def _of_own(self, rows: Array, part: Callable[[GaussianCluster], Array]) -> Array:
        """Return ``part(cluster)`` of every row's own cluster."""
        labels = namespace_of(rows).argmax(self.assign(rows)[0], axis=1)
        return self._select(labels, (part(cluster) for cluster in self.clusters))

    def _select(self, labels: Array, parts: Iterable[Array]) -> Array:
        """Return the row of the labeled part, for every row; only one part is in memory at a time."""
        xp, result = namespace_of(labels), None
        for number, part in enumerate(parts):
            start = full(part.shape, 0.0, part) if result is None else result
            result = xp.where((labels == number)[:, None], part, start)
        return result


@record(eq=False)
class MixtureFit(ComponentsResult):
    """Result of a local PCA, in the library of the data; clusters are in descending order of weight."""

    weights: Array = field_of("k", "shares of the rows", "nonnegative")
    means: Array = field_of("k d", "in the widest type")
    components: Array = field_of("k p d", "orthonormal rows; the entry of largest modulus is positive")
    explained_variance: Array = field_of("k p", "along the components; none below the noise", "nonnegative")
    noise_variance: Array = field_of("k", "in each direction off the plane", "nonnegative")
    labels: Array = field_of("n", "the cluster of every row of the fit", "index of k")
    n_iter: int = field_of("", "iterations of the best start")
    converged: bool = field_of("", "whether the last iteration gained no more than the tolerance")
    bic: dict[tuple[int, int], float] = field_of("", "BIC by clusters and components that were tried")
    fallbacks: tuple[str, ...] = field_of("", "failures of a device and what replaced them")
    model: LocalModel = field_of("", "the clusters in the units of the fit, in the widest type")
    log_likelihoods: Array | None = field_of("n_iter+1", "mean log-likelihoods of a row; mixtures", default=None)
    errors: Array | None = field_of("n_iter+1", 'mean squared distances from the plane; "hard"', default=None)

    @classmethod
    def of(
        cls, model: LocalModel, X: Array, run: ClusterIteration, bic: dict[tuple[int, int], float], n_jobs: int | None
    ) -> MixtureFit:
        """Return the result of the best start, with the labels of the rows X (n, d)."""
        xp, like, clusters, dtype = namespace_of(model.frame.shift), model.frame.shift, model.clusters, X.dtype
        variances = np.asarray([[*cluster.variances, cluster.noise] for cluster in clusters])
        variances = variances_of_data(variances, model.frame.factor, dtype)
        history, sign = model.assignment.history
        return cls(
            weights=from_host([cluster.weight for cluster in clusters], like, dtype),
            means=model.frame.in_data_units(xp.stack([cluster.mean for cluster in clusters], axis=0)),
            components=cast(xp.stack([cluster.axes for cluster in clusters], axis=0), dtype),
            explained_variance=from_host(variances[:, :-1], like, dtype),
            noise_variance=from_host(variances[:, -1], like, dtype),
            labels=model.labels(X, n_jobs),
            n_iter=run.n_iter,
            converged=run.converged,
            bic=bic,
            fallbacks=tuple(text for cluster in clusters for text in cluster.fallbacks),
            model=model,
            **{history: from_host(sign * model.in_data_units(np.asarray(run.history)), like)},
        )

    @property
    def n_clusters(self) -> int:
        """Return the number k of clusters that are left."""
        return len(self.model.clusters)

    def in_dtype(self, found: Array, advice: str = TOO_LARGE) -> Array:
        """Return a result of the model in the dtype of the data; ValueError where it is not finite."""
        found = cast(found, self.components.dtype)
        check_finite(found if found.ndim == 2 else found[:, None], advice, "The result")
        return found


# The classes of this folder that model files hold.
STORED = (MixtureFit, LocalModel, RowScaling, GaussianCluster)
