"""Candidate pairs of clusters and components, and the choice of the pair with the smallest BIC."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.mixture.assignment import ASSIGNMENTS, Assignment
from gpukpca.algorithms.mixture.initialization import start_labels
from gpukpca.algorithms.mixture.iteration import ClusterIteration, IterationSettings, Report
from gpukpca.algorithms.mixture.scaled_rows import ScaledRows
from gpukpca.algorithms.mixture.settings import Counts, MixtureSettings
from gpukpca.algorithms.progress import Listener, Progress
from gpukpca.backend.namespace import namespace_of
from gpukpca.exceptions import InvalidParameterError

# "bic" tries up to so many, as far as the data have so many rows and features.
MOST_CLUSTERS, MOST_COMPONENTS = 8, 10
# Iterations of every start before the best one continues (Biernacki, Celeux & Govaert, Comput. Stat. Data Anal. 41
# (2003) 561, do so for EM).
SHORT = 10


def candidate_pairs(n_clusters: Counts, n_components: Counts, n: int, d: int) -> list[tuple[int, int]]:
    """Return the pairs (k, p) that are fitted to n rows of d features, each once, smallest first.

    Raises `InvalidParameterError` for more clusters than rows, and for components more than rows or not fewer than
    features.
    """
    clusters = _counts(n_clusters, min(MOST_CLUSTERS, n))
    # One at least: a check below reports where that is too many.
    components = _counts(n_components, max(1, min(MOST_COMPONENTS, n, d - 1)))
    if clusters[-1] > n:
        raise InvalidParameterError(
            f"n_clusters={clusters[-1]} must be at most n_samples={n}: a cluster needs a row. Request fewer clusters, "
            "or give more rows.",
            argument="n_clusters",
        )
    if components[-1] >= d:
        raise InvalidParameterError(
            f"n_components={components[-1]} must be less than n_features={d}: planes of all dimensions do not separate "
            "clusters. Request fewer components; data of one feature (n_features = 1) have no local PCA.",
            argument="n_components",
        )
    if components[-1] > n:
        raise InvalidParameterError(
            f"n_components={components[-1]} must be at most min(n_samples, n_features - 1) = {min(n, d - 1)} with "
            f"n_samples={n}, n_features={d}. Request fewer components.",
            argument="n_components",
        )
    return [(k, p) for k in clusters for p in components]


def _counts(value: Counts, limit: int) -> list[int]:
    """Return different numbers, ascending."""
    if isinstance(value, str):
        return list(range(1, limit + 1))
    return sorted({int(count) for count in np.atleast_1d(np.asarray(value))})


def smallest_bic(
    points: ScaledRows,
    pairs: list[tuple[int, int]],
    factor: float,
    settings: MixtureSettings,
    rng: np.random.Generator,
    listener: Listener | None = None,
) -> tuple[tuple[int, int], ClusterIteration, dict[tuple[int, int], float]]:
    """Fit every pair (k, p); return the best, the first where two are equal, its best start, and the BIC of all.

    BIC is that of the data before they were multiplied by `factor`. One number is drawn from `rng`. The generators of
    a pair depend on k alone, so that its fit does not depend on the other pairs.
    """
    entropy, table, assignment = int(rng.integers(2**63)), {}, ASSIGNMENTS[settings.method]

    def fit(pair: tuple[int, int]) -> tuple[tuple[int, int], ClusterIteration]:
        k, p = pair
        seeds = [np.random.default_rng((entropy, k, start)) for start in range(settings.n_init)]
        starts = [start_labels(points, k, seed) for seed in seeds]
        report = None if listener is None else partial(_report, listener, k, p)
        run = best_fit(points, assignment, p, starts, settings, report)
        table[pair] = _bic(points, run, factor)
        return pair, run

    return *min(map(fit, pairs), key=lambda found: table[found[0]]), table


def best_fit(
    points: ScaledRows,
    assignment: Assignment,
    p: int,
    starts: list[Array],
    settings: MixtureSettings,
    report: Report | None = None,
) -> ClusterIteration:
    """Return the best iteration of several starts, labels of the rows; only the best one gets all iterations.

    The clusters of the precursor are one more start.
    """
    if assignment.precursor is not None and int(namespace_of(starts[0]).max(starts[0])) > 0:
        starts = [*starts, best_fit(points, assignment.precursor, p, starts, settings).labels]
    floor = settings.reg * (points.frame.variance or 1.0)
    least_gain = settings.tol * assignment.unit_of_gain(points)
    how = IterationSettings(assignment, p, floor, least_gain)

    def start(labels: Array) -> ClusterIteration:
        run = ClusterIteration(points, how, labels)
        run.advance(min(SHORT, settings.max_iter) if len(starts) > 1 else 0)
        return run

    # A start that lost a cluster may owe its value to one that shrank onto a few rows.
    best = max(map(start, starts), key=lambda run: (len(run.clusters), run.value))
    best.advance(settings.max_iter, report)
    return best


def _bic(points: ScaledRows, run: ClusterIteration, factor: float) -> float:
    """Return -2 log L + q log n of the data in their own units, with q parameters."""
    n, d, k = points.count, points.true_width, len(run.clusters)
    total = run.settings.assignment.log_likelihood(points, run.clusters, run.value)
    return -2.0 * (total + n * d * math.log(factor)) + free_parameters(k, run.settings.p, d) * math.log(n)


def free_parameters(k: int, p: int, d: int) -> int:
    """Return the number of parameters: k weights, and p axes with variances, a noise and a mean each."""
    return k * (d * p - p * (p - 1) // 2 + 1 + d) + k - 1


def _report(listener: Listener, k: int, p: int, done: int, limit: int, value: float) -> None:
    """Report an iteration of the best start."""
    listener(Progress("pass", f"{k} clusters, {p} components, iteration {done}: {value:.9g}", done, limit))
