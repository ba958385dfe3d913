"""Kernels of the distance: Gaussian (RBF), Laplacian, Matérn, rational quadratic.

For the Euclidean ones a tile begins as T = -gamma ‖x - y‖² = s·t - ‖s‖²/2 - ‖t‖²/2 with s = sqrt(2 gamma) (x - mean)
and t alike: one matrix product of the rows [s, -‖s‖²/2, 1] and [t, 1, -‖t‖²/2], then one pass in place. Centring the
features first changes no distance and removes the cancellation that an offset causes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend import elementwise, linalg
from gpukpca.backend.creation import full
from gpukpca.backend.namespace import accumulation_dtype, cast, is_sparse, namespace_of
from gpukpca.backend.rows import (
    as_csr,
    dense_rows,
    feature_means,
    place_of,
    row_square_sums,
    shifted_rows,
    take_rows,
    total_range,
)
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels.base import Kernel, Rows
from gpukpca.kernels.parameters import checked_number

# Bounds on kappa = max gamma ‖x - mean‖², the size of the numbers that cancel in T. The error of T is about u·kappa:
# 2e-6 in float32 up to the first bound; beyond it the product is formed in float64, where the error stays under
# 1e-10 up to the second; beyond that distances are differences, at the price of a slower loop.
KAPPA_FLOAT32 = 32.0
KAPPA_FLOAT64 = 5e5
# Below this bound on gamma ‖x - y‖² the kernel is so flat that 1 swamps its differences: the tile holds k - 1.
FLAT = 0.1


@dataclass(frozen=True)
class Geometry:
    """How the rows of a training set became s: shared with every new row.

    Attributes
    ----------
    mean : array, shape (d,), or None
        Subtracted first; None where rows are kept as they are.
    gamma : float
    exponent : int
        Rows kept as they are were divided by 2**exponent, so that their squares are finite; 0 for ordinary data.
    flat : bool
        The tile holds k - 1.
    """

    mean: Array | None
    gamma: float
    exponent: int = 0
    flat: bool = False

    @property
    def scale(self) -> float:
        """sqrt(2 gamma)."""
        return math.sqrt(2.0 * self.gamma)


class DistanceRows(Rows):
    """Rows [s, -‖s‖²/2, 1], or s or x alone where distances are differences, or CSR s with its half norms.

    Attributes
    ----------
    data : array, shape (n_rows, d + 2) with a product, (n_rows, d) without; or CSR matrix (n_rows, d)
    geometry : Geometry
    by_product : bool
    dtype : dtype of the finished tile
    half_norms : array, shape (n_rows,), only for CSR rows
    """

    def __init__(
        self, data: Any, geometry: Geometry, by_product: bool, dtype: Any, half_norms: Array | None = None
    ) -> None:
        self.data, self.geometry, self.by_product, self.dtype = data, geometry, by_product, dtype
        self.half_norms = half_norms
        self.n_rows = int(data.shape[0])

    def slice(self, start: int, stop: int) -> DistanceRows:
        norms = None if self.half_norms is None else self.half_norms[start:stop]
        return DistanceRows(take_rows(self.data, start, stop), self.geometry, self.by_product, self.dtype, norms)

    @cached_property
    def right(self) -> Array:
        """The rows [s, 1, -‖s‖²/2], in memory of their own."""
        xp = namespace_of(self.data)
        d = self.data.shape[1] - 2
        parts = [self.data[:, :d], self.data[:, d + 1 : d + 2], self.data[:, d : d + 1]]
        return xp.concat(parts, axis=1)

    @property
    def points(self) -> Array:
        """The coordinates alone."""
        return self.data[:, : self.data.shape[1] - 2] if self.by_product else self.data


class _EuclideanKernel(Kernel):
    """A function of gamma ‖x - y‖² = ‖x - y‖² / (2 l²)."""

    positive_definite = True
    can_be_flat = False
    # A kernel with a kink at distance 0 sees the square root of the rounding error there.
    smooth_at_zero = True

    def __init__(self, gamma: Any = None) -> None:
        self.gamma = gamma

    @classmethod
    def from_sigma(cls, sigma: float, **parameters: Any) -> Any:
        """The kernel with length scale `sigma`: gamma = 1 / (2 sigma²)."""
        sigma = checked_number(cls.__name__, "sigma", sigma, low=0, strict=True, what="a number > 0")
        return cls(gamma=1.0 / (2.0 * sigma * sigma), **parameters)

    def check(self) -> None:
        checked_number(type(self).__name__, "gamma", self.gamma, low=0, what="a number >= 0")

    # -- rows ------------------------------------------------------------------------------------------------------

    def prepare_rows(self, X: Array, like: DistanceRows | None, centered: bool) -> DistanceRows:
        if is_sparse(X) and (like is None or is_sparse(like.data)):
            return self._sparse_rows(X, like, centered)
        if like is not None:
            return self._new_rows(_matching(X, like), like)
        geometry = Geometry(feature_means(X), float(self.gamma))
        rows, kappa = self._product_rows(X, geometry)
        if rows is None:
            # Differences of the rows as they are: a mean that one far-out row dominates would cost the others digits.
            exponent = _large_exponent(X)
            wide = cast(X, accumulation_dtype(X))
            geometry = Geometry(None, float(self.gamma), exponent)
            return DistanceRows(wide * 2.0**-exponent if exponent else wide, geometry, False, X.dtype)
        flat = self.can_be_flat and centered and 4.0 * kappa <= FLAT
        return DistanceRows(rows, replace(geometry, flat=flat), True, X.dtype)

    def _new_rows(self, X: Array, like: DistanceRows) -> DistanceRows:
        """Rows in the coordinates of the training rows."""
        geometry = like.geometry
        if is_sparse(X):
            return self._sparse_rows(X, like, False)
        wide = accumulation_dtype(X)
        if geometry.mean is None:
            rows = cast(X, wide)
            return DistanceRows(rows * 2.0**-geometry.exponent if geometry.exponent else rows, geometry, False, X.dtype)
        rows, _ = self._product_rows(X, geometry)
        if rows is None:
            return DistanceRows(shifted_rows(X, geometry.mean, geometry.scale, wide), geometry, False, X.dtype)
        return DistanceRows(rows, geometry, True, X.dtype)

    def _product_rows(self, X: Array, geometry: Geometry) -> tuple[Array | None, float]:
        """[s, -‖s‖²/2, 1] in the narrowest dtype that resolves the distances, None where none does; and kappa."""
        rows = shifted_rows(X, geometry.mean, geometry.scale, X.dtype)
        kappa = 0.5 * _largest_square_norm(rows)
        wide = accumulation_dtype(X)
        bound = KAPPA_FLOAT32 if X.dtype != wide and self.smooth_at_zero else KAPPA_FLOAT64
        if kappa <= bound and (self.smooth_at_zero or X.dtype == wide):
            return _augmented(rows), kappa
        del rows
        if kappa > KAPPA_FLOAT64:
            return None, kappa
        return _augmented(shifted_rows(X, geometry.mean, geometry.scale, wide)), kappa

    def _sparse_rows(self, X: Any, like: DistanceRows | None, centered: bool) -> DistanceRows:
        """CSR rows: no centring (it would fill them), half norms beside them, products in float64."""
        geometry = like.geometry if like is not None else Geometry(None, float(self.gamma))
        rows = X.astype(np.float64) * geometry.scale
        half_norms = 0.5 * row_square_sums(rows)
        if like is None:
            flat = self.can_be_flat and centered and 4.0 * float(half_norms.max(initial=0.0)) <= FLAT
            geometry = replace(geometry, flat=flat)
        return DistanceRows(rows, geometry, True, X.dtype, half_norms)

    # -- tiles -----------------------------------------------------------------------------------------------------

    def tile(self, a: DistanceRows, b: DistanceRows, out: Array | None = None) -> Array:
        T = negative_scaled_distances(a, b, out, exact_near_zero=not self.smooth_at_zero)
        return self._function(T, b.geometry.flat)

    def tile_diagonal(self, a: DistanceRows) -> Array:
        return full((a.n_rows,), 0.0 if a.geometry.flat else 1.0, place_of(a.data), a.dtype)

    def _function(self, T: Array, flat: bool) -> Array:
        raise AttributeError(f"{type(self).__name__} must define _function(T, flat)")


def negative_scaled_distances(a: DistanceRows, b: DistanceRows, out: Array | None, exact_near_zero: bool) -> Array:
    """T = -gamma ‖x - y‖² between two slices, at most 0, in the dtype of the finished tile."""
    if is_sparse(a.data):
        T = linalg.row_products(a.data, b.data)
        T -= a.half_norms[:, None]  # type: ignore[index]
        T -= b.half_norms[None, :]  # type: ignore[index]
        return cast(elementwise.clip_above(T, 0.0), b.dtype)
    if not (a.by_product and b.by_product):
        return _by_differences(a, b)
    left, right = _same_precision(a, b)
    usable = out if out is not None and out.dtype == left.dtype else None
    T = elementwise.clip_above(linalg.row_products(left, right, usable), 0.0)
    if exact_near_zero and _has_near_pair(T):
        return _by_differences(a, b)
    return cast(T, b.dtype)


def _same_precision(a: DistanceRows, b: DistanceRows) -> tuple[Array, Array]:
    """Left and right operand in the wider of the two dtypes: far-out new rows may have asked for float64."""
    if a.data.dtype == b.data.dtype:
        return a.data, b.right
    wide = accumulation_dtype(a.data)
    return cast(a.data, wide), cast(b.right, wide)


def _by_differences(a: DistanceRows, b: DistanceRows) -> Array:
    wide = accumulation_dtype(a.data)
    geometry = b.geometry
    T = linalg.squared_distances(cast(a.points, wide), cast(b.points, wide))
    if geometry.mean is not None:
        return cast(elementwise.multiply(T, -0.5), b.dtype)
    T = elementwise.multiply(T, -geometry.gamma)
    if geometry.exponent:
        half = 2.0 ** min(geometry.exponent, 1023)  # in two steps: the whole factor may not be a number
        T = elementwise.multiply(elementwise.multiply(T, half), half)
    return cast(T, b.dtype)


# With u·kappa under 1e-10, a pair at less than this T is near enough for a kink at zero to show rounding.
NEAR = -1e-6


def _has_near_pair(T: Array) -> bool:
    xp = namespace_of(T)
    return bool(xp.any(T > NEAR))


def _matching(X: Any, like: DistanceRows) -> Any:
    """X dense or CSR, as the training rows are."""
    return as_csr(X) if is_sparse(like.data) else dense_rows(X)


def _augmented(rows: Array) -> Array:
    """[s, -‖s‖²/2, 1]."""
    xp = namespace_of(rows)
    half_norms = 0.5 * row_square_sums(rows)
    return xp.concat([rows, -half_norms[:, None], xp.ones_like(half_norms)[:, None]], axis=1)


def _largest_square_norm(rows: Array) -> float:
    xp = namespace_of(rows)
    largest = float(xp.max(row_square_sums(rows))) if rows.shape[0] else 0.0
    return largest if math.isfinite(largest) else math.inf


def _large_exponent(X: Array) -> int:
    """e with max|X| < 2**e where squares of X could overflow float64 sums, else 0."""
    xp = namespace_of(X)
    if not X.shape[0]:
        return 0
    largest = max(abs(float(xp.max(X))), abs(float(xp.min(X))))
    exponent = math.frexp(largest)[1] if math.isfinite(largest) else 0
    return exponent if exponent > 400 else 0


class RBF(_EuclideanKernel):
    """Gaussian kernel k(x, y) = exp(-gamma ‖x - y‖²).

    Parameters
    ----------
    gamma : float >= 0, None, "scale" or "median"
        None is 1 / d. `RBF.from_sigma` takes the standard deviation instead: gamma = 1 / (2 sigma²).
    """

    can_be_flat = True

    def _function(self, T: Array, flat: bool) -> Array:
        return elementwise.gaussian(T, flat)


class RationalQuadratic(_EuclideanKernel):
    """k(x, y) = (1 + gamma ‖x - y‖² / alpha)^(-alpha); alpha to infinity gives `RBF`.

    Parameters
    ----------
    gamma : float >= 0, None, "scale" or "median"
        1 / (2 l²) with l the length scale of Rasmussen & Williams (2006), eq. 4.19. None is 1 / d.
    alpha : float > 0
    """

    can_be_flat = True
    exponentials = 4

    def __init__(self, gamma: Any = None, alpha: float = 1.0) -> None:
        self.gamma, self.alpha = gamma, alpha

    def check(self) -> None:
        super().check()
        checked_number("RationalQuadratic", "alpha", self.alpha, low=0, strict=True, what="a number > 0")

    def _function(self, T: Array, flat: bool) -> Array:
        return elementwise.rational_quadratic(T, float(self.alpha), flat)


class Matern(_EuclideanKernel):
    """Matérn kernel of smoothness nu = 1/2, 3/2, 5/2 or infinity.

    Parameters
    ----------
    gamma : float >= 0, None, "scale" or "median"
        1 / (2 l²) with l the length scale of Rasmussen & Williams (2006), eqs. 4.16 and 4.17, so that nu = infinity
        is `RBF` with the same gamma. None is 1 / d.
    nu : float
        0.5, 1.5, 2.5 or ``inf``.

    Notes
    -----
    nu = 1/2 has a kink at distance 0; tiles with near pairs are computed from differences, which is slower.
    """

    scratch_tiles = 2
    exponentials = 3
    smoothness = (0.5, 1.5, 2.5, math.inf)

    def __init__(self, gamma: Any = None, nu: float = 1.5) -> None:
        self.gamma, self.nu = gamma, nu

    @property
    def smooth_at_zero(self) -> bool:  # type: ignore[override]
        return self.nu != 0.5

    @property
    def can_be_flat(self) -> bool:  # type: ignore[override]
        return self.nu == math.inf

    def check(self) -> None:
        super().check()
        if isinstance(self.nu, bool) or self.nu not in self.smoothness:
            raise InvalidParameterError(
                f"Matern: nu={self.nu!r} is not allowed; nu must be one of 0.5, 1.5, 2.5 and inf."
            )

    def _function(self, T: Array, flat: bool) -> Array:
        return elementwise.gaussian(T, flat) if self.nu == math.inf else elementwise.matern(T, self.nu)


class CityBlockRows(Rows):
    """Rows as they are, with the flag of their training set."""

    def __init__(self, data: Array, flat: bool) -> None:
        self.data, self.flat = data, flat
        self.n_rows = int(data.shape[0])

    def slice(self, start: int, stop: int) -> CityBlockRows:
        return CityBlockRows(take_rows(self.data, start, stop), self.flat)


class Laplacian(Kernel):
    """k(x, y) = exp(-gamma ‖x - y‖₁).

    Parameters
    ----------
    gamma : float >= 0, None, "scale" or "median"
        None is 1 / d.

    Notes
    -----
    There is no matrix product in it: a tile costs d subtractions an entry, and CSR rows are made dense slice by
    slice.
    """

    positive_definite = True
    densifies = True
    scratch_tiles = 1

    def __init__(self, gamma: Any = None) -> None:
        self.gamma = gamma

    def check(self) -> None:
        checked_number("Laplacian", "gamma", self.gamma, low=0, what="a number >= 0")

    def prepare_rows(self, X: Array, like: CityBlockRows | None, centered: bool) -> CityBlockRows:
        if like is not None:
            return CityBlockRows(X, like.flat)
        return CityBlockRows(X, centered and float(self.gamma) * total_range(X) <= FLAT)

    def tile(self, a: CityBlockRows, b: CityBlockRows, out: Array | None = None) -> Array:
        left, right = dense_rows(a.data), dense_rows(b.data)
        wide = accumulation_dtype(left)
        T = linalg.cityblock_distances(cast(left, wide), cast(right, wide))
        T = elementwise.multiply(T, -float(self.gamma))
        return cast(elementwise.gaussian(T, b.flat), b.data.dtype)

    def tile_diagonal(self, a: CityBlockRows) -> Array:
        return full((a.n_rows,), 0.0 if a.flat else 1.0, place_of(a.data))
