"""PCA of rows that are read again in every pass: the mean in the first, the components in one or a few more.

Nothing but d numbers, a d × d matrix or a block of d-vectors is kept between batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpukpca._typing import Array
from gpukpca.algorithms.magnitude import ScaledBatches, are_safe, row_bounds, safe_scale
from gpukpca.covariance.moments import Moments, moments_of
from gpukpca.covariance.scatter import ScatterOperator
from gpukpca.covariance.streamed import StreamedRows
from gpukpca.eigen import BlockKrylov, Dense, EigenResult, top_eigh
from gpukpca.gram import DenseGram

# Called after every pass with its number and what it was for.
PassReport = Callable[[int, str], None]


def safe_moments(batches: Iterable[Array]) -> tuple[Moments, float]:
    """Return the moments of all rows times a power of two, and that number: 1, in one pass, at ordinary sizes."""
    moments = moments_of(batches)
    if are_safe(moments.squares):
        return moments, 1.0
    low, high = row_bounds(batches)
    scale = safe_scale(low, high, moments.mean.dtype)
    return moments_of(ScaledBatches(batches, scale), low == high), scale


def components_of(
    batches: Iterable[Array], moments: Moments, p: int, solver: Dense | BlockKrylov, report: PassReport
) -> EigenResult:
    """The p largest eigenpairs of the scatter matrix.

    Notes
    -----
    `Dense`: the matrix, O(n d²) in one pass, and O(d³). `BlockKrylov`: O(n d p) a pass.
    """
    op = ScatterOperator(StreamedRows(batches, moments), of_samples=False)
    if isinstance(solver, BlockKrylov):
        # A fixed start: the answer does not depend on it, and the last digits are the same in every run.
        return top_eigh(op, p, solver, rng=0, report=lambda done, *_: report(done + 1, "product"))
    matrix = DenseGram(op.to_dense())
    report(2, "covariance")
    return top_eigh(matrix, p, solver)
