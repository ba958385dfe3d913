"""Kernel PCA from landmarks, with its certificate; and the exact route by features where K has low rank."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import sklearn.exceptions
from scipy.spatial.distance import cdist
from sklearn.base import clone

from gpukpca import Batches, KernelPCA, Nystrom, Progress
from gpukpca.algorithms import KernelPCASettings, fit_kernel_pca
from gpukpca.backend import blocking
from gpukpca.eigen import BlockKrylov, Dense, top_eigh
from gpukpca.eigen.low_rank import LowRank
from gpukpca.eigen.solve import choose_solver
from gpukpca.exceptions import (
    ConvergenceWarning,
    IndefiniteKernelError,
    IndefiniteKernelWarning,
    InvalidParameterError,
    MemoryBudgetError,
    PrecisionWarning,
    RankWarning,
)
from gpukpca.gram import CenteredGram
from gpukpca.gram.low_rank import LowRankGram
from gpukpca.gram.storage import DenseStorage, LandmarkStorage, LowRankStorage, TiledStorage
from gpukpca.kernels import RBF, Cosine, Kernel, Laplacian, Linear, Matern, Polynomial, RationalQuadratic
from tests import oracle, tolerances
from tests.conftest import Namespace
from tests.each import each

N, P, RANK = 96, 3, 20
NUMPY = Namespace("numpy", np, None)
WAYS = ("rpcholesky", "uniform")


# -- exact matrices ----------------------------------------------------------------------------------------------------


def squares(X, Y):
    return cdist(X, Y, "sqeuclidean")


def matern(X, Y):
    r = np.sqrt(3 * 2 * 0.2 * squares(X, Y))
    return (1 + r) * np.exp(-r)


# name -> the kernel, its gamma where a tile begins with gamma ‖x - y‖² by a product, and a float64 function with the
# same centered matrix, from differences where that is possible: x·y by -‖x - y‖²/2, a flat kernel by k - 1.
KERNELS = {
    "smooth": (RBF(0.02), 0.02, lambda X, Y: np.exp(-0.02 * squares(X, Y))),
    "rough": (RBF(2.0), 2.0, lambda X, Y: np.exp(-2.0 * squares(X, Y))),
    "flat": (RBF(1e-8), 0.0, lambda X, Y: np.expm1(-1e-8 * squares(X, Y))),
    "laplacian": (Laplacian(0.3), 0.0, lambda X, Y: np.exp(-0.3 * cdist(X, Y, "cityblock"))),
    "matern": (Matern(0.2, 1.5), 0.2, matern),
    "rational quadratic": (RationalQuadratic(0.1, 2.0), 0.1, lambda X, Y: (1 + 0.05 * squares(X, Y)) ** -2.0),
    "sum": (RBF(0.1) + 0.5 * Linear(), 0.1, lambda X, Y: np.exp(-0.1 * squares(X, Y)) - 0.25 * squares(X, Y)),
    "poly": (Polynomial(6, 0.3, 1.0), 0.0, lambda X, Y: (0.3 * X @ Y.T + 1) ** 6),
    "cosine": (Cosine(), 0.0, lambda X, Y: 1 - cdist(X, Y, "cosine")),
}
TRANSLATION_INVARIANT = ["smooth", "rough", "flat", "laplacian", "matern", "rational quadratic", "sum"]


def points(n=N, d=4, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(2.0, 0.5, d)


DATA = {
    "plain": points,
    "duplicates": lambda: np.repeat(points(N // 4), 4, axis=0),
    "orthonormal": lambda: np.eye(N),
    "offset": lambda: points() + 1e4,
}


@dataclass
class Exact:
    """What float64 says of a kernel on data: the matrix, its centered spectrum, and how far rounding may move it."""

    K: np.ndarray
    values: np.ndarray
    vectors: np.ndarray
    total: float
    entry: float
    rounding: float

    @property
    def largest(self):
        return float(self.values[0])


def exact(name, X, dtype):
    """The oracle for the data as they are, however few digits they have."""
    K = KERNELS[name][2](X.astype(np.float64), X.astype(np.float64))
    Kc = oracle.centered((K + K.T) / 2)
    entry = entry_rounding(name, X, K, dtype)
    # Errors of all entries move no eigenvalue, and no trace, by more than n times that.
    return Exact(K, *oracle.eigenpairs(Kc), float(np.trace(Kc)), entry, len(K) * entry)


def entry_rounding(name, X, K, dtype):
    """What entries of K are good to: the numbers that cancel in an exponent are gamma ‖x - mean‖², 32 at most."""
    centered = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
    kappa = KERNELS[name][1] * float(np.max(np.sum(centered**2, axis=1)))
    return tolerances.kernel(dtype, float(np.max(np.abs(K))) * (1 + min(kappa, 32.0)))


def fitted(name, X, rank=RANK, p=P, how="rpcholesky", seed=1, **parameters):
    """Return the model and the scores of its training points, without warnings of missing and of equal components."""
    model = KernelPCA(
        p, kernel=KERNELS[name][0], eigen_solver=Nystrom(rank=rank, landmarks=how), random_state=seed, **parameters
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)
        warnings.filterwarnings("ignore", "the last component and the next one are not separately", PrecisionWarning)
        return model, model.fit_transform(X)


def host(xp, x):
    return xp.host(x).astype(np.float64)


def check_bounds(model, truth, xp):
    """The certificate, the interval of the total variance, and shares that are never too large."""
    ours = host(xp, model.eigenvalues_)
    values, degrees = truth.values[: len(ours)], len(truth.K) - 1
    assert np.all(values >= ours - truth.rounding)
    # The certificate bounds the sum of the errors, over all eigenvalues, and so over these.
    slack = truth.rounding + tolerances.eigenvalue("float64") * truth.largest
    assert np.sum(values - ours) <= model.certificate_ + slack
    assert model.gap_ is None or 0.0 <= model.gap_ <= values[-1] - truth.values[len(ours)] + slack
    low, high = (degrees * end for end in model.total_variance_interval_)
    assert low <= high == degrees * model.total_variance_
    assert low - truth.rounding <= truth.total <= high + truth.rounding
    shares = host(xp, model.explained_variance_ratio_)
    assert np.all(shares * truth.total <= values + 2 * truth.rounding)
    assert np.sum(shares) <= 1 + 1e-6


def score_rounding(model, dtype, entry, xp):
    """How far rounding may move scores: kernel values with the landmarks that are good to `entry`, times A."""
    A = host(xp, model.projection_)
    largest = math.sqrt(max(float(np.max(host(xp, model.eigenvalues_), initial=0.0)), 0.0))
    return 3 * entry * np.sum(np.abs(A), axis=0) + 30 * tolerances.eps(dtype) * largest


# -- bounds ------------------------------------------------------------------------------------------------------------


@each("name", KERNELS)
def test_every_exact_eigenvalue_lies_between_ours_and_ours_plus_the_certificate(xp, dtype, name):
    X = points().astype(dtype)
    model, scores = fitted(name, xp.array(X))
    truth = exact(name, X, dtype)
    check_bounds(model, truth, xp)
    for part in (model.eigenvalues_, model.eigenvectors_, model.projection_, model.X_fit_, scores):
        assert xp.owns(part)
        assert part.dtype == xp.dtype(dtype)
    assert isinstance(model.certificate_, float)
    assert isinstance(model.landmarks_, np.ndarray)
    moved = np.abs(host(xp, model.transform(xp.array(X))) - host(xp, scores))
    assert np.all(moved <= score_rounding(model, dtype, truth.entry, xp))


# In float32 the values of the other kernels overflow on offset data, or lose every digit to the offset.
ON_DATA = [
    (name, data, dtype)
    for name in KERNELS
    for data in DATA
    for dtype in ("float64", "float32")
    if data != "offset" or dtype == "float64" or name in TRANSLATION_INVARIANT
]


@each("name, data, dtype", ON_DATA)
def test_bounds_hold_for_every_way_and_every_rank(name, data, dtype):
    X = DATA[data]().astype(dtype)
    truth = exact(name, X, dtype)
    for rank, how in [(5, "rpcholesky"), (N, "rpcholesky"), *((RANK, how) for how in WAYS)]:
        model, scores = fitted(name, X, rank, how=how)
        check_bounds(model, truth, NUMPY)
        moved = np.abs(model.transform(X).astype(np.float64) - scores)
        assert np.all(moved <= score_rounding(model, dtype, truth.entry, NUMPY))


def test_the_certificate_is_small_where_the_kernel_is_smooth():
    X = points()
    few, some, many = (fitted("smooth", X, rank)[0].certificate_ for rank in (10, 30, 70))
    assert many < 0.05 * some < 0.01 * few
    assert many <= 1e-4 * exact("smooth", X, "float64").largest


def test_a_constant_kernel_has_no_components(xp, dtype):
    X = xp.array(points().astype(dtype))
    with pytest.warns(RankWarning, match="fewer components carry variance"):
        model = KernelPCA(P, kernel="rbf", gamma=0.0, eigen_solver=Nystrom(rank=RANK)).fit(X)
    assert np.array_equal(xp.host(model.eigenvalues_), np.zeros(P))
    assert np.array_equal(xp.host(model.transform(X)), np.zeros((N, P)))
    assert model.certificate_ == model.total_variance_ == 0.0
    assert model.total_variance_interval_ == (0.0, 0.0)


@pytest.mark.parametrize("name", ["smooth", "laplacian", "cosine"])
def test_residuals_and_the_gap_are_reported_as_bounds(name, dtype):
    X = points().astype(dtype)
    model, _ = fitted(name, X)
    truth = exact(name, X, dtype)
    U, values = (np.asarray(part, dtype=np.float64) for part in (model.eigenvectors_, model.eigenvalues_))
    residuals = np.linalg.norm(oracle.centered(truth.K) @ U - U * values, axis=0)
    assert np.all(residuals <= model.residual_norms_ + truth.rounding)
    assert np.max(np.abs(U.T @ U - np.eye(P))) <= tolerances.orthogonality(dtype)


def circle(n=200):
    turns = 2.0 * np.pi * np.arange(n) / n
    return np.stack([np.cos(turns), np.sin(turns)], axis=1)


def precision_warnings(estimator, X):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrecisionWarning)
        model = estimator.fit(X)
    return model, [seen.message for seen in caught if isinstance(seen.message, PrecisionWarning)]


CUTS = "not separately determined: their eigenvalues are equal to "
SOLVERS = ["dense", "randomized", Nystrom(rank=60), Nystrom(rank=9), Nystrom(rank=16, landmarks="uniform")]


@each("solver", SOLVERS)
def test_every_solver_reports_a_cluster_that_p_cuts(dtype, solver):
    """On a circle the eigenvalues come in pairs: 1 and 3 components cut one, and 2 do not."""
    for p, expected in ((1, 1), (2, 0), (3, 1)):
        estimator = KernelPCA(p, kernel="rbf", gamma=0.1, eigen_solver=solver, random_state=0)
        model, found = precision_warnings(estimator, circle().astype(dtype))
        assert [CUTS in str(warning) for warning in found] == [True] * expected
        assert all(warning.values["components"] == [p, p + 1] for warning in found)
        assert model.gap_ is None or model.gap_ >= 0.0
        if p == 2:
            assert model.gap_ == pytest.approx(15.6, rel=0.01)


def test_shares_and_equal_eigenvalues_of_approximations_are_reported_too():
    three = np.kron(np.eye(4), np.ones((20, 20)))  # eigenvalues 20, 20, 20 and 0 after centering
    for solver in ("dense", Nystrom(rank=10), Nystrom(rank=4)):
        estimator = KernelPCA(2, kernel="precomputed", eigen_solver=solver, random_state=0)
        (found,) = precision_warnings(estimator, three)[1]
        assert str(found).endswith("their eigenvalues are equal to rounding (gap_). " + str(found).split(". ", 1)[1])
        assert found.values["difference"] <= 1e-12
    for solver in ("dense", Nystrom(rank=40)):
        estimator = KernelPCA(0.3, kernel="rbf", gamma=0.1, eigen_solver=solver, random_state=0)
        (found,) = precision_warnings(estimator, circle())[1]
        assert CUTS in str(found)


def test_a_loose_certificate_leaves_the_gap_unknown_and_reports_no_cluster(dtype):
    for gamma, rank in ((2.0, 5), (2.0, 40), (10.0, 20)):
        estimator = KernelPCA(P, kernel="laplacian", gamma=0.1 * gamma, eigen_solver=Nystrom(rank=rank), random_state=0)
        model, found = precision_warnings(estimator, points().astype(dtype))
        assert found == []
        assert model.certificate_ > model.eigenvalues_[-1]
        assert model.gap_ is None


def test_the_gap_of_fewer_components_is_a_bound_too():
    X, most = points(), 12
    truth = exact("smooth", X, "float64")
    for rank in (15, 40, 80):
        settings = KernelPCASettings(solver=Nystrom(rank=rank))
        fit = fit_kernel_pca(X, KERNELS["smooth"][0], most, settings=settings, rng=0)
        gaps = [fit.truncated(keep).gap for keep in range(1, most)]
        true = -np.diff(truth.values[:most])
        assert all(
            gap is None or 0.0 <= gap <= one + 1e-12 * truth.largest for gap, one in zip(gaps, true, strict=True)
        )
    assert gaps[0] == pytest.approx(true[0], rel=1e-3)


@pytest.mark.parametrize("rank", [5, 20, 60])
def test_landmarks_see_that_a_matrix_is_near_the_identity_where_it_is(rank):
    """What landmarks miss makes shares small for any kernel: their columns show which one it is."""
    X = points(300)
    for kernel in ("rbf", "laplacian", "matern"):
        for gamma, is_near in ((0.01, False), (0.3, False), (1.0, False), (1e3, True)):
            estimator = KernelPCA(P, kernel=kernel, gamma=gamma, random_state=0)
            for solver in ("dense", Nystrom(rank=rank), Nystrom(rank=rank, landmarks="uniform")):
                found = precision_warnings(clone(estimator).set_params(eigen_solver=solver), X)[1]
                assert [str(one).startswith("K is nearly the identity") for one in found] == [True] * is_near


# -- scores ------------------------------------------------------------------------------------------------------------


def nystrom_formula(K, K_new, S, p):
    """Scores of new points, written down plainly: PCA of the features f(x) = L⁻¹ k(S, x), K(S, S) = L Lᵀ."""
    L = np.linalg.cholesky(K[np.ix_(S, S)])
    F, F_new = (scipy.linalg.solve_triangular(L, block.T, lower=True).T for block in (K[:, S], K_new[:, S]))
    centered = F - F.mean(axis=0)
    values, axes = oracle.eigenpairs(centered.T @ centered, p)
    return (F_new - F.mean(axis=0)) @ axes, values, float(np.linalg.cond(L))


def test_landmarks_far_from_all_rows_are_reported():
    X = np.random.default_rng(0).standard_normal((300, 4))
    for data in (X, Batches([X[:100], X[100:]])):
        for shift in (4.0, 1e6):
            solver = Nystrom(landmarks=X[:10] + shift)
            with pytest.warns(PrecisionWarning, match="the landmarks are far from all rows"):  # and no other warning
                KernelPCA(2, kernel="rbf", eigen_solver=solver).fit(data)
        KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(landmarks=X[:10])).fit(data)


@each("name", ["rough", "laplacian", "matern", "poly", "cosine"])
def test_new_points_get_the_formula_of_landmarks(xp, dtype, name):
    X, new = points().astype(dtype), points(17, seed=7).astype(dtype)
    rank = 4 if name == "cosine" else RANK  # more landmarks than features depend on each other
    model, _ = fitted(name, xp.array(X), rank)
    K, K_new = (KERNELS[name][2](rows.astype(np.float64), X.astype(np.float64)) for rows in (X, new))
    expected, values, condition = nystrom_formula(K, K_new, model.landmarks_, P)
    found = host(xp, model.transform(xp.array(new)))
    # Features are good to the condition of L; axes turn by that over the gap.
    gaps = np.min(np.abs(np.diff(np.append(values, 0.0)))) / values[0]
    bound = tolerances.kernel(dtype, condition / gaps) * math.sqrt(values[0])
    assert np.max(np.abs(oracle.up_to_sign(found, expected) - expected)) <= bound


@each("name", ["rough", "laplacian", "matern", "sum"])
def test_with_every_row_a_landmark_it_is_kernel_pca(xp, dtype, name):
    X, new = points(60).astype(dtype), points(9, seed=7).astype(dtype)
    model, scores = fitted(name, xp.array(X), 60)
    function = KERNELS[name][2]
    K = function(X.astype(np.float64), X.astype(np.float64))
    values, _ = oracle.eigenpairs(oracle.centered(K), P + 1)
    assert np.max(np.abs(host(xp, model.eigenvalues_) - values[:P])) <= 60 * tolerances.kernel(dtype, np.max(np.abs(K)))
    gap = np.min(-np.diff(values)) / values[0]
    # Each eigenvector is determined to rounding over its gap.
    bound = 30 * tolerances.kernel(dtype, np.max(np.abs(K)) / gap) * math.sqrt(values[0])
    expected = oracle.scores(K, P)
    assert np.max(np.abs(oracle.up_to_sign(host(xp, scores), expected) - expected)) <= bound
    expected = oracle.projected(function(new.astype(np.float64), X.astype(np.float64)), K, P)
    found = host(xp, model.transform(xp.array(new)))
    assert np.max(np.abs(oracle.up_to_sign(found, expected) - expected)) <= 10 * bound


def test_scores_have_the_reported_variances(dtype):
    X = points().astype(dtype)
    model, scores = fitted("laplacian", X)
    scores = scores.astype(np.float64)
    assert np.max(np.abs(scores.mean(axis=0))) <= 100 * tolerances.eps(dtype) * math.sqrt(model.eigenvalues_[0])
    covariance = scores.T @ scores / (N - 1)
    bound = 100 * tolerances.eps(dtype) * float(model.explained_variance_[0])
    assert np.max(np.abs(covariance - np.diag(model.explained_variance_))) <= bound


# -- what is kept of the data, and what it costs -----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rows"), [("rough", 4), ("flat", 5), ("poly", 4), ("cosine", 4)])
def test_the_model_keeps_the_landmarks_alone(xp, name, rows):
    """A flat kernel is seen from an anchor, which is one row more."""
    X = points()
    model, _ = fitted(name, xp.array(X), rank=4)
    assert model.X_fit_.shape == (rows, 4)
    assert model.projection_.shape == (rows, P)
    assert model.landmarks_.shape == (rows,)
    assert len(set(model.landmarks_.tolist())) == rows
    assert np.array_equal(xp.host(model.X_fit_), X[model.landmarks_])


class Counting(RBF):
    """A Gaussian kernel that counts its values."""

    evaluated = 0

    def tile(self, a, b, out=None):
        Counting.evaluated += a.n_rows * b.n_rows
        return super().tile(a, b, out)


@pytest.mark.parametrize("how", WAYS)
def test_kernel_values_are_counted_by_landmarks_not_by_rows(how):
    X = points(1000)
    Counting.evaluated = 0
    model = KernelPCA(P, kernel=Counting(0.5), eigen_solver=Nystrom(rank=30, landmarks=how), random_state=0).fit(X)
    small = Counting.evaluated - 30 * 1000
    assert model.n_products_ == 30
    assert 0 <= small <= 20 * 30**2  # blocks of candidates
    Counting.evaluated = 0
    model.transform(points(77, seed=3))
    assert Counting.evaluated == 77 * 30


def test_what_ran_is_reported():
    model, _ = fitted("rough", points())
    assert model.solver_.startswith(f"Nyström (rank {RANK}, stopped: rank; not converged: the certificate")
    assert model.n_passes_ == 0
    assert model.solver_seconds_ > 0
    plan = model.plan_
    assert isinstance(plan.storage, LandmarkStorage)
    assert plan.storage.rank == RANK
    assert plan.n_components == P
    for words in (f"rank {RANK}", f"F {N} x {RANK}", "a certificate"):
        assert words in str(plan)
    assert "exhausted" in fitted("flat", points())[0].solver_


# -- randomness, libraries ---------------------------------------------------------------------------------------------


# -- n_components ------------------------------------------------------------------------------------------------------


def test_all_components_that_carry_variance_are_as_many_as_landmarks():
    model = KernelPCA(kernel="rbf", gamma=0.5, eigen_solver=Nystrom(rank=RANK), random_state=0).fit(points())
    assert model.eigenvalues_.shape == (RANK,)
    assert np.all(model.eigenvalues_ > 0)
    cosine = KernelPCA(kernel="cosine", eigen_solver=Nystrom(rank=RANK), random_state=0).fit(points())
    assert cosine.eigenvalues_.shape == (4,)


def test_components_without_variance_are_named_or_dropped():
    estimator = KernelPCA(6, kernel="cosine", eigen_solver=Nystrom(rank=RANK), random_state=0)
    with pytest.warns(RankWarning, match="the approximation has a smaller rank"):
        model = clone(estimator).fit(points())
    assert np.array_equal(model.eigenvalues_[4:], [0, 0])
    assert np.array_equal(model.transform(points(7))[:, 4:], np.zeros((7, 2)))
    assert clone(estimator).set_params(remove_zero_eig=True).fit(points()).eigenvalues_.shape == (4,)


@pytest.mark.parametrize("fraction", [0.3, 0.6, 0.9])
def test_a_share_of_the_variance_is_reached_for_certain(fraction):
    model = KernelPCA(fraction, kernel="rbf", gamma=0.02, eigen_solver=Nystrom(rank=60), random_state=0).fit(points())
    truth = exact("smooth", points(), "float64")
    p = model.eigenvalues_.shape[0]
    assert np.sum(truth.values[:p]) >= fraction * truth.total
    shares = np.cumsum(model.explained_variance_ratio_)
    assert shares[-1] >= fraction > np.append(0, shares)[-2]
    assert model.plan_.n_components == p


def test_a_share_that_the_landmarks_do_not_hold_is_an_error():
    estimator = KernelPCA(0.9, kernel="rbf", gamma=2.0, eigen_solver=Nystrom(rank=10), random_state=0)
    with pytest.raises(InvalidParameterError, match=r"known to hold 0\.\d+ of the variance.*larger rank"):
        estimator.fit(points())


def test_more_components_than_rows_are_clamped_and_more_than_landmarks_refused():
    with pytest.warns(RankWarning) as caught:
        model = KernelPCA(200, kernel="rbf", gamma=0.5, eigen_solver="nystrom").fit(points())
    assert caught[0].message.values == {"n_components": 200, "n_samples": 96}
    assert model.eigenvalues_.shape == (N,)
    with pytest.raises(InvalidParameterError, match=r"n_components=30 needs at least as many landmarks.*rank=20"):
        KernelPCA(30, kernel="rbf", eigen_solver=Nystrom(rank=RANK)).fit(points())


def test_one_row_and_two():
    for n in (1, 2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankWarning)
            model = KernelPCA(1, kernel="rbf", gamma=0.5, eigen_solver="nystrom").fit(points(n))
        expected = 0.0 if n == 1 else 1 - math.exp(-0.5 * float(np.sum((points(2)[0] - points(2)[1]) ** 2)))
        assert float(model.eigenvalues_[0]) == pytest.approx(expected, abs=1e-14)


# -- the tolerance -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("tol", [0.3, 1e-2, 1e-4])
def test_a_tolerance_that_is_met_stops_early(how, tol):
    X = points()
    truth = exact("smooth", X, "float64")
    model = KernelPCA(
        P, kernel="rbf", gamma=0.02, eigen_solver=Nystrom(rank=N, landmarks=how, tol=tol), random_state=0
    ).fit(X)
    assert model.converged_
    assert model.certificate_ <= tol * model.eigenvalues_[0]
    assert len(model.landmarks_) < N - 10
    assert "tolerance" in model.solver_
    assert np.max(truth.values[:P] - model.eigenvalues_) <= tol * truth.largest


def test_the_name_takes_the_tolerance_of_the_estimator():
    model = KernelPCA(P, kernel="rbf", gamma=0.02, eigen_solver="nystrom", tol=1e-2, random_state=0).fit(points())
    assert model.converged_
    assert "tolerance" in model.solver_
    with pytest.raises(InvalidParameterError, match="tol was given together with a solver object"):
        KernelPCA(P, kernel="rbf", eigen_solver=Nystrom(rank=RANK), tol=1e-2).fit(points())


@pytest.mark.parametrize("kind", [ConvergenceWarning, sklearn.exceptions.ConvergenceWarning])
def test_a_tolerance_out_of_reach_is_a_warning_of_both_libraries(kind):
    with pytest.warns(kind, match=r"the rank was spent.*larger rank"):
        model = KernelPCA(P, kernel="rbf", gamma=2.0, eigen_solver=Nystrom(rank=RANK, tol=1e-3), random_state=0).fit(
            points()
        )
    assert not model.converged_
    assert model.certificate_ > 1e-3 * model.eigenvalues_[0]
    assert len(model.landmarks_) == RANK


def test_without_a_tolerance_nothing_is_warned_of_but_converged_is_honest():
    assert not fitted("rough", points())[0].converged_
    assert fitted("flat", points())[0].converged_


# -- refused -----------------------------------------------------------------------------------------------------------


class Unknown(Kernel):
    """A kernel of somebody's own that says nothing about its definiteness."""

    def tile(self, a, b, out=None):
        return a.data @ b.data.T

    def tile_diagonal(self, a):
        return np.sum(a.data * a.data, axis=1)


