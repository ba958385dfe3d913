"""Candidate pairs of clusters and components, and the choice of the pair with the smallest BIC."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gpukpca._formatting import format_bytes
from gpukpca.algorithms.fields import documented, field_of
from gpukpca.algorithms.mixture.alternation import Alternation, AlternationSettings, Report, best_of
from gpukpca.algorithms.mixture.component import free_parameters
from gpukpca.algorithms.mixture.hard_assignment import classification_log_likelihood
from gpukpca.algorithms.mixture.initialization import start_labels
from gpukpca.algorithms.mixture.scaled_rows import ScaledRows
from gpukpca.algorithms.mixture.settings import Counts, MixtureSettings
from gpukpca.algorithms.progress import Listener, Progress
from gpukpca.backend.namespace import item_size
from gpukpca.exceptions import InvalidParameterError, MemoryBudgetError

# "bic" tries up to so many, as far as the data have so many rows and features.
MOST_CLUSTERS, MOST_COMPONENTS = 8, 10
# Arrays of the size of the weights (n, k), of d x d a worker, and of the data where they are rotated, that a fit holds.
WEIGHTS_HELD, SQUARES_HELD, ROTATED_HELD = 6, 5, 4


@documented
@dataclass(frozen=True)
class BICSelection:
    """The pair with the smallest BIC, and its fit."""

    k: int = field_of("", "clusters requested")
    p: int = field_of("", "components")
    run: Alternation = field_of("", "the start that won")
    bic: float = field_of("", "of this pair")
    table: dict[tuple[int, int], float] = field_of("", "{(k, p): BIC} of all pairs")


def candidates(n_clusters: Counts, n_components: Counts, n: int, d: int) -> list[tuple[int, int]]:
    """Return the pairs (k, p) that are fitted to n rows of d features, each once, smallest first.

    Raises
    ------
    InvalidParameterError
        More clusters than rows, or components than rows, or as many as features.
    """
    clusters = _counts(n_clusters, min(MOST_CLUSTERS, n))
    # One at least: where that is too many, the message below says so.
    components = _counts(n_components, max(1, min(MOST_COMPONENTS, n, d - 1)))
    if clusters[-1] > n:
        raise InvalidParameterError(
            f"n_clusters={clusters[-1]} must be at most n_samples={n}: a cluster needs a row. Ask for fewer, or give "
            "more rows."
        )
    if components[-1] >= d:
        raise InvalidParameterError(
            f"n_components={components[-1]} must be less than n_features={d}: planes of all dimensions leave nothing "
            "to tell clusters apart. Ask for fewer components; data of one feature (n_features = 1) have no local PCA."
        )
    if components[-1] > n:
        raise InvalidParameterError(
            f"n_components={components[-1]} must be at most min(n_samples, n_features - 1) = {min(n, d - 1)} with "
            f"n_samples={n}, n_features={d}."
        )
    return [(k, p) for k in clusters for p in components]


def _counts(value: Counts, most: int) -> list[int]:
    """Return different numbers, ascending."""
    if isinstance(value, str):
        return list(range(1, most + 1))
    return [int(value)] if isinstance(value, (int, np.integer)) else sorted({int(count) for count in value})


def smallest_bic(
    points: ScaledRows,
    pairs: list[tuple[int, int]],
    factor: float,
    settings: MixtureSettings,
    rng: np.random.Generator,
    listener: Listener | None = None,
) -> BICSelection:
    """Fit every pair (k, p) and return the best; the first where two are equal.

    BIC is that of the data before they were multiplied by `factor`. One number is drawn from `rng`: the generators of a
    pair depend on k alone, so that what else is tried does not change its fit.
    """
    entropy, table = int(rng.integers(2**63)), {}
    best: BICSelection | None = None
    for k, p in pairs:
        seeds = [np.random.default_rng((entropy, k, start)) for start in range(settings.n_init)]
        starts = [start_labels(points, k, rng) for rng in seeds]
        run = _best_fit(settings, points, p, starts, _report(listener, k, p))
        table[k, p] = _bic(points, run, factor)
        if best is None or table[k, p] < best.bic:
            best = BICSelection(k, p, run, table[k, p], {})
    if best is None:
        raise ValueError("there is no pair of clusters and components.")
    return replace(best, table=table)


def _best_fit(
    settings: MixtureSettings, points: ScaledRows, p: int, starts: list[np.ndarray], report: Report | None
) -> Alternation:
    """Return the best of the starts; a mixture also starts from the clusters of the nearest planes.

    Responsibilities move slowly between clusters that overlap at first, as long clusters beside each other do; the
    nearest planes do not.
    """
    if settings.method == "mixture" and int(np.max(starts[0])) > 0:
        hard = best_of(points, _task(settings, points, "hard", p), starts, settings.max_iter)
        starts = [*starts, hard.labels]
    return best_of(points, _task(settings, points, settings.method, p), starts, settings.max_iter, report)


def _task(settings: MixtureSettings, points: ScaledRows, method: str, p: int) -> AlternationSettings:
    """Return floor and least gain in the units of the points."""
    variance = points.frame.variance
    unit = 1.0 if method == "mixture" else variance * points.true_width
    return AlternationSettings(method, p, settings.reg * (variance or 1.0), settings.tol * unit)


def _bic(points: ScaledRows, run: Alternation, factor: float) -> float:
    """Return -2 log L + q log n of the data in their own units."""
    n, d, k = points.shape[0], points.true_width, len(run.clusters)
    hard = run.task.method == "hard"
    total = classification_log_likelihood(points, run.clusters) if hard else n * run.value
    return -2.0 * (total + n * d * math.log(factor)) + free_parameters(k, run.task.p, d) * math.log(n)


def _report(listener: Listener | None, k: int, p: int) -> Report | None:
    """Return what is called after an iteration of the start that won."""
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
