"""Doors of the fits by landmarks: of rows with their factor in memory, by slices, of batches, and of one batch more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from gpukpca.algorithms.kernel_pca.candidates import check_rank
from gpukpca.algorithms.kernel_pca.exact import CheckpointOpener
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.nystrom import nystrom_fit
from gpukpca.algorithms.kernel_pca.planning import plan_of_batches
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings, resolved_within
from gpukpca.algorithms.kernel_pca.streaming import Candidates, spanned_fit, streamed_fit, updated_fit
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.progress import Listener, Progress, timed
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.namespace import dtype_name, from_host, item_size
from gpukpca.backend.random import Randomness, random_subset
from gpukpca.data.batches import BatchedRows
from gpukpca.data.slicing import gather_rows, place_of
from gpukpca.eigen.landmarks import FEWEST_SAMPLED, Nystrom, checked_landmarks
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.storage import StorageInput, StreamedStorage
from gpukpca.kernels.base import Kernel


def fit_by_landmarks(
    task: FitTask, plan: Plan, source: StorageInput, rng: np.random.Generator, listener: Listener | None
) -> KernelPCAFit:
    """Return the fit of a plan with a `Nystrom` solver.

    Rows whose factor does not fit into memory, or whose landmarks are points, are read in slices, or by the workers of
    a cluster; the fit of these has no eigenvectors.
    """
    storage: Any = plan.storage
    if task.is_spanned:
        return spanned_fit(task, plan, rng, listener)
    if not isinstance(storage, StreamedStorage):
        return nystrom_fit(task, plan, storage.build(source), rng, listener)
    among = given_landmarks(task, plan.solver, task.X) or sampled_candidates(task.X, storage.sample, rng)
    rows = task.X if task.is_on_cluster else BatchedRows.of_array(task.X)
    return streamed_fit(task, plan, rows, among, rng, listener, with_vectors=task.is_read_again)


def fit_batches(
    batches: BatchedRows,
    kernel: Kernel,
    settings: KernelPCASettings,
    resources: Resources,
    *,
    random: Randomness,
    weights: np.ndarray | None = None,
    progress: Listener | None = None,
    open_checkpoint: CheckpointOpener | None = None,
    once: bool = False,
    is_first: bool = False,
) -> KernelPCAFit:
    """Return the fit of batches of rows by Nyström, which reads each of them once; see `fit_kernel_pca`.

    Landmarks are chosen among the first rows, from which the kernel learns its rules where batches come only `once`.
    `is_first` says that more batches may follow. `weights` (n,), above 0, say how often each row counts.
    """
    has_checkpoint, listener = open_checkpoint is not None, timed(progress)
    begun: dict[str, Any] = {
        "once": once,
        "is_first": is_first,
        "has_checkpoint": has_checkpoint,
        "rng": random.generator,
    }
    task, sample, rows = _begun(batches, kernel, settings, resources, **begun)
    task = replace(task, weights=weights)
    plan = plan_of_batches(task, batches)
    if listener is not None:
        listener(Progress("plan", str(plan), seconds_left=plan.estimated_seconds))
    among = given_landmarks(task, task.settings.eigen_solver, sample.rows if once else batches) or sample
    return streamed_fit(task, plan, rows, among, random.generator, listener)


def plan_batches(
    batches: BatchedRows, kernel: Kernel, settings: KernelPCASettings, resources: Resources, has_checkpoint: bool
) -> Plan:
    """Return the plan of `fit_batches`; the rows among which landmarks are chosen are read, and no others."""
    task, _, _ = _begun(batches, kernel, settings, resources, once=True, has_checkpoint=has_checkpoint)
    return plan_of_batches(task, batches)


def _begun(
    batches: BatchedRows,
    kernel: Kernel,
    settings: KernelPCASettings,
    resources: Resources,
    *,
    once: bool,
    has_checkpoint: bool,
    is_first: bool = False,
    rng: Any = None,
) -> tuple[FitTask, Candidates, BatchedRows]:
    """Return the task of the rows among which landmarks are chosen, these rows, and the batches for one pass.

    `once`: the kernel learns its rules from these rows, else from all. Without `rng` they are never drawn from all.
    """
    if kernel.stored_only:
        raise InvalidParameterError(
            "a precomputed kernel, or a function of two rows, needs all rows at once. Batches are fitted with the name "
            "of a kernel or an object of gpukpca.kernels.",
            argument="kernel",
        )
    requested: Nystrom = settings.solver_for(1, 1, False)[0]
    p = 0 if settings.n_components is None or settings.is_share else int(settings.n_components)
    solver = requested.with_rank(p)
    given = requested.rank or 0
    if is_first and solver.points is None and (batches.n_rows or 0) < given:
        raise InvalidParameterError(
            f"landmarks are chosen among the rows of the first batch, which has {batches.n_rows}, and rank={given} was "
            "given to Nystrom. Give a larger first batch, a smaller rank, or landmarks that are points."
        )
    row_bytes = int(batches.like.shape[1]) * item_size(batches.dtype)
    count = solver.sample_within(row_bytes, resources.limit_set)
    count = max(FEWEST_SAMPLED, count) if solver.is_given else count
    from_all = rng is not None and solver.sample == "reservoir" and not solver.is_given
    if from_all and once:
        raise InvalidParameterError(
            'sample="reservoir" reads the batches twice. Give fit a list of batches, or an object whose __iter__ '
            'starts again; or use sample="first", or landmarks that are points.',
            argument="eigen_solver",
        )
    sample, numbers, rows = batches.drawn(count, rng) if from_all else batches.some(count)
    has_rule = kernel.rule_bytes(1, 1) > 0
    kernel = resolved_within(kernel, batches if has_rule and not once else sample, resources, shown=sample)
    settings = replace(settings, eigen_solver=solver)
    task = FitTask.of(sample, kernel, settings, resources, has_checkpoint=has_checkpoint)
    return task, Candidates(sample, numbers), rows


def fit_next_batch(
    fit: KernelPCAFit,
    batch: Any,
    settings: KernelPCASettings,
    resources: Resources,
    weights: np.ndarray | None = None,
) -> KernelPCAFit:
    """Return the fit of a stream after one more batch of rows (b, d) where it is computed; see `fit_batches`."""
    solver: Any = fit.plan.solver
    requested: Nystrom = settings.solver_for(1, 1, False)[0]
    if requested.rank not in (None, solver.rank) or requested.landmarks != solver.landmarks:
        raise InvalidParameterError(
            f"the landmarks were those of {solver!r} in the first batch, and {requested!r} is requested now; begin a "
            "new stream with sklearn.base.clone(model) to change them.",
            argument="eigen_solver",
        )
    if settings.center != fit.map.center:
        raise InvalidParameterError(
            f"center={settings.center} is requested now, and was {fit.map.center} in the first batch; begin a new "
            "stream with sklearn.base.clone(model) to change it.",
            argument="center",
        )
    settings, basis = replace(settings, eigen_solver=solver), fit.map.basis
    p = fit.plan.n_components if settings.n_components is None or settings.is_share else int(settings.n_components)
    task = FitTask(basis, resources, fit.kernel, settings, basis, fit.map.template, p)
    check_rank(task, int(solver.rank or 0))
    return updated_fit(task, fit, batch, weights)


def given_landmarks(task: FitTask, solver: Any, rows: Any) -> Candidates | None:
    """Return the landmarks that the user gave, points or numbers of rows; None where a rule chooses them."""
    if not solver.is_given:
        return None
    if solver.points is None:
        numbers = checked_landmarks(solver.landmarks, int(rows.shape[0]))
        return Candidates(gather_rows(rows, numbers), numbers)
    points = solver.points
    if points.shape[1] != task.d:
        raise InvalidParameterError(
            f"landmarks of shape {points.shape} are not allowed for rows of {task.d} features; points have as many."
        )
    dtype = dtype_name(task.X.dtype)
    like = place_of(task.X)
    return Candidates(csr_array(points.astype(dtype)) if task.is_sparse else from_host(points, like), None)


def sampled_candidates(X: Any, count: int, rng: np.random.Generator) -> Candidates:
    """Return some rows of X in memory, drawn evenly."""
    numbers = np.sort(random_subset(rng, int(X.shape[0]), count))
    return Candidates(gather_rows(X, numbers), numbers)
