"""The candidates of a plan of PCA: methods, each with its bytes and its work from shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

from gpukpca._formatting import format_allowance, format_bytes, format_need
from gpukpca.algorithms.pca.settings import ITERATIVE, PCASettings, PCASolver, RankRequest
from gpukpca.algorithms.plan import SPARSE_ENTRY_BYTES, Candidate, Plan, choose_plan
from gpukpca.algorithms.progress import NO_CHECKPOINT
from gpukpca.algorithms.task import BLOCKS_IN_TRANSIT, Task
from gpukpca.backend import blocking
from gpukpca.backend.device import describe_device
from gpukpca.backend.namespace import dtype_name, is_numpy, is_sparse
from gpukpca.backend.work import Work
from gpukpca.covariance.dense import SQUARES
from gpukpca.data.batches import BatchedRows
from gpukpca.data.rows import Rows
from gpukpca.eigen import BlockKrylov, Dense
from gpukpca.eigen.block_krylov import WIDENING, too_many

# Up to this many rows and columns the SVD itself costs next to nothing.
SMALL = 500
# Features up to which their scatter matrix is computed whatever p is. Beyond it, that needs a p that is not small.
FEW_FEATURES, FEATURES_PER_COMPONENT = 2000, 30
# Products of all sparse rows pay up to this size of the smaller side.
FEW_OF_SPARSE = 1000
# Block Krylov on a stored matrix where LAPACK takes as long as so many of its passes: twice what most problems take.
PASSES_WORTH = 20
# The solvers of a stored matrix.
DENSE, KRYLOV = Dense(), BlockKrylov(to_rounding=True, or_dense=True)
# Bytes of the objects of a fit that are no arrays of the data.
OBJECT_BYTES = 2**17
# Columns of LAPACK's workspace to reduce a matrix to a tridiagonal one.
LAPACK_COLUMNS = 96
# Readings of the data outside of products, for their moments and what prepares them, and steps outside of passes.
SWEEPS, STEPS = 2, 8
# LAPACK's gesdd: its workspace in units of the smaller side squared, and its work in units of that of all eigenpairs.
SVD_SQUARES, SVD_WORK = 8, 3.0


@dataclass(frozen=True)
class PCATask(Task):
    """The inputs of a fit of PCA."""

    rank: RankRequest
    settings: PCASettings
    with_scores: bool = False

    @cached_property
    def p(self) -> int:
        """Return the number of components; an upper bound where the spectrum decides."""
        return self.rank.most

    @cached_property
    def first(self) -> int:
        """Return the number of components, or the first guess where a share of the variance decides."""
        return max(1, self.rank.first)

    @cached_property
    def few(self) -> int:
        """Return the smaller side of the data."""
        return min(self.n, self.d)

    @cached_property
    def workers(self) -> int:
        """Return the number of threads, those of a cluster together."""
        return sum(worker.threads for worker in self.X.cluster.workers) if self.is_on_cluster else super().workers

    def row_products(self, columns: int) -> Work:
        """Return the work of a product of the rows and a block of so many columns."""
        entries = self.stored * columns
        return Work(sparse_blocks=entries) if is_sparse(self.X) else Work(blocks=2 * entries)

    @cached_property
    def reuses_memory(self) -> bool:
        """Return whether blocks and matrices are computed in memory that exists: those of NumPy in this process."""
        return is_numpy(self.place.work) and not is_sparse(self.X) and not self.is_on_cluster

    @cached_property
    def krylov(self) -> BlockKrylov:
        """Return the iteration of the settings, which the dense solver replaces for too many components."""
        settings = self.settings
        width = None if settings.oversampling is None else self.first + settings.oversampling
        to_rounding = settings.svd_solver == "arpack"
        return BlockKrylov(tol=settings.tol, passes=settings.passes, block_size=width, to_rounding=to_rounding)


def plan_of(task: PCATask) -> Candidate:
    """Return the first method that fits into memory; else raise `MemoryBudgetError` with advice."""
    return choose_plan(_candidates(task), partial(_too_big, task))


def _too_big(task: PCATask, fewest: Plan) -> str:
    """Return the message for a limit that no method keeps, with advice."""
    iterates = task.settings.svd_solver in ITERATIVE
    advice = "fewer components" if iterates else 'few components (of PCA with svd_solver="randomized")'
    return (
        f"PCA of {task.n} x {task.d} needs {format_need(fewest.predicted_bytes)} ({fewest.method}), and "
        f"{format_allowance(fewest.available_bytes)} are allowed or free. Try {advice}, float32 data, or a larger "
        "memory_limit."
    )


def _candidates(task: PCATask) -> Iterator[Candidate]:
    """Yield methods in the order of preference, each with its reason."""
    n, d, p, whole = task.n, task.d, task.first, task.rank.minka
    if task.settings.svd_solver != "auto":
        yield METHODS[task.settings.svd_solver](task, "requested")
        return
    if is_sparse(task.X) and task.few > FEW_OF_SPARSE and not whole:
        yield _randomized(task, "sparse rows, of which products are cheap", may_hand_over=True)
        return
    if not (is_sparse(task.X) or isinstance(task.X, Rows)) and d <= n <= SMALL:
        yield _svd(task, "the data are small")
        return
    if n >= d > FEW_FEATURES and FEATURES_PER_COMPONENT * (p + 8) < d and not whole:
        count = f"p = {p}" + (", where a share of the variance begins," if task.rank.share is not None else "")
        yield _randomized(task, f"{count} is small compared with {d} features", may_hand_over=True)
        return
    yield (matrix := _by_smaller_side(task))
    if not whole and BlockKrylov().iterates(task.few, p):
        needed = f"{matrix.plan.method} would need {format_bytes(matrix.plan.predicted_bytes)}"
        yield _randomized(task, "few components").with_notes(needed)


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
    solver = KRYLOV if pays and not task.rank.minka else DENSE
    needed = partial(_matrix_bytes, task, solver, by_samples)
    return _candidate(task, method, reason, solver, by_samples, needed, _matrix_work(task, solver, by_samples))


def _svd(task: PCATask, reason: str) -> Candidate:
    """Return the singular value decomposition of the rows."""
    work = Work(eigenproblems=SVD_WORK * task.few**2 * max(task.n, task.d))
    return _candidate(task, "full", reason, None, False, partial(_svd_bytes, task), work)


def _randomized(task: PCATask, reason: str, may_hand_over: bool = False) -> Candidate:
    """Return block Krylov on the smaller side; a stored matrix may take over many components of a share."""
    few, p, krylov, by_samples = task.few, task.first, task.krylov, task.n < task.d
    if krylov.iterates(few, p):
        one_pass = task.row_products(2 * krylov.width(few, p, task.on_gpu))
        work = krylov.work(few, p, one_pass, task.item, task.on_gpu)
        solver: PCASolver = krylov
    else:
        solver = Dense(tol=krylov.tol)
        work = _matrix_work(task, solver, by_samples)
    first, twice = (_randomized_bytes(task, by_samples, count) for count in (p, 2 * p))
    pair_bytes = max(1, (twice - first) // p) * WIDENING  # while the basis is copied
    found = _candidate(
        task, "randomized", reason, solver, by_samples, lambda count: first + max(0, count - p) * pair_bytes, work
    )
    if solver is not krylov:
        found = found.with_notes(too_many(few, p))
    if task.rank.share is None:
        return found
    beyond = None
    if may_hand_over:  # what takes over is for many components
        matrix = _by_smaller_side(task)
        whole = matrix.plan_for(task.p)
        beyond = replace(matrix, plan=replace(whole, n_components=p)) if whole.fits else None
    few = replace(krylov, or_dense=beyond is not None).most_pairs(few)
    return _with_most(task, found.with_beyond(beyond, "" if beyond is None else beyond.plan.method, few))


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
    notes: tuple[str, ...] = (f"cluster: {task.X.cluster.describe()}",) if task.is_on_cluster else ()
    if task.settings.has_checkpoint and not (solver and solver.grows_with_p):
        notes += (NO_CHECKPOINT,)
    plan = Plan(
        n_samples=task.n,
        n_features=task.d,
        n_components=p,
        dtype=dtype_name(task.X.dtype),
        device=describe_device(task.place.work),
        solver=solver,
        solver_reason=reason,
        predicted_bytes=(first := needed(p)),
        available_bytes=task.resources.allowed(first),
        method=method,
        by_samples=by_samples,
        workers=task.workers,
        notes=notes,
        estimated_seconds=seconds,
    )
    found = Candidate(plan, task.resources, needed, few=task.p)
    return found if method == "randomized" else _with_most(task, found)


def _with_most(task: PCATask, found: Candidate) -> Candidate:
    """Return the candidate with a note on a share of the variance that takes more components than the first guess."""
    if task.rank.share is None or found.most <= task.first:
        return found
    return found.with_notes(f"{found.most} components take up to {format_bytes(found.bytes_for(found.most))}")


# -- parts of the bytes ------------------------------------------------------------------------------------------------


def _bytes_around(task: PCATask, by_samples: bool, p: int, widest: int) -> tuple[int, int, int]:
    """Return the bytes of copies of the rows with blocks of them, those of results, and the workers of sums.

    `widest` are the bytes of an item of the components.
    """
    n, d, workers, has_scores = task.n, task.d, task.workers, by_samples or task.with_scores
    blocks = _block_bytes(task, by_samples, p)
    if task.is_on_cluster:
        # Rows and sums stay with their workers. This process holds one of the sums, and blocks in transit.
        workers, blocks = 0, BLOCKS_IN_TRANSIT * 8 * (n if by_samples else d) * (p + 10)
        has_scores = by_samples or task.X.local is not None
    # Components of samples are products of the rows, summed in the widest type and corrected for the mean.
    results = d * p * (4 * task.item + 3 * 8 if by_samples else 4 * widest) + 2 * n * p * widest * has_scores
    copy = task.copy_bytes + (3 * task.stored * 12 if is_sparse(task.X) else 0)
    return copy + OBJECT_BYTES, blocks + results, workers


def _block_length(task: PCATask, by_samples: bool) -> int:
    """Return the rows, or `by_samples` the columns, of a block of one worker."""
    length, other = (task.d, task.n) if by_samples else (task.n, task.d)
    fewest = blocking.FEWEST_SCATTER_COLUMNS if by_samples else blocking.FEWEST_SCATTER_ROWS
    fitting = max(fewest, blocking.SCATTER_ENTRIES.on(task.on_gpu) // max(other, 1))
    return min(-(-length // task.workers), fitting)


def _block_bytes(task: PCATask, by_samples: bool, p: int) -> int:
    """Return the bytes of the blocks of rows or columns of all workers, and of their products with p columns."""
    length, other = _block_length(task, by_samples), task.n if by_samples else task.d
    of_scores = length * (other + p) * task.item if task.with_scores else 0
    of_moments = 3 * 8 if not task.reuses_memory else task.item + (8 if task.item < 8 else 0)
    # A product with the components is factored in the widest type.
    of_product = task.item * (other + p) + (0 if by_samples else 4 * 8 * p)
    of_line = max(other * of_moments, of_product)
    longest = min(length, blocking.LONGEST_SCATTER_PANEL.on(task.on_gpu))
    return task.workers * max(longest * of_line, of_scores)


def _matrix_bytes(task: PCATask, solver: PCASolver, by_samples: bool, p: int) -> int:
    """Return the peak of an eigenproblem of a stored matrix with p components.

    One after another: the matrix, its eigenpairs, and what follows from these and their products.
    """
    size, item, on_gpu = task.n if by_samples else task.d, task.item, task.on_gpu
    copies, results, workers = _bytes_around(task, by_samples, p, item if by_samples else 8)
    square, p, squares = size * size, min(p, size), 1 if task.reuses_memory else 3
    solution = 0
    if not isinstance(solver, BlockKrylov) or solver.or_dense:
        # A matrix of large or tiny entries is scaled in a copy.
        workspace = max(DENSE.workspace_bytes(size, p, 8, on_gpu), 16 * square)
        solution = workspace + 8 * (squares * square + LAPACK_COLUMNS * size)
    if isinstance(solver, BlockKrylov):
        widening, pairs = (WIDENING, solver.most_pairs(size)) if task.rank.decides else (1, p)
        solution = max(solution, 8 * square + widening * solver.workspace_bytes(size, min(p, pairs), 8, on_gpu))
    is_shared = by_samples and size > blocking.PRIVATE_SCATTER_UP_TO  # all workers add to one matrix
    if is_shared:
        products = square * 8
    elif task.reuses_memory:
        products = workers * square * (8 + item)
    else:
        products = square * (8 * (1 + workers) + item * max(2, workers))
    if not task.is_on_cluster:
        products += _panel_bytes(task, size, by_samples, is_shared)
    # Eigenvectors and their products in float64, and copies in a narrower type of the data.
    pairs_bytes = (16 if item == 8 else 16 + 2 * item) * size * p
    if by_samples and isinstance(task.X, BatchedRows):  # which are read at once
        copies += 2 * task.stored * item
    return copies + max(products, solution, pairs_bytes + results)


def _panel_bytes(task: PCATask, size: int, by_samples: bool, is_shared: bool) -> int:
    """Return the bytes of the panels of all workers whose products are formed."""
    length, item = task.d if by_samples else task.n, task.item if task.reuses_memory else 3 * 8
    if is_shared:  # one block of columns, and a tile for each worker
        edge = blocking.SCATTER_TILE_EDGE
        return (min(length, 2 * edge) * size + task.workers * edge**2) * item
    longest = min(-(-length // task.workers), max(SQUARES * size, _block_length(task, by_samples)))
    return task.workers * min(longest, blocking.LONGEST_SCATTER_PANEL.cpu) * size * item


def _randomized_bytes(task: PCATask, by_samples: bool, p: int) -> int:
    """Return the peak of the iteration with p components, or of the dense solver in its place."""
    few, on_gpu = task.few, task.on_gpu
    copies, results, workers = _bytes_around(task, by_samples, p, task.item)
    held = copies + results + workers * few * (p + 10) * 8
    if task.krylov.iterates(few, p):
        return held + task.krylov.workspace_bytes(few, p, task.item, on_gpu)
    return held + 16 * few * few + DENSE.workspace_bytes(few, p, 8, on_gpu)


def _svd_bytes(task: PCATask, p: int) -> int:
    """Return the peak of an SVD with p components."""
    copies, results, _ = _bytes_around(task, task.n < task.d, p, task.item)
    held, svd = copies + results, SVD_SQUARES * task.few**2
    if isinstance(task.X, Rows):  # this process holds the triangular factor alone, and a batch as it is factored
        return held + (3 * task.few * task.d + svd) * 8 + task.copy_bytes
    return held + (2 * task.n * task.d + (task.n + task.d) * task.few + svd) * task.item


# -- parts of the work -------------------------------------------------------------------------------------------------


def _matrix_work(task: PCATask, solver: PCASolver, by_samples: bool) -> Work:
    """Return the work of a matrix of products and of its eigenproblem."""
    p, on_gpu = task.first, task.on_gpu
    size, other = (task.n, task.d) if by_samples else (task.d, task.n)
    work, widened = Work(products=task.stored * size), 8 // task.item
    if is_sparse(task.X):
        work = Work(sparse_products=task.stored**2 / other, bytes=SPARSE_ENTRY_BYTES * size**2)
    one_pass = Work(blocks=2 * size**2 * solver.width(size, p, on_gpu))
    return work + solver.work(size, p, one_pass, 8, on_gpu) * widened