REFUSED = {
    "sigmoid": {"kernel": "sigmoid"},
    "poly": {"kernel": "poly", "coef0": -1.0},
    "unknown": {"kernel": Unknown()},
    "sum": {"kernel": RBF(1.0) + Unknown()},
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("solver", ["nystrom", Nystrom(rank=RANK)], ids=["name", "object"])
def test_kernels_not_known_to_be_definite_are_refused_before_any_work(name, solver):
    for method in ("fit", "plan"):
        with pytest.raises(IndefiniteKernelError, match=r"Nyström needs a positive semidefinite kernel.*not known"):
            getattr(KernelPCA(P, eigen_solver=solver, **REFUSED[name]), method)(points())


def test_a_kernel_that_vouches_for_itself_is_taken():
    class Vouched(Unknown):
        positive_definite = True

    model = KernelPCA(P, kernel=Vouched(), eigen_solver=Nystrom(rank=RANK), random_state=0).fit(points())
    exact_model = KernelPCA(P, kernel="linear").fit(points())
    assert np.max(np.abs(model.eigenvalues_ - exact_model.eigenvalues_)) <= 1e-11 * exact_model.eigenvalues_[0]


INDEFINITE = {
    "distances": lambda: -cdist(points(), points()),
    "tanh": lambda: np.tanh(2.0 * points() @ points().T - 1.0),
    "negative on the diagonal": lambda: np.diag([-0.5] + [1.0] * (N - 1)),
    "one negative eigenvalue": lambda: oracle.with_spectrum([3.0, 2.0, -1.0] + [0.0] * (N - 3), 2),
}


@each("name", INDEFINITE)
@each("how", WAYS)
def test_an_indefinite_matrix_is_refused(name, how, dtype):
    K = INDEFINITE[name]().astype(dtype)
    K = (K + K.T) / 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IndefiniteKernelWarning)
        with pytest.raises(IndefiniteKernelError, match="not positive semidefinite"):
            KernelPCA(P, kernel="precomputed", eigen_solver=Nystrom(rank=N, landmarks=how), random_state=0).fit(K)


