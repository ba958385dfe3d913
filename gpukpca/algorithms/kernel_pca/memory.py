"""The bytes that a fit by kernel PCA allocates, from shapes alone: storage, solver, rows, passes and pre-image.

`tests/algorithms/test_predicted_memory.py` compares the sums with what a fit allocates.
"""

from __future__ import annotations

from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.backend import blocking
from gpukpca.backend.limits import SHARE_FOR_ROWS
from gpukpca.backend.linalg import inner_panel
from gpukpca.backend.namespace import is_sparse
from gpukpca.eigen import LowRank
from gpukpca.eigen.partial_cholesky import default_block
from gpukpca.eigen.solver import Solver
from gpukpca.gram.product import dense_row_bytes
from gpukpca.gram.tiling import rows_at_once, tile_edge_for
from gpukpca.kernels import Precomputed

# Strips of a tile in float64 that a device holds at once.
WIDE_STRIPS = 3
# Of a factor with k columns: vectors of length n in float64, and arrays of k² that LAPACK and we hold at once.
LANDMARK_VECTORS = 6
SMALL_PROBLEM_SQUARES = 8.2


# -- whole fits --------------------------------------------------------------------------------------------------------


def matrix_bytes(job: FitTask, solver: Solver) -> int:
    """Return the bytes of a fit to the user's own matrix: its symmetric part, and what its eigenproblem takes."""
    columns = job.workers * job.n * solver.width(job.n, job.p, job.on_gpu)
    return (job.n * job.n + columns) * job.item + solver_bytes(job, solver)


def evaluated_bytes(job: FitTask, solver: Solver, edge: int, rows: int, *, buffered: bool) -> int:
    """Return the bytes of a fit beside its storage, with so many prepared rows and tiles of such an edge.

    With `buffered` every worker holds a tile that is not cached.
    """
    return row_bytes(job, rows) + solver_bytes(job, solver) + _pass_bytes(job, solver, edge, buffered)


def factor_bytes(job: FitTask, solver: Solver, columns: int, p: int) -> int:
    """Return the bytes of a fit by a factor of K with so many columns, without the data."""
    factor = job.n * columns * job.item  # once as it is, and centered
    needed = 2 * factor + 2 * columns * columns * 8
    needed += solver.workspace_items(job.n, max(p, job.components_for(solver, columns)), job.on_gpu) * job.item
    needed += _widened_bytes(job, solver, job.p)
    if job.on_gpu:  # the panel of F that is widened for its square
        needed += 8 * columns * min(job.n, _panel_rows(job))
    return needed


def landmark_bytes(job: FitTask, rank: int, p: int, edge: int, panel: int) -> int:
    """Return the bytes of a fit by so many landmarks whose columns come by tiles of such an edge."""
    rows = rows_at_once(job.n, edge, job.workers, panel)
    held = 0 if isinstance(job.kernel, Precomputed) else row_bytes(job, rows)
    held += job.workers * edge * _slice_bytes(job) if panel else 0
    return held + job.n * (rank * job.item + 8 * LANDMARK_VECTORS) + _landmark_peak(job, rank, p)


# -- parts of a fit ----------------------------------------------------------------------------------------------------


def panel_for(job: FitTask, edge: int) -> int:
    """Return the tile columns whose rows are held at once, where X is a memory map with too many rows; else 0."""
    row = max(job.row_bytes, job.d * job.item)
    if not job.maps_file or job.n * row <= SHARE_FOR_ROWS * job.limit:
        return 0
    return max(1, int(SHARE_FOR_ROWS * job.limit) // (2 * row * edge) - 2 * job.workers)


def row_bytes(job: FitTask, rows: int) -> int:
    """Return the bytes of the model's copy of the data and of so many prepared rows."""
    # While X is read, cached slices also hold the operand that a product made of them, as wide again.
    return job.copy_bytes + rows * job.row_bytes * (2 if rows < job.n else 1)


def solver_bytes(job: FitTask, solver: Solver) -> int:
    """Return the bytes of a solver beside the operator."""
    items = solver.workspace_items(job.n, job.components_for(solver), job.on_gpu)
    if job.has_checkpoint:
        items += solver.checkpoint_items(job.n, job.p, job.on_gpu)
    return items * job.item


def preimage_bytes(job: FitTask) -> int:
    """Return the bytes of the pre-image after the decomposition; with landmarks where its whole matrix does not fit."""
    if (method := job.preimage) is None:
        return 0
    # A product on a device cannot write into a block of the matrix; NumPy's does.
    tile = tile_edge_for(job.n, job.workers, True) ** 2 * job.item if job.on_gpu else 0
    return method.peak_bytes(job.n, job.d, job.p, job.item, job.on_gpu, preimage_landmarks(job)) + tile


def preimage_landmarks(job: FitTask) -> int:
    """Return the landmarks of the ridge pre-image, 0 for none."""
    if (method := job.preimage) is None:
        return 0
    whole = method.peak_bytes(job.n, job.d, job.p, job.item, job.on_gpu, 0)
    return method.landmarks_for(job.n, fits=whole <= job.limit)


def _pass_bytes(job: FitTask, solver: Solver, edge: int, buffered: bool) -> int:
    """Return the most of a pass (tiles, slices of rows, sums of every worker) and of the time between passes."""
    slices = edge * _slice_bytes(job)
    begins_wide = job.on_gpu and job.template is not None and job.template.wide
    strips = WIDE_STRIPS * min(blocking.GPU_STRIP_BYTES, 8 * edge * edge) if begins_wide else 0
    tiles = (job.kernel.scratch_tiles + (1 if buffered else 0)) * edge * edge * job.item
    sums = job.n * solver.width(job.n, job.p, job.on_gpu) * job.item
    between = _widened_bytes(job, solver, job.components_for(solver))
    return max(job.workers * (tiles + slices + sums) + strips, between)


def _slice_bytes(job: FitTask) -> int:
    """Return the bytes of a row in the slices that a tile is made from."""
    row = max(job.row_bytes, 0 if is_sparse(job.X) else job.d * job.item)
    return row + 3 * dense_row_bytes(job.kernel, job.X)


def _widened_bytes(job: FitTask, solver: Solver, p: int) -> int:
    """Return the bytes of float32 data in float64: panels of the basis, vectors for their residuals."""
    if job.item == 8 and not job.on_gpu:  # a device copies slices that are not contiguous
        return 0
    return 8 * solver.widened_items(job.n, p, _panel_rows(job), job.on_gpu)


def _panel_rows(job: FitTask) -> int:
    return inner_panel(job.place.work, is_wide=False)


def _landmark_peak(job: FitTask, rank: int, p: int) -> int:
    """Return the most beside F: columns while it grows, then the small eigenproblem, then the vectors."""
    small = 8 * rank * rank
    growing = 2 * default_block(rank) * job.n * job.item + 2 * small
    solver = LowRank()
    vectors = solver.workspace_items(job.n, p, job.on_gpu) * job.item + _widened_bytes(job, solver, job.p) + 2 * small
    return max(growing, int(SMALL_PROBLEM_SQUARES * small), vectors)
