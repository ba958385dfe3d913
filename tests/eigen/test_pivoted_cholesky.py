"""Low-rank factors from a few columns: what they leave out, certificates, the law of pivots, refusals."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import scipy.linalg
import scipy.spatial
import scipy.stats

from gpukpca.backend.linalg import pivot_order, triangular_inverse
from gpukpca.backend.random import random_subset, uniform, weighted_draws
from gpukpca.eigen import Nystrom, pivoted_cholesky
from gpukpca.eigen.elimination import Elimination
from gpukpca.eigen.landmark_choice import LandmarkChoice
from gpukpca.eigen.landmarks import LandmarkRule
from gpukpca.eigen.partial_cholesky import ROUNDING, PartialCholeskyBuilder
from gpukpca.eigen.pivoted_factor import PivotedCholesky
from gpukpca.eigen.solver import normalized
from gpukpca.exceptions import IndefiniteKernelError, InvalidParameterError
from gpukpca.gram import TiledGram
from gpukpca.kernels import RBF
from tests import oracle, tolerances
from tests.each import each
from tests.operators import SEMIDEFINITE, BlockOperator, M, Operator, points, semidefinite


def rng(seed=0):
    return np.random.default_rng(seed)


def factor_by(solver, op, p, rng):
    return LandmarkChoice.of(normalized(solver), op.shape[0], p).factor(op, rng)


def spectrum_left_out(K, result):
    """lambda_i - theta_i of the centered matrices, descending order of each."""
    F = np.asarray(result.F, dtype=np.float64)
    exact = oracle.eigenpairs(oracle.centered(K))[0]
    return exact - oracle.eigenpairs(oracle.centered(F @ F.T))[0]


# -- the factor --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", get_args(LandmarkRule))
def test_the_factor_and_its_report(xp, dtype, how):
    K = semidefinite("smooth", dtype)[:70, :70]
    result = factor_by(Nystrom(rank=12, landmarks=how), BlockOperator(K, xp), 2, rng())
    F, L, S = xp.host(result.F).astype(np.float64), result.pivot_factor, result.pivots
    eps = tolerances.eps(dtype)
    assert xp.owns(result.F)
    assert result.F.dtype == xp.dtype(dtype)
    assert F.shape == (70, 12)
    assert result.rank == len(set(S.tolist())) == 12
    assert np.array_equal(L, np.tril(L))
    assert np.all(np.diag(L) > 0)
    exact = K.astype(np.float64)
    assert np.max(np.abs(L @ L.T - exact[np.ix_(S, S)])) <= 30 * eps
    # A new point's row of F, from its kernel values with the landmarks.
    mapped = scipy.linalg.solve_triangular(L, exact[S, :], lower=True).T
    assert np.max(np.abs(mapped - F)) <= 30 * eps / np.min(np.diag(L))
    left = np.trace(exact) - np.sum(F**2)
    assert abs(result.residual_trace - left) <= 1e-12 * result.trace
    assert abs(result.trace - np.trace(exact)) <= 1e-12 * result.trace
    assert result.stopped == "rank"


def test_libraries_agree_on_pivots(xp):
    K = semidefinite("line")[:, :]
    plain = pivoted_cholesky(BlockOperator(K), 12, rng(4))
    result = pivoted_cholesky(BlockOperator(K, xp), 12, rng(4))
    assert np.array_equal(result.pivots, plain.pivots)
    assert np.max(np.abs(xp.host(result.F) - plain.F)) <= 1e-9


@each("name", SEMIDEFINITE)
def test_no_eigenvalue_is_further_off_than_the_certificate(name, dtype):
    K = semidefinite(name, dtype)
    cases = {"rpcholesky": (5, 40, M), "uniform": (40,)}
    for how, rank in [(how, rank) for how, ranks in cases.items() for rank in ranks]:
        result = factor_by(Nystrom(rank=rank, landmarks=how), BlockOperator(K), 1, rng(rank))
        left_out = spectrum_left_out(K, result)
        assert np.max(left_out) <= result.certificate
        assert np.min(left_out) >= -result.rounding
        assert result.rounding <= (2e-7 if dtype == "float64" else 1e-3) * result.trace
        assert result.certificate >= 0


HARD = {"wide": (0.1, 1), "smooth": (0.01, 1), "near duplicates": (0.5, 10)}  # gamma, and rows near each point


@pytest.mark.parametrize("name", HARD)
def test_in_float32_the_premise_of_the_certificate_holds(name):
    """Columns of pivots err by less than their share, and what is left has hardly a negative eigenvalue."""
    gamma, copies = HARD[name]
    X = np.repeat(rng(3).standard_normal((1000 // copies, 5)), copies, axis=0) + 1e-2 * rng(4).standard_normal(
        (1000, 5)
    )
    exact = np.exp(-gamma * scipy.spatial.distance.cdist(X, X, "sqeuclidean"))
    result = pivoted_cholesky(BlockOperator(exact.astype(np.float32)), landmarks=rng().permutation(1000)[:300])
    F = result.F.astype(np.float64)
    left = exact - F @ F.T
    assert np.max(np.abs(left[:, result.pivots])) <= ROUNDING["float32"]
    assert -np.sum(np.minimum(np.linalg.eigvalsh(left), 0.0)) <= 0.2 * result.rounding


@pytest.mark.parametrize("seed", [5, 11, 15])
def test_rounding_of_small_pivots_does_not_refuse_a_definite_kernel(seed):
    """Entries that small pivots have magnified leave residuals below -1e-3 there.

    Every candidate that may be a pivot becomes one, in an order by chance: pivots are small while residuals are large.
    """
    X = rng(1).standard_normal((300, 3)).astype(np.float32)
    op = TiledGram(RBF(0.05), X)
    builder, order = PartialCholeskyBuilder(op, 200, 16, 0.0, None), rng(seed).permutation(300)
    for part in (order[start : start + 16] for start in range(0, 300, 16)):
        if builder.should_continue():
            builder.extend(part, np.arange(len(part)), np.zeros(len(part)))
    result = builder.result()
    exact = np.exp(-0.05 * scipy.spatial.distance.cdist(X.astype(np.float64), X.astype(np.float64), "sqeuclidean"))
    left_out = spectrum_left_out(exact, result)
    assert result.rounding > 0.018  # ten times that of pivots in a good order
    assert np.min(left_out) >= -result.rounding
    assert np.max(left_out) <= result.certificate <= 0.5 * result.trace


def test_what_is_left_is_positive_semidefinite():
    for name in ("smooth", "rough", "clusters", "brownian"):
        K = semidefinite(name)
        result = pivoted_cholesky(BlockOperator(K), 20, rng())
        values = np.linalg.eigvalsh(K - result.F @ result.F.T)
        assert values[0] >= -10 * tolerances.eps("float64") * result.trace
        assert abs(np.sum(values) - result.residual_trace) <= 1e-12 * result.trace


@each("how", get_args(LandmarkRule))
@each("name, rank", [("linear", 20), ("offset", 20), ("outlier", 20), ("ones", 1)])
def test_a_matrix_of_low_rank_is_recovered_and_ends_by_itself(name, rank, how, dtype):
    K = semidefinite(name, dtype)
    result = factor_by(Nystrom(rank=60, landmarks=how), BlockOperator(K), 1, rng(1))
    # A residual that rounding left may be taken for a pivot before it is known what rounding leaves.
    assert rank <= result.rank <= rank + 2
    assert result.stopped == "exhausted"
    F = result.F.astype(np.float64)
    assert np.max(np.abs(F @ F.T - K)) <= result.rounding
    assert abs(result.residual_trace) <= result.rounding
    assert result.rounding <= (1e-11 if dtype == "float64" else 1e-3) * result.trace


@pytest.mark.parametrize("name", ["identity", "rough", "duplicates"])
def test_with_every_row_a_landmark_nothing_is_left(name, dtype):
    result = pivoted_cholesky(BlockOperator(semidefinite(name, dtype)), M, rng())
    assert result.rank == (M // 5 if name == "duplicates" else M)
    assert abs(result.residual_trace) <= result.rounding


@each("how", get_args(LandmarkRule))
@each("n", [1, 2, 7])
def test_the_zero_matrix_and_few_rows(xp, n, how):
    nothing = factor_by(Nystrom(rank=5, landmarks=how), BlockOperator(np.zeros((n, n)), xp), 1, rng())
    assert nothing.F.shape == (n, 0)
    assert nothing.pivot_factor.shape == (0, 0)
    assert nothing.residual_trace == nothing.trace == nothing.certificate == 0.0
    assert nothing.stopped == "exhausted"
    everything = factor_by(Nystrom(rank=5, landmarks=how), BlockOperator(np.eye(n), xp), 1, rng())
    assert everything.rank == min(5, n)


@pytest.mark.parametrize(
    ("dtype", "exponent"), [("float64", 500), ("float64", -500), ("float32", 100), ("float32", -100)]
)
@pytest.mark.parametrize("how", get_args(LandmarkRule))
def test_a_power_of_four_changes_nothing_but_the_size(how, dtype, exponent):
    K = semidefinite("smooth", dtype)
    plain = factor_by(Nystrom(rank=25, landmarks=how), BlockOperator(K), 1, rng(2))
    scaled = factor_by(Nystrom(rank=25, landmarks=how), BlockOperator(np.ldexp(K, exponent)), 1, rng(2))
    assert np.array_equal(scaled.pivots, plain.pivots)
    assert np.array_equal(scaled.F, np.ldexp(plain.F, exponent // 2))
    assert scaled.certificate == np.ldexp(plain.certificate, exponent)


def test_the_matrix_of_the_user_is_untouched():
    K = semidefinite("smooth")
    K.flags.writeable = False
    before = K.copy()
    for how in get_args(LandmarkRule):
        factor_by(Nystrom(rank=40, landmarks=how), Operator(K), 1, rng())
    assert np.array_equal(K, before)


@each("widths", [[], [5], [5, 2]])
@each("name", ["rough", "smooth"])
def test_elimination_gives_rows_of_the_factor_at_any_condition(xp, dtype, name, widths):
    """The error counts as one of the row of K, which is rounded already."""
    K, k = semidefinite(name, dtype), sum(widths)
    exact = pivoted_cholesky(BlockOperator(K), 130, rng())
    L, C = exact.pivot_factor, K[::7, exact.pivots]
    F = scipy.linalg.solve_triangular(L, C.astype(np.float64).T, lower=True).T.astype(dtype)
    parts = [xp.array(part) for part in np.split(F[:, :k], np.cumsum(widths, dtype=int), axis=1)[: len(widths)]]
    elimination = Elimination.of(L[k:, :k], L[k:, k:], widths, xp.array(K[0, :0]))
    new = xp.host(elimination.rows(xp.array(C[:, k:]), parts))
    rows = np.concatenate([F[:, :k], new], axis=1).astype(np.float64)
    worst = np.max(np.abs(rows @ L.T - C)[:, k:])
    assert worst <= ROUNDING[dtype]


# -- the pivots --------------------------------------------------------------------------------------------------------


def plain_pivots(K, rank, seed):
    """The method as it is written down: one pivot at a time; residual trace after `rank` of them."""
    generator, residual = rng(seed), K.copy()
    for _ in range(rank):
        diagonal = np.maximum(np.diag(residual), 0.0)
        s = generator.choice(len(K), p=diagonal / np.sum(diagonal))
        residual = residual - np.outer(residual[:, s], residual[s, :]) / residual[s, s]
    return np.trace(residual)


@each("block_size", [1, 8, 100, None])
@each("name", ["smooth", "clusters", "algebraic"])
def test_blocks_are_as_good_as_one_pivot_at_a_time(name, block_size):
    K, seeds = semidefinite(name)[::2, ::2], range(12)
    plain = np.array([plain_pivots(K, 15, seed) for seed in seeds])
    results = [pivoted_cholesky(BlockOperator(K), 15, rng(seed), block_size=block_size) for seed in seeds]
    ours = np.array([result.residual_trace for result in results])
    spread = np.hypot(np.std(plain), np.std(ours)) / np.sqrt(len(seeds))
    assert abs(np.mean(ours) - np.mean(plain)) <= 3.5 * spread


def residual_weights(K, pivots):
    """diag(K - K[:, S] K[S, S]⁻¹ K[S, :])."""
    left = K - K[:, pivots] @ np.linalg.solve(K[np.ix_(pivots, pivots)], K[pivots, :]) if pivots else K
    return np.where(np.isin(np.arange(len(K)), pivots), 0.0, np.diag(left))


def exact_law(weights, K, length, pivots=()):
    """The probability of every sequence of pivots."""
    if len(pivots) == length:
        return {pivots: 1.0}
    w, law = weights(K, list(pivots)), {}
    for i in np.flatnonzero(w):
        after = exact_law(weights, K, length, (*pivots, int(i)))
        law |= {sequence: p * w[i] / np.sum(w) for sequence, p in after.items()}
    return law


def test_blocks_keep_the_law_of_one_pivot_at_a_time():
    """Accepted candidates, and candidates drawn twice, included: every sequence as often as it should come."""
    K = np.array([[2.0, 1.5, 0.1, 0.0], [1.5, 2.0, 0.3, 0.1], [0.1, 0.3, 1.0, 0.8], [0.0, 0.1, 0.8, 1.0]])
    generator, draws = rng(5), 800
    law = exact_law(residual_weights, K, 3)
    counts = dict.fromkeys(law, 0)
    for _ in range(draws):
        counts[tuple(pivoted_cholesky(BlockOperator(K), 3, generator, block_size=6).pivots.tolist())] += 1
    chi = sum((counts[key] - draws * p) ** 2 / (draws * p) for key, p in law.items())
    assert chi <= scipy.stats.chi2.ppf(0.999, len(law) - 1)


def test_rare_clusters_are_found_where_even_draws_miss_them():
    K = semidefinite("clusters")
    left = {
        how: np.mean(
            [
                factor_by(Nystrom(rank=30, landmarks=how), BlockOperator(K), 1, rng(seed)).residual_trace
                for seed in range(5)
            ]
        )
        for how in get_args(LandmarkRule)
    }
    assert left["rpcholesky"] < 0.01 * left["uniform"]


def test_only_accepted_candidates_cost_a_column():
    K = semidefinite("smooth")
    op = BlockOperator(K)
    result = pivoted_cholesky(op, 40, rng())
    assert result.n_columns == op.columns_evaluated == 40
    lean = Operator(K)
    same = pivoted_cholesky(lean, 40, rng(), block_size=8)
    assert same.n_columns == lean.columns_evaluated > 40
    other = pivoted_cholesky(BlockOperator(K), 40, rng(), block_size=8)
    assert np.array_equal(same.pivots, other.pivots)
    assert np.array_equal(same.F, other.F)


@pytest.mark.parametrize("how", get_args(LandmarkRule))
def test_the_generator_decides_everything(how, dtype):
    K = semidefinite("rough", dtype)
    first, second, other = (
        factor_by(Nystrom(rank=30, landmarks=how), BlockOperator(K), 1, rng(seed)) for seed in (3, 3, 4)
    )
    assert np.array_equal(first.F, second.F)
    assert np.array_equal(first.pivots, second.pivots)
    assert not np.array_equal(first.pivots, other.pivots)


def test_reports_come_after_every_round():
    events = []
    result = pivoted_cholesky(
        BlockOperator(semidefinite("rough")), 40, rng(), report=lambda *event: events.append(event)
    )
    ranks, most, left = zip(*events, strict=True)
    assert list(ranks) == sorted(ranks)
    assert ranks[-1] == 40
    assert set(most) == {40}
    assert left[-1] == pytest.approx(result.residual_trace / result.trace)


# -- stopping ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", get_args(LandmarkRule))
@pytest.mark.parametrize("tol", [0.1, 1e-2])
def test_a_tolerance_is_met_and_saves_columns(how, tol, dtype):
    K = semidefinite("smooth", dtype)
    result = factor_by(Nystrom(rank=200, landmarks=how, tol=tol), BlockOperator(K), 1, rng())
    largest = oracle.eigenpairs(oracle.centered(K), 1)[0][0]
    assert result.stopped == "tolerance"
    assert result.rank < 60
    assert result.certificate <= tol * largest
    assert np.max(spectrum_left_out(K, result)) <= tol * largest
    out_of_reach = factor_by(
        Nystrom(rank=20, landmarks=how, tol=1e-3), BlockOperator(semidefinite("rough", dtype)), 1, rng()
    )
    assert (out_of_reach.stopped, out_of_reach.rank) == ("rank", 20)


def test_a_perturbed_matrix_ends_at_its_noise_and_says_so():
    """Entries good to nine digits: the factor ends there, and the allowance grows to it."""
    K = semidefinite("smooth")
    noise = 1e-10 * rng().standard_normal(K.shape)
    noisy = K + np.triu(noise) + np.triu(noise, 1).T
    result = pivoted_cholesky(BlockOperator(noisy), M, rng(1))
    assert result.stopped == "exhausted"
    assert result.rank < 200
    assert 1e-12 <= result.rounding / result.trace <= 1e-6
    left_out = spectrum_left_out(noisy, result)
    assert np.max(left_out) <= result.certificate
    assert np.min(left_out) >= -result.rounding


# -- given landmarks ---------------------------------------------------------------------------------------------------


def nystrom_formula(K, S):
    """K[:, S] K[S, S]⁺ K[S, :]."""
    return K[:, S] @ np.linalg.pinv(K[np.ix_(S, S)], rcond=1e-13, hermitian=True) @ K[S, :]


@pytest.mark.parametrize("make", [Operator, BlockOperator])
def test_given_landmarks_are_those_of_the_formula_of_nystrom(make):
    K, S = semidefinite("rough"), rng().permutation(M)[:45]
    result = pivoted_cholesky(make(K), landmarks=S)
    assert sorted(result.pivots) == sorted(S)
    assert result.stopped == "rank"
    assert np.max(np.abs(result.F @ result.F.T - nystrom_formula(K, S))) <= 1e-11


def test_dependent_landmarks_are_left_out(dtype):
    K = semidefinite("duplicates", dtype)
    result = pivoted_cholesky(BlockOperator(K), landmarks=np.arange(50))
    assert result.rank == 10
    assert sorted(result.pivots // 5) == list(range(10))
    assert result.stopped == "rank"
    twice = pivoted_cholesky(BlockOperator(K), landmarks=[0, 7, 0, 7, 8])
    assert sorted(twice.pivots // 5) == [0, 1]


def test_landmarks_are_ordered_by_what_is_left():
    result = pivoted_cholesky(BlockOperator(np.diag([1.0, 3.0, 2.0, 5.0])), landmarks=[0, 1, 2])
    assert result.pivots.tolist() == [1, 2, 0]
    assert result.residual_trace == 5.0


@pytest.mark.parametrize("landmarks", [[], [-1], [M], [0.5], ["a"]])
def test_landmarks_that_are_no_rows_are_refused(landmarks):
    with pytest.raises(InvalidParameterError, match=f"0 to {M - 1}"):
        pivoted_cholesky(BlockOperator(np.eye(M)), landmarks=landmarks)


def test_a_rank_or_landmarks_are_given():
    op = BlockOperator(np.eye(M))
    with pytest.raises(InvalidParameterError, match="rank=3 is not allowed with landmarks"):
        pivoted_cholesky(op, 3, landmarks=[0, 1, 2])
    with pytest.raises(InvalidParameterError, match="rank=None and landmarks=None: give"):
        pivoted_cholesky(op)


# -- settings ----------------------------------------------------------------------------------------------------------


def test_the_default_number_of_landmarks():
    sizes = {
        (None, 10_000, 2): 500,
        (None, 10_000, 80): 800,
        (None, 300, 80): 300,
        (40, 10_000, 80): 40,
        (40, 30, 2): 30,
    }
    for (rank, n, p), expected in sizes.items():
        assert LandmarkChoice.of(Nystrom(rank), n, p).rank == expected
    assert LandmarkChoice.of(normalized(Nystrom(landmarks=[5, 3, 5])), 30, 2).rank == 2


def test_chosen_landmarks_are_rows_of_any_order(xp, dtype):
    K, rows = semidefinite("smooth", dtype), [40, 3, 17, 3]
    expected = pivoted_cholesky(BlockOperator(K, xp), landmarks=rows)
    for given in (rows, tuple(rows), np.asarray(rows), xp.array(np.asarray(rows))):
        solver = Nystrom(landmarks=given)
        assert solver == Nystrom(landmarks=[3, 17, 40])
        assert hash(solver) == hash(Nystrom(landmarks=[3, 17, 40]))
        result = factor_by(solver, BlockOperator(K, xp), 2, rng())
        assert np.array_equal(result.pivots, expected.pivots)
        assert np.array_equal(xp.host(result.F), xp.host(expected.F))
    with pytest.raises(InvalidParameterError, match=f"row number, an integer from 0 to {M - 1}"):
        factor_by(Nystrom(landmarks=[M]), BlockOperator(K, xp), 2, rng())


@each(
    "settings, text",
    [
        ({"rank": 0}, "rank=0"),
        ({"rank": 2.5}, "rank=2.5"),
        ({"rank": True}, "rank=True"),
        ({"rank": "5"}, "rank='5'"),
        ({"tol": -0.1}, "tol=-0.1"),
        ({"tol": 1.0}, "tol=1.0"),
        ({"tol": float("nan")}, "tol=nan"),
        ({"tol": "x"}, "tol='x'"),
        ({"landmarks": "leverage"}, r"landmarks='leverage'.*'rpcholesky', 'uniform'"),
        ({"landmarks": "kmeans++"}, r"landmarks='kmeans\+\+'"),
        ({"landmarks": []}, "at least one row number"),
        ({"landmarks": [0.5]}, "at least one row number"),
        ({"landmarks": [True]}, "at least one row number"),
        ({"landmarks": [-1, 3]}, "at least one row number"),
        ({"landmarks": np.full((2, 3), np.inf)}, "points are finite numbers"),
        ({"landmarks": [1, 2, 2], "rank": 3}, "rank=3 is not allowed with 2 landmarks"),
        ({"landmarks": None}, "landmarks=None"),
    ],
)
def test_settings_are_checked_when_they_are_made(settings, text):
    with pytest.raises(InvalidParameterError, match=text):
        Nystrom(**settings)


@pytest.mark.parametrize(
    "arguments", [{"rank": 0}, {"rank": None}, {"rank": 3, "tol": 2.0}, {"rank": 3, "block_size": 0}], ids=str
)
def test_arguments_are_checked(arguments):
    name, value = list(arguments.items())[-1]
    with pytest.raises(InvalidParameterError, match=f"{name}={value}"):
        pivoted_cholesky(BlockOperator(np.eye(5)), rng=rng(), **arguments)


def test_results_and_settings_print_without_arrays():
    result = pivoted_cholesky(BlockOperator(np.eye(5)), 2, rng())
    assert "array" not in repr(result)
    assert (
        repr(Nystrom(5))
        == "Nystrom(rank=5, landmarks='rpcholesky', tol=0.0, sample='first', bound='trace', bound_rows=None)"
    )
    assert isinstance(result, PivotedCholesky)


# -- what is refused ---------------------------------------------------------------------------------------------------


def _with(K, i, j, value):
    K = K.copy()
    K[i, j] = K[j, i] = value
    return K


INDEFINITE = {
    "negative diagonal": _with(np.eye(40), 7, 7, -0.5),
    "all negative": -np.eye(40),
    "zero diagonal": np.ones((40, 40)) - np.eye(40),
    "zero on the diagonal": _with(_with(np.eye(40), 3, 3, 0.0), 3, 5, 0.5),
    "too far off": _with(np.eye(40), 3, 5, 1.5),
    "distances": np.abs(np.arange(40.0)[:, None] - np.arange(40.0)[None, :]),
    "sigmoid": np.tanh(2.0 * points(40) @ points(40).T - 1.0),
}


@each("name", INDEFINITE)
def test_indefinite_matrices_are_refused(xp, dtype, name):
    K = INDEFINITE[name].astype(dtype)
    for how in get_args(LandmarkRule):
        with pytest.raises(IndefiniteKernelError, match=r"not positive semidefinite.*Nyström needs"):
            factor_by(Nystrom(rank=40, landmarks=how), BlockOperator(K, xp), 1, rng())


OVERFLOW = r"overflows float\d\d on these data: infinity at "
FAULTS = {
    "nan on the diagonal": (_with(np.eye(40), 7, 7, np.nan), r"returned NaN at \(7, 7\)"),
    "inf on the diagonal": (_with(np.eye(40), 7, 7, np.inf), OVERFLOW + r"\(7, 7\)"),
    "nan beside it": (_with(np.eye(40), 7, 9, np.nan), r"returned NaN at \((7, 9|9, 7)\)"),
    "inf beside it": (_with(np.eye(40), 7, 9, np.inf), OVERFLOW + r"\((7, 9|9, 7)\)"),
}


@each("make", [Operator, BlockOperator])
@each("name", FAULTS)
def test_entries_that_are_not_finite_are_reported_with_their_place(name, make, dtype):
    K, text = FAULTS[name]
    for how in get_args(LandmarkRule):
        with pytest.raises(InvalidParameterError, match=text):
            factor_by(Nystrom(rank=40, landmarks=how), make(K.astype(dtype)), 1, rng())


def test_a_trace_beyond_all_numbers_is_refused():
    with pytest.raises(InvalidParameterError, match="overflows float64 on these data: its trace is infinite"):
        pivoted_cholesky(BlockOperator(np.eye(40) * 1e307), 3, rng())
    result = pivoted_cholesky(BlockOperator(np.eye(40) * 1e306), 3, rng())
    assert result.residual_trace == pytest.approx(37e306)


def test_the_kernel_is_named():
    class Named(BlockOperator):
        name = "the kernel object"

    with pytest.raises(InvalidParameterError, match="the kernel object returned NaN"):
        pivoted_cholesky(Named(np.full((3, 3), np.nan)), 2, rng())
    with pytest.raises(IndefiniteKernelError, match="the kernel object is not positive semidefinite"):
        pivoted_cholesky(Named(-np.eye(3)), 2, rng())


# -- draws, orders and inverses ----------------------------------------------------------------------------------------


def test_weighted_draws_follow_the_weights_and_skip_zeros():
    weights = np.array([0.0, 1.0, 0.0, 3.0, 0.0])
    drawn = weighted_draws(rng(), weights, 4000)
    assert set(drawn.tolist()) == {1, 3}
    assert abs(np.mean(drawn == 3) - 0.75) <= 0.03
    assert np.array_equal(drawn, weighted_draws(rng(), weights, 4000))
    assert np.all((uniform(rng(), 1000) >= 0) & (uniform(rng(), 1000) < 1))
    assert sorted(random_subset(rng(), 9, 9)) == list(range(9))


def test_pivot_order_and_triangular_inverse():
    A = np.diag([1.0, 4.0, 1e-9, 2.0])
    assert pivot_order(A, 1e-6).tolist() == [1, 3, 0]
    L = np.tril(rng().random((5, 5))) + np.eye(5)
    assert np.max(np.abs(triangular_inverse(L) @ L - np.eye(5))) <= 1e-13