# -- kernels of the user's, sparse data --------------------------------------------------------------------------------


def test_a_precomputed_matrix(xp, dtype):
    X, new = points().astype(dtype), points(11, seed=5).astype(dtype)
    function = KERNELS["rough"][2]
    K, K_new = function(X, X).astype(dtype), function(new, X).astype(dtype)
    model = KernelPCA(P, kernel="precomputed", eigen_solver=Nystrom(rank=RANK), random_state=1)
    scores = host(xp, model.fit_transform(xp.array(K)))
    check_bounds(model, exact("rough", X, dtype), xp)
    bound = score_rounding(model, dtype, entry_rounding("rough", X, K, dtype), xp)
    assert model.X_fit_.shape[0] == RANK
    assert np.all(np.abs(host(xp, model.transform(xp.array(K))) - scores) <= bound)
    # The rows of new points are as long as the training set, of which the columns of landmarks are used.
    expected, _, _ = nystrom_formula(K.astype(np.float64), K_new.astype(np.float64), model.landmarks_, P)
    found = host(xp, model.transform(xp.array(K_new)))
    assert np.max(np.abs(oracle.up_to_sign(found, expected) - expected)) <= 1e3 * np.max(bound)
    with pytest.raises(ValueError, match="features"):
        model.transform(xp.array(K_new[:, :RANK]))


