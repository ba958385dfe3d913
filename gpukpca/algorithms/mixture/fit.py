"""Local PCA: rows in common units, the pair of clusters and components with the smallest BIC, and the result."""

from __future__ import annotations

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.inputs import check_type, checked_listener
from gpukpca.algorithms.mixture.memory import check_memory
from gpukpca.algorithms.mixture.model import LocalModel, MixtureFit
from gpukpca.algorithms.mixture.scaled_rows import RowScaling, ScaledRows, rotate_into_span
from gpukpca.algorithms.mixture.selection import BICSelection, candidates, smallest_bic
from gpukpca.algorithms.mixture.settings import COUNTS, Counts, MixtureSettings
from gpukpca.algorithms.progress import Listener
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import is_sparse, overflow_allowed
from gpukpca.backend.random import generator
from gpukpca.data.gate import as_rows
from gpukpca.exceptions import ConvergenceWarning, InvalidParameterError, RankWarning, warn_user


def fit_local_pca(
    X: Array,
    n_clusters: Counts = 2,
    n_components: Counts = 1,
    *,
    settings: MixtureSettings = MixtureSettings(),
    resources: Resources | None = None,
    rng: np.random.Generator | int | None = None,
    progress: Listener | None = None,
) -> MixtureFit:
    """Fit several PCAs, each to its cluster of the rows: a mixture of probabilistic PCAs, or the nearest planes.

    Parameters
    ----------
    X : array, shape (n, d)
        Of any library of the Array API standard; a memory map is read by panels. Not changed. The result lives where
        X lives.
    n_clusters : int, sequence of int, or "bic"
        Number k. Of several, or of 1 to 8 with "bic", the pair of k and p with the smallest BIC is fitted.
    n_components : int, sequence of int, or "bic"
        Dimension p < d of every plane. "bic": 1 to min(d - 1, 10).
    settings : MixtureSettings
        Method, starts, and the end of the iteration.
    resources, rng, progress : as in `fit_pca`

    Returns
    -------
    MixtureFit
        Clusters, heaviest first, and `transform`, `inverse_transform`, `predict`, `log_density` for new points.

    Raises
    ------
    ValueError
        X is not two-dimensional, is sparse or empty, or contains NaN or infinity; k or p is no count; k > n,
        p >= d or p > n.
    DeviceMismatchError
        `resources` are for data of another library or device.
    MemoryBudgetError
        The fit does not fit into the memory.

    Warns
    -----
    RankWarning
        All rows are equal, or clusters were lost.
    ConvergenceWarning, PrecisionWarning, DeviceFallbackWarning

    See Also
    --------
    gpukpca.LocalPCA : The same fit as an estimator of scikit-learn.

    Notes
    -----
    Cost of an iteration: O(n d k p + n d² + k d³), with n in place of d for d > n. Memory O(n k + d²).

    Tipping & Bishop, Neural Computation 11 (1999) 443 (mixture); Kambhatla & Leen, Neural Computation 9 (1997) 1493
    (hard).

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.algorithms import fit_local_pca
    >>> rng = np.random.default_rng(0)
    >>> lines = rng.standard_normal((200, 1)) * np.repeat([[1.0, 0.0], [0.0, 1.0]], 100, axis=0)
    >>> X = lines + np.repeat([[0.0, 0.0], [9.0, 9.0]], 100, axis=0) + 0.1 * rng.standard_normal((200, 2))
    >>> fit = fit_local_pca(X, n_clusters=2, rng=0)
    >>> fit.n_clusters, np.bincount(fit.labels).tolist()
    (2, [100, 100])
    """
    COUNTS.check_argument("n_clusters", n_clusters)
    COUNTS.check_argument("n_components", n_components)
    check_type("settings", settings, MixtureSettings)
    progress = checked_listener(progress)
    with device_context(X), overflow_allowed():
        if is_sparse(X):
            raise InvalidParameterError("sparse rows are not supported; pass a dense array, such as X.toarray().")
        X = as_rows(X, "the fit", finite=True)
        resources = Resources.for_fit(resources, X)
        with device_context(resources.place.work):
            return fit_clusters(X, n_clusters, n_components, settings, resources, generator(rng, "rng"), progress)


def fit_clusters(
    X: Array,
    n_clusters: Counts,
    n_components: Counts,
    settings: MixtureSettings,
    resources: Resources,
    rng: np.random.Generator,
    progress: Listener | None = None,
) -> MixtureFit:
    """Return the fit of checked, dense rows (n, d); see `fit_local_pca`."""
    pairs = candidates(n_clusters, n_components, *X.shape)
    check_memory(X, pairs, settings, resources)
    X = resources.place.to_work(X)
    frame = RowScaling.of(X, resources.place.work)
    rows, basis = ScaledRows(X, frame, resources.n_jobs), None
    if rows.shape[1] > rows.shape[0]:
        rows, basis = rotate_into_span(rows, max(p for _, p in pairs))
    chosen = smallest_bic(rows, pairs, frame.factor, settings, rng, progress)
    clusters = sorted(chosen.run.clusters, key=lambda cluster: -cluster.weight)
    model = LocalModel(settings.method, frame, [cluster.in_all_directions(basis) for cluster in clusters])
    fit = MixtureFit.of(model, X, chosen.run, chosen.table, resources.n_jobs)
    _warn(fit, chosen, settings)
    return fit


def _warn(fit: MixtureFit, chosen: BICSelection, settings: MixtureSettings) -> None:
    """Warn of rows that are all equal, of lost clusters, and of an iteration that did not converge."""
    if fit.model.frame.variance == 0.0:
        warn_user(
            "all rows are equal, or there is 1 sample: every variance is 0, and the components mean nothing.",
            RankWarning,
        )
    if fit.n_clusters < chosen.k:
        warn_user(
            "fewer clusters are left than were requested: the others had no more rows than their planes have "
            "dimensions, or the data have fewer different rows. Request fewer clusters or components.",
            RankWarning,
            left=fit.n_clusters,
            n_clusters=chosen.k,
            n_components=chosen.p,
        )
    if not fit.converged:
        warn_user(
            "the fit stopped after max_iter iterations, before tol. Raise one of them.",
            ConvergenceWarning,
            max_iter=settings.max_iter,
            tol=settings.tol,
        )
