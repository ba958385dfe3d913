"""The map that computes the rows of a Nyström factor, and the folds over such rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.landmark_sums import FactorSums
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.elementwise import add
from gpukpca.backend.linalg import (
    cached_rows,
    has_narrow_square,
    inner_panel,
    narrow_square,
    row_squares,
    subtract_outer_sum,
    times_small,
    transposed_product,
)
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    concat,
    dtype_name,
    empty_like,
    epsilon,
    from_host,
    full,
    namespace_of,
    overflow_allowed,
    to_host,
)
from gpukpca.backend.parallel import assemble_rows, row_slices, sum_over
from gpukpca.data.finite import NumberSource, overflow
from gpukpca.data.place import rows_at
from gpukpca.data.scale import scale_for_squares
from gpukpca.data.slicing import place_of, take_columns, take_rows
from gpukpca.eigen.elimination import Elimination, error_share
from gpukpca.eigen.partial_cholesky import INDEFINITE, NOISE, ROUNDING, SMALL_PIVOT, feature_panel, indefinite
from gpukpca.eigen.pivoted_factor import PivotedCholesky
from gpukpca.gram.product import compute_tile
from gpukpca.kernels import Kernel
from gpukpca.kernels.prepared import PreparedRows

# The share of Σ ‖f‖² that the mean may hold where squares of float32 rows are formed in float32.
CANCELS = 0.5


@dataclass(frozen=True, eq=False)
class LandmarkFeatures:
    """The map f(x) = L⁻¹ k(S, x) of rows to those of a Nyström factor; relative to a base point where there is one.

    Attributes
    ----------
    kernel : Kernel
    rows : PreparedRows or None
        The landmarks, and the base point as the last row; None of a precomputed kernel.
    start : FactorSums
        The factor L, the shift and the noise. A fold over rows begins with the sums, then of no rows.
    like : array, shape (0,)
        Where rows are computed, in the type of K.
    columns : host array of int, or None
        The landmarks among the columns of a precomputed kernel.
    is_projection : bool
        Whether F Fᵀ leaves a semidefinite part of K, as a factor by elimination does.
    """

    kernel: Kernel
    rows: PreparedRows | Any
    start: FactorSums
    like: Array
    columns: np.ndarray | None = None
    is_projection: bool = True

    @classmethod
    def of_fit(cls, fit: Any) -> Self:
        """Return the map of a `KernelPCAFit` that has sums, where it computed."""
        rows = None if fit.map.basis is None else fit.map.prepared(fit.kernel)
        return cls(fit.kernel, rows, fit.stream, fit.map.like)

    @classmethod
    def of_weights(cls, kernel: Kernel, basis: Any, weights: np.ndarray) -> tuple[Self, np.ndarray]:
        """Return the map of points with the weights M (m, m) of another library, and a rotation Q.

        Its features k(x, S) M are f Q with M⁻ᵀ = L Q. M is invertible, and the inverse root of a K(S, S) that another
        library computed: of distances that cancel, say, so that M Mᵀ is no inverse of this one.
        """
        rows, like = kernel.prepare(basis), empty_like(place_of(basis))
        Q, R = np.linalg.qr(np.linalg.inv(weights))
        found = cls(kernel, rows, FactorSums.empty(R.T, np.zeros(len(R))), like, is_projection=False)
        f, diagonal, _ = found.of(basis)
        F = to_host(f).astype(np.float64)
        left = to_host(diagonal).astype(np.float64) - np.sum(F * F, axis=1)
        noise = float(np.max(np.abs(left), initial=0.0))  # ‖f(s)‖² is k(s, s) but for rounding
        return replace(found, start=replace(found.start, shift=np.mean(F, axis=0), noise=noise)), Q.T

    @property
    def rank(self) -> int:
        """Return the number of features."""
        return len(self.start.pivot_factor)

    def moved(self, like: Array) -> LandmarkFeatures:
        """Return the map where `like` lives."""
        return replace(self, rows=self.rows.moved(like), like=like[:0, 0]) if is_on_gpu(like) else self

    @property
    def wide(self) -> Any:
        """Return the widest floating type."""
        return accumulation_dtype(self.like)

    @property
    def rounding(self) -> float:
        """Return the share of sqrt(k(x, x) k(y, y)) to which an entry of K is trusted."""
        of_kernel = 0.0 if self.rows is None else self.kernel.rounding(self.rows.template) * epsilon(self.like)
        return max(ROUNDING[dtype_name(self.like.dtype)], of_kernel)

    @cached_property
    def error_share(self) -> float:
        """Return the `error_share` of K - F Fᵀ."""
        slots: Any = self.start.slots
        return error_share(self.rank, slots.growth, self.rounding, epsilon(self.like))

    def allowances(self, sizes: Array) -> Array:
        """Return what entries of K - F Fᵀ may err by for rows of such sizes: √(a_i a_j)."""
        return sizes * self.error_share + NOISE * self.start.noise

    def slots_of(self, rows: Any, residuals: Array, sizes: Array, weights: np.ndarray | None) -> Any:
        """Return the slots of rows (n, d) with such E_ii, as computed; None where the fit has none."""
        if (slots := self.start.slots) is None:
            return None
        above = namespace_of(residuals).maximum(residuals, 0.0)
        return slots.of_panel(rows, above + self.allowances(sizes), weights)

    def at(self, basis: Any, like: Array) -> LandmarkFeatures:
        """Return the map in the place and the type of `like`, for the rows of the basis as they are."""
        rows = self.kernel.prepare(cast(rows_at(basis, like), like.dtype), like=self.rows.template.moved(like))
        return replace(self, rows=rows, like=empty_like(like))

    def errors(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return K - F Fᵀ of some rows X (s, d), shape (s, s), and their sizes (s,), on the host in float64."""
        f, _, own = self._rows(X)
        rows = self.kernel.prepare(cast(X, self.like.dtype), like=self.rows.template.of_every_feature())
        K = compute_tile(self.kernel, rows, rows, self.like, diagonal=True)
        if own is not None:
            K = subtract_outer_sum(K, own, own)
        sizes = np.abs(np.diagonal(K := to_host(K))) + (0.0 if own is None else 2.0 * np.abs(to_host(own)))
        f = to_host(f)
        return K.astype(np.float64) - f @ f.T, sizes.astype(np.float64)

    @cached_property
    def base_column(self) -> Array:
        """Return k(s, x₀) of every row s of the basis and its last one x₀, the base point, in the widest type."""
        m = self.rows.n_rows
        base = compute_tile(self.kernel, self.rows.slice(0, m), self.rows.slice(m - 1, m), self.like, False)
        return cast(base[:, 0], self.wide)

    @cached_property
    def _from_base(self) -> Array | None:
        """Return k(s, x₀) - k(x₀, x₀) / 2; None without a base point. See `BasePointGram`."""
        return self.base_column - 0.5 * float(self.base_column[-1]) if self.start.relative else None

    @cached_property
    def _elimination(self) -> Elimination:
        L = self.start.pivot_factor
        sizes = np.sum(L * L, axis=1)  # the diagonal of K(S, S)
        size = float(np.max(sizes))
        is_small = bool(np.any(np.diagonal(L) ** 2 < SMALL_PIVOT * sizes))
        scale, dtype = scale_for_squares(size, self.like.dtype), self.wide if is_small else self.like.dtype
        return Elimination.of(np.zeros((len(L), 0)), L, [], self.like, scale, dtype)

    def _rows(self, X: Any, out: Array | None = None) -> tuple[Array, PreparedRows | Any, Array | None]:
        """Return f (b, l) of rows X (b, d), the prepared rows, and k(x, x₀) - k(x₀, x₀) / 2 where there is a base."""
        X, k, own = cast(X, self.like.dtype), self.rank, None
        if self.columns is not None:
            prepared, K = None, take_columns(X, self.columns)
        else:
            prepared = self.kernel.prepare(X, like=self.rows)
            K = compute_tile(self.kernel, prepared, self.rows, self.like, False)
        if (from_base := self._from_base) is not None:
            own = cast(K[:, -1], self.wide) - float(from_base[-1])
            K = subtract_outer_sum(K[:, :k], own, from_base[:k])
        return self._elimination.rows(K[:, :k], [], out) if k else K[:, :0], prepared, own

    def rows_of(self, X: Any) -> Array:
        """Return f (b, l) of rows X (b, d), in the memory of a new tile."""
        return self._rows(X)[0]

    def of(self, X: Any, out: Array | None = None) -> tuple[Array, Array, Array]:
        """Return f, in `out` if given, k(x, x), and the sizes of what cancels in it (b,), both in the widest type."""
        f, prepared, own = self._rows(X, out)
        diagonal = cast(self.kernel.tile_diagonal(prepared), self.wide)
        xp = namespace_of(diagonal)
        sizes = xp.abs(diagonal)
        return (f, diagonal, sizes) if own is None else (f, diagonal - 2.0 * own, sizes + 2.0 * xp.abs(own))

    def panels(self, X: Any) -> list[tuple[int, int]]:
        """Return (start, stop) of panels of rows (n, d) that stay in cache with their features."""
        n, d = map(int, X.shape)
        return row_slices(n, feature_panel(n, d, self.rank + self.start.relative, is_on_gpu(self.like)))

    def check_sums(self, total: np.ndarray, of_rows: np.ndarray | float = 0.0) -> None:
        """Raise `InvalidParameterError` where products of features, or numbers of the rows, are not finite."""
        if not np.all(np.isfinite(of_rows)) or not np.all(np.isfinite(total)):
            source = NumberSource(f"the kernel {type(self.kernel).__name__}", self.like.dtype)
            raise overflow(source, "a product of features is infinite")

    def definite(self, residuals: np.ndarray, sizes: np.ndarray) -> float:
        """Return the noise of residuals of rows; raise `IndefiniteKernelError` where one is negative beyond it."""
        L = self.start.pivot_factor
        # Rows that equal the base point have size 0; what cancels in them is as large as in the landmarks.
        lowest, size = float(np.min(residuals, initial=0.0)), float(np.max(sizes, initial=np.max(L * L, initial=0.0)))
        is_explained = self.kernel.positive_definite and float(np.min(np.diagonal(L) ** 2, initial=size)) < (
            SMALL_PIVOT * size
        )
        if lowest < -INDEFINITE[dtype_name(self.like.dtype)] * size and not is_explained:
            why = f"a residual is {lowest:.4g} (the largest diagonal entry is {size:.4g})"
            raise indefinite(f"the kernel {type(self.kernel).__name__}", why)
        return float(np.max(-residuals - self.rounding * sizes, initial=0.0))


