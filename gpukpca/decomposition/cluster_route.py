"""From rows on a cluster to a model: workers make the tiles and multiply them, the rest is done here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpukpca._formatting import format_bytes
from gpukpca.algorithms.kernel_pca.fit import FitTools, Route, initial_n_components, warn_of_clamping
from gpukpca.algorithms.kernel_pca.model import Model
from gpukpca.algorithms.kernel_pca.plan import Plan
from gpukpca.algorithms.kernel_pca.planning import PlanRequest, plan_of, ranked
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings
from gpukpca.algorithms.progress import Progress
from gpukpca.backend.namespace import item_size
from gpukpca.decomposition.cluster import local_placement
from gpukpca.distributed import ClusterRows
from gpukpca.distributed.gram import ClusterStorage
from gpukpca.eigen import BlockKrylov, Dense, Nystrom
from gpukpca.eigen.partial_cholesky import default_block
from gpukpca.exceptions import InvalidParameterError, MemoryBudgetError
from gpukpca.gram.storage import LowRankStorage, Storage
from gpukpca.kernels import Kernel

# Blocks of n rows in this process beside the solver's: V and its copies, what comes back, the sums in float64.
BLOCKS_ON_THE_WAY = 6


def model_from_cluster(
    settings: KernelPCASettings, rows: ClusterRows, basis: Any, kernel: Kernel, limit: int, tools: FitTools
) -> tuple[Plan, Model]:
    """The model for the components asked for, and the plan that was carried out.

    `basis` is what the model takes its rows from: all of them in this process, or `rows` for landmarks.
    """
    warn_of_clamping(settings.n_components, rows.shape[0])
    route = _ClusterRoute(settings, rows, basis, kernel, limit, tools)
    plan = route.planned(initial_n_components(settings.n_components, rows.shape[0]))
    if tools.listener is not None:
        tools.listener(Progress("plan", str(plan)))
    return route.approximate(plan) if isinstance(plan.solver, Nystrom) else route.exact(plan)


def cluster_plan(settings: KernelPCASettings, rows: ClusterRows, kernel: Kernel, limit: int) -> Plan:
    """What the fit would do, and what memory it would take in this process."""
    route = _ClusterRoute(settings, rows, rows, kernel, limit, FitTools(np.random.default_rng(0)))
    return route.planned(initial_n_components(settings.n_components, rows.shape[0]))


class _ClusterRoute(Route):
    """One fit under way whose tiles are on the workers of a cluster."""

    def __init__(
        self,
        settings: KernelPCASettings,
        rows: ClusterRows,
        basis: Any,
        kernel: Kernel,
        limit: int,
        tools: FitTools,
    ) -> None:
        if kernel.stored_only:
            raise InvalidParameterError(
                "precomputed kernels and plain callables are stored whole, which a cluster cannot share out. Use a "
                "kernel object or a name, or fit in one process."
            )
        template = kernel.template(rows, centered=True)
        super().__init__(settings, basis, kernel, template, local_placement(rows), tools)
        self.source, self.limit = rows, limit

    def planned(self, p: int) -> Plan:
        """The plan for p components.

        Raises
        ------
        MemoryBudgetError
            What this process must hold is more than the limit.
        """
        n, rows = self.n, self.source
        solver, why = self.settings.solver_for(n, p, False)
        if isinstance(solver, Nystrom):
            solver, _, p = ranked(solver, self.settings, self.kernel, n, p)
        if isinstance(solver, Dense) and self.kernel.positive_definite is not True:
            solver = Dense(tol=solver.tol, full_spectrum=True)
        needed = self._bytes(solver, p)
        if needed > self.limit:
            other = ', or eigen_solver="randomized"' if isinstance(solver, Dense) else ""
            raise MemoryBudgetError(
                f"this process needs {format_bytes(needed)} for the eigenvectors of {n} rows, and "
                f"{format_bytes(self.limit)} are allowed or free. Ask for fewer components, use float32 data{other}."
            )
        workers = len(rows.cluster.workers)
        job = PlanRequest(self.settings, rows, self.kernel, self.template, p, self.limit, self.place, workers)
        cluster = f"cluster: {rows.cluster.describe()}"
        return plan_of(job, solver, why, self._storage(solver, workers), needed, notes=(cluster,))

    def _storage(self, solver: Any, workers: int) -> Storage:
        """Return the storage on the workers, or the factor of landmarks in this process."""
        tiles = ClusterStorage(self.n, workers)
        return LowRankStorage(self.n, workers, solver.rank or 0, tiles) if isinstance(solver, Nystrom) else tiles

    def _bytes(self, solver: Any, p: int) -> int:
        """What this process holds at the peak."""
        n, item = self.n, item_size(self.source.dtype)
        held = 0 if self.X is self.source else n * self.source.shape[1] * item
        if isinstance(solver, Nystrom):
            rank = solver.rank_for(n, p)
            return held + n * (rank + 2 * default_block(rank)) * item + 5 * 8 * rank**2
        workspace = solver.workspace_items(n, p, False) if hasattr(solver, "workspace_items") else 0
        if isinstance(solver, Dense):
            return held + (2 * n * n + workspace) * item
        width = solver.width(n, p, False) if isinstance(solver, BlockKrylov) else p
        return held + workspace * item + BLOCKS_ON_THE_WAY * 8 * n * width

    # -- what differs from a fit in one process ------------------------------------------------------------------------

    def _replanned(self, first: Plan, p: int) -> Plan:
        if p == first.n_components or not isinstance(first.solver, BlockKrylov):
            return replace(first, n_components=p)
        return self.planned(p)
