"""The fit of kernel PCA by eigenpairs of K itself: build K, center it, compute eigenpairs, warn of what they lack."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import first_components
from gpukpca.algorithms.kernel_pca.feature_space import AffineProjection
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.spectrum import (
    OF_UNRESOLVED,
    Spectrum,
    check_underflow,
    checked_spectrum,
    is_unresolved,
    warn_of_gap,
    warn_of_identity,
    warn_of_lost_components,
    warn_of_passes,
    warn_of_rank,
)
from gpukpca.algorithms.kernel_pca.start import components_by_sample
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.plan import Candidate, Plan
from gpukpca.algorithms.progress import Listener, Progress, pass_report
from gpukpca.algorithms.solver_warnings import warn_of_fallbacks, warn_of_share, warn_of_tolerance, warn_of_unresolved
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.namespace import epsilon, to_host
from gpukpca.backend.random import Randomness
from gpukpca.data.finite import check_finite
from gpukpca.eigen import EigenResult, top_eigh
from gpukpca.eigen.request import NeedsDense, PairRequest
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import CenteredGram
from gpukpca.gram.storage import StorageInput

# The largest residual of vectors of a twin, over the largest eigenvalue, that spared passes over K itself.
USELESS_TWIN = {"float32": 1e-3, "float16": 0.05}
# From a solver to a context with the checkpointer of the fit, or None.
CheckpointOpener = Callable[[Any], AbstractContextManager[Any]]


def exact_fit(
    task: FitTask,
    chosen: Candidate,
    source: StorageInput,
    random: Randomness,
    listener: Listener | None,
    open_checkpoint: CheckpointOpener | None,
) -> KernelPCAFit:
    """Return the fit by eigenpairs of K itself, with warnings of what they lack."""
    settings, plan = task.settings, chosen.plan
    op = _centered_gram(task, plan, source)
    solve: Callable[..., EigenResult] = partial(top_eigh, rng=random, report=pass_report(listener))
    eigen: EigenResult | None = None
    with nullcontext() if open_checkpoint is None else open_checkpoint(plan.solver) as checkpointer:
        try:
            eigen = solve(
                op, _request(task, chosen, op), _with_start(task, plan, op, random, listener), checkpointer=checkpointer
            )
        except NeedsDense as reason:
            chosen = chosen.handed_over(settings.share, str(reason))
    if eigen is None:
        op.twin = None  # the plan of the dense solver counts no other tiles
        if chosen.plan.storage != plan.storage:
            del op  # two do not fit into memory
            op = _centered_gram(task, chosen.plan, source)
        plan, eigen = chosen.plan, solve(op, _request(task, chosen, op), chosen.plan.solver)
    left = math.inf if eigen.twin_residual is None else eigen.twin_residual
    if plan.twin is not None and left > USELESS_TWIN[name := plan.twin.type_of_twin]:
        how = f"was dropped: its vectors left a residual of {left:.1g}" if left < math.inf else "was not used"
        plan = chosen.with_notes(f"the {name} twin {how}").plan
    if task.frequencies is not None:
        eigen = eigen.signed_by(task.frequencies.unrooted(eigen.eigenvectors))
    check_finite(eigen.eigenvectors, "The eigensolver failed on this matrix.", "The matrix of eigenvectors")
    spectrum = checked_spectrum(eigen, op, task.kernel, settings.share or None)
    if settings.is_share:
        eigen, spectrum = _of_share(eigen, spectrum, settings.share, chosen.max_count)
        plan = chosen.plan_for(len(spectrum.eigenvalues))
    check_underflow(task.basis, task.kernel, spectrum.eigenvalues.max(initial=0.0))
    warn_of_passes(eigen)
    warn_of_fallbacks(eigen)
    keep = task.n_kept(spectrum)
    if not is_unresolved(spectrum.eigenvalues, eigen, op):
        warn_of_tolerance(eigen, getattr(plan.solver, "tol", settings.tol), op.noise_scale)
        if settings.n_components is not None:  # else components of rounding are among them
            norms = to_host(eigen.residual_norms).astype(np.float64)[:keep]
            known = spectrum.eigenvalues[:keep], norms, eigen.converged[:keep]
            warn_of_unresolved(*known, eigen.requested_tolerance, OF_UNRESOLVED)
    else:
        warn_of_lost_components(spectrum.eigenvalues, eigen, op, task.is_constant)
    warn_of_rank(spectrum, keep, task.n, f"the {'centered ' * settings.center}kernel matrix")
    is_poor = warn_of_identity(task.kernel, task.n, lambda: op.uncentered_trace, spectrum, task.basis)
    if not is_poor and not settings.drops_zeros:
        warn_of_gap(eigen, keep)
    eigen, spectrum = eigen.truncated(keep), first_components(spectrum, keep)
    affine, scores = AffineProjection.of_eigenpairs(
        op, eigen, spectrum.eigenvalues, task.basis, task.empty_template, op.base.rows
    )
    return KernelPCAFit.of_eigenpairs(
        task.kernel,
        plan,
        eigen,
        spectrum,
        scores,
        affine,
        n_jobs=task.resources.n_jobs,
        weight_sum=task.weight_sum,
    )


def _request(task: FitTask, chosen: Candidate, op: CenteredGram) -> PairRequest:
    """Return the eigenpairs to compute."""
    p, share = chosen.plan.n_components, task.settings.share
    return PairRequest.of_share(share, chosen.max_count, p, epsilon(op.like)) if share else PairRequest.of_count(p)


def _centered_gram(task: FitTask, plan: Plan, source: StorageInput) -> CenteredGram:
    """Return the operator of K for the eigensolver, in the storage of a plan, which may be a class of the user."""
    storage: Any = plan.storage
    op = CenteredGram(storage.build(source), center=task.settings.center, frequencies=task.frequencies)
    n = plan.n_samples
    if tuple(op.shape) != (n, n):
        raise InvalidParameterError(
            f"the operator of {type(storage).__name__} has shape {tuple(op.shape)}, and K of {n} rows ({n}, {n})."
        )
    if plan.twin is not None and (base := plan.twin.twin_of(op.base, source, op.center)) is not None:
        op.twin = CenteredGram(base, center=op.center, frequencies=task.frequencies)
    return op


def _with_start(task: FitTask, plan: Plan, op: CenteredGram, random: Randomness, listener: Listener | None) -> Any:
    """Return the solver of a plan, with the start that it states."""
    solver: Any = plan.solver
    size, start = plan.start_landmarks, getattr(plan.solver, "start", None)
    if size and op.base.rows is not None:
        columns = solver.width(task.n, plan.n_components, on_gpu=is_on_gpu(op.like))
        n_jobs = 1 if task.is_on_cluster else plan.workers  # Dask has a thread for every panel
        given = task.kernel, task.X, op, size, columns, random.generator, n_jobs
        start = partial(components_by_sample, *given)
    return replace(solver, start=partial(_reported, start, listener)) if callable(start) else solver


def _reported(start: Callable[[], Array], listener: Listener | None) -> Array:
    """Return a start, and report it: its time is no part of the first pass."""
    directions = start()
    if listener is not None:
        listener(Progress("start", "directions to start from are computed"))
    return directions


def _of_share(eigen: EigenResult, spectrum: Spectrum, share: float, max_count: int) -> tuple[EigenResult, Spectrum]:
    """Return the components of a share that carry variance, one at least; warn where they are too few."""
    computed = len(spectrum.eigenvalues)
    keep = max(1, min(spectrum.count_of_share(share) or computed, int(np.sum(spectrum.eigenvalues > 0))))
    reached = float(np.sum(spectrum.ratios[:keep]))
    if computed == keep < max_count and 0.0 < reached < share:
        warn_of_share(keep, reached, share)
    return eigen.truncated(keep), first_components(spectrum, keep)
