"""The drift of a stream from its landmarks: the share of the last rows that they miss, and of the first ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Self

import numpy as np

from gpukpca.algorithms.fields import field_of, record
from gpukpca.eigen.pivoted_factor import PivotedCholesky
from gpukpca.exceptions import PrecisionWarning, warn_user

# Rows after which the weight of one falls to 1/e among the last rows, and how many times as fast among the first.
WINDOW, FASTER = 1000.0, 10
# The last share is larger where it exceeds so many times the first and so much, or where what is explained is less by
# that factor, and by so many standard deviations. None of 560 streams without a drift gave a warning.
FACTOR, AMOUNT, DEVIATIONS = 2.0, 0.02, 3.0


@record(eq=False, kw_only=True)
class Drift:
    """Sums (Σ a E, Σ a k, max a k) over rows, on the host: k = k(x, x), E = k - ‖f(x)‖², and weights a that fade.

    Every row counts once, whatever its `sample_weight`: how often it counts does not say where it lies.
    """

    sums: np.ndarray = field_of("3 3", "of the rows among which landmarks were chosen, the first rows, and the last")
    faded: float = field_of("", "exp(-n / WINDOW) of n rows, and 0 where they had no order", "nonnegative", default=1.0)
    reported: float = field_of("", "the last share of which a warning was given", "nonnegative", default=0.0)

    @classmethod
    def of_candidates(cls, factor: PivotedCholesky, largest: float, weights: np.ndarray | None) -> Self:
        """Return the sums over the rows of a factor, and no others; `largest` is max w k(x, x).

        The error of a landmark is 0, and that of a later row is not. So a landmark counts with 1 / (K(S, S)⁻¹)_ii, its
        error for the other landmarks: of landmarks that are drawn evenly, both kinds of rows then have one mean.
        """
        alone = (1.0 if weights is None else weights[factor.pivots]) / np.sum(factor.inverse**2, axis=0)
        sums = np.zeros((3, 3))
        sums[0] = factor.residual_trace + float(np.sum(alone)), factor.trace, max(largest, 0.0)
        return cls(sums=sums)

    def of_rows(self, residuals: np.ndarray, diagonal: np.ndarray) -> Drift:
        """Return the sums with other rows in order, from E and k of each, shape (n,)."""
        b = np.arange(len(diagonal))
        a = np.exp(np.stack([-FASTER * b, -b[::-1]]) / WINDOW)
        own = np.column_stack([a @ residuals, a @ diagonal, np.max(a * diagonal, axis=1, initial=0.0)])
        return replace(self, sums=np.concatenate([self.sums[:1], own]), faded=math.exp(-len(b) / WINDOW))

    def without_order(self, residual: float, trace: float, n: int) -> Drift:
        """Return the sums with n other rows without an order: all of them are the first, and none is the last."""
        return replace(self, sums=np.stack([self.sums[0], [residual, trace, trace / n], np.zeros(3)]), faded=0.0)

    def merged(self, other: Drift) -> Drift:
        """Return the sums over the rows of both, those of the other after these."""
        weights = np.array([[1.0, 0.0], [1.0, self.faded**FASTER], [other.faded, 1.0]])
        before, after = self.sums * weights[:, :1], other.sums * weights[:, 1:]
        sums = np.append((before + after)[:, :2], np.maximum(before, after)[:, 2:], axis=1)
        return replace(self, sums=sums, faded=self.faded * other.faded)

    def with_warning(self) -> Drift:
        """Return the sums; warn where the last share exceeds the first one, and twice what was reported before."""
        *firsts, (last, least, _) = map(_interval, self.sums)
        first, _, most = max(firsts)  # by the share
        allowed = max(min(FACTOR * first + AMOUNT, 1.0 - (1.0 - first) / FACTOR), 2.0 * self.reported)
        if least <= most or last <= allowed:
            return self
        warn_user(
            "the stream leaves its landmarks: they miss a larger share of the last rows than of the first. The "
            "certificate counts what is missed, and no component shows it. Begin a new stream with landmarks of recent "
            'rows; read the rows twice, Nystrom(sample="reservoir"); or allow a larger rank.',
            PrecisionWarning,
            last=last,
            first=first,
        )
        return replace(self, reported=last)

    def __str__(self) -> str:
        first, _, last = (share for share, *_ in map(_interval, self.sums))
        return f"; the landmarks miss {last:.2g} of the last rows, {first:.2g} of the first" if self.reported else ""


def _interval(sums: np.ndarray) -> tuple[float, float, float]:
    """Return the share Σ a E / Σ a k, and bounds on it by Wilson (J. Am. Stat. Assoc. 22 (1927) 209).

    No share in [0, 1] varies more than the binomial one. Rows count as many as the largest a k fits into Σ a k.
    """
    missed, total, largest = sums.tolist()
    share, n = (min(max(missed / total, 0.0), 1.0), total / largest) if total > 0.0 else (0.0, 0.0)
    squared = DEVIATIONS**2
    middle, width = share * n + squared / 2.0, DEVIATIONS * math.sqrt(share * (1.0 - share) * n + squared / 4.0)
    return share, (middle - width) / (n + squared), (middle + width) / (n + squared)