def sums_of_panel(
    panel: Any, weights: Array | None, kept: Array | None, features: LandmarkFeatures, workers: int
) -> FactorSums:
    """Return the sums over the features of a panel of rows; `weights` (n, 1) on the host say how often each counts.

    The features less the shift are written into `kept` (n, l), where it is given.
    """
    n, start, wide = int(panel.shape[0]), features.start, features.wide
    shift = from_host(-start.shift, features.like)[None, :]
    of_rows = np.zeros((3, n))  # k(x, x), sizes, residuals

    def products(first: int, last: int, _: Any) -> Array:
        f, diagonal, sizes = features.of(take_rows(panel, first, last), None if kept is None else kept[first:last, :])
        numbers = [diagonal, sizes, diagonal - row_squares(f)]
        of_rows[:, first:last] = to_host(namespace_of(f).stack(numbers, axis=0))
        roots = None if weights is None else from_host(np.sqrt(weights[first:last]), f, wide)
        return moments_about(add(f, shift), roots, features.like)  # in place: `kept` has them less the shift

    if not n:
        return start
    with overflow_allowed():
        total = to_host(sum_over(products, features.panels(panel), workers, features.like)).astype(np.float64)
    features.check_sums(total, of_rows)
    noise = max(start.noise, features.definite(of_rows[2], of_rows[1]))
    drift = start.drift and start.drift.of_rows(of_rows[2], of_rows[0])
    trace, sizes, residual = np.sum(of_rows if weights is None else of_rows * weights.T, axis=1).tolist()
    slots = features.slots_of(panel, of_rows[2], of_rows[1], None if weights is None else weights[:, 0])
    more: dict[str, Any] = {"noise": noise, "drift": drift, "slots": slots}
    return start.of_rows(total, n, weights, trace=trace, sizes=sizes, residual=residual, **more)


