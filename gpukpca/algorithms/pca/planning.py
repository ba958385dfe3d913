"""The candidates of a plan of PCA: methods, each with its bytes and its work from shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from gpukpca._formatting import format_bytes
from gpukpca.algorithms.bill import BLOCKS_IN_TRANSIT, Bill, Parts, fewer, total, with_pairs
from gpukpca.algorithms.pca.settings import ITERATIVE, PCASettings, PCASolver, RankRequest
from gpukpca.algorithms.plan import NO_CHECKPOINT, SPARSE_ENTRY_BYTES, Candidate, choose_plan
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
# Readings of the data outside of products, for their moments and what prepares them, and steps outside of passes.
SWEEPS, STEPS = 2, 8
# LAPACK's gesdd: its workspace in units of the smaller side squared, and its work in units of that of all eigenpairs.
SVD_SQUARES, SVD_WORK = 4, 3.0
# Copies in float64 of a block of which a QR decomposition is computed: the block, LAPACK's, and the factor.
QR_COPIES = 4
# Copies in float64 of the components, which those of samples are sums for, and of the eigenvectors.
COMPONENT_COPIES, VECTOR_COPIES = 7, 4
# Bytes of an entry of a block of products of sparse rows: stored, and dense.
SPARSE_PANEL_BYTES = 24
# Bytes of a stored entry in float64.
STORED_ENTRY_BYTES = 12


@dataclass(frozen=True)
class PCATask(Task):
    """The inputs of a fit of PCA."""

    rank: RankRequest
    settings: PCASettings
    with_scores: bool = False
    first: int = field(init=False)  # components, or the first guess where a share of the variance decides
    smaller_side: int = field(init=False)
    reuses_memory: bool = field(init=False)  # blocks are computed in memory that exists: those of NumPy in this process

    def __post_init__(self) -> None:
        super().__post_init__()
        facts = {
            "first": max(1, self.rank.first),
            "smaller_side": min(self.n, self.d),
            "reuses_memory": is_numpy(self.place.work) and not (self.is_sparse or self.is_on_cluster),
        }
        vars(self).update(facts)

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
    few, p, krylov, by_samples = task.smaller_side, task.first, task.krylov, task.n < task.d
    if krylov.iterates(few, p):
        one_pass = task.row_products(2 * krylov.width(few, p, task.on_gpu))
        work = krylov.work(few, p, one_pass, task.item, task.on_gpu)
        solver: PCASolver = krylov
    else:
        solver = Dense(tol=krylov.tol)
        work = _matrix_work(task, solver, by_samples)
    first, twice = (_randomized_parts(task, by_samples, count) for count in (p, 2 * p))
    pair_bytes = max(1, (total(twice) - total(first)) // p) * WIDENING  # while the basis is copied
    needed = with_pairs(first, p, pair_bytes)
    candidate = _candidate(task, "randomized", reason, solver, by_samples, needed, work)
    if solver is not krylov:
        return _with_most(task, candidate.with_notes(too_many(few, p)))
    if task.rank.share is None:
        return candidate
    beyond = None
    if may_hand_over:  # what takes over is for many components
        matrix = _by_smaller_side(task)
        whole = matrix.plan_for(task.rank.max_count)
        beyond = replace(matrix, plan=replace(whole, n_components=p)) if whole.fits else None
    few = replace(krylov, or_dense=beyond is not None).most_pairs(few)
    return _with_most(task, candidate.with_beyond(beyond, "" if beyond is None else beyond.plan.method, few))


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
    needed: Callable[[int], Parts],
    work: Work,
) -> Candidate:
    """Return the candidate of a method; `needed` are the bytes of a number of components.

    Its time is not known on a cluster, where the network decides.
    """
    seconds, p = None, task.rank.first
    if not task.is_on_cluster:
        work += Work(bytes=SWEEPS * task.stored * task.item, calls=STEPS) + task.row_products(task.first)
        seconds = work.seconds(task.place.work, task.item, task.workers)
    notes: tuple[str, ...] = getattr(task.X, "notes", ())
    if task.settings.has_checkpoint and not (solver and solver.grows_with_p):
        notes += (NO_CHECKPOINT,)
    plan = task.plan(
        needed(p),
        n_components=p,
        solver=solver,
        solver_reason=reason,
        method=method,
        by_samples=by_samples,
        workers=task.workers,
        notes=notes,
        estimated_seconds=seconds,
    )
    candidate = Candidate(plan, task.resources, needed, few=task.rank.max_count)
    return candidate if method == "randomized" else _with_most(task, candidate)


def _with_most(task: PCATask, candidate: Candidate) -> Candidate:
    """Return the candidate with a note on a share of the variance that takes more components than the first guess."""
    if task.rank.share is None or candidate.max_count <= task.first:
        return candidate
    return candidate.with_notes(
        f"{candidate.max_count} components take up to {format_bytes(candidate.bytes_for(candidate.max_count))}"
    )


# -- parts of the bytes ------------------------------------------------------------------------------------------------


def _parts(
    task: PCATask, by_samples: bool, p: int, last: Parts, phases: dict[str, Parts] | None = None, longest: int = 0
) -> Parts:
    """Return the bytes at the peak: as rows are read, of `phases` of a method, and of the result with its `last` parts.

    Panels of rows, or `by_samples` of columns, have at least `longest` lines.
    """
    n, d, item, on_gpu = task.n, task.d, task.item, task.on_gpu
    copied, panels, sample, side = task.copy_bytes, 0, 0, n if by_samples else d
    has_scores = task.with_scores or by_samples or task.is_sparse
    if task.is_sparse:  # with the values in float64, without full columns, weighted, as they are multiplied, by columns
        copied += (4 + (task.settings.scale is not False) + (item < 8)) * task.stored * STORED_ENTRY_BYTES
    elif task.is_on_cluster:  # rows and sums stay with their workers
        has_scores = by_samples or task.X.local is not None
    else:
        rows = task.rows_at_once
        length, other = (d, n) if by_samples else (rows, d)
        block, narrow = block_length(other, not by_samples, on_gpu), item < 8
        of_scores = blocking.SCATTER_ENTRIES.on(on_gpu) // d if task.with_scores and not by_samples else 0
        entry, workers = item if task.reuses_memory else 3 * 8, task.workers_for(side)
        panels = max(
            min(length, workers * lines) * (other * entry + 8 * columns)
            for lines, columns in ((max(longest, block), (1 + QR_COPIES) * p), (of_scores, p))
        )
        squares = min(length, workers * block) * other * narrow  # of a panel, in float64
        sample = 8 * max(-(-rows // sampling_step(rows, d)) * d * (1 + narrow), squares)
    result = {
        "components": 8 * COMPONENT_COPIES * d * p,
        "eigenvectors": 8 * VECTOR_COPIES * side * p,
        "scores": (8 * QR_COPIES if task.is_sparse else 2 * item) * n * p * has_scores,
        "blocks in transit": BLOCKS_IN_TRANSIT * 8 * side * (p + 10) * task.is_on_cluster,
    }
    throughout = {"data copy": copied, "objects": OBJECT_BYTES, "panels": panels}
    return Bill({"": throughout, "read": {"mean and moments": sample}, "publish": result | last} | (phases or {})).parts


def _matrix_parts(task: PCATask, solver: PCASolver, by_samples: bool, p: int) -> Parts:
    """Return the bytes of an eigenproblem of a stored matrix with p components."""
    size, item, on_gpu = task.n if by_samples else task.d, task.item, task.on_gpu
    square, p, solution, workers = size**2, min(p, size), 0, task.workers_for(size)
    if not isinstance(solver, BlockKrylov) or solver.or_dense:
        # Large or tiny entries are scaled in place by NumPy, else in a copy.
        copies = 0 if is_numpy(task.place.work) and not task.is_on_cluster else 4 * 8 * square
        solution = DENSE.workspace_bytes(size, p, 8, on_gpu) + 8 * LAPACK_COLUMNS * size + copies
    if isinstance(solver, BlockKrylov):
        widening, pairs = (WIDENING, solver.most_pairs(size)) if task.rank.decides else (1, p)
        solution = max(solution, widening * solver.workspace_bytes(size, min(p, pairs), 8, on_gpu))
    if task.is_on_cluster:  # this process holds one of the sums
        sums = square * (8 + 2 * item)
    elif task.is_sparse:  # by blocks of rows, whose products are sparse first
        sums = 8 * square + min(size, blocking.SPARSE_PANEL_ROWS) * size * SPARSE_PANEL_BYTES
    elif by_samples and task.reuses_memory and size > blocking.PRIVATE_SCATTER_UP_TO:  # by tiles of one matrix
        sums = 8 * square + workers * blocking.SCATTER_TILE_EDGE**2 * item
    else:
        sums = square * ((8 + item) * (workers + 2 * (not task.reuses_memory)) + 2 * 8 * task.is_batched)
    held = {"all batches": 2 * task.stored * item * (by_samples and task.is_batched)}
    phases = {
        "multiply": held | {"sums of products": sums},
        "solve": held | {"matrix of products": 8 * square, "eigensolver": solution},
    }
    return _parts(task, by_samples, p, held, phases, min(SQUARES * size, blocking.LONGEST_SCATTER_PANEL.cpu))


def _randomized_parts(task: PCATask, by_samples: bool, p: int) -> Parts:
    """Return the bytes of the iteration with p components, or of the dense solver in its place."""
    few, krylov, on_gpu = task.smaller_side, task.krylov, task.on_gpu
    if not krylov.iterates(few, p):
        return _parts(task, by_samples, p, {"eigensolver": 2 * 8 * few**2 + DENSE.workspace_bytes(few, p, 8, on_gpu)})
    width = krylov.width(few, p, on_gpu)
    products = 3 * 8 * (task.n + task.d) * width * task.is_sparse
    solve = {
        krylov.name: krylov.workspace_bytes(few, p, task.item, on_gpu) + products,
        "sums of workers": 0 if task.is_on_cluster else task.workers_for(2 * width) * few * 2 * width * 8,
    }
    return _parts(task, by_samples, p, {}, {"solve": solve})


def _svd_parts(task: PCATask, p: int) -> Parts:
    """Return the bytes of an SVD with p components: of LAPACK's, and of what follows from its vectors."""
    n, d, few, item = task.n, task.d, task.smaller_side, task.item
    workspace = SVD_SQUARES * few**2 + LAPACK_COLUMNS * few
    if task.is_in_panels:  # this process holds the triangular factor alone, and a batch as it is factored
        return _parts(task, n < d, p, {"batch": task.copy_bytes, "LAPACK": (3 * few * d + workspace) * 8})
    # Components that the largest ones hide come from another SVD.
    widened = 8 * (d + p) * min(n, blocking.INNER_PANEL) if item < 8 or not task.reuses_memory else 0
    vectors = (n * d + (n + d) * few) * item
    lapack = max((n * d + workspace) * item, widened)
    return _parts(task, False, p, {"vectors": vectors, "LAPACK": lapack, "copies of scores": 2 * n * p * item})


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
