"""Doors of the fits by landmarks: of rows with their factor in memory, by slices, of batches, and of one batch more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpukpca.algorithms.kernel_pca.exact import CheckpointOpener
from gpukpca.algorithms.kernel_pca.landmark_fit import landmark_fit, spanned_fit, updated_fit
from gpukpca.algorithms.kernel_pca.landmark_rows import (
    FirstRows,
    first_rows,
    given_landmarks,
    sampled_candidates,
)
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.planning import plan_of_batches
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings, resolved_within
from gpukpca.algorithms.kernel_pca.task import FitTask, LandmarkPool
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.progress import Listener, Progress, timed
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.namespace import item_size
from gpukpca.backend.random import Randomness
from gpukpca.data.batches import BatchedRows, rows_of_weight
from gpukpca.data.distinct import DistinctRows, first_of_each
from gpukpca.eigen.landmark_choice import FEWEST_SAMPLED, LandmarkChoice
from gpukpca.eigen.landmarks import Nystrom, is_given
from gpukpca.exceptions import InvalidParameterError, RankWarning, warn_user
from gpukpca.gram.storage import StorageInput
from gpukpca.kernels.base import Kernel

STORED_ONLY = (
    "a precomputed kernel, or a function of two rows, needs all rows at once. Batches are fitted with the name of a "
    "kernel or an object of gpukpca.kernels."
)


def fit_by_landmarks(
    task: FitTask, plan: Plan, source: StorageInput, rng: np.random.Generator, listener: Listener | None
) -> KernelPCAFit:
    """Return the fit of a plan with a `Nystrom` solver.

    Landmarks are chosen among all rows where their factor fits into memory, among a sample where it does not or where a
    cluster holds the rows, or are given.
    """
    storage: Any = plan.storage
    if storage.source is not None:
        every = FirstRows(LandmarkPool(storage.build(source), task.numbers_of(np.arange(task.n))), task.X)
        return _warned_of_equal_rows(landmark_fit(task, plan, every, rng, listener), task.basis)
    rows = task.X if task.is_on_cluster else task.device_rows or BatchedRows.of_array(task.X)
    if task.is_spanned:
        return spanned_fit(task, plan, FirstRows(None, rows), rng, listener)
    given = given_landmarks(plan.solver, task.X if task.every is None else task.every, task.X)
    among = given or sampled_candidates(task, storage.sample, rng)
    return _warned_of_equal_rows(landmark_fit(task, plan, FirstRows(among, rows), rng, listener), among.rows)


def _warned_of_equal_rows(fit: KernelPCAFit, among: Any) -> KernelPCAFit:
    """Return the fit; warn where fewer of the candidates `among` differ than landmarks were requested."""
    solver, stream, different = fit.plan.solver, fit.stream, fit.plan.n_samples
    if among is None or stream is None or not isinstance(solver, Nystrom) or is_given(solver):
        return fit
    rank = min(solver.rank or 0, different)  # fewer rows than landmarks are all of them
    if len(stream.shift) < rank == solver.rank and stream.stopped != "tolerance":
        different = len(first_of_each(among, rank)[0])
    if different < rank:
        warn_user(
            "fewer rows differ than landmarks are to be chosen, and equal rows are one landmark: a smaller rank gives "
            "the same fit.",
            RankWarning,
            different=different,
            rank=rank,
        )
    return fit


def fit_batches(
    batches: Any,
    kernel: Kernel,
    settings: KernelPCASettings,
    resources: Resources,
    *,
    random: Randomness,
    progress: Listener | None = None,
    open_checkpoint: CheckpointOpener | None = None,
    once: bool = False,
    **given: Any,
) -> KernelPCAFit:
    """Return the fit of batches of rows by Nyström, which reads each of them once; see `fit_kernel_pca`.

    Landmarks are chosen among the first rows, from which the kernel learns its rules where batches come only `once`.
    `given` are `weights` (n,), which say how often each row counts, `held` rows, which came before the batches, and the
    `numbers` of the rows among `every` row that was given.
    """
    has_checkpoint, listener = open_checkpoint is not None, timed(progress)
    how: dict[str, Any] = {"once": once, "has_checkpoint": has_checkpoint, "rng": random.generator}
    task, first = _begun(batches, kernel, settings, resources, **how, **given)
    plan = plan_of_batches(task, batches)
    if listener is not None:
        listener(Progress("plan", str(plan), seconds_left=plan.estimated_seconds))
    if task.is_spanned:
        return spanned_fit(task, plan, first, random.generator, listener)
    fit = landmark_fit(task, plan, first, random.generator, listener)
    # Only `partial_fit` passes `every`: it warns of equal rows itself.
    return fit if "every" in given else _warned_of_equal_rows(fit, first.sample.rows)


def plan_batches(
    batches: Any, kernel: Kernel, settings: KernelPCASettings, resources: Resources, has_checkpoint: bool
) -> Plan:
    """Return the plan of `fit_batches`; the rows among which landmarks are chosen are read, and no others."""
    task = _begun(batches, kernel, settings, resources, once=True, has_checkpoint=has_checkpoint)[0]
    return plan_of_batches(task, batches)


def rows_needed(kernel: Kernel, settings: KernelPCASettings) -> int:
    """Return how many different rows a stream needs first, to choose landmarks or for the kernel to learn from.

    Landmarks that are numbers of rows name those of the first batch.
    """
    choice = _choice_of(settings)
    learns = choice.points is not None and kernel.rule_bytes(1, 1)
    return choice.rank if learns or not choice.is_given else 0


def _choice_of(settings: KernelPCASettings) -> LandmarkChoice:
    """Return the landmarks of rows whose number is not known."""
    p = 0 if settings.n_components is None or settings.is_share else int(settings.n_components)
    return LandmarkChoice.of(settings.nystrom, None, p)


def _begun(
    batches: Any,
    kernel: Kernel,
    settings: KernelPCASettings,
    resources: Resources,
    *,
    once: bool,
    has_checkpoint: bool,
    rng: Any = None,
    weights: np.ndarray | None = None,
    held: DistinctRows | None = None,
    numbers: np.ndarray | None = None,
    every: Any = None,
) -> tuple[FitTask, FirstRows]:
    """Return the task of the rows among which landmarks are chosen, and these rows; see `fit_batches`.

    `once`: the kernel learns its rules from these rows, else from all. Without `rng` they are never drawn from all.
    """
    if kernel.stored_only:
        raise InvalidParameterError(STORED_ONLY, argument="kernel")
    choice, every = _choice_of(settings), batches if every is None and not once else every
    count = choice.sample_within(int(batches.like.shape[1]) * item_size(batches.dtype), resources.limit_set)
    count = max(FEWEST_SAMPLED, count) if choice.is_given else count
    from_all = rng is not None and choice.options.sample == "reservoir" and not choice.is_given
    if from_all and once:
        raise InvalidParameterError(
            'sample="reservoir" reads the batches twice. Give fit an object whose __iter__ starts again, such as '
            'gpukpca.Batches; or use sample="first", or landmarks that are points.',
            argument="eigen_solver",
        )
    if weights is not None and not np.all(weights):
        numbers, batches = np.flatnonzero(weights), rows_of_weight(batches, weights)
        weights = weights[numbers]
    if rng is not None and (from_all or (numbers is not None and not once)):  # the first rows may count for little
        sample, places, rows = batches.drawn(count, rng)
        pool = LandmarkPool(sample, places if numbers is None else numbers[places])
        first = FirstRows(pool, rows, held, weights)
    else:
        all_rows = FirstRows(None, batches, held, weights)
        first = first_rows(all_rows, count, rows_needed(kernel, settings), once, numbers)
    sample = first.sample.rows
    learned, counts = (sample, None) if once or not kernel.rule_bytes(1, 1) else (batches, weights)
    kernel = resolved_within(kernel, learned, resources, shown=sample, weights=counts)
    settings = replace(settings, solver=choice.options)
    task = FitTask.of(sample, kernel, settings, resources, has_checkpoint=has_checkpoint, weights=first.weights)
    among = given_landmarks(choice.options, sample if every is None else every, sample) or first.sample
    return task, first._replace(sample=among, in_order=first.in_order or among.numbers is None)


def fit_next_batch(
    fit: KernelPCAFit,
    batch: Any,
    settings: KernelPCASettings,
    resources: Resources,
    weights: np.ndarray | None = None,
) -> KernelPCAFit:
    """Return the fit of a stream after one more batch of rows (b, d) where it is computed; see `fit_batches`."""
    solver: Any = fit.plan.solver
    requested: Any = settings.nystrom
    before, now = (Nystrom(landmarks=one.landmarks) for one in (solver, requested))  # in any container
    if requested.rank not in (None, solver.rank) or before != now:
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
    storage: Any = fit.plan.storage
    stream: Any = fit.stream
    if not (is_given(solver) or storage.is_exact) and fit.plan.n_samples < (solver.rank or 0):
        warn_user(
            "the fit had fewer rows than landmarks were requested, and further rows add none. Begin with partial_fit, "
            "which holds rows until there are enough, or fit more rows first.",
            RankWarning,
            n_samples=fit.plan.n_samples,
            rank=solver.rank,
        )
    if not len(stream.shift):
        raise InvalidParameterError(
            "the rows of the fit are all equal, so that it has no landmark to continue with. Begin with partial_fit of "
            "a clone, which holds rows until enough of them differ, or fit rows that differ."
        )
    settings, basis = replace(settings, solver=solver), fit.map.basis
    p = fit.plan.n_components if settings.n_components is None or settings.is_share else int(settings.n_components)
    task = FitTask(basis, resources, fit.kernel, settings, basis, fit.map.template, p)
    task.check_rank(int(solver.rank or 0))
    return updated_fit(task, fit, batch, weights)
