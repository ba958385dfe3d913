"""The candidates of a plan of PCA: methods, each with its bytes and its work from shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from gpukpca._formatting import format_allowance, format_bytes, format_need
from gpukpca.algorithms.pca.settings import ITERATIVE, PCASettings, PCASolver, RankRequest
from gpukpca.algorithms.plan import SPARSE_ENTRY_BYTES, Candidate, Plan, choose_plan
from gpukpca.algorithms.progress import NO_CHECKPOINT
from gpukpca.algorithms.task import BLOCKS_IN_TRANSIT, Task
from gpukpca.backend import blocking
from gpukpca.backend.namespace import is_numpy
from gpukpca.backend.parallel import even_length, worker_count
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
    p: int = field(init=False)  # components; an upper bound where the spectrum decides
    first: int = field(init=False)  # components, or the first guess where a share of the variance decides
    smaller_side: int = field(init=False)
    reuses_memory: bool = field(init=False)  # blocks are computed in memory that exists: those of NumPy in this process

    def __post_init__(self) -> None:
        super().__post_init__()
        facts = {
            "p": self.rank.max_count,
            "first": max(1, self.rank.first),
            "smaller_side": min(self.n, self.d),
            "reuses_memory": is_numpy(self.place.work) and not (self.is_sparse or self.is_on_cluster),
        }
        vars(self).update(facts)

    @cached_property
    def workers(self) -> int:
        """Return the number of threads, those of a cluster together."""
        return getattr(self.X, "threads", None) or super().workers

    def row_products(self, columns: int) -> Work:
        """Return the work of a product of the rows and a block of so many columns."""
        entries = self.stored * columns
        return Work(sparse_blocks=entries) if self.is_sparse else Work(blocks=2 * entries)

    def workers_for(self, columns: int) -> int:
        """Return the threads of a product of the rows with so many columns."""
        if not self.reuses_memory:
            return self.workers
        return worker_count(self.place.work, self.resources.n_jobs, self.stored * (columns + blocking.ENTRY_PASS))

    @cached_property
    def krylov(self) -> BlockKrylov:
        """Return the iteration of the settings, which the dense solver replaces for too many components."""
        settings = self.settings
        width = None if settings.oversampling is None else self.first + settings.oversampling
        # A product of sparse rows takes as long a column in a narrow block, of which fewer columns do.
        if width is None and settings.passes is None and self.is_sparse and self.rank.share is None:
            width = max(NARROWEST, self.first // PAIRS_A_COLUMN)
        to_rounding = settings.svd_solver == "arpack"
        return BlockKrylov(tol=settings.tol, passes=settings.passes, block_size=width, to_rounding=to_rounding)


def plan_of(task: PCATask) -> Candidate:
    """Return the first method that fits into memory; else raise `MemoryBudgetError` with advice."""
    if task.rank.minka and not task.settings.center:
        raise InvalidParameterError(
            "n_components='mle' is a choice by the likelihood of centered rows, and center=False was given; give a "
            "number or a share, or center=True.",
            argument="n_components",
        )
    return choose_plan(_candidates(task), partial(_too_big, task))


def _too_big(task: PCATask, smallest: Plan) -> str:
    """Return the message for a limit that no method keeps, with advice."""
    iterates = task.settings.svd_solver in ITERATIVE
    advice = "fewer components" if iterates else 'few components (of PCA with svd_solver="randomized")'
    return (
        f"PCA of {task.n} x {task.d} needs {format_need(smallest.predicted_bytes)} ({smallest.method}), and "
        f"{format_allowance(smallest.available_bytes)} are allowed or free. Try {advice}, float32 data, or a larger "
        "memory_limit."
    )


def _candidates(task: PCATask) -> Iterator[Candidate]:
    """Yield methods in the order of preference, each with its reason."""
    n, d, p, whole = task.n, task.d, task.first, task.rank.minka
    if task.settings.svd_solver != "auto":
        yield METHODS[task.settings.svd_solver](task, "requested")
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
        return _by_features(task, f"{d} features are no more than {n} samples")
    return _by_samples(task, f"{n} samples are fewer than {d} features")


def _by_features(task: PCATask, reason: str) -> Candidate:
    """Return the eigenproblem of the covariance of the features."""
    return _by_matrix(task, "covariance_eigh", reason, by_samples=False)


def _by_samples(task: PCATask, reason: str) -> Candidate:
    """Return the eigenproblem of the Gram matrix of the samples."""
    return _by_matrix(task, "dual", reason, by_samples=True)


def _by_matrix(task: PCATask, method: str, reason: str, by_samples: bool) -> Candidate:
    """Return the eigenproblem of a stored matrix of products."""
    size = task.n if by_samples else task.d
    pays = KRYLOV.iterates(size, task.first) and KRYLOV.patience(size, task.first, task.on_gpu) >= PASSES_WORTH
    solver = copy(KRYLOV if pays and not task.rank.minka else DENSE)  # that of a plan may be changed
    needed = partial(_matrix_bytes, task, solver, by_samples)
    return _candidate(task, method, reason, solver, by_samples, needed, _matrix_work(task, solver, by_samples))


def _svd(task: PCATask, reason: str) -> Candidate:
    """Return the singular value decomposition of the rows."""
    work = Work(eigenproblems=SVD_WORK * task.smaller_side**2 * max(task.n, task.d))
    return _candidate(task, "full", reason, None, False, partial(_svd_bytes, task), work)


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
    first, twice = (_randomized_bytes(task, by_samples, count) for count in (p, 2 * p))
    pair_bytes = max(1, (twice - first) // p) * WIDENING  # while the basis is copied
    candidate = _candidate(
        task, "randomized", reason, solver, by_samples, lambda count: first + max(0, count - p) * pair_bytes, work
    )
    if solver is not krylov:
        return _with_most(task, candidate.with_notes(too_many(few, p)))
    if task.rank.share is None:
        return candidate
    beyond = None
    if may_hand_over:  # what takes over is for many components
        matrix = _by_smaller_side(task)
        whole = matrix.plan_for(task.p)
        beyond = replace(matrix, plan=replace(whole, n_components=p)) if whole.fits else None
    few = replace(krylov, or_dense=beyond is not None).most_pairs(few)
    return _with_most(task, candidate.with_beyond(beyond, "" if beyond is None else beyond.plan.method, few))


METHODS: dict[str, Callable[[PCATask, str], Candidate]] = {
    "covariance_eigh": _by_features,
    "dual": _by_samples,
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
    needed: Callable[[int], int],
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
    candidate = Candidate(plan, task.resources, needed, few=task.p)
    return candidate if method == "randomized" else _with_most(task, candidate)


def _with_most(task: PCATask, candidate: Candidate) -> Candidate:
    """Return the candidate with a note on a share of the variance that takes more components than the first guess."""
    if task.rank.share is None or candidate.max_count <= task.first:
        return candidate
    return candidate.with_notes(
        f"{candidate.max_count} components take up to {format_bytes(candidate.bytes_for(candidate.max_count))}"
    )


# -- parts of the bytes ------------------------------------------------------------------------------------------------


def _bytes_throughout(task: PCATask) -> int:
    """Return the bytes of copies of the rows, and of the objects of a fit."""
    copy = task.copy_bytes
    if task.is_sparse:  # without full columns, weighted, and in float64
        copy += (1 + (task.settings.scale is not False) + (task.item < 8)) * task.stored * STORED_ENTRY_BYTES
    return copy + OBJECT_BYTES


def _lines_held(task: PCATask, by_samples: bool, longest: int, columns: int) -> int:
    """Return the rows, or `by_samples` the columns, in the blocks of all workers of a product with so many columns."""
    length = task.d if by_samples else task.rows_at_once
    workers = task.workers_for(columns)
    edge = even_length(length, longest, workers) if task.reuses_memory else longest
    return min(length, workers * edge)


def _block_length(task: PCATask, by_samples: bool) -> int:
    """Return the most rows, or `by_samples` columns, of a block of one worker."""
    return block_length(task.n if by_samples else task.d, not by_samples, task.on_gpu)


def _sweep_bytes(task: PCATask, by_samples: bool, has_moments: bool = True) -> int:
    """Return the bytes of the rows in float64 whose mean is the shift, or of the blocks whose moments are computed.

    These blocks are those of the rows, and their squares in float64.
    """
    if task.is_on_cluster:
        return 0
    if task.is_sparse:
        return 2 * 8 * task.stored
    rows = task.rows_at_once
    sampled = -(-rows // sampling_step(rows, task.d)) * task.d * 8 * (2 if task.item < 8 else 1)
    if not has_moments:
        return sampled
    entry = task.item + (8 if task.item < 8 else 0) if task.reuses_memory else 3 * 8
    lines, other = _lines_held(task, by_samples, _block_length(task, by_samples), 0), task.n if by_samples else task.d
    return max(sampled, lines * other * entry)


def _result_bytes(task: PCATask, by_samples: bool, p: int, widest: int) -> int:
    """Return the bytes of p components and scores, with those of the products that they come from.

    `widest` are the bytes of an item of the components.
    """
    n, d, item = task.n, task.d, task.item
    # Components of samples are products of the rows, summed in the widest type and corrected for the mean.
    results = d * p * (4 * item + 3 * 8 if by_samples else 4 * widest)
    if task.is_on_cluster:  # rows and sums stay with their workers
        has_scores = by_samples or task.X.local is not None
        return results + 2 * n * p * widest * has_scores + BLOCKS_IN_TRANSIT * 8 * (n if by_samples else d) * (p + 10)
    if task.is_sparse:
        return results + (QR_COPIES * n + 2 * d) * p * 8
    length, other = _block_length(task, by_samples), n if by_samples else d
    # A product with the components of small variances is factored in float64.
    line = item * (other + p) + (0 if by_samples else QR_COPIES * 8 * p)
    blocks = _lines_held(task, by_samples, length, 3 * p) * line
    if by_samples:
        return results + blocks + 2 * n * p * widest
    if not task.with_scores:
        return results + blocks
    copies = 1 if task.reuses_memory and not task.is_batched else 2  # parts, and their whole
    rows = max(blocking.FEWEST_PROJECTED, blocking.SCATTER_ENTRIES.on(task.on_gpu) // max(d, 1))
    scores = copies * (n * p + _lines_held(task, False, rows, p) * (d + p)) * item
    return results + max(blocks, scores)


def _matrix_bytes(task: PCATask, solver: PCASolver, by_samples: bool, p: int) -> int:
    """Return the peak of an eigenproblem of a stored matrix with p components.

    One after another: the moments, the matrix, its eigenpairs, and what follows from these and their products.
    """
    size, item, on_gpu = task.n if by_samples else task.d, task.item, task.on_gpu
    square, p = size * size, min(p, size)
    solution = 0
    if not isinstance(solver, BlockKrylov) or solver.or_dense:
        workspace = DENSE.workspace_bytes(size, p, 8, on_gpu)
        if task.is_on_cluster or not is_numpy(task.place.work):  # large or tiny entries are scaled in a copy
            workspace = max(workspace, 16 * square) + 16 * square
        solution = workspace + 8 * (square + LAPACK_COLUMNS * size)
    if isinstance(solver, BlockKrylov):
        widening, pairs = (WIDENING, solver.most_pairs(size)) if task.rank.decides else (1, p)
        solution = max(solution, 8 * square + widening * solver.workspace_bytes(size, min(p, pairs), 8, on_gpu))
    # Eigenvectors and their products in float64, and copies in a narrower type of the data.
    pairs_bytes = (16 if item == 8 else 16 + 2 * item) * size * p
    later = pairs_bytes + _result_bytes(task, by_samples, p, item if by_samples else 8)
    has_moments = by_samples or task.settings.scale is not False or not task.reuses_memory
    sweep = _sweep_bytes(task, by_samples, has_moments)
    whole = 2 * task.stored * item if by_samples and task.is_batched else 0  # all batches at once
    return whole + _bytes_throughout(task) + max(sweep, _square_bytes(task, size, by_samples), solution, later)


def _square_bytes(task: PCATask, size: int, by_samples: bool) -> int:
    """Return the bytes of the matrix of products, with the sums and the panels of all workers."""
    square, item, workers = size * size, task.item, task.workers_for(size)
    if task.is_on_cluster:  # this process holds one of the sums
        return square * (8 + item * 2)
    if task.is_sparse:  # by blocks of rows, whose products are sparse first
        block = min(size, blocking.SPARSE_PANEL_ROWS) * size * SPARSE_PANEL_BYTES
        return square * 8 + block + task.stored * STORED_ENTRY_BYTES
    entry = item if task.reuses_memory else 3 * 8
    if by_samples and size > blocking.PRIVATE_SCATTER_UP_TO:  # all workers add to one matrix, by tiles of their own
        edge = blocking.SCATTER_TILE_EDGE
        return square * 8 + (min(task.d, 2 * edge) * size + workers * edge**2) * entry
    longest = max(_block_length(task, by_samples), min(SQUARES * size, blocking.LONGEST_SCATTER_PANEL.cpu))
    panels = _lines_held(task, by_samples, longest, size) * (size + 1) * entry  # and ones
    if task.is_batched:  # the sum over the batches, and the result of one as its sums are released
        panels += 2 * square * 8
    if task.reuses_memory:
        return panels + workers * square * (8 + item)
    return panels + square * (8 * (1 + workers) + item * max(2, workers))


def _randomized_bytes(task: PCATask, by_samples: bool, p: int) -> int:
    """Return the peak of the iteration with p components, or of the dense solver in its place."""
    few, item, krylov, on_gpu = task.smaller_side, task.item, task.krylov, task.on_gpu
    results, held = _result_bytes(task, by_samples, p, item), _bytes_throughout(task)
    if not krylov.iterates(few, p):
        return held + results + 16 * few * few + DENSE.workspace_bytes(few, p, 8, on_gpu)
    iteration = krylov.workspace_bytes(few, p, item, on_gpu)
    sweep, width = _sweep_bytes(task, by_samples), krylov.width(few, p, on_gpu)
    if task.is_sparse:
        iteration += 3 * 8 * (task.n + task.d) * width
    elif not task.reuses_memory:
        workers = 0 if task.is_on_cluster else task.workers
        return held + max(sweep, results) + workers * few * (p + 10) * 8 + iteration
    else:
        lines = _lines_held(task, by_samples, _block_length(task, by_samples), 2 * width)
        iteration += lines * few * item + (lines + task.workers_for(2 * width) * few * 2) * width * 8
    return held + max(sweep, iteration, 4 * few * p * item + results)


def _svd_bytes(task: PCATask, p: int) -> int:
    """Return the peak of an SVD with p components: of LAPACK's, or of what follows from its vectors."""
    n, d, few, item = task.n, task.d, task.smaller_side, task.item
    held, svd = _bytes_throughout(task), SVD_SQUARES * few**2 + LAPACK_COLUMNS * few
    results = d * p * (4 * item + 8) + 2 * n * p * item
    if task.is_in_panels:  # this process holds the triangular factor alone, and a batch as it is factored
        return held + task.copy_bytes + _result_bytes(task, n < d, p, item) + (3 * few * d + svd) * 8
    vectors = n * d + (n + d) * few
    widened = 8 * (d + p) * min(n, blocking.INNER_PANEL) if item < 8 or not task.reuses_memory else 0
    # Components that the largest ones hide come from another SVD.
    return held + max(_sweep_bytes(task, n < d), vectors * item + results + max((n * d + svd) * item, widened))


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
