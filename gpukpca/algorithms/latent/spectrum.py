"""Probabilistic and Bayesian PCA from the spectrum of complete rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.latent.ard import rounding_of
from gpukpca.algorithms.latent.fit import LatentTask
from gpukpca.algorithms.latent.memory import EMMemory
from gpukpca.algorithms.latent.model import LatentFit, LatentModel
from gpukpca.algorithms.pca.fit import fit_rows
from gpukpca.algorithms.pca.operator import centered_matrix
from gpukpca.algorithms.pca.planning import PCATask, plan_of
from gpukpca.algorithms.pca.settings import PCASettings, RankRequest
from gpukpca.algorithms.plan import Candidate
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import accumulation_dtype, cast, move, to_host
from gpukpca.backend.random import Randomness
from gpukpca.data.finite import check_finite, has_missing
from gpukpca.data.frequencies import degrees_of_freedom
from gpukpca.data.scale import rescaled, row_bounds, safe_scale
from gpukpca.data.slicing import place_of
from gpukpca.exceptions import MemoryBudgetError

SPECTRUM = PCASettings(warns_of_rounding=False)


def is_direct(X: Any, solver: str, direct: str) -> bool:
    """Return True where the spectrum of the rows X (n, d) is fitted, False for EM.

    `direct` is the name of the solver of the spectrum. Raise ValueError where it was requested for rows with missing
    entries.
    """
    with device_context(place_of(X)):
        if solver != direct:
            return solver == "auto" and not has_missing(X)
        check_finite(X, f'solver="{direct}" takes no missing values; use solver="em" or "auto".')
    return True


def plan_of_spectrum(X: Any, task: LatentTask, em: EMMemory, or_em: bool) -> Candidate | None:
    """Return the plan of PCA of rows (n, d); None where EM fits instead and may take its place (`or_em`).

    Raise `MemoryBudgetError` where nothing fits.
    """
    counted, d = map(int, X.shape)
    p = task.count(counted, d, below=d + 1)
    rank = RankRequest.of(None if task.n_components is None else p, SPECTRUM.solver, counted, d)
    by_em = [('solver="em"', em.needed(min(p, task.max_count)))] * (p < d)
    try:
        return plan_of(PCATask(X, task.resources, rank, SPECTRUM), by_em)
    except MemoryBudgetError:
        if or_em and any(needed <= task.resources.allowed(needed) for _, needed in by_em):
            return None
        raise


def fit_spectrum(X: Array, task: LatentTask, plan: Candidate) -> LatentFit:
    """Return the fit of complete, checked rows X (n, d) from their variances."""
    counted, d = map(int, X.shape)
    p, prior, resources = task.count(counted, d, below=d + 1), task.prior, task.resources
    with device_context(X):
        scale = safe_scale(*row_bounds([X]), X.dtype)
        X = rescaled(X, scale)
    # With n_components=None a low rank gives no warning.
    count, weights = None if task.n_components is None else p, task.weights
    how: dict[str, Any] = {"sample_weight": weights, "progress": task.progress, "chosen": plan}
    pca = fit_rows(X, count, SPECTRUM, resources, Randomness(task.rng), **how)
    n = pca.n_samples
    rows = max(counted, n)  # repeated rows are as many as their weights say
    degrees = degrees_of_freedom(n) / n
    values = (to_host(pca.singular_values).astype(np.float64) / np.sqrt(n)) ** 2
    spectrum, total = values[:p], max(pca.total_variance * degrees, float(np.sum(values)))
    # Rounding is 0 in the noise of PCA, a mean over min(rows, d) - len(values) variances.
    left_out = pca.noise_variance * (min(rows, d) - len(values)) * degrees
    rest = float(np.sum(values[p:])) + left_out
    axes = cast(pca.projection.axes, accumulation_dtype(pca.projection.axes))[:, :p]
    mean = pca.mean
    if mean.dtype != axes.dtype:  # rounded to that of X
        with device_context(X):
            mean = move(centered_matrix(X, True, resources.n_jobs, weights=weights).mean, axes)
    known, rounding = LatentModel(axes, spectrum, 0.0, mean, scale), rounding_of(mean, pca.components, total)
    model, steps, converged = prior.of_spectrum(known, rest, rounding, round(rows), n / task.degrees(n))
    return LatentFit.of(
        model,
        n,
        resources.place.work.dtype,
        total * n / task.degrees(n),
        n_iter=steps,
        converged=bool(pca.converged) and converged,
        solver=f"{prior.name}: {pca.solver}",
        fallbacks=pca.fallbacks,
        precisions=prior.precisions(model, p),
    )
