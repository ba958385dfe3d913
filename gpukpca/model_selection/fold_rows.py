"""The rows of a fold: as they came, or in float32, and then what may be said by scores computed from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import cast, epsilon, namespace_of, to_host
from gpukpca.backend.rows import feature_means, shifted_rows
from gpukpca.decomposition.choices import is_word
from gpukpca.decomposition.preimage.ridge import RidgeRegression
from gpukpca.decomposition.preimage.space import square_sums
from gpukpca.eigen import EigenResult
from gpukpca.kernels import Kernel
from gpukpca.kernels.bandwidth import median_is_sharp
from gpukpca.kernels.families import is_of_distances

# Rows of such a length about their mean have squares, and small differences of squares, in the range of float32.
LENGTHS = (1e-12, 1e12)
# In units of eps (lambda_1 + sqrt(n)), what rounding moves the eigenvalues of a kernel of values up to 1 by (1.2 was
# found): the least size of the last one, and its least distance from the next, times its share of those before it.
# For a share of 1/50 that is 10: nearer than 2 most scores were off by more than 1e-4, beyond 20 two in a thousand.
CLEAR, APART = 100.0, 500.0
# By this share of it the median distance of the scores may depend on which of them rounding tells apart.
SAME_MEDIAN = 1e-5
# n / alpha bounds the condition c of the ridge's matrix. A mean squared error that is a share s of the variance is off
# by up to 2e-9 c / sqrt(s) of itself in float32, as was measured; with this limit of c / sqrt(s) that is 6e-5.
CONDITION = 3e4


@dataclass(frozen=True)
class FoldRows:
    """The rows of a fold as its fits take them.

    Attributes
    ----------
    X, X_new : array, shape (n, d), (m, d)
        As they came, or in float32 about the mean of the training rows.
    variance : float or None
        Mean squared distance of the training rows from their mean; None for rows as they came.
    """

    X: Array
    X_new: Array
    variance: float | None = None

    @property
    def narrow(self) -> bool:
        """Whether they are in float32 though they came in float64."""
        return self.variance is not None

    def narrowed(self, common: Kernel) -> FoldRows:
        """In float32; as they came for kernels that see where data lie, and for sizes that float32 has no room for."""
        if not is_of_distances(common):
            return self
        xp, mean = namespace_of(self.X), feature_means(self.X)
        X, X_new = (shifted_rows(rows, mean, 1.0, rows.dtype) for rows in (self.X, self.X_new))
        variance = float(xp.mean(square_sums(X)))
        if not LENGTHS[0] < math.sqrt(variance) < LENGTHS[1]:
            return self
        return FoldRows(cast(X, xp.float32), cast(X_new, xp.float32), variance)

    def doubts(self, eigen: EigenResult, preimage: RidgeRegression, score: float) -> bool:
        """Whether float32 may show in a score: in the last component, in the solution of the ridge, or in its gamma."""
        if self.variance is None:
            return False
        n, values, gap = int(self.X.shape[0]), to_host(eigen.eigenvalues).astype(np.float64), eigen.gap
        unit = epsilon(self.X) * (values[0] + math.sqrt(n))
        blurred = values[-1] <= max(CLEAR * unit, eigen.null_threshold)
        tied = gap is not None and gap <= APART * unit * values[-1] / max(np.sum(values), unit)
        condition = 1.0 + n / preimage.rule.alpha
        known = condition <= CONDITION * math.sqrt(-score / self.variance)  # not where the score is NaN
        return bool(blurred or tied or not known) or not bool(np.all(eigen.converged)) or _joins_scores(preimage)


def _joins_scores(preimage: RidgeRegression) -> bool:
    """Whether gamma between the scores is their median's, and which of them float32 tells apart decides on it."""
    of_median = is_word(preimage.rule.kernel.gamma, "median")  # type: ignore[attr-defined]
    return of_median and not median_is_sharp(preimage.scores, SAME_MEDIAN)
