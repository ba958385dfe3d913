"""Assign rows to clusters and fit clusters to their rows, in turn, from several starts; repair clusters that empty."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.mixture.assignment import Assignment, one_hot
from gpukpca.algorithms.mixture.cluster import GaussianCluster, fit_cluster
from gpukpca.algorithms.mixture.scaled_rows import ScaledRows
from gpukpca.backend.namespace import indices, namespace_of, to_host
from gpukpca.backend.parallel import map_in_order

# Weights of responsibilities that sum to an integer may miss it by rounding.
ROUNDING = 1e-6

# Called after every iteration with its number, the most there may be, and the value.
Report = Callable[[int, int, float], None]


@record()
class IterationSettings:
    """Assignment, dimension and end of an iteration."""

    assignment: Assignment
    p: int = field_of("", "dimension of the planes")
    floor: float = field_of("", "least noise of a cluster, in the units of the points")
    least_gain: float = field_of("", "an iteration that raises the value by no more is the last")


@record()
class Responsibilities:
    """Weights of the rows in the clusters."""

    weights: Array = field_of("n k", "they sum to how often a row is there")
    values: Array = field_of("n", "values of the rows, such as log-densities")
    counts: np.ndarray = field_of("k", "sums of the weights; on the host")
    means: Array = field_of("k d", "weighted")

    @classmethod
    def of(cls, points: ScaledRows, assign: Callable[[Array, int], tuple[Array, Array]]) -> Responsibilities:
        """Collect ``assign(rows, start)``, weights and values, of all panels."""
        xp = namespace_of(points.like)

        def part(rows: Array, start: int) -> tuple[Array, Array, Array]:
            weights, values = assign(rows, start)
            weights = points.times(weights, start)
            return weights, values, weights.T @ rows

        *of_rows, sums = zip(*points.map_panels(part), strict=True)
        weights, values = (xp.concat(list(parts), axis=0) for parts in of_rows)
        totals = xp.sum(weights, axis=0)
        means = reduce(operator.add, sums) / xp.where(totals > 0, totals, xp.ones_like(totals))[:, None]
        return cls(weights, values, to_host(totals).astype(np.float64), means)

    @classmethod
    def of_labels(cls, points: ScaledRows, labels: Array) -> Responsibilities:
        """Return weights 1 for labels, with values of no meaning."""
        k = int(namespace_of(labels).max(labels)) + 1

        def assign(rows: Array, start: int) -> tuple[Array, Array]:
            weights = one_hot(labels[start : start + int(rows.shape[0])], k, rows)
            return weights, weights[:, 0]  # a view of the rows would keep all of them

        return cls.of(points, assign)


def without_gaps(labels: Array, k: int) -> Array:
    """Return labels 0, 1, … in place of those of 0 … k - 1 that occur."""
    xp = namespace_of(labels)
    occur = to_host(xp.stack([xp.any(labels == label) for label in range(k)]))
    return labels if occur.all() else xp.take(indices(np.cumsum(occur) - 1, labels), labels)


class ClusterIteration:
    """The iteration from one start.

    Attributes
    ----------
    clusters : list of GaussianCluster
    history : list of float
        The mean value of a row under the clusters of every iteration; it never falls. It starts again where a cluster
        was moved or dropped.
    n_iter : int
        Fits of the clusters, the start not counted.
    converged : bool
    """

    def __init__(self, points: ScaledRows, settings: IterationSettings, labels: Array) -> None:
        self.points = points
        self.settings = settings
        self.history: list[float] = []
        self.n_iter: int = 0
        self.converged: bool = False
        self.clusters: list[GaussianCluster] = []
        self.responsibilities: Responsibilities = Responsibilities.of_labels(points, labels)
        self.clusters = self._fit_clusters()
        self._assign()

    @property
    def value(self) -> float:
        """Return the mean value of a row now."""
        return self.history[-1]

    @property
    def labels(self) -> Array:
        """Return the cluster with the most weight of every row: 0, 1, … without a gap."""
        weights = self.responsibilities.weights
        return without_gaps(namespace_of(weights).argmax(weights, axis=1), int(weights.shape[1]))

    def advance(self, limit: int, report: Report | None = None) -> None:
        """Iterate until nothing is gained, or `limit` iterations are done."""
        while not self.converged and self.n_iter < limit:
            before = self.clusters, self.responsibilities
            self.clusters = self._fit_clusters()
            self.n_iter += 1
            self._assign()
            has_fallen = len(self.history) > 1 and self.history[-1] < self.history[-2]
            if has_fallen:  # by rounding, on planes that contain all rows
                self.clusters, self.responsibilities = before
                self.history[-1] = self.history[-2]
            if report is not None:
                report(self.n_iter, limit, self.value)

    def _assign(self) -> None:
        """Assign rows to clusters, again after every repair, and append the value."""
        self.responsibilities = self._weigh_rows()
        while (repaired := self._repair()) is not None:
            self.clusters, self.history = repaired, []
            self.responsibilities = self._weigh_rows()
        values = self.responsibilities.values
        self.history.append(float(namespace_of(values).sum(self.points.times(values))) / self.points.count)
        gain = self.history[-1] - self.history[-2] if len(self.history) > 1 else np.inf
        self.converged = gain <= self.settings.least_gain

    def _weigh_rows(self) -> Responsibilities:
        assign, clusters, missing = self.settings.assignment.assign, self.clusters, self.points.missing
        return Responsibilities.of(self.points, lambda rows, _: assign(clusters, rows, missing))

    def _fit_clusters(self) -> list[GaussianCluster]:
        """Fit every cluster to its rows: threads over clusters where there are enough of them, else over panels."""
        to, points = self.responsibilities, self.points
        k, workers = len(to.counts), points.workers

        def fit(c: int, threads: int) -> GaussianCluster:
            if not to.counts[c] > ROUNDING:  # empty: a repair finds it
                return replace(self.clusters[c], weight=0.0)
            arguments = (to.weights[:, c], to.means[c, :], float(to.counts[c]), self.settings.p, self.settings.floor)
            cluster = fit_cluster(points, *arguments, threads)
            return replace(cluster, reseeded=bool(self.clusters) and self.clusters[c].reseeded)

        if k < workers:
            return [fit(c, workers) for c in range(k)]
        return map_in_order(lambda c: fit(c, 1), list(range(k)), workers)

    def _repair(self) -> list[GaussianCluster] | None:
        """Move the emptiest cluster, or drop it if it was moved before; return None where no cluster is empty.

        A cluster is empty if it has no more rows, by weight, than its plane has dimensions: any p + 1 rows lie in a
        plane.
        """
        counts, k = self.responsibilities.counts, len(self.clusters)
        c = int(np.argmin(counts))
        if k == 1 or counts[c] >= self.settings.p + 1 - ROUNDING:
            return None
        others = [cluster for number, cluster in enumerate(self.clusters) if number != c]
        total = sum(cluster.weight for cluster in others)
        if self.clusters[c].reseeded:
            return [replace(cluster, weight=cluster.weight / total) for cluster in others]
        others = [replace(cluster, weight=cluster.weight / total * (k - 1) / k) for cluster in others]
        values = self.responsibilities.values
        worst = int(namespace_of(values).argmin(values))
        shape = self.clusters[int(np.argmax(counts))]
        moved = replace(shape, weight=1.0 / k, mean=self.points.take([worst])[0, :], reseeded=True)
        return [*others[:c], moved, *others[c:]]
