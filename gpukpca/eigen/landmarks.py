"""Nyström: the number of landmarks and the rules that choose them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from gpukpca._rules import COUNT, NONE, Rule, any_word, is_integer, one_of
from gpukpca._typing import RankReport, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.device import on_its_device
from gpukpca.backend.external import as_operator
from gpukpca.backend.linalg import pivot_order
from gpukpca.backend.namespace import host_values, to_host
from gpukpca.backend.parallel import row_slices
from gpukpca.backend.random import generator, uniform, weighted_draws
from gpukpca.data.frequencies import checked_frequencies
from gpukpca.data.slicing import gather_rows
from gpukpca.eigen.norm_bound import SMALLEST_SAMPLE
from gpukpca.eigen.partial_cholesky import (
    LANDMARK_TOLERANCE,
    PartialCholeskyBuilder,
    default_block,
)
from gpukpca.eigen.pivoted_factor import PivotedCholesky
from gpukpca.eigen.solver import SolverParameters, normalized
from gpukpca.exceptions import InvalidParameterError

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
    if rank is None and landmarks is None:
        raise InvalidParameterError("rank=None and landmarks=None: give the number of columns, or the rows.")
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
    block = block_of_landmarks(len(chosen), tol)
    weights = checked_frequencies(sample_weight, op.shape[0], is_batch=True)
    builder = PartialCholeskyBuilder(op, len(chosen), block, tol, sample_weight=weights, **stop)
    floor = float(np.min(to_host(gather_rows(builder.floors(), chosen))))
    K = builder.entries_of(chosen)[0]
    np.fill_diagonal(K, to_host(gather_rows(builder.diagonal, chosen)))
    order = chosen[pivot_order(K, floor)]
    for bounds in row_slices(len(order), block):
        if not builder.should_continue():
            break
        some = order[slice(*bounds)]
        builder.extend(some, np.arange(len(some)), np.zeros(len(some)))
    else:
        if builder.should_continue():
            builder.stopped = "rank"
    return builder.result()


def block_of_landmarks(count: int, tol: float) -> int:
    """Return the landmarks of a round: without a tolerance that may end it early, wide blocks read F least often."""
    return default_block(count) if tol else min(count, blocking.LARGEST_PIVOT_BLOCK)


BOUND_ROWS = Rule(
    f"None, 0 or an integer >= {SMALLEST_SAMPLE}",
    lambda value: value is None or (is_integer(value) and (value == 0 or value >= SMALLEST_SAMPLE)),
)
LandmarkRule = Literal["rpcholesky", "uniform"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Nystrom(
    SolverParameters,
    rules=(
        ("sample", any_word("first", "reservoir")),
        ("rank", one_of(NONE, COUNT)),
        ("tol", LANDMARK_TOLERANCE),
        ("bound", any_word("trace", "norm")),
        ("bound_rows", BOUND_ROWS),
    ),
):
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

    rank: int | None = field(default=None, kw_only=False)
    landmarks: LandmarkRule | tuple[Any, ...] | list[Any] | np.ndarray = "rpcholesky"
    tol: float = 0.0
    sample: Literal["first", "reservoir"] = "first"
    bound: Literal["trace", "norm"] = "trace"
    bound_rows: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bound == "norm" and self.bound_rows == 0:
            raise InvalidParameterError(
                'bound="norm" and bound_rows=0 are not allowed together: that bound needs rows. Leave out bound_rows.'
            )
        if not is_given(self):
            any_word(*get_args(LandmarkRule)).check("Nystrom", "landmarks", self.landmarks)
        elif self.rank not in (None, count := len(_chosen(self))):
            raise InvalidParameterError(
                f"rank={self.rank} is not allowed with {count} landmarks; leave it out, it is their number."
            )

    def _compared(self) -> dict[str, Any]:
        try:
            return normalized(self).get_params(deep=False)  # type: ignore[no-any-return]
        except InvalidParameterError:  # of `set_params`, until a fit checks them
            return super()._compared()


@normalized.register
def _(solver: Nystrom) -> Nystrom:
    """Return a checked copy in which given landmarks are an array that nobody else holds, and rank their number."""
    checked = type(solver)(**solver.get_params(deep=False))
    return replace(checked, landmarks=(chosen := _chosen(solver)), rank=len(chosen)) if is_given(solver) else checked


def is_given(solver: Any) -> bool:
    """Return whether a solver is an approximation whose landmarks the caller gave; else a rule chooses them."""
    return isinstance(solver, Nystrom) and not isinstance(solver.landmarks, str)


def given_points(solver: Any) -> np.ndarray | None:
    """Return given landmarks that are points, shape (rank, d), on the host; None where they are rows of the data."""
    return values if is_given(solver) and (values := host_values(solver.landmarks)).ndim == 2 else None


def judges_norm(solver: Any) -> bool:
    """Return whether a solver is an approximation whose tolerance is compared with bounds on the norm."""
    return isinstance(solver, Nystrom) and bool(solver.tol) and solver.bound == "norm"


def _chosen(solver: Nystrom) -> np.ndarray:
    """Return the given landmarks, checked, in a new array: row numbers that ascend, or points in float64."""
    if (points := given_points(solver)) is None:
        return checked_landmarks(solver.landmarks)
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
