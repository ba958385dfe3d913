"""The fit of kernel PCA: resolve the kernel, plan, build K, center it, compute eigenpairs, return the result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gpukpca._rules import CALLABLE, NONE, one_of
from gpukpca._typing import Array
from gpukpca.algorithms.inputs import check_type, checked_listener
from gpukpca.algorithms.kernel_pca.feature_space import AffineProjection
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.nystrom import nystrom_fit
from gpukpca.algorithms.kernel_pca.planning import plan_of
from gpukpca.algorithms.kernel_pca.settings import TIE, KernelPCASettings
from gpukpca.algorithms.kernel_pca.spectrum import (
    Spectrum,
    check_underflow,
    checked_spectrum,
    is_unresolved,
    warn_of_gap,
    warn_of_identity,
    warn_of_lost_components,
    warn_of_passes,
    warn_of_rank,
    warn_of_unresolved_components,
)
from gpukpca.algorithms.kernel_pca.task import FitTask, resolved_within
from gpukpca.algorithms.plan import Candidate, Plan
from gpukpca.algorithms.progress import Listener, Progress, pass_report, tile_report, timed
from gpukpca.algorithms.resources import Resources
from gpukpca.algorithms.solver_warnings import warn_of_fallbacks, warn_of_share, warn_of_tolerance
from gpukpca.backend.device import device_context, is_on_gpu
from gpukpca.backend.namespace import empty_like, overflow_allowed
from gpukpca.backend.random import Randomness, random_subset
from gpukpca.data.finite import check_finite
from gpukpca.data.gate import as_rows
from gpukpca.data.place import own_copy
from gpukpca.data.rows import joined
from gpukpca.data.slicing import gather_rows, place_of
from gpukpca.eigen import BlockKrylov, EigenResult, PairRequest, top_eigh
from gpukpca.eigen.request import NeedsDense
from gpukpca.exceptions import ConvergenceError, IndefiniteKernelError, InvalidParameterError, RankWarning, warn_user
from gpukpca.gram import CenteredGram, DenseGram
from gpukpca.gram.product import compute_tile, prepared_matmat
from gpukpca.gram.storage import StorageInput
from gpukpca.kernels import Kernel, Precomputed
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.kernels.user_defined import check_symmetry

# The start of an iteration need not be better than the sample is.
SAMPLE_TOLERANCE = 1e-3

# From a solver to a context with the checkpointer of the fit, or None.
CheckpointOpener = Callable[[Any], AbstractContextManager[Any]]


def fit_kernel_pca(
    X: Any,
    kernel: Kernel,
    n_components: int | float | None = None,
    *,
    settings: KernelPCASettings = KernelPCASettings(),
    resources: Resources | None = None,
    rng: np.random.Generator | int | None = None,
    progress: Listener | None = None,
    open_checkpoint: CheckpointOpener | None = None,
) -> KernelPCAFit:
    """Compute the leading eigenpairs of the centered kernel matrix and the map that projects new points.

    The numbers are those of `gpukpca.KernelPCA`, without an estimator: arrays in, a frozen result out.

    Parameters
    ----------
    X : array or CSR matrix, shape (n, d)
        In any library that follows the Array API standard; not written to. With `gpukpca.kernels.Precomputed` the
        kernel matrix, shape (n, n).
    kernel : Kernel
        An object of `gpukpca.kernels`; gamma may be a rule such as "scale".
    n_components : int >= 1, float in (0, 1), or None
        A fraction keeps the fewest components that hold that share of the variance. None: as the settings say, and by
        default every component with a nonzero eigenvalue.
    settings : KernelPCASettings
        Solver, tolerance, storage of K.
    resources : Resources, optional
        Device, bytes that may be allocated, and threads: ``Resources.for_data(X, device="cuda", memory_limit="4GiB")``.
        Default: where X is, 85 % of the memory that is free there.
    rng : numpy.random.Generator, int, or None
        For the random start of block Krylov and the landmarks of Nyström.
    progress : callable, optional
        Receives `gpukpca.algorithms.progress.Progress` events.
    open_checkpoint : callable, optional
        Takes the solver and returns a context with a checkpointer, or None inside.

    Returns
    -------
    KernelPCAFit
        Frozen; its arrays live where the fit computed.

    Raises
    ------
    InvalidParameterError
        X is not two-dimensional or has no rows, the kernel is no kernel object, n_components is out of range.
    ValueError
        NaN or infinity in X.
    IndefiniteKernelError
        Significant negative eigenvalues among the components.
    MemoryBudgetError
        No plan fits into the memory.
    ConvergenceError
        No component was found in the passes allowed.

    Warns
    -----
    ConvergenceWarning, RankWarning, IndefiniteKernelWarning, PrecisionWarning, DeviceFallbackWarning

    See Also
    --------
    gpukpca.KernelPCA : The estimator, with names of kernels, pre-images, Dask and checkpoints.

    Notes
    -----
    Cost: O(n² d) for K once if it fits into memory, else in every pass; O(n² p) a pass; O(n³) for the dense solver.
    Schölkopf, Smola & Müller, Neural Computation 10 (1998) 1299.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.algorithms import fit_kernel_pca
    >>> from gpukpca.kernels import RBF
    >>> X = np.random.default_rng(0).standard_normal((200, 5))
    >>> fit = fit_kernel_pca(X, RBF(gamma=0.1), n_components=2)
    >>> fit.scores.shape, fit.transform(X[:3]).shape
    ((200, 2), (3, 2))
    >>> bool(np.all(fit.residual_norms <= 1e-6 * fit.eigenvalues[0]))
    True
    """
    check_type("settings", settings, KernelPCASettings)
    progress = checked_listener(progress)
    one_of(NONE, CALLABLE).check_argument("open_checkpoint", open_checkpoint)
    random = Randomness(rng, "rng")
    if None not in (n_components, settings.n_components) and n_components != settings.n_components:
        raise InvalidParameterError(
            f"n_components={n_components!r} is not that of the settings, {settings.n_components!r}; give one of them."
        )
    settings = settings if n_components is None else replace(settings, n_components=n_components)
    with device_context(X), overflow_allowed():
        container, X = X, as_rows(X, "kernel PCA", finite=True)
        resources = Resources.for_fit(resources, X)
    with device_context(resources.place.work), overflow_allowed():
        resources.check_copy(X)
        X = resources.place.to_work(X)
        if settings.copies_data and not resources.place.moved and not isinstance(kernel, Precomputed):
            X = own_copy(X, container)
        kernel = resolved_within(kernel, X, resources)
        check_symmetry(kernel, X)
        return fit_rows(
            X, kernel, settings, resources, random=random, progress=progress, open_checkpoint=open_checkpoint
        )


def fit_rows(
    X: Any,
    kernel: Kernel,
    settings: KernelPCASettings,
    resources: Resources,
    *,
    random: Randomness,
    progress: Listener | None = None,
    open_checkpoint: CheckpointOpener | None = None,
    basis: Any = None,
) -> KernelPCAFit:
    """Return the fit of finite rows X (n, d) where `resources` say that it computes; see `fit_kernel_pca`.

    X is an array, a CSR matrix or on a cluster. The kernel has numbers in place of rules. `basis` is the source of the
    rows of the model, by default X.
    """
    n, requested = int(X.shape[0]), settings.n_components
    if requested is not None and requested > n:
        warn_user(
            "n_components is more than the number of samples; one component for each sample is computed.",
            RankWarning,
            n_components=requested,
            n_samples=n,
        )
    task = FitTask.of(X, kernel, settings, resources, has_checkpoint=open_checkpoint is not None, basis=basis)
    chosen, listener = plan_of(task), timed(progress)
    plan = chosen.plan
    if listener is not None:
        listener(Progress("plan", str(plan)))
    storage: Any = plan.storage
    source = StorageInput(kernel, X, task.template, resources.n_jobs, tile_report(listener))
    try:
        if plan.is_approximate:
            return nystrom_fit(task, plan, storage.build(source), random.generator, listener)
        # K is released before the axes are computed.
        return _exact_fit(task, chosen, source, random, listener, open_checkpoint).with_axes()
    except (ConvergenceError, IndefiniteKernelError, InvalidParameterError):
        check_underflow(task.basis, kernel)  # K then seems indefinite, or its products overflow
        raise


def _exact_fit(
    task: FitTask,
    chosen: Candidate,
    source: StorageInput,
    random: Randomness,
    listener: Listener | None,
    open_checkpoint: CheckpointOpener | None,
) -> KernelPCAFit:
    """Return the fit by eigenpairs of K itself, with warnings of what they lack."""
    settings, plan = task.settings, chosen.plan
    op = _centered_gram(plan, source)
    solve: Callable[..., EigenResult] = partial(top_eigh, rng=random, report=pass_report(listener))
    eigen: EigenResult | None = None
    with nullcontext() if open_checkpoint is None else open_checkpoint(plan.solver) as checkpointer:
        try:
            eigen = solve(op, _request(task, chosen), _with_start(task, plan, op, random), checkpointer=checkpointer)
        except NeedsDense as reason:
            chosen = chosen.handed_over(settings.share, str(reason))
    if eigen is None:
        if chosen.plan.storage != plan.storage:
            del op  # two do not fit into memory
            op = _centered_gram(chosen.plan, source)
        plan, eigen = chosen.plan, solve(op, _request(task, chosen), chosen.plan.solver)
    check_finite(eigen.eigenvectors, "The eigensolver failed on this matrix.", "The matrix of eigenvectors")
    spectrum = checked_spectrum(eigen, op, task.kernel, settings.share or None)
    if settings.is_share:
        eigen, spectrum = _of_share(eigen, spectrum, settings.share, chosen.max_count)
        plan = chosen.plan_for(len(spectrum.eigenvalues))
    check_underflow(task.basis, task.kernel, np.max(spectrum.eigenvalues, initial=0.0))
    warn_of_passes(eigen)
    warn_of_fallbacks(eigen)
    keep = task.n_kept(spectrum)
    if not is_unresolved(spectrum.eigenvalues, eigen, op):
        warn_of_tolerance(eigen, getattr(plan.solver, "tol", settings.tol), op.noise_scale)
        if settings.n_components is not None:  # else components of rounding are among them
            warn_of_unresolved_components(eigen, spectrum.eigenvalues[:keep])
    warn_of_lost_components(spectrum.eigenvalues, eigen, op, task.is_constant)
    warn_of_rank(spectrum, keep, task.n)
    if not warn_of_identity(task.kernel, op.base, spectrum, task.basis) and not settings.drops_zeros:
        warn_of_gap(eigen, keep)
    eigen, spectrum = eigen.truncated(keep), spectrum.truncated(keep)
    affine, scores = AffineProjection.of_eigenpairs(
        op, eigen, spectrum.eigenvalues, task.basis, task.empty_template, op.base.rows
    )
    # An exact low-rank solution in place of a Nyström fit has a certificate too: rounding.
    certificate = eigen.null_threshold if settings.is_nystrom else None
    return KernelPCAFit.of_eigenpairs(
        task.kernel, plan, eigen, spectrum, scores, affine, n_jobs=task.resources.n_jobs, certificate=certificate
    )


def _request(task: FitTask, chosen: Candidate) -> PairRequest:
    """Return the eigenpairs to compute."""
    p = chosen.plan.n_components
    return task.settings.request_of_share(p, chosen.max_count) if task.settings.is_share else PairRequest.of_count(p)


def _centered_gram(plan: Plan, source: StorageInput) -> CenteredGram:
    """Return the centered operator of K in the storage of a plan, which may be a class of the user."""
    storage: Any = plan.storage
    op, n = CenteredGram(storage.build(source)), plan.n_samples
    if tuple(op.shape) != (n, n):
        raise InvalidParameterError(
            f"the operator of {type(storage).__name__} has shape {tuple(op.shape)}, and K of {n} rows ({n}, {n})."
        )
    return op


def _with_start(task: FitTask, plan: Plan, op: CenteredGram, random: Randomness) -> Any:
    """Return the solver of a plan, with the start that it states."""
    solver: Any = plan.solver
    size = plan.start_landmarks
    if not size or (rows := op.base.rows) is None:
        return solver
    # A centered sample of m rows has m - 1 components, of which the leading ones are worth something.
    columns = min(solver.width(task.n, plan.n_components, on_gpu=is_on_gpu(op.like)), size // 2)
    n_jobs = 1 if task.is_on_cluster else plan.workers  # Dask has a thread for every panel
    sample = partial(components_of_sample, task.kernel, task.X, rows, size, columns, n_jobs=n_jobs)
    return replace(solver, start=lambda: sample(random.generator))


def _of_share(eigen: EigenResult, spectrum: Spectrum, share: float, max_count: int) -> tuple[EigenResult, Spectrum]:
    """Return the components of a share that carry variance, one at least; warn where they are too few."""
    computed = len(spectrum.eigenvalues)
    keep = max(1, int(np.sum(spectrum.eigenvalues > 0)))
    reached = float(np.sum(spectrum.ratios))
    if computed == keep < max_count and 0.0 < reached < share * (1.0 - TIE):
        warn_of_share(keep, reached, share)
    return eigen.truncated(keep), spectrum.truncated(keep)


def components_of_sample(
    kernel: Kernel,
    X: Array,
    rows: PreparedRows,
    size: int,
    columns: int,
    rng: np.random.Generator,
    n_jobs: int | None = None,
) -> Array:
    """Return scores of all rows on the components of `size` random rows, (n, columns): Nyström with even landmarks.

    `rows` are those of X prepared for centering. Cost: n size kernel values, which is 2 size / n of a pass.
    """
    chosen = np.sort(random_subset(rng, rows.n_rows, size))
    sample = rows.take(chosen)
    K = compute_tile(kernel, sample, sample, empty_like(place_of(X)), diagonal=True)
    eigen = top_eigh(CenteredGram(DenseGram(K)), columns, solver=BlockKrylov(tol=SAMPLE_TOLERANCE), rng=rng)
    return joined(X, _sample_scores, kernel, gather_rows(X, chosen), sample, eigen.eigenvectors, n_jobs)


def _sample_scores(
    X: Array, kernel: Kernel, sampled: Array, sample: PreparedRows, vectors: Array, n_jobs: int | None
) -> Array:
    """Return K(X, sampled) @ vectors."""
    return prepared_matmat(kernel, X, sampled, sample, vectors, n_jobs=n_jobs)
