"""The candidates of a plan of kernel PCA: a solver with a storage of K, their bytes and their work."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpukpca.algorithms.bill import BLOCKS_IN_TRANSIT, Bill, Parts, total, with_pairs
from gpukpca.algorithms.kernel_pca.parts import (
    learning_bytes,
    pair_work,
    panel_for,
    parts_of_factor,
    parts_of_rows,
    preparing_bytes,
    slice_bytes,
    small_work,
    solver_parts,
    stored_work,
    tile_bytes,
)
from gpukpca.algorithms.kernel_pca.task import LARGEST_SMALL_PROBLEM, FitTask
from gpukpca.algorithms.kernel_pca.twin import twin_of
from gpukpca.algorithms.plan import Candidate
from gpukpca.backend.work import Work
from gpukpca.data.batches import slice_of
from gpukpca.distributed.gram import ClusterStorage
from gpukpca.eigen import BlockKrylov, Dense, Nystrom
from gpukpca.eigen.block_krylov import WIDENING
from gpukpca.eigen.krylov_state import EXACT_PASSES
from gpukpca.eigen.landmark_choice import LandmarkChoice, entry_bytes
from gpukpca.eigen.low_rank import LowRank
from gpukpca.eigen.partial_cholesky import feature_panel, pivot_panel
from gpukpca.eigen.solver import PlannedSolver
from gpukpca.gram.half_tiles import FASTER
from gpukpca.gram.storage import (
    DenseStorage,
    DevicesStorage,
    GivenStorage,
    LandmarkStorage,
    LowRankStorage,
    Storage,
    TiledStorage,
)
from gpukpca.gram.tiling import prepared_at_once
from gpukpca.kernels import Linear, PairwiseCallable, Precomputed
from gpukpca.kernels.definiteness import check_not_indefinite

# Vectors of length n in float64 of a factor.
LANDMARK_VECTORS = 6
# Copies of a panel in float64: of features as they are eliminated, widened and centered, and of rows for a template.
FEATURE_COPIES = 3
# The reason for the eigenproblem of a factor, given its columns and the samples.
EXACT = "{} features span the feature space, fewer than the {} samples: exact"
REQUESTED = "requested: an approximation with a certificate"
# Blocks of n eigenvectors of a second pass over the rows: as they come, orthonormal, their products, and scores.
VECTOR_BLOCKS = 4
NO_VECTORS = "eigenvectors and scores do not fit into memory: the model has none, and transform gives the scores"
# Columns that randomly pivoted Cholesky evaluates for each that it keeps.
COLUMNS_A_PIVOT = 1.5
# Slots take at most one in so many bytes that a limit leaves; copies of their rows.
SHARE_FOR_SLOTS, SLOT_COPIES = 4, 5
# Blocks of n eigenvectors that the end of a fit holds where F is multiplied:
# vectors and products, with signs, in the map, and as scores.
RESULT_BLOCKS = 10


def stored(
    task: FitTask, solver: PlannedSolver, reason: str, *, edge: int, notes: tuple[str, ...], start: int
) -> Candidate:
    """Return a solver with K as it was passed, as a square matrix, or by tiles: as many cached as memory allows.

    On tiles the components of `start` rows start the iteration.
    """
    n, item, bytes_read, panel = task.n, task.item, 0, panel_for(task, edge)
    storage = GivenStorage(n, task.workers) if task.is_given else task.settings.storage_for(n, task.workers)
    bill = Bill({"": {}, "solve": solver_parts(task, solver)})
    if task.is_given:
        bill["solve"]["K"] = n * n * item if isinstance(solver, Dense) else 0
    elif not isinstance(task.kernel, Precomputed):
        is_tiled = not task.kernel.stored_only and task.settings.gram in ("auto", "tiled")
        bill[""] = parts_of_rows(task, prepared_at_once(n, edge, task.workers, panel) if is_tiled else n)
        bill["solve"]["tiles in work"] = tile_bytes(task, edge)
        if panel and not task.is_batched:  # as they are read, and as they are prepared
            bill["solve"]["slices"] = 3 * min(n, edge) * task.d * item + learning_bytes(task, edge)
        bill["prepare"] = {"panels": preparing_bytes(task, panel)}  # before there are tiles
        if is_tiled:
            sizes = task.tile_budget(bill.peak), n, item, task.workers, edge
            devices = 1 if isinstance(solver, Dense) else 1 + len(task.place.others)
            storage = DevicesStorage.sharing(devices, *sizes) if devices > 1 else TiledStorage.within(*sizes, panel)
            bytes_read = storage.rows_read * task.d * item
    twin = twin_of(task, solver, storage, bill, edge)
    if twin is not None:
        # On a CPU a cache costs more than it spares the few passes over K: 2 s for the first use of 800 MB (measured on
        # a virtual machine), and 0.3 s a pass.
        budget = task.tile_budget(total(bill[""]) + total(bill["solve"])) if task.on_gpu else 0
        if storage.is_fully_cached and getattr(solver, "twin", None):  # requested, to save memory
            budget = min(budget, twin.bytes_held(4))
        storage = TiledStorage.within(budget, n, item, task.workers, edge)
    bill["solve"].setdefault("K", storage.bytes_held(item))
    last: Any = solver if twin is None else replace(solver, passes=EXACT_PASSES)  # type: ignore[type-var]
    work, narrow = stored_work(task, last, storage, bytes_read), twin and stored_work(task, solver, twin, 0)
    start = start if isinstance(storage, TiledStorage) else 0
    how: dict[str, Any] = {"notes": notes, "bytes_read": bytes_read, "twin": twin, "narrow": narrow, "start": start}
    return _candidate(task, solver, reason, storage, bill.parts, work, **how)


def factored(task: FitTask, columns: int) -> Candidate:
    """Return the eigenproblem of K = F Fᵀ with the features F of all samples, so many columns."""
    settings, n, item = task.settings, task.n, task.item
    p = min(task.p, columns) if settings.n_components is None else task.p
    iterative = BlockKrylov(tol=settings.tol, max_passes=settings.max_passes)
    is_small = columns <= LARGEST_SMALL_PROBLEM or not iterative.iterates(columns, p)
    solver: PlannedSolver = LowRank(tol=settings.tol) if is_small else iterative
    width = solver.width(n, p, task.on_gpu)
    parts = parts_of_factor(task, columns) | {
        "data copy": task.copy_bytes,
        "features": 2 * task.rows_at_once * columns * item,  # as they are, and centered
        solver.name: solver.workspace_bytes(n, max(p, task.components_for(solver, columns)), item, task.on_gpu),
    }
    if not is_small:  # F is multiplied, and Fᵀ F is not formed
        parts["squares"] = 8 * (RESULT_BLOCKS * n + task.workers * columns) * max(p, width)
    work = Work(bytes=4 * n * columns * item, functions=0 if isinstance(task.kernel, Linear) else n * columns)
    one_pass = Work(blocks=4 * n * columns * width)
    work += solver.work(n, p, one_pass, item, task.on_gpu) or small_work(task, n, columns, p)
    storage = LowRankStorage(n, task.workers, columns)
    return _candidate(task, solver, EXACT.format(columns, n), storage, parts, work)


def among_all(task: FitTask, edge: int) -> Candidate:
    """Return K ≈ F Fᵀ by landmarks with F in memory, whose columns of K come by tiles of an edge."""
    n, d, item, workers = task.n, task.d, task.item, task.workers
    choice, panel = _choice_of(task), panel_for(task, edge)
    rank = choice.rank
    p = min(task.p, rank)
    held = {"factor": n * (rank * item + 8 * LANDMARK_VECTORS)}
    if not isinstance(task.kernel, Precomputed):
        held |= parts_of_rows(task, prepared_at_once(n, edge, workers, panel))
        # Taken, prepared, and two copies while they are.
        held["landmarks"] = rank * (task.row_bytes + 3 * d * item)
    if task.maps_file and not task.is_given:  # rows of a panel as they are read, prepared, and widened
        pivots = min(n, pivot_panel(n, 1, task.on_gpu))
        held["panels"] = workers * (edge * slice_bytes(task) + pivots * (2 * item + 8) * d)
    add = parts_of_factor(task, rank)
    solve = {"eigenvectors": LowRank().workspace_bytes(n, p, item, task.on_gpu), "squares": add["squares"]}
    choose = {"columns of K": choice.growth_bytes(n, item, workers, task.on_gpu)}
    prepare = {"panels": preparing_bytes(task, panel)}
    bill = Bill({"": held, "prepare": prepare, "choose": choose, "add": add, "solve": solve})
    slots, add["slots"] = rows_to_draw(task, choice, n, bill)
    source: Storage = TiledStorage(n, workers, edge, 0, panel)
    if task.kernel.stored_only:
        solve["entries of the bound"] = entry_bytes(min(n, slots))
        source = (GivenStorage if task.is_given else DenseStorage)(n, workers)
    storage = LandmarkStorage(n, workers, rank, n, source, with_vectors=True, keeps_factor=True, slots=slots)
    bytes_read = n * d * item if panel else 0
    work = pair_work(task, task.kernel) * (COLUMNS_A_PIVOT * n * rank) + small_work(task, n, rank, p)
    work += Work(products=2 * n * rank**2, bytes=4 * n * rank * item + bytes_read, calls=rank)
    return _candidate(task, choice.options, REQUESTED, storage, bill.parts, work, bytes_read=bytes_read)


def folded(
    task: FitTask,
    *,
    batch: int = 0,
    rows: int | None = None,
    with_vectors: bool = False,
    keeps_factor: bool = False,
) -> Candidate:
    """Return K ≈ F Fᵀ by landmarks that are given, or chosen among a sample, and one fold over the rows of F.

    Points that span the feature space take the place of landmarks where F is then exact. `batch` of so many `rows`,
    None where that is not known, are read at once, and `task` is that of some of them; 0: the rows are mapped, in
    memory or on a cluster. F is multiplied once more for eigenvectors and scores with `with_vectors`: from memory with
    `keeps_factor`, else its rows are computed again.
    """
    n, d, item, workers = task.n, task.d, task.item, task.workers
    is_exact, requested = task.is_spanned, task.settings.nystrom
    choice = LandmarkChoice.of_points(d) if is_exact else _choice_of(task)
    rank = choice.rank
    p, row, wide = min(task.p, rank), d * item + task.row_bytes, FEATURE_COPIES * 8
    sample = min(n, choice.sample_within(d * item, task.resources.limit_set))
    pivots, panel = min(sample, pivot_panel(sample, 1, task.on_gpu)), feature_panel(n, d, rank, task.on_gpu)
    held = {
        "data copy": task.copy_bytes,
        "rows of a batch": 2 * batch * d * item,
        "sample of rows": 2 * sample * d * item + rank * row,
        "factor": n * item * rank * keeps_factor,
        # As they come, orthonormal, with their products, and the scores.
        "eigenvectors": n * item * VECTOR_BLOCKS * p * with_vectors,
    }
    choose = {
        # As it is, prepared, and a panel of it prepared once more, in float64 where a tile begins so.
        "prepared sample": sample * (row + d * item) + workers * pivots * wide * d,
        "factor of the sample": sample * (rank * item + 8 * LANDMARK_VECTORS),
        "columns of K": choice.growth_bytes(sample, item, workers, task.on_gpu),
    }
    panel *= row + wide * (d + rank) + 2 * rank * item
    fold = parts_of_factor(task, rank) | {"panels": workers * panel + 3 * 8 * (batch or min(n, slice_of(d)))}
    bill = Bill({"": held, "prepare": {"panels": learning_bytes(task, n)}, "choose": choose, "fold": fold})
    slots, held["slots"] = rows_to_draw(task, choice, rows if batch else n, bill)
    if looks := choice.look_rows(sample):
        most = max(slots, looks)
        fold["entries of the bound"] = entry_bytes(min(most, most if batch and rows is None else rows or n))
    storage = LandmarkStorage(n, workers, rank, sample, None, with_vectors, keeps_factor, slots)
    solver: LowRank | Nystrom = choice.options
    if is_exact:
        solver = LowRank(tol=task.settings.tol) if requested is None else _choice_of(task).options
        storage = replace(storage, rank=d, sample=0)
    reason = EXACT.format(d, n) if is_exact else REQUESTED
    notes = (NO_VECTORS,) if task.gives_scores and not (with_vectors or batch) else ()
    if task.is_on_cluster or (batch and rows is None):
        return _candidate(task, solver, reason, storage, bill.parts, None)
    n = rows or n
    passes = 2 if with_vectors and not keeps_factor else 1
    work = pair_work(task, task.kernel) * (passes * n * rank) + small_work(task, n, rank, p)
    work += Work(products=2 * passes * n * rank**2, bytes=4 * n * rank * item + n * d * item)
    return _candidate(task, solver, reason, storage, bill.parts, work, notes=notes)


def rows_to_draw(task: FitTask, choice: LandmarkChoice, n: int | None, bill: Bill) -> tuple[int, int]:
    """Return how many rows the bound on the norm is computed from, and their bytes; 0 for a function of two rows.

    By default rows take a part of what a limit leaves beside the other parts, and entries half of it.
    """
    if task.kernel.stored_only and not isinstance(task.kernel, Precomputed):
        return 0, 0
    row = SLOT_COPIES * max(1, 8 if task.template is None else -(-task.data_bytes // max(task.n, 1)))
    most = None
    if (limit := task.resources.limit_set) is not None:
        left = max(0, limit - bill.peak)
        most = min(left // SHARE_FOR_SLOTS // row, math.isqrt(left // 2 // entry_bytes(1)))
    slots = choice.slots_for(n, task.d, most)
    return slots, row * min(slots, n or slots)


def on_cluster(task: FitTask, solver: PlannedSolver, reason: str, *, notes: tuple[str, ...], start: int) -> Candidate:
    """Return an exact solver whose products come from a cluster, with blocks as wide as its devices want them."""
    n, p, item = task.n, task.p, task.item
    if task.multiplies_on_gpu and isinstance(solver, BlockKrylov) and not solver.block_size:
        solver = replace(solver, block_size=solver.width(n, p, True))
    workspace = solver.workspace_bytes(n, task.components_for(solver), item, task.on_gpu)
    storage = ClusterStorage.of(task.X, task.row_bytes)
    transit = 2 * n * n * item if isinstance(solver, Dense) else BLOCKS_IN_TRANSIT * 8 * n * solver.width(n, p, False)
    parts = {
        solver.name: workspace,
        "blocks in transit": transit,
        "rows of the cluster": 0 if task.basis is task.X else n * task.d * item,
    }
    return _candidate(task, solver, reason, storage, parts, None, notes=notes, start=start)


def _candidate(
    task: FitTask,
    solver: PlannedSolver | Nystrom,
    reason: str,
    storage: Storage,
    parts: Parts,
    work: Work | None,
    *,
    notes: tuple[str, ...] = (),
    bytes_read: int = 0,
    twin: TiledStorage | None = None,
    narrow: Work | None = None,
    start: int = 0,
) -> Candidate:
    """Return the candidate of a solver with a storage, with the bytes and the work of a pre-image.

    `narrow` is the work on a `twin`. The time of a function of two rows is not known.
    """
    bound = storage.rank_bound
    is_cut = isinstance(solver, Nystrom) or task.settings.n_components is None
    p, basis = min(task.p, bound) if is_cut else task.p, bound if isinstance(solver, Nystrom) else task.n
    parts = max(parts, {"pre-image": task.preimage_bytes(basis)}, key=total)
    if isinstance(task.kernel, PairwiseCallable):
        work = None
    elif work is not None and task.preimage is not None:
        work += task.preimage.fit_work(task.n, task.d, task.p, task.preimage_landmarks)
    fields: dict[str, Any] = {"solver": solver, "solver_reason": reason, "n_components": p, "workers": storage.workers}
    fields |= {"kernel": repr(task.kernel), "storage": storage, "twin": twin, "start_landmarks": start}
    fields |= {"preimage_landmarks": task.preimage_landmarks, "bytes_read": bytes_read}
    fields["notes"] = (*notes, *_notes(task, solver, storage, twin))
    candidate = task.candidate(parts, work, narrow, **fields)
    if not (task.settings.is_share and isinstance(solver, BlockKrylov)):  # the bytes of all components are predicted
        return replace(candidate, few=bound)
    # Of a basis that grows, from far enough that a wide block grows too.
    first, many = (sum(solver_parts(replace(task, p=count), solver).values()) for count in (task.p, 4 * task.p))
    pair_bytes = max(1, (many - first) // (3 * task.p)) * WIDENING
    return replace(candidate, needed=with_pairs(parts, p, pair_bytes), few=solver.most_pairs(bound))


def _notes(task: FitTask, solver: Any, storage: Storage, twin: TiledStorage | None) -> Iterator[str]:
    """Yield the notes of a plan on what follows from a task, a solver, a storage and a twin."""
    if storage.recomputed_tiles:
        tiles = f"{storage.recomputed_tiles} of {storage.tiles} tiles"
        of_twin = "" if twin is None else " over K itself"
        yield f"K does not fit into memory: {tiles} are recomputed in every pass{of_twin}"
    if task.device_rows and storage.devices == 1:
        is_folded = isinstance(storage, LandmarkStorage) and storage.source is None
        alone = "the first device computes alone: others share tiles of K, or rows"
        yield task.device_rows.notes[0] if is_folded else alone
    if twin is not None and twin.halves and not getattr(solver, "twin", None):
        yield f"products with float16 tiles took less than 1/{FASTER} of the time"
    if task.is_on_cluster:
        yield f"cluster: {task.X.cluster.describe()}"
    if task.preimage_landmarks:
        yield f"the ridge pre-image uses {task.preimage_landmarks} landmarks among the {task.n} scores"
    if not isinstance(gram := task.settings.gram, str) and not isinstance(storage, gram):
        yield f"{task.settings.gram_text} is not used: it is for exact solvers in this process"


def _choice_of(task: FitTask) -> LandmarkChoice:
    """Return the landmarks of the approximation of K that was requested."""
    check_not_indefinite(task.kernel)
    choice = LandmarkChoice.of(task.settings.nystrom, task.n, task.p)
    task.check_rank(choice.rank)
    return choice
