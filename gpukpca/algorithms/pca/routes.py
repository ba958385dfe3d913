"""The methods of PCA for a task. Each states its bytes and its work from shapes alone, and computes the components."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from gpukpca._formatting import format_allowance, format_bytes, format_need
from gpukpca.algorithms.pca import components
from gpukpca.algorithms.pca.components import Components, SolverTools
from gpukpca.algorithms.pca.plan import PCAPlan, PCASolver
from gpukpca.algorithms.pca.settings import ITERATIVE, PCASettings, RankRequest
from gpukpca.algorithms.progress import NO_CHECKPOINT
from gpukpca.algorithms.task import BLOCKS_IN_TRANSIT, Task, note_on_share, share_beyond_memory
from gpukpca.algorithms.work import COPIES, SPARSE_ENTRY_BYTES, STEPS, Work, estimate_seconds, krylov_work
from gpukpca.backend import blocking
from gpukpca.backend.device import describe_device
from gpukpca.backend.namespace import dtype_name, is_numpy, is_sparse
from gpukpca.covariance.centered_matrix import CenteredMatrix
from gpukpca.covariance.dense import SQUARES
from gpukpca.data.batches import BatchedRows
from gpukpca.data.rows import Rows
from gpukpca.eigen import BlockKrylov, Dense
from gpukpca.eigen.block_krylov import WIDENING, too_many
from gpukpca.eigen.dense import FEW_PAIRS
from gpukpca.eigen.request import HandOver
from gpukpca.exceptions import MemoryBudgetError

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
OBJECT_BYTES = 2**16
# Columns of LAPACK's workspace to reduce a matrix to a tridiagonal one.
LAPACK_COLUMNS = 96
# LAPACK's gesdd: its workspace in units of the smaller side squared, and its work in units of that of all eigenpairs.
SVD_SQUARES, SVD_WORK = 8, 3.0


@dataclass(frozen=True)
class PCATask(Task):
    """The inputs of a fit of PCA."""

    rank: RankRequest
    settings: PCASettings
    with_scores: bool = False

    @property
    def p(self) -> int:
        """Return the number of components; an upper bound where the spectrum decides."""
        return self.rank.most

    @property
    def first(self) -> int:
        """Return the number of components, or the first guess where a share of the variance decides."""
        return max(1, self.rank.first)

    @property
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


@dataclass(frozen=True)
class Route(ABC):
    """A method of PCA for a task, and the reason for it."""

    task: PCATask
    reason: str
    notes: tuple[str, ...] = ()
    computed: int = 0  # components that a share of the variance took
    method: ClassVar[str]
    # Bytes of an item of the components, at least.
    least_item: ClassVar[int] = 0

    @property
    def by_samples(self) -> bool:
        """Return whether the eigenproblem is that of the samples."""
        return False

    @property
    def by_rows(self) -> bool:
        """Return whether the data are read by blocks of rows, not of columns."""
        return self.task.n >= self.task.d

    @property
    @abstractmethod
    def solver(self) -> Any:
        """Return the solver of the eigenproblem; None for the SVD."""

    @abstractmethod
    def peak_bytes(self, p: int, workers: int, blocks: int, results: int) -> int:
        """Return the peak of matrices, the solver of p pairs, sums of the workers, bytes of blocks and of results."""

    @abstractmethod
    def fit_work(self) -> Work:
        """Return the work of the components, without copies and scores."""

    @abstractmethod
    def components(self, Z: CenteredMatrix, rank: RankRequest, tools: SolverTools) -> Components:
        """Return at least the requested leading components of centered, scaled rows (n, d)."""

    def solution(self, Z: CenteredMatrix, rank: RankRequest, tools: SolverTools) -> tuple[Components, Route]:
        """Return the components, and the route that computed them."""
        if rank.share is None:
            return self.components(Z, rank, tools), self
        found = self.components(Z, rank.up_to(self.most), tools)
        if len(found.squares) == self.most < self.task.p and found.squares.sum() <= rank.share * Z.total:
            raise share_beyond_memory(rank.share, f"more than {self.most}")
        return found, self

    @property
    def p(self) -> int:
        """Return the number of components that the plan states: a guess where a share of the variance decides."""
        return self.task.rank.first

    @cached_property
    def most(self) -> int:
        """Return the most components that a share of the variance may take: as many as fit into memory."""
        first, p = self.p, self.task.p
        allowed = self.task.resources.allowed(self.bytes_up_to(p))
        if self.bytes_up_to(p) <= allowed:
            return p
        return first + bisect_right(range(first + 1, p + 1), allowed, key=self.bytes_up_to)

    @cached_property
    def predicted_bytes(self) -> int:
        """Return the peak of the bytes of the fit."""
        return self.bytes_up_to(self.computed)

    def bytes_up_to(self, count: int) -> int:
        """Return the peak of the bytes where a share of the variance takes so many components."""
        return self.bytes_for(max(self.p, count))

    def with_note_on_share(self) -> Self:
        """Return the route with a note on a share of the variance that needs more components than the first guess."""
        if self.task.rank.share is None or self.most <= self.task.first:
            return self
        note = f"{self.most} components take up to {format_bytes(self.bytes_up_to(self.most))}"
        return replace(self, notes=(*self.notes, note))

    def bytes_for(self, p: int) -> int:
        """Return the bytes of p components: matrices, the solver, blocks of all workers, components, scores."""
        task, n, d = self.task, self.task.n, self.task.d
        workers, blocks, has_scores = task.workers, self._block_bytes(p), self.by_samples or task.with_scores
        if task.is_on_cluster:
            # Rows and sums stay with their workers. This process holds one of the sums, and blocks in transit.
            workers, blocks = 0, BLOCKS_IN_TRANSIT * 8 * (n if self.by_samples else d) * (p + 10)
            has_scores = self.by_samples or task.X.local is not None
        widest = max(task.item, self.least_item)
        # Components of samples are products of the rows, summed in the widest type and corrected for the mean.
        results = d * p * (4 * task.item + 3 * 8 if self.by_samples else 4 * widest) + 2 * n * p * widest * has_scores
        copy = task.copy_bytes + (3 * task.stored * 12 if is_sparse(task.X) else 0)
        return copy + self.peak_bytes(p, workers, blocks, results) + OBJECT_BYTES

    @cached_property
    def reuses_memory(self) -> bool:
        """Return whether blocks and matrices are computed in memory that exists: those of NumPy in this process."""
        return is_numpy(self.task.place.work) and not is_sparse(self.task.X) and not self.task.is_on_cluster

    @property
    def block_length(self) -> int:
        """Return the rows or columns of a block of one worker."""
        task = self.task
        length, other = (task.n, task.d) if self.by_rows else (task.d, task.n)
        fewest = blocking.FEWEST_SCATTER_ROWS if self.by_rows else blocking.FEWEST_SCATTER_COLUMNS
        fitting = max(fewest, blocking.SCATTER_ENTRIES.on(task.on_gpu) // max(other, 1))
        return min(-(-length // task.workers), fitting)

    def _block_bytes(self, p: int) -> int:
        """Return the bytes of the blocks of rows or columns of all workers, and of their products with p columns."""
        task, length, other = self.task, self.block_length, self.task.d if self.by_rows else self.task.n
        of_scores = length * (other + p) * task.item if task.with_scores else 0
        of_moments = 3 * 8 if not self.reuses_memory else task.item + (8 if task.item < 8 else 0)
        # A product with the components is factored in the widest type.
        of_product = task.item * (other + p) + (0 if self.by_samples else 4 * 8 * p)
        of_line = max(other * of_moments, of_product)
        longest = min(length, blocking.LONGEST_SCATTER_PANEL.on(task.on_gpu))
        return task.workers * max(longest * of_line, of_scores)

    def matrix_work(self) -> Work:
        """Return the work of a matrix of products and of its eigenproblem."""
        task, solver, p, widened = self.task, self.solver, self.task.first, 8 // self.task.item
        size, other = (task.n, task.d) if self.by_samples else (task.d, task.n)
        work = Work(products=widened * task.stored * size)
        if is_sparse(task.X):
            work = Work(sparse_products=task.stored**2 / other, bytes=SPARSE_ENTRY_BYTES * size**2)
        if solver.iterates(size, p):
            passes: int = solver.expected_passes(size, p, 8, task.on_gpu)
            product: Work = Work(blocks=2 * widened * size**2 * solver.width(size, p, task.on_gpu))
            return work + product * passes + krylov_work(solver, size, p, passes, task.on_gpu)
        pairs = 1.0 if 2 * p > size else FEW_PAIRS
        return work + Work(eigenproblems=widened * pairs * size**3)

    def plan(self) -> PCAPlan:
        """Return the plan, with an estimate of the time where that does not depend on a network."""
        task, notes, seconds = self.task, self.notes, None
        if task.is_on_cluster:
            notes = (f"cluster: {task.X.cluster.describe()}", *notes)
        else:
            work = Work(bytes=COPIES * task.stored * task.item, calls=STEPS) + task.row_products(task.first)
            seconds = estimate_seconds(work + self.fit_work(), task)
        if task.settings.has_checkpoint and not (self.solver and self.solver.grows_with_p):
            notes += (NO_CHECKPOINT,)
        return PCAPlan(
            n_samples=task.n,
            n_features=task.d,
            n_components=self.p,
            dtype=dtype_name(task.X.dtype),
            device=describe_device(task.place.work),
            method=self.method,
            reason=self.reason,
            solver=self.solver,
            by_samples=self.by_samples,
            workers=task.workers,
            predicted_bytes=self.predicted_bytes,
            available_bytes=task.resources.allowed(self.predicted_bytes),
            notes=notes,
            estimated_seconds=seconds,
        )


class MatrixRoute(Route):
    """The eigenproblem of a stored matrix of products, of the features or of the samples."""

    @property
    def size(self) -> int:
        """Return the size of the matrix."""
        return self.task.n if self.by_samples else self.task.d

    @cached_property
    def solver(self) -> PCASolver:
        task, size = self.task, self.size
        pays = KRYLOV.iterates(size, task.first) and KRYLOV.patience(size, task.first, task.on_gpu) >= PASSES_WORTH
        return KRYLOV if pays and not task.rank.minka else DENSE

    def peak_bytes(self, p: int, workers: int, blocks: int, results: int) -> int:
        task, solver, size = self.task, self.solver, self.size
        square, p, squares = size * size, min(p, size), 1 if self.reuses_memory else 3
        solution = 0
        if not isinstance(solver, BlockKrylov) or solver.or_dense:
            # A matrix of large or tiny entries is scaled in a copy.
            workspace = max(DENSE.workspace_items(size, p, task.on_gpu), 2 * square) + LAPACK_COLUMNS * size
            solution = squares * square + workspace
        if isinstance(solver, BlockKrylov):
            copies, pairs = (WIDENING, solver.most_pairs(size)) if task.rank.decides else (1, p)
            basis = copies * solver.workspace_items(size, min(p, pairs), task.on_gpu)
            solution = max(solution, square + basis)
        # One after another: the matrix, its eigenpairs, and what follows from these and their products.
        products = self._products_bytes(workers) + (0 if task.is_on_cluster else self._panel_bytes())
        # Eigenvectors and their products in float64, and copies in a narrower type of the data.
        pairs_bytes = (16 if task.item == 8 else 16 + 2 * task.item) * size * p
        return max(products, 8 * solution, pairs_bytes + results + blocks)

    @property
    def is_shared(self) -> bool:
        """Return whether all workers add to one matrix, else each to its own."""
        return self.by_samples and self.size > blocking.PRIVATE_SCATTER_UP_TO

    def _products_bytes(self, workers: int) -> int:
        """Return the bytes of the matrix and of the sums of so many workers."""
        square, item = self.size**2, self.task.item
        if self.is_shared:
            return square * 8
        if self.reuses_memory:
            return workers * square * (8 + item)
        return square * (8 * (1 + workers) + item * max(2, workers))

    def _panel_bytes(self) -> int:
        """Return the bytes of the panels of all workers whose products are formed."""
        task, length = self.task, self.task.d if self.by_samples else self.task.n
        if self.is_shared:  # one block of columns, and a tile for each worker
            edge = blocking.SCATTER_TILE_EDGE
            items = min(length, 2 * edge) * self.size + task.workers * edge**2
            return items * (task.item if self.reuses_memory else 3 * 8)
        longest = min(-(-length // task.workers), max(SQUARES * self.size, self.block_length))
        panel = min(longest, blocking.LONGEST_SCATTER_PANEL.cpu) * self.size
        return task.workers * panel * (task.item if self.reuses_memory else 3 * 8)

    def fit_work(self) -> Work:
        return self.matrix_work()


class CovarianceRoute(MatrixRoute):
    """The eigenproblem of the covariance of the features."""

    method: ClassVar[str] = "covariance_eigh"
    least_item: ClassVar[int] = 8
    by_rows: bool = True

    def components(self, Z: CenteredMatrix, rank: RankRequest, tools: SolverTools) -> Components:
        return components.of_scatter(Z, self.solver, rank, tools)


class DualRoute(MatrixRoute):
    """The eigenproblem of the Gram matrix of the samples."""

    method: ClassVar[str] = "dual"
    by_samples: bool = True
    by_rows: bool = False

    def peak_bytes(self, p: int, workers: int, blocks: int, results: int) -> int:
        whole = 2 * self.task.stored * self.task.item if isinstance(self.task.X, BatchedRows) else 0
        return whole + super().peak_bytes(p, workers, blocks, results)

    def components(self, Z: CenteredMatrix, rank: RankRequest, tools: SolverTools) -> Components:
        return components.of_gram(Z, self.solver, rank, tools)


@dataclass(frozen=True)
class RandomizedRoute(Route):
    """Block Krylov iteration on the smaller side; for a share of the variance, `beyond` takes over many components."""

    beyond: Route | None = None
    method = "randomized"

    @cached_property
    def first_bytes(self) -> int:
        """Return the peak of the bytes where the first guess of the number of components is enough."""
        return self.bytes_for(self.task.first)

    @cached_property
    def pair_bytes(self) -> int:
        """Return the bytes of one component more, while the basis is copied."""
        first = self.task.first
        return max(1, (self.bytes_for(2 * first) - self.first_bytes) // first) * WIDENING

    @cached_property
    def most(self) -> int:
        """Return the most components of a share: as many as fit into memory, and are few for `beyond`."""
        task, first = self.task, self.task.first
        spare = task.resources.allowed() - self.first_bytes
        few = replace(self.krylov, or_dense=self.beyond is not None).most_pairs(task.few)
        return max(first, min(few, first + spare // self.pair_bytes))

    def bytes_up_to(self, count: int) -> int:
        return self.first_bytes + max(0, count - self.task.first) * self.pair_bytes

    def with_note_on_share(self) -> Self:
        if self.task.rank.share is None:
            return self
        note = note_on_share(self.most, "" if self.beyond is None else self.beyond.method, self.beyond)
        return super(RandomizedRoute, replace(self, notes=(*self.notes, note))).with_note_on_share()

    @property
    def by_samples(self) -> bool:
        return self.task.n < self.task.d

    @property
    def solver(self) -> PCASolver:
        krylov = self.krylov
        return krylov if krylov.iterates(self.task.few, self.task.first) else Dense(tol=krylov.tol)

    def plan(self) -> PCAPlan:
        plan = super().plan()
        if isinstance(self.solver, BlockKrylov):
            return plan
        return replace(plan, notes=(*plan.notes, too_many(self.task.few, self.task.first)))

    @property
    def krylov(self) -> BlockKrylov:
        """Return the iteration, which the dense solver replaces for too many components."""
        settings = self.task.settings
        width = None if settings.oversampling is None else self.task.first + settings.oversampling
        to_rounding = settings.svd_solver == "arpack"
        return BlockKrylov(tol=settings.tol, passes=settings.passes, block_size=width, to_rounding=to_rounding)

    def peak_bytes(self, p: int, workers: int, blocks: int, results: int) -> int:
        task, few = self.task, self.task.few
        sums = workers * few * (p + 10) * 8 + blocks + results
        if self.krylov.iterates(few, p):
            return self.krylov.workspace_items(few, p, task.on_gpu) * task.item + sums
        return (2 * few * few + DENSE.workspace_items(few, p, task.on_gpu)) * 8 + sums

    def fit_work(self) -> Work:
        task, few, p, solver = self.task, self.task.few, self.task.first, self.krylov
        if not solver.iterates(few, p):
            return self.matrix_work()
        passes = solver.expected_passes(few, p, task.item, task.on_gpu)
        one_pass = task.row_products(2 * solver.width(few, p, task.on_gpu))
        return one_pass * passes + krylov_work(solver, few, p, passes, task.on_gpu)

    def components(self, Z: CenteredMatrix, rank: RankRequest, tools: SolverTools) -> Components:
        rank = rank.up_to(self.most) if rank.decides else rank
        return components.of_operator(Z, self.solver, rank, tools, self.by_samples)

    def solution(self, Z: CenteredMatrix, rank: RankRequest, tools: SolverTools) -> tuple[Components, Route]:
        try:
            return self.components(Z, rank, tools), self
        except HandOver as reason:
            if self.beyond is None:
                raise share_beyond_memory(rank.share, str(reason)) from reason
            why = f"{self.method} came first: {reason}"  # the exception holds the basis
        beyond = replace(self.beyond, notes=(*self.beyond.notes, why))
        return beyond.solution(Z, rank, replace(tools, checkpointer=None))


class SVDRoute(Route):
    """The singular value decomposition of the rows."""

    method, solver = "full", None

    def peak_bytes(self, p: int, workers: int, blocks: int, results: int) -> int:
        task, svd = self.task, SVD_SQUARES * self.task.few**2
        if isinstance(task.X, Rows):  # this process holds the triangular factor alone, and a batch as it is factored
            return (3 * task.few * task.d + svd) * 8 + task.copy_bytes + blocks + results
        return (2 * task.n * task.d + (task.n + task.d) * task.few + svd) * task.item + blocks + results

    def fit_work(self) -> Work:
        return Work(eigenproblems=SVD_WORK * self.task.few**2 * max(self.task.n, self.task.d))

    def components(self, Z: CenteredMatrix, rank: RankRequest, tools: SolverTools) -> Components:
        return components.of_svd(Z, rank, tools)


ROUTES: dict[str, type[Route]] = {
    **{route.method: route for route in (CovarianceRoute, DualRoute, SVDRoute, RandomizedRoute)},
    "arpack": RandomizedRoute,
    "tsqr": SVDRoute,
}


def choose_route(task: PCATask) -> Route:
    """Return the first method that fits into memory; else raise `MemoryBudgetError` with advice."""
    route, fewest = task.first_that_fits(_routes(task))
    if route is not None and fewest is not None:
        note = f"{fewest.method} would need {format_bytes(fewest.predicted_bytes)}"
        return replace(route, notes=(*route.notes, note))
    if route is not None:
        return route
    iterates = task.settings.svd_solver in ITERATIVE
    advice = "fewer components" if iterates else 'few components (of PCA with svd_solver="randomized")'
    needed, used = (format_need(fewest.predicted_bytes), fewest.method) if fewest else ("", "")
    allowed = format_allowance(task.resources.allowed())
    raise MemoryBudgetError(
        f"PCA of {task.n} x {task.d} needs {needed} ({used}), and {allowed} are allowed or "
        f"free. Try {advice}, float32 data, or a larger memory_limit."
    )


def _routes(task: PCATask) -> Iterator[Route]:
    """Yield methods in the order of preference, each with its reason."""
    n, d, p, whole = task.n, task.d, task.first, task.rank.minka
    if task.settings.svd_solver != "auto":
        yield ROUTES[task.settings.svd_solver](task, "requested").with_note_on_share()
        return
    matrix: MatrixRoute
    if n >= d:
        matrix = CovarianceRoute(task, f"{d} features are no more than {n} samples")
    else:
        matrix = DualRoute(task, f"{n} samples are fewer than {d} features")
    beyond = None
    if task.rank.share is not None:  # what takes over is for many components
        many = replace(matrix, computed=task.p)
        beyond = many if many.predicted_bytes <= task.resources.allowed(many.predicted_bytes) else None
    if is_sparse(task.X) and task.few > FEW_OF_SPARSE and not whole:
        yield RandomizedRoute(task, "sparse rows, of which products are cheap", beyond=beyond).with_note_on_share()
        return
    if not (is_sparse(task.X) or isinstance(task.X, Rows)) and d <= n <= SMALL:
        yield SVDRoute(task, "the data are small").with_note_on_share()
        return
    if n >= d > FEW_FEATURES and FEATURES_PER_COMPONENT * (p + 8) < d and not whole:
        count = f"p = {p}" + (", where a share of the variance begins," if task.rank.share is not None else "")
        reason = f"{count} is small compared with {d} features"
        yield RandomizedRoute(task, reason, beyond=beyond).with_note_on_share()
        return
    yield matrix.with_note_on_share()
    if not whole and BlockKrylov().iterates(task.few, p):
        yield RandomizedRoute(task, "few components").with_note_on_share()
