"""The float32 twin of K in a plan: whether block Krylov iterates on it, and its bytes."""

from __future__ import annotations

from gpukpca.algorithms.bill import Bill, total
from gpukpca.algorithms.kernel_pca.parts import solver_parts, tile_bytes
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.backend.work import rates_of
from gpukpca.eigen import BlockKrylov
from gpukpca.eigen.krylov_state import TWIN_COLUMNS
from gpukpca.eigen.solver import PlannedSolver
from gpukpca.gram.storage import Storage, TiledStorage

# Rows from which a float32 twin pays, expected passes from which it pays where its tiles are recomputed too, and on a
# card the ratio of float64 to float32 time.
ROWS_FOR_TWIN, PASSES_FOR_TWIN, RATIO_FOR_TWIN = 4000, 6, 2.5


def twin_of(task: FitTask, solver: PlannedSolver, storage: Storage, bill: Bill, edge: int) -> TiledStorage | None:
    """Return the float32 tiles that block Krylov iterates on, and add their bytes; None where K itself is faster."""
    is_tiled = isinstance(storage, TiledStorage) and not (task.maps_file or task.is_sparse or task.place.others)
    if not (is_tiled and isinstance(solver, BlockKrylov) and solver.takes_twin) or task.kernel.moves_rows is None:
        return None
    if task.item < 8 or not (solver.twin or _is_slower_in_float64(task)):
        return None
    narrow = task.in_float32()[0][1]
    basis = {name: TWIN_COLUMNS * size for name, size in solver_parts(narrow, solver).items()}
    guide = TWIN_COLUMNS * solver.basis_columns(task.n, task.p, task.on_gpu) * task.n * narrow.item
    rows = task.n * (task.d * narrow.item + narrow.row_bytes)
    parts = basis | {"tiles in work": tile_bytes(narrow, edge), "rows of the twin": rows}
    budget = task.tile_budget(total(bill.get("", {})) + total(parts))
    twin = TiledStorage.within(budget, task.n, narrow.item, task.workers, edge)
    passes = solver.expected_passes(task.n, task.p, task.item, task.on_gpu)
    pays = task.n >= ROWS_FOR_TWIN and not storage.is_fully_cached
    pays = pays and (twin.is_fully_cached or passes >= PASSES_FOR_TWIN)
    phases = {
        "iterate": parts | {"K": twin.bytes_held(narrow.item)},
        "hand over": solver_parts(task, solver) | {"basis of the twin": total(basis)},
    }
    needed = max(Bill(bill | phases).peak, bill.peak + guide)
    if not (solver.twin or pays) or needed > task.resources.allowed(needed):
        return None
    bill.update(phases)
    bill["solve"]["basis of the twin"] = guide
    return twin


def _is_slower_in_float64(task: FitTask) -> bool:
    """Return whether products take so much longer in float64 that a float32 twin pays; always on a CPU."""
    rates = rates_of(task.place.work)
    return not task.on_gpu or rates[4].products >= RATIO_FOR_TWIN * rates[8].products
