"""The inputs of a fit that every step reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca.algorithms.kernel_pca.cluster_planning import check_shareable, cluster_plan
from gpukpca.algorithms.kernel_pca.plan import Plan, PlanRequest
from gpukpca.algorithms.kernel_pca.planning import make_plan
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings
from gpukpca.algorithms.kernel_pca.spectrum import Spectrum, nonzero_components
from gpukpca.algorithms.kernel_pca.underflow import is_constant
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.parallel import worker_count
from gpukpca.distributed import ClusterRows
from gpukpca.gram.storage import GramOperator
from gpukpca.kernels import Kernel
from gpukpca.kernels.prepared import PreparedRows

# Components of the first plan where a share of the variance is requested.
FIRST_GUESS = 16


@dataclass(frozen=True)
class FitTask:
    """The inputs of a fit.

    Attributes
    ----------
    X : array, CSR matrix or ClusterRows, shape (n, d)
        The rows that K is made from.
    kernel : Kernel
        With numbers in place of rules.
    settings : KernelPCASettings
    resources : Resources
    has_checkpoint : bool
        Whether the fit writes checkpoints.
    basis : array, CSR matrix or ClusterRows
        What the model takes its rows from: X, or the rows of a cluster in the memory of this process.
    template : PreparedRows or None
        What the kernel learned from X; None for stored kernels.
    """

    X: Any
    kernel: Kernel
    settings: KernelPCASettings
    resources: Resources
    has_checkpoint: bool
    basis: Any
    template: PreparedRows | None

    @classmethod
    def of(
        cls,
        X: Any,
        kernel: Kernel,
        settings: KernelPCASettings,
        resources: Resources,
        *,
        has_checkpoint: bool = False,
        basis: Any = None,
    ) -> FitTask:
        """Return the task, with what the kernel learns from X."""
        if isinstance(X, ClusterRows):
            check_shareable(kernel)
        template = None if kernel.stored_only else kernel.template(X, centered=True)
        return cls(X, kernel, settings, resources, has_checkpoint, X if basis is None else basis, template)

    @property
    def n(self) -> int:
        """Return the number of samples."""
        return int(self.X.shape[0])

    @property
    def empty_template(self) -> PreparedRows | None:
        """Return what the kernel learned, without rows: a kernel of the user's may answer with all of them."""
        return None if self.template is None else self.template.slice(0, 0)

    def first_plan(self) -> Plan:
        """Return the plan for the components of the settings; where a share is requested, for a first guess."""
        if self.settings.is_share:
            return self.plan(min(self.n, FIRST_GUESS))
        return self.plan(min(self.n, int(self.settings.n_components or self.n)))

    def plan(self, p: int) -> Plan:
        """Return the plan for p components."""
        resources, on_cluster = self.resources, isinstance(self.X, ClusterRows)
        workers = len(self.X.cluster.workers) if on_cluster else worker_count(resources.place.work, resources.n_jobs)
        request = PlanRequest(
            self.settings, self.X, self.kernel, self.template, p, resources, workers, self.has_checkpoint
        )
        return cluster_plan(request, self.basis is not self.X) if on_cluster else make_plan(request)

    def gram(self, plan: Plan, report: Callable[[int, int], None] | None) -> GramOperator:
        """Return the operator of the uncentered kernel matrix."""
        return plan.storage.build(self.kernel, self.X, self.template, self.resources.n_jobs, report)

    def n_kept(self, spectrum: Spectrum) -> int:
        """Return how many components remain: all, or those that are not zero."""
        if not self.settings.drops_zeros:
            return len(spectrum.eigenvalues)
        return int(np.sum(nonzero_components(spectrum.eigenvalues, spectrum.dtype)))

    def is_constant(self) -> bool:
        """Return whether all rows of the data are the same."""
        return is_constant(self.basis, self.kernel)
