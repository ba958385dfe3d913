"""Choosing the plan of a fit: solver, storage of K, tile edge and block width within the memory allowed.

Every candidate states its bytes from the shapes alone (`memory`); the first that fits is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral

from gpukpca._formatting import format_bytes
from gpukpca.algorithms.kernel_pca.memory import (
    evaluated_bytes,
    factor_bytes,
    landmark_bytes,
    matrix_bytes,
    panel_for,
    preimage_bytes,
    preimage_landmarks,
)
from gpukpca.algorithms.kernel_pca.plan import Plan, plan_of
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.kernel_pca.work import kernel_pca_work
from gpukpca.algorithms.progress import NO_CHECKPOINT
from gpukpca.algorithms.work import estimate_seconds
from gpukpca.backend import blocking
from gpukpca.backend.device import hidden_memory
from gpukpca.backend.namespace import is_sparse
from gpukpca.distributed.gram import ClusterStorage
from gpukpca.eigen import BlockKrylov, Dense, LowRank, Nystrom
from gpukpca.eigen.block_krylov import FEWEST_BLOCKS
from gpukpca.eigen.partial_cholesky import default_block
from gpukpca.eigen.solver import Solver, complete_solver
from gpukpca.exceptions import InvalidParameterError, MemoryBudgetError
from gpukpca.gram.product import dense_row_bytes
from gpukpca.gram.storage import DenseStorage, LowRankStorage, Storage, TiledStorage
from gpukpca.gram.tiling import rows_at_once, tile_edge_for
from gpukpca.kernels import Kernel, Linear, Precomputed
from gpukpca.kernels.definiteness import check_not_indefinite

# When K is recomputed in every pass, extra columns cost little: p + 30 of them save two of seven passes (measured), and
# a start from the components of 1000 rows saves one more. With more than this share of the tiles cached neither pays.
CHEAP_SHARE = 0.7
START_LANDMARKS = 1000
# The start costs 2 of n / 1000 of a pass that fills the cache, and saves one or two passes.
SAMPLE_PAYS, SAMPLE_PAYS_IF_RECOMPUTED = 40, 4
# Features up to which the small eigenproblem of a factor is solved whole.
LARGEST_SMALL_PROBLEM = 2000
# Monomials are written down where they are few, or few beside the samples; measured with n / 2 of them, tiles are three
# times faster and in half the memory.
MONOMIALS_PAY, FEW_MONOMIALS = 8, 200
# Blocks of n rows that this process holds beside the solver's where a cluster multiplies: V and its copies, what comes
# back, the sums in float64.
BLOCKS_ON_THE_WAY = 6


def make_plan(job: FitTask) -> Plan:
    """Return the storage of K and the solver for the components and the memory of a task.

    Raises
    ------
    MemoryBudgetError
        Not even the smallest candidate fits; names what is needed, what is allowed, and what to change.
    """
    if job.is_on_cluster:
        return _cluster_plan(job)
    fewest: int | None = None
    for plan in _candidates(job):
        if plan.predicted_bytes <= job.limit:
            return _completed(job, plan)
        fewest = plan.predicted_bytes if fewest is None else min(fewest, plan.predicted_bytes)
    raise MemoryBudgetError(_too_big(job, fewest or 0))


def _candidates(job: FitTask) -> Iterator[Plan]:
    """Yield plans for the task, the preferred one first."""
    given, why = job.settings.solver_for(job.n, job.p, job.on_gpu)
    if job.kernel.stored_only and job.settings.gram == "tiled":
        raise InvalidParameterError(
            'gram="tiled" needs a kernel that can be evaluated block by block; precomputed kernels and plain callables '
            'are stored. Use gram="auto".'
        )
    if features := _explicit_features(job):
        yield _feature_plan(job, features)
    if isinstance(given, Nystrom):
        yield from _nystrom_plans(job, given, why)
        return
    for solver, note in _solvers_to_try(job, complete_solver(given)):
        for edge in _edges_to_try(job):
            yield _exact_plan(job, solver, why, edge, (note,) if note else ())


def _completed(job: FitTask, plan: Plan) -> Plan:
    """Return the plan with its notes on the pre-image and the checkpoint, and an estimate of its time."""
    if count := preimage_landmarks(job):
        note = f"the ridge pre-image uses {count} landmarks among the {job.n} scores"
        plan = replace(plan, preimage_landmarks=count, notes=(*plan.notes, note))
    if job.has_checkpoint and not complete_solver(plan.solver).iterates(job.n, job.p):
        plan = replace(plan, notes=(*plan.notes, NO_CHECKPOINT))
    work = kernel_pca_work(job, plan)
    if work is None:
        return plan
    seconds = estimate_seconds(work, job.place.work, job.X.dtype, job.workers, job.on_gpu)
    return replace(plan, estimated_seconds=seconds)


# -- K by tiles, or stored -------------------------------------------------------------------------------------------


def _solvers_to_try(job: FitTask, solver: Solver) -> Iterator[tuple[Solver, str]]:
    """Yield the chosen solver, then smaller ones that may take its place, each with a note."""
    e = job.settings
    if job.kernel.positive_definite is not True:
        solver = solver.with_full_spectrum()
    yield solver, ""
    so_far = ""
    iterative = BlockKrylov(tol=e.tol, max_passes=e.max_passes)
    if e.names_solver("auto") and not solver.grows_with_p and iterative.iterates(job.n, job.p):
        solver, so_far = iterative, "the dense solver does not fit into memory; block Krylov instead"
        yield solver, so_far
    if (small := solver.with_small_basis(job.n, job.p)) is not None:
        few = f"the basis of block Krylov is held to {FEWEST_BLOCKS} blocks to fit into memory"
        yield small, f"{so_far}; {few}" if so_far else few


def _edges_to_try(job: FitTask) -> list[int]:
    """Return the usual edge of a tile, and smaller ones for tight limits."""
    usual = tile_edge_for(job.n, job.workers, job.on_gpu, dense_row_bytes(job.kernel, job.X))
    smallest = blocking.SMALLEST_TILE_EDGE.on(job.on_gpu)
    if job.on_gpu:  # by halves: launches are expensive, and what a tile needs falls by four
        return [max(1, usual // 2**k) for k in range(max(1, (usual // smallest).bit_length()))]
    return [usual, smallest] if usual > smallest else [usual]


def _exact_plan(job: FitTask, solver: Solver, why: str, edge: int, notes: tuple[str, ...]) -> Plan:
    """Return the plan for a solver and a tile edge; with a start and a wide block where a pass is expensive."""
    plan = _stored_plan(job, solver, why, edge, notes)
    has_tiles = isinstance(plan.storage, TiledStorage)
    if has_tiles and solver.is_default and job.n >= SAMPLE_PAYS * START_LANDMARKS:
        plan = replace(plan, start_landmarks=START_LANDMARKS)
    if plan.storage.is_fully_cached:
        return plan
    plan = _with_recomputed_note(plan)
    cached = plan.storage.tiles - plan.storage.recomputed_tiles
    wide = solver.with_wide_block(job.n, job.p, job.on_gpu)
    if wide is None or cached > CHEAP_SHARE * plan.storage.tiles:
        return plan
    start = START_LANDMARKS if job.n >= SAMPLE_PAYS_IF_RECOMPUTED * START_LANDMARKS else 0
    other = _with_recomputed_note(replace(_stored_plan(job, wide, why, edge, notes), start_landmarks=start))
    return other if other.predicted_bytes <= job.limit else plan


def _with_recomputed_note(plan: Plan) -> Plan:
    tiles = f"{plan.storage.recomputed_tiles} of {plan.storage.tiles} tiles"
    note = f"K does not fit into memory: {tiles} are made anew in every pass"
    return replace(plan, notes=(*plan.notes, note))


def _stored_plan(job: FitTask, solver: Solver, why: str, edge: int, notes: tuple[str, ...]) -> Plan:
    """Return the plan with K as a square matrix, or with as many tiles cached as fit beside everything else."""
    dense = DenseStorage(job.n, job.workers)
    if isinstance(job.kernel, Precomputed):  # the matrix is the user's own
        return plan_of(job, solver, why, dense, matrix_bytes(job, solver), notes=notes)
    if job.kernel.stored_only or job.settings.gram == "dense":
        needed = evaluated_bytes(job, solver, edge, job.n, buffered=False) + dense.bytes_held(job.item)
        return plan_of(job, solver, why, dense, max(needed, preimage_bytes(job)), notes=notes)
    panel = panel_for(job, edge)
    rows = rows_at_once(job.n, edge, job.workers, panel)
    # Cached tiles need no buffer; those that are recomputed have one in every worker.
    for buffered in (False, True):
        needed = evaluated_bytes(job, solver, edge, rows, buffered=buffered)
        budget = min(job.limit - needed, job.tile_limit)
        tiled = TiledStorage.within(budget, job.n, job.item, job.workers, edge, panel)
        if tiled.is_fully_cached:
            break
    needed = max(needed + tiled.bytes_held(job.item), preimage_bytes(job))
    return plan_of(job, solver, why, tiled, needed, notes=notes, bytes_read=tiled.rows_read * job.d * job.item)


# -- K by a factor -----------------------------------------------------------------------------------------------------


def _explicit_features(job: FitTask) -> int:
    """Return the columns of an exact factor of K, where features are fewer than samples; else 0."""
    e = job.settings
    if not e.requests(Nystrom, "auto", "nystrom") or e.gram != "auto" or is_sparse(job.X):
        return 0
    count = job.kernel.feature_count(job.d) or 0
    few = max(job.n // MONOMIALS_PAY, min(job.n - 1, FEW_MONOMIALS))
    return count if count <= (job.n - 1 if isinstance(job.kernel, Linear) else few) else 0


def _feature_plan(job: FitTask, count: int) -> Plan:
    """Return the plan by the features of all samples and the eigenproblem of their small product."""
    p = min(job.p, count) if job.settings.n_components is None else job.p
    tol = job.settings.tol
    iterative = BlockKrylov(tol=tol, max_passes=job.settings.max_passes)
    small = count <= LARGEST_SMALL_PROBLEM or not iterative.iterates(count, p)
    solver: Solver = LowRank(tol=tol) if small else iterative
    needed = job.copy_bytes + max(factor_bytes(job, solver, count, p), preimage_bytes(job))
    storage = LowRankStorage(job.n, job.workers, count)
    why = f"{count} features span the feature space, fewer than the {job.n} samples: exact"
    return replace(plan_of(job, solver, why, storage, needed), n_components=p)


def _nystrom_plans(job: FitTask, requested: Nystrom, why: str) -> Iterator[Plan]:
    """Yield plans by landmarks, with the requested rank."""
    solver, rank, p = _with_rank(requested, job.settings, job.kernel, job.n, job.p)
    for edge in _edges_to_try(job):
        panel = panel_for(job, edge)
        needed = max(landmark_bytes(job, rank, p, edge, panel), preimage_bytes(job))
        storage = LowRankStorage(job.n, job.workers, rank, _source(job, edge, panel))
        read = job.n * job.d * job.item if panel else 0
        yield replace(plan_of(job, solver, why, storage, needed, bytes_read=read), n_components=p)


def _source(job: FitTask, edge: int, panel: int) -> Storage:
    """Return what the columns of K at the landmarks come from."""
    if job.kernel.stored_only:
        return DenseStorage(job.n, job.workers)
    return TiledStorage(job.n, job.workers, edge, 0, panel)


def _with_rank(
    requested: Nystrom, settings: KernelPCASettings, kernel: Kernel, n: int, p: int
) -> tuple[Nystrom, int, int]:
    """Return the approximation of K (n, n) with its rank as a number, that rank, and p or the rank if that is less."""
    check_not_indefinite(kernel)
    rank = requested.rank_for(n, p)
    if isinstance(settings.n_components, Integral) and rank < p:
        raise InvalidParameterError(
            f"n_components={settings.n_components} needs at least as many landmarks, and rank={requested.rank} was "
            "given to Nystrom; raise the rank."
        )
    return replace(requested, rank=rank), rank, min(p, rank)


# -- K on a cluster, where workers make and multiply tiles and this process does the rest ------------------------------


def _cluster_plan(job: FitTask) -> Plan:
    """Return the plan within the memory of this process; raise `MemoryBudgetError` where that is too little."""
    n, p, item = job.n, job.p, job.item
    storage: Storage = ClusterStorage(n, job.workers)
    given, why = job.settings.solver_for(n, p, False)
    if isinstance(given, Nystrom):
        given, rank, p = _with_rank(given, job.settings, job.kernel, n, p)
        storage = LowRankStorage(n, job.workers, rank, storage)
        needed = n * (rank + 2 * default_block(rank)) * item + 5 * 8 * rank**2
        solver = complete_solver(given)
    else:
        solver = complete_solver(given)
        solver = solver if job.kernel.positive_definite else solver.with_full_spectrum()
        needed = solver.workspace_items(n, p, False) * item
        needed += 2 * n * n * item if solver.forms_matrix else BLOCKS_ON_THE_WAY * 8 * n * solver.width(n, p, False)
    if job.basis is not job.X:  # this process holds all rows beside the workers
        needed += n * job.d * item
    if needed > job.limit:
        other = ', or eigen_solver="randomized"' if solver.forms_matrix else ""
        raise MemoryBudgetError(
            f"this process needs {format_bytes(needed)} for the eigenvectors of {n} rows, and "
            f"{format_bytes(job.limit)} are allowed or free. Ask for fewer components, use float32 data{other}."
        )
    note = f"cluster: {job.X.cluster.describe()}"
    return plan_of(replace(job, p=p), solver, why, storage, needed, notes=(note,))


# -- no plan -----------------------------------------------------------------------------------------------------------


def _too_big(job: FitTask, needed: int) -> str:
    """Return the message for a limit that no candidate keeps, with advice."""
    n, e = job.n, job.settings
    advice = ["a larger memory_limit", "float32 data"] if job.item == 8 else ["a larger memory_limit"]
    iterates, is_dense = e.requests(BlockKrylov, "randomized", "arpack"), e.requests(Dense, "dense")
    if n >= 5 and (is_dense or not BlockKrylov().iterates(n, job.p)):
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
