"""The axes of the linear kernel: data space is its feature space, and d products a row take the place of n."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

from gpukpca._typing import Array
from gpukpca.algorithms.fields import documented, field_of
from gpukpca.backend.namespace import cast, epsilon, full, namespace_of
from gpukpca.backend.rows import by_panels, feature_means, row_panels

# In units of eps: what is left of the mean, relative to the deviation of the first scores, where it is kept.
VISIBLE = 16.0


@documented
@dataclass(frozen=True, eq=False)
class LinearAxes:
    """The space mean + z V of data space, in which scores of the linear kernel are coordinates."""

    components: Array = field_of("p d", "The rows of V.")
    mean: Array = field_of("d", "In the dtype of the data.")
    wide_mean: Array = field_of("d", "In the widest floating type.")
    rest: Array | None = field_of(
        "d", "The mean less `wide_mean`, in its type; None where that is below rounding of the scores.", default=None
    )

    @classmethod
    def of_rows(cls, X: Array, projection: Array) -> Self:
        """Return the axes V = Aᵀ (X - mean) of training rows (n, d), with A of shape (n, p)."""
        mean, n = feature_means(X), int(X.shape[0])
        rest = _weighted_sums(X, mean, full((n, 1), 1.0 / n, projection))[0, :]
        # The norm of a column of A is 1 / (sqrt(n) times the deviation of its scores).
        xp = namespace_of(projection)
        first = projection[:, : min(1, int(projection.shape[1]))]
        size = float(xp.max(xp.abs(rest))) * math.sqrt(n * float(xp.sum(first**2)))
        kept = cast(rest, mean.dtype) if size > VISIBLE * epsilon(projection) else None
        return cls(_weighted_sums(X, mean, projection), cast(mean, X.dtype), mean, kept)

    @classmethod
    def of_landmarks(cls, basis: Array, center: Array, projection: Array, mean_weights: Array) -> Self:
        """Return the axes V = Aᵀ (b - center) about center + Σ c_j (b_j - center), for landmarks b and weights c."""
        components = _weighted_sums(basis, center, projection)
        mean = center + _weighted_sums(cast(basis, center.dtype), center, mean_weights[:, None])[0, :]
        return cls(components, cast(mean, basis.dtype), mean)

    def truncated(self, keep: int) -> Self:
        """Return the first `keep` axes."""
        return replace(self, components=self.components[:keep, :])

    def points(self, Z: Array) -> Array:
        """Return mean + z V; Z may have fewer columns than there are components: those that come first."""
        return Z @ self.components[: Z.shape[1], :] + self.mean[None, :]

    def scores(self, Y: Array) -> Array:
        """Return the scores of new rows, (y - mean) Vᵀ, a panel at a time."""
        axes = namespace_of(self.components).matrix_transpose(self.components)
        return by_panels(Y, lambda rows, *_: self._centered(rows) @ axes)

    def square_distances(self, Y: Array, Z: Array) -> Array:
        """Return ‖y - mean - z V‖² of every row of Y with scores Z (m, q), in the widest type, shape (m,)."""
        components = self.components[: Z.shape[1], :]

        def panel(rows: Array, start: int, stop: int) -> Array:
            off = cast(self._centered(rows) - Z[start:stop, :] @ components, self.wide_mean.dtype)
            return namespace_of(off).sum(off * off, axis=1)

        return by_panels(Y, panel)

    def _centered(self, rows: Any) -> Array:
        off = cast(rows, self.wide_mean.dtype) - self.wide_mean[None, :]
        return cast(off if self.rest is None else off - self.rest[None, :], self.components.dtype)


def _weighted_sums(X: Array, center: Array, weights: Array) -> Array:
    """Return weightsᵀ (X - center), a panel of rows at a time."""
    total: Array = None
    for start, stop in row_panels(X):
        rows = cast(cast(X[start:stop, :], center.dtype) - center[None, :], X.dtype)
        part = namespace_of(X).matrix_transpose(weights[start:stop, :]) @ rows
        total = part if total is None else total + part
    return total
