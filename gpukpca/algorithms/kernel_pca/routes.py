"""The ways to fit: a solver with a storage of K. Each states the bytes and the work of its fit from shapes alone.

`tests/algorithms/test_predicted_memory.py` compares the bytes with what a fit allocates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Self

from gpukpca.algorithms.kernel_pca.plan import Plan
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.progress import NO_CHECKPOINT
from gpukpca.algorithms.task import BLOCKS_IN_TRANSIT, note_on_share, share_beyond_memory
from gpukpca.algorithms.work import COPIES, SPARSE_ENTRY_BYTES, STEPS, Work, estimate_seconds, krylov_work
from gpukpca.backend import blocking
from gpukpca.backend.device import describe_device
from gpukpca.backend.limits import SHARE_FOR_ROWS
from gpukpca.backend.linalg import inner_panel
from gpukpca.backend.namespace import dtype_name, is_sparse
from gpukpca.distributed.gram import ClusterColumnStorage, ClusterStorage
from gpukpca.eigen import BlockKrylov, LowRank, Nystrom, PairRequest
from gpukpca.eigen.block_krylov import WIDENING
from gpukpca.eigen.solve import most_by_passes
from gpukpca.eigen.solver import PlannedSolver
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.product import dense_row_bytes
from gpukpca.gram.storage import DenseStorage, LowRankStorage, Storage, TiledStorage
from gpukpca.gram.tiling import rows_at_once
from gpukpca.kernels import Kernel, Laplacian, Linear, PairwiseCallable, Precomputed
from gpukpca.kernels.definiteness import check_not_indefinite

# Features up to which the small eigenproblem of a factor is solved whole.
LARGEST_SMALL_PROBLEM = 2000
# Slices of CSR rows for a tile, which are copies: of both sides, of a strip, and the right one widened, multiplied and
# by columns. Bytes of a stored entry.
SPARSE_SLICES, STORED_ENTRY_BYTES = 6, 16
# Strips of a tile in float64 that a device holds at once.
WIDE_STRIPS = 3
# Of a factor with k columns: vectors of length n in float64, and arrays of k² that LAPACK and the fit hold at once.
LANDMARK_VECTORS, SMALL_PROBLEM_SQUARES = 6, 6
# Arrays of k² that Fᵀ F takes, and those that every worker holds in addition: its sum, a product and half of a copy.
# In float32 a worker's product takes half.
SUM_SQUARES, WORKER_SQUARES, NARROW_SQUARES = 0.5, 2.5, 1.5
# Columns that randomly pivoted Cholesky evaluates for each that it keeps.
COLUMNS_A_PIVOT = 1.5


@dataclass(frozen=True, kw_only=True)
class Route(ABC):
    """A solver with a storage of K, for one task; the other fields are those of `Plan`.

    Where a share of the variance takes too many components for the solver, the route `beyond` takes over.
    """

    task: FitTask
    solver: PlannedSolver
    solver_reason: str
    storage: Storage
    predicted_bytes: int
    n_components: int
    start_landmarks: int = 0
    bytes_read: int = 0
    notes: tuple[str, ...] = ()
    beyond: Route | None = None

    @abstractmethod
    def fit_work(self) -> Work | None:
        """Return the work of the fit without copies and the pre-image; None where it is not known."""

    def work(self) -> Work | None:
        """Return the work of the fit; None for a function of two rows or a solver of unknown work."""
        task = self.task
        if isinstance(task.kernel, PairwiseCallable) or (fit_work := self.fit_work()) is None:
            return None
        work = Work(bytes=COPIES * task.data_bytes, calls=STEPS)
        if task.preimage is not None:
            work += task.preimage.fit_work(task.n, task.d, task.p, task.preimage_landmarks)
        return work + fit_work

    @cached_property
    def most(self) -> int:
        """Return the most components of a share: as many as fit into memory, and are few for `beyond`."""
        task, solver, bound = self.task, self.solver, self.storage.rank_bound
        if not (solver.grows_with_p and solver.iterates(bound, self.n_components)):
            return bound
        few = solver.most_pairs(bound)
        few = few if self.beyond is None else min(few, most_by_passes(bound, task.on_gpu))
        spare = task.resources.allowed() - self.predicted_bytes
        return max(self.n_components, min(few, self.n_components + spare // self._pair_bytes))

    @cached_property
    def _pair_bytes(self) -> int:
        """Return the bytes of each component beyond the first guess, while a basis grows."""
        task, solver = self.task, self.solver
        if not solver.grows_with_p:  # the bytes of all components are predicted
            return 0
        first, twice = (_iteration_bytes(replace(task, p=p), solver) for p in (task.p, 2 * task.p))
        return max(1, (twice - first) // task.p) * WIDENING

    @property
    def request(self) -> PairRequest:
        """Return the eigenpairs to compute."""
        settings, p = self.task.settings, self.n_components
        return settings.request_of_share(p, self.most) if settings.is_share else PairRequest.of_count(p)

    def bytes_for(self, p: int) -> int:
        """Return the peak of the allocations for p components."""
        return self.predicted_bytes + max(0, p - self.n_components) * self._pair_bytes

    def with_beyond(self, beyond: Route | None) -> Self:
        """Return the route with another one for many components of a share, and a note on it."""
        route = replace(self, beyond=beyond)
        return replace(route, notes=(*self.notes, note_on_share(route.most, "all eigenvalues", beyond)))

    def handed_over(self, reason: str) -> Route:
        """Return the route beyond; raise `MemoryBudgetError` without one."""
        if self.beyond is None:
            raise share_beyond_memory(self.task.settings.share, reason)
        note = f"{self.solver.name} came first"
        return replace(self.beyond, solver_reason=reason, notes=(*self.beyond.notes, note))

    def with_recomputed_note(self) -> Self:
        """Return the route with a note on the tiles that do not fit into memory."""
        tiles = f"{self.storage.recomputed_tiles} of {self.storage.tiles} tiles"
        note = f"K does not fit into memory: {tiles} are recomputed in every pass"
        return replace(self, notes=(*self.notes, note))

    def plan(self) -> Plan:
        """Return the plan, with notes on the pre-image and the checkpoint and an estimate of the time."""
        task, solver, notes, work = self.task, self.solver, self.notes, self.work()
        if task.preimage_landmarks:
            notes += (f"the ridge pre-image uses {task.preimage_landmarks} landmarks among the {task.n} scores",)
        if not isinstance(gram := task.settings.gram, str) and not isinstance(self.storage, gram):
            notes += (f"{task.settings.gram_text} is not used: it is for exact solvers in this process",)
        if task.has_checkpoint and not solver.iterates(task.n, task.p):
            notes += (NO_CHECKPOINT,)
        return Plan(
            n_samples=task.n,
            n_features=task.d,
            n_components=self.n_components,
            dtype=dtype_name(task.X.dtype),
            device=describe_device(task.place.work),
            kernel=repr(task.kernel),
            solver=solver,
            solver_reason=self.solver_reason,
            storage=self.storage,
            predicted_bytes=self.predicted_bytes,
            available_bytes=task.resources.allowed(self.predicted_bytes),
            start_landmarks=self.start_landmarks,
            bytes_read=self.bytes_read,
            preimage_landmarks=task.preimage_landmarks,
            notes=notes,
            estimated_seconds=None if work is None else estimate_seconds(work, task),
        )


class StoredRoute(Route):
    """K by tiles, as a square matrix, or as the matrix that the user passed."""

    @classmethod
    def of(cls, task: FitTask, solver: PlannedSolver, reason: str, edge: int, notes: tuple[str, ...]) -> Self:
        """Return the route with tiles of an edge, as many of them cached as memory allows."""
        n, item, bytes_read = task.n, task.item, 0
        storage = task.settings.storage_for(n, task.workers)
        if isinstance(task.kernel, Precomputed):  # its symmetric part, and a block for every worker
            columns = task.workers * n * solver.width(n, task.p, task.on_gpu)
            needed = (n * n + columns) * item + _solver_bytes(task, solver)
        elif task.kernel.stored_only or task.settings.gram not in ("auto", "tiled"):
            needed = _evaluated_bytes(task, solver, edge, n) + storage.bytes_held(item)
        else:
            panel = _panel_for(task, edge)
            rows = rows_at_once(n, edge, task.workers, panel)
            # Cached tiles need no buffer. Those that are recomputed have one in every worker.
            for buffered in (False, True):
                needed = _evaluated_bytes(task, solver, edge, rows, buffered)
                budget = task.tile_budget(needed)
                storage = tiled = TiledStorage.within(budget, n, item, task.workers, edge, panel)
                if tiled.is_fully_cached:
                    break
            bytes_read = tiled.rows_read * task.d * item
            needed += storage.bytes_held(item)
        return cls(
            task=task,
            solver=solver,
            solver_reason=reason,
            storage=storage,
            predicted_bytes=max(needed, task.preimage_bytes),
            n_components=task.p,
            bytes_read=bytes_read,
            notes=notes,
        )

    def fit_work(self) -> Work | None:
        task, solver, storage, n, p = self.task, self.solver, self.storage, self.task.n, self.task.p
        evaluation = _pair_work(task, task.kernel) * storage.entries
        if not solver.iterates(n, p):
            pairs = task.components_for(solver)
            if (share := solver.direct_work(n, pairs)) is None:
                return None
            return evaluation + Work(eigenproblems=share * n**3, blocks=4 * n * n * pairs, bytes=6 * n * n * task.item)
        passes = solver.expected_passes(n, p, task.item, task.on_gpu, self.start_landmarks > 0)
        width = solver.width(n, p, task.on_gpu)
        one_pass = Work(blocks=2 * n * n * width, bytes=self.bytes_read, calls=storage.tiles)
        recomputed = storage.recomputed_tiles / storage.tiles
        start = _pair_work(task, task.kernel) * (n * self.start_landmarks)
        start += Work(eigenproblems=self.start_landmarks**3)
        work = evaluation * (1 + recomputed * (passes - 1)) + one_pass * passes
        return work + krylov_work(solver, n, p, passes, task.on_gpu) + start


class FactorRoute(Route):
    """K = F Fᵀ with the features F of all samples, and the eigenproblem of the small product."""

    @classmethod
    def of(cls, task: FitTask, columns: int) -> Self:
        """Return the route with so many features."""
        settings, n, item = task.settings, task.n, task.item
        p = min(task.p, columns) if settings.n_components is None else task.p
        iterative = BlockKrylov(tol=settings.tol, max_passes=settings.max_passes)
        is_small = columns <= LARGEST_SMALL_PROBLEM or not iterative.iterates(columns, p)
        solver: PlannedSolver = LowRank(tol=settings.tol) if is_small else iterative
        needed = 2 * n * columns * item + 2 * columns * columns * 8  # the factor as it is, and centered
        needed += solver.workspace_items(n, max(p, task.components_for(solver, columns)), task.on_gpu) * item
        needed += _widened_bytes(task, solver, task.p)
        if task.on_gpu:  # the panel of F that is widened for its square
            needed += 8 * columns * min(n, _panel_rows(task))
        return cls(
            task=task,
            solver=solver,
            solver_reason=f"{columns} features span the feature space, fewer than the {n} samples: exact",
            storage=LowRankStorage(n, task.workers, columns),
            predicted_bytes=task.copy_bytes + max(needed, task.preimage_bytes),
            n_components=p,
        )

    def fit_work(self) -> Work:
        task, solver, n, p = self.task, self.solver, self.task.n, self.task.p
        columns = self.storage.rank_bound
        functions = 0 if isinstance(task.kernel, Linear) else n * columns
        work = Work(bytes=4 * n * columns * task.item, functions=functions)
        if not solver.iterates(n, p):
            return work + _small_work(task, columns, self.n_components)
        passes = solver.expected_passes(n, p, task.item, task.on_gpu)
        product = Work(blocks=4 * n * columns * solver.width(n, p, task.on_gpu))
        return work + product * passes + krylov_work(solver, n, p, passes, task.on_gpu)


class LandmarkRoute(Route):
    """K ≈ F Fᵀ by landmarks: Nyström."""

    @classmethod
    def of(cls, task: FitTask, requested: Nystrom, reason: str, edge: int) -> Self:
        """Return the route whose columns of K come by tiles of an edge."""
        n, item, workers = task.n, task.item, task.workers
        solver, rank = _with_rank(requested, task)
        p, panel, small = min(task.p, rank), _panel_for(task, edge), 8 * rank * rank
        held = 0
        if not isinstance(task.kernel, Precomputed):
            held = _row_bytes(task, rows_at_once(n, edge, workers, panel))
        held += workers * edge * _slice_bytes(task) if panel else 0
        held += n * (rank * item + 8 * LANDMARK_VECTORS)
        # In addition to F: columns while it grows, then the small eigenproblem, then the vectors.
        growing = solver.growth_bytes(n, rank, item, workers, task.on_gpu) + 2 * small
        vectors = LowRank().workspace_items(n, p, task.on_gpu) * item + _widened_bytes(task, LowRank(), task.p)
        shared = int((1 + SUM_SQUARES + workers * WORKER_SQUARES) * small)  # Fᵀ F
        if item < 8:  # in float32, or by one sum of panels that are widened
            one = int((1 + SUM_SQUARES + WORKER_SQUARES) * small) + 8 * rank * min(n, _panel_rows(task))
            shared = max(one, int((1 + SUM_SQUARES + workers * NARROW_SQUARES) * small))
        needed = held + max(growing, shared, int(SMALL_PROBLEM_SQUARES * small), vectors + small)
        dense, tiled = DenseStorage(n, workers), TiledStorage(n, workers, edge, 0, panel)
        return cls(
            task=task,
            solver=solver,
            solver_reason=reason,
            storage=LowRankStorage(n, workers, rank, dense if task.kernel.stored_only else tiled),
            predicted_bytes=max(needed, task.preimage_bytes),
            n_components=p,
            bytes_read=n * task.d * item if panel else 0,
        )

    def fit_work(self) -> Work:
        task, n, rank = self.task, self.task.n, self.storage.rank_bound
        columns = _pair_work(task, task.kernel) * (COLUMNS_A_PIVOT * n * rank)
        growing = Work(products=2 * n * rank**2, bytes=4 * n * rank * task.item + self.bytes_read, calls=rank)
        return columns + growing + _small_work(task, rank, self.n_components)


class ClusterRoute(Route):
    """K on a cluster: its workers compute and multiply tiles, and this process does the rest."""

    @classmethod
    def of(cls, task: FitTask, solver: PlannedSolver, reason: str, notes: tuple[str, ...]) -> Self:
        """Return the route of an exact solver, with blocks as wide as the devices of the workers want them."""
        n, p = task.n, task.p
        if task.multiplies_on_gpu:
            solver = solver.with_block(solver.width(n, p, True))
        transit = BLOCKS_IN_TRANSIT * 8 * n * solver.width(n, p, False)
        needed = _solver_bytes(task, solver) + (2 * n * n * task.item if solver.forms_matrix else transit)
        storage = ClusterStorage.of(task.X, task.row_bytes)
        return cls._with(task, solver, reason, storage, needed, p, notes)

    @classmethod
    def by_landmarks(cls, task: FitTask, requested: Nystrom, reason: str) -> Self:
        """Return the route by a factor of K that stays on the workers."""
        n, item = task.n, task.item
        solver, rank = _with_rank(requested, task)
        p, small = min(task.p, rank), 8 * rank * rank
        storage = LowRankStorage(n, task.workers, rank, ClusterColumnStorage(n, task.workers))
        vectors = LowRank().workspace_items(n, p, False) * item
        needed = n * 8 * LANDMARK_VECTORS + max(int(SMALL_PROBLEM_SQUARES * small), vectors + 2 * small)
        return cls._with(task, solver, reason, storage, needed + 2 * rank * task.d * item, p, ())

    @classmethod
    def _with(
        cls,
        task: FitTask,
        solver: PlannedSolver,
        reason: str,
        storage: Storage,
        needed: int,
        p: int,
        notes: tuple[str, ...],
    ) -> Self:
        rows = task.n * task.d * task.item if task.basis is not task.X else 0  # this process holds them too
        return cls(
            task=task,
            solver=solver,
            solver_reason=reason,
            storage=storage,
            predicted_bytes=needed + rows,
            n_components=p,
            notes=(*notes, f"cluster: {task.X.cluster.describe()}"),
        )

    def fit_work(self) -> None:
        """Return None: the time depends on the network."""


def _with_rank(requested: Nystrom, task: FitTask) -> tuple[Nystrom, int]:
    """Return the approximation of K with its rank as a number, and that rank."""
    check_not_indefinite(task.kernel)
    rank, n_components = requested.rank_for(task.n, task.p), task.settings.n_components
    if isinstance(n_components, Integral) and rank < task.p:
        raise InvalidParameterError(
            f"n_components={n_components} needs at least as many landmarks, and rank={rank} was given to "
            "Nystrom; raise the rank."
        )
    return replace(requested, rank=rank), rank


# -- parts of the bytes ------------------------------------------------------------------------------------------------


def _evaluated_bytes(task: FitTask, solver: PlannedSolver, edge: int, rows: int, buffered: bool = False) -> int:
    """Return the bytes in addition to the storage, with so many prepared rows and tiles of an edge.

    With `buffered` every worker holds a tile that is not cached.
    """
    begins_wide = task.on_gpu and task.template is not None and task.template.wide
    strips = WIDE_STRIPS * min(blocking.GPU_STRIP_BYTES, 8 * edge * edge) if begins_wide else 0
    tiles = (task.kernel.scratch_tiles + (1 if buffered else 0)) * edge * edge * task.item + _sparse_tile_bytes(
        task, edge
    )
    sums = task.n * solver.width(task.n, task.p, task.on_gpu) * task.item
    in_pass = task.workers * (tiles + edge * _slice_bytes(task) + sums) + strips
    between = _widened_bytes(task, solver, task.components_for(solver))
    return _row_bytes(task, rows) + _solver_bytes(task, solver) + max(in_pass, between)


def _panel_for(task: FitTask, edge: int) -> int:
    """Return the tile columns whose rows are held at once, where X is a memory map with too many rows; else 0."""
    row = max(task.row_bytes, task.d * task.item)
    if not task.maps_file:
        return 0
    limit = int(SHARE_FOR_ROWS * task.resources.allowed())
    return 0 if task.n * row <= limit else max(1, limit // (2 * row * edge) - 2 * task.workers)


def _row_bytes(task: FitTask, rows: int) -> int:
    """Return the bytes of the model's copy of the data and of so many prepared rows."""
    # While X is read, cached slices also hold the operand that a product made of them, as wide again.
    return task.copy_bytes + rows * task.row_bytes * (2 if rows < task.n else 1)