def test_a_function_of_two_rows_is_tried():
    X = points(30)
    model = KernelPCA(P, kernel=oracle.rbf(0.5), eigen_solver=Nystrom(rank=30), random_state=0).fit(X)
    values, _ = oracle.eigenpairs(oracle.centered(oracle.gram(oracle.rbf(0.5), X)), P)
    assert np.max(np.abs(model.eigenvalues_ - values)) <= 30 * tolerances.kernel("float64")
    with pytest.raises(IndefiniteKernelError):
        KernelPCA(P, kernel=lambda x, y: -float(np.sum((x - y) ** 2)), eigen_solver=Nystrom(rank=30)).fit(X)


@pytest.mark.parametrize("name", ["rough", "laplacian", "poly", "cosine"])
def test_sparse_rows_give_the_model_of_dense_ones(name, dtype):
    X = np.where(np.random.default_rng(1).random((N, 12)) < 0.4, np.random.default_rng(0).random((N, 12)), 0.0)
    X[:, 0] = 1.0  # no row is zero
    X = X.astype(dtype)
    rank = 10 if name == "cosine" else RANK
    dense, scores = fitted(name, X, rank)
    sparse, same = fitted(name, scipy.sparse.csr_array(X), rank)
    assert np.array_equal(sparse.landmarks_, dense.landmarks_)
    assert scipy.sparse.issparse(sparse.X_fit_)
    assert sparse.X_fit_.shape == (rank, 12)
    assert np.array_equal(sparse.X_fit_.toarray(), X[sparse.landmarks_])
    bound = 10 * score_rounding(dense, dtype, exact(name, X, dtype).entry, NUMPY)
    assert np.all(np.abs(same - scores) <= bound)
    new = X[:9] * 0.5
    for given in (new, scipy.sparse.csr_array(new)):
        assert np.all(np.abs(sparse.transform(given) - dense.transform(new)) <= bound)