def sums_of_factor(
    F: Array, X: Any, factor: PivotedCholesky, weights: np.ndarray | None, features: LandmarkFeatures, workers: int
) -> FactorSums:
    """Return the same sums of rows X from the factor of all of them, F (n, k) less the shift of the features.

    `factor` has the trace and the residuals of the rows, each as often as `weights` (n,) say.
    """
    roots = None if weights is None else np.sqrt(weights)[:, None]

    def products(first: int, last: int, _: Any) -> Array:
        part = None if roots is None else from_host(roots[first:last], F, features.wide)
        return moments_about(F[first:last, :], part, features.like)

    length = blocking.SQUARE_ROWS if has_narrow_square(F) else inner_panel(F, F.dtype == features.wide)
    with overflow_allowed():
        panels = row_slices(int(F.shape[0]), min(length, cached_rows(factor.rank)) if workers > 1 else length)
        total = to_host(sum_over(products, panels, workers, features.like)).astype(np.float64)
    features.check_sums(total)
    slots = features.slots_of(X, factor.residuals, factor.sizes, weights)
    more: dict[str, Any] = {"trace": factor.trace, "sizes": factor.uncancelled_trace, "slots": slots}
    return features.start.of_rows(total, int(F.shape[0]), weights, residual=factor.residual_trace, **more)


