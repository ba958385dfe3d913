"""Kernels of the Euclidean distance: Gaussian (RBF), Matérn, rational quadratic.

A tile begins as T = -gamma ‖x - y‖² = s·t - ‖s‖²/2 - ‖t‖²/2 with s = sqrt(2 gamma) (x - mean)
and t alike: one matrix product of the rows [s, -‖s‖²/2, 1] and [t, 1, -‖t‖²/2], then one pass in place. Centering the
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
from gpukpca.backend.device import missing_columns
from gpukpca.backend.elementwise import from_strips, in_strips
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    dtype_name,
    from_host,
    full,
    indices,
    is_sparse,
    item_size,
    namespace_of,
)
from gpukpca.backend.rows import (
    as_csr,
    by_panels,
    constant_columns,
    dense_rows,
    feature_bounds,
    feature_means,
    gather_rows,
    largest_square_norm,
    place_of,
    row_square_sums,
    shifted_rows,
    sparse_square_distances,
    square_norm_sizes,
    stored_means,
    take_rows,
)
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.kernels.validation import checked_number

# Bounds on kappa = max gamma ‖x - mean‖², the size of the numbers that cancel in T. The error of T is about u·kappa:
# 2e-6 in float32 up to the first bound; beyond it the product is formed in float64, where the error stays under
# 1e-10 up to the second; beyond that distances are differences, at the price of a slower loop.
KAPPA_FLOAT32 = 32.0
KAPPA_FLOAT64 = 5e5
# Constant features are left out of the product where they are more than one in so many (pictures with a margin).
LEAST_CONSTANT = 50
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
    wide : bool
        The matrix product is formed in the widest type.
    varying : host array of int, or None
        The features that are not constant in the training set, where leaving the others out of the product pays: a
        constant feature only adds to the norms of new rows.
    kink : bool
        The kernel has one at distance 0, so that near pairs are computed by differences.
    spread : float
        Root mean square of gamma ‖x - mean‖² over the training set: the size of what cancels in a distance.
    """

    mean: Array | None
    gamma: float
    exponent: int = 0
    flat: bool = False
    wide: bool = False
    varying: np.ndarray | None = None
    kink: bool = False
    spread: float = 0.0

    @property
    def scale(self) -> float:
        """sqrt(2 gamma)."""
        return math.sqrt(2.0 * self.gamma)


class DistanceRows(PreparedRows):
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

    def take(self, indices: Any) -> DistanceRows:
        norms = None if self.half_norms is None else gather_rows(self.half_norms, indices)
        return DistanceRows(gather_rows(self.data, indices), self.geometry, self.by_product, self.dtype, norms)

    @property
    def shifted(self) -> bool:
        return self.geometry.flat

    @property
    def wide(self) -> bool:
        return not self.by_product or self.geometry.kink or self.data.dtype != self.dtype

    @property
    def row_bytes(self) -> int:
        if self.half_norms is not None:
            return 0  # counted with the data: how many entries a sparse row has varies
        return int(self.data.shape[1]) * item_size(self.data.dtype)

    @cached_property
    def right(self) -> Array:
        """The rows [s, 1, -‖s‖²/2], in memory of their own."""
        xp, d = namespace_of(self.data), self.data.shape[1] - 2
        parts = [self.data[:, :d], self.data[:, d + 1 : d + 2], self.data[:, d : d + 1]]
        return xp.concat(parts, axis=1)

    @property
    def points(self) -> Array:
        """The coordinates alone; those of constant features are 0 in every training row."""
        if not self.by_product or self.half_norms is not None:
            return self.data
        xp, varying, mean = namespace_of(self.data), self.geometry.varying, self.geometry.mean
        if mean is None:
            return self.data[:, : self.data.shape[1] - 2]
        d = int(mean.shape[0]) if varying is None else len(varying)
        points = self.data[:, :d]
        if varying is None:
            return points
        places = np.full(mean.shape[0], d)
        places[varying] = np.arange(d)
        return xp.take(xp.concat([points, xp.zeros_like(self.data[:, :1])], axis=1), indices(places, points), axis=1)


