"""The fit of PCA to rows in any container: plan, center the rows, compute components, return the result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from gpukpca._rules import FLAG
from gpukpca._typing import Array
from gpukpca.algorithms.inputs import check_type, checked_listener
from gpukpca.algorithms.pca.components import Components, SolverTools, components_by, without_noise
from gpukpca.algorithms.pca.model import LinearProjection, PCAFit, scores_of_panel
from gpukpca.algorithms.pca.operator import centered_matrix, counted_weights, feature_scale, finite_scores
from gpukpca.algorithms.pca.planning import PCATask, plan_of
from gpukpca.algorithms.pca.settings import COUNT_OR_SHARE, PCASettings, RankRequest
from gpukpca.algorithms.pca.spectrum import (
    OF_UNRESOLVED,
    Variances,
    variances_of,
    warn_of_another_unit,
    warn_of_components,
    warn_of_lost_features,
    warn_of_lost_variances,
)
from gpukpca.algorithms.plan import Candidate, Plan, share_beyond_memory
from gpukpca.algorithms.progress import Listener, Progress, pass_report, timed
from gpukpca.algorithms.resources import Resources
from gpukpca.algorithms.solver_warnings import warn_of_tolerance, warn_of_unresolved
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import (
    cast,
    from_host,
    move,
    overflow_allowed,
)
from gpukpca.backend.random import Randomness
from gpukpca.covariance.centered_matrix import CenteredMatrix
from gpukpca.covariance.panels import PanelCenteredMatrix
from gpukpca.data.batches import BatchedRows, rows_in_slices
from gpukpca.data.rows import Rows
from gpukpca.eigen.krylov_state import Checkpointer
from gpukpca.eigen.request import NeedsDense

# From the plan to a context with the checkpointer of the fit, or None where the solver writes none.
OpenCheckpoint = Callable[[Plan], AbstractContextManager[Checkpointer | None]]


def fit_pca(
    X: Array,
    n_components: float | Literal["mle"] | None = None,
    *,
    sample_weight: Any = None,
    settings: PCASettings = PCASettings(),
    resources: Resources | None = None,
    rng: np.random.Generator | int | None = None,
    progress: Listener | None = None,
    with_scores: bool = False,
) -> PCAFit:
    """Compute the principal components of the rows of X, and the map that projects new points onto them.

    Parameters
    ----------
    X : array or CSR matrix, shape (n, d)
        Of any library of the Array API standard, or of SciPy; not written to. The result lives where X lives. A set of
        zarr or HDF5 is read by slices.
    n_components : None, int, float in (0, 1) or "mle"
        None: min(n, d). A fraction: the fewest components that hold more than that share of the variance. "mle":
        Minka's choice, for n >= d.
    sample_weight : array, shape (n,), optional
        How often each row counts; see `gpukpca.PCA.fit`.
    settings : PCASettings
        Solver, tolerance and the scale of the features.
    resources : Resources, optional
        Device, bytes that may be allocated, and threads, such as
        ``Resources.for_data(X, device="cuda", memory_limit="4GiB")``. The result lives on that device.
    rng : numpy.random.Generator or int, optional
        For the random start.
    progress : callable, optional
        Called with a `Progress` after every pass or iteration, and for a plan.
    with_scores : bool
        Whether `PCAFit.scores` holds the scores of X, shape (n, p).

    Returns
    -------
    PCAFit
        Components, variances, residuals, and `transform`, `inverse_transform`, `log_density` for new points.

    Raises
    ------
    ValueError
        X is not two-dimensional, has no rows or no columns, or holds NaN or infinity; n_components is out of range.
    MemoryBudgetError
        No method fits into the memory.
    ConvergenceError
        No component was found in the passes allowed.

    Warns
    -----
    ConvergenceWarning, RankWarning, PrecisionWarning, DeviceFallbackWarning, GpuKPCAWarning

    See Also
    --------
    gpukpca.PCA : The same fit as an estimator of scikit-learn.

    Notes
    -----
    Cost: "covariance_eigh" O(n d² + d³), "dual" O(n² d + n³), "full" O(n d min(n, d)), "randomized" O(n d p) per pass.
    The rows are centered before they are multiplied, and float32 products are summed in float64. With ``center=False``
    of the settings the components are right singular vectors of X itself; see `gpukpca.PCA`.

    Jolliffe, Principal Component Analysis (2002). Musco & Musco, arXiv 1504.05477 (block Krylov).

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.algorithms import fit_pca
    >>> X = np.random.default_rng(0).standard_normal((200, 5)) * [3.0, 2.0, 1.0, 0.1, 0.1]
    >>> fit = fit_pca(X, n_components=2)
    >>> fit.components.shape, fit.converged
    ((2, 5), True)
    >>> bool(fit.explained_variance_ratio.sum() > 0.9)
    True
    >>> fit.transform(X[:3]).shape
    (3, 2)
    """
    check_type("settings", settings, PCASettings)
    progress = checked_listener(progress)
    FLAG.check_argument("with_scores", with_scores)
    with device_context(X), overflow_allowed():
        X = rows_in_slices(X, "PCA")
        resources = Resources.for_fit(resources, X)
        with device_context(resources.place.work):
            X = X.moved(resources.place) if isinstance(X, BatchedRows) else resources.place.device_rows(X)
            COUNT_OR_SHARE.check_argument("n_components", n_components)
            return fit_rows(
                X,
                n_components,
                settings,
                resources,
                Randomness(rng, "rng"),
                sample_weight=sample_weight,
                progress=progress,
                with_scores=with_scores,
            )


def fit_rows(
    X: Array | Rows,
    n_components: float | Literal["mle"] | None,
    settings: PCASettings,
    resources: Resources,
    random: Randomness,
    *,
    sample_weight: Any = None,
    progress: Listener | None = None,
    open_checkpoint: OpenCheckpoint | None = None,
    with_scores: bool = False,
    chosen: Candidate | None = None,
) -> PCAFit:
    """Return the fit of rows (n, d) of an array, a CSR matrix, batches or a cluster; see `fit_pca`.

    The first pass over the rows finds NaN and infinity. The plan may have been `chosen` before.
    """
    n, d = map(int, X.shape)
    weights, counted = counted_weights(sample_weight, n)
    rank = RankRequest.of(n_components, settings.solver, counted, d)
    chosen = chosen or plan_of(PCATask(X, resources, rank, settings, with_scores))
    plan, listener = chosen.plan, timed(progress)
    if listener is not None:
        listener(Progress("plan", str(plan), seconds_left=plan.estimated_seconds))
    X = resources.place.to_work(X)
    by_rows = X.shape[0] >= X.shape[1] if plan.solver is None else not plan.by_samples
    Z = centered_matrix(X, by_rows, resources.n_jobs, settings.center, weights)
    scale = feature_scale(settings.scale, Z)
    if scale is not None:
        Z.rescale(scale)
    with nullcontext() if open_checkpoint is None else open_checkpoint(plan) as checkpointer:
        found, chosen = solution(Z, chosen, rank, SolverTools(random, pass_report(listener), checkpointer))
    if rank.share is not None:  # the bytes of the components that it took
        plan = chosen.plan_for(len(found.squares))
    found = without_noise(Z, found)
    variances = variances_of(found, Z, rank)
    converged = found.converged(settings.tol)
    warn_of_components(found, variances, rank, converged)
    plan = plan if plan.n_components == variances.kept else replace(plan, n_components=variances.kept)
    fit = _fit_of(Z, plan, found, variances, bool(converged[: variances.kept].all()))
    if settings.warns_of_rounding:
        warn_of_lost_variances(fit)
        warn_of_lost_features(found, Z)
        warn_of_another_unit(Z)
        if rank.is_number or rank.decides:  # without a count, directions of rounding are among the components
            values, norms = variances.values, variances.residual_norms
            warn_of_unresolved(values, norms, converged[: variances.kept], settings.tol, OF_UNRESOLVED)
    if found.eigen is not None and getattr(plan.solver, "tol", None) == settings.tol:
        warn_of_tolerance(found.eigen, settings.tol)
    return replace(fit, scores=_scores_of_fit(X, Z, found, fit, resources.n_jobs)) if with_scores else fit


def solution(
    Z: CenteredMatrix, chosen: Candidate, rank: RankRequest, tools: SolverTools
) -> tuple[Components, Candidate]:
    """Return at least the requested components of centered, scaled rows, and the candidate that computed them."""
    few = rank.up_to(chosen.max_count) if rank.share is not None else rank
    try:
        found = components_by(Z, chosen.plan, few, tools)
    except NeedsDense as reason:
        beyond = chosen.handed_over(rank.share, str(reason))  # the exception holds the basis
    else:
        is_short = chosen.plan.method != "randomized" and len(found.squares) == few.max_count < rank.max_count
        if is_short and few.pairs(Z.eps).count(found.squares, Z.total) is None:
            raise share_beyond_memory(rank.share, f"more than {few.max_count}")
        return found, chosen
    return solution(Z, beyond, rank, replace(tools, checkpointer=None))


def _fit_of(Z: CenteredMatrix, plan: Plan, found: Components, variances: Variances, converged: bool) -> PCAFit:
    """Return the result with the retained components."""
    xp, p, eigen = Z.xp, variances.kept, found.eigen
    V = cast(found.vectors[:, :p], Z.dtype)
    return PCAFit(
        components=xp.asarray(V.T, copy=True),
        explained_variance=from_host(variances.values, V),
        explained_variance_ratio=from_host(variances.ratios, V),
        singular_values=from_host(variances.singular_values, V),
        total_variance=variances.total,
        noise_variance=variances.noise,
        mean=xp.asarray(cast(Z.mean, Z.dtype), copy=True),
        scale=None if Z.scale is None else from_host(Z.scale, V),
        residual_norms=from_host(variances.residual_norms, V),
        converged=converged,
        n_samples=Z.count,
        device=plan.device,
        plan=plan,
        solver=plan.method if eigen is None else f"{plan.method}: {eigen.solver}",
        fallbacks=() if eigen is None else eigen.fallbacks,
        # Deviations of the scores, exact where their squares underflow.
        projection=LinearProjection.of(Z, V, variances.singular_values / np.sqrt(variances.degrees)),
        weighted=Z.frequencies is not None,
    )


def _scores_of_fit(X: Array, Z: CenteredMatrix, found: Components, fit: PCAFit, n_jobs: int | None) -> Array:
    """Return the scores of the rows of a fit, where they are computed."""
    if found.scores is not None and Z.frequencies is None:  # else they are times the roots of the weights
        return found.scores[:, : fit.n_components] * (1.0 / Z.unit)
    if isinstance(Z, PanelCenteredMatrix):
        scores = Z.source.joined(scores_of_panel, fit.projection)
        return move(scores, fit.components) if getattr(Z.source.place, "others", ()) else scores
    return finite_scores(fit.projection.transform(X, n_jobs), Z)
