"""Assigning rows to clusters and fitting clusters to their rows, in turn, from several starts; clusters that empty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import documented, field_of
from gpukpca.algorithms.mixture.component import Cluster, fit_cluster, soft_assignment
from gpukpca.algorithms.mixture.hard_assignment import hard_assignment
from gpukpca.algorithms.mixture.initialization import one_hot
from gpukpca.algorithms.mixture.scaled_rows import ScaledRows
from gpukpca.backend import blocking
from gpukpca.backend.namespace import indices, namespace_of, to_host
from gpukpca.backend.parallel import map_in_order

ASSIGNMENTS = {"mixture": soft_assignment, "hard": hard_assignment}
# Iterations that every start gets; the best goes on (Biernacki, Celeux & Govaert, Comput. Stat. Data Anal. 41 (2003)
# 561, have it for EM).
SHORT = 10
# Weights of responsibilities that sum to an integer may miss it by rounding.
ROUNDING = 1e-6

# Called after every iteration with its number, the most there may be, and the value.
Report = Callable[[int, int, float], None]


@documented
@dataclass(frozen=True)
class AlternationSettings:
    """Method, dimension and end of an alternation."""

    method: str
    p: int = field_of("", "dimension of the planes")
    floor: float = field_of("", "least noise of a cluster, in the units of the points")
    least_gain: float = field_of("", "the end is reached where the value rises by no more")


@documented
@dataclass(frozen=True)
class Responsibilities:
    """Weights of the rows in the clusters."""

    weights: Array = field_of("n k", "they sum to 1 in every row")
    values: Array = field_of("n", "log-densities of the rows, or minus their squared distances from the planes")
    counts: np.ndarray = field_of("k", "sums of the weights; on the host")
    means: Array = field_of("k d", "weighted")


def _gathered(parts: list[tuple[Array, Array, Array]]) -> Responsibilities:
    """Join panels of weights and values, and their weighted sums of rows."""
    xp = namespace_of(parts[0][0])
    weights = xp.concat([part[0] for part in parts], axis=0)
    totals = xp.sum(weights, axis=0)
    sums = sum((part[2] for part in parts[1:]), start=parts[0][2])
    means = sums / xp.where(totals > 0, totals, xp.ones_like(totals))[:, None]
    values = xp.concat([part[1] for part in parts], axis=0)
    return Responsibilities(weights, values, to_host(totals).astype(np.float64), means)


class Alternation:
    """The iteration from one start.

    Attributes
    ----------
    clusters : list of Cluster
    history : list of float
        The mean value of a row under the clusters of every iteration; it never falls. It begins anew where a cluster
        was put elsewhere or dropped.
    n_iter : int
        Times that clusters were fitted, the start not counted.
    converged : bool
    """

    def __init__(self, points: ScaledRows, task: AlternationSettings, labels: np.ndarray) -> None:
        self.points, self.task = points, task
        self.history: list[float] = []
        self.n_iter, self.converged = 0, False
        self.clusters: list[Cluster] = []
        self.assignment = self._started(labels)
        self.clusters = self._fitted(self.assignment)
        self._assign()

    @property
    def value(self) -> float:
        """Return the mean value of a row now."""
        return self.history[-1]

    @property
    def labels(self) -> np.ndarray:
        """Return the cluster with the most weight of every row, on the host: 0, 1, … without a gap."""
        weights = self.assignment.weights
        labels = to_host(namespace_of(weights).argmax(weights, axis=1))
        return np.unique(labels, return_inverse=True)[1].reshape(-1)

    def advance(self, most: int, report: Report | None = None) -> None:
        """Iterate until nothing is gained, or `most` iterations are done."""
        while not self.converged and self.n_iter < most:
            before = self.clusters, self.assignment
            self.clusters = self._fitted(self.assignment)
            self.n_iter += 1
            self._assign()
            if len(self.history) > 1 and self.history[-1] < self.history[-2]:  # rounding, on planes that hold all rows
                self.clusters, self.assignment = before
                self.history[-1] = self.history[-2]
            if report is not None:
                report(self.n_iter, most, self.value)

    def _assign(self) -> None:
        """Assign rows to clusters, again after every repair, and append the value."""
        self.assignment = self._assigned()
        while (repaired := self._repaired()) is not None:
            self.clusters, self.history = repaired, []
            self.assignment = self._assigned()
        values = self.assignment.values
        self.history.append(float(namespace_of(values).sum(values)) / self.points.shape[0])
        gained = self.history[-1] - self.history[-2] if len(self.history) > 1 else np.inf
        self.converged = gained <= self.task.least_gain

    def _assigned(self) -> Responsibilities:
        assign, clusters, missing = ASSIGNMENTS[self.task.method], self.clusters, self.points.missing

        def part(rows: Array, _: int) -> tuple[Array, Array, Array]:
            weights, values = assign(clusters, rows, missing)
            return weights, values, namespace_of(rows).matrix_transpose(weights) @ rows

        return _gathered(self.points.over_panels(part))

    def _started(self, labels: np.ndarray) -> Responsibilities:
        """Return the assignment of labels on the host."""
        k, like = int(np.max(labels)) + 1, self.points.like

        def part(rows: Array, start: int) -> tuple[Array, Array, Array]:
            weights = one_hot(indices(labels[start : start + int(rows.shape[0])], like), k, rows)
            return weights, rows[:, 0], namespace_of(rows).matrix_transpose(weights) @ rows

        return _gathered(self.points.over_panels(part))

    def _fitted(self, to: Responsibilities) -> list[Cluster]:
        """Fit every cluster to its rows: threads over clusters where there are enough of them, else over panels."""
        k, workers = len(to.counts), self.points.workers

        def one(c: int, threads: int) -> Cluster:
            if not to.counts[c] > ROUNDING:  # lost: a repair finds it
                return replace(self.clusters[c], weight=0.0)
            arguments = (to.weights[:, c], to.means[c, :], float(to.counts[c]), self.task.p, self.task.floor)
            cluster = fit_cluster(self.points, *arguments, threads)
            return replace(cluster, reseeded=bool(self.clusters) and self.clusters[c].reseeded)

        if k < workers:
            return [one(c, workers) for c in range(k)]
        worthwhile = self.points.shape[0] * self.points.shape[1] ** 2 >= blocking.MIXTURE_THREADS_FROM
        return map_in_order(lambda c: one(c, 1), list(range(k)), workers, threads=worthwhile)

    def _repaired(self) -> list[Cluster] | None:
        """Move the emptiest cluster, or drop it if it was moved before; return None where no cluster is empty.

        Empty is what has no more rows, by weight, than its plane has dimensions: any p + 1 rows lie in a plane.
        """
        counts, k = self.assignment.counts, len(self.clusters)
        c = int(np.argmin(counts))
        if k == 1 or counts[c] >= self.task.p + 1 - ROUNDING:
            return None
        others = [cluster for number, cluster in enumerate(self.clusters) if number != c]
        total = sum(cluster.weight for cluster in others)
        if self.clusters[c].reseeded:
            return [replace(cluster, weight=cluster.weight / total) for cluster in others]
        others = [replace(cluster, weight=cluster.weight / total * (k - 1) / k) for cluster in others]
        values = self.assignment.values
        worst = int(namespace_of(values).argmin(values))
        shape = self.clusters[int(np.argmax(counts))]
        moved = replace(shape, weight=1.0 / k, mean=self.points.some([worst])[0, :], reseeded=True)
        return [*others[:c], moved, *others[c:]]


def best_of(
    points: ScaledRows, task: AlternationSettings, starts: list[np.ndarray], max_iter: int, report: Report | None = None
) -> Alternation:
    """Return the best of several starts, labels on the host: each gets some iterations, and the best one all."""
    best: Alternation | None = None
    for labels in starts:
        run = Alternation(points, task, labels)
        run.advance(min(SHORT, max_iter) if len(starts) > 1 else 0)
        # A start that lost a cluster may owe its value to one that shrank onto a few rows.
        if best is None or (len(run.clusters), run.value) > (len(best.clusters), best.value):
            best = run
    if best is None:
        raise ValueError("there is no start.")
    best.advance(max_iter, report)
    return best