# -- estimator manners -------------------------------------------------------------------------------------------------


def test_a_model_is_the_same_after_a_pickle():
    X, new = points(), points(9, seed=5)
    for name in ("rough", "flat"):
        model, _ = fitted(name, X)
        for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert np.max(np.abs(again.transform(new) - model.transform(new))) <= 1e-12
            assert again.certificate_ == model.certificate_
            assert again.eigen_solver == Nystrom(rank=RANK)
        # Every row of the training set but the landmarks, and the 500 of the bound on the norm, is left out.
        more = fitted(name, points(3000))[0]
        assert len(pickle.dumps(more)) - more.eigenvectors_.nbytes < 500 * (4 + 2) * 8 + 16_000 < 3000 * 4 * 8


def test_a_pickle_of_a_flat_kernel_on_offset_data_keeps_its_digits():
    """The landmarks alone have another mean than the training set had."""
    X = points() + 1e4
    model, scores = fitted("flat", X)
    again = pickle.loads(pickle.dumps(model))
    bound = score_rounding(model, "float64", exact("flat", X, "float64").entry, NUMPY)
    assert np.all(np.abs(again.transform(X) - scores) <= bound)


def test_what_only_an_approximation_has_vanishes_with_an_exact_fit():
    names = ("certificate_", "landmarks_", "total_variance_interval_")
    model, _ = fitted("rough", points())
    assert all(hasattr(model, name) for name in names)
    model.set_params(eigen_solver="dense").fit(points())
    assert not any(hasattr(model, name) for name in names)
    assert model.X_fit_.shape == (N, 4)
    assert model.transform(points(5)).shape == (5, P)
    model.set_params(eigen_solver=Nystrom(rank=RANK)).fit(points())
    assert all(hasattr(model, name) for name in names)
    assert model.X_fit_.shape == (RANK, 4)