def _solver_bytes(task: FitTask, solver: PlannedSolver) -> int:
    """Return the bytes of a solver in addition to the operator."""
    items = solver.workspace_items(task.n, task.components_for(solver), task.on_gpu)
    if task.has_checkpoint:
        items += solver.checkpoint_items(task.n, task.p, task.on_gpu)
    return items * task.item


def _iteration_bytes(task: FitTask, solver: PlannedSolver) -> int:
    """Return the bytes of a solver that grow with the components, with the sums of all workers."""
    sums = task.workers * task.n * solver.width(task.n, task.p, task.on_gpu) * task.item
    return _solver_bytes(task, solver) + _widened_bytes(task, solver, task.p) + sums


def _slice_bytes(task: FitTask) -> int:
    """Return the bytes of a row in the slices that a tile is made from."""
    if is_sparse(task.X):
        return SPARSE_SLICES * task.row_bytes + 3 * dense_row_bytes(task.kernel, task.X)
    return max(task.row_bytes, task.d * task.item)


def _sparse_tile_bytes(task: FitTask, edge: int) -> int:
    """Return the bytes of the sparse part of a tile, and of a tile in float64 and its copy where K is in float32."""
    if not is_sparse(task.X):
        return 0
    part = min(edge * edge, max(edge, blocking.SPARSE_PRODUCT_ENTRIES))
    return part * STORED_ENTRY_BYTES + (12 * edge * edge + WIDE_STRIPS * blocking.STRIP_BYTES if task.item < 8 else 0)


