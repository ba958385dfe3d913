"""The exact pre-image of the linear kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpukpca._typing import Array
from gpukpca.algorithms.preimage.result import Found, PreimageInfo
from gpukpca.backend.namespace import cast, namespace_of
from gpukpca.backend.rows import by_panels, feature_means, row_panels


@dataclass(frozen=True)
class LinearPreimage:
    """x = mean + z V, the reconstruction of PCA.

    Attributes
    ----------
    components : array, shape (p, d)
        The rows of V.
    mean, wide_mean : array, shape (d,)
        In the dtype of X, and in the widest.
    """

    components: Array
    mean: Array
    wide_mean: Array

    @classmethod
    def fitted(cls, X: Array, projection: Array) -> LinearPreimage:
        """Axes V = Aᵀ (X - mean) of training rows."""
        mean = feature_means(X)
        components = _summed_rows(X, mean, projection)
        return cls(components, cast(mean, X.dtype), mean)

    @classmethod
    def on_landmarks(cls, basis: Array, center: Array, projection: Array, mean_weights: Array) -> LinearPreimage:
        """Axes V = Aᵀ (b - center) about center + Σ c_j (b_j - center), for landmarks b and weights c."""
        components = _summed_rows(basis, center, projection)
        mean = center + _summed_rows(cast(basis, center.dtype), center, mean_weights[:, None])[0, :]
        return cls(components, cast(mean, basis.dtype), mean)

    def __call__(self, Z: Array, start: Array | None = None) -> Found:
        """Z may have fewer columns than there are components: those that come first."""
        points = Z @ self.components[: Z.shape[1], :] + self.mean[None, :]
        return points, PreimageInfo.direct(int(Z.shape[0]))

    def scores(self, Y: Array) -> Array:
        """The scores of new rows: (y - mean) Vᵀ, a panel at a time; d products a row, not n."""
        axes = namespace_of(self.components).matrix_transpose(self.components)
        return by_panels(Y, lambda rows, *_: self._centered(rows) @ axes)

    def square_distances(self, Y: Array, Z: Array) -> Array:
        """‖y - mean - z V‖² of every row of Y with scores Z (m, q), in the widest type, shape (m,)."""
        components = self.components[: Z.shape[1], :]

        def panel(rows: Array, start: int, stop: int) -> Array:
            off = cast(self._centered(rows) - Z[start:stop, :] @ components, self.wide_mean.dtype)
            return namespace_of(off).sum(off * off, axis=1)

        return by_panels(Y, panel)

    def _centered(self, rows: Any) -> Array:
        return cast(cast(rows, self.wide_mean.dtype) - self.wide_mean[None, :], self.components.dtype)


def _summed_rows(X: Array, center: Array, weights: Array) -> Array:
    """weightsᵀ (X - center), a panel of rows at a time."""
    total: Array = None
    for start, stop in row_panels(X):
        rows = cast(cast(X[start:stop, :], center.dtype) - center[None, :], X.dtype)
        part = namespace_of(X).matrix_transpose(weights[start:stop, :]) @ rows
        total = part if total is None else total + part
    return total
