"""Local PCA: rows in common units, the pair of clusters and components with the smallest BIC, and the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.mixture.memory import check_mixture_memory
from gpukpca.algorithms.mixture.model import LocalModel, MixtureFit
from gpukpca.algorithms.mixture.scaled_rows import RowScaling, ScaledRows, rotate_into_span
from gpukpca.algorithms.mixture.selection import candidate_pairs, smallest_bic
from gpukpca.algorithms.mixture.settings import Counts, MixtureSettings
from gpukpca.algorithms.progress import Listener
from gpukpca.algorithms.resources import Resources
from gpukpca.data.frequencies import counted_rows
from gpukpca.exceptions import ConvergenceWarning, RankWarning, warn_user


def fit_clusters(
    X: Array,
    n_clusters: Counts,
    n_components: Counts,
    settings: MixtureSettings,
    resources: Resources,
    rng: np.random.Generator,
    progress: Listener | None = None,
    sample_weight: Any = None,
) -> MixtureFit:
    """Return the fit of checked, dense rows (n, d), of those with a weight above 0.

    Weights that count fewer rows than there are, are multiplied so that they count as many.
    """
    X, often, _ = counted_rows(X, sample_weight)
    n, d = map(int, X.shape)
    if often is not None:
        often = often * max(1.0, n / float(np.sum(often)))
        n = round(float(np.sum(often)))
    pairs = candidate_pairs(n_clusters, n_components, n, d)
    check_mixture_memory(X, pairs, settings, resources)
    X = resources.place.to_work(X)
    frame = RowScaling.of(X, resources.place.work, often)
    rows, basis = ScaledRows(X, frame, resources.n_jobs, often=often), None
    most = max(p for _, p in pairs)
    if d > rows.shape[0] >= most:
        rows, basis = rotate_into_span(rows, most)
    pair, run, table = smallest_bic(rows, pairs, frame.factor, settings, rng, progress)
    clusters = sorted(run.clusters, key=lambda cluster: -cluster.weight)
    model = LocalModel(settings.method, frame, [cluster.in_all_directions(basis) for cluster in clusters])
    fit = MixtureFit.of(model, X, run, table, resources.n_jobs)
    _warn(fit, *pair, settings)
    return fit


def _warn(fit: MixtureFit, k: int, p: int, settings: MixtureSettings) -> None:
    """Warn of rows that are all equal, of lost clusters, and of an iteration that did not converge."""
    if fit.model.frame.variance == 0.0:
        warn_user(
            "all rows are equal, or there is 1 sample: every variance is 0, and the components mean nothing.",
            RankWarning,
        )
    if fit.n_clusters < k:
        warn_user(
            "fewer clusters are left than were requested: the others had no more rows than their planes have "
            "dimensions, or the data have fewer different rows. Request fewer clusters or components.",
            RankWarning,
            left=fit.n_clusters,
            n_clusters=k,
            n_components=p,
        )
    if not fit.converged:
        warn_user(
            "the fit stopped after max_iter iterations, before tol. Raise one of them.",
            ConvergenceWarning,
            max_iter=settings.max_iter,
            tol=settings.tol,
        )
