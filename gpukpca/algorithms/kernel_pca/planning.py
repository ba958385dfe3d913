"""The order of the candidates of a plan of kernel PCA, from the preferred one to smaller ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from gpukpca.algorithms.bill import fewer
from gpukpca.algorithms.kernel_pca.candidates import (
    among_all,
    factored,
    folded,
    on_cluster,
    stored,
)
from gpukpca.algorithms.kernel_pca.task import FitTask, explicit_features
from gpukpca.algorithms.kernel_pca.twin import takes_twin
from gpukpca.algorithms.plan import Candidate, Plan, choose_plan
from gpukpca.backend import blocking
from gpukpca.backend.device import takes_eigenproblem
from gpukpca.backend.namespace import writes_in_place
from gpukpca.data.batches import slice_of
from gpukpca.data.rows import Rows
from gpukpca.eigen import BlockKrylov, Dense, Nystrom
from gpukpca.eigen.block_krylov import FEWEST_BLOCKS, too_many
from gpukpca.eigen.landmark_choice import LandmarkChoice
from gpukpca.eigen.landmarks import given_points, is_given
from gpukpca.eigen.norm_bound import SMALLEST_SAMPLE
from gpukpca.eigen.solve import most_by_passes
from gpukpca.eigen.solver import PlannedSolver
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.half_tiles import timed_halves
from gpukpca.gram.timed_edge import known_edge, timed_edge

# When K is recomputed in every pass, extra columns cost little: some 25 of them save two passes (measured), and a start
# from the components of a sample saves one or two more. With more than this share of the tiles cached neither pays.
CHEAP_SHARE = 0.7
# The sample holds one row in so many, at most so many. From these rows on the passes that its start saves take longer
# than the start does, with K cached, and with K recomputed in every pass.
SAMPLE_SHARE, LARGEST_SAMPLE = 20, 4000
SAMPLE_PAYS, SAMPLE_PAYS_IF_RECOMPUTED = 40_000, 4000
UNKNOWN_ROWS = "the number of rows is not known before the fit: that of the rows that choose landmarks stands for it"


def plan_of(task: FitTask) -> Candidate:
    """Return the first candidate that fits into memory; else raise `MemoryBudgetError` with advice."""
    what, usual = "this process" if task.is_on_cluster else "the fit", task.usual_edge
    candidate = choose_plan(_candidates, task, what, _changes(task))
    edge = getattr(candidate.plan.storage, "tile_edge", 0)
    if edge == usual and timed_edge(task.kernel, task.X, task.template, usual) != usual:
        candidate = choose_plan(_candidates, task, what, _changes(task))
    plan, edge = candidate.plan, getattr(candidate.plan.storage, "tile_edge", 0)
    is_open = plan.twin is None and task.item == 4 and takes_twin(task, plan.solver, plan.storage)
    if is_open and timed_halves(task.kernel, task.X, task.template, edge):
        candidate = choose_plan(_candidates, task, what, _changes(task))
        edge = getattr(candidate.plan.storage, "tile_edge", 0)
    if 0 < edge < usual and edge == known_edge(task.kernel, task.place.work, task.d, usual):
        candidate = candidate.with_notes(f"tiles of edge {edge} took less time than those of {usual}")
    if not task.settings.is_share or candidate.needed is None:
        return candidate
    beyond = next((whole for whole in _candidates(replace(task, p=task.n)) if whole.plan.fits), None)
    storage: Any = candidate.plan.storage
    few = candidate.few if beyond is None else min(candidate.few, most_by_passes(storage.rank_bound, task.on_gpu))
    return candidate.for_share(candidate.needed, few, beyond)


def plan_of_pass(task: FitTask, solver: PlannedSolver) -> Plan:
    """Return the first plan for products with K alone that fits into memory; else raise `MemoryBudgetError`.

    The `solver` states their columns and bytes; the products are made by the caller.
    """

    def candidates(task: FitTask) -> Iterable[Candidate]:
        if features := _explicit_features(task):
            return [factored(task, features)]
        return (_exact(task, solver, "products with K alone", edge, ()) for edge in _edges(task))

    return choose_plan(candidates, task, "an audit", [task.in_float32()]).plan


def plan_of_batches(task: FitTask, batches: Rows) -> Plan:
    """Return the plan of a fit of batches in one pass; `task` is that of some of their rows."""
    batch, usual, n = batches.largest or slice_of(task.d), slice_of(task.d), batches.n_rows

    def candidates(sized: tuple[FitTask, int]) -> list[Candidate]:
        task, batch = sized
        return [folded(task, batch=batch, rows=n)]

    smaller = [(f"batches of at most {usual} rows", (task, usual))] if batch > usual else []
    others = ([(text, (other, batch)) for text, other in series] for series in _changes(task))
    chosen = choose_plan(candidates, (task, batch), "a fit in one pass of batches", itertools.chain([smaller], others))
    if n is None:
        return chosen.with_notes(UNKNOWN_ROWS).plan
    return replace(chosen.plan, n_samples=n)


def equal_passes(task: FitTask, plan: Plan) -> int:
    """Return the passes that most problems take, where each evaluates most of K; else 0."""
    solver, storage = plan.solver, plan.storage
    is_recomputed = storage is not None and 2 * storage.recomputed_tiles > storage.tiles
    if plan.twin is not None or not is_recomputed or not isinstance(solver, BlockKrylov):
        return 0
    return math.ceil(solver.expected_passes(plan.n_samples, plan.n_components, task.item, task.on_gpu))


def _candidates(task: FitTask) -> Iterator[Candidate]:
    """Yield the candidates of the task, the preferred one first."""
    if task.kernel.stored_only and task.settings.gram not in ("auto", "dense"):
        raise InvalidParameterError(
            f"{task.settings.gram_text} needs a kernel that can be evaluated block by block; precomputed kernels and "
            'plain callables are stored. Use gram="auto".',
            argument="gram",
        )
    if task.is_spanned:
        yield from (folded(task, **how) for how in _ways(task))
        return
    if (nystrom := task.settings.nystrom) is not None:
        yield from _by_landmarks(task, nystrom)
        return
    if features := _explicit_features(task):
        yield factored(task, features)
    requested, reason = task.settings.solver_for(task.n, task.p, task.on_gpu)
    if isinstance(requested, BlockKrylov) and not requested.iterates(task.n, task.p):
        requested, reason = Dense(tol=requested.tol), too_many(task.n, task.p)
    for solver, notes in _solvers(task, requested):
        yield from (_exact(task, solver, reason, edge, notes) for edge in _edges(task))


def _by_landmarks(task: FitTask, requested: Nystrom) -> Iterator[Candidate]:
    """Yield the factor by landmarks: in memory, computed again, and without eigenvectors and scores."""
    stored_only = task.kernel.stored_only
    if given_points(requested) is not None and stored_only:
        raise InvalidParameterError(
            "landmarks that are points need a kernel that can be evaluated for other points than rows of the data: "
            "its name, or an object of gpukpca.kernels.",
            argument="eigen_solver",
        )
    if stored_only or not (is_given(requested) or task.is_on_cluster or task.device_rows):
        yield from (among_all(task, edge) for edge in _edges(task))
    if not stored_only:
        yield from (folded(task, **how) for how in _ways(task))


def _ways(task: FitTask) -> Iterator[dict[str, Any]]:
    """Yield the options of a fold: with F in memory, then computed again, then without eigenvectors and scores."""
    if task.gives_scores:
        if not (task.is_on_cluster or task.maps_file or task.device_rows) and writes_in_place(task.place.work):
            yield {"with_vectors": True, "keeps_factor": True}
        yield {"with_vectors": True}
    if task.preimage is None:
        yield {}


def _explicit_features(task: FitTask) -> int:
    """Return the columns of an exact factor of K, where features are fewer than samples; else 0."""
    if task.is_sparse or task.is_on_cluster:
        return 0
    return explicit_features(task.kernel, task.settings, task.n, task.d)


def _solvers(task: FitTask, solver: PlannedSolver) -> Iterator[tuple[PlannedSolver, tuple[str, ...]]]:
    """Yield the chosen solver, then smaller ones that may take its place, each with a note."""
    settings = task.settings
    if task.kernel.positive_definite is not True and isinstance(solver, Dense):
        solver = replace(solver, full_spectrum=True)
    so_far, iterative = "", BlockKrylov(tol=settings.tol, max_passes=settings.max_passes)
    may_iterate = settings.solver == "auto" and not solver.grows_with_p and iterative.iterates(task.n, task.p)
    is_refused = not task.is_on_cluster and not takes_eigenproblem(task.place.work, task.n)
    if not (may_iterate and is_refused):
        yield solver, ()
    if may_iterate:
        why = f"cuSOLVER of CUDA 12 refuses n = {task.n}" if is_refused else "the dense solver does not fit into memory"
        solver, so_far = iterative, f"{why}; block Krylov instead"
        yield solver, (so_far,)
    if isinstance(solver, BlockKrylov) and (small := solver.with_small_basis(task.n, task.p)) is not None:
        few = f"the basis of block Krylov is held to {FEWEST_BLOCKS} blocks to fit into memory"
        yield small, (f"{so_far}; {few}" if so_far else few,)


def _edges(task: FitTask) -> list[int]:
    """Return the usual edge of a tile, and smaller ones for tight limits; on a cluster the workers choose it."""
    if task.is_on_cluster:
        return [0]
    usual, smallest = task.usual_edge, blocking.SMALLEST_TILE_EDGE.on(task.on_gpu)
    if task.on_gpu:  # by halves: launches are expensive, and what a tile needs falls by four
        first = known_edge(task.kernel, task.place.work, task.d, usual)
        return [max(1, first // 2**k) for k in range(max(1, (first // smallest).bit_length()))]
    return [usual, smallest] if usual > smallest else [usual]


def _exact(task: FitTask, solver: PlannedSolver, reason: str, edge: int, notes: tuple[str, ...]) -> Candidate:
    """Return a solver with tiles of an edge; where a pass is expensive, with a start and a wide block."""
    make = on_cluster if task.is_on_cluster else partial(stored, edge=edge)
    usual, pays_for_start = solver, isinstance(solver, BlockKrylov) and solver.is_default
    # Where a share of the variance decides the number of pairs, the block must hold them.
    is_chosen = task.settings.solver == "auto" and not (task.settings.is_share or task.is_on_cluster)
    if is_chosen and isinstance(solver, BlockKrylov):
        usual = solver.with_narrow_block(task.n, task.on_gpu)
    sample = min(LARGEST_SAMPLE, task.n // SAMPLE_SHARE) * pays_for_start
    candidate = make(task, usual, reason, notes=notes, start=sample * (task.n >= SAMPLE_PAYS))
    storage: Any = candidate.plan.twin or candidate.plan.storage
    is_cheap = storage.is_fully_cached or storage.tiles - storage.recomputed_tiles > CHEAP_SHARE * storage.tiles
    if is_cheap or not isinstance(solver, BlockKrylov):
        return candidate
    wide = solver.with_wide_block(task.n, task.p, task.multiplies_on_gpu)
    if wide is None:
        return candidate
    other = make(task, wide, reason, notes=notes, start=sample * (task.n >= SAMPLE_PAYS_IF_RECOMPUTED))
    return other if other.plan.fits else candidate


def _changes(task: FitTask) -> Iterator[Iterable[tuple[str, FitTask]]]:
    """Yield series of what a user may change where no candidate fits, with the task that follows."""
    n, p, settings = task.n, task.p, task.settings

    def changed(**parameters: Any) -> FitTask:
        return replace(task, settings=replace(settings, **parameters), p=min(p, parameters.get("n_components", p)))

    if settings.gram not in ("auto", "tiled"):
        yield [('gram="auto"', changed(gram="auto"))]
    if (solver := settings.nystrom) is not None:
        choice = LandmarkChoice.of(solver, None, p)
        rank = 0 if choice.is_given else choice.rank
        yield fewer("eigen_solver=Nystrom(rank={})", rank, lambda r: changed(solver=replace(solver, rank=r)), p)
        entries = solver.bound_rows or choice.look_rows(n)
        with_rows = "eigen_solver=Nystrom(bound_rows={})"
        yield fewer(with_rows, entries, lambda s: changed(solver=replace(solver, bound_rows=s)), SMALLEST_SAMPLE)
    elif settings.solver in ("auto", "dense") or isinstance(settings.solver, Dense):
        yield [('eigen_solver="randomized"', changed(solver="randomized"))]
    if not settings.is_share:
        yield fewer("n_components={}", p, lambda count: changed(n_components=count))
    yield task.in_float32()
    if task.kernel.positive_definite and settings.nystrom is None:
        yield [('the approximation eigen_solver="nystrom"', changed(solver="nystrom"))]
