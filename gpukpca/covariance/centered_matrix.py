"""Mean, unit and scale of centered matrices Z = (X - 1 mᵀ) W, for every container of rows.

With frequencies of rows Z is W^½ (X - 1 mᵀ) W, m their weighted mean.

Data are shifted before any product, so that a large offset cancels exactly. The shift is the mean of some rows in the
dtype of X; its distance from the true mean is measured in the widest type and corrected. Deviations whose squares would
lose digits are first multiplied by a power of two, here and nowhere else. Without centering m, shift and rest are 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.linalg import (
    column_sums,
    subtract_outer_product,
    subtract_outer_sum,
    symmetric_from_upper,
    times_outer_product,
)
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    concat,
    dtype_name,
    epsilon,
    from_host,
    namespace_of,
    to_host,
)
from gpukpca.backend.orthogonalization import orthonormal_factors, triangular_factor
from gpukpca.backend.parallel import row_slices
from gpukpca.data.finite import advice_for
from gpukpca.data.frequencies import Frequencies, without_mean
from gpukpca.data.scale import factor_near_one, needs_own_scale, power_of_two_scale, scale_for_squares
from gpukpca.data.statistics import half_range
from gpukpca.exceptions import InvalidParameterError

# Σ(x - shift)² may exceed Σ(x - mean)² by this factor before the sums are computed again about the new mean.
MOST_CANCELLED = 20.0
# Columns of a panel of a square matrix that is computed by products.
PRODUCT_COLUMNS = 64
# Advice where an entry is NaN.
OF_MISSING = advice_for("PCA")
# Deviations of a column up to this share of the rounding of its mean are rounding: of the mean itself, and of entries
# where they would be divided by their deviation.
CONSTANT, CONSTANT_ENTRIES = 1e-2, 2.0


class RowProducts(ABC):
    """A matrix Z (n, d) that is known by its products, whatever holds its rows.

    A subclass calls `_set_rows` and defines the abstract members. The products are those of which the methods of
    `gpukpca.algorithms.pca.components` consist.
    """

    shape: tuple[int, int]  # (n, d)
    dtype: Any  # of X
    center: bool  # False: m = 0
    count: float  # of the rows, each as often as its frequency says
    like: Array  # small results are computed where this is
    wide: Any  # the widest floating type there
    xp: Any  # the namespace there
    eps: float  # of the dtype of X
    frequencies: Frequencies | None  # of the rows; None means ones
    noise: float = 0.0  # products err by some eps of it, where leading directions are subtracted

    def _set_rows(self, shape: tuple[int, int], like: Array, center: bool, frequencies: Frequencies | None) -> None:
        """Set what follows from the shape of X, an array of size 0 like its rows, and their frequencies."""
        self.shape = int(shape[0]), int(shape[1])
        self.center, self.frequencies = center, frequencies
        self.count = self.shape[0] if frequencies is None else frequencies.count
        self.like, self.dtype = like, like.dtype
        self.wide, self.xp, self.eps = accumulation_dtype(like), namespace_of(like), epsilon(like)

    @abstractmethod
    def measure(self) -> None:
        """Compute what products need of X, such as its mean, where it is unknown."""

    @abstractmethod
    def times(self, V: Array) -> Array:
        """Return Z V for V (d, b), shape (n, b)."""

    @abstractmethod
    def adjoint(self, U: Array) -> Array:
        """Return Zᵀ U for U (n, b), shape (d, b)."""

    @abstractmethod
    def materialized(self) -> Array | None:
        """Return Z itself, shape (n, d), in the dtype of X; None where no process holds it."""

    @abstractmethod
    def scatter(self) -> Array:
        """Return ZᵀZ in the widest type, shape (d, d)."""

    @abstractmethod
    def gram(self) -> Array:
        """Return Z Zᵀ in the widest type, shape (n, n), exactly symmetric."""

    @property
    def total(self) -> float:
        """Return the sum of the squares of all entries of Z."""
        return float(self.xp.sum(self.xp.linalg.diagonal(self.scatter())))

    def scatter_times(self, V: Array) -> Array:
        """Return ZᵀZ V for V (d, b), shape (d, b)."""
        return self.adjoint(self.times(V))

    def gram_times(self, U: Array) -> Array:
        """Return Z ZᵀU for U (n, b), which is `without_mean`, shape (n, b)."""
        return self.times(self.adjoint(U))

    def without_mean(self, U: Array) -> Array:
        """Return the projection of U (n, b) onto the range of Z where the rows are centered; else U."""
        return without_mean(U, self.frequencies) if self.center else U

    def project(self, V: Array) -> Array:
        """Return the projection of V (d, b) onto a subspace that holds the range of Zᵀ."""
        return V

    def triangle(self, V: Array) -> np.ndarray:
        """Return R of Z V = Q R on the host in float64, shape (b, b)."""
        return orthonormal_factors(self.times(V))[1]

    def own_triangle(self) -> np.ndarray:
        """Return R of Z = Q R on the host in float64, shape (at most min(n, d), d)."""
        return triangular_factor(cast(self.materialized(), self.wide))


class CenteredMatrix(RowProducts):
    """Z = (X - 1 mᵀ) W: rows of data less their mean m, times a weight for every feature.

    The rows may be dense, sparse, in batches, or on a cluster. A subclass sets `shift` too. Its four sweeps give mean,
    unit and squares.
    """

    shift: Array  # (d,), is subtracted before any product; in the dtype of X
    squares: np.ndarray  # (d,), sums of squares of the columns of Z, on the host; not set before `measure`
    rest: Array | None = None  # (d,), wide: mean minus shift in the units of X; None until `measure`
    unit: float = 1.0  # a power of two that brings the deviations near 1; exactly 1 for ordinary data
    scale: np.ndarray | None = None  # (d,), divisors of the features, on the host
    multipliers: Array = None  # (d,), wide: unit / scale; None means ones

    @abstractmethod
    def check_entries(self) -> None:
        """Raise ValueError where an entry of X is NaN or infinite."""

    @abstractmethod
    def bounds(self) -> tuple[Array, Array]:
        """Return the smallest and the largest entry of every column of X, or of X less a constant row, shapes (d,)."""

    @abstractmethod
    def moments(self) -> Array:
        """Return sums and sums of squares of the shifted, weighted columns, shape (2, d), wide."""

    @abstractmethod
    def scatter_and_sums(self) -> tuple[Array, Array]:
        """Return ZᵀZ about the shift, shape (d, d), and the sums of the shifted, weighted columns, shape (d,); wide."""

    @abstractmethod
    def shifted_gram(self) -> Array:
        """Return the products of the shifted, weighted rows, each once, shape (n, n), wide, exactly symmetric."""

    def rooted(self, U: Array, start: int = 0, stop: int | None = None) -> Array:
        """Return U, whose rows are those from start to stop, times the roots of their frequencies."""
        return U if self.frequencies is None else self.frequencies.rooted(U, start, stop)

    @cached_property
    def mean(self) -> Array:
        """Return the mean in the units of X, shape (d,), wide."""
        self.measure()
        return cast(self.shift, self.wide) + self.rest

    def measure(self) -> None:
        """Compute mean, unit and squares in one sweep over X, or in two where the first one loses digits."""
        if self.rest is None:
            self._sweep(self._swept_moments)

    def _swept_moments(self) -> tuple[None, Array, np.ndarray]:
        sums = self.moments()
        return None, sums[0, :], to_host(sums[1, :]).astype(np.float64)

    def _sweep(self, sweep: Callable[[], tuple[Any, Array, np.ndarray]], may_scale: bool = True) -> Any:
        """Sweep until shift and unit suit the data, set the mean and the squares, and return the product of the sweep.

        `sweep` returns a product, the sums (d,) and the host sums of squares (d,) of the shifted, weighted columns. The
        sum of a column with NaN or infinity is not finite, so finite sums save a pass that looks for them.
        """
        n = self.count
        for may_shift, may_rescale in ((True, may_scale), (True, False), (False, False)):
            product, sums, raw = sweep()
            rest = sums / n
            host = to_host(rest).astype(np.float64)
            if not np.isfinite(host).all():  # or the sums of huge numbers overflow
                self.check_entries()
            if not self.center:
                rest, host = self.xp.zeros_like(rest), np.zeros_like(host)
            squares = np.maximum(raw - n * host**2, 0.0)
            if may_rescale and self._rescaled_to_unit(squares):
                continue
            rest = rest if self.multipliers is None else rest / self.multipliers
            lost = ~(raw <= MOST_CANCELLED * squares)
            # Also of a constant column without digits, where the rounding of its mean is large beside the others.
            if not (may_shift and lost.any() and (lost & ((squares > 0) | ~(raw <= squares.max()))).any()):
                break
            self._subtract(cast(cast(self.shift, self.wide) + rest, self.dtype))
        self.rest = rest
        self._set_squares(squares)
        return product

    def _set_squares(self, squares: np.ndarray) -> None:
        """Set the squares, and forget what was computed from others."""
        self.squares = squares
        for name in ("mean", "total", "constant"):
            vars(self).pop(name, None)

    def _subtract(self, shift: Array) -> None:
        self.shift = shift

    def _rescaled_to_unit(self, squares: np.ndarray) -> bool:
        """Set the power of two that the deviations need; return whether they needed one."""
        deviation = math.sqrt(float(squares.max()) / self.count)
        if 0.0 < deviation < math.inf and scale_for_squares(deviation, self.dtype) == 1.0:
            return False
        self.unit = power_of_two_scale(half_range(*self._bounds_about_mean()), self.dtype)
        self._multiply_columns(np.full(self.shape[1], self.unit))
        return self.unit != 1.0

    def _bounds_about_mean(self) -> tuple[Array, Array]:
        """Return `bounds`, or without centering such about 0, shapes (d,)."""
        low, high = self.bounds()
        if self.center:
            return low, high
        size = self.xp.where(high > -low, high, -low)
        return -size, size

    def feature_deviations(self, degrees: float) -> np.ndarray:
        """Return (Σ (x - m)² / degrees)^½ of every feature in the units of X, shape (d,), on the host; then `rescale`.

        Features whose squares leave the range of numbers beside those of others are measured in units of their own.
        """
        self._measure_features()
        deviations: np.ndarray = np.sqrt(self.squares / degrees) / self._host_multipliers()
        return deviations

    def _measure_features(self) -> None:
        """Compute mean and squares as `measure`; with a power of two for every feature where one for all is too few."""
        self.measure()
        deviations = np.sqrt(self.squares / self.count)
        if not ((self.squares == 0) | needs_own_scale(deviations, self.wide)).any():
            return
        halves = 0.5 * np.stack([to_host(bound).astype(np.float64) for bound in self._bounds_about_mean()])
        halves = halves[1] - halves[0]
        if not needs_own_scale(halves * self._host_multipliers(), self.wide).any():  # of what was squared
            return
        self._multiply_columns(np.asarray([power_of_two_scale(half, self.wide) for half in halves.tolist()]))
        self._sweep(self._swept_moments, may_scale=False)

    def rescale(self, scale: np.ndarray) -> None:
        """Divide every feature by its entry of a host array (d,); by infinity, it has weight 0 and a scale of 1."""
        kind, smallest = dtype_name(self.dtype), float(scale.min())
        if smallest < 1.0 / float(np.finfo(kind).max):
            raise InvalidParameterError(
                f"underflow: {kind} does not hold the inverse of {smallest:.0e}, by which a feature is divided. "
                f"Multiply the data, and the numbers of scale, by {factor_near_one(smallest, kind)}."
            )
        self._measure_features()
        present = self._host_multipliers()
        deviations = np.sqrt(self.squares / self.count) / present / scale
        unit = scale_for_squares(float(deviations.max(initial=0.0)), self.dtype)
        self._set_squares(self.squares * (unit / present / scale) ** 2)
        self.unit, self.scale = unit, np.where(np.isinf(scale), 1.0, scale)
        self._multiply_columns(unit / scale)

    def _host_multipliers(self) -> Any:
        return 1.0 if self.multipliers is None else to_host(self.multipliers).astype(np.float64)

    def _multiply_columns(self, multipliers: np.ndarray) -> None:
        self.multipliers = from_host(multipliers, self.like, self.wide)

    @cached_property
    def total(self) -> float:
        """Return the sum of the squares of all entries of Z."""
        self.measure()
        return float(self.squares.sum())

    @cached_property
    def constant(self) -> np.ndarray:
        """Return which columns (d,) deviate from their mean by no more than the rounding of the mean itself."""
        return self.constant_columns(CONSTANT)

    def constant_columns(self, share: float) -> np.ndarray:
        """Return which columns (d,) deviate from their mean by at most a share of the rounding of that mean."""
        mean = np.abs(to_host(self.multiplied(self.mean)).astype(np.float64))
        return np.asarray(np.sqrt(self.squares / self.count) <= share * self.eps * mean)

    def multiplied(self, v: Array) -> Array:
        """Return a wide vector (d,) in the units of Z."""
        return v if self.multipliers is None else v * self.multipliers

    def scatter(self) -> Array:
        """Return ZᵀZ in the widest type, shape (d, d); the same sweep computes an unknown mean."""
        if self.rest is None:
            S = self._sweep(self._swept_scatter)
        else:
            S, _ = self.scatter_and_sums()
        rest = self.multiplied(self.rest)
        S = subtract_outer_product(S, self.count * rest, rest)
        return S if self.total else 0.0 * S

    def _swept_scatter(self) -> tuple[Array, Array, np.ndarray]:
        S, sums = self.scatter_and_sums()
        return S, sums, to_host(self.xp.linalg.diagonal(S)).astype(np.float64)

    def gram(self) -> Array:
        """Return Z Zᵀ in the widest type, shape (n, n), exactly symmetric."""
        self.measure()
        G, xp = self.shifted_gram(), self.xp
        roots = None if self.frequencies is None else self.frequencies.roots
        if self.center:  # which removes the rest of the mean
            means = (column_sums(G) if roots is None else (G @ (roots * roots))[:, 0]) / self.count
            half = float(xp.sum(means if roots is None else means * roots[:, 0] ** 2)) / self.count / 2.0
            G = subtract_outer_sum(G, means - half, means - half)
        G = G if self.total else 0.0 * G
        return G if roots is None else times_outer_product(G, roots[:, 0])


def matrix_of_products(product: Callable[[Array], Array], size: int, matrix: RowProducts) -> Array:
    """Return the symmetric matrix (size, size) of a product with blocks of columns, in the widest type of `matrix`."""
    panels = []
    for start, stop in row_slices(size, PRODUCT_COLUMNS):
        unit = from_host(np.eye(size, stop - start, -start), matrix.like)
        panels.append(cast(product(unit), matrix.wide))
    A = concat(panels, axis=1)
    del panels
    return symmetric_from_upper(A, namespace_of(A).linalg.diagonal(A))


def mean_of_sample(rows: Array, wide: Any) -> Array:
    """Return the mean of some rows in the type `wide`; division first, because a sum of huge numbers overflows."""
    return namespace_of(rows).sum(cast(rows, wide) / int(rows.shape[0]), axis=0)
