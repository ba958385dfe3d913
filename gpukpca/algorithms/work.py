"""Estimates of the time of a fit: how often it does what, and how often a core or a card does that in a second.

Nothing is measured when a plan is made, so that the same job has the same plan. Estimates hold to a factor of a few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from gpukpca._formatting import format_seconds
from gpukpca.backend.namespace import is_numpy, is_sparse, item_size
from gpukpca.backend.parallel import usable_cpus
from gpukpca.eigen import BlockKrylov, Dense, LowRank, Nystrom
from gpukpca.gram.storage import LowRankStorage
from gpukpca.kernels import Kernel, Laplacian, Linear, PairwiseCallable, Precomputed


@dataclass(frozen=True)
class Work:
    """How often a fit does each kind of work, or how often it can be done in a second.

    Attributes
    ----------
    products : float
        Operations (one addition or multiplication) of products of two blocks of rows.
    blocks : float
        Operations of products with a block of few columns.
    functions : float
        Exponentials.
    differences : float
        Absolute differences, one a feature of a Manhattan distance.
    sparse_products : float
        Multiplications in products of two CSR matrices.
    sparse_blocks : float
        Multiplications in products of a CSR matrix and a block.
    eigenproblems : float
        n³ for all eigenpairs of an (n, n) matrix.
    bytes : float
        Read or written.
    calls : float
        Tiles and other steps that Python starts.
    """

    products: float = 0.0
    blocks: float = 0.0
    functions: float = 0.0
    differences: float = 0.0
    sparse_products: float = 0.0
    sparse_blocks: float = 0.0
    eigenproblems: float = 0.0
    bytes: float = 0.0
    calls: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, kind.name) + getattr(other, kind.name) for kind in fields(Work)))

    def __mul__(self, factor: float) -> Work:
        return Work(*(factor * getattr(self, kind.name) for kind in fields(Work)))

    def seconds(self, in_a_second: Work, workers: int = 1) -> float:
        """Return the time of all kinds one after another, by workers that each do `in_a_second`."""
        return sum(
            getattr(self, kind.name) / getattr(in_a_second, kind.name) / min(workers, SHARED_BY.get(kind.name, workers))
            for kind in fields(Work)
        )


# What one core does in a second, by the bytes of an item. Measured on one core of a server (AVX-512, OpenBLAS, BLAS at
# one thread): products of tiles 54 and 103 GF/s, with a block of 24 columns 24 and 52 GF/s, an exponential 0.79 and
# 0.44 ns in cache, a difference 0.43 ns, 13 ns a multiplication of two CSR matrices and 1 ns with a block, copies
# 5 GB/s, 130 µs a tile; all eigenpairs of n = 10 000 in 48 and 27 s on two cores.
CORE = {
    8: Work(54e9, 24e9, 1.3e9, 2.3e9, 7.5e7, 1e9, 1.0e10, 5e9, 8e3),
    4: Work(103e9, 52e9, 2.3e9, 2.3e9, 7.5e7, 1e9, 1.8e10, 5e9, 8e3),
}
# What a card does, an estimate from the data sheet of an NVIDIA H200: float32 products at 47 of 67 TF/s, tiles with a
# block bound by 4.3 TB/s of memory. CSR rows are computed on the host.
CARD = {
    8: Work(50e12, 20e12, 2e11, 1e12, 7.5e7, 1e9, 2e11, 4.3e12, 8e3),
    4: Work(47e12, 40e12, 4e11, 1.8e12, 7.5e7, 1e9, 2e11, 4.3e12, 8e3),
}
# Most workers that share a kind of work: LAPACK and copies are bound by memory.
SHARED_BY = {"eigenproblems": 4, "bytes": 4}

# Passes of block Krylov to the default tolerance (1e-8 in float64, 1e-5 in float32): 6 to 9 from a random start on real
# data. SPARE_COLUMNS more than those of the components save two passes, a start from the components of some rows one.
PASSES, FEWEST_PASSES = 7, 3
SPARE_COLUMNS, SAVED_BY_COLUMNS, SAVED_BY_START = 30, 2, 1
# Operations a pass for each entry of the basis and each column of a block: two projections, and what they subtract.
PER_BASIS_ENTRY = 8
# The share of the work of all eigenpairs that a few of them take, and the ratio of an SVD to it.
SOME_PAIRS, SVD = 0.4, 3.0
# Copies of the data while they are made ready, and steps of a fit outside of its passes.
COPIES, STEPS, STEPS_A_PASS = 6, 30, 10
# A tile of two CSR matrices is made dense, which costs as much as moving so many bytes an entry.
SPARSE_ENTRY_BYTES = 60
# Columns that randomly pivoted Cholesky evaluates for each that it keeps.
COLUMNS_A_PIVOT = 1.5


def estimate_seconds(work: Work, like: Any, dtype: Any, workers: int, on_gpu: bool) -> float:
    """Return the time of the work in seconds where `like` lives; other libraries of the host thread by themselves."""
    if on_gpu:
        return work.seconds(CARD[item_size(dtype)])
    return work.seconds(CORE[item_size(dtype)], workers if is_numpy(like) or is_sparse(like) else usable_cpus())


# -- kernel PCA --------------------------------------------------------------------------------------------------------


def kernel_pca_work(job: Any, plan: Any) -> Work | None:
    """Return the work of a fit by a plan; None for a function of two rows or a solver of the user's own.

    Parameters
    ----------
    job : gpukpca.algorithms.kernel_pca.planning.Job
    plan : gpukpca.algorithms.kernel_pca.plan.Plan
    """
    if isinstance(job.kernel, PairwiseCallable):
        return None
    work = Work(bytes=COPIES * job.data_bytes, calls=STEPS)
    if job.settings.preimage is not None and not isinstance(job.kernel, Linear):
        work += job.settings.preimage.fit_work(job.n, int(job.X.shape[1]), job.p, plan.preimage_landmarks)
    if isinstance(plan.solver, Nystrom):
        return work + _landmark_work(job, plan)
    if isinstance(plan.storage, LowRankStorage):
        return work + _factor_work(job, plan)
    evaluation = pair_work(job, job.kernel) * plan.storage.entries
    if isinstance(plan.solver, BlockKrylov) and 5 * job.p <= job.n:
        return work + _iteration_work(job, plan, evaluation)
    if isinstance(plan.solver, (Dense, BlockKrylov)):
        return work + evaluation + _dense_work(job, plan.solver)
    return None


def pair_work(job: Any, kernel: Kernel) -> Work:
    """Return the work of one entry of K."""
    if isinstance(kernel, Precomputed):
        return Work()
    inside = [value for value in kernel.get_params(deep=False).values() if isinstance(value, Kernel)]
    if inside:
        return sum((pair_work(job, part) for part in inside), Work())
    d = int(job.X.shape[1])
    if isinstance(kernel, Laplacian):
        return Work(differences=d, functions=1)
    values = Work(functions=kernel.exponentials)
    if is_sparse(job.X) and not kernel.densifies:
        met = (job.X.nnz / max(1, job.n)) ** 2 / d  # features that two rows share
        return values + Work(sparse_products=met, bytes=SPARSE_ENTRY_BYTES)
    wide = job.template is not None and job.template.wide and not job.on_gpu
    return values + Work(products=2 * (d + 2) * (2 if wide else 1))


def expected_passes(solver: BlockKrylov, n: int, p: int, item: int, on_gpu: bool, start: bool = False) -> int:
    """Return how many passes block Krylov makes: a fixed number, or that of most problems."""
    if solver.passes is not None:
        return max(1, solver.passes)
    saved = SAVED_BY_COLUMNS if solver.width(n, p, on_gpu) >= p + SPARE_COLUMNS else 0
    saved += SAVED_BY_START if start else 0
    usual = 1e-8 if item == 8 else 1e-5
    share = math.log(solver.tol) / math.log(usual) if solver.tol else 1.0
    return min(max(FEWEST_PASSES, round((PASSES - saved) * share)), solver.most_passes(p, solver.width(n, p, on_gpu)))


def krylov_work(solver: BlockKrylov, n: int, p: int, passes: int, on_gpu: bool) -> Work:
    """Return the work on the basis of block Krylov, without the products with the operator."""
    b = solver.width(n, p, on_gpu)
    columns = min(solver.basis_columns(n, p, on_gpu), b * passes)
    small = Work(eigenproblems=columns**3) * passes
    return small + Work(blocks=PER_BASIS_ENTRY * n * columns * b * passes, calls=STEPS_A_PASS * passes)


def _iteration_work(job: Any, plan: Any, evaluation: Work) -> Work:
    n, solver, storage = job.n, plan.solver, plan.storage
    passes = expected_passes(solver, n, job.p, job.item, job.on_gpu, plan.start_landmarks > 0)
    b = solver.width(n, job.p, job.on_gpu)
    one_pass = Work(blocks=2 * n * n * b, bytes=plan.bytes_read, calls=storage.tiles)
    work = evaluation * (1 + storage.recomputed_tiles / storage.tiles * (passes - 1)) + one_pass * passes
    start = pair_work(job, job.kernel) * (n * plan.start_landmarks) + Work(eigenproblems=plan.start_landmarks**3)
    return work + krylov_work(solver, n, job.p, passes, job.on_gpu) + start


def _dense_work(job: Any, solver: Any) -> Work:
    n, p = job.n, job.components_for(solver)
    pairs = 1.0 if 2 * p > n else SOME_PAIRS
    every = 1.0 if isinstance(solver, Dense) and solver.full_spectrum else 0.0
    return Work(eigenproblems=(pairs + SOME_PAIRS * every) * n**3, blocks=4 * n * n * p, bytes=6 * n * n * job.item)


def _small_work(job: Any, columns: int, p: int) -> Work:
    """Return the work of the eigenproblem of a factor, whose square is summed in float64."""
    n = job.n
    widened = 8 // job.item
    return Work(products=widened * n * columns**2, eigenproblems=columns**3, blocks=6 * n * columns * p)


def _factor_work(job: Any, plan: Any) -> Work:
    columns, solver = plan.storage.rank, plan.solver
    functions = 0 if isinstance(job.kernel, Linear) else job.n * columns
    work = Work(bytes=4 * job.n * columns * job.item, functions=functions)
    if isinstance(solver, LowRank):
        return work + _small_work(job, columns, plan.n_components)
    passes = expected_passes(solver, job.n, job.p, job.item, job.on_gpu)
    product = Work(blocks=4 * job.n * columns * solver.width(job.n, job.p, job.on_gpu))
    return work + product * passes + krylov_work(solver, job.n, job.p, passes, job.on_gpu)


def _landmark_work(job: Any, plan: Any) -> Work:
    rank = plan.storage.rank
    columns = pair_work(job, job.kernel) * (COLUMNS_A_PIVOT * job.n * rank)
    growing = Work(products=2 * job.n * rank**2, bytes=4 * job.n * rank * job.item + plan.bytes_read, calls=rank)
    return columns + growing + _small_work(job, rank, plan.n_components)


# -- PCA ---------------------------------------------------------------------------------------------------------------


def pca_work(job: Any, plan: Any) -> Work:
    """Return the work of a fit of PCA in one process by a plan.

    Parameters
    ----------
    job : gpukpca.algorithms.pca.plan.PCAJob
    plan : gpukpca.algorithms.pca.plan.PCAPlan
    """
    n, d, p, item = job.n, job.d, plan.n_components, item_size(job.X.dtype)
    few, widened = min(n, d), 8 // item
    stored = int(job.X.nnz) if is_sparse(job.X) else n * d
    work = Work(bytes=COPIES * stored * item, calls=STEPS) + _rows_times(job, stored, p)
    if plan.method == "full":
        return work + Work(eigenproblems=SVD * few**2 * max(n, d))
    if plan.method == "randomized" and 5 * p <= few:
        passes = expected_passes(plan.solver, few, p, item, job.on_gpu)
        b = plan.solver.width(few, p, job.on_gpu)
        return work + _rows_times(job, stored, 2 * b) * passes + krylov_work(plan.solver, few, p, passes, job.on_gpu)
    size = n if plan.by_samples else d
    if is_sparse(job.X):
        met = stored**2 / (d if plan.by_samples else n)
        work += Work(sparse_products=met, bytes=SPARSE_ENTRY_BYTES * size**2)
    else:
        work += Work(products=widened * stored * size)
    if isinstance(plan.solver, BlockKrylov) and 5 * p <= size:
        passes = expected_passes(plan.solver, size, p, 8, job.on_gpu)
        product = Work(blocks=2 * widened * size**2 * plan.solver.width(size, p, job.on_gpu))
        return work + product * passes + krylov_work(plan.solver, size, p, passes, job.on_gpu)
    pairs = 1.0 if job.whole or 2 * p > size else SOME_PAIRS
    return work + Work(eigenproblems=widened * pairs * size**3)


def _rows_times(job: Any, stored: int, columns: int) -> Work:
    """Return the work of a product of the rows and a block of so many columns."""
    return Work(sparse_blocks=stored * columns) if is_sparse(job.X) else Work(blocks=2 * stored * columns)


def time_line(seconds: float | None) -> list[str]:
    """Return the line of a plan about its time, if that is known."""
    if seconds is None:
        return []
    return [f"time      {f'about {format_seconds(seconds)}' if seconds >= 1 else 'less than 1 s'}, estimated"]