def moments_about(f: Array, roots: Array | None, like: Array) -> Array:
    """Return Σ w f fᵀ with Σ w f as one more column, shape (k, k + 1), of rows f (b, k) less a shift; roots are w^½.

    Products of float32 rows on NumPy are formed in float32 and summed in the widest type, which takes half the time:
    their error is a tenth of eps times the largest eigenvalue, and up to 20 eps where few rows hold most of the sum.
    """
    wide, xp = accumulation_dtype(like), namespace_of(f)
    one = full((int(f.shape[0]), 1), 1.0, like, wide) if roots is None else roots
    f = f if roots is None else f * cast(roots, f.dtype)
    if has_narrow_square(like):
        square, sums = narrow_square(f, 1), cast(transposed_product(f, cast(one, f.dtype)), wide)
        most = CANCELS * float(xp.sum(one * one)) * float(np.trace(square))
        # Else the mean cancels digits of the squares, or these leave the range of float32.
        if float(xp.sum(sums * sums)) <= most < np.inf:
            return concat([square, sums], axis=1)
    f = cast(f, wide)
    return concat([transposed_product(f, f), transposed_product(f, one)], axis=1)


def factor_times(F: Array, features: LandmarkFeatures, workers: int, mean: np.ndarray, M: np.ndarray) -> Array:
    """Return the features of all rows less their mean, times a small matrix; F (n, k) holds them less their shift."""
    rest = from_host((mean - features.start.shift) @ M, F)
    return times_small(F, M, workers) - rest[None, :]


def features_times(panel: Any, features: LandmarkFeatures, workers: int, mean: np.ndarray, M: np.ndarray) -> Array:
    """Return the features of a panel of rows less their mean, times a small matrix M (l, p)."""
    wide, like = features.wide, features.like
    center, right = from_host(mean, like, wide)[None, :], from_host(M, like, wide)

    def product(first: int, last: int, _: Any) -> Array:
        f = features.rows_of(take_rows(panel, first, last))
        return cast((cast(f, wide) - center) @ right, like.dtype)

    n = int(panel.shape[0])
    with overflow_allowed():
        return assemble_rows(product, features.panels(panel), (n, M.shape[1]), like, workers)


def products_of_panel(
    panel: Any, V: Array, roots: Array | None, features: LandmarkFeatures, workers: int
) -> np.ndarray:
    """Return Gᵀ [G, V] for a panel of rows with G = [f - shift, 1], times `roots` (n, 1), on the host in float64."""
    wide, like = features.wide, features.like
    shift = from_host(features.start.shift, like, wide)[None, :]

    def products(first: int, last: int, _: Any) -> Array:
        f = cast(features.rows_of(take_rows(panel, first, last)), wide)
        G = concat([f - shift, full((last - first, 1), 1.0, f)], axis=1)
        G = G if roots is None else G * cast(roots[first:last, :], wide)
        return G.T @ concat([G, cast(V[first:last, :], wide)], axis=1)

    with overflow_allowed():
        return to_host(sum_over(products, features.panels(panel), workers, like)).astype(np.float64)
