"""The candidates of a plan of PCA: methods, each with its bytes and its work from shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from gpukpca._formatting import format_bytes
from gpukpca.algorithms.bill import BLOCKS_IN_TRANSIT, Bill, Parts, fewer, total, with_pairs
from gpukpca.algorithms.pca.settings import ITERATIVE, PCASettings, PCASolver, RankRequest
from gpukpca.algorithms.plan import SPARSE_ENTRY_BYTES, Candidate, choose_plan
from gpukpca.algorithms.task import Task
from gpukpca.backend import blocking
from gpukpca.backend.namespace import is_numpy
from gpukpca.backend.parallel import worker_count
from gpukpca.backend.work import Work
from gpukpca.covariance.dense import SQUARES, block_length
from gpukpca.data.rows import sampling_step
from gpukpca.eigen import BlockKrylov, Dense
from gpukpca.eigen.block_krylov import WIDENING, too_many
from gpukpca.exceptions import InvalidParameterError

# Up to this many rows and columns the SVD itself costs next to nothing.
SMALL = 500
# Features up to which their scatter matrix is computed whatever p is. Beyond it, that needs a p that is not small.
FEW_FEATURES, FEATURES_PER_COMPONENT = 2000, 30
# Products of all sparse rows pay up to this size of the smaller side.
FEW_OF_SPARSE = 1000
# Block Krylov on a stored matrix where LAPACK takes as long as so many of its passes: twice what most problems take.
PASSES_WORTH = 20
# Columns of a block for sparse rows: one for so many pairs, and at least so many.
PAIRS_A_COLUMN, NARROWEST = 5, 2
# The solvers of a stored matrix.
DENSE, KRYLOV = Dense(), BlockKrylov(to_rounding=True, or_dense=True)
# Bytes of the objects of a fit that are no arrays of the data.
OBJECT_BYTES = 3 * 2**16
# Columns of LAPACK's workspace to reduce a matrix to a tridiagonal one.
LAPACK_COLUMNS = 96
# LAPACK's gesdd: its workspace in units of the smaller side squared, and its work in units of that of all eigenpairs.
SVD_SQUARES, SVD_WORK = 4, 3.0
# Numbers in float64 a component: of its axis, of its eigenvector, and of a line of the panel that multiplies it.
OF_AXIS, OF_VECTOR, OF_LINE = 7, 4, 5
# Copies of CSR rows: in float64, without full columns, weighted, as they are multiplied, by columns; bytes of an entry.
SPARSE_COPIES, STORED_ENTRY_BYTES = 6, 12

# From a number of components to the parts of the bytes.
Needed = Callable[[int], Parts]


@dataclass(eq=False)
class PCATask(Task):
    """The inputs of a fit of PCA."""

    rank: RankRequest
    settings: PCASettings
    with_scores: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.has_checkpoint = self.settings.has_checkpoint
        # Components, or the first guess where a share of the variance decides.
        self.first: int = max(1, self.rank.first)
        self.smaller_side: int = min(self.n, self.d)
        # Blocks are computed in memory that exists: those of NumPy in this process.
        self.reuses_memory: bool = is_numpy(self.place.work) and not (self.is_sparse or self.is_on_cluster)

    def row_products(self, columns: int) -> Work:
        """Return the work of a product of the rows and a block of so many columns."""
        entries = self.stored * columns
        return Work(sparse_blocks=entries) if self.is_sparse else Work(blocks=2 * entries)

    def workers_for(self, columns: int) -> int:
        """Return the most threads of a product of the rows with so many columns."""
        multiplications = self.stored * (columns + blocking.ENTRY_PASS)
        return max(self.workers, worker_count(self.place.work, self.resources.n_jobs, multiplications))

    @cached_property
    def krylov(self) -> BlockKrylov:
        """Return the iteration of the settings, which the dense solver replaces for too many components."""
        settings = self.settings
        width = None if settings.oversampling is None else self.first + settings.oversampling
        # A product of sparse rows takes as long a column in a narrow block, of which fewer columns do.
        if width is None and settings.passes is None and self.is_sparse and self.rank.share is None:
            width = max(NARROWEST, self.first // PAIRS_A_COLUMN)
        to_rounding = settings.solver == "arpack"
        return BlockKrylov(tol=settings.tol, passes=settings.passes, block_size=width, to_rounding=to_rounding)


def plan_of(task: PCATask, instead: Iterable[tuple[str, Any]] | None = None) -> Candidate:
    """Return the first method that fits into memory; else raise `MemoryBudgetError` with advice.

    Models without svd_solver give advice `instead`, with bytes.
    """
    if task.rank.minka and not task.settings.center:
        raise InvalidParameterError(
            "n_components='mle' is a choice by the likelihood of centered rows, and center=False was given; give a "
            "number or a share, or center=True.",
            argument="n_components",
        )
    return choose_plan(_candidates, task, f"PCA of {task.n} x {task.d}", _changes(task, instead))


def _changes(task: PCATask, instead: Iterable[tuple[str, Any]] | None) -> Iterator[Iterable[tuple[str, Any]]]:
    """Yield series of what a user may change where no method fits, with the task that follows."""
    if instead is not None:
        yield instead
    elif not (task.settings.solver in ITERATIVE or task.rank.minka):
        yield [('svd_solver="randomized"', replace(task, settings=replace(task.settings, solver="randomized")))]
    yield fewer("n_components={}", task.first, lambda count: replace(task, rank=RankRequest(count)))
    yield task.in_float32()


def _candidates(task: PCATask) -> Iterator[Candidate]:
    """Yield methods in the order of preference, each with its reason."""
    n, d, p, whole = task.n, task.d, task.first, task.rank.minka
    if task.settings.solver != "auto":
        yield METHODS[task.settings.solver](task, "requested")
        return
    if task.is_sparse and task.smaller_side > FEW_OF_SPARSE and not whole:
        yield _randomized(task, "sparse rows, of which products are cheap")
        return
    if not (task.is_sparse or task.is_in_panels) and d <= n <= SMALL:
        yield _svd(task, "the data are small")
        return
    if n >= d > FEW_FEATURES and FEATURES_PER_COMPONENT * (p + 8) < d and not whole:
        count = f"p = {p}" + (", where a share of the variance begins," if task.rank.share is not None else "")
        yield _randomized(task, f"{count} is small compared with {d} features")
        return
    yield (matrix := _by_smaller_side(task))
    if not whole and BlockKrylov().iterates(task.smaller_side, p):
        needed = f"{matrix.plan.method} would need {format_bytes(matrix.plan.predicted_bytes)}"
        yield _randomized(task, "few components", may_hand_over=False).with_notes(needed)


def _by_smaller_side(task: PCATask) -> Candidate:
    """Return the eigenproblem of the features, or of the samples where these are fewer."""
    n, d = task.n, task.d
    if n >= d:
        return _by_matrix(task, f"{d} features are no more than {n} samples")
    return _by_matrix(task, f"{n} samples are fewer than {d} features", by_samples=True)


def _by_matrix(task: PCATask, reason: str, by_samples: bool = False) -> Candidate:
    """Return the eigenproblem of the covariance of the features, or of the Gram matrix of the samples."""
    method, size = ("dual", task.n) if by_samples else ("covariance_eigh", task.d)
    pays = KRYLOV.iterates(size, task.first) and KRYLOV.patience(size, task.first, task.on_gpu) >= PASSES_WORTH
    solver = copy(KRYLOV if pays and not task.rank.minka else DENSE)  # that of a plan may be changed
    needed = partial(_matrix_parts, task, solver, by_samples)
    return _candidate(task, method, reason, solver, by_samples, needed, _matrix_work(task, solver, by_samples))


def _svd(task: PCATask, reason: str) -> Candidate:
    """Return the singular value decomposition of the rows."""
    work = Work(eigenproblems=SVD_WORK * task.smaller_side**2 * max(task.n, task.d))
    return _candidate(task, "full", reason, None, False, partial(_svd_parts, task), work)


def _randomized(task: PCATask, reason: str, may_hand_over: bool = True) -> Candidate:
    """Return block Krylov on the smaller side; a stored matrix may take over many components of a share."""
    side, p, krylov, by_samples = task.smaller_side, task.first, task.krylov, task.n < task.d
    needed: Needed = partial(_randomized_parts, task, by_samples)
    if not krylov.iterates(side, p):
        solver = Dense(tol=krylov.tol)
        work = _matrix_work(task, solver, by_samples)
        return _candidate(task, "randomized", reason, solver, by_samples, needed, work).with_notes(too_many(side, p))
    work = krylov.work(side, p, task.row_products(2 * krylov.width(side, p, task.on_gpu)), task.item, task.on_gpu)
    beyond, first = None, needed(p)
    if may_hand_over and task.rank.share is not None:  # what takes over is for many components
        matrix = _by_smaller_side(task)
        beyond = matrix if matrix.plan_for(task.rank.max_count).fits else None
    pair_bytes = WIDENING * (total(needed(2 * p)) - total(first)) // p  # while the basis is copied
    few = replace(krylov, or_dense=beyond is not None).most_pairs(side)
    needed = with_pairs(first, p, pair_bytes)
    return _candidate(task, "randomized", reason, krylov, by_samples, needed, work, few, beyond)


METHODS: dict[str, Callable[[PCATask, str], Candidate]] = {
    "covariance_eigh": _by_matrix,
    "dual": partial(_by_matrix, by_samples=True),
    "full": _svd,
    "tsqr": _svd,
    "randomized": _randomized,
    "arpack": _randomized,
}


def _candidate(
    task: PCATask,
    method: str,
    reason: str,
    solver: PCASolver | None,
    by_samples: bool,
    needed: Needed,
    work: Work,
    few: int | None = None,
    beyond: Candidate | None = None,
) -> Candidate:
    """Return the candidate of a method; `few` and what is `beyond` are for a share of the variance."""
    fields: dict[str, Any] = {"solver": solver, "solver_reason": reason, "method": method, "by_samples": by_samples}
    fields |= {"n_components": task.rank.first, "workers": task.workers, "notes": getattr(task.X, "notes", ())}
    candidate = task.candidate(needed(task.rank.first), work + task.row_products(task.first), **fields)
    is_share = task.rank.share is not None
    return candidate.for_share(needed, few or task.rank.max_count, beyond) if is_share else candidate


# -- parts of the bytes ------------------------------------------------------------------------------------------------


def _parts(task: PCATask, by_samples: bool, p: int, solve: Parts, last: Parts | None = None, longest: int = 0) -> Parts:
    """Return the bytes at the peak: as rows are read, of `solve`, and of the result of p components with its `last`.

    Panels of rows, or `by_samples` of columns, have at least `longest` lines.
    """
    n, d, item, rows = task.n, task.d, task.item, task.rows_at_once
    side, length, other = (n, d, n) if by_samples else (d, rows, d)
    copied, panels, mean, has_scores = task.copy_bytes, 0, 0, task.with_scores or by_samples or task.is_sparse
    if task.is_sparse:
        copied += SPARSE_COPIES * task.stored * STORED_ENTRY_BYTES
    elif task.is_on_cluster:  # rows and sums stay with their workers
        has_scores = by_samples or task.X.local is not None
    else:
        workers, entry = task.workers_for(side), item if task.reuses_memory else 3 * 8
        lines = min(length, workers * max(longest, block_length(other, not by_samples, task.on_gpu)))
        scores = blocking.SCATTER_ENTRIES.on(task.on_gpu) * task.with_scores * (entry + 8)
        panels = max(lines * (other * entry + 8 * OF_LINE * p), min(workers * scores, length * other * (entry + 8)))
        mean = 8 * (2 * -(-rows // sampling_step(rows, d)) * d + lines * other * (item < 8))
    result = {
        "components": 8 * (OF_AXIS * d + OF_VECTOR * side) * p,
        "scores": (4 * 8 if task.is_sparse else 2 * item) * n * p * has_scores,
        "blocks in transit": BLOCKS_IN_TRANSIT * 8 * side * (p + 10) * task.is_on_cluster,
    }
    throughout = {"data copy": copied, "objects": OBJECT_BYTES, "panels": panels}
    return Bill({"": throughout, "read": {"mean": mean}, "solve": solve, "publish": result | (last or {})}).parts


def _matrix_parts(task: PCATask, solver: PCASolver, by_samples: bool, p: int) -> Parts:
    """Return the bytes of an eigenproblem of a stored matrix with p components: the larger of its sums and solution."""
    size, item = task.n if by_samples else task.d, task.item
    square, workers = size**2, task.workers_for(size)
    solution = DENSE.workspace_bytes(size, min(p, size), 8, task.on_gpu)  # which takes over from an iteration
    if isinstance(solver, BlockKrylov):
        pairs = min(p, solver.most_pairs(size))
        solution = max(solution, WIDENING * solver.workspace_bytes(size, pairs, 8, task.on_gpu))
    # Others than NumPy scale large or tiny entries in a copy.
    copies = task.is_on_cluster or not is_numpy(task.place.work)
    solution += 8 * size * (size + LAPACK_COLUMNS) + 4 * 8 * square * copies
    sums = square * (8 + item) * (workers + 2 * (task.is_batched or not task.reuses_memory))
    if task.is_on_cluster or task.is_sparse:  # one of them, with the product that is added
        sums = (2 if task.is_sparse else 4) * 8 * square
    elif by_samples and task.reuses_memory and size > blocking.PRIVATE_SCATTER_UP_TO:  # by tiles of one matrix
        sums = 2 * 8 * square
    held = {"all batches": 2 * task.stored * item * (by_samples and task.is_batched)}
    longest = min(SQUARES * size, blocking.LONGEST_SCATTER_PANEL.cpu)
    return _parts(task, by_samples, p, held | {"matrix of products": max(sums, solution)}, held, longest)


def _randomized_parts(task: PCATask, by_samples: bool, p: int) -> Parts:
    """Return the bytes of the iteration with p components, or of the dense solver in its place."""
    few, krylov, on_gpu = task.smaller_side, task.krylov, task.on_gpu
    if not krylov.iterates(few, p):
        return _parts(task, by_samples, p, {}, {DENSE.name: 2 * 8 * few**2 + DENSE.workspace_bytes(few, p, 8, on_gpu)})
    width = krylov.width(few, p, on_gpu)
    products = 3 * (task.n + task.d) * task.is_sparse
    sums = 0 if task.is_on_cluster else 2 * task.workers_for(2 * width) * few
    workspace = krylov.workspace_bytes(few, p, task.item, on_gpu)
    return _parts(task, by_samples, p, {krylov.name: workspace + 8 * (products + sums) * width})


def _svd_parts(task: PCATask, p: int) -> Parts:
    """Return the bytes of an SVD with p components: of LAPACK's, and of what follows from its vectors."""
    n, d, few, item = task.n, task.d, task.smaller_side, task.item
    workspace = (SVD_SQUARES * few + LAPACK_COLUMNS) * few
    if task.is_in_panels:  # this process holds the triangular factor alone, and a batch as it is factored
        return _parts(task, n < d, p, {}, {"LAPACK": (3 * few * d + workspace) * 8 + task.copy_bytes})
    # Components that the largest ones hide come from another SVD, of panels in float64.
    widened = 8 * (d + p) * min(n, blocking.INNER_PANEL)
    lapack = (2 * n * (d + p) + (n + d) * few + workspace) * item + widened
    return _parts(task, False, p, {}, {"LAPACK": lapack})


# -- parts of the work -------------------------------------------------------------------------------------------------


def _matrix_work(task: PCATask, solver: PCASolver, by_samples: bool) -> Work:
    """Return the work of a matrix of products and of its eigenproblem."""
    p, on_gpu = task.first, task.on_gpu
    size, other = (task.n, task.d) if by_samples else (task.d, task.n)
    work, widened = Work(products=task.stored * size), 8 // task.item
    if task.is_sparse:
        work = Work(sparse_products=task.stored**2 / other, bytes=SPARSE_ENTRY_BYTES * size**2)
    one_pass = Work(blocks=2 * size**2 * solver.width(size, p, on_gpu))
    return work + solver.work(size, p, one_pass, 8, on_gpu) * widened