class _EuclideanKernel(Kernel):
    """A function of gamma ‖x - y‖² = ‖x - y‖² / (2 l²)."""

    positive_definite = True
    inverts_to = "distances"
    depends_on_distance = True
    leaves_out_constants = True
    can_be_flat = False
    # A kernel with a kink at distance 0 sees the square root of the rounding error there.
    smooth_at_zero = True
    # The largest |dk / dT| with T = -gamma ‖x - y‖².
    steepness = 1.0

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

    def template(self, X: Array, centered: bool = False) -> DistanceRows:
        return self._rows(take_rows(X, 0, 0), self._geometry(X, centered))

    def prepare_rows(self, X: Array, like: DistanceRows | None, centered: bool) -> DistanceRows:
        if like is None:
            return self._rows(X, self._geometry(X, centered))
        return self._rows(_matching(X, like), like.geometry)

    def rounding(self, template: Any) -> float:
        """Return 1 for the function, plus what cancels in T times the slope of the function, in eps of the tile."""
        product, stored = (np.finfo(dtype_name(kind)).eps for kind in (template.data.dtype, template.dtype))
        return 1.0 + self.steepness * template.geometry.spread * float(product / stored)

    def _geometry(self, X: Any, centered: bool) -> Geometry:
        """Mean, precision and flatness of a training set; two sweeps over X."""
        gamma = float(self.gamma)
        constant = np.zeros(X.shape[1], dtype=bool) if is_sparse(X) else constant_columns(X)
        mean = stored_means(X) if is_sparse(X) else _exact_means(X, constant)
        geometry = Geometry(mean, gamma)
        kappa, spread = (0.5 * size for size in square_norm_sizes(X, mean, geometry.scale))
        if kappa > KAPPA_FLOAT64:
            # Differences of the rows as they are: a mean that one far-out row dominates would cost the others digits.
            return Geometry(None, gamma, _large_exponent(X))
        return replace(
            geometry,
            flat=self.can_be_flat and centered and 4.0 * kappa <= FLAT,
            wide=self._needs_wide(X, kappa),
            varying=_worth_leaving_out(constant) if self.smooth_at_zero else None,
            kink=not self.smooth_at_zero,
            spread=spread,
        )

    def _needs_wide(self, X: Array, kappa: float) -> bool:
        return X.dtype != accumulation_dtype(place_of(X)) and not (self.smooth_at_zero and kappa <= KAPPA_FLOAT32)

    def _rows(self, X: Any, geometry: Geometry) -> DistanceRows:
        """Rows in the coordinates of the training set; new rows may be further out than any of it."""
        wide = accumulation_dtype(place_of(X))
        if geometry.mean is None:
            rows = cast(X, wide)
            return DistanceRows(rows * 2.0**-geometry.exponent if geometry.exponent else rows, geometry, False, X.dtype)
        kappa = 0.5 * largest_square_norm(X, geometry.mean, geometry.scale)
        if is_sparse(X) or kappa > KAPPA_FLOAT64:
            rows = shifted_rows(X, geometry.mean, geometry.scale, wide)
            half_norms = 0.5 * row_square_sums(rows) if is_sparse(X) else None
            return DistanceRows(rows, geometry, kappa <= KAPPA_FLOAT64, X.dtype, half_norms)
        dtype = wide if geometry.wide or self._needs_wide(X, kappa) else X.dtype
        return DistanceRows(_augmented_rows(X, geometry, dtype), geometry, True, X.dtype)

    # -- tiles -----------------------------------------------------------------------------------------------------

    def tile(self, a: DistanceRows, b: DistanceRows, out: Array | None = None) -> Array:
        flat = b.geometry.flat
        at_once = is_sparse(a.data) or a.data.dtype == b.data.dtype == b.dtype
        if a.by_product and b.by_product and at_once and self.smooth_at_zero:
            T = cast(_by_product(a, b, out), b.dtype)
            return in_strips(T, lambda strip, place: self._function(strip, flat, b.dtype, place), out)
        like = full((0,), 0.0, place_of(b.data), b.dtype)

        def strip(start: int, stop: int, place: Array | None) -> Array:
            return self._strip(a.slice(start, stop), b, place)

        return from_strips((a.n_rows, b.n_rows), like, strip, out)

    def _strip(self, a: DistanceRows, b: DistanceRows, out: Array | None) -> Array:
        """A few rows of a tile whose distances need a wider type than the tile, or differences."""
        T = _by_product(a, b) if a.by_product and b.by_product else None
        if T is None or (not self.smooth_at_zero and _has_near_pair(T)):
            T = _by_differences(a, b)
        return self._function(T, b.geometry.flat, b.dtype, out)

    def tile_diagonal(self, a: DistanceRows) -> Array:
        return full((a.n_rows,), 1.0 - self.offset(a), place_of(a.data), a.dtype)

    def offset(self, rows: DistanceRows) -> float:
        return 1.0 if rows.geometry.flat else 0.0

    def _function(self, T: Array, flat: bool, dtype: Any = None, out: Array | None = None) -> Array:
        """Return kernel values as `dtype` (default: that of T) from T, which rounding may have left above 0.

        `out`, an array of type `dtype`, may be written to, as may T.
        """
        raise AttributeError(f"{type(self).__name__} must define _function(T, flat, dtype, out)")