def test_the_preimage_is_that_of_the_scores():
    X = points()
    model = KernelPCA(6, kernel="rbf", gamma=0.02, eigen_solver=Nystrom(rank=N), fit_inverse_transform=True, alpha=1e-6)
    plain = KernelPCA(6, kernel="rbf", gamma=0.02, eigen_solver="dense", fit_inverse_transform=True, alpha=1e-6)
    ours = model.fit(X).inverse_transform(model.transform(X))
    theirs = plain.fit(X).inverse_transform(plain.transform(X))
    assert np.max(np.abs(ours - theirs)) <= 1e-6 * np.max(np.abs(X))


def test_events_of_the_rank_reach_a_callable():
    events: list[Progress] = []
    model, _ = fitted("rough", points(), verbose=events.append)
    assert events[0].stage == "plan"
    ranks = [event for event in events if event.stage == "rank"]
    assert [event.done for event in ranks] == sorted(event.done for event in ranks)
    assert ranks[-1].done == ranks[-1].total == RANK
    assert all("of the trace left" in event.text for event in ranks)
    assert not any(event.stage == "pass" for event in events)
    assert model.n_passes_ == 0


# -- exact by features -------------------------------------------------------------------------------------------------


def quadratic(X, Y):
    return (0.25 * X @ Y.T + 1) ** 2


# name -> parameters, the oracle, and the columns of the factor for four features
LOW_RANK = {
    "linear": ({"kernel": "linear"}, lambda X, Y: -0.5 * squares(X, Y), 4),
    "poly": ({"kernel": "poly", "degree": 2, "gamma": 0.25, "coef0": 1.0}, quadratic, 15),
    "homogeneous": ({"kernel": "poly", "degree": 3, "gamma": 0.5, "coef0": 0.0}, lambda X, Y: (0.5 * X @ Y.T) ** 3, 20),
}


@each("name", LOW_RANK)
def test_few_features_are_written_down_by_themselves_and_it_is_exact(xp, dtype, name):
    parameters, function, columns = LOW_RANK[name]
    X, new = points().astype(dtype), points(11, seed=5).astype(dtype)
    model = KernelPCA(P, **parameters, random_state=0)
    scores = host(xp, model.fit_transform(xp.array(X)))
    assert isinstance(model.plan_.storage, LowRankStorage)
    assert model.plan_.storage.rank == columns
    assert isinstance(model.plan_.solver, LowRank)
    assert model.solver_.startswith("low rank")
    assert model.converged_
    assert not hasattr(model, "certificate_")
    K = function(X.astype(np.float64), X.astype(np.float64))
    Kc = oracle.centered(K)
    values, _ = oracle.eigenpairs(Kc, P + 1)
    rounding = tolerances.kernel(dtype, np.max(np.abs(K)) * N)
    assert np.max(np.abs(host(xp, model.eigenvalues_) - values[:P])) <= rounding
    assert model.total_variance_ * (N - 1) == pytest.approx(np.trace(Kc), abs=rounding)
    bound = tolerances.scores(dtype, "krylov", values[:P]) * values[0] / np.min(-np.diff(values))
    expected = oracle.scores(K, P)
    assert np.all(np.abs(oracle.up_to_sign(scores, expected) - expected) <= bound)
    K_new = function(new.astype(np.float64), X.astype(np.float64))
    found = host(xp, model.transform(xp.array(new)))
    expected = oracle.projected(K_new, K, P)
    assert np.all(np.abs(oracle.up_to_sign(found, expected) - expected) <= 10 * bound)


