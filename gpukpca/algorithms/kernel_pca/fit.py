"""The fit of kernel PCA: check the input, resolve the kernel, plan, and compute by eigenpairs or by landmarks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpukpca._rules import CALLABLE, NONE, one_of
from gpukpca.algorithms.inputs import check_type, checked_listener, counted_for, weights_of_batches
from gpukpca.algorithms.kernel_pca.batches import fit_batches, fit_by_landmarks
from gpukpca.algorithms.kernel_pca.exact import CheckpointOpener, exact_fit
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.planning import equal_passes, plan_of
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings, resolved_within, rows_to_check
from gpukpca.algorithms.kernel_pca.spectrum import check_underflow
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.progress import Listener, Progress, tile_report, timed
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import overflow_allowed
from gpukpca.backend.random import Randomness
from gpukpca.data.gate import as_rows, is_in_panels, is_unread
from gpukpca.data.place import own_copy
from gpukpca.exceptions import ConvergenceError, IndefiniteKernelError, InvalidParameterError, RankWarning, warn_user
from gpukpca.gram.storage import StorageInput
from gpukpca.kernels import Kernel, Precomputed
from gpukpca.kernels.user_defined import kernel_matrix


def fit_kernel_pca(
    X: Any,
    kernel: Kernel,
    n_components: int | float | None = None,
    *,
    sample_weight: Any = None,
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
        A fraction keeps the fewest components that hold more than that share of the variance. None: as the settings
        say, and by default every component with a nonzero eigenvalue.
    sample_weight : array, shape (n,), optional
        How often each row counts; see `gpukpca.KernelPCA.fit`.
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
    Cost: O(n² d) for K once if it fits into memory, else in every pass; O(n² p) per pass; O(n³) for the dense solver.
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
    how: dict[str, Any] = {"random": Randomness(rng, "rng"), "progress": progress, "open_checkpoint": open_checkpoint}
    if None not in (n_components, settings.n_components) and n_components != settings.n_components:
        raise InvalidParameterError(
            f"n_components={n_components!r} is not that of the settings, {settings.n_components!r}; give one of them."
        )
    settings = settings if n_components is None else replace(settings, n_components=n_components)
    with device_context(X), overflow_allowed():
        if isinstance(kernel, Precomputed):
            X = kernel_matrix(as_rows(X) if is_unread(X) else X)
        counts = rows_to_check(settings.solver, sample_weight)
        container, X = X, as_rows(X, "kernel PCA", finite=True, counts=counts, panels=settings.nystrom is not None)
        if is_in_panels(X):
            resources, weights = Resources.for_fit(resources, X), weights_of_batches(X, sample_weight, X)
            return fit_batches(X, kernel, settings, resources, weights=weights, **how)
        every, (X, weights, numbers) = X, counted_for(kernel, X, sample_weight)
        resources = Resources.for_fit(resources, X)
    with device_context(resources.place.work), overflow_allowed():
        resources.check_copy(X)
        X = resources.place.to_work(X)
        if settings.copies_data and not resources.place.moved and not isinstance(kernel, Precomputed):
            X = own_copy(X, container)
        kernel = resolved_within(kernel, X, resources, weights=weights)
        return fit_rows(X, kernel, settings, resources, weights=weights, numbers=numbers, every=every, **how)


def fit_rows(
    X: Any,
    kernel: Kernel,
    settings: KernelPCASettings,
    resources: Resources,
    *,
    random: Randomness,
    progress: Listener | None = None,
    open_checkpoint: CheckpointOpener | None = None,
    **given: Any,
) -> KernelPCAFit:
    """Return the fit of finite rows X (n, d) where `resources` say that it computes; see `fit_kernel_pca`.

    X is an array, a CSR matrix or on a cluster. The kernel has numbers in place of rules. `given` are fields of the
    task: the `basis`, `weights` above 0, and the `numbers` of the rows among `every` row that was given.
    """
    n, requested = int(X.shape[0]), settings.n_components
    if requested is not None and requested > n:
        warn_user(
            "n_components is more than the number of samples; one component for each sample is computed.",
            RankWarning,
            n_components=requested,
            n_samples=n,
        )
    task = FitTask.of(X, kernel, settings, resources, has_checkpoint=open_checkpoint is not None, **given)
    chosen, listener = plan_of(task), timed(progress)
    plan = chosen.plan
    if listener is not None:
        passes = equal_passes(task, plan)
        listener(Progress("plan", str(plan), total=passes, seconds_left=plan.estimated_seconds))
    source = StorageInput(kernel, X, task.template, resources.n_jobs, tile_report(listener), resources.place.others)
    try:
        if plan.is_approximate or task.is_spanned:
            return fit_by_landmarks(task, plan, source, random.generator, listener)
        # K is released before the axes are computed.
        return exact_fit(task, chosen, source, random, listener, open_checkpoint).with_axes()
    except (ConvergenceError, IndefiniteKernelError, InvalidParameterError):
        check_underflow(task.basis, kernel)  # K then seems indefinite, or its products overflow
        raise
