"""The work of a fit of PCA, for the estimate of its time."""

from __future__ import annotations

from typing import Any

from gpukpca.algorithms.work import COPIES, SPARSE_ENTRY_BYTES, STEPS, Work, krylov_work
from gpukpca.backend.namespace import is_sparse, item_size
from gpukpca.eigen.dense import FEW_PAIRS

# The work of a singular value decomposition, in units of that of all eigenpairs.
SVD = 3.0


def pca_work(job: Any, plan: Any) -> Work:
    """Return the work of a fit of PCA in one process by a `PCAPlan` for a `PCAPlanRequest`."""
    n, d, p, item = job.n, job.d, plan.n_components, item_size(job.X.dtype)
    solver = plan.solver
    few, widened = min(n, d), 8 // item
    stored = int(job.X.nnz) if is_sparse(job.X) else n * d
    work = Work(bytes=COPIES * stored * item, calls=STEPS) + _rows_times(job, stored, p)
    if plan.method == "full":
        return work + Work(eigenproblems=SVD * few**2 * max(n, d))
    if plan.method == "randomized" and solver is not None and solver.iterates(few, p):
        passes: int = solver.expected_passes(few, p, item, job.on_gpu)
        b: int = solver.width(few, p, job.on_gpu)
        return work + _rows_times(job, stored, 2 * b) * passes + krylov_work(solver, few, p, passes, job.on_gpu)
    size = n if plan.by_samples else d
    if is_sparse(job.X):
        met = stored**2 / (d if plan.by_samples else n)
        work += Work(sparse_products=met, bytes=SPARSE_ENTRY_BYTES * size**2)
    else:
        work += Work(products=widened * stored * size)
    if solver is not None and solver.iterates(size, p):
        passes = solver.expected_passes(size, p, 8, job.on_gpu)
        product = Work(blocks=2 * widened * size**2 * solver.width(size, p, job.on_gpu))
        return work + product * passes + krylov_work(solver, size, p, passes, job.on_gpu)
    pairs = 1.0 if job.whole or 2 * p > size else FEW_PAIRS
    return work + Work(eigenproblems=widened * pairs * size**3)


def _rows_times(job: Any, stored: int, columns: int) -> Work:
    """Return the work of a product of the rows and a block of so many columns."""
    return Work(sparse_blocks=stored * columns) if is_sparse(job.X) else Work(blocks=2 * stored * columns)
