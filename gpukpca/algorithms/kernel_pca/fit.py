"""From data and a kernel to a model, by the way that the plan chose: tiles, a stored matrix, a factor, or landmarks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.model import Model, exact_model, nystrom_model, warn_of_certificate
from gpukpca.algorithms.kernel_pca.plan import Plan
from gpukpca.algorithms.kernel_pca.planning import make_plan
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings, is_share
from gpukpca.algorithms.kernel_pca.spectrum import (
    Spectrum,
    checked_spectrum,
    is_unresolved,
    nonzero_components,
    warn_of_gap,
    warn_of_identity,
    warn_of_lost_components,
    warn_of_rank,
)
from gpukpca.algorithms.kernel_pca.warm_start import components_of_sample
from gpukpca.algorithms.magnitude import row_bounds, scaled_rows
from gpukpca.algorithms.placement import Placement
from gpukpca.algorithms.progress import Listener, Progress, pass_report, rank_report, tile_report, timed
from gpukpca.algorithms.solver_warnings import warn_of_convergence, warn_of_fallbacks, warn_of_tolerance
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.finite import check_finite
from gpukpca.backend.namespace import dtype_name, overflow_allowed, to_host
from gpukpca.backend.rows import half_range, place_of, power_of_two_scale, take_rows, total_range
from gpukpca.eigen import BlockKrylov, EigenResult, Nystrom, top_eigh
from gpukpca.exceptions import (
    ConvergenceError,
    IndefiniteKernelError,
    InvalidParameterError,
    RankWarning,
    warn_user,
)
from gpukpca.gram import CenteredGram
from gpukpca.gram.storage import GramOperator
from gpukpca.kernels import Kernel, Precomputed
from gpukpca.kernels.prepared import PreparedRows

# Components asked for first where a share of the variance is wanted.
FIRST_GUESS = 16
# Rows that say whether a kernel that is 0 is so by underflow.
SEEN_ROWS = 16


def planned(
    settings: KernelPCASettings, X: Array, kernel: Kernel, place: Placement, limit: int
) -> tuple[Plan, PreparedRows | None]:
    """Return the plan for the components of the settings, and what the kernel learned from X."""
    template = None if kernel.stored_only else kernel.template(X, centered=True)
    p = initial_n_components(settings.n_components, int(X.shape[0]))
    return make_plan(settings, X, kernel, p, template, limit, place), template


def initial_n_components(wanted: Any, n: int) -> int:
    """Components that the first plan is made for."""
    return min(n, FIRST_GUESS if is_share(wanted) else n if wanted is None else int(wanted))


def warn_of_clamping(wanted: Any, n: int) -> None:
    """More components were asked for than there are samples."""
    if wanted is not None and wanted > n:
        warn_user(
            f"n_components={wanted} is more than the {n} sample(s); {n} components are computed.",
            RankWarning,
        )


def fitted_model(
    settings: KernelPCASettings, X: Array, kernel: Kernel, place: Placement, limit: int, tools: FitTools
) -> tuple[Plan, Model]:
    """Return the model for the components of the settings, within `limit` bytes, and the plan that was carried out."""
    warn_of_clamping(settings.n_components, int(X.shape[0]))
    plan, template = planned(settings, X, kernel, place, limit)
    if tools.listener is not None:
        tools.listener(Progress("plan", str(plan)))
    route = Route(settings, X, kernel, template, place, tools)
    try:
        return route.approximate(plan) if isinstance(plan.solver, Nystrom) else route.exact(plan)
    except (ConvergenceError, IndefiniteKernelError, InvalidParameterError):
        route.check_underflow()  # K then seems indefinite, or its products overflow
        raise


@dataclass(frozen=True)
class FitTools:
    """Hold the random numbers, the listener and the checkpoints of a fit.

    Attributes
    ----------
    rng : numpy.random.Generator
    listener : callable or None
        Gets `Progress` events.
    open_checkpoint : callable or None
        Takes the solver and returns a context with the checkpointer of the fit, or None inside.
    """

    rng: np.random.Generator
    listener: Listener | None = None
    open_checkpoint: Callable[[Any], AbstractContextManager[Any]] | None = None

    def checkpoint_of(self, solver: Any) -> AbstractContextManager[Any]:
        """Return the context with the checkpointer of the fit; None inside where there is none."""
        return nullcontext() if self.open_checkpoint is None else self.open_checkpoint(solver)


class Route:
    """One fit under way."""

    def __init__(
        self,
        settings: KernelPCASettings,
        X: Array,
        kernel: Kernel,
        template: PreparedRows | None,
        place: Placement,
        tools: FitTools,
    ) -> None:
        self.settings, self.X, self.kernel, self.template, self.tools = settings, X, kernel, template, tools
        self.place, self.rng = place, tools.rng
        self.source = X  # the rows that K is made from
        self.n = int(X.shape[0])
        self.listener = timed(tools.listener)
        self.checkpointer: Any = None

    # -- exact -----------------------------------------------------------------------------------------------------

    def exact(self, plan: Plan) -> tuple[Plan, Model]:
        """Eigenpairs of the centered kernel matrix, each with its residual."""
        with self.tools.checkpoint_of(plan.solver) as self.checkpointer:
            gram = self._gram(plan)
            op = CenteredGram(gram)
            start = self._start(gram, plan)
            if self.settings.is_share:
                plan, eigen, spectrum = self._grown(op, plan, start)
            else:
                eigen = self._solve(op, plan, start)
                spectrum = checked_spectrum(eigen, op, self.kernel.positive_definite, None)
        self.check_underflow(np.max(spectrum.eigenvalues, initial=0.0))
        warn_of_convergence(eigen, fixed=getattr(plan.solver, "passes", None) is not None)
        warn_of_fallbacks(eigen)
        if not is_unresolved(spectrum.eigenvalues, eigen, op):
            warn_of_tolerance(eigen, float(getattr(plan.solver, "tol", 0.0)), op.noise_scale)
        keep = self._kept(spectrum)
        warn_of_lost_components(spectrum.eigenvalues, eigen, op, self._is_constant)
        warn_of_rank(spectrum, keep, self.n)
        if not warn_of_identity(self.kernel, op.base, spectrum) and not self.settings.drops_zeros:
            warn_of_gap(eigen, keep)
        model = exact_model(self.X, op, gram.rows, eigen.truncated(keep), spectrum.truncated(keep))
        if self.settings.is_nystrom:  # the exact low-rank way took its place
            model = replace(model, certificate=eigen.null_threshold)
        return plan, replace(model, template=self._empty_template())

    @property
    def _resumed(self) -> int | None:
        """How many components the solution is for that a checkpoint goes on with."""
        return None if self.checkpointer is None else self.checkpointer.components

    def _is_constant(self) -> bool:
        """Whether all rows of the data are the same; a kernel matrix says so itself."""
        return isinstance(self.kernel, Precomputed) or total_range(self.X) == 0.0

    def check_underflow(self, largest: float | None = None) -> None:
        """Raise where kernel values underflow that do not for the same rows times a constant.

        `largest` is an eigenvalue: nothing is evaluated where it is a normal number. None: the fit failed, and values
        without all of their digits are the cause.
        """
        limits = np.finfo(dtype_name(place_of(self.X).dtype))
        least = float(limits.tiny) / (float(limits.eps) if largest is None else 1.0)
        if isinstance(self.kernel, Precomputed) or (largest is not None and largest >= self.n * least):
            return
        size = half_range(*row_bounds([self.X]))
        rows = take_rows(self.X, 0, min(self.n, SEEN_ROWS))
        with overflow_allowed():
            known, scaled = (
                float(np.max(np.abs(to_host(self.kernel.diagonal(Y)))))
                for Y in (rows, scaled_rows(rows, power_of_two_scale(size, np.float64)))
            )
        if size > 0.0 and known < least <= scaled:
            raise InvalidParameterError(
                f"the kernel matrix underflows: features range over at most {2.0 * size:.0e}, and {limits.dtype} does "
                f"not hold values of {self.kernel!r} so small. Multiply the data by 2**{-math.frexp(size)[1]}."
            )

    def _kept(self, spectrum: Spectrum) -> int:
        """How many components remain."""
        if not self.settings.drops_zeros:
            return len(spectrum.eigenvalues)
        return int(np.sum(nonzero_components(spectrum.eigenvalues, spectrum.dtype)))

    def _grown(self, op: CenteredGram, first: Plan, start: Array | None) -> tuple[Plan, EigenResult, Spectrum]:
        """Eigenpairs that reach the share of variance asked for, by growing p."""
        fraction = self.settings.share
        # The other solvers' work hardly depends on p: they are asked for everything, once.
        p = first.n_components if isinstance(first.solver, BlockKrylov) else first.storage.rank_bound
        p = p if self._resumed is None else self._resumed
        while True:
            plan = self._replanned(first, p)
            eigen = self._solve(op, plan, start)
            spectrum = checked_spectrum(eigen, op, self.kernel.positive_definite, fraction)
            enough = spectrum.components_for(fraction)
            if enough is None and p < self.n and isinstance(first.solver, BlockKrylov):
                start, p = eigen.eigenvectors, 2 * p if 10 * p <= self.n else self.n
                continue
            # No variance at all: one component of eigenvalue zero.
            keep = enough or max(1, int(np.sum(spectrum.eigenvalues > 0)))
            return replace(plan, n_components=keep), eigen.truncated(keep), spectrum.truncated(keep)

    def _replanned(self, first: Plan, p: int) -> Plan:
        """The plan for another p; the operator stays what it is, whatever the solver needs beside it."""
        if p == first.n_components or not isinstance(first.solver, BlockKrylov):
            return replace(first, n_components=p)
        plan = make_plan(self.settings, self.X, self.kernel, p, self.template, first.available_bytes, self.place)
        return replace(plan, storage=first.storage)

    def _gram(self, plan: Plan) -> GramOperator:
        """Return the operator of the uncentered kernel matrix."""
        report = tile_report(self.listener)
        n_jobs = self.settings.n_jobs
        return plan.storage.build(self.kernel, self.source, self.template, n_jobs=n_jobs, report=report)

    def _start(self, gram: GramOperator, plan: Plan) -> Array | None:
        """Return the directions that the iteration starts from where a pass is expensive."""
        if not plan.start_landmarks or gram.rows is None or self._resumed is not None:
            return None
        width = plan.solver.width(self.n, plan.n_components, on_gpu=is_on_gpu(gram.like))
        # A centered sample of m rows has m - 1 components, of which the leading ones are worth something.
        columns = min(width, plan.start_landmarks // 2)
        n_jobs = plan.storage.workers
        return components_of_sample(self.kernel, self.X, gram.rows, plan.start_landmarks, columns, self.rng, n_jobs)

    def _solve(self, op: CenteredGram, plan: Plan, start: Array | None) -> EigenResult:
        solver = plan.solver
        if start is not None and isinstance(solver, BlockKrylov):
            solver = replace(solver, start=start)
        report = pass_report(self.listener)
        eigen = top_eigh(
            op, plan.n_components, solver=solver, rng=self.rng, report=report, checkpointer=self.checkpointer
        )
        check_finite(eigen.eigenvectors, "The eigensolver failed on this matrix.", "The matrix of eigenvectors")
        return eigen

    # -- approximate -----------------------------------------------------------------------------------------------

    def approximate(self, plan: Plan) -> tuple[Plan, Model]:
        """The Nyström model."""
        settings = self.settings
        p = None if settings.n_components is None or settings.is_share else plan.n_components
        op = self._gram(plan)
        started = time.perf_counter()
        model = nystrom_model(self.X, op, plan.solver, p, self.rng, rank_report(self.listener))
        model = replace(model, eigen=replace(model.eigen, seconds=time.perf_counter() - started))
        self.check_underflow(np.max(model.spectrum.eigenvalues, initial=0.0))
        spectrum = model.spectrum
        keep = _certain_components(settings.share, spectrum) if settings.is_share else self._kept(spectrum)
        model = model.truncated(keep)
        warn_of_certificate(model, plan.solver, self._is_constant)
        if keep == 0:
            warn_of_rank(model.spectrum, keep, self.n)
        return replace(plan, n_components=keep), replace(model, template=self._empty_template())

    def _empty_template(self) -> PreparedRows | None:
        """What the kernel learned, without rows: a kernel of the user's may answer with all of them."""
        return None if self.template is None else self.template.slice(0, 0)


def _certain_components(fraction: float, spectrum: Spectrum) -> int:
    """Components that hold a share of the variance for certain, or an error that says what the landmarks hold."""
    enough = spectrum.components_for(fraction)
    if enough is None:
        raise InvalidParameterError(
            f"n_components={fraction}: the approximation is known to hold {float(np.sum(spectrum.ratios)):.4f} of the "
            "variance. Allow a larger rank, Nystrom(rank=...), or use an exact solver."
        )
    return enough
