"""Nyström: which rows are the landmarks, and how many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array, RankReport, SymmetricOperator
from gpukpca.backend.linalg import pivot_order
from gpukpca.backend.namespace import accumulation_dtype, cast, from_host, namespace_of, to_host
from gpukpca.backend.random import random_subset, uniform, weighted_draws
from gpukpca.backend.rows import by_panels, gather_rows
from gpukpca.eigen.partial_cholesky import PartialCholeskyBuilder, PivotedCholesky, default_block
from gpukpca.eigen.pivoted_cholesky import pivoted_cholesky
from gpukpca.eigen.validation import checked_count, checked_tolerance
from gpukpca.exceptions import InvalidParameterError

# Landmarks where nobody says how many: ten a component, and a number that costs little.
LANDMARKS_A_COMPONENT, FEWEST_LANDMARKS = 10, 500
# A candidate whose residual falls below this share within one block waits for a later one: what rounding left of it
# cannot be told before the pass over all rows.
INDEPENDENT = 1e-3


def landmark_cholesky(
    op: SymmetricOperator, landmarks: Any, *, tol: float = 0.0, report: RankReport | None = None
) -> PivotedCholesky:
    """The factor F of K ≈ F Fᵀ whose columns belong to given landmarks.

    Parameters
    ----------
    op : SymmetricOperator, shape (n, n)
        Not centered, positive semidefinite; see `pivoted_cholesky`.
    landmarks : sequence of int
        Rows, in any order. They become pivots with the largest residual among them first; those that depend on others
        to rounding are left out.
    tol : float
        Stop early where the certificate is at most `tol` times the largest eigenvalue of H F Fᵀ H. 0: use all.
    report : callable, optional
        Called after every block with (columns of F, most columns, share of the trace that is left).

    Returns
    -------
    PivotedCholesky
        ``stopped`` is "rank" where all landmarks were used, dependent ones included.

    Raises
    ------
    IndefiniteKernelError, InvalidParameterError
        As `pivoted_cholesky`; also for landmarks that are no rows.

    Notes
    -----
    Cost as `pivoted_cholesky`, and O(k³) on the host for the order of k landmarks. An operator without
    ``block(rows, columns)`` evaluates its columns once more for that.
    """
    chosen = checked_landmarks(landmarks, op.shape[0])
    block = default_block(len(chosen))
    growing = PartialCholeskyBuilder(op, len(chosen), block, tol, report)
    floor = float(np.min(growing.floors()[chosen]))
    order = chosen[pivot_order(_among(growing, chosen, block), floor)]
    start = 0
    while growing.goes_on():
        part, start = order[start : start + block], start + block
        if not len(part):
            growing.stopped = "rank"
            break
        growing.absorb(part, np.arange(len(part)), np.zeros(len(part)), *growing.submatrix(part))
    return growing.result()


def _among(growing: PartialCholeskyBuilder, chosen: np.ndarray, block: int) -> np.ndarray:
    """Return K[chosen, chosen] on the host; from a few columns at a time where the operator has no cheaper way."""
    direct = growing.block_of(chosen)
    if direct is not None:
        return direct
    pieces = [chosen[start : start + block] for start in range(0, len(chosen), block)]
    K = np.concatenate([to_host(gather_rows(growing.columns(piece), chosen)) for piece in pieces], axis=1)
    return K.astype(np.float64)


def spread_cholesky(
    op: SymmetricOperator, rank: int, rng: np.random.Generator, *, tol: float = 0.0, report: RankReport | None = None
) -> PivotedCholesky:
    """The factor whose landmarks are drawn as k-means++ draws its seeds, in feature space.

    Every landmark is drawn with probability proportional to the squared distance to the nearest one before it,
    ``k(x, x) - 2 k(x, s) + k(s, s)``; blocks of candidates and rejection give that law as in `pivoted_cholesky`.

    Parameters
    ----------
    op, rank, rng, tol, report
        See `pivoted_cholesky`.

    Returns
    -------
    PivotedCholesky

    Notes
    -----
    Cost as `pivoted_cholesky`: every column is evaluated once.

    Arthur & Vassilvitskii, SODA 2007 (the seeds); Oglic & Gärtner, ICML 2017 (as landmarks).
    """
    rank = min(checked_count("rank", rank), op.shape[0])
    growing = PartialCholeskyBuilder(op, rank, default_block(rank), tol, report)
    # No two points are further apart; equal, so the first landmark is drawn evenly.
    distances = np.full(growing.n, 4.0 * growing.size)
    size = 1
    while growing.goes_on():
        # What F explains to rounding is no landmark, however far it is.
        weights = np.where(growing.weights() > 0, distances, 0.0)
        if not np.any(weights):
            growing.stopped = "exhausted"
            break
        candidates, draws = np.unique(weighted_draws(rng, weights, size), return_inverse=True)
        K, columns = growing.submatrix(candidates)
        far = _far_candidates(K, distances[candidates], draws, uniform(rng, size))
        chosen, columns = growing.absorb(candidates, far, np.full(len(far), INDEPENDENT), K, columns)
        if len(chosen):
            distances = np.minimum(distances, _nearest(columns, growing.diagonal, chosen))
        size = growing.block
    return growing.result()


def _far_candidates(K: np.ndarray, distances: np.ndarray, draws: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Positions accepted, one draw after another, by how much nearer the accepted ones have come."""
    diagonal, now = np.diagonal(K), distances.copy()
    accepted: list[int] = []
    for j, level in zip(draws.tolist(), levels.tolist(), strict=True):
        if level * distances[j] < now[j] and j not in accepted:
            accepted.append(j)
            now = np.minimum(now, np.maximum(diagonal - 2.0 * K[:, j] + diagonal[j], 0.0))
    return np.asarray(accepted, dtype=np.int64)