def _by_product(a: DistanceRows, b: DistanceRows, out: Array | None = None) -> Array:
    """T by a product in the wider of the two dtypes: far-out new rows may have asked for float64."""
    if a.half_norms is not None and b.half_norms is not None:
        T = linalg.row_products(a.data, b.data)
        T -= a.half_norms[:, None]
        T -= b.half_norms[None, :]
        return T
    left, right = a.data, b.right
    if left.dtype != right.dtype:
        wide = accumulation_dtype(left)
        left, right = cast(left, wide), cast(right, wide)
    return linalg.row_products(left, right, out)


def _by_differences(a: DistanceRows, b: DistanceRows) -> Array:
    wide = accumulation_dtype(place_of(a.data))
    geometry = b.geometry
    distances = sparse_square_distances if is_sparse(a.data) else linalg.squared_distances
    T = distances(cast(a.points, wide), cast(b.points, wide))
    if geometry.mean is not None:
        return elementwise.multiply(T, -0.5)
    T = elementwise.multiply(T, -geometry.gamma)
    if geometry.exponent:
        half = 2.0 ** min(geometry.exponent, 1023)  # in two steps: the whole factor may not be a number
        T = elementwise.multiply(elementwise.multiply(T, half), half)
    return T


# With u·kappa under 1e-10, a pair at less than this T is near enough for a kink at zero to show rounding.
NEAR = -1e-6


def _has_near_pair(T: Array) -> bool:
    xp = namespace_of(T)
    return bool(xp.any(T > NEAR))


def _matching(X: Any, like: DistanceRows) -> Any:
    """X dense or CSR, as the training rows are."""
    return as_csr(X) if is_sparse(like.data) else dense_rows(X)


def _augmented_rows(X: Array, geometry: Geometry, dtype: Any) -> Array:
    """The rows [s, -‖s‖²/2, 1] of X, a panel at a time; s is wider by zeros where the device likes that."""

    mean: Array = geometry.mean

    def panel(rows: Array, *_: int) -> Array:
        xp = namespace_of(rows)
        s = cast((cast(rows, mean.dtype) - mean[None, :]) * geometry.scale, dtype)
        half_norms = 0.5 * row_square_sums(s)
        if geometry.varying is not None:
            s = xp.take(s, indices(geometry.varying, s), axis=1)
        one = xp.ones_like(half_norms)[:, None]
        padding = [0.0 * one] * missing_columns(s, int(s.shape[1]) + 2)
        return xp.concat([s, *padding, -half_norms[:, None], one], axis=1)

    return by_panels(X, panel)


def _exact_means(X: Array, constant: np.ndarray) -> Array:
    """Feature means; that of a constant feature is the constant, to the last bit."""
    means = feature_means(X)
    if not X.shape[0] or not constant.any():
        return means
    xp = namespace_of(means)
    return xp.where(from_host(constant, means) > 0, cast(gather_rows(X, [0])[0, :], means.dtype), means)


def _worth_leaving_out(constant: np.ndarray) -> np.ndarray | None:
    """The features that vary, where the constant ones are a noticeable share of the work."""
    return np.flatnonzero(~constant) if LEAST_CONSTANT * constant.sum() > len(constant) else None


