"""Probabilistic and Bayesian PCA: from the spectrum of complete rows, or by EM where entries are missing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gpukpca._formatting import pluralize
from gpukpca._typing import Array
from gpukpca.algorithms.latent.ard import rounding_of
from gpukpca.algorithms.latent.e_step import EStep, Parameters, SufficientStatistics, accumulate
from gpukpca.algorithms.latent.em import EMProblem, EMResult, EMStep
from gpukpca.algorithms.latent.initialization import safe_observed_moments, start_of
from gpukpca.algorithms.latent.memory import bytes_of_em
from gpukpca.algorithms.latent.model import LatentFit, LatentModel
from gpukpca.algorithms.latent.priors import AT_THE_FLOOR, FlatPrior, KnownSpectrum, LatentPrior
from gpukpca.algorithms.latent.settings import LatentSettings
from gpukpca.algorithms.pca.fit import fit_rows
from gpukpca.algorithms.pca.settings import PCASettings
from gpukpca.algorithms.plan import seconds_text
from gpukpca.algorithms.progress import Listener, Progress, timed
from gpukpca.algorithms.resources import Resources, memory_text
from gpukpca.backend import blocking
from gpukpca.backend.device import describe_device, device_context
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    dtype_name,
    from_host,
    is_sparse,
    item_size,
    move,
    namespace_of,
    to_host,
)
from gpukpca.backend.parallel import worker_count
from gpukpca.backend.random import Randomness
from gpukpca.backend.work import Work
from gpukpca.data.finite import check_finite, has_missing
from gpukpca.data.scale import rescaled, row_bounds, safe_scale
from gpukpca.data.statistics import feature_means
from gpukpca.exceptions import (
    ConvergenceWarning,
    GpuKPCAWarning,
    InvalidParameterError,
    PrecisionWarning,
    RankWarning,
    warn_user,
)

# Bytes of the data, the mask and residuals that a step of EM reads or writes for an entry, beyond those in cache.
BYTES_AN_ENTRY = 64
# Components of EM with n_components=None: the memory and time of a step grow with their square.
MOST_BY_DEFAULT = 20


@dataclass(frozen=True)
class LatentTask:
    """The inputs of a fit in addition to the rows."""

    n_components: int | None
    prior: LatentPrior
    settings: LatentSettings
    resources: Resources
    rng: np.random.Generator
    progress: Listener | None = None

    @property
    def max_count(self) -> int:
        """Return the most components that EM computes."""
        return MOST_BY_DEFAULT if self.n_components is None else int(self.n_components)

    def count(self, n: int, d: int, below: int) -> int:
        """Return the number of components, less than `below`; raise `InvalidParameterError` for too many."""
        limit = min(n, d, below - 1)
        p = max(min(n, d) - 1, 1) if self.n_components is None else int(self.n_components)
        if p > limit:
            why = "" if limit == min(n, d) else ", and EM needs at least one direction of noise"
            raise InvalidParameterError(
                f"n_components={self.n_components!r} is too many for n_samples={n}, n_features={d}: at most "
                f"min(n_samples, n_features) = {min(n, d)} are possible{why}. Request at most {limit}."
                if limit > 0
                else f"EM needs at least 2 features, got n_features={d}: with one no direction is left for the noise.",
                argument="n_components",
            )
        return p


def is_direct(X: Array | None, solver: str, direct: str) -> bool:
    """Return True where the spectrum of the rows X (n, d) is fitted, False for EM; X is None for batches.

    `direct` is the name of the solver of the spectrum. Raise ValueError where it was requested for batches, or for rows
    with missing entries.
    """
    if solver != direct:
        return solver == "auto" and X is not None and not has_missing(X)
    if X is None:
        raise InvalidParameterError(
            f'solver="{direct}" needs all rows in one array, and X is an iterable of batches; use solver="em" or '
            '"auto".'
        )
    check_finite(X, f'solver="{direct}" takes no missing values; use solver="em" or "auto".')
    return True


# -- from the spectrum -------------------------------------------------------------------------------------------------


def fit_spectrum(X: Array, task: LatentTask) -> LatentFit:
    """Return the fit of complete, checked rows X (n, d) from their variances."""
    n, d = (int(size) for size in X.shape)
    p, prior, resources = task.count(n, d, below=d + 1), task.prior, task.resources
    with device_context(X):
        scale = safe_scale(*row_bounds([X]), X.dtype)
        X = rescaled(X, scale)
    # With n_components=None a low rank gives no warning.
    count, settings = None if task.n_components is None else p, PCASettings(warns_of_rounding=False)
    pca = fit_rows(X, count, settings, resources, Randomness(task.rng), progress=task.progress)
    degrees = max(n - 1, 1) / n
    values = (to_host(pca.singular_values).astype(np.float64) / np.sqrt(n)) ** 2
    spectrum, total = values[:p], max(pca.total_variance * degrees, float(np.sum(values)))
    # Rounding is 0 in the noise of PCA, a mean over min(n, d) - len(values) variances.
    left_out = pca.noise_variance * (min(n, d) - len(values)) * degrees
    rest = float(np.sum(values[p:])) + left_out
    axes = cast(pca.projection.axes, accumulation_dtype(pca.projection.axes))[:, :p]
    if is_sparse(X):
        mean = from_host(np.asarray(X.mean(axis=0, dtype=np.float64)).reshape(-1), axes)
    else:
        with device_context(X):
            mean = move(feature_means(X), axes)
    known = KnownSpectrum(LatentModel(axes, spectrum, 0.0, mean), rest, rounding_of(mean, pca.components, total), n)
    factor = n / task.settings.degrees(n)
    model, steps, converged = prior.of_spectrum(known, factor)
    fit = LatentFit.of(
        replace(model, scale=scale),
        n,
        resources.place.work.dtype,
        total=total * n / task.settings.degrees(n),
        n_iter=steps,
        converged=bool(pca.converged) and converged,
        solver=f"{prior.name}: {pca.solver}",
        fallbacks=pca.fallbacks,
    )
    return fit.with_precisions(prior.precisions(fit.model, p))


# -- expectation maximization ------------------------------------------------------------------------------------------


def fit_em(batches: Iterable[Array], task: LatentTask) -> LatentFit:
    """Return the fit of checked, dense batches of rows (b, d) where it is computed; NaN is a missing entry.

    Every step reads the batches, which must stay the same. `check_em_memory` comes first.
    """
    settings, prior, resources = task.settings, task.prior, task.resources
    like, tol = resources.place.work, prior.tol if settings.tol is None else settings.tol
    moments, batches, scale = safe_observed_moments(batches)
    n, d = moments.rows, int(moments.means.shape[0])
    p = task.count(n, d, below=d)
    if task.n_components is None and p > MOST_BY_DEFAULT:
        warn_user(
            f"n_components=None: EM takes {MOST_BY_DEFAULT} components, as all that are possible need much memory and "
            "steps of O(n d p²). Set n_components.",
            GpuKPCAWarning,
            possible=p,
            bytes_of_all=bytes_of_em(like, n, d, p, resources.n_jobs),
        )
        p = MOST_BY_DEFAULT
    needed = bytes_of_em(like, n, d, p, resources.n_jobs)
    total = float(np.sum(moments.variances))
    observed = float(namespace_of(moments.counts).sum(moments.counts))
    is_complete = observed == n * d
    # The change of units makes densities of the data larger by this.
    log_volume = math.log(scale) * observed
    factor = n / settings.degrees(n)
    if not total > 0:
        warn_user("no feature varies: every variance is 0, and the components mean nothing.", RankWarning)
        axes = from_host(np.eye(d)[:, :p], moments.means)
        result = EMResult(Parameters(axes, moments.means, 0.0), np.zeros(2), EMStep(1, 0.0, 0.0), True)
        model = LatentModel(axes, np.zeros(p), 0.0, moments.means, scale)
    else:
        listener = timed(task.progress)
        if listener is not None:
            listener(Progress("plan", _plan_text(task, n, d, p, needed, is_complete)))
        start, floor = start_of(batches, moments, p, task.rng)
        sums_at = partial(_sums, batches, n, resources.n_jobs)
        report = partial(_report, listener, prior, tol, settings.max_iter, observed, math.log(scale))
        result = prior.iterate(EMProblem(sums_at, start, floor, tol, settings.max_iter, report), moments)
        if isinstance(prior, FlatPrior) and result.parameters.noise <= AT_THE_FLOOR * floor:
            warn_user(
                "the noise variance fell to its floor, a share of the largest variance (1e-12 in float64), and may be "
                "far too large: features are combinations of others, or have very different units. Standardize the "
                "features, or request fewer components.",
                PrecisionWarning,
                noise=float(result.parameters.noise / scale / scale),
            )
        model = LatentModel.of(result.parameters, factor, scale)
    fit = LatentFit.of(
        model,
        n,
        like.dtype,
        total=total * factor if is_complete else None,
        n_iter=result.n_steps,
        converged=result.converged,
        solver="em",
        log_likelihoods=result.trace + log_volume,
    )
    if not result.converged:
        warn_user(
            "EM stopped after max_iter steps, before tol. Use a larger max_iter or tol, or fewer components: those "
            "that are noise take the most steps.",
            ConvergenceWarning,
            max_iter=settings.max_iter,
            tol=tol,
            gain=float(result.last.gain),
            turn=float(result.last.turn),
        )
    return fit.with_precisions(prior.precisions(model, p))


def _sums(batches: Iterable[Array], n: int, n_jobs: int | None, parameters: Parameters) -> SufficientStatistics:
    """Return the sums of an E step; raise ValueError where the batches changed since the first pass."""
    sums = accumulate(batches, EStep(parameters), n_jobs)
    if sums.rows != n:
        raise ValueError(
            f"the batches changed between passes: the first pass gave {n} rows, a later one {sums.rows}. EM needs an "
            "iterable that gives the same batches in every pass."
        )
    return sums


def _plan_text(task: LatentTask, n: int, d: int, p: int, needed: int, is_complete: bool) -> str:
    """Return the plan of EM, with the time of a step: their number depends on the data."""
    like, resources = task.resources.place.work, task.resources
    workers = worker_count(like, resources.n_jobs, n * d * (p**2 + blocking.ENTRY_PASS))
    seconds = work_of_step(n, d, p, is_complete).seconds(like, item_size(accumulation_dtype(like)), workers)
    return "\n".join(
        [
            f"data      {n} x {d}, {dtype_name(like.dtype)}, on {describe_device(like)}",
            f"method    EM for {pluralize(p, 'component')}{'' if is_complete else ', entries are missing'}",
            f"memory    {memory_text(needed, resources.allowed(needed))}",
            f"time      {seconds_text(seconds)} a step, estimated",
        ]
    )


def work_of_step(n: int, d: int, p: int, is_complete: bool) -> Work:
    """Return the work of a step of EM on rows that are all complete, or all incomplete."""
    pairs = p * (p + 1) // 2
    # Scores, means of entries and sums; for incomplete rows refined scores and two products with the mask.
    columns = 4 * p if is_complete else 6 * p + 2 * pairs
    return Work(blocks=2.0 * n * d * columns, bytes=BYTES_AN_ENTRY * n * d)


def _report(
    listener: Listener | None,
    prior: LatentPrior,
    tol: float,
    max_iter: int,
    observed: float,
    log_scale: float,
    step: EMStep,
) -> None:
    """Report an E step to the listener; the logarithm of the scale is added to the density of an entry."""
    if listener is None:
        return
    value = step.value / observed + log_scale
    text = f"EM step {step.number}: {prior.value_name} {value:.9g} an entry"
    if step.is_move:
        text += f", {step.gain:.1e} more by extrapolation" if step.gain else ", an extrapolation was undone"
    elif step.number:
        text += f", {_changes(step, tol)}"
    listener(Progress("step", text, step.number, max_iter, step.distance, tol, value))


def _changes(step: EMStep, tol: float) -> str:
    """Return what a step changed, with the limits at which EM stops."""
    turned = f", components turned by {step.turn:.1e} (stops at {math.sqrt(tol):.0e})" if step.turn else ""
    return f"{step.gain:.1e} more (stops at {tol:.0e}){turned}"
