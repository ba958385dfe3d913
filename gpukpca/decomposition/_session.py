"""A fit of an estimator: parameters, device and memory checked once, and nothing changed when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from gpukpca.algorithms.fields import unchecked
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings, resolved_within
from gpukpca.algorithms.pca.settings import PCASettings
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.progress import Progress
from gpukpca.algorithms.resources import (
    ENDS_WITHOUT_LOCALS,
    MemoryBudget,
    Resources,
    clear_traceback_frames,
    retry_on_oom,
)
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import is_sparse, overflow_allowed
from gpukpca.backend.random import Randomness
from gpukpca.checkpoint import Checkpoint, Fingerprint, FolderCheckpointer, requests_by_signal, restore_choices
from gpukpca.data.gate import columns_named
from gpukpca.data.place import Placement, by_routes, placement_for
from gpukpca.decomposition._callbacks import fit_task, listener_of
from gpukpca.decomposition._fingerprint import kernel_fingerprint, pca_fingerprint
from gpukpca.decomposition._kernels import kernel_from
from gpukpca.decomposition._parameters import Devices, check_parameters
from gpukpca.decomposition.preimage.methods import check_preimage_suits, preimage_method
from gpukpca.eigen.solver import PlannedSolver, normalized
from gpukpca.exceptions import InvalidParameterError, warned_once
from gpukpca.kernels import Kernel

# scikit-learn's default; it means the default of the solver.
DEFAULT_OVERSAMPLES = 10

Result = TypeVar("Result")


@dataclass(frozen=True)
class FitSession:
    """The resources of a fit, or of one attempt of it.

    Attributes
    ----------
    device : None, str or sequence of str
        The parameter of the estimator.
    budget : MemoryBudget
        Bytes that may be allocated, and the attempts that ran out of memory.
    n_jobs : None or int
        The parameter of the estimator.
    """

    device: Devices
    budget: MemoryBudget
    n_jobs: int | None = None

    def place(self, data: Any, shape: tuple[int, ...] | None = None, of_pairs: bool = False) -> Placement:
        """Return where the data are computed; see `placement_for`."""
        return placement_for(self.device, data, shape, of_pairs)

    def resources(self, place: Placement) -> Resources:
        """Return the resources of the attempt at a place."""
        return Resources.within(self.budget, place, self.n_jobs)

    @contextmanager
    def on(self, place: Placement, data: Any) -> Iterator[Resources]:
        """Make a place current, once the data fit there; the value is the resources."""
        with device_context(place.work):
            resources = self.resources(place)
            resources.check_copy(data)
            yield resources


def fit_in_session(estimator: Any, X: Any, attempt: Callable[[FitSession], Result]) -> Result:
    """Return the result of `attempt`; repeat it, with less memory, where a device runs out of it.

    What a device cannot hold takes another route; see `by_routes`. Parameters are checked first, the device of X is
    current, and an exception restores the estimator. A warning that every batch or pass gives comes once. With a
    checkpoint, SIGUSR1 asks for one from here to the end, also while data are read and after the last pass.
    """
    signals = nullcontext() if getattr(estimator, "checkpoint", None) is None else requests_by_signal()
    with signals, fit_task(estimator, X), restore_on_error(estimator), columns_named(X), device_context(X):
        n_jobs = check_parameters(estimator).get("n_jobs")
        if getattr(estimator, "checkpoint", None) is not None:
            restore_choices(Checkpoint.of(estimator.checkpoint))

        def run() -> Result:
            budget = MemoryBudget(estimator.memory_limit, X)
            session = FitSession(estimator.device, budget, n_jobs)
            return retry_on_oom(partial(attempt, session), budget, once=isinstance(X, Iterator))

        with overflow_allowed(), warned_once(set()):
            return by_routes(run, estimator.device, X)


@contextmanager
def restore_on_error(estimator: Any) -> Iterator[None]:
    """Put the attributes back on any exception, KeyboardInterrupt and MemoryError included."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException as error:
        vars(estimator).clear()
        vars(estimator).update(before)
        if isinstance(error, ENDS_WITHOUT_LOCALS):
            clear_traceback_frames(error)
        raise


