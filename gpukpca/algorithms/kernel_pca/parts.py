"""The parts of the bytes and of the work of a candidate of kernel PCA."""

from __future__ import annotations

from gpukpca.algorithms.bill import Parts
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.plan import SPARSE_ENTRY_BYTES
from gpukpca.backend import blocking
from gpukpca.backend.limits import SHARE_FOR_ROWS
from gpukpca.backend.work import Work
from gpukpca.data.slicing import panel_length
from gpukpca.eigen.solver import PlannedSolver
from gpukpca.gram.storage import GivenStorage, Storage
from gpukpca.kernels import Kernel, Precomputed

# Copies of CSR rows in the slices of a tile: of both sides and of a strip, widened, multiplied and by columns.
SPARSE_SLICES = 6
# Bytes of an entry of a product of CSR slices: as it is stored, and dense in float64 with its copy.
SPARSE_PRODUCT_BYTES, DENSE_PRODUCT_BYTES = 16, 16
# Strips of a tile in float64 that a device holds at once.
WIDE_STRIPS = 3
# Arrays of k² of a factor's k columns: of every worker while Fᵀ F is summed, and in LAPACK and the fit at once.
WORKER_SQUARES, SQUARES = 3, 9
# On the host a product with a tile, which is in cache, takes so many times less than one with a tall block.
TILE_SPEED = 2.0
# The product that makes a tile takes so many times less there than the table says, which is for some 20 features, and
# the time of so many features more. Measured with 12 to 786 features in both types.
FEATURES_SPEED, PACKED_FEATURES = 1.5, 13

# -- parts of the bytes ------------------------------------------------------------------------------------------------


def solver_parts(task: FitTask, solver: PlannedSolver) -> Parts:
    """Return the bytes of a solver in addition to the operator, with the sums of all workers."""
    sums = task.workers * task.n * solver.width(task.n, task.p, task.on_gpu) * task.item
    return {solver.name: sums + solver.workspace_bytes(task.n, task.components_for(solver), task.item, task.on_gpu)}


def parts_of_rows(task: FitTask, rows: int) -> Parts:
    """Return the bytes of the model's copy of the data and of so many prepared rows."""
    # While X is read, cached slices also hold the operand that a product made of them, as wide again.
    row = max(task.row_bytes, task.d * task.item) if task.is_batched else task.row_bytes
    return {"data copy": task.copy_bytes, "prepared rows": rows * row * (2 if task.is_batched or rows < task.n else 1)}


def preparing_bytes(task: FitTask, panel: int) -> int:
    """Return the bytes while all rows in memory are prepared; 0 where slices of them are."""
    in_slices = task.template is None or task.is_sparse or task.is_batched or panel
    return 0 if in_slices else learning_bytes(task, task.n)


def learning_bytes(task: FitTask, rows: int) -> int:
    """Return the bytes of a panel of some rows that is prepared: twice in float64, and in the type of K."""
    return (2 * 8 + task.item) * min(rows, task.n, panel_length(task.d, task.on_gpu)) * task.d


def tile_bytes(task: FitTask, edge: int) -> int:
    """Return the bytes of a tile of every worker that is not cached, with the slices that it is made from."""
    tile = edge * edge
    held = (task.kernel.scratch_tiles + 1) * tile * task.item + edge * slice_bytes(task)
    if task.is_sparse:
        product = min(tile, max(edge, blocking.SPARSE_PRODUCT_ENTRIES)) * SPARSE_PRODUCT_BYTES
        held += product + DENSE_PRODUCT_BYTES * tile * (task.item < 8)
    begins_wide = task.on_gpu and task.template is not None and task.template.wide
    return task.workers * held + WIDE_STRIPS * min(blocking.GPU_STRIP_BYTES, 8 * tile) * begins_wide


def slice_bytes(task: FitTask) -> int:
    """Return the bytes of a row in the slices that a tile is made from."""
    if task.is_sparse:
        return SPARSE_SLICES * task.row_bytes + 3 * 8 * task.d * task.kernel.densifies
    # Differences of features are taken in float64, of both slices.
    return max(task.row_bytes, task.d * (2 * 8 if task.kernel.densifies and task.item < 8 else task.item))


def panel_for(task: FitTask, edge: int) -> int:
    """Return the tile columns whose rows are held at once, where X is read again and not held whole; else 0."""
    row = max(task.row_bytes, task.d * task.item)
    if not task.maps_file or task.is_given:
        return 0
    limit = int(SHARE_FOR_ROWS * task.resources.allowed())
    return 0 if task.n * row <= limit and not task.is_batched else max(1, limit // (2 * row * edge) - 2 * task.workers)


def parts_of_factor(task: FitTask, columns: int) -> Parts:
    """Return the bytes of Fᵀ F of a factor F of so many columns, of its eigenproblem, and of panels of F in float64."""
    entries = columns * blocking.GPU_INNER_PANEL if task.on_gpu else blocking.PANEL_ENTRIES.cpu * (task.item < 8)
    squares = max(SQUARES, WORKER_SQUARES * task.workers)
    return {"squares": 8 * squares * columns**2, "panels": 8 * min(task.n * columns, entries)}


# -- parts of the work -------------------------------------------------------------------------------------------------


def pair_work(task: FitTask, kernel: Kernel) -> Work:
    """Return the work of one entry of K."""
    if isinstance(kernel, Precomputed):
        return Work()
    inside = [value for value in kernel.get_params(deep=False).values() if isinstance(value, Kernel)]
    if inside:
        return sum((pair_work(task, part) for part in inside), Work())
    values = Work(functions=kernel.exponentials)
    if kernel.densifies:  # no product of rows
        return values + Work(differences=task.d)
    if task.is_sparse:
        met = (task.X.nnz / max(1, task.n)) ** 2 / task.d  # features that two rows share
        return values + Work(sparse_products=met, bytes=SPARSE_ENTRY_BYTES)
    columns = task.d + 2 if task.on_gpu else (task.d + PACKED_FEATURES) / FEATURES_SPEED
    return values + Work(products=2 * columns)


def stored_work(task: FitTask, solver: PlannedSolver, storage: Storage, bytes_read: int) -> Work | None:
    """Return the work of a solver on a stored K; None where that of the solver is not known."""
    n, p = task.n, task.components_for(solver)
    if isinstance(storage, GivenStorage):  # whose products take an unknown time
        return None
    evaluation = pair_work(task, task.kernel) * (storage.entries / storage.devices)
    recomputed = storage.recomputed_tiles / storage.tiles
    columns = solver.width(n, p, task.on_gpu) / (1.0 if task.on_gpu else TILE_SPEED)
    one_pass = Work(blocks=2 * n * n * columns, bytes=bytes_read, calls=storage.tiles)
    one_pass = one_pass * (1 / storage.devices) + evaluation * recomputed
    work = solver.work(n, p, one_pass, task.item, task.on_gpu)
    return None if work is None else work + evaluation * (1 - recomputed)


def small_work(task: FitTask, n: int, columns: int, p: int) -> Work:
    """Return the work of the eigenproblem of a factor of n rows, whose square is summed in float64."""
    return Work(products=8 // task.item * n * columns**2, eigenproblems=columns**3, blocks=6 * n * columns * p)
