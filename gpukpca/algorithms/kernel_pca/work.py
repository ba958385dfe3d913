"""The work of a fit by kernel PCA, for the estimate of its time."""

from __future__ import annotations

from gpukpca.algorithms.kernel_pca.plan import Plan
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.work import COPIES, SPARSE_ENTRY_BYTES, STEPS, Work, krylov_work
from gpukpca.backend.namespace import is_sparse
from gpukpca.eigen.solver import Solver, complete_solver
from gpukpca.gram.storage import LowRankStorage
from gpukpca.kernels import Kernel, Laplacian, Linear, PairwiseCallable, Precomputed

# Columns that randomly pivoted Cholesky evaluates for each that it keeps.
COLUMNS_A_PIVOT = 1.5


def kernel_pca_work(job: FitTask, plan: Plan) -> Work | None:
    """Return the work of a fit by a plan; None for a function of two rows or a solver of unknown work."""
    if isinstance(job.kernel, PairwiseCallable):
        return None
    work = Work(bytes=COPIES * job.data_bytes, calls=STEPS)
    if job.preimage is not None:
        work += job.preimage.fit_work(job.n, job.d, job.p, plan.preimage_landmarks)
    if isinstance(plan.storage, LowRankStorage):
        by_features = plan.storage.source is None
        return work + (_factor_work if by_features else _landmark_work)(job, plan, plan.storage.rank)
    solver = complete_solver(plan.solver)
    evaluation = pair_work(job, job.kernel) * plan.storage.entries
    if solver.iterates(job.n, job.p):
        return work + _iteration_work(job, plan, evaluation)
    dense = _dense_work(job, solver)
    return None if dense is None else work + evaluation + dense


def pair_work(job: FitTask, kernel: Kernel) -> Work:
    """Return the work of one entry of K."""
    if isinstance(kernel, Precomputed):
        return Work()
    inside = [value for value in kernel.get_params(deep=False).values() if isinstance(value, Kernel)]
    if inside:
        return sum((pair_work(job, part) for part in inside), Work())
    if isinstance(kernel, Laplacian):
        return Work(differences=job.d, functions=1)
    values = Work(functions=kernel.exponentials)
    if is_sparse(job.X) and not kernel.densifies:
        met = (job.X.nnz / max(1, job.n)) ** 2 / job.d  # features that two rows share
        return values + Work(sparse_products=met, bytes=SPARSE_ENTRY_BYTES)
    wide = job.template is not None and job.template.wide and not job.on_gpu
    return values + Work(products=2 * (job.d + 2) * (2 if wide else 1))


def _iteration_work(job: FitTask, plan: Plan, evaluation: Work) -> Work:
    n, solver, storage = job.n, complete_solver(plan.solver), plan.storage
    passes = solver.expected_passes(n, job.p, job.item, job.on_gpu, plan.start_landmarks > 0)
    b = solver.width(n, job.p, job.on_gpu)
    one_pass = Work(blocks=2 * n * n * b, bytes=plan.bytes_read, calls=storage.tiles)
    recomputed = 1.0 - (storage.tiles - storage.recomputed_tiles) / storage.tiles
    work = evaluation * (1 + recomputed * (passes - 1)) + one_pass * passes
    start = pair_work(job, job.kernel) * (n * plan.start_landmarks) + Work(eigenproblems=plan.start_landmarks**3)
    return work + krylov_work(solver, n, job.p, passes, job.on_gpu) + start


def _dense_work(job: FitTask, solver: Solver) -> Work | None:
    n, p = job.n, job.components_for(solver)
    share = solver.direct_work(n, p)
    return None if share is None else Work(eigenproblems=share * n**3, blocks=4 * n * n * p, bytes=6 * n * n * job.item)


def _small_work(job: FitTask, columns: int, p: int) -> Work:
    """Return the work of the eigenproblem of a factor, whose square is summed in float64."""
    n = job.n
    widened = 8 // job.item
    return Work(products=widened * n * columns**2, eigenproblems=columns**3, blocks=6 * n * columns * p)


def _factor_work(job: FitTask, plan: Plan, columns: int) -> Work:
    solver = complete_solver(plan.solver)
    functions = 0 if isinstance(job.kernel, Linear) else job.n * columns
    work = Work(bytes=4 * job.n * columns * job.item, functions=functions)
    if not solver.iterates(job.n, job.p):
        return work + _small_work(job, columns, plan.n_components)
    passes = solver.expected_passes(job.n, job.p, job.item, job.on_gpu)
    product = Work(blocks=4 * job.n * columns * solver.width(job.n, job.p, job.on_gpu))
    return work + product * passes + krylov_work(solver, job.n, job.p, passes, job.on_gpu)


def _landmark_work(job: FitTask, plan: Plan, rank: int) -> Work:
    columns = pair_work(job, job.kernel) * (COLUMNS_A_PIVOT * job.n * rank)
    growing = Work(products=2 * job.n * rank**2, bytes=4 * job.n * rank * job.item + plan.bytes_read, calls=rank)
    return columns + growing + _small_work(job, rank, plan.n_components)
