"""Cholesky factors with random pivots: K ≈ F Fᵀ from a few columns of K."""

from __future__ import annotations

import numpy as np

from gpukpca._typing import RankReport, SymmetricOperator
from gpukpca.backend.device import on_its_device
from gpukpca.backend.random import uniform, weighted_draws
from gpukpca.eigen.partial_cholesky import PartialCholeskyBuilder, PivotedCholesky, default_block
from gpukpca.eigen.validation import checked_count

# Candidates for one accepted pivot, and in all, where most are rejected.
MOST_A_PIVOT, MOST_CANDIDATES = 4, 512


@on_its_device
def pivoted_cholesky(
    op: SymmetricOperator,
    rank: int,
    rng: np.random.Generator,
    *,
    tol: float = 0.0,
    block_size: int | None = None,
    report: RankReport | None = None,
) -> PivotedCholesky:
    """Randomly pivoted Cholesky factor of a positive semidefinite operator, in blocks with rejection.

    Every pivot is drawn with probability proportional to the diagonal of what is left, K - F Fᵀ. A block of
    candidates is drawn at once from the diagonal before the block; each is then accepted with the ratio of its
    residual now to its residual then, which gives pivots with the law of the one-by-one method.

    Parameters
    ----------
    op : SymmetricOperator, shape (n, n)
        Not centered. Only ``diagonal()``, ``columns(indices)`` and, where it exists, ``block(rows, columns)`` are used.
    rank : int
        Most columns of F; n at most.
    rng : numpy.random.Generator
    tol : float
        Stop as soon as the certificate is at most `tol` times the largest eigenvalue of H F Fᵀ H. 0: use up the rank.
    block_size : int, optional
        Candidates a round, and most columns of K in memory (128 at most). Default: a tenth of the rank, from 8 to 128,
        with up to four times as many candidates while most are rejected. The law of the pivots does not depend on it.
    report : callable, optional
        Called after every round with (columns of F, most columns, share of the trace that is left).

    Returns
    -------
    PivotedCholesky
        With fewer than `rank` columns where the tolerance is met, or where no residual is above rounding: an operator
        of rank r gives r columns.

    Raises
    ------
    IndefiniteKernelError
        A diagonal entry, or a residual of one, is negative beyond rounding.
    InvalidParameterError
        Entries are NaN or infinite; rank, tol or block_size is out of range.

    Notes
    -----
    Cost: k columns of K and n k² operations in the widest floating type; with `tol` about 3 n k² more. Memory: F, one
    block of columns, and O(n) on the host. F is written column by column, so what a tolerance saves is never touched.

    Chen, Epperly, Tropp & Webber, Comm. Pure Appl. Math. 78 (2025), arXiv 2207.06503 (the method and its error);
    Epperly, Tropp & Webber, arXiv 2410.03969, algorithm 2 (rejection inside blocks).
    """
    rank = min(checked_count("rank", rank), op.shape[0])
    block = default_block(rank) if block_size is None else checked_count("block_size", block_size)
    growing, size = PartialCholeskyBuilder(op, rank, block, tol, report), block
    while growing.goes_on():
        # Among few candidates a row may be drawn twice: if it was rejected, it has another chance.
        candidates, draws = np.unique(weighted_draws(rng, growing.weights(), size), return_inverse=True)
        K, columns = growing.submatrix(candidates)
        accepted, _ = growing.absorb(candidates, draws, uniform(rng, size), K, columns)
        if block_size is None and columns is None:  # else a rejected candidate costs a column
            size = min(MOST_CANDIDATES, MOST_A_PIVOT * block, max(block, block * size // max(len(accepted), 1)))
    return growing.result()
