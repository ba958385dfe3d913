"""The plan of a fit on a cluster: workers make the tiles and multiply them, the rest is done in this process."""

from __future__ import annotations

from dataclasses import replace

from gpukpca._formatting import format_bytes
from gpukpca.algorithms.kernel_pca.plan import Plan, PlanRequest, plan_of
from gpukpca.algorithms.kernel_pca.planning import with_rank
from gpukpca.distributed.gram import ClusterStorage
from gpukpca.eigen import Nystrom
from gpukpca.eigen.partial_cholesky import default_block
from gpukpca.eigen.solver import Solver, complete_solver
from gpukpca.exceptions import InvalidParameterError, MemoryBudgetError
from gpukpca.gram.storage import LowRankStorage, Storage
from gpukpca.kernels import Kernel

# Blocks of n rows in this process beside the solver's: V and its copies, what comes back, the sums in float64.
BLOCKS_ON_THE_WAY = 6


def check_shareable(kernel: Kernel) -> None:
    """Raise `InvalidParameterError` for a kernel whose matrix is stored whole."""
    if kernel.stored_only:
        raise InvalidParameterError(
            "precomputed kernels and plain callables are stored whole, which a cluster cannot share out. Use a "
            "kernel object or a name, or fit in one process."
        )


def cluster_plan(job: PlanRequest, holds_rows: bool) -> Plan:
    """Return the plan for the components of a request within the memory of this process.

    `holds_rows` says whether this process holds all rows beside the workers.

    Raises
    ------
    MemoryBudgetError
        What this process must hold is more than the limit.
    """
    n, d, p, item, settings, kernel = job.n, job.d, job.p, job.item, job.settings, job.kernel
    storage: Storage = ClusterStorage(n, job.workers)
    given, why = settings.solver_for(n, p, False)
    if isinstance(given, Nystrom):
        given, rank, p = with_rank(given, settings, kernel, n, p)
        storage = LowRankStorage(n, job.workers, rank, storage)
        needed = n * (rank + 2 * default_block(rank)) * item + 5 * 8 * rank**2
        solver = complete_solver(given)
    else:
        solver = complete_solver(given)
        solver = solver if kernel.positive_definite else solver.with_full_spectrum()
        needed = _solver_bytes(solver, n, p, item)
    needed += n * d * item if holds_rows else 0
    if needed > job.limit:
        other = ', or eigen_solver="randomized"' if solver.forms_matrix else ""
        raise MemoryBudgetError(
            f"this process needs {format_bytes(needed)} for the eigenvectors of {n} rows, and "
            f"{format_bytes(job.limit)} are allowed or free. Ask for fewer components, use float32 data{other}."
        )
    note = f"cluster: {job.X.cluster.describe()}"
    return plan_of(replace(job, p=p), solver, why, storage, needed, notes=(note,))


def _solver_bytes(solver: Solver, n: int, p: int, item: int) -> int:
    """Return what the solver and its blocks take in this process at the peak."""
    workspace = solver.workspace_items(n, p, False)
    if solver.forms_matrix:
        return (2 * n * n + workspace) * item
    return workspace * item + BLOCKS_ON_THE_WAY * 8 * n * solver.width(n, p, False)
