"""The twin of K in a plan: whether block Krylov iterates on float32 or float16 tiles, and their bytes."""

from __future__ import annotations

from dataclasses import replace

from gpukpca.algorithms.bill import Bill, total
from gpukpca.algorithms.kernel_pca.parts import solver_parts, tile_bytes
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.backend.work import rates_of
from gpukpca.eigen import BlockKrylov
from gpukpca.eigen.krylov_blocks import PROBES
from gpukpca.eigen.krylov_state import TWIN_COLUMNS
from gpukpca.eigen.solver import PlannedSolver
from gpukpca.gram.half_tiles import known_halves
from gpukpca.gram.storage import Storage, TiledStorage

# Rows from which a float32 twin pays, expected passes from which it pays where its tiles are recomputed too, and on a
# card the ratio of float64 to float32 time.
ROWS_FOR_TWIN, PASSES_FOR_TWIN, RATIO_FOR_TWIN = 4000, 7, 2.5
# Columns of a float16 block beside its own: of ones, of probes, and up to full rows.
MORE_COLUMNS = 16


def takes_twin(task: FitTask, solver: object, storage: Storage | None) -> bool:
    """Return whether block Krylov may iterate on other tiles than those of K: of float32 rows on a card alone."""
    # A class of the user, and tiles on several devices, have no twin.
    is_tiled = type(storage) is TiledStorage and not (task.maps_file or task.is_sparse)
    iterates = is_tiled and isinstance(solver, BlockKrylov) and solver.takes_twin
    return iterates and task.kernel.moves_rows is not None and (task.item == 8 or task.on_gpu)


def twin_of(task: FitTask, solver: PlannedSolver, storage: Storage, bill: Bill, edge: int) -> TiledStorage | None:
    """Return the tiles that block Krylov iterates on, and add their bytes; None where K itself is faster.

    They are float32 ones for float64 rows, and float16 ones of K's own rows, all cached, for float32 rows.
    """
    if not (takes_twin(task, solver, storage) and isinstance(solver, BlockKrylov)):
        return None
    halves = task.item == 4
    is_tight = halves or (task.n >= ROWS_FOR_TWIN and not storage.is_fully_cached)
    if not (solver.twin or (is_tight and _is_faster(task, edge))):
        return None
    narrow = task if halves else task.in_float32()[0][1]
    item, basis = 2 if halves else 4, {k: TWIN_COLUMNS * size for k, size in solver_parts(narrow, solver).items()}
    parts = basis | {"tiles in work": tile_bytes(narrow, edge)}
    if halves:
        parts["float16 block"] = 2 * task.n * (solver.width(task.n, task.p, True) + MORE_COLUMNS)
    else:
        parts["rows of the twin"] = task.n * (task.d * item + narrow.row_bytes)
    budget = task.tile_budget(total(bill.get("", {})) + total(parts))
    twin = replace(TiledStorage.within(budget, task.n, item, task.workers, edge), halves=halves)
    passes = solver.expected_passes(task.n, task.p, task.item, task.on_gpu)
    pays = solver.twin or (is_tight and passes >= PASSES_FOR_TWIN)
    # What passes over K begin with, and the sums of its vectors, which are as many columns again.
    guide = TWIN_COLUMNS * solver.basis_columns(task.n, task.p, task.on_gpu) * task.n * narrow.item
    guide += task.workers * task.n * (task.p + 2 * PROBES) * task.item
    both = Bill(bill)
    both["iterate"] = parts | {"K": twin.bytes_held(item)}
    both["hand over"] = solver_parts(task, solver) | {"basis of the twin": total(basis)}
    both["solve"] = bill["solve"] | {"basis of the twin": guide}
    if not (twin.is_fully_cached or (pays and not halves)) or both.peak > task.resources.allowed(both.peak):
        return None
    bill.update(both)
    return twin


def _is_faster(task: FitTask, edge: int) -> bool:
    """Return whether products take so much less in float16, or in float32, that a twin pays; always on a CPU."""
    if task.item == 4:
        return known_halves(task.kernel, task.place.work, task.d, edge)
    rates = rates_of(task.place.work)
    return not task.on_gpu or rates[4].products >= RATIO_FOR_TWIN * rates[8].products
