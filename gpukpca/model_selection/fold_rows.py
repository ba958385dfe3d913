"""The rows of a fold: as they came, or in float32, and then what may be said by scores computed from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpukpca._typing import Array
from gpukpca.backend.namespace import cast, epsilon, namespace_of
from gpukpca.backend.rows import feature_means, shifted_rows
from gpukpca.decomposition.preimage.space import square_sums
from gpukpca.decomposition.spectrum import splits_a_subspace
from gpukpca.eigen import EigenResult
from gpukpca.kernels import Kernel
from gpukpca.kernels.families import is_of_distances

# Rows of such a length about their mean have squares, and small differences of squares, in the range of float32.
LENGTHS = (1e-12, 1e12)
# In units of eps (lambda_1 + sqrt(n)), what rounding moves the eigenvalues of a kernel of values up to 1 by: the least
# size of the last one, and the distance from the next at which the two may be equal (1.2 was found between equal ones).
CLEAR, EQUAL = 100.0, 2.0
# From this share of the variance a mean squared error is known to 1e-5 or better, being the square of a difference.
LEAST_ERROR = 1e-4


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

    def doubts(self, eigen: EigenResult, score: float) -> bool:
        """Whether rounding in float32 may show in a score: in the last component, or in an error near its own."""
        if self.variance is None:
            return False
        blurred = float(eigen.eigenvalues[-1]) <= max(CLEAR * self._rounding(eigen), eigen.null_threshold)
        return blurred or not -score > LEAST_ERROR * self.variance

    def cuts(self, eigen: EigenResult) -> bool:
        """Whether the components end between two that are not separately determined; of float32, that may not be."""
        if not self.narrow:
            return splits_a_subspace(eigen)
        return eigen.gap is not None and eigen.gap <= EQUAL * self._rounding(eigen)

    def _rounding(self, eigen: EigenResult) -> float:
        return epsilon(self.X) * (float(eigen.eigenvalues[0]) + math.sqrt(int(self.X.shape[0])))
