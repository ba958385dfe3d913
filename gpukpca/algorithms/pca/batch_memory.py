"""Memory of incremental PCA, predicted from shapes alone: an update by a batch, or the passes of the exact mode.

`tests/decomposition/test_incremental_pca.py` compares the prediction with what a fit allocates.
"""

from __future__ import annotations

import numpy as np

from gpukpca._formatting import format_bytes
from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.linalg import inner_panel
from gpukpca.backend.namespace import item_size
from gpukpca.eigen import BlockKrylov, Dense
from gpukpca.exceptions import MemoryBudgetError

# Statistics are in float64.
WIDE = 8
# Features up to which the covariance matrix is formed where it fits: 128 MiB in float64.
COVARIANCE_UP_TO = 4096
# Relative residual of the iterative solver: what "to rounding" means after some dozen passes over the data.
TOLERANCE = 1e-13
# Measured: LAPACK's small factors in units of their size squared, and copies of the stack in QR.
SMALL_SQUARES, TALL_STACKS, WIDE_STACKS = 9, 4, 5


def update_bytes(rows: int, d: int, p: int, item: int) -> int:
    """Peak of an update of p axes by a batch of so many rows, the batch included."""
    stack = rows + p + 1
    if stack >= d:
        entries = max(TALL_STACKS * stack * d, 2 * stack * d + SMALL_SQUARES * d * d)
    else:
        entries = (rows + WIDE_STACKS * stack) * d + SMALL_SQUARES * stack * stack
    return rows * d * item + WIDE * entries


def check_update(rows: int, d: int, p: int, fewest: int, item: int, limit: int) -> None:
    """Raise `MemoryBudgetError` where an update takes more than `limit` bytes; a batch has at least `fewest` rows."""
    needed = update_bytes(rows, d, p, item)
    if needed <= limit:
        return
    halves = (rows // 2**k for k in range(1, rows.bit_length()))
    fitting = next((half for half in halves if update_bytes(half, d, p, item) <= limit), 0)
    if fitting >= fewest:
        advice = f"Give batches of at most {fitting} rows (batch_size={fitting} where fit cuts them)"
    else:
        advice = "Request fewer components"
    raise MemoryBudgetError(
        f"a batch of {rows} rows with {d} features takes {format_bytes(needed)} for {p} components, and "
        f"{format_bytes(limit)} are allowed or free. {advice}, or set a larger memory_limit."
    )


# -- the exact mode ----------------------------------------------------------------------------------------------------


def exact_solver(d: int, p: int, rows: int, limit: int, like: Array) -> Dense | BlockKrylov:
    """Return the solver for p components of d features, of batches with so many rows, within `limit` bytes.

    Raises
    ------
    MemoryBudgetError
        No way fits.
    """
    iterative = BlockKrylov(tol=TOLERANCE)
    few = iterative.iterates(d, p)
    ways: list[Dense | BlockKrylov] = [Dense()] if d <= COVARIANCE_UP_TO or not few else []
    ways += [iterative] if few else []
    sizes = [exact_bytes(solver, d, p, rows, like) for solver in ways]
    for solver, size in zip(ways, sizes, strict=True):
        if size <= limit:
            return solver
    single = min(exact_bytes(solver, d, p, 1, like) for solver in ways)
    if single <= limit:
        advice = "batches of fewer rows"
    elif not few and d >= 5:
        advice = f"n_components <= {d // 5}, which need no {d} x {d} matrix"
    else:
        advice = "fewer components"
    raise MemoryBudgetError(
        f"PCA of batches with {p} components of {d} features takes {format_bytes(min(sizes))}, and "
        f"{format_bytes(limit)} are allowed or free. Try {advice}, or a larger memory_limit."
    )


def exact_bytes(solver: Dense | BlockKrylov, d: int, p: int, rows: int, like: Array) -> int:
    """Peak of all passes over batches of so many rows, one batch included."""
    panel = min(rows, inner_panel(like, is_wide=True))
    passing, solving = _matrices(solver, d, p, is_on_gpu(like))
    return rows * d * item_size(like.dtype) + WIDE * max(2 * rows * d, 2 * panel * d + passing, solving)


def rows_within(limit: int, d: int, p: int) -> int:
    """Return the rows of a batch with which the exact mode keeps to `limit` bytes, where that is possible."""
    host = np.empty(0)
    try:
        solver = exact_solver(d, p, blocking.FEWEST_BATCH_ROWS, limit, host)
    except MemoryBudgetError:
        solver = exact_solver(d, p, 1, limit, host)
    left = limit - WIDE * max(_matrices(solver, d, p, False))
    return max(1, left // (3 * WIDE * d))


def _matrices(solver: Dense | BlockKrylov, d: int, p: int, on_gpu: bool) -> tuple[int, int]:
    """Items beside the rows while a pass runs, and afterwards."""
    work = solver.workspace_items(d, p, on_gpu)
    return (3 * d * d, 2 * d * d + work + p * d) if solver.forms_matrix else (work, work)
