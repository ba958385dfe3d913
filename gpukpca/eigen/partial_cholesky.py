"""The builder of a partial Cholesky factor.

All rules of choosing pivots share one round: a block of candidates, their small submatrix of K - F Fᵀ on the host in
float64, the choice of those to accept, and one pass over n rows for the accepted ones alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from gpukpca._typing import Array, ColumnPanels, RankReport, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.elementwise import Scratch
from gpukpca.backend.linalg import column_sums, inner_products, row_squares
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    concat,
    dtype_name,
    empty_like,
    epsilon,
    from_host,
    full,
    indices,
    move,
    namespace_of,
    overflow_allowed,
    to_host,
    writes_in_place,
)
from gpukpca.backend.parallel import map_in_order, row_slices, single_threaded_blas, sum_over, worker_count
from gpukpca.data.column_basis import ColumnBasis
from gpukpca.data.finite import not_finite, overflow
from gpukpca.data.scale import scale_for_squares
from gpukpca.data.slicing import gather_rows, panel_length, take_columns, take_rows
from gpukpca.eigen.elimination import Elimination
from gpukpca.eigen.norm_bound import NormLooks
from gpukpca.eigen.pivoted_factor import PivotedCholesky
from gpukpca.eigen.solver import TOLERANCE
from gpukpca.exceptions import IndefiniteKernelError

# Entries of K and of F Fᵀ are trusted to this share of sqrt(K_ii K_jj), K before anything was subtracted from it: 500
# eps and 50 eps. A residual below that of K_ii is rounding and never a pivot.
ROUNDING = {"float64": 1e-13, "float32": 6e-6}
# Elimination multiplies the rounding of its steps by up to the reciprocal of the smallest pivot. Rounds with a pivot
# below this share of K_ii are computed in the widest type, the others in that of K. Measured for float32 and K of RBF
# with near duplicates and small gamma, 300 of 1000 rows: columns of pivots err by 4e-6, and the negative eigenvalues of
# K - F Fᵀ sum to 4e-7 tr K; without it by 4e-5 and 3e-6.
SMALL_PIVOT = 1e-2
# Where a residual shows more noise than that, residuals below a few times as much count as rounding in every row.
NOISE = 4.0
# The certificate is compared with the largest eigenvalue each time F has grown by a quarter.
GROWTH, FASTEST_GROWTH = 1.25, 2.0
# A negative residual beyond this share of the largest diagonal entry is no rounding, unless the matrix is known to be
# semidefinite and small pivots have magnified the rounding of F. Such pivots are skipped.
INDEFINITE = {"float64": 1e-6, "float32": 1e-3}
REMEDY = (
    "Nyström needs a positive semidefinite kernel: use an exact solver, another kernel (rbf, laplacian, matern, poly "
    "with coef0 >= 0), or for sigmoid a smaller gamma."
)

# Panels of rows that are prepared and multiplied are so much shorter than those that are swept once.
WIDE_PANEL = 2

LANDMARK_TOLERANCE = replace(TOLERANCE, text="a number in [0, 1) (0: no stop)")


class PartialCholeskyBuilder:
    """A factor F under construction, with the diagonal of K - F Fᵀ for F as it is stored.

    Numbers of the rows are in float64, with F where its library writes in place, else on the host.
    """

    def __init__(
        self,
        op: SymmetricOperator,
        rank: int,
        block: int,
        tol: float = 0.0,
        report: RankReport | None = None,
        sample_weight: np.ndarray | None = None,
        looks: NormLooks | None = None,
        least: int = 0,
    ) -> None:
        LANDMARK_TOLERANCE.check_argument("tol", tol)
        self.op = op
        self.tol: float = float(tol)
        self.looks = looks
        self.report = report
        self.n: int = int(op.shape[0])
        self.rank = rank
        self.block: int = min(block, blocking.LARGEST_PIVOT_BLOCK)
        self.workers: int = op.workers or worker_count(op.like)
        self.wide: Any = accumulation_dtype(op.like)
        self.place: Array = empty_like(op.like, self.wide) if writes_in_place(op.like) else np.empty(0)
        self.xp: Any = (xp := namespace_of(self.place))
        self.diagonal: Array
        self.sizes: Array
        self.diagonal, self.sizes = checked_diagonal(op, self.place)
        # Rows that count several times have equal residuals: one of them stands for all in every sum.
        ones = full((self.n,), 1.0, self.place)
        self.sample_weight: Array = ones if sample_weight is None else from_host(sample_weight, self.place)
        self.count: float = float(xp.sum(self.sample_weight))
        self.trace: float = self._total(self.diagonal)
        self.size: float = float(xp.max(self.sizes))
        entries = op.rounding * epsilon(op.like)
        self.entries: float = max(ROUNDING[dtype_name(op.dtype)], entries)
        self.expected: Array = self.entries * self.sizes
        self.residuals: Array = self.diagonal
        self.is_pivot: Array = full((self.n,), False, self.place, xp.bool)
        self.pivots: np.ndarray = np.zeros(0, dtype=np.int64)
        self.L = np.zeros((rank, rank))
        self.F = ColumnBasis.with_capacity(self.n, rank, op.like)
        self.n_columns: int = 0
        self.next_check: int = least
        self.stopped: str = ""
        self.least_pivot: float = math.inf
        self.skipped: float = 0.0  # the noise that skipped pivots have shown
        self.noise: float = 0.0
        if self.size == 0.0 and np.any(to_host(self.columns(np.zeros(1, dtype=np.int64))) != 0):
            raise indefinite(op.name, "its diagonal is 0, and K[:, 0] is not")

    def _total(self, of_rows: Array) -> float:
        """Return Σ w_i a_i over the rows."""
        return float(self.sample_weight @ of_rows)

    # -- when to stop ----------------------------------------------------------------------------------------------

    def _lowest(self) -> tuple[float, int]:
        """Return the least residual, NaN if there is one, and its row.

        Set the noise: how far residuals of rounding alone (pivots, negative ones) exceed the expected size.
        """
        xp, left = self.xp, self.residuals
        noise = xp.max(xp.where(self.is_pivot, xp.abs(left), -left) - self.expected)
        row = cast(xp.argmin(left), left.dtype)
        noise, lowest, row = to_host(xp.stack([noise, xp.min(left), row])).tolist()  # one copy
        self.noise = max(self.skipped, noise)
        return lowest, int(row)

    def floors(self) -> Array:
        """Return the size up to which residuals are rounding, shape (n,)."""
        return self.expected + self.unexpected

    @property
    def unexpected(self) -> float:
        """Return the part of rounding that noise has shown."""
        return NOISE * self.noise

    def rounding(self) -> float:
        """Return `PivotedCholesky.rounding`."""
        return self._total(self.expected) + self.count * self.unexpected

    def chances(self) -> Array:
        """Return w_i times the residuals that may become pivots, 0 elsewhere."""
        is_out = self.is_pivot | (self.residuals <= self.floors())
        return self.xp.where(is_out, 0.0, self.sample_weight * self.residuals)

    def should_continue(self) -> bool:
        """Return whether another round makes sense; set `stopped` where it does not."""
        if len(self.pivots) >= self.rank:
            self.stopped = "rank"
        elif not bool(self.xp.any(self.chances() > 0.0)):
            self.stopped = "exhausted"
        elif self._meets_tolerance():
            self.stopped = "tolerance"
        return not self.stopped

    def _meets_tolerance(self) -> bool:
        if self.tol == 0.0 or not len(self.pivots):
            return False
        left = max(self._total(self.residuals), 0.0)
        certificate = left + self.rounding()
        least = certificate if self.looks is None else self.looks.least(certificate, self.n)
        # The largest eigenvalue costs n k² operations, and is at most the trace of F Fᵀ.
        if least > self.tol * (self.trace - left) or len(self.pivots) < self.next_check:
            return False
        self.next_check = math.ceil(GROWTH * len(self.pivots))
        allowed = self.tol * self._largest_eigenvalue()
        if self.looks is None or not least <= allowed < certificate:
            return certificate <= allowed
        if (bound := self.looks.bound(self, allowed)) > allowed:  # which falls about as fast as 1 / rank
            self.next_check = math.ceil(len(self.pivots) * min(FASTEST_GROWTH, max(GROWTH, math.sqrt(bound / allowed))))
        return bound <= allowed

    def errors_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return K - F Fᵀ between rows, on the host in float64."""
        F = to_host(self.F.take(indices(numbers, self.place))).astype(np.float64)
        return self.entries_of(numbers)[0] - F @ F.T

    def _largest_eigenvalue(self) -> float:
        """Return that of W^½ H F Fᵀ H W^½, from the small matrix Fᵀ H W H F."""
        F, roots = self.F.array, cast(move(self.xp.sqrt(self.sample_weight)[:, None], self.op.like), self.wide)
        means = from_host(weighted_means(F, self.sample_weight), self.op.like, self.wide)[None, :]

        def square(start: int, stop: int, _: Scratch) -> Array:
            block = (cast(F[start:stop, :], self.wide) - means) * roots[start:stop, :]
            return block.T @ block

        with single_threaded_blas():
            gram = to_host(sum_over(square, self._panels(), self.workers, self.op.like)).astype(np.float64)
            return float(np.linalg.eigvalsh(gram)[-1])

    # -- one round -------------------------------------------------------------------------------------------------

    def extend(self, candidates: np.ndarray, draws: np.ndarray, levels: np.ndarray) -> tuple[int, bool]:
        """Append the columns of candidates that become pivots; return their number, and if it took all columns of K.

        ``candidates[draws]`` are examined in order. One is accepted where its residual, given those accepted before it,
        exceeds `levels` times its residual before the round.
        """
        K, columns = self.entries_of(candidates)
        at, floors = indices(candidates, self.place), self.floors()
        of_rows = to_host(self.xp.stack([self.residuals[at], floors[at], self.sizes[at]]))  # one copy
        with single_threaded_blas():  # the panels use threads themselves, and the rest is small
            rows = self.F.take(at) if self.F.count else np.zeros((len(candidates), 0))
            residual = K - rows @ rows.T
            np.fill_diagonal(residual, of_rows[0])
            levels = np.maximum(levels * of_rows[0, draws], of_rows[1, draws])
            limit = min(self.block, self.rank - len(self.pivots))
            least, small = -math.inf, SMALL_PIVOT * self.size
            if self.op.positive_definite:
                least = -INDEFINITE[dtype_name(self.op.dtype)] * self.size - NOISE * self.noise
            accepted, L, lowest, skipped = sequential_pivots(residual, draws, levels, limit, least, small)
            self.skipped = max(self.skipped, skipped)
            self.noise = max(self.noise, skipped)
            squares = np.diagonal(L) ** 2
            self.least_pivot = min(self.least_pivot, float(np.min(squares, initial=math.inf)))
            self._check_definite(lowest, "of a candidate")
            if len(accepted):
                dtype = self.wide if np.any(squares < SMALL_PIVOT * of_rows[2, accepted]) else self.op.dtype
                if columns is not None and not np.array_equal(accepted, np.arange(columns.shape[1])):
                    columns = take_columns(columns, accepted)
                self._append(candidates[accepted], rows[accepted], L, columns, dtype)
        if self.report is not None:
            self.report(len(self.pivots), self.rank, self._total(self.residuals) / self.trace)
        return len(accepted), columns is not None

    def entries_of(self, chosen: np.ndarray) -> tuple[np.ndarray, Array | None]:
        """Return K[chosen, chosen], finite, on the host in float64, and K[:, chosen] where that took whole columns."""
        with overflow_allowed():
            block, columns = self.op.block(chosen, chosen), None
        if block is None:
            columns = self.columns(chosen)
            block = gather_rows(columns, chosen)
        K = to_host(block).astype(np.float64)
        if not np.all(np.isfinite(K)):
            i, j = np.argwhere(~np.isfinite(K))[0]
            raise not_finite(self.op, int(chosen[i]), int(chosen[j]), K[i, j])
        np.copyto(K, K.T, where=np.tri(len(K), k=-1, dtype=bool))  # exactly symmetric
        return K, columns

    def columns(self, chosen: np.ndarray) -> Array:
        """Return K[:, chosen], and count the columns."""
        self.n_columns += len(chosen)
        with overflow_allowed():
            return self.op.columns(chosen)

    # -- the pass over n rows --------------------------------------------------------------------------------------

    def _append(self, chosen: np.ndarray, rows: np.ndarray, L: np.ndarray, columns: Array | None, dtype: Any) -> None:
        """Append (K[:, chosen] - F rowsᵀ) L⁻ᵀ to F, computed in a type; update the residuals."""
        k, b = len(self.pivots), len(chosen)
        panels = self._column_panels(chosen, columns)
        scale = scale_for_squares(self.size, self.op.dtype)
        widths = [int(part.shape[1]) for part in self.F.parts]
        elimination = Elimination.of(rows, L, widths, self.op.like, scale, dtype)
        new, squares = self._new_columns(panels, elimination, b)
        self.residuals = self.residuals - squares
        self.is_pivot[indices(chosen, self.place)] = True
        lowest, worst = self._lowest()
        if not math.isfinite(lowest):
            i = first_not_finite(self.residuals)
            row = to_host(panels(i, i + 1))[0]
            j = int(np.argmin(np.isfinite(row)))
            raise not_finite(self.op, i, int(chosen[j]), float(row[j]))
        self.F = ColumnBasis((*self.F.parts, new)) if self.F.store is None else self.F.append(new)
        self.pivots = np.concatenate([self.pivots, chosen])
        self.L[k : k + b, :k], self.L[k : k + b, k : k + b] = rows, L
        self._check_definite(lowest, f"of row {worst}")

    def _column_panels(self, chosen: np.ndarray, columns: Array | None) -> ColumnPanels:
        """Return the function (start, stop) -> K[start:stop, chosen]; count computed columns."""
        if columns is not None:
            return lambda start, stop: take_rows(columns, start, stop)
        self.n_columns += len(chosen)
        return self.op.column_panels(chosen)

    def _new_columns(self, columns: ColumnPanels, elimination: Elimination, b: int) -> tuple[Array, Array]:
        """Return the new columns of F, in its memory if reserved, and their squared row norms."""
        target, parts = self.F.memory_for(b), self.F.parts

        def panel(bounds: tuple[int, int]) -> tuple[Array | None, Array]:
            start, stop = bounds
            place = None if target is None else target[start:stop, :]
            new = elimination.rows(columns(start, stop), [part[start:stop, :] for part in parts], place)
            return None if target is not None else new, row_squares(new)

        with overflow_allowed():
            done = map_in_order(panel, self._panels(b), self.workers)
        squares = held_at(concat([square for _, square in done]), self.place)
        return concat([new for new, _ in done]) if target is None else target, squares

    def _panels(self, b: int = 0) -> list[tuple[int, int]]:
        """Return panels that stay in cache with F and `b` new columns."""
        return row_slices(self.n, pivot_panel(self.n, len(self.pivots) + b, is_on_gpu(self.op.like)))

    def _check_definite(self, residual: float, whose: str) -> None:
        if self.op.positive_definite and self.least_pivot < SMALL_PIVOT * self.size:
            return  # rounding, which counts as noise
        if residual < -INDEFINITE[dtype_name(self.op.dtype)] * self.size:
            raise indefinite(
                self.op.name,
                f"after {len(self.pivots)} pivots the residual {whose} is {residual:.4g} (the largest diagonal entry "
                f"is {self.size:.4g})",
            )

    def result(self) -> PivotedCholesky:
        k = len(self.pivots)
        if self.looks is not None and self.stopped == "rank" and k > self.looks.rank:
            self.looks.bound(self, 0.0)  # what was reached
        return PivotedCholesky(
            F=self.F.array if k else full((self.n, 0), 0.0, self.op.like),
            pivots=self.pivots,
            pivot_factor=self.L[:k, :k],
            residual_trace=self._total(self.residuals),
            trace=self.trace,
            uncancelled_trace=self._total(self.sizes),
            rounding=self.rounding(),
            n_columns=self.n_columns,
            stopped=self.stopped,
            noise=self.noise,
            residuals=self.residuals,
            sizes=self.sizes,
            looks=self.looks,
        )


