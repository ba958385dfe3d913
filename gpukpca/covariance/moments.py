"""Count, mean and centered sums of squares of rows in batches."""

from __future__ import annotations

from dataclasses import dataclass

from gpukpca._typing import Array
from gpukpca.backend.linalg import column_sums
from gpukpca.backend.namespace import cast, namespace_of
from gpukpca.data.frequencies import Frequencies
from gpukpca.data.statistics import feature_means


@dataclass(frozen=True)
class Moments:
    """Count, mean (d,) and Σ (x - mean)² (d,) of rows, in the widest floating type."""

    count: float
    mean: Array
    squares: Array

    @property
    def total(self) -> float:
        """Return the sum of the squares over all features."""
        return float(namespace_of(self.squares).sum(self.squares))

    def merged(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows (Chan, Golub & LeVeque, The American Statistician 37 (1983) 242)."""
        total = self.count + other.count
        step = other.mean - self.mean
        return Moments(
            total,
            self.mean + step * (other.count / total),
            self.squares + other.squares + step * step * (self.count * other.count / total),
        )


def moments_and_rows(X: Array, center: bool = True, frequencies: Frequencies | None = None) -> tuple[Moments, Array]:
    """Return the moments of the rows of one batch, and the centered rows in the widest floating type.

    The mean of a constant column is its entry without rounding, so that the deviations are 0. Without `center` the
    moments are those about 0: the mean is 0, and the rows are X. With frequencies rows are multiplied by their roots.
    """
    mean, xp = feature_means(X), namespace_of(X)
    count = int(X.shape[0]) if frequencies is None else frequencies.count
    if not center:
        rows = cast(X, mean.dtype)
        rows = rows if frequencies is None else frequencies.rooted(rows)
        return Moments(count, xp.zeros_like(mean), column_sums(rows * rows)), rows
    mean = xp.where(xp.all(X[:1, :] == X, axis=0), cast(X[0, :], mean.dtype), mean)
    rows = cast(X, mean.dtype) - mean[None, :]
    if frequencies is not None:
        step = frequencies.sums(rows, frequencies.roots**2) / count
        mean, rows = mean + step, frequencies.rooted(rows - step[None, :])
    # The mean was rounded, so the rows do not quite sum to zero.
    left = column_sums(rows) if frequencies is None else frequencies.sums(rows)
    squares = column_sums(rows * rows) - left * left / count
    # Overflow is NaN here, which must not become 0.
    return Moments(count, mean, xp.where(squares < 0, xp.zeros_like(squares), squares)), rows
