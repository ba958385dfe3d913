"""Nyström: landmarks, then one fold over the rows of their factor, which stay in memory or are computed again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.algorithms.kernel_pca.factor_sums import (
    LandmarkFeatures,
    factor_times,
    features_times,
    sums_of_factor,
    sums_of_panel,
)
from gpukpca.algorithms.kernel_pca.landmark_basis import LandmarkBasis
from gpukpca.algorithms.kernel_pca.landmark_pairs import fit_of_sums
from gpukpca.algorithms.kernel_pca.landmark_rows import FirstRows, template_of_landmarks
from gpukpca.algorithms.kernel_pca.landmark_sums import FactorSums
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.spectrum import check_underflow
from gpukpca.algorithms.kernel_pca.task import FitTask, LandmarkPool
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.progress import Listener, Progress
from gpukpca.backend.elementwise import add
from gpukpca.backend.namespace import epsilon, from_host, to_host, writable
from gpukpca.backend.parallel import worker_count
from gpukpca.data.rows import Merge, sampling_step
from gpukpca.data.slicing import gather_rows
from gpukpca.eigen.landmark_choice import LandmarkChoice
from gpukpca.eigen.landmarks import is_given
from gpukpca.eigen.residuals import NULL_FACTOR, default_tolerance


def landmark_fit(
    task: FitTask, plan: Plan, first: FirstRows, rng: np.random.Generator, listener: Listener | None
) -> KernelPCAFit:
    """Return the fit of rows by landmarks among a sample, or among all, of which the pool then holds K as an operator.

    The factor of all rows stays in memory where the plan says so, else its rows are computed again. The plan also says
    whether it is multiplied a second time, for eigenvectors and scores. Rows that come in order, after those of the
    sample, may leave the landmarks.
    """
    started = time.perf_counter()
    among, rows, held = first.sample, first.rows, first.held
    storage: Any = plan.storage
    # Points that span the features lie about the mean of the rows.
    if not (isinstance(among.rows, SymmetricOperator) or task.is_spanned):
        # One side of every product consists of landmarks, so that a template of them fits all rows: it may omit
        # features that are constant among the landmarks. Order, batches, weights and container cannot matter.
        task = replace(task, template=template_of_landmarks(task, among.rows, is_given(plan.solver)))
    basis, chosen = LandmarkBasis.chosen(task, plan, among.rows, rng, listener)
    features, workers = basis.features, _workers(task, basis.features, task.n)
    if (factor := basis.factor) is not None:
        # In place where the library can: F is as large as memory allows.
        F = add(factor.F, -from_host(features.start.shift, factor.F)[None, :])
        shown = np.arange(task.n)[:, None] if task.kernel.stored_only else task.X
        sums = sums_of_factor(F, shown, factor, task.weights, features, workers)
        second: Callable[..., Array] | None = partial(factor_times, F, features, workers)
    else:
        merge: Merge = FactorSums.merged
        if listener is not None and not rows.reports:
            merge = partial(_reported, listener, task.weight_sum or getattr(rows, "n_rows", 0) or 0)
        weights = None if task.weights is None else rows.split(task.weights[:, None])
        F = writable((task.n, features.rank), features.like) if storage.keeps_factor else None
        kept = None if F is None else rows.split(F)
        sums = rows.fold(sums_of_panel, weights, kept, features, workers, merge=merge)
        if held is not None:
            sums = sums_of_panel(held.rows, held.counts[:, None], None, features, workers).merged(sums)
        again = partial(rows.joined, features_times) if F is None else partial(factor_times, F)
        second = partial(again, features, workers) if storage.with_vectors else None
    before = 0 if held is None else held.n_read
    n_rows = int(sums.count) if task.weights is None else before + len(task.weights)
    plan = replace(plan, n_samples=n_rows)
    drift: Any = sums.drift
    drift = drift if first.in_order else drift.without_order(sums.residual, sums.trace, n_rows)
    sums = replace(sums, drift=drift.with_warning() if n_rows > int(among.rows.shape[0]) else drift)
    fit = fit_of_sums(task, plan, basis, sums, second)
    weight_sum = None if task.weights is None else sums.count
    named = among.numbers  # a base point may be none of the rows
    numbers = None if named is None else named[chosen[chosen < len(named)]]
    return replace(fit, landmarks=numbers, weight_sum=weight_sum, seconds=time.perf_counter() - started)


def spanned_fit(
    task: FitTask, plan: Plan, first: FirstRows, rng: np.random.Generator, listener: Listener | None
) -> KernelPCAFit:
    """Return the fit of rows with the linear kernel: the mean of some, and a step along every feature.

    These landmarks span all points, so that F is exact; see `landmark_fit`.
    """
    few = np.arange(0, task.n, sampling_step(task.n, task.d))
    rows_shown = gather_rows(task.X, few) if task.sample is None else task.sample
    some = to_host(rows_shown).astype(np.float64)
    size = float(np.max(np.abs(some), initial=0.0)) or 1.0  # no sum of rows, or of squares, overflows
    step = float(np.max(np.std(some / size, axis=0))) or 1.0
    check_underflow(rows_shown, task.kernel, task.n * (step * size) * (step * size))
    points = (np.mean(some / size, axis=0) + step * np.eye(task.d + 1, task.d)) * size
    first = first._replace(sample=LandmarkPool(from_host(points, task.place.work), None), in_order=False)
    by_points = replace(plan, solver=LandmarkChoice.of_points(task.d).options)
    fit = landmark_fit(task, by_points, first, rng, listener)
    return _exact(task, replace(fit, plan=replace(fit.plan, solver=plan.solver)))


def _exact(task: FitTask, fit: KernelPCAFit) -> KernelPCAFit:
    """Return the fit of a factor that is exact: what it misses of K is rounding, and so are small eigenvalues."""
    sums: Any = fit.stream
    _, scatter = sums.about_mean(task.settings.center)
    size = float(np.max(np.sum(sums.pivot_factor**2, axis=1), initial=0.0))  # of k(s, s), a squared step
    rounding = NULL_FACTOR * epsilon(sums.shift) * sums.count * size
    values = np.where(fit.spectrum.eigenvalues > rounding, fit.spectrum.eigenvalues, 0.0)
    total = float(np.trace(scatter)) if np.any(values) else 0.0
    certificate = float(fit.certificate or 0.0) + float(np.sum(fit.spectrum.eigenvalues - values))
    spectrum = replace(fit.spectrum, eigenvalues=values, total_variance=total)
    solver = f"sums of a factor ({len(sums.shift)} columns)"
    fit = replace(fit, solver=solver, spectrum=spectrum, certificate=certificate)
    fit = fit.leading(task.n_kept(spectrum))
    # The certificate is rounding alone, of which the residuals of F Fᵀ have their own.
    norms = np.maximum(to_host(fit.residual_norms).astype(np.float64) - certificate, 0.0)
    tolerance = max(task.settings.tol, default_tolerance(fit.residual_norms.dtype)) * float(np.max(values, initial=0.0))
    fit = replace(fit, residual_norms=from_host(norms, fit.residual_norms), converged=norms <= tolerance)
    return fit if task.settings.nystrom else replace(fit, certificate=None, total_interval=None)


def updated_fit(task: FitTask, fit: Any, batch: Any, weights: np.ndarray | None = None) -> KernelPCAFit:
    """Return the fit of a stream after one more batch (b, d) whose rows count as weights (b,) say."""
    started, stream = time.perf_counter(), fit.stream
    features = replace(LandmarkFeatures.of_fit(fit), start=stream.without_rows())
    basis = LandmarkBasis(fit.map.basis, features, fit.n_products)
    often = None if weights is None else weights[:, None]
    workers = _workers(task, features, int(batch.shape[0]))
    sums = stream.merged(sums_of_panel(batch, often, None, features, workers))
    sums = replace(sums, drift=sums.drift and sums.drift.with_warning())
    plan: Any = fit.plan
    n = plan.n_samples + int(batch.shape[0])
    storage = replace(plan.storage, n=n, source=None, keeps_factor=False, with_vectors=False)  # the batch's rows alone
    plan = replace(plan, n_samples=n, storage=storage)
    following = fit_of_sums(task, plan, basis, sums, before=fit.map)
    weight_sum = None if weights is None and fit.weight_sum is None else sums.count
    following = _exact(task, following) if plan.storage.is_exact else following
    seconds = fit.seconds + time.perf_counter() - started
    return replace(following, landmarks=fit.landmarks, weight_sum=weight_sum, seconds=seconds)


def _workers(task: FitTask, features: LandmarkFeatures, n: int) -> int:
    """Return the number of threads for n rows; one on a cluster, which has one for every panel."""
    return 1 if task.is_on_cluster else worker_count(features.like, task.resources.n_jobs, n * features.rank**2)


def _reported(listener: Listener, total: float, a: FactorSums, b: FactorSums) -> FactorSums:
    """Return the merged sums, and report their rows."""
    both = a.merged(b)
    text = f"{both.count} rows" + (f" of {total}" if total else "")
    listener(Progress("batch", text, round(both.count), round(total)))
    return both