@each("name, offset", [*((name, offset) for name in LOW_RANK for offset in (0.0, 3.0)), ("linear", 1e4)])
def test_the_route_by_features_is_the_route_by_tiles(name, offset, dtype):
    parameters, function, _ = LOW_RANK[name]
    X, new = (points(n, seed=s).astype(dtype) + np.dtype(dtype).type(offset) for n, s in ((N, 0), (7, 5)))
    K = function(X.astype(np.float64), X.astype(np.float64))
    values = oracle.eigenpairs(oracle.centered(K), P + 1)[0]
    rounding = tolerances.kernel(dtype, np.max(np.abs(K)) * N)
    ours, tiled, dense = (
        KernelPCA(P, **parameters, **how, random_state=0).fit(X)
        for how in ({}, {"gram": "tiled", "eigen_solver": "randomized"}, {"eigen_solver": "dense"})
    )
    assert isinstance(ours.plan_.storage, LowRankStorage)
    assert isinstance(tiled.plan_.storage, TiledStorage)
    for model in (ours, tiled, dense):
        tol = 0.0 if model is dense else 1e-14 * values[0]
        assert np.max(np.abs(model.eigenvalues_ - values[:P])) <= rounding + tol
        # Scores and shares: signs are the same by convention.
        apart = np.abs(model.transform(new).astype(np.float64) - dense.transform(new))
        assert np.max(apart) <= 10 * rounding / np.min(-np.diff(values)) * math.sqrt(values[0]) + 1e-6 * math.sqrt(
            values[0]
        )
        assert np.max(np.abs(model.explained_variance_ratio_ - dense.explained_variance_ratio_)) <= 2 * rounding / sum(
            values
        )


def test_nystrom_of_a_kernel_of_few_features_is_exact_and_its_certificate_is_rounding():
    X = points()
    for parameters, _, features in LOW_RANK.values():
        plain = KernelPCA(P, **parameters).fit(X)
        for solver in ("nystrom", Nystrom(rank=features)):
            model = KernelPCA(P, **parameters, eigen_solver=solver, random_state=0).fit(X)
            largest = float(plain.eigenvalues_[0])
            np.testing.assert_allclose(model.eigenvalues_, plain.eigenvalues_, rtol=0, atol=1e-13 * N * largest)
            assert 0 <= model.certificate_ <= 1e-13 * N * largest
            low, high = model.total_variance_interval_
            assert low * (1 - 1e-15) <= plain.total_variance_ <= high * (1 + 1e-15)
            assert len(model.X_fit_) <= features + 1
            # Of the linear kernel points that span the features are no rows; of others landmarks are.
            assert hasattr(model, "landmarks_") == (parameters["kernel"] != "linear")


@pytest.mark.parametrize(
    "parameters",
    [
        {"kernel": "linear", "gram": "tiled"},
        {"kernel": "linear", "gram": "dense"},
        {"kernel": "linear", "eigen_solver": "dense"},
        {"kernel": "linear", "eigen_solver": "randomized"},
        {"kernel": "linear", "eigen_solver": BlockKrylov()},
        {"kernel": "poly", "degree": 9},
        {"kernel": "poly", "degree": 2.5, "coef0": 1e3},
        {"kernel": "rbf"},
        {"kernel": "cosine"},
    ],
    ids=str,
)
def test_the_general_way_is_taken_where_it_is_set_or_features_are_many(parameters):
    plan = KernelPCA(P, **parameters).plan(points())
    assert isinstance(plan.storage, (TiledStorage, DenseStorage))
    assert isinstance(plan.solver, (Dense, BlockKrylov))


def test_more_features_than_rows_take_the_general_way():
    wide = np.random.default_rng(0).standard_normal((30, 30))
    assert not isinstance(KernelPCA(2).plan(wide).storage, LowRankStorage)
    assert isinstance(KernelPCA(2).plan(wide[:, :29]).storage, LowRankStorage)
    assert not isinstance(KernelPCA(2).plan(scipy.sparse.csr_array(wide[:, :5])).storage, LowRankStorage)


def test_all_components_and_shares_by_features():
    X = points()
    every = KernelPCA(kernel="linear").fit(X)
    assert every.eigenvalues_.shape == (4,)
    assert np.sum(every.explained_variance_ratio_) == pytest.approx(1.0, abs=1e-14)
    half = KernelPCA(0.8, kernel="linear").fit(X)
    assert half.eigenvalues_.shape == (np.searchsorted(np.cumsum(every.explained_variance_ratio_), 0.8) + 1,)
    with pytest.warns(RankWarning, match="fewer components carry variance"):
        assert KernelPCA(6, kernel="linear").fit(X).eigenvalues_.tolist()[4:] == [0.0, 0.0]


# -- "auto" is exact ---------------------------------------------------------------------------------------------------