def _widened_bytes(task: FitTask, solver: PlannedSolver, p: int) -> int:
    """Return the bytes of float32 data in float64: panels of the basis, vectors for their residuals."""
    if task.item == 8 and not task.on_gpu:  # a device copies slices that are not contiguous
        return 0
    return 8 * solver.widened_items(task.n, p, _panel_rows(task), task.on_gpu)


def _panel_rows(task: FitTask) -> int:
    return inner_panel(task.place.work, is_wide=False)


# -- parts of the work -------------------------------------------------------------------------------------------------


def _pair_work(task: FitTask, kernel: Kernel) -> Work:
    """Return the work of one entry of K."""
    if isinstance(kernel, Precomputed):
        return Work()
    inside = [value for value in kernel.get_params(deep=False).values() if isinstance(value, Kernel)]
    if inside:
        return sum((_pair_work(task, part) for part in inside), Work())
    if isinstance(kernel, Laplacian):
        return Work(differences=task.d, functions=1)
    values = Work(functions=kernel.exponentials)
    if is_sparse(task.X) and not kernel.densifies:
        met = (task.X.nnz / max(1, task.n)) ** 2 / task.d  # features that two rows share
        return values + Work(sparse_products=met, bytes=SPARSE_ENTRY_BYTES)
    wide = task.template is not None and task.template.wide and not task.on_gpu
    return values + Work(products=2 * (task.d + 2) * (2 if wide else 1))


def _small_work(task: FitTask, columns: int, p: int) -> Work:
    """Return the work of the eigenproblem of a factor, whose square is summed in float64."""
    n = task.n
    return Work(products=8 // task.item * n * columns**2, eigenproblems=columns**3, blocks=6 * n * columns * p)
