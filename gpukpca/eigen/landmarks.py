"""Nyström: the number of landmarks and the rules that choose them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from gpukpca._rules import COUNT, NONE, Rule, Rules, any_word, is_integer, one_of
from gpukpca._typing import RankReport, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.device import on_its_device
from gpukpca.backend.external import as_operator
from gpukpca.backend.linalg import pivot_order
from gpukpca.backend.namespace import host_values, to_host
from gpukpca.backend.random import generator, keyed_generator, random_subset, uniform, weighted_draws
from gpukpca.data.frequencies import checked_frequencies
from gpukpca.data.slicing import gather_rows
from gpukpca.eigen.norm_bound import SMALLEST_SAMPLE, NormLooks
from gpukpca.eigen.partial_cholesky import (
    LANDMARK_TOLERANCE,
    PartialCholeskyBuilder,
    default_block,
    pivot_panel,
)
from gpukpca.eigen.pivoted_factor import PivotedCholesky
from gpukpca.eigen.solver import PlannedSolver, SolverParameters
from gpukpca.exceptions import InvalidParameterError

# Landmarks by default: ten a component, and a number that costs little.
LANDMARKS_A_COMPONENT, FEWEST_LANDMARKS = 10, 500
# Rows among which a fit in one pass chooses its landmarks: so many a landmark, and the fewest.
SAMPLED_A_LANDMARK, FEWEST_SAMPLED = 10, 2000
# A limit holds so many times the rows: as they are, prepared, in the panel of a tile, and the rest.
SAMPLE_SHARE = 32
# Of the bound on the norm: slots at least, beyond them the share of the fit's operations, and slots at most; the rows
# of a stream whose end is not known.
FEWEST_SLOTS, SLOT_SHARE, MOST_SLOTS = 500, 0.02, 8192
STREAM_ROWS = 100_000
# Square matrices in float64 of a bound.
LOOK_COPIES = 4
# Candidates for one accepted pivot, and in all, where most are rejected.
MOST_A_PIVOT, MOST_CANDIDATES = 4, 512


@on_its_device
def pivoted_cholesky(
    op: SymmetricOperator,
    rank: int | None = None,
    rng: np.random.Generator | int | None = None,
    *,
    landmarks: Any = None,
    tol: float = 0.0,
    block_size: int | None = None,
    report: RankReport | None = None,
    sample_weight: Any = None,
) -> PivotedCholesky:
    """Compute a partial Cholesky factor F of a positive semidefinite operator, K ≈ F Fᵀ, by pivots drawn or given.

    Without `landmarks` every pivot is drawn with probability proportional to the diagonal of the residual K - F Fᵀ. A
    block of candidates is drawn from the diagonal before the block. Each is accepted with the ratio of its present
    residual to the one before the block, which gives pivots with the law of the one-by-one method.

    Parameters
    ----------
    op : SymmetricOperator, shape (n, n)
        Not centered. Only ``diagonal()``, ``columns(indices)`` and, where they exist, ``column_panels(indices)`` and
        ``block(rows, columns)`` are used.
    rank : int, optional
        Most columns of F; n at most. Without `landmarks` it must be given.
    rng : numpy.random.Generator, int or None
        Source of the draws; an int is a seed.
    landmarks : sequence of int, optional
        Rows that become the pivots, in any order, in place of `rank`. The largest residual among them comes first;
        those that depend on others to rounding are left out.
    tol : float
        Stop as soon as the certificate is at most `tol` times the largest eigenvalue of H F Fᵀ H. 0: use up the rank.
    block_size : int, optional
        Candidates a round, and most columns of F that one round appends (128 at most). Default: a tenth of the rank,
        from 8 to 128, with up to four times as many candidates while most are rejected. The law of the pivots does not
        depend on it.
    report : callable, optional
        Called after every round with (columns of F, most columns, share of the trace that is left).
    sample_weight : array, shape (n,), optional
        How often each row counts: in the draws, and in every sum over the rows. F stays the factor of K itself.

    Returns
    -------
    object
        `F` (n, k), in the dtype and place of the operator, has fewer than `rank` columns where the tolerance is met, or
        where no residual is above rounding: an operator of rank r gives r columns. `pivots` (k,) are the rows of the
        landmarks, in the order of the columns. `pivot_factor` (k, k) in float64 on the host is lower triangular, L with
        K[pivots, pivots] = L Lᵀ and F[pivots] = L: a new point x has the row f(x) = k(x, landmarks) L⁻ᵀ.
        `residual_trace` is tr(K - F Fᵀ) and `trace` is tr K. `certificate` bounds the sum of what the eigenvalues of
        H F Fᵀ H, H = I - 11ᵀ/n, miss of those of H K H: the residual trace and rounding. `rank` is k, and `stopped` is
        "rank", "tolerance", or "exhausted" where no residual is above rounding.

    Raises
    ------
    IndefiniteKernelError
        A diagonal entry, or a residual of one, is negative beyond rounding.
    InvalidParameterError
        Entries are NaN or infinite; rank, landmarks, tol or block_size is out of range.

    See Also
    --------
    Nystrom : Kernel PCA by such a factor.

    Notes
    -----
    Cost: k columns of K and n k² operations in the type of K; with `tol` about 3 n k² more; of given landmarks O(k³) on
    the host for their order, for which an operator without ``block(rows, columns)`` evaluates its columns once more.
    Memory: F, some panels of rows and O(n) on the host; also one block of columns where the operator does not compute
    them by panels. F is written column by column, so what a tolerance saves is never touched.

    Chen, Epperly, Tropp & Webber, Comm. Pure Appl. Math. 78 (2025), arXiv 2207.06503 (the method and its error);
    Epperly, Tropp & Webber, arXiv 2410.03969, algorithm 2 (rejection inside blocks).

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.eigen import pivoted_cholesky
    >>> from gpukpca.gram import DenseGram, TiledGram
    >>> from gpukpca.kernels import RBF
    >>> X = np.random.default_rng(0).standard_normal((200, 3))
    >>> factor = pivoted_cholesky(TiledGram(RBF(gamma=0.1), X), rank=40, rng=0)
    >>> factor.F.shape, len(set(factor.pivots.tolist()))
    ((200, 40), 40)
    >>> bool(0.0 <= factor.residual_trace < 0.01 * factor.trace)
    True

    Given landmarks, exact in their rows and columns:

    >>> K = np.array([[4.0, 2.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 1.0]])
    >>> factor = pivoted_cholesky(DenseGram(K), landmarks=[0, 2])
    >>> factor.F @ factor.F.T
    array([[4., 2., 0.],
           [2., 1., 0.],
           [0., 0., 1.]])
    >>> factor.residual_trace
    2.0
    """
    if landmarks is None:
        return drawn_cholesky(op, rank, rng, tol=tol, block_size=block_size, report=report, sample_weight=sample_weight)
    if rank is not None:
        raise InvalidParameterError(f"rank={rank!r} is not allowed with landmarks; leave it out, it is their number.")
    return landmark_cholesky(op, landmarks, tol=tol, report=report, sample_weight=sample_weight)


def drawn_cholesky(
    op: SymmetricOperator,
    rank: Any,
    rng: np.random.Generator | int | None,
    *,
    block_size: int | None = None,
    sample_weight: Any = None,
    **stop: Any,
) -> PivotedCholesky:
    """Return the factor of rows drawn by their residuals; see `pivoted_cholesky`.

    `stop` holds tol, report, looks and least of `PartialCholeskyBuilder`.
    """
    op = as_operator(op)
    rng = generator(rng)
    COUNT.check_argument("rank", rank)
    one_of(NONE, COUNT).check_argument("block_size", block_size)
    rank = min(int(rank), op.shape[0])
    block = int(block_size or default_block(rank))
    weights = checked_frequencies(sample_weight, op.shape[0], is_batch=True)
    builder, size = PartialCholeskyBuilder(op, rank, block, sample_weight=weights, **stop), block
    while builder.should_continue():
        # Among few candidates a row may be drawn twice: if it was rejected, it has another chance.
        candidates, draws = np.unique(weighted_draws(rng, builder.chances(), size), return_inverse=True)
        accepted, takes_columns = builder.extend(candidates, draws, uniform(rng, size))
        if block_size is None and not takes_columns:  # else a rejected candidate costs a column
            size = min(MOST_CANDIDATES, MOST_A_PIVOT * block, max(block, block * size // max(accepted, 1)))
    return builder.result()


def landmark_cholesky(
    op: SymmetricOperator, landmarks: Any, *, tol: float = 0.0, sample_weight: Any = None, **stop: Any
) -> PivotedCholesky:
    """Return the factor of given rows; see `pivoted_cholesky`, and for `stop` `drawn_cholesky`."""
    op = as_operator(op)
    chosen = checked_landmarks(landmarks, op.shape[0])
    block = _block_of_landmarks(len(chosen), tol)
    weights = checked_frequencies(sample_weight, op.shape[0], is_batch=True)
    builder = PartialCholeskyBuilder(op, len(chosen), block, tol, sample_weight=weights, **stop)
    floor = float(np.min(to_host(gather_rows(builder.floors(), chosen))))
    order = chosen[pivot_order(_among(builder, chosen, block), floor)]
    start = 0
    while builder.should_continue():
        part, start = order[start : start + block], start + block
        if not len(part):
            builder.stopped = "rank"
            break
        builder.extend(part, np.arange(len(part)), np.zeros(len(part)))
    return builder.result()


def _block_of_landmarks(count: int, tol: float) -> int:
    """Return the landmarks of a round: without a tolerance that may end it early, wide blocks read F least often."""
    return default_block(count) if tol else min(count, blocking.LARGEST_PIVOT_BLOCK)


def _among(builder: PartialCholeskyBuilder, chosen: np.ndarray, block: int) -> np.ndarray:
    """Return K[chosen, chosen] on the host; by some columns at a time where the operator has no cheaper way."""
    direct = builder.block_of(chosen)
    if direct is not None:
        np.fill_diagonal(direct, to_host(gather_rows(builder.diagonal, chosen)))
        return direct
    pieces = [chosen[start : start + block] for start in range(0, len(chosen), block)]
    K = np.concatenate([to_host(gather_rows(builder.columns(piece), chosen)) for piece in pieces], axis=1)
    return K.astype(np.float64)


def _even_cholesky(op: SymmetricOperator, rank: int, rng: np.random.Generator, **options: Any) -> PivotedCholesky:
    """Return the factor of rows drawn evenly without repetition."""
    return landmark_cholesky(op, random_subset(rng, op.shape[0], rank), **options)


BOUND_ROWS = Rule(
    f"None, 0 or an integer >= {SMALLEST_SAMPLE}",
    lambda value: value is None or (is_integer(value) and (value == 0 or value >= SMALLEST_SAMPLE)),
)
LandmarkRule = Literal["rpcholesky", "uniform"]
LANDMARKS: dict[str, Callable[..., PivotedCholesky]] = {
    "rpcholesky": drawn_cholesky,
    "uniform": _even_cholesky,
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Nystrom(SolverParameters, PlannedSolver):
    """Nyström approximation: kernel PCA of K ≈ F Fᵀ, F made from the columns of some landmarks.

    Parameters
    ----------
    rank : int, optional
        Landmarks, at most n. Default: ten for each component, at least 500. `tol` with ``bound="norm"`` takes as many
        as the errors need. A nearly flat kernel needs one row more as its base
        point, which the model keeps.
    landmarks : "rpcholesky", "uniform", sequence of int, or array (rank, d)
        Drawn by the residual of the diagonal (`pivoted_cholesky`), or evenly without repetition. Or chosen by anybody:
        the numbers of rows, such as the indices of `sklearn.cluster.kmeans_plusplus`, or points, such as the centers of
        k-means, which need not be rows of the data. `rank` is then their number.
    tol : float
        Take no more landmarks once every eigenvalue is known to within `tol` times the largest, by the `bound`. The
        number that was reached is `norm_bound_` or `certificate_` where the rank is spent before. Of rows that are
        read once a sample decides. 0: use up the rank; `converged_` is then judged by the default tolerance, and
        `solver_` gives the certificate that misses it.
    sample : "first" or "reservoir"
        Rows of an iterable of batches among which landmarks are drawn: those that come first, or as many drawn evenly
        from all, which reads the batches once more. Choose "reservoir" where the first rows are unlike the others.
        Rows of anything else are drawn from all.
    bound : "trace" or "norm"
        What `tol` judges: the sum of all errors, which is certain and 30 to 200 times the largest one; or a bound on
        every single error, which fails with probability 2⁻³⁰ at most.
    bound_rows : int, optional
        Rows among which entries of K - F Fᵀ are computed for `norm_bound_`, 100 at least; of no more rows than that the
        bound is certain. 0: no bound. Default: as many as take about 2 % of the fit, and at least 500.

    See Also
    --------
    pivoted_cholesky : Compute F, with the certificate.
    gpukpca.KernelPCA : Takes it as `eigen_solver`.

    Notes
    -----
    Cost: n kernel values a landmark and 2 n rank² operations. Memory: n rank items. The errors of all eigenvalues
    together are bounded by the certificate of `pivoted_cholesky`, whichever way landmarks are drawn; "rpcholesky" makes
    it small. `norm_bound_` takes entries of K - F Fᵀ between s rows, 2 s (s + rank) (d + rank) operations, when it is
    read.

    The object holds its arguments as they were given; `set_params`, or ``eigen_solver__rank=50`` of a model, sets them.
    A fit copies the landmarks, in order and without repetition. Solvers with equal copies are equal.

    Williams & Seeger, NIPS 2000; Chen, Epperly, Tropp & Webber, arXiv 2207.06503.

    Examples
    --------
    The true eigenvalues exceed the approximations by at most the certificate, in sum.

    >>> import numpy as np
    >>> from gpukpca import KernelPCA, Nystrom
    >>> X = np.random.default_rng(0).standard_normal((300, 3))
    >>> model = KernelPCA(2, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(rank=50), random_state=0).fit(X)
    >>> exact = KernelPCA(2, kernel="rbf", gamma=0.1).fit(X)
    >>> gap = exact.eigenvalues_ - model.eigenvalues_
    >>> bool(gap.min() > -1e-9 and gap.sum() <= model.certificate_)
    True
    """

    rules: ClassVar[Rules] = (
        ("sample", any_word("first", "reservoir")),
        ("rank", one_of(NONE, COUNT)),
        ("tol", LANDMARK_TOLERANCE),
        ("bound", any_word("trace", "norm")),
        ("bound_rows", BOUND_ROWS),
    )
    rank: int | None = field(default=None, kw_only=False)
    landmarks: LandmarkRule | tuple[Any, ...] | list[Any] | np.ndarray = "rpcholesky"
    tol: float = 0.0
    sample: Literal["first", "reservoir"] = "first"
    bound: Literal["trace", "norm"] = "trace"
    bound_rows: int | None = None

    def check(self) -> None:
        super().check()
        if self.bound == "norm" and self.bound_rows == 0:
            raise InvalidParameterError(
                'bound="norm" and bound_rows=0 are not allowed together: that bound needs rows. Leave out bound_rows.'
            )
        if not self.is_given:
            any_word(*LANDMARKS).check("Nystrom", "landmarks", self.landmarks)
        elif self.rank not in (None, count := len(self._chosen())):
            raise InvalidParameterError(
                f"rank={self.rank} is not allowed with {count} landmarks; leave it out, it is their number."
            )

    def normalized(self) -> Nystrom:
        """Return a checked copy in which given landmarks are an array that nobody else holds, and rank their number."""
        held = super().normalized()
        return replace(held, landmarks=(chosen := self._chosen()), rank=len(chosen)) if self.is_given else held

    def _chosen(self) -> np.ndarray:
        """Return the given landmarks, checked, in a new array: row numbers that ascend, or points in float64."""
        return checked_landmarks(self.landmarks) if self.points is None else _checked_points(self.points)

    def _compared(self) -> dict[str, Any]:
        try:
            return self.normalized().get_params(deep=False)
        except InvalidParameterError:  # of `set_params`, until a fit checks them
            return super()._compared()

    @property
    def is_given(self) -> bool:
        """Return whether the caller gave the landmarks; else a rule chooses them."""
        return not isinstance(self.landmarks, str)

    @property
    def points(self) -> np.ndarray | None:
        """Return the landmarks that are points, shape (rank, d), on the host; None where they are rows of the data."""
        return values if self.is_given and (values := host_values(self.landmarks)).ndim == 2 else None

    @property
    def name(self) -> str:
        """Return the name in a plan."""
        drawn = "chosen" if self.is_given else self.landmarks
        return f"Nyström ({drawn} landmarks, rank {self.normalized().rank})"

    def rank_for(self, n: int, p: int) -> int:
        """Return the number of landmarks for `p` components of `n` rows."""
        if self.points is not None:
            return len(self.points)
        if self.is_given:
            return len(checked_landmarks(self.landmarks, n))
        return min(n, self.rank or max(LANDMARKS_A_COMPONENT * p, FEWEST_LANDMARKS))

    def with_rank(self, p: int) -> Nystrom:
        """Return the approximation with a rank for `p` components of rows whose number is not known."""
        return self if self.rank else replace(self, rank=max(LANDMARKS_A_COMPONENT * p, FEWEST_LANDMARKS))

    def sample_within(self, row_bytes: int, limit: int | None) -> int:
        """Return how many rows of `row_bytes` a fit in one pass chooses landmarks among, within a `limit` of bytes."""
        rank = int(self.rank or 0)
        if self.is_given:
            return rank
        rows = max(FEWEST_SAMPLED, SAMPLED_A_LANDMARK * rank)
        return rows if limit is None else max(rank, min(rows, limit // (SAMPLE_SHARE * row_bytes)))

    def slots_for(self, n: int | None, d: int, rank: int, most: int | None) -> int:
        """Return how many of n rows (None: not known) bound the norm; at most as many as fit into memory."""
        # By default the entries of K - F Fᵀ between them take `SLOT_SHARE` of the fit.
        if (s := self.bound_rows) is None:
            n, s = STREAM_ROWS if n is None else n, FEWEST_SLOTS
            allowed = SLOT_SHARE * 2.0 * n * rank * (rank + d)
            while s < MOST_SLOTS and (more := s * 5 // 4) * ((more + rank) * (d + rank) + more**2 / 6) <= allowed:
                s = more
            s = s if most is None else min(s, most)
            s *= s >= SMALLEST_SAMPLE
        return s

    @staticmethod
    def entry_bytes(rows: int) -> int:
        """Return the bytes of a bound from the entries of K - F Fᵀ between so many rows."""
        return 8 * LOOK_COPIES * rows**2

    @property
    def judges_norm(self) -> bool:
        """Return whether the tolerance is compared with bounds on the norm."""
        return bool(self.tol) and self.bound == "norm"

    def look_rows(self, n: int, rank: int) -> int:
        """Return the most rows of a bound while F grows; 0 where there is none."""
        # The matrices of a look are no larger than F, if that is much.
        most = min(MOST_SLOTS, max(FEWEST_SLOTS * 4, math.isqrt(n * rank // LOOK_COPIES)))
        return min(n, self.bound_rows or most) if self.judges_norm else 0

    def growth_bytes(self, n: int, rank: int, item: int, workers: int, on_gpu: bool) -> int:
        """Return the most bytes that are held while F grows: columns of K, and every worker's panels."""
        draws = not self.is_given and self.landmarks == "rpcholesky"
        block = default_block(rank) if draws else _block_of_landmarks(rank, self.tol)
        # Where small pivots widen float32 columns, an entry of a panel takes 28 bytes.
        entry, widened = (28, 8) if item < 8 else (16, 0)
        few = 8 * (3 if widened else 1) * min(block, blocking.ELIMINATION_BLOCK)
        first, last = (min(n, pivot_panel(n, columns, on_gpu)) for columns in (block, rank))
        panels = workers * max(first * (entry * block + few), last * (entry * block + widened * rank + few))
        return max(default_block(rank) * n * item, panels, self.entry_bytes(self.look_rows(n, rank)))

    def factor(
        self,
        op: SymmetricOperator,
        p: int,
        rng: np.random.Generator,
        report: RankReport | None = None,
        sample_weight: np.ndarray | None = None,
        least: int = 0,
    ) -> PivotedCholesky:
        """Return the factor of an operator that is not centered; see `pivoted_cholesky`."""
        options: dict[str, Any] = {"tol": self.tol, "report": report, "sample_weight": sample_weight, "least": least}
        if self.judges_norm:
            n, rank = op.shape[0], self.rank_for(op.shape[0], p)
            options["looks"] = NormLooks(keyed_generator(int(rng.integers(2**63))), self.look_rows(n, rank))
        if not isinstance(self.landmarks, str):
            return landmark_cholesky(op, self.landmarks, **options)
        return LANDMARKS[self.landmarks](op, self.rank_for(op.shape[0], p), rng, **options)


def _checked_points(points: np.ndarray) -> np.ndarray:
    """Return landmarks that are points, in float64; raise where they are no finite numbers or are none."""
    if points.dtype.kind not in "fiub" or not points.size or not np.all(np.isfinite(points)):
        raise InvalidParameterError(
            f"landmarks of shape {points.shape} are not allowed; points are finite numbers of shape (rank, d), one at "
            "least."
        )
    return points.astype(np.float64)


def checked_landmarks(landmarks: Any, n: int | None = None) -> np.ndarray:
    """Return the different row numbers, ascending; raise where one is no row, of n rows where they are known."""
    chosen = host_values(landmarks).reshape(-1)
    integers = chosen.size and chosen.dtype.kind in "iu" and np.min(chosen) >= 0
    if not integers or (n is not None and np.max(chosen) >= n):
        rows = "row number, an integer from 0 to " + ("n_samples - 1" if n is None else str(n - 1))
        raise InvalidParameterError(f"landmarks={landmarks!r} is not allowed; give at least one {rows}.")
    return np.unique(chosen.astype(np.int64))
