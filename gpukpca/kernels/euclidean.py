"""Kernels of the Euclidean distance: Gaussian (RBF), Matérn, rational quadratic.

A tile begins as T = -gamma ‖x - y‖² (`euclidean_rows`); one elementwise pass in place completes it. Centering the
features first changes no distance and removes the cancellation that an offset causes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Self

import numpy as np

from gpukpca._rules import Rule
from gpukpca._typing import Array
from gpukpca.backend import elementwise
from gpukpca.backend.elementwise import from_strips, in_strips
from gpukpca.backend.namespace import (
    EPSILON,
    accumulation_dtype,
    cast,
    dtype_name,
    empty_like,
    full,
    is_sparse,
    namespace_of,
    overflow_allowed,
)
from gpukpca.data.csr import as_csr
from gpukpca.data.gate import check_not_empty
from gpukpca.data.slicing import dense_rows, place_of, shifted_rows, take_rows
from gpukpca.data.statistics import constant_columns, exact_means, feature_bounds, square_norm_sizes
from gpukpca.kernels.bandwidth import Gamma
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.euclidean_rows import (
    DifferenceRows,
    EuclideanRows,
    Geometry,
    ProductRows,
    SparseProductRows,
    augmented_rows,
)
from gpukpca.kernels.validation import NOT_NEGATIVE, POSITIVE

# Bounds on kappa = max gamma ‖x - mean‖², the size of the numbers that cancel in T. The error of T is about u·kappa:
# 2e-6 in float32 up to the first bound; beyond it the product is formed in float64, where the error stays under
# 1e-10 up to the second; beyond that distances are sums of differences, a slower loop.
KAPPA_FLOAT32 = 32.0
KAPPA_FLOAT64 = 5e5
# Constant features are omitted from the product where they are more than one in so many (pictures with a margin).
LEAST_CONSTANT = 50
# Below this bound on gamma ‖x - y‖² the kernel is so flat that 1 swamps its differences: the tile holds k - 1.
FLAT = 0.1
# With u·kappa under 1e-10, a pair with T above this is near enough for a kink at zero to show rounding.
NEAR = -1e-6
# Entries of 2**LARGE have squares whose sums are finite for all numbers of features.
LARGE = 400
# Replaces the factor 0, which no kernel may have: the slope of a constant vanishes next to any other.
VANISHING = 1e-300
SMOOTHNESS = Rule("one of 0.5, 1.5, 2.5 and inf", lambda nu: nu in (0.5, 1.5, 2.5, math.inf))
# The largest slope of Matérn kernels. For nu = 1/2 it is 1 / (2 r) near r = 0: few pairs are nearer than r = 0.1 (3).
STEEPNESS = {0.5: 3.0, 1.5: 3.0, 2.5: 5.0 / 3.0}
# Newton's method doubles the digits in every step near the root, and starts within a factor of two of it.
NEWTON_STEPS = 40


class OfDistance(Kernel, rules=(("gamma", NOT_NEGATIVE),)):
    """A function f of one distance with f(0) = 1 that decreases to 0.

    A function with another f(0) or limit overrides `tile_diagonal`, `inverts_to` and `depends_on_distance`.
    """

    positive_definite: bool | None = True
    depends_on_distance = True
    scratch_tiles = 0
    leaves_out_constants = True
    moves_rows: str | None = "always"

    def __init__(self, gamma: Gamma = None) -> None:
        self.gamma: Any = gamma

    def tile_diagonal(self, a: Any) -> Array:
        return full((a.n_rows,), 1.0 - self.offset(a), place_of(a.kept), a.dtype)


class _EuclideanKernel(OfDistance):
    """A function f of gamma ‖x - y‖² = ‖x - y‖² / (2 l²)."""

    inverts_to: str | None = "distances"
    can_be_flat = False
    # A kernel with a kink at distance 0 sees the square root of the rounding error there.
    smooth_at_zero = True
    # The largest |dk / dT| with T = -gamma ‖x - y‖².
    steepness: float = 1.0

    @classmethod
    def from_sigma(cls, sigma: float, **parameters: Any) -> Self:
        """Return the kernel with length scale `sigma`: gamma = 1 / (2 sigma²)."""
        POSITIVE.check(cls.__name__, "sigma", sigma)
        return cls(gamma=1.0 / (2.0 * float(sigma) ** 2), **parameters)

    def template(self, X: Array, centered: bool = False) -> EuclideanRows:
        with overflow_allowed():  # of squares, which then are infinite
            return self._rows(take_rows(X, 0, 0), self._geometry(X, centered))

    def prepare_rows(self, X: Array, like: EuclideanRows | None, centered: bool) -> EuclideanRows:
        if like is None:
            return self._rows(X, self._geometry(X, centered))
        return self._rows(as_csr(X) if is_sparse(like.data) else dense_rows(X), like.geometry)

    def rounding(self, template: Any) -> float:
        """Return 1 for the function, plus what cancels in T times the slope of the function, in eps of the tile."""
        product, stored = EPSILON[dtype_name(template.data.dtype)], EPSILON[dtype_name(template.dtype)]
        return 1.0 + self.steepness * template.geometry.spread * product / stored

    def _geometry(self, X: Any, centered: bool) -> Geometry:
        """Return mean, precision and flatness of a training set, by two sweeps over X."""
        check_not_empty(X, "a kernel of distances")
        gamma = float(self.gamma)
        constant = np.zeros(X.shape[1], dtype=bool) if is_sparse(X) else constant_columns(X)
        mean = exact_means(X, constant)
        geometry = Geometry(mean, gamma)
        largest, spread = square_norm_sizes(X, mean, geometry.scale)
        kappa = 0.5 * largest
        if kappa > KAPPA_FLOAT64:
            # Differences of the rows as they are: one distant row may dominate the mean, which costs the others digits.
            return Geometry(None, gamma, _exponent(X, gamma))
        omits = self.smooth_at_zero and LEAST_CONSTANT * constant.sum() > len(constant)
        return replace(
            geometry,
            flat=self.can_be_flat and centered and 4.0 * kappa <= FLAT,
            wide=self._needs_wide(X, kappa),
            varying=np.flatnonzero(~constant) if omits else None,
            kink=not self.smooth_at_zero,
            spread=0.5 * spread,
        )

    def _needs_wide(self, X: Array, kappa: float) -> bool:
        return not (self.smooth_at_zero and kappa <= KAPPA_FLOAT32) and X.dtype != accumulation_dtype(place_of(X))

    def _rows(self, X: Any, geometry: Geometry) -> EuclideanRows:
        """Return rows in the coordinates of the training set; new rows may lie further out than all of it."""
        if geometry.mean is None:
            rows = cast(X, accumulation_dtype(place_of(X)))
            rows = rows * 2.0**-geometry.exponent if geometry.exponent else rows
            return DifferenceRows(rows, geometry, X.dtype)
        wide = geometry.mean.dtype
        kappa = 0.5 * square_norm_sizes(X, geometry.mean, geometry.scale)[0] if X.shape[0] else 0.0
        if kappa > KAPPA_FLOAT64:
            return DifferenceRows(shifted_rows(X, geometry.mean, geometry.scale, wide), geometry, X.dtype)
        if is_sparse(X):
            return SparseProductRows(shifted_rows(X, geometry.mean, geometry.scale, wide), geometry, X.dtype)
        dtype = wide if geometry.wide or self._needs_wide(X, kappa) else X.dtype
        return ProductRows(augmented_rows(X, geometry, dtype), geometry, X.dtype)

    def tile(self, a: EuclideanRows, b: EuclideanRows, out: Array | None = None) -> Array:
        flat = b.geometry.flat
        T = a.product(b, out) if self.smooth_at_zero and a.product_fits_tile(b) else None
        if T is not None:
            return in_strips(cast(T, b.dtype), lambda strip, place: self._function(strip, flat, b.dtype, place), out)
        like = empty_like(place_of(b.data), b.dtype)

        def strip(start: int, stop: int, place: Array | None) -> Array:
            return self._strip(a.slice(start, stop), b, place)

        return from_strips((a.n_rows, b.n_rows), like, strip, out)

    def _strip(self, a: EuclideanRows, b: EuclideanRows, out: Array | None) -> Array:
        """Return a strip of a tile, from wider products or from differences."""
        T = a.product(b)
        if T is None or (not self.smooth_at_zero and bool(namespace_of(T).any(T > NEAR))):
            T = a.differences(b)
        return self._function(T, b.geometry.flat, b.dtype, out)

    def _function(self, T: Array, flat: bool, dtype: Any = None, out: Array | None = None) -> Array:
        """Return kernel values as `dtype` (default: that of T) from T, which rounding may have left above 0.

        T and `out`, an array of type `dtype`, may be overwritten.
        """
        raise NotImplementedError


def _exponent(X: Array, gamma: float) -> int:
    """Return e so that rows / 2**e have finite entries, and squares near 1 where gamma ‖x - y‖² is; 0 for usual rows.

    By gamma and not by the largest entry, beside which squared distances of the other rows would vanish. A distance
    whose square overflows then has the kernel value 0.
    """
    low, high = feature_bounds(X)
    xp = namespace_of(low)
    largest = max(abs(float(xp.max(high))), abs(float(xp.min(low))))
    exponent = math.frexp(largest)[1]
    if exponent <= LARGE:
        return 0
    return max(-(math.frexp(gamma)[1] // 2) if gamma else exponent, exponent - 1022)


class RBF(_EuclideanKernel):
    """Gaussian kernel k(x, y) = exp(-gamma ‖x - y‖²).

    Parameters
    ----------
    gamma : float >= 0, None, "scale" or "median"
        None is 1 / d; "scale" is 1 / (d Var(X)); "median" is 1 / (2 m²), m the median distance of at most 1000 rows.
        Pairs of equal rows do not count for m. `RBF.from_sigma` takes the standard deviation instead:
        gamma = 1 / (2 sigma²).

    See Also
    --------
    Laplacian : The same function of the Manhattan distance.
    Matern, RationalQuadratic : Kernels with heavier tails or fewer derivatives.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.kernels import RBF
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> RBF(gamma=0.5)(X).round(3)
    array([[1.   , 0.607],
           [0.607, 1.   ]])
    >>> RBF.from_sigma(2.0)
    RBF(gamma=0.125)
    >>> round(RBF("scale").resolve(X).gamma, 3)
    2.667
    """

    can_be_flat = True

    def slope(self, unit: float = 1.0) -> Kernel:
        return _scaled(RBF(self.gamma), self.gamma * unit)

    def square_distances(self, drops: np.ndarray) -> np.ndarray:
        return -np.log1p(-drops) / (self.gamma or 1.0)

    def _function(self, T: Array, flat: bool, dtype: Any = None, out: Array | None = None) -> Array:
        return elementwise.gaussian(T, flat, dtype=dtype, out=out)


def _scaled(kernel: Kernel, factor: float) -> Kernel:
    return max(float(factor), VANISHING) * kernel


class RationalQuadratic(_EuclideanKernel, rules=(("alpha", POSITIVE),)):
    """Rational quadratic kernel k(x, y) = (1 + gamma ‖x - y‖² / alpha)^(-alpha); alpha to infinity gives `RBF`.

    Parameters
    ----------
    gamma : float >= 0, None, "scale" or "median"
        1 / (2 l²) with l the length scale of Rasmussen & Williams (2006), eq. 4.19. None is 1 / d. The rules
        are those of `RBF`.
    alpha : float > 0

    See Also
    --------
    RBF : The limit of large alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.kernels import RationalQuadratic
    >>> RationalQuadratic(gamma=1.0, alpha=2.0)(np.array([[0.0], [2.0]])).round(3)
    array([[1.   , 0.111],
           [0.111, 1.   ]])
    """

    can_be_flat = True
    exponentials = 4

    def __init__(self, gamma: Gamma = None, alpha: float = 1.0) -> None:
        self.gamma = gamma
        self.alpha = alpha

    def slope(self, unit: float = 1.0) -> Kernel:
        alpha = float(self.alpha)
        return _scaled(RationalQuadratic(self.gamma * (alpha + 1.0) / alpha, alpha + 1.0), self.gamma * unit)

    def square_distances(self, drops: np.ndarray) -> np.ndarray:
        return np.expm1(-np.log1p(-drops) / self.alpha) * self.alpha / (self.gamma or 1.0)

    def _function(self, T: Array, flat: bool, dtype: Any = None, out: Array | None = None) -> Array:
        return elementwise.rational_quadratic(T, float(self.alpha), flat, dtype, out)


class Matern(_EuclideanKernel, rules=(("nu", SMOOTHNESS),)):
    """Matérn kernel of smoothness nu = 1/2, 3/2, 5/2 or infinity.

    Parameters
    ----------
    gamma : float >= 0, None, "scale" or "median"
        1 / (2 l²) with l the length scale of Rasmussen & Williams (2006), eqs. 4.16 and 4.17, so that nu = infinity
        is `RBF` with the same gamma. None is 1 / d. The rules are those of `RBF`.
    nu : float
        0.5, 1.5, 2.5 or ``inf``.

    See Also
    --------
    RBF : The limit of large nu.
    Laplacian : The exponential of the Manhattan distance.

    Notes
    -----
    nu = 1/2 has a kink at distance 0; tiles with near pairs are computed from differences, which is slower.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.kernels import Matern
    >>> Matern(gamma=0.5, nu=1.5)(np.array([[0.0], [1.0]])).round(3)
    array([[1.   , 0.483],
           [0.483, 1.   ]])
    """

    exponentials = 3

    def __init__(self, gamma: Gamma = None, nu: float = 1.5) -> None:
        self.gamma = gamma
        self.nu = nu

    smooth_at_zero: property = property(lambda self: self.nu != 0.5)
    can_be_flat: property = property(lambda self: self.nu == math.inf)
    steepness: property = property(lambda self: STEEPNESS.get(self.nu, 1.0))

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


def _matern_radius(t: np.ndarray, nu: float) -> np.ndarray:
    """Return r with log f(r) = -t, f the Matérn correlation, r = sqrt(2 nu) ‖x - y‖ / l.

    h(r) = r - log(1 + r [+ r²/3]) is convex and increasing, and h >= t at the start, so every step of Newton's method
    decreases r and never passes the root.
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