def _large_exponent(X: Array) -> int:
    """e with max|X| < 2**e where squares of X could overflow float64 sums, else 0."""
    if not X.shape[0]:
        return 0
    low, high = feature_bounds(X)
    xp = namespace_of(low)
    largest = max(abs(float(xp.max(high))), abs(float(xp.min(low))))
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

    def slope(self, unit: float = 1.0) -> Kernel:
        return _scaled(RBF(self.gamma), self.gamma * unit)

    def square_distances(self, drops: np.ndarray) -> np.ndarray:
        return -np.log1p(-drops) / (self.gamma or 1.0)

    def _function(self, T: Array, flat: bool, dtype: Any = None, out: Array | None = None) -> Array:
        return elementwise.gaussian(T, flat, dtype=dtype, out=out)


# In place of the factor 0, which no kernel may have: the slope of a constant is nothing beside any other.
VANISHING = 1e-300


def _scaled(kernel: Kernel, factor: float) -> Kernel:
    return max(float(factor), VANISHING) * kernel


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

    def slope(self, unit: float = 1.0) -> Kernel:
        alpha = float(self.alpha)
        return _scaled(RationalQuadratic(self.gamma * (alpha + 1.0) / alpha, alpha + 1.0), self.gamma * unit)

    def square_distances(self, drops: np.ndarray) -> np.ndarray:
        return np.expm1(-np.log1p(-drops) / self.alpha) * self.alpha / (self.gamma or 1.0)

    def _function(self, T: Array, flat: bool, dtype: Any = None, out: Array | None = None) -> Array:
        return elementwise.rational_quadratic(T, float(self.alpha), flat, dtype, out)


# Of Matérn kernels. That of nu = 1/2 is 1 / (2 r) near r = 0: 3 stands for pairs of which few are nearer than r = 0.1.
STEEPNESS = {0.5: 3.0, 1.5: 3.0, 2.5: 5.0 / 3.0}


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

    @property
    def steepness(self) -> float:  # type: ignore[override]
        return STEEPNESS.get(self.nu, 1.0)

    def check(self) -> None:
        super().check()
        if isinstance(self.nu, bool) or self.nu not in self.smoothness:
            raise InvalidParameterError(
                f"Matern: nu={self.nu!r} is not allowed; nu must be one of 0.5, 1.5, 2.5 and inf."
            )

    def slope(self, unit: float = 1.0) -> Kernel | None:
        if self.nu == math.inf:
            return RBF(self.gamma).slope(unit)
        if self.nu == 0.5:  # infinite at distance 0
            return None
        factor, nu = (3.0, 0.5) if self.nu == 1.5 else (5.0 / 3.0, 1.5)
        return _scaled(Matern(factor * self.gamma, nu), factor * self.gamma * unit)

    def square_distances(self, drops: np.ndarray) -> np.ndarray:
        if self.nu == math.inf:
            return RBF(self.gamma).square_distances(drops)
        r = _matern_radius(-np.log1p(-np.asarray(drops, dtype=np.float64)), self.nu)
        return r * r / (4.0 * self.nu * (self.gamma or 1.0))

    def _function(self, T: Array, flat: bool, dtype: Any = None, out: Array | None = None) -> Array:
        if self.nu == math.inf:
            return elementwise.gaussian(T, flat, dtype=dtype, out=out)
        return elementwise.matern(T, self.nu, dtype, out)


# Newton's method doubles the digits in every step once it is near, and begins within a factor of two.
NEWTON_STEPS = 40


def _matern_radius(t: np.ndarray, nu: float) -> np.ndarray:
    """r with log f(r) = -t for the Matérn correlation f, r = sqrt(2 nu) ‖x - y‖ / l, on the host.

    h(r) = r - log(1 + r [+ r²/3]) is convex and rising, and h >= t at the start, so every step of Newton's method goes
    down to the root and never beyond it.
    """
    if nu == 0.5:
        return t
    third = 0.0 if nu == 1.5 else 1.0 / 3.0
    r = t + np.sqrt(2.0 * t) if nu == 1.5 else 2.0 * t + np.sqrt(6.0 * t)
    for _ in range(NEWTON_STEPS):
        polynomial = r + third * r * r
        slope = (r * (1.0 - 2.0 * third) + third * r * r) / (1.0 + polynomial)
        down = (r - np.log1p(polynomial) - t) / np.where(slope > 0, slope, 1.0)
        r = np.maximum(r - np.maximum(down, 0.0), 0.0)
    return r
