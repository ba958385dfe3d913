"""Which pair of clusters and components is fitted: the one with the smallest BIC of those to be tried."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpukpca._formatting import format_bytes
from gpukpca.algorithms.mixture.component import free_parameters
from gpukpca.algorithms.mixture.fit import Alternation, MixtureSettings, Report, best_of
from gpukpca.algorithms.mixture.hard_assignment import classification_log_likelihood
from gpukpca.algorithms.mixture.initialization import start_labels
from gpukpca.algorithms.mixture.scaled_rows import ScaledRows
from gpukpca.algorithms.progress import Listener, Progress, listener_from
from gpukpca.backend.namespace import item_size
from gpukpca.backend.random import generator
from gpukpca.exceptions import MemoryBudgetError

# Arrays of the size of the weights (n, k), of d x d a worker, and of the data where they are rotated, that a fit holds.
WEIGHTS_HELD, SQUARES_HELD, ROTATED_HELD = 6, 5, 4


@dataclass(frozen=True)
class BICSelection:
    """The pair with the smallest BIC: how it was found, and what it is worth.

    Attributes
    ----------
    k, p : int
        Clusters asked for, and components.
    run : Alternation
    bic : float
    table : dict
        {(k, p): BIC} of all pairs.
    """

    k: int
    p: int
    run: Alternation
    bic: float
    table: dict[tuple[int, int], float]


def smallest_bic(estimator: Any, points: ScaledRows, pairs: list[tuple[int, int]], factor: float) -> BICSelection:
    """Every pair fitted, and the best of them; the first where two are equal.

    Parameters
    ----------
    estimator : LocalPCA
    points : Points, shape (n, d)
    pairs : list of (k, p), not empty
    factor : float
        What the data were multiplied by: BIC is that of the data in their own units.

    Notes
    -----
    The generators of a pair depend on k alone, so that what else is tried does not change its fit.
    """
    entropy = int(generator(estimator.random_state).integers(2**63))
    listener, table = listener_from(estimator.verbose), {}
    best: BICSelection | None = None
    for k, p in pairs:
        seeds = [np.random.default_rng((entropy, k, start)) for start in range(estimator.n_init)]
        starts = [start_labels(points, k, rng) for rng in seeds]
        run = _fitted(estimator, points, p, starts, _report(listener, k, p))
        table[k, p] = _bic(points, run, factor)
        if best is None or table[k, p] < best.bic:
            best = BICSelection(k, p, run, table[k, p], {})
    if best is None:
        raise ValueError("there is no pair to be tried.")
    return replace(best, table=table)


def _fitted(estimator: Any, points: ScaledRows, p: int, starts: list[np.ndarray], report: Report | None) -> Alternation:
    """The best of the starts; of a mixture also from the clusters that the nearest planes make of the same starts.

    Responsibilities move slowly between clusters that overlap at first, as long clusters beside each other do; the
    nearest planes do not.
    """
    if estimator.method == "mixture" and int(np.max(starts[0])) > 0:
        hard = best_of(points, _task(estimator, points, "hard", p), starts, estimator.max_iter)
        starts = [*starts, hard.labels]
    return best_of(points, _task(estimator, points, estimator.method, p), starts, estimator.max_iter, report)


def _task(estimator: Any, points: ScaledRows, method: str, p: int) -> MixtureSettings:
    """Floor and least gain, in the units of the points."""
    variance = points.frame.variance
    unit = 1.0 if method == "mixture" else variance * points.true_width
    return MixtureSettings(method, p, estimator.reg * (variance or 1.0), estimator.tol * unit)


def _bic(points: ScaledRows, run: Alternation, factor: float) -> float:
    """-2 log L + q log n, of the data in their own units."""
    n, d, k = points.shape[0], points.true_width, len(run.clusters)
    hard = run.task.method == "hard"
    total = classification_log_likelihood(points, run.clusters) if hard else n * run.value
    return -2.0 * (total + n * d * math.log(factor)) + free_parameters(k, run.task.p, d) * math.log(n)


def _report(listener: Listener | None, k: int, p: int) -> Report | None:
    """What is called after an iteration of the start that won."""
    if listener is None:
        return None

    def report(done: int, most: int, value: float) -> None:
        text = f"{k} clusters, {p} components, iteration {done}: {value:.9g}"
        listener(Progress("pass", text, done, most))

    return report


def check_memory(points: ScaledRows, k: int, limit: int) -> None:
    """Raise where what a fit holds beside the data and panels of them is more than the limit."""
    (n, d), item = points.shape, item_size(points.like.dtype)
    rotated = ROTATED_HELD * n * d if d > n else 0
    needed = item * (WEIGHTS_HELD * n * k + SQUARES_HELD * min(n, d) ** 2 * points.workers + rotated)
    if needed > limit:
        raise MemoryBudgetError(
            f"{k} clusters of {n} rows of {d} features need {format_bytes(needed)}, and {format_bytes(limit)} are "
            "allowed or free. Reduce the features with PCA first, ask for fewer clusters, n_jobs=1, or raise "
            "memory_limit."
        )
