"""Choosing the way of a fit: solver, residence of K, tile edge, block width, within the memory allowed.

Every way states its bytes from the shapes alone; the first that fits is taken. `tests/test_plan.py` holds the figures
to what a fit allocates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

from gpukpca._formatting import format_bytes
from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.plan import Plan
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings
from gpukpca.algorithms.placement import Placement
from gpukpca.algorithms.progress import NO_CHECKPOINT
from gpukpca.algorithms.work import SPARE_COLUMNS, estimate_seconds, kernel_pca_work
from gpukpca.backend import blocking
from gpukpca.backend.device import describe_device, hidden_memory, is_on_gpu
from gpukpca.backend.limits import SHARE_FOR_ROWS, SHARE_FOR_TILES, SHARE_OF_FREE
from gpukpca.backend.linalg import inner_panel
from gpukpca.backend.namespace import dtype_name, is_memory_map, is_sparse, item_size
from gpukpca.backend.parallel import worker_count
from gpukpca.eigen import BlockKrylov, Dense, LowRank, Nystrom
from gpukpca.eigen.block_krylov import rounded_up
from gpukpca.eigen.partial_cholesky import default_block
from gpukpca.exceptions import InvalidParameterError, MemoryBudgetError
from gpukpca.gram.product import dense_row_bytes
from gpukpca.gram.storage import DenseStorage, LowRankStorage, Storage, TiledStorage
from gpukpca.gram.tiling import rows_at_once, tile_edge_for
from gpukpca.kernels import Kernel, Linear, Precomputed
from gpukpca.kernels.definiteness import check_not_indefinite
from gpukpca.kernels.prepared import PreparedRows

FEWEST_BLOCKS = 4
# Strips of a tile in float64 that a device holds at once.
WIDE_STRIPS = 3
# Where a pass recomputes K, columns are cheap beside it: measured, p + 30 of them save two passes of seven, and a start
# from the components of 1000 rows one more.
# With more than this share of the tiles cached it is not.
CHEAP_SHARE = 0.7
DEAR_BLOCKS = 6
START_LANDMARKS = 1000
# The start costs 2 of n / 1000 of a pass that fills the cache, and saves one or two passes.
SAMPLE_PAYS, SAMPLE_PAYS_WHERE_DEAR = 40, 4
# Features up to which the small eigenproblem of a factor is solved whole.
LARGEST_SMALL_PROBLEM = 2000
# Monomials are written down where they are few, or few beside the samples; measured with n / 2 of them, tiles are three
# times faster and in half the memory.
MONOMIALS_PAY, FEW_MONOMIALS = 8, 200
# Of a factor with k columns: vectors of length n in float64, and arrays of k² that LAPACK and we hold at once.
LANDMARK_VECTORS = 6
SMALL_PROBLEM_SQUARES = 8.2


@dataclass(frozen=True)
class PlanRequest:
    """What a plan is made for: the facts that no choice changes.

    Attributes
    ----------
    settings : KernelPCASettings
    X : array or CSR matrix
    kernel : Kernel
        With numbers in place of rules.
    template : Rows or None
        What the kernel learned from X; None for stored kernels.
    p : int
    limit : int
        Bytes that may be allocated.
    place : Placement
        Where the fit computes; X may not be there yet.
    workers : int
    """

    settings: KernelPCASettings
    X: Any
    kernel: Kernel
    template: PreparedRows | None
    p: int
    limit: int
    place: Placement
    workers: int

    @property
    def n(self) -> int:
        """Samples."""
        return int(self.X.shape[0])

    @property
    def item(self) -> int:
        """Bytes of an item."""
        return item_size(self.X.dtype)

    @property
    def on_gpu(self) -> bool:
        """Whether the fit computes on a GPU."""
        return is_on_gpu(self.place.work)

    def components_for(self, solver: Any, rank: int = 0) -> int:
        """Eigenpairs that a solver is asked for: all of them, where a share of the variance is wanted and p is not it.

        `rank` is the number of columns of a factor of K, where it is known by one.
        """
        return (rank or self.n) if self.settings.is_share and not isinstance(solver, BlockKrylov) else self.p

    @property
    def maps_file(self) -> bool:
        """Whether X is read from its file while it is used."""
        return is_memory_map(self.X) and not self.place.moved

    @property
    def copy_bytes(self) -> int:
        """Bytes of the fit's own copy of X, where it has one."""
        own = self.place.moved or (self.settings.copies_data and not self.maps_file)
        return self.data_bytes if own else 0

    @property
    def tile_limit(self) -> int:
        """Return the bytes that cached tiles may take: a share of what is free, or all of a limit that was set."""
        share = 1.0 if self.settings.has_memory_limit else SHARE_FOR_TILES / SHARE_OF_FREE
        return int(share * self.limit)

    @property
    def data_bytes(self) -> int:
        """Bytes of X."""
        if is_sparse(self.X):
            return int(self.X.data.nbytes + self.X.indices.nbytes + self.X.indptr.nbytes)
        return self.n * int(self.X.shape[1]) * self.item

    @property
    def row_bytes(self) -> int:
        """Bytes of a row made ready for the kernel."""
        if self.template is None:
            return 0
        if is_sparse(self.X):  # in float64, and its norm
            return -(-self.data_bytes * 12 // (4 + self.item) // max(self.n, 1)) + 8
        return self.template.row_bytes


def make_plan(
    settings: KernelPCASettings,
    X: Array,
    kernel: Kernel,
    p: int,
    template: PreparedRows | None,
    limit: int,
    place: Placement,
) -> Plan:
    """Return the storage of K and the solver for `p` components within `limit` bytes.

    `place` is where the fit computes.

    Raises
    ------
    MemoryBudgetError
        Not even the smallest way fits; names what is needed, what is allowed, and what to change.
    """
    job = PlanRequest(settings, X, kernel, template, p, limit, place, worker_count(place.work, settings.n_jobs))
    fewest: int | None = None
    for way in _ways(job):
        if way.predicted_bytes <= limit:
            return _with_time(job, _with_checkpoint(job, _with_preimage(job, way)))
        fewest = way.predicted_bytes if fewest is None else min(fewest, way.predicted_bytes)
    raise MemoryBudgetError(_too_big(job, fewest or 0))


def _ways(job: PlanRequest) -> Iterator[Plan]:
    """Plans for the job in the order in which they are wanted; the first that fits is taken."""
    e = job.settings
    solver, why = e.solver_for(job.n, job.p, job.on_gpu)
    if job.kernel.stored_only and e.gram == "tiled":
        raise InvalidParameterError(
            'gram="tiled" needs a kernel that can be evaluated block by block; precomputed kernels and plain callables '
            'are stored. Use gram="auto".'
        )
    features = _explicit_features(job)
    if features and isinstance(solver, (Dense, BlockKrylov, Nystrom)):
        yield _factored_plan(job, features)
    if isinstance(solver, Nystrom):
        yield from _nystrom_plans(job, solver, why)
        return
    if isinstance(solver, Dense) and job.kernel.positive_definite is not True:
        solver = Dense(tol=solver.tol, full_spectrum=True)
    for candidate, note in _solvers_to_try(job, solver):
        for edge in _edges_to_try(job):
            yield _exact_plan(job, candidate, why, edge, (note,) if note else ())


def plan_of(job: PlanRequest, solver: Any, why: str, storage: Storage, needed: int, **more: Any) -> Plan:
    """The plan of a job, from what was chosen for it."""
    return Plan(
        n_samples=job.n,
        n_features=int(job.X.shape[1]),
        n_components=job.p,
        dtype=dtype_name(job.X.dtype),
        device=describe_device(job.place.work),
        kernel=repr(job.kernel),
        solver=solver,
        solver_reason=why,
        storage=storage,
        predicted_bytes=needed,
        available_bytes=job.limit,
        **more,
    )


# -- K by tiles, or stored -------------------------------------------------------------------------------------------


def _exact_plan(job: PlanRequest, solver: Any, why: str, edge: int, notes: tuple[str, ...]) -> Plan:
    """One solver and one tile edge, with as many tiles cached as fit; a wide block where a pass is dear."""
    plan = _with_cache(job, solver, why, edge, notes)
    if isinstance(solver, BlockKrylov) and _free_to_start(solver) and job.n >= SAMPLE_PAYS * START_LANDMARKS:
        plan = replace(plan, start_landmarks=START_LANDMARKS if isinstance(plan.storage, TiledStorage) else 0)
    storage = plan.storage
    if storage.is_fully_cached:
        return plan
    plan = replace(plan, notes=(*plan.notes, _recomputed(storage)))
    cheap = storage.tiles - storage.recomputed_tiles > CHEAP_SHARE * storage.tiles
    if cheap or not isinstance(solver, BlockKrylov) or not _free_to_start(solver) or solver.block_size:
        return plan
    columns = max(solver.width(job.n, job.p, job.on_gpu), job.p + SPARE_COLUMNS)
    if job.on_gpu:
        columns = rounded_up(columns, blocking.GPU_COLUMNS)
    wide = replace(solver, block_size=min(job.n, columns), max_blocks=DEAR_BLOCKS)
    start = START_LANDMARKS if job.n >= SAMPLE_PAYS_WHERE_DEAR * START_LANDMARKS else 0
    dear = _with_cache(job, wide, why, edge, notes)
    dear = replace(dear, start_landmarks=start, notes=(*notes, _recomputed(dear.storage)))
    return dear if dear.predicted_bytes <= job.limit else plan


def _free_to_start(solver: BlockKrylov) -> bool:
    """Whether nobody fixed the passes, the start or the size of the basis."""
    return solver.passes is None and solver.start is None and solver.max_blocks is None


def _recomputed(storage: Storage) -> str:
    return (
        f"K does not fit into memory: {storage.recomputed_tiles} of {storage.tiles} tiles are made anew in every pass"
    )


def _with_cache(job: PlanRequest, solver: Any, why: str, edge: int, notes: tuple[str, ...]) -> Plan:
    """A plan with as many tiles cached as fit beside everything else."""
    n, item = job.n, job.item
    if isinstance(job.kernel, Precomputed):  # the matrix is the user's own
        # Its symmetric part, should it not be symmetric to the last bit.
        held = n * n * item + _solver_bytes(job, solver) + job.workers * n * _columns(job, solver) * item
        return plan_of(job, solver, why, DenseStorage(n, job.workers), held, notes=notes)
    if job.kernel.stored_only or job.settings.gram == "dense":
        dense = DenseStorage(n, job.workers)
        held = _row_bytes(job, n) + _solver_bytes(job, solver) + dense.bytes_held(item)
        held += _passing_bytes(job, solver, edge, buffered=False)
        return plan_of(job, solver, why, dense, max(held, _preimage_bytes(job)), notes=notes)
    panel = _panel(job, edge)
    held = _row_bytes(job, rows_at_once(n, edge, job.workers, panel)) + _solver_bytes(job, solver)
    # Tiles that are kept need no buffer; those made anew have one in every worker.
    for buffered in (False, True):
        needed = held + _passing_bytes(job, solver, edge, buffered)
        budget = min(job.limit - needed, job.tile_limit)
        tiled = TiledStorage.within(budget, n, item, job.workers, edge, panel)
        if tiled.is_fully_cached:
            break
    read = tiled.rows_read * int(job.X.shape[1]) * item
    needed = max(needed + tiled.bytes_held(item), _preimage_bytes(job))
    return plan_of(job, solver, why, tiled, needed, notes=notes, bytes_read=read)


def _panel(job: PlanRequest, edge: int) -> int:
    """Tile columns whose rows are held at once, where X is a memory map too large to be held made ready; else 0."""
    row = max(job.row_bytes, int(job.X.shape[1]) * job.item)
    if not job.maps_file or job.n * row <= SHARE_FOR_ROWS * job.limit:
        return 0
    return max(1, int(SHARE_FOR_ROWS * job.limit) // (2 * row * edge) - 2 * job.workers)


def _row_bytes(job: PlanRequest, rows: int) -> int:
    """The model's copy of the data, and so many rows made ready for the kernel."""
    # Slices that are kept while X is read keep the operand that was made of them, as wide again.
    return job.copy_bytes + rows * job.row_bytes * (2 if rows < job.n else 1)


def _passing_bytes(job: PlanRequest, solver: Any, edge: int, buffered: bool) -> int:
    """What comes and goes: in a pass tiles, slices of rows and sums of every worker; between passes wide panels."""
    slices = edge * _slice_bytes(job)
    begins_wide = job.on_gpu and job.template is not None and job.template.wide
    strips = WIDE_STRIPS * min(blocking.GPU_STRIP_BYTES, 8 * edge * edge) if begins_wide else 0
    tiles = (job.kernel.scratch_tiles + (1 if buffered else 0)) * edge * edge * job.item
    sums = job.n * _columns(job, solver) * job.item
    return max(job.workers * (tiles + slices + sums) + strips, _widened_bytes(job, solver))


def _slice_bytes(job: PlanRequest) -> int:
    """Of a row in the slices that a tile is made from."""
    row = max(job.row_bytes, 0 if is_sparse(job.X) else int(job.X.shape[1]) * job.item)
    return row + 3 * dense_row_bytes(job.kernel, job.X)


def _columns(job: PlanRequest, solver: Any) -> int:
    """Columns that are multiplied in a pass."""
    return solver.width(job.n, job.p, job.on_gpu) if isinstance(solver, BlockKrylov) else job.p


def _preimage_bytes(job: PlanRequest) -> int:
    """What the pre-image takes after the decomposition; with landmarks where its whole matrix does not fit."""
    method = job.settings.preimage
    if method is None or isinstance(job.kernel, Linear):
        return 0
    # A product on a device cannot write into a block of the matrix; NumPy's does.
    tile = tile_edge_for(job.n, job.workers, True) ** 2 * job.item if job.on_gpu else 0
    return method.peak_bytes(job.n, int(job.X.shape[1]), job.p, job.item, job.on_gpu, _preimage_landmarks(job)) + tile


def _preimage_landmarks(job: PlanRequest) -> int:
    """Landmarks of the ridge pre-image, 0 for none."""
    method = job.settings.preimage
    if method is None or isinstance(job.kernel, Linear):
        return 0
    whole = method.peak_bytes(job.n, int(job.X.shape[1]), job.p, job.item, job.on_gpu, 0)
    return method.landmarks_for(job.n, fits=whole <= job.limit)


def _with_preimage(job: PlanRequest, way: Plan) -> Plan:
    """The plan with what is to be said about its pre-image."""
    count = _preimage_landmarks(job)
    if not count:
        return way
    note = f"the ridge pre-image uses {count} landmarks among the {job.n} scores"
    return replace(way, preimage_landmarks=count, notes=(*way.notes, note))


def _with_checkpoint(job: PlanRequest, way: Plan) -> Plan:
    """The plan with what is to be said where there is nothing to write to a checkpoint."""
    if not job.settings.has_checkpoint or (isinstance(way.solver, BlockKrylov) and 5 * job.p <= job.n):
        return way
    return replace(way, notes=(*way.notes, NO_CHECKPOINT))


def _with_time(job: PlanRequest, way: Plan) -> Plan:
    """Return the plan with an estimate of its time."""
    work = kernel_pca_work(job, way)
    if work is None:
        return way
    return replace(way, estimated_seconds=estimate_seconds(work, job.place.work, job.X.dtype, job.workers, job.on_gpu))


def _solver_bytes(job: PlanRequest, solver: Any) -> int:
    """What the solver takes beside the operator; a solver of the user's own need not say."""
    if not hasattr(solver, "workspace_items"):
        return 0
    items = solver.workspace_items(job.n, job.components_for(solver), job.on_gpu)
    if job.settings.has_checkpoint and isinstance(solver, BlockKrylov):
        # After a restart the whole basis is copied, and written while the next pass runs.
        items += job.n * (2 * job.p + 3 * solver.width(job.n, job.p, job.on_gpu))
    return items * job.item


def _widened_bytes(job: PlanRequest, solver: Any) -> int:
    """What float32 data take in float64 for a while: panels of the basis, vectors for their residuals."""
    if job.item == 8 and not job.on_gpu:  # a device copies slices that are not contiguous
        return 0
    if isinstance(solver, BlockKrylov):
        columns = solver.basis_columns(job.n, job.p, job.on_gpu) + solver.width(job.n, job.p, job.on_gpu)
        return 8 * columns * min(job.n, inner_panel(job.place.work, is_wide=False))
    if isinstance(solver, Dense) and job.on_gpu:  # its vectors, when they are verified
        return 16 * job.components_for(solver) * min(job.n, inner_panel(job.place.work, is_wide=False))
    return 16 * job.n * (job.p + 1) if isinstance(solver, LowRank) else 0


def _edges_to_try(job: PlanRequest) -> list[int]:
    """The usual edge of a tile, and a smaller one for tight limits."""
    usual = tile_edge_for(job.n, job.workers, job.on_gpu, dense_row_bytes(job.kernel, job.X))
    if job.on_gpu:  # by halves: launches are dear, and what a tile needs falls by four
        return [max(1, usual // 2**k) for k in range(max(1, (usual // blocking.SMALLEST_TILE_EDGE.gpu).bit_length()))]
    smallest = blocking.SMALLEST_TILE_EDGE.cpu
    return [usual, smallest] if usual > smallest else [usual]


def _solvers_to_try(job: PlanRequest, solver: Any) -> list[tuple[Any, str]]:
    """The chosen solver, then smaller ones that may stand in for it, each with what to say about it."""
    e, n, p = job.settings, job.n, job.p
    tries: list[tuple[Any, str]] = [(solver, "")]
    automatic = e.names_solver("auto")
    iterative, so_far = solver, ""
    if automatic and isinstance(solver, Dense) and 5 * p <= n:
        iterative = BlockKrylov(tol=e.tol, max_passes=e.max_passes)
        so_far = "the dense solver does not fit into memory; block Krylov instead"
        tries.append((iterative, so_far))
    if isinstance(iterative, BlockKrylov) and iterative.max_blocks is None and 5 * p <= n:
        few = f"the basis of block Krylov is held to {FEWEST_BLOCKS} blocks to fit into memory"
        tries.append((replace(iterative, max_blocks=FEWEST_BLOCKS), f"{so_far}; {few}" if so_far else few))
    return tries


# -- K by a factor -----------------------------------------------------------------------------------------------------


def _explicit_features(job: PlanRequest) -> int:
    """Columns of an exact factor of K, where the kernel's features are fewer than the samples; else 0."""
    e = job.settings
    named = e.names_solver("auto", "nystrom")
    wanted = (named or isinstance(e.eigen_solver, Nystrom)) and e.gram == "auto"
    if not wanted or is_sparse(job.X):
        return 0
    count = job.kernel.feature_count(int(job.X.shape[1])) or 0
    largest = (
        job.n - 1 if isinstance(job.kernel, Linear) else max(job.n // MONOMIALS_PAY, min(job.n - 1, FEW_MONOMIALS))
    )
    return count if count <= largest else 0


def _factored_plan(job: PlanRequest, count: int) -> Plan:
    """The exact low-rank way: features of all samples, and the eigenproblem of their small product."""
    p = min(job.p, count) if job.settings.n_components is None else job.p
    tol = job.settings.tol
    small = count <= LARGEST_SMALL_PROBLEM or 5 * p > count
    solver: Any = LowRank(tol=tol) if small else BlockKrylov(tol=tol, max_passes=job.settings.max_passes)
    factor = job.n * count * job.item  # once as it is, and centered
    needed = job.copy_bytes + 2 * factor + 2 * count * count * 8
    needed += solver.workspace_items(job.n, max(p, job.components_for(solver, count)), job.on_gpu) * job.item
    needed += _widened_bytes(job, solver)
    if job.on_gpu:  # the panel of F that is widened for its square
        needed += 8 * count * min(job.n, inner_panel(job.place.work, is_wide=False))
    needed = max(needed, job.copy_bytes + _preimage_bytes(job))
    storage = LowRankStorage(job.n, job.workers, count)
    why = f"{count} features span the feature space, fewer than the {job.n} samples: exact"
    return replace(plan_of(job, solver, why, storage, needed), n_components=p)


def _nystrom_plans(job: PlanRequest, wanted: Nystrom, why: str) -> Iterator[Plan]:
    """The approximation by landmarks, with the rank asked for."""
    solver, rank, p = ranked(wanted, job.settings, job.kernel, job.n, job.p)
    for edge in _edges_to_try(job):
        panel = _panel(job, edge)
        rows = rows_at_once(job.n, edge, job.workers, panel)
        held = 0 if isinstance(job.kernel, Precomputed) else _row_bytes(job, rows)
        held += job.workers * edge * _slice_bytes(job) if panel else 0
        held += job.n * (rank * job.item + 8 * LANDMARK_VECTORS) + _landmark_peak(job, rank, p)
        held = max(held, _preimage_bytes(job))
        storage = LowRankStorage(job.n, job.workers, rank, _source(job, edge, panel))
        read = job.n * int(job.X.shape[1]) * job.item if panel else 0
        yield replace(plan_of(job, solver, why, storage, held, bytes_read=read), n_components=p)


def _source(job: PlanRequest, edge: int, panel: int) -> Storage:
    """Return what the columns of K at the landmarks come from."""
    if job.kernel.stored_only:
        return DenseStorage(job.n, job.workers)
    return TiledStorage(job.n, job.workers, edge, 0, panel)


def ranked(wanted: Nystrom, settings: KernelPCASettings, kernel: Kernel, n: int, p: int) -> tuple[Nystrom, int, int]:
    """The approximation of K (n, n) with its rank as a number, that rank, and how many of p components it can give."""
    check_not_indefinite(kernel)
    rank = wanted.rank_for(n, p)
    if isinstance(settings.n_components, Integral) and rank < p:
        raise InvalidParameterError(
            f"n_components={settings.n_components} needs at least as many landmarks, and rank={wanted.rank} was "
            "given to Nystrom; raise the rank."
        )
    return replace(wanted, rank=rank), rank, min(p, rank)


def _landmark_peak(job: PlanRequest, rank: int, p: int) -> int:
    """Beside F: blocks of columns while it grows, then the small eigenproblem, then the vectors."""
    small = 8 * rank * rank
    growing = 2 * default_block(rank) * job.n * job.item + 2 * small
    vectors = LowRank().workspace_items(job.n, p, job.on_gpu) * job.item + _widened_bytes(job, LowRank()) + 2 * small
    return max(growing, int(SMALL_PROBLEM_SQUARES * small), vectors)


def _too_big(job: PlanRequest, needed: int) -> str:
    n, e = job.n, job.settings
    advice = ["a larger memory_limit", "float32 data"] if job.item == 8 else ["a larger memory_limit"]
    iterates = isinstance(e.eigen_solver, BlockKrylov) or e.names_solver("randomized", "arpack")
    if n >= 5 and (5 * job.p > n or isinstance(e.eigen_solver, Dense) or e.names_solver("dense")):
        few = f"at most {n // 5} components" + ("" if e.gram == "tiled" else ' and gram="tiled"')
        advice.insert(0, few if iterates else f'eigen_solver="randomized" with {few}')
    if job.kernel.positive_definite and not e.is_nystrom:
        advice.append('the approximation eigen_solver="nystrom"')
    if e.gram == "dense":
        advice.insert(0, 'gram="auto"')
    return (
        f"the fit needs {format_bytes(needed)} (a stored kernel matrix alone takes "
        f"{format_bytes(n * n * job.item)}), and {format_bytes(job.limit)} are allowed or free. Try "
        f"{', or '.join(advice)}.{hidden_memory(job.place.work)}"
    )