def _nearest(columns: Array, diagonal: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Squared distance of every row to the nearest of the chosen ones, on the host; `columns` are K[:, chosen]."""
    xp, wide = namespace_of(columns), accumulation_dtype(columns)
    own, others = from_host(diagonal[chosen], columns, wide), from_host(diagonal, columns, wide)

    def nearest(panel: Array, start: int, stop: int) -> Array:
        return others[start:stop] + xp.min(own[None, :] - 2.0 * cast(panel, wide), axis=1)

    return np.maximum(to_host(by_panels(columns, nearest)).astype(np.float64), 0.0)


# -- settings --------------------------------------------------------------------------------------------------------


def _even_cholesky(
    op: SymmetricOperator, rank: int, rng: np.random.Generator, *, tol: float, report: RankReport | None
) -> PivotedCholesky:
    """`landmark_cholesky` of rows drawn evenly without repetition."""
    return landmark_cholesky(op, random_subset(rng, op.shape[0], rank), tol=tol, report=report)


LANDMARKS: dict[str, Callable[..., PivotedCholesky]] = {
    "rpcholesky": pivoted_cholesky,
    "uniform": _even_cholesky,
    "kmeans++": spread_cholesky,
}


@dataclass(frozen=True)
class Nystrom:
    """Nyström approximation: kernel PCA of K ≈ F Fᵀ, F made from the columns of some landmarks.

    Parameters
    ----------
    rank : int, optional
        Landmarks, at most n. Default: ten for each component, at least 500. A kernel that is nearly flat is seen from
        one row more, which the model then keeps as well.
    landmarks : "rpcholesky", "uniform" or "kmeans++"
        Drawn by the residual of the diagonal (`pivoted_cholesky`), evenly without repetition, or by the squared
        distance in feature space (`spread_cholesky`).
    tol : float
        Take no more landmarks once every eigenvalue is known to within `tol` times the largest. 0: use up the rank;
        `converged_` is then judged by the default tolerance, and `solver_` gives the certificate that misses it.

    Notes
    -----
    Cost: n kernel values a landmark and 2 n rank² operations. Memory: n rank items. The error of every eigenvalue is
    bounded by `PivotedCholesky.certificate`, whichever way landmarks are drawn; "rpcholesky" makes it small.

    Williams & Seeger, NIPS 2000; Chen, Epperly, Tropp & Webber, arXiv 2207.06503.
    """

    rank: int | None = None
    landmarks: str = "rpcholesky"
    tol: float = 0.0

    def __post_init__(self) -> None:
        if self.rank is not None:
            checked_count("rank", self.rank)
        checked_tolerance(self.tol)
        if self.landmarks not in LANDMARKS:
            raise InvalidParameterError(
                f"landmarks={self.landmarks!r} is not allowed; give one of {', '.join(map(repr, LANDMARKS))}."
            )

    def rank_for(self, n: int, p: int) -> int:
        """Landmarks for `p` components of `n` rows."""
        return min(n, self.rank or max(LANDMARKS_A_COMPONENT * p, FEWEST_LANDMARKS))

    def factor(
        self, op: SymmetricOperator, p: int, rng: np.random.Generator, report: RankReport | None = None
    ) -> PivotedCholesky:
        """The factor of an operator that is not centered; see `pivoted_cholesky`."""
        return LANDMARKS[self.landmarks](op, self.rank_for(op.shape[0], p), rng, tol=self.tol, report=report)


def checked_landmarks(landmarks: Any, n: int) -> np.ndarray:
    """Different row numbers, ascending, or an error."""
    chosen = np.asarray(landmarks).reshape(-1)
    if not chosen.size or chosen.dtype.kind not in "iu" or np.min(chosen) < 0 or np.max(chosen) >= n:
        raise InvalidParameterError(
            f"landmarks={landmarks!r} is not allowed; give at least one row number from 0 to {n - 1}."
        )
    return np.unique(chosen.astype(np.int64))
