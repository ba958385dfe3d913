"""The affine space of a fitted model in feature space: its points, and how far others are from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.model import MapArrays
from gpukpca.backend.linalg import row_products
from gpukpca.backend.namespace import accumulation_dtype, cast, epsilon, namespace_of, to_host
from gpukpca.backend.rows import by_panels, row_panels, take_rows
from gpukpca.gram.product import prepared_matmat
from gpukpca.kernels import Kernel

# Squared distances below so many eps of the numbers that cancel in them are rounding.
ROUNDING = 1e3


@dataclass(frozen=True)
class FeatureSpace:
    """The points m + z V of feature space, with m = Σ c_j φ(b_j) and orthonormal axes V = Aᵀ Φ(b) over a basis b.

    Attributes
    ----------
    kernel : Kernel
    map : MapArrays
        Basis, A, c, ‖m‖² and Vᵀ m, for kernel values as tiles of the prepared basis have them.
    n_jobs : int, optional
    """

    kernel: Kernel
    map: MapArrays
    n_jobs: int | None = None

    def weights(self, Z: Array) -> Array:
        """γ with m + z V = Σ γ_j φ(b_j) for every row z, shape (rows, m): A z + c."""
        A = self.map.projection[:, : Z.shape[1]]
        return row_products(Z, A) + cast(self.map.mean_weights, Z.dtype)[None, :]

    def square_distances(self, Y: Any, q: int) -> Array:
        """Squared distances of φ(y) from the space of the first q axes, in the widest type, shape (rows,).

        ‖φ(y) - m‖² - ‖z‖² with ‖φ(y) - m‖² = k(y, y) - 2 Σ c_j k(y, b_j) + ‖m‖²; c is one more column beside A.
        """
        m = self.map
        xp = namespace_of(m.projection)
        column = cast(m.mean_weights, m.projection.dtype)[:, None]
        V = xp.concat([m.projection[:, :q], column], axis=1)
        rows = m.prepared(self.kernel)
        products = prepared_matmat(self.kernel, Y, m.basis, rows, V, n_jobs=self.n_jobs)
        Z = products[:, :q] - m.offset[None, :q]
        return self.remaining(self._diagonal(Y), products[:, q], Z)

    def remaining(self, diagonal: Array, means: Array, Z: Array) -> Array:
        """The squared distances from k(y, y), Σ c_j k(y, b_j) and scores (rows, q)."""
        wide = self.map.mean_weights.dtype
        diagonal, means = cast(diagonal, wide), cast(means, wide)
        distances = diagonal - 2.0 * means + self.map.mean_norm - square_sums(Z)
        return self._above_rounding(distances, diagonal, epsilon(Z))

    def _diagonal(self, Y: Any) -> Array:
        """k(y, y), a panel of rows at a time."""
        template = self.map.prepared(self.kernel).template
        dtype = self.map.projection.dtype
        parts = [
            self.kernel.tile_diagonal(self.kernel.prepare(cast(take_rows(Y, *bounds), dtype), like=template))
            for bounds in row_panels(Y)
        ]
        return parts[0] if len(parts) == 1 else namespace_of(parts[0]).concat(parts, axis=0)

    def _above_rounding(self, distances: Array, diagonal: Array, eps: float) -> Array:
        """0 for negative squared distances that rounding made; for all where the kernel allows no others."""
        xp = namespace_of(distances)
        made = distances < 0
        if self.kernel.positive_definite is not True:
            size = xp.abs(diagonal) + abs(self.map.mean_norm)
            made = xp.logical_and(made, distances > -ROUNDING * eps * size)
        return xp.where(made, xp.zeros_like(distances), distances)


def square_sums(Z: Array) -> Array:
    """‖z‖² of every row in the widest type, shape (rows,)."""
    wide = accumulation_dtype(Z)

    def panel(rows: Array, *_: int) -> Array:
        rows = cast(rows, wide)
        return namespace_of(rows).sum(rows * rows, axis=1)

    return by_panels(Z, panel)


def nearest(rows: Array, among: Array) -> np.ndarray:
    """Which row of `among` is nearest to every row, on the host; the first of several."""
    # ‖r - a‖² less what does not depend on a, halved.
    distances = 0.5 * cast(square_sums(among), rows.dtype)[None, :] - row_products(rows, among)
    return to_host(namespace_of(rows).argmin(distances, axis=1))
