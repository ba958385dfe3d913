"""Rows prepared for functions of the Euclidean distance, and two ways to compute T = -gamma ‖x - y‖² from them.

With s = sqrt(2 gamma) (x - mean) and t alike, T = s·t - ‖s‖²/2 - ‖t‖²/2: one matrix product of the rows
[s, -‖s‖²/2, 1] and [t, 1, -‖t‖²/2]. Where that product would lose the digits of T, distances are differences of
coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend import elementwise, linalg
from gpukpca.backend.device import missing_columns
from gpukpca.backend.namespace import accumulation_dtype, cast, indices, is_sparse, item_size, namespace_of
from gpukpca.data.csr import sparse_square_distances
from gpukpca.data.slicing import by_panels, place_of
from gpukpca.data.statistics import row_square_sums
from gpukpca.kernels.prepared import DataRows


@dataclass(frozen=True)
class Geometry:
    """The map from the rows of a training set to s, which new rows share."""

    mean: Array | None  # (d,), is subtracted first; None where rows are kept as they are
    gamma: float
    exponent: int = 0  # rows kept as they are were divided by 2**exponent, so that gamma 4**exponent is near 1
    flat: bool = False  # the tile holds k - 1
    wide: bool = False  # the matrix product is formed in the widest type
    # The features that vary in the training set, on the host, where omitting the others from the product pays: a
    # constant feature only adds to the norms of new rows.
    varying: np.ndarray | None = None
    kink: bool = False  # the kernel has one at distance 0, so that near pairs are computed by differences
    spread: float = 0.0  # root mean square of gamma ‖x - mean‖² over the training set: the size of what cancels

    @property
    def scale(self) -> float:
        """Return sqrt(2 gamma)."""
        return math.sqrt(2.0 * self.gamma)


class EuclideanRows(DataRows):
    """Rows in the coordinates of a training set, shape (n_rows, at least d); `dtype` is that of the finished tile."""

    # The operand of the product with other rows; None where distances are differences.
    right: Any = None
    shifted: property = property(lambda self: self.geometry.flat)

    def __init__(self, data: Any, geometry: Geometry, dtype: Any) -> None:
        super().__init__(data)
        self.geometry = geometry
        self.dtype: Any = dtype

    @property
    def wide(self) -> bool:  # type: ignore[override]
        return self.geometry.kink or self.data.dtype != self.dtype

    @property
    def row_bytes(self) -> int:  # type: ignore[override]
        return 0 if is_sparse(self.data) else int(self.data.shape[1]) * item_size(self.data.dtype)

    @property
    def points(self) -> Any:
        """Return the coordinates alone, shape (n_rows, d); those of constant features are 0 in every training row."""
        return self.data

    def product(self, other: EuclideanRows, out: Array | None = None) -> Array | None:
        """Return T by a matrix product, in the wider of the two dtypes; None where distances are differences."""
        return None

    def product_fits_tile(self, other: EuclideanRows) -> bool:
        """Return whether the product is formed in the dtype of the tile, or at no cost beyond it."""
        return False

    def differences(self, other: EuclideanRows) -> Array:
        """Return T by differences, in the widest dtype, shape (n_rows, other.n_rows)."""
        geometry, wide = other.geometry, accumulation_dtype(place_of(self.data))
        a, b = cast(self.points, wide), cast(other.points, wide)
        T = sparse_square_distances(a, b) if is_sparse(a) else linalg.distances(a, b, "sqeuclidean")
        if geometry.mean is not None:
            return elementwise.multiply(T, -0.5)
        return elementwise.multiply(T, -math.ldexp(geometry.gamma, 2 * geometry.exponent))


class DifferenceRows(EuclideanRows):
    """Coordinates s, or x itself, too far from the mean for products to keep the digits of distances."""

    wide = True


class ProductRows(EuclideanRows):
    """Dense rows [s, -‖s‖²/2, 1], shape (n_rows, d + 2)."""

    @cached_property
    def right(self) -> Array:
        """Return the rows [s, 1, -‖s‖²/2] as a copy."""
        xp, d = namespace_of(self.data), self.data.shape[1] - 2
        parts = [self.data[:, :d], self.data[:, d + 1 : d + 2], self.data[:, d : d + 1]]
        return xp.concat(parts, axis=1)

    @property
    def points(self) -> Array:
        mean: Array = self.geometry.mean
        xp, varying, d = namespace_of(self.data), self.geometry.varying, int(mean.shape[0])
        if varying is None:
            return self.data[:, :d]
        points = self.data[:, : len(varying)]
        places = np.full(d, len(varying))
        places[varying] = np.arange(len(varying))
        return xp.take(xp.concat([points, xp.zeros_like(self.data[:, :1])], axis=1), indices(places, points), axis=1)

    def product_fits_tile(self, other: EuclideanRows) -> bool:
        return bool(self.data.dtype == other.data.dtype == other.dtype)

    def product(self, other: EuclideanRows, out: Array | None = None) -> Array | None:
        left, right = self.data, other.right
        if right is None:
            return None
        if left.dtype != right.dtype:
            wide = accumulation_dtype(left)
            left, right = cast(left, wide), cast(right, wide)
        return linalg.row_products(left, right, out)


class SparseProductRows(EuclideanRows):
    """CSR rows s, shape (n_rows, d), in float64, with `half_norms` ‖s‖²/2, shape (n_rows,)."""

    by_row: ClassVar[tuple[str, ...]] = ("data", "half_norms")

    def __init__(self, data: Any, geometry: Geometry, dtype: Any) -> None:
        super().__init__(data, geometry, dtype)
        self.half_norms: Array = 0.5 * row_square_sums(data)

    @cached_property
    def right(self) -> Any:
        """Return the rows as CSC, whose transpose SciPy multiplies by as it is."""
        return self.data.tocsc()

    def product_fits_tile(self, other: EuclideanRows) -> bool:
        return bool(self.data.dtype == other.dtype)

    def product(self, other: EuclideanRows, out: Array | None = None) -> Array | None:
        if not isinstance(other, SparseProductRows):
            return None
        T = linalg.row_products(self.data, other.right, out)
        T -= self.half_norms[:, None]
        T -= other.half_norms[None, :]
        return T


def augmented_rows(X: Array, geometry: Geometry, dtype: Any) -> Array:
    """Return the rows [s, -‖s‖²/2, 1] of X, by panels; zeros widen s to the width that suits the device."""
    mean: Array = geometry.mean

    def panel(rows: Array, *_: int) -> Array:
        xp = namespace_of(rows)
        s = cast((cast(rows, mean.dtype) - mean[None, :]) * geometry.scale, dtype)
        half_norms = 0.5 * row_square_sums(s)
        if geometry.varying is not None:
            s = xp.take(s, indices(geometry.varying, s), axis=1)
        one = xp.ones_like(half_norms)[:, None]
        # By the dtype of the data: rows in float64 get the width of the float32 rows of the same set.
        padding = [0.0 * one] * missing_columns(rows, int(s.shape[1]) + 2)
        return xp.concat([s, *padding, -half_norms[:, None], one], axis=1)

    return by_panels(X, panel)