def open_checkpoint(
    estimator: Any, fingerprint: Callable[[PlannedSolver], Fingerprint], solver: Any
) -> AbstractContextManager[FolderCheckpointer | None]:
    """Return the checkpointer of a fit with a folder; None inside where the solver makes no passes."""
    if solver is None or not solver.grows_with_p:
        return nullcontext()
    listener = listener_of(estimator)

    def report(stage: str, text: str, done: int) -> None:
        if listener is not None:
            listener(Progress(stage, text, done))

    return FolderCheckpointer(Checkpoint.of(estimator.checkpoint), fingerprint(solver), report)


def settings_of(estimator: Any, kernel: Kernel) -> KernelPCASettings:
    """Return the checked parameters of a KernelPCA that the algorithm needs; the kernel has numbers for rules."""
    e = estimator
    return unchecked(
        KernelPCASettings,
        n_components=e.n_components,
        solver=normalized(e.eigen_solver),
        tol=float(e.tol),
        max_passes=e.max_iter,
        passes=None if e.iterated_power == "auto" else int(e.iterated_power),
        gram=e.gram,
        center=bool(e.center),
        remove_zeros=bool(e.remove_zero_eig),
        copies_data=bool(e.copy_X),
        preimage=preimage_method(e, kernel),
    )


def pca_settings(estimator: Any) -> PCASettings:
    """Return the checked parameters of a PCA that the algorithm needs."""
    return unchecked(
        PCASettings,
        solver=estimator.svd_solver,
        passes=None if estimator.iterated_power == "auto" else int(estimator.iterated_power) + 1,
        oversampling=None if estimator.n_oversamples == DEFAULT_OVERSAMPLES else int(estimator.n_oversamples),
        tol=float(estimator.tol),
        center=estimator.center,
        scale=estimator.scale,
        has_checkpoint=estimator.checkpoint is not None,
    )


def kernel_and_settings(
    estimator: Any, X: Any, resources: Resources, weights: np.ndarray | None = None
) -> tuple[Kernel, KernelPCASettings]:
    """Return the kernel with numbers for rules, and the parameters of the algorithm."""
    kernel = resolved_within(kernel_from(estimator), X, resources, weights=weights)
    settings = settings_of(estimator, kernel)
    if settings.preimage is not None:
        if is_sparse(X):
            raise InvalidParameterError("Inverse transform not implemented for sparse matrices! Pass X.toarray().")
        check_preimage_suits(settings.preimage, kernel, by_flag=estimator.preimage is None)
    return kernel, settings


def fit_tools(estimator: Any, X: Any, kernel: Kernel, weights: np.ndarray | None = None) -> dict[str, Any]:
    """Return the random numbers, the listener and the checkpoints of a fit of KernelPCA."""
    random = Randomness(estimator.random_state)
    tools: dict[str, Any] = {"random": random, "progress": listener_of(estimator)}
    if estimator.checkpoint is not None:
        fingerprint = partial(kernel_fingerprint, estimator, X, kernel, random.generator, weights)
        tools["open_checkpoint"] = partial(open_checkpoint, estimator, fingerprint)
    return tools


def pca_tools(estimator: Any, X: Any, sample_weight: Any) -> dict[str, Any]:
    """Return the random numbers, the listener and the checkpoints of a fit of PCA."""
    random = Randomness(estimator.random_state)

    def opened(plan: Plan) -> AbstractContextManager[FolderCheckpointer | None]:
        fingerprint = partial(pca_fingerprint, estimator, X, plan, random.generator, sample_weight)
        return open_checkpoint(estimator, fingerprint, plan.solver)

    checkpoints = None if estimator.checkpoint is None else opened
    return {"random": random, "progress": listener_of(estimator), "open_checkpoint": checkpoints}
