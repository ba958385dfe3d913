"""The choice of the landmarks of Nyström: how many, among which rows, in how many bytes, and the factor they give."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from gpukpca._typing import RankReport, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.random import keyed_generator, random_subset
from gpukpca.eigen.landmarks import (
    Nystrom,
    block_of_landmarks,
    drawn_cholesky,
    given_points,
    is_given,
    judges_norm,
    landmark_cholesky,
)
from gpukpca.eigen.norm_bound import SMALLEST_SAMPLE, NormLooks
from gpukpca.eigen.partial_cholesky import default_block, pivot_panel
from gpukpca.eigen.pivoted_factor import PivotedCholesky

# Landmarks by default: ten a component, and a number that costs little.
LANDMARKS_A_COMPONENT, FEWEST_LANDMARKS = 10, 500
# Rows among which a fit in one pass chooses its landmarks: so many a landmark, and the fewest.
SAMPLED_A_LANDMARK, FEWEST_SAMPLED = 10, 2000
# A limit holds so many times the rows: as they are, prepared, in the panel of a tile, and the rest.
SAMPLE_SHARE = 32
# Of the bound on the norm: slots at least, beyond them the share of the fit's operations, and slots at most; the rows
# of a stream whose end is not known.
FEWEST_SLOTS, SLOT_SHARE, MOST_SLOTS = 500, 0.02, 8192
STREAM_ROWS = 100_000
# Square matrices in float64 of a bound.
LOOK_COPIES = 4


def entry_bytes(rows: int) -> int:
    """Return the bytes of a bound from the entries of K - F Fᵀ between so many rows."""
    return 8 * LOOK_COPIES * rows**2


@dataclass(frozen=True)
class LandmarkChoice:
    """The landmarks that the options of a `Nystrom` mean for a fit.

    Attributes
    ----------
    options : Nystrom
        Their rank is a number, which a stream of few rows may not reach.
    rank : int
        Landmarks of the rows.
    """

    options: Nystrom
    rank: int

    @classmethod
    def of(cls, options: Any, n: int | None, p: int) -> Self:
        """Return the choice for `p` components of n rows; None: their number is not known. Given landmarks are all."""
        rank = options.rank or max(LANDMARKS_A_COMPONENT * p, FEWEST_LANDMARKS)
        options = options if options.rank else replace(options, rank=rank)
        return cls(options, rank if n is None or is_given(options) else min(n, rank))

    @classmethod
    def of_points(cls, d: int) -> Self:
        """Return the choice of d + 1 points that span the rows of d features."""
        return cls(Nystrom(d + 1, landmarks=list(range(d + 1)), bound_rows=0), d + 1)

    def of_first(self, count: int) -> Self:
        """Return the choice of all given landmarks, which are the first rows; they are those without a look."""
        options = replace(self.options, rank=count, landmarks=list(range(count)), bound="trace")
        return replace(self, options=options, rank=count)

    @property
    def is_given(self) -> bool:
        """Return whether the caller gave the landmarks; else a rule chooses them."""
        return is_given(self.options)

    @property
    def points(self) -> np.ndarray | None:
        """Return given landmarks that are points, shape (rank, d), on the host; else None."""
        return given_points(self.options)

    @property
    def _is_drawn(self) -> bool:
        """Return whether randomly pivoted Cholesky draws the landmarks."""
        return not self.is_given and self.options.landmarks == "rpcholesky"

    def sample_within(self, row_bytes: int, limit: int | None) -> int:
        """Return how many rows of `row_bytes` a fit in one pass chooses landmarks among, within a `limit` of bytes."""
        rank = int(self.options.rank or 0)
        rows = rank if self.is_given else max(FEWEST_SAMPLED, SAMPLED_A_LANDMARK * rank)
        return rows if limit is None else max(rank, min(rows, limit // (SAMPLE_SHARE * row_bytes)))

    def slots_for(self, n: int | None, d: int, most: int | None) -> int:
        """Return how many of n rows (None: not known) bound the norm; at most as many as fit into memory."""
        # By default the entries of K - F Fᵀ between them take `SLOT_SHARE` of the fit.
        if (s := self.options.bound_rows) is None:
            n, s, rank = STREAM_ROWS if n is None else n, FEWEST_SLOTS, self.rank
            allowed = SLOT_SHARE * 2.0 * n * rank * (rank + d)
            while s < MOST_SLOTS and (more := s * 5 // 4) * ((more + rank) * (d + rank) + more**2 / 6) <= allowed:
                s = more
            s = s if most is None else min(s, most)
            s *= s >= SMALLEST_SAMPLE
        return s

    def look_rows(self, n: int) -> int:
        """Return the most rows of a bound while F grows; 0 where there is none."""
        # The matrices of a look are no larger than F, if that is much.
        most = min(MOST_SLOTS, max(FEWEST_SLOTS * 4, math.isqrt(n * self.rank // LOOK_COPIES)))
        return min(n, self.options.bound_rows or most) if judges_norm(self.options) else 0

    def growth_bytes(self, n: int, item: int, workers: int, on_gpu: bool) -> int:
        """Return the most bytes that are held while F grows: columns of K, and every worker's panels."""
        rank = self.rank
        block = default_block(rank) if self._is_drawn else block_of_landmarks(rank, self.options.tol)
        first, last = (min(n, pivot_panel(n, columns, on_gpu)) for columns in (block, rank))
        entry = 28 if item < 8 else 16  # where small pivots widen float32 columns
        panels = first * (entry * block + 24 * min(block, blocking.ELIMINATION_BLOCK)) + 8 * last * rank * (item < 8)
        return max(default_block(rank) * n * item, workers * panels, entry_bytes(self.look_rows(n)))

    def factor(
        self,
        op: SymmetricOperator,
        rng: np.random.Generator,
        report: RankReport | None = None,
        sample_weight: np.ndarray | None = None,
        least: int = 0,
    ) -> PivotedCholesky:
        """Return the factor of an operator that is not centered; see `pivoted_cholesky`."""
        options, n = self.options, op.shape[0]
        how: dict[str, Any] = {"tol": options.tol, "report": report, "sample_weight": sample_weight, "least": least}
        if judges_norm(options):
            how["looks"] = NormLooks(keyed_generator(int(rng.integers(2**63))), self.look_rows(n))
        if self._is_drawn:
            return drawn_cholesky(op, self.rank, rng, **how)
        return landmark_cholesky(op, options.landmarks if self.is_given else random_subset(rng, n, self.rank), **how)
