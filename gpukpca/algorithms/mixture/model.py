"""What LocalPCA has learned, where it is computed: clusters in the units of the fit, and what they say of rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.mixture.alternation import ASSIGNMENTS
from gpukpca.algorithms.mixture.component import Cluster
from gpukpca.algorithms.mixture.scaled_rows import RowScaling, ScaledRows
from gpukpca.backend.finite import check_finite
from gpukpca.backend.namespace import cast, from_host, full, index_dtype, indices, namespace_of
from gpukpca.backend.random import standard_normal, weighted_draws


@dataclass(frozen=True)
class LocalModel:
    """Clusters, heaviest first.

    Attributes
    ----------
    method : "mixture" or "hard"
    frame : Frame
    clusters : list of Cluster
        In the units of the frame, in all d directions.
    """

    method: str
    frame: RowScaling
    clusters: list[Cluster]

    @property
    def dimension(self) -> int:
        """p."""
        return int(self.clusters[0].axes.shape[0])

    def assigned(self, rows: Array) -> tuple[Array, Array]:
        """Weights (m, k) and values (m,) of rows in the units of the frame; ValueError where they overflow."""
        weights, values = ASSIGNMENTS[self.method](self.clusters, rows)
        check_finite(values[:, None], "The new points are too large.", "The array of distances")
        return weights, values

    def labels(self, X: Any, n_jobs: int | None) -> Array:
        """Return the cluster of every row of data, shape (m,), in `index_dtype`."""
        xp = namespace_of(self.frame.shift)
        found = self._joined(X, n_jobs, lambda rows: xp.argmax(self.assigned(rows)[0], axis=1))
        return xp.astype(found, index_dtype(found))

    def memberships(self, X: Any, n_jobs: int | None) -> Array:
        """Responsibilities, shape (m, k)."""
        return self._joined(X, n_jobs, lambda rows: self.assigned(rows)[0])

    def values(self, X: Any, n_jobs: int | None) -> Array:
        """Log-densities, or minus squared distances, in the units of the data, shape (m,)."""
        return self.in_data_units(self._joined(X, n_jobs, lambda rows: self.assigned(rows)[1]))

    def in_data_units(self, values: Any) -> Any:
        """Log-densities or negative squares in the units of the frame, turned into those of the data."""
        if self.method == "mixture":
            return values + int(self.frame.shift.shape[0]) * math.log(self.frame.factor)
        return values / self.frame.factor / self.frame.factor

    def coordinates(self, X: Any, n_jobs: int | None) -> Array:
        """Of rows of data in the planes of their clusters, shape (m, p)."""
        scores = self._joined(X, n_jobs, lambda rows: self._chosen(rows, lambda cluster: cluster.split(rows)[0]))
        return scores / self.frame.factor

    def projected(self, X: Any, n_jobs: int | None) -> Array:
        """Rows of data on the planes of their clusters, shape (m, d)."""

        def part(rows: Array) -> Array:
            return self._chosen(rows, lambda cluster: cluster.point(cluster.split(rows)[0]))

        return self.frame.restored(self._joined(X, n_jobs, part))

    def placed(self, scores: Array, labels: Array) -> Array:
        """Points of data space from coordinates (m, p) in the planes of the labeled clusters."""
        scores = cast(scores, self.frame.shift.dtype) * self.frame.factor
        return self.frame.restored(self._picked(labels, [cluster.point(scores) for cluster in self.clusters]))

    def likeliest(self, scores: Array) -> Array:
        """The cluster in which coordinates are the most probable, weight times N(z; 0, Λ): labels, shape (m,)."""
        xp = namespace_of(scores)
        scores = cast(scores, self.frame.shift.dtype) * self.frame.factor
        joint = []
        for cluster in self.clusters:
            distance = xp.sum(scores * scores / from_host(cluster.variances, scores)[None, :], axis=1)
            constant = math.log(max(cluster.weight, math.ulp(0.0))) - 0.5 * float(np.sum(np.log(cluster.variances)))
            joint.append(constant - 0.5 * distance)
        return xp.argmax(xp.stack(joint, axis=1), axis=1)

    def drawn(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Rows (n, d) of the mixture in the units of the data, and their labels (n,)."""
        xp, like = namespace_of(self.frame.shift), self.frame.shift
        labels = indices(weighted_draws(rng, np.asarray([c.weight for c in self.clusters]), n), like)
        along = standard_normal(rng, (n, self.dimension), like)
        around = standard_normal(rng, (n, int(like.shape[0])), like)
        parts = []
        for cluster in self.clusters:
            roots = from_host(np.sqrt(cluster.variances - cluster.noise), like)
            parts.append(cluster.point(along * roots[None, :]) + math.sqrt(cluster.noise) * around)
        return self.frame.restored(self._picked(labels, parts)), xp.astype(labels, index_dtype(labels))

    def _joined(self, X: Any, n_jobs: int | None, work: Callable[[Array], Array]) -> Array:
        return ScaledRows(X, self.frame, n_jobs).joined(work)

    def _chosen(self, rows: Array, part: Callable[[Cluster], Array]) -> Array:
        """``part(cluster)`` of every row's own cluster."""
        xp = namespace_of(rows)
        labels = xp.argmax(self.assigned(rows)[0], axis=1)
        return self._picked(labels, (part(cluster) for cluster in self.clusters))

    def _picked(self, labels: Array, parts: Any) -> Array:
        """The row of the labeled part, for every row: one part at a time is held beside the result."""
        xp, result = namespace_of(labels), None
        for number, part in enumerate(parts):
            start = full(part.shape, 0.0, part) if result is None else result
            result = xp.where((labels == number)[:, None], part, start)
        return result


def rotated_back(clusters: list[Cluster], Q: Array) -> list[Cluster]:
    """Clusters found in the basis Q (d, r), in all d directions."""
    Qt = namespace_of(Q).matrix_transpose(Q)
    return [replace(cluster, mean=Q @ cluster.mean, axes=cluster.axes @ Qt) for cluster in clusters]
