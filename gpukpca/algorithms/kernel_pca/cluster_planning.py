"""The plan of a fit on a cluster: workers make the tiles and multiply them, the rest is done in this process."""

from __future__ import annotations

from typing import Any

from gpukpca._formatting import format_bytes
from gpukpca.algorithms.kernel_pca.plan import Plan
from gpukpca.algorithms.kernel_pca.planning import PlanRequest, plan_of, ranked
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings
from gpukpca.algorithms.placement import Placement
from gpukpca.backend.namespace import item_size
from gpukpca.distributed import ClusterRows
from gpukpca.distributed.gram import ClusterStorage
from gpukpca.eigen import BlockKrylov, Dense, Nystrom
from gpukpca.eigen.partial_cholesky import default_block
from gpukpca.exceptions import InvalidParameterError, MemoryBudgetError
from gpukpca.gram.storage import LowRankStorage, Storage
from gpukpca.kernels import Kernel
from gpukpca.kernels.prepared import PreparedRows

# Blocks of n rows in this process beside the solver's: V and its copies, what comes back, the sums in float64.
BLOCKS_ON_THE_WAY = 6


def check_shareable(kernel: Kernel) -> None:
    """Raise `InvalidParameterError` for a kernel whose matrix is stored whole."""
    if kernel.stored_only:
        raise InvalidParameterError(
            "precomputed kernels and plain callables are stored whole, which a cluster cannot share out. Use a "
            "kernel object or a name, or fit in one process."
        )


def cluster_plan(
    settings: KernelPCASettings,
    rows: ClusterRows,
    kernel: Kernel,
    p: int,
    template: PreparedRows | None,
    limit: int,
    place: Placement,
    holds_rows: bool,
) -> Plan:
    """Return the plan for `p` components within `limit` bytes of this process.

    `holds_rows` says whether this process holds all rows beside the workers.

    Raises
    ------
    MemoryBudgetError
        What this process must hold is more than the limit.
    """
    n, d = rows.shape
    solver, why = settings.solver_for(n, p, False)
    if isinstance(solver, Nystrom):
        solver, _, p = ranked(solver, settings, kernel, n, p)
    if isinstance(solver, Dense) and kernel.positive_definite is not True:
        solver = Dense(tol=solver.tol, full_spectrum=True)
    item = item_size(rows.dtype)
    needed = _solver_bytes(solver, n, p, item) + (n * d * item if holds_rows else 0)
    if needed > limit:
        other = ', or eigen_solver="randomized"' if isinstance(solver, Dense) else ""
        raise MemoryBudgetError(
            f"this process needs {format_bytes(needed)} for the eigenvectors of {n} rows, and "
            f"{format_bytes(limit)} are allowed or free. Ask for fewer components, use float32 data{other}."
        )
    workers = len(rows.cluster.workers)
    job = PlanRequest(settings, rows, kernel, template, p, limit, place, workers)
    note = f"cluster: {rows.cluster.describe()}"
    return plan_of(job, solver, why, _storage(solver, n, workers), needed, notes=(note,))


def _storage(solver: Any, n: int, workers: int) -> Storage:
    """Return the storage on the workers, or the factor of landmarks in this process."""
    tiles = ClusterStorage(n, workers)
    return LowRankStorage(n, workers, solver.rank or 0, tiles) if isinstance(solver, Nystrom) else tiles


def _solver_bytes(solver: Any, n: int, p: int, item: int) -> int:
    """Return what the solver and its blocks take in this process at the peak."""
    if isinstance(solver, Nystrom):
        rank = solver.rank_for(n, p)
        return n * (rank + 2 * default_block(rank)) * item + 5 * 8 * rank**2
    workspace = solver.workspace_items(n, p, False) if hasattr(solver, "workspace_items") else 0
    if isinstance(solver, Dense):
        return (2 * n * n + workspace) * item
    width = solver.width(n, p, False) if isinstance(solver, BlockKrylov) else p
    return workspace * item + BLOCKS_ON_THE_WAY * 8 * n * width