def test_no_size_makes_auto_approximate():
    for n in (1, 2, 400, 401, 10**4, 10**5, 10**7, 10**9):
        for p in (1, 10, n // 5, n):
            if 1 <= p <= n:
                for on_gpu in (False, True):
                    assert isinstance(choose_solver(n, p, on_gpu=on_gpu), (Dense, BlockKrylov))


@each("n", [10, 1000, 30_000, 300_000])
@each("limit", [None, "30MB", "200kB", "1kB"])
def test_no_want_of_memory_makes_auto_approximate(n, limit):
    X = np.linspace(0, 1, n, dtype=np.float32)[:, None]
    for kernel in ("rbf", "linear", "poly"):
        try:
            plan = KernelPCA(2, kernel=kernel, memory_limit=limit).plan(X)
        except MemoryBudgetError:
            continue
        assert isinstance(plan.solver, (Dense, BlockKrylov, LowRank))
        assert "certificate" not in str(plan)


# -- the small problem of a factor -------------------------------------------------------------------------------------


# kind -> rank of the factor, before centering
RANKS = {
    "full": 6,
    "deficient": 3,
    "zero": 0,
    "no columns": 0,
    "one column": 1,
    "constant": 1,
    "square": 80,
    "wide": 80,
}


def factor(kind, n=80):
    rng = np.random.default_rng(4)
    plain = rng.standard_normal((n, 6)) * np.linspace(3.0, 1.0, 6)
    return {
        "full": plain,
        "deficient": np.concatenate([plain[:, :3], plain[:, :3] @ rng.standard_normal((3, 5))], axis=1),
        "zero": np.zeros((n, 4)),
        "no columns": np.zeros((n, 0)),
        "one column": plain[:, :1],
        "constant": np.ones((n, 3)),
        "square": rng.standard_normal((n, n)),
        "wide": rng.standard_normal((n, n + 20)),
    }[kind]


@each("kind", ["full", "deficient", "zero", "no columns", "one column", "constant", "square", "wide"])
@each("centered", [False, True])
def test_pairs_of_a_factor(xp, dtype, kind, centered):
    F = factor(kind).astype(dtype)
    op = LowRankGram(xp.array(F))
    op = CenteredGram(op) if centered else op
    A = F.astype(np.float64) @ F.astype(np.float64).T
    A = oracle.centered(A) if centered else A
    exact_values = oracle.eigenpairs(A, 80)[0]
    # What centering cancels leaves its rounding behind.
    size = float(np.sum(F.astype(np.float64) ** 2))
    for p in (1, 5, 10, 80):
        result = top_eigh(op, p, solver=LowRank(), rng=0)
        values, U, norms = (host(xp, part) for part in (result.eigenvalues, result.eigenvectors, result.residual_norms))
        assert np.max(np.abs(values - exact_values[:p])) <= tolerances.eigenvalue(dtype) * size
        assert np.all(np.diff(values) <= 0)
        assert np.max(np.abs(U.T @ U - np.eye(p))) <= tolerances.orthogonality(dtype)
        residuals = np.linalg.norm(A @ U - U * values, axis=0)
        assert np.max(residuals) <= tolerances.residual(dtype) * size
        assert np.all(residuals <= norms + tolerances.residual(dtype) * size)
        assert np.all(values[min(RANKS[kind], len(values)) :] == 0.0)
        assert result.converged.all()
        assert result.n_passes == 1
        assert xp.owns(result.eigenvectors)


def test_small_eigenvalues_of_a_factor_keep_their_digits():
    """The square of a singular value of 1e-7 is below rounding of the largest."""
    n, sizes = 200, np.array([1.0, 1e-2, 1e-4, 1e-6])
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((n, 4)))[0]
    V = np.linalg.qr(np.random.default_rng(1).standard_normal((4, 4)))[0]
    result = top_eigh(LowRankGram((Q * sizes) @ V), 4, solver=LowRank(), rng=0)
    assert np.max(np.abs(result.eigenvalues - sizes**2)) <= tolerances.eigenvalue("float64")
    assert result.eigenvalues[2] == pytest.approx(1e-8, rel=1e-6)


def test_low_rank_needs_a_factor_and_can_be_given_to_the_estimator():
    with pytest.raises(InvalidParameterError, match="known by a factor"):
        KernelPCA(P, kernel="rbf", eigen_solver=LowRank()).fit(points())
    with pytest.raises(InvalidParameterError):
        LowRank(tol=-1.0)


def test_landmarks_of_a_frame_name_the_columns_of_the_data():
    """Their columns are taken in order, so another order, or other names, would be other points."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.random.default_rng(0).standard_normal((40, 3)), columns=list("abc"))
    points = frame[:8]
    settings = {"kernel": "rbf", "gamma": 0.1, "eigen_solver": Nystrom(landmarks=points.to_numpy())}
    expected = KernelPCA(2, **settings).fit(frame).eigenvalues_
    for taken, rows in ((points, frame), (points, frame.to_numpy()), (points.set_axis([0, 1, 2], axis=1), frame)):
        settings["eigen_solver"] = Nystrom(landmarks=taken)
        np.testing.assert_allclose(KernelPCA(2, **settings).fit(rows).eigenvalues_, expected, rtol=1e-12)
    for wrong in (points[["b", "a", "c"]], points.set_axis(list("xyz"), axis=1)):
        model = KernelPCA(2, **settings | {"eigen_solver": Nystrom(landmarks=wrong)})
        for fit in (model.fit, model.partial_fit, model.plan, lambda X, model=model: model.fit(Batches([X]))):
            with pytest.raises(InvalidParameterError, match=r"of columns than X; pass landmarks\[list\(X.columns\)\]"):
                fit(frame)
    model = KernelPCA(2, **settings | {"eigen_solver": Nystrom(landmarks=points[["b", "a", "c"]][list(frame.columns)])})
    np.testing.assert_allclose(model.fit(frame).eigenvalues_, expected, rtol=1e-12)


@each("dtype", ["float64", "float32"])
def test_it_does_not_matter_which_rows_the_shift_is_the_mean_of(dtype, monkeypatch):
    """Among 96 rows 5 give a mean that is far from that of all."""
    X, allowed = points().astype(dtype), 300 * tolerances.eps(dtype)
    for weights in (None, np.arange(1, N + 1)):
        fits = []
        for rows in (4096, 5):
            monkeypatch.setattr(blocking, "PANEL_ROWS", rows)
            solver = Nystrom(RANK, landmarks="uniform")
            model = KernelPCA(P, kernel="rbf", gamma=0.1, eigen_solver=solver, random_state=0)
            fits.append(model.fit(X, sample_weight=weights))
        shifts, scores = [fit._result.stream.shift for fit in fits], [fit.transform(X) for fit in fits]
        assert np.max(np.abs(shifts[0] - shifts[1])) > 0.01
        assert np.allclose(fits[0].eigenvalues_, fits[1].eigenvalues_, rtol=allowed)
        assert np.allclose(*scores, atol=allowed)