def weighted_means(F: Array, sample_weight: Array | None) -> np.ndarray:
    """Return Σ w_i f_i / Σ w_i over the rows of F (n, k), shape (k,), on the host in float64."""
    if sample_weight is None:
        return to_host(column_sums(F)).astype(np.float64) / max(1, int(F.shape[0]))
    weights = cast(move(sample_weight[:, None], F), accumulation_dtype(F))
    return inner_products(F, weights)[:, 0] / float(namespace_of(sample_weight).sum(sample_weight))


def means_of_some(F: Array, sample_weight: Any) -> np.ndarray:
    """Return the same over rows that are spread over all of F: near enough for a shift."""
    step = max(1, int(F.shape[0]) // blocking.PANEL_ROWS)
    return weighted_means(F[::step, :], None if sample_weight is None else sample_weight[::step])


def sequential_pivots(
    residual: np.ndarray, draws: np.ndarray, levels: np.ndarray, limit: int, least: float, small: float
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Return positions of accepted candidates, the lower Cholesky factor of their residuals, the least residual, noise.

    Draw t is accepted where the residual of candidate draws[t], given those accepted before it, exceeds levels[t]. It
    is skipped where it is below `small` and would leave a residual below `least`. The noise is the size of the entries
    that show this, and at least such that the skipped candidate counts as noise.
    """
    diagonal = np.diagonal(residual).copy()
    L = np.zeros((len(residual), min(limit, len(residual))))
    accepted: list[int] = []
    lowest, noise = float(np.min(diagonal, initial=0.0)), 0.0
    for j, level in zip(draws.tolist(), levels.tolist(), strict=True):
        m = len(accepted)
        if m == L.shape[1]:
            break
        pivot = float(diagonal[j])
        if pivot <= level or j in accepted:
            continue
        column = (residual[:, j] - L[:, :m] @ L[j, :m]) / math.sqrt(pivot)
        left = diagonal - column**2
        worst = float(np.min(left))
        if worst < least and pivot < small:
            noise = max(noise, math.sqrt(-worst * pivot), pivot / NOISE)
            continue
        L[:, m], diagonal = column, left
        accepted.append(j)
        lowest = min(lowest, worst)
    return np.asarray(accepted, dtype=np.int64), np.tril(L[accepted, : len(accepted)]), lowest, noise


def pivot_panel(n: int, columns: int, on_gpu: bool) -> int:
    """Return the rows of a panel of so many columns of F."""
    fitting = max(blocking.FEWEST_PIVOT_ROWS, blocking.PIVOT_PANEL_ENTRIES.on(on_gpu) // max(columns, 64))
    return min(fitting, max(blocking.FEWEST_PIVOT_ROWS, -(-n // 4)))


def feature_panel(n: int, d: int, columns: int, on_gpu: bool) -> int:
    """Return the rows of a panel that is prepared, of d features: fewer where rows are wide."""
    return max(1, min(pivot_panel(n, columns, on_gpu), panel_length(d, on_gpu) // WIDE_PANEL))


def default_block(rank: int) -> int:
    """Return the columns of F of one round: few passes over n rows, few columns in memory."""
    return min(blocking.LARGEST_PIVOT_BLOCK, max(blocking.SMALLEST_PIVOT_BLOCK, rank // 10))


def held_at(values: Array, place: Array) -> Array:
    """Return numbers of rows in float64 where `place` is."""
    return cast(move(values, place), place.dtype)


def first_not_finite(values: Array) -> int:
    """Return the position of the first NaN or infinity."""
    xp = namespace_of(values)
    return int(xp.argmin(cast(xp.isfinite(values), xp.int8)))


def checked_diagonal(op: SymmetricOperator, place: Array) -> tuple[Array, Array]:
    """Return the diagonal in float64 where `place` is, finite and not negative beyond rounding, and its sizes.

    The sizes are the diagonal before anything was subtracted from it; rounding is relative to them.
    """
    with overflow_allowed():
        diagonal, xp = held_at(op.diagonal(), place), namespace_of(place)
        if not math.isfinite(float(xp.sum(diagonal))):
            i = first_not_finite(diagonal)
            is_sum = math.isfinite(value := float(diagonal[i]))
            raise overflow(op, "its trace is infinite") if is_sum else not_finite(op, i, i, value)
    sizes = xp.abs(diagonal)
    uncancelled = op.sizes()
    if uncancelled is not None:
        sizes = xp.maximum(held_at(uncancelled, place), sizes)
    lowest = float(xp.min(diagonal))
    if lowest < -INDEFINITE[dtype_name(op.dtype)] * float(xp.max(sizes)):
        raise indefinite(op.name, f"k(x, x) = {lowest:.4g} for row {int(xp.argmin(diagonal))}")
    return xp.maximum(diagonal, 0.0), sizes


def indefinite(name: str, why: str) -> IndefiniteKernelError:
    """Return the error for a matrix that shows a negative eigenvalue."""
    return IndefiniteKernelError(f"{name} is not positive semidefinite on these data: {why}. {REMEDY}")
