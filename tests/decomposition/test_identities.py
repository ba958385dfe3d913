"""Textbook identities of kernel PCA: feature maps, ranks, scaling, invariances, and PCA as the special case."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
from sklearn.decomposition import PCA

from gpukpca import KernelPCA
from tests import oracle, tolerances
from tests.each import each

SOLVERS = ("dense", "randomized")


def rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(2.0, 1.0, d)


def circles(n: int = 60) -> np.ndarray:
    """n points on the circle of radius 1, then n on that of radius 3."""
    angle = 2 * np.pi * np.arange(n) / n
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.concatenate([ring, 3 * ring])


def model(p, dtype: str = "float64", solver: str = "dense", **parameters) -> KernelPCA:
    tol = 0 if solver == "dense" else tolerances.ITERATIVE_TOL * tolerances.eps(dtype)
    return KernelPCA(p, eigen_solver=solver, tol=tol, random_state=0, **parameters)


def close(A, B, values, solver="dense", dtype="float64") -> bool:
    """Scores equal up to sign, column by column."""
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    errors = np.max(np.abs(oracle.up_to_sign(A, B) - B), axis=0)
    return bool(np.all(errors <= tolerances.scores(dtype, solver, np.asarray(values, dtype=np.float64))))


# -- feature maps ------------------------------------------------------------------------------------------------------


def quadratic_features(X: np.ndarray) -> np.ndarray:
    """phi(x).phi(y) = (x.y + 1)^2 for x in the plane."""
    x, y = X.T
    r = math.sqrt(2)
    return np.stack([np.ones_like(x), r * x, r * y, x * x, r * x * y, y * y], axis=1)


@pytest.mark.parametrize("solver", SOLVERS)
def test_kernel_pca_is_pca_of_the_features(xp, solver):
    X, new = rows(80, 2), rows(15, 2, 1)
    features = PCA(4, svd_solver="full").fit(quadratic_features(X))
    estimator = model(4, solver=solver, kernel="poly", gamma=1, coef0=1, degree=2).fit(xp.array(X))
    values = features.explained_variance_ * 79
    assert np.max(np.abs(xp.host(estimator.eigenvalues_) - values)) <= 1e-13 * values[0]
    assert close(xp.host(estimator.transform(xp.array(X))), features.transform(quadratic_features(X)), values, solver)
    assert close(
        xp.host(estimator.transform(xp.array(new))), features.transform(quadratic_features(new)), values, solver
    )


@pytest.mark.parametrize(("d", "degree"), [(1, 2), (1, 5), (2, 2), (2, 3), (3, 2), (4, 2)])
def test_the_rank_of_a_polynomial_kernel(d, degree):
    """At most C(d + p, p) monomials, and one is constant."""
    X = np.random.default_rng(2).uniform(-1, 1, (90, d))
    estimator = KernelPCA(kernel="poly", gamma=1, coef0=1, degree=degree).fit(X)
    assert estimator.eigenvalues_.shape == (math.comb(d + degree, degree) - 1,)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_quadratic_kernel_separates_concentric_circles(xp, solver):
    Z = xp.host(model(5, solver=solver, kernel="poly", degree=2, gamma=1, coef0=1).fit_transform(xp.array(circles())))
    gaps = [max(Z[:60, k].min() - Z[60:, k].max(), Z[60:, k].min() - Z[:60, k].max()) for k in range(5)]
    assert max(gaps) > 1.0


def test_a_circle_has_a_null_direction_in_the_quadratic_features():
    """x^2 + y^2 is constant on it, so that direction of feature space carries no variance."""
    X = circles()[:60]
    F = quadratic_features(X)
    null = np.array([0, 0, 0, 1, 0, 1.0])
    assert np.ptp(F @ null) <= 1e-15 * 4
    estimator = KernelPCA(kernel="poly", degree=2, gamma=1, coef0=1).fit(X)
    assert estimator.eigenvalues_.shape == (4,)  # five monomials, one null direction


# -- scaling -----------------------------------------------------------------------------------------------------------


@each("solver", SOLVERS)
@each("kernel", ["rbf", "poly", "laplacian", "cosine"])
def test_axes_have_unit_length_in_feature_space(xp, dtype, kernel, solver):
    """A' Kc A = I, and the columns of A have length 1 / sqrt(lambda)."""
    X = rows(70, 4).astype(dtype)
    estimator = model(4, dtype, solver, kernel=kernel, gamma=0.3 if kernel != "cosine" else None).fit(xp.array(X))
    A = xp.host(estimator.projection_).astype(np.float64)
    values = xp.host(estimator.eigenvalues_).astype(np.float64)
    Kc = oracle.centered(estimator.kernel_(X.astype(np.float64)))
    worst = tolerances.residual(dtype, solver) * values[0] / values[-1]
    assert np.max(np.abs(A.T @ Kc @ A - np.eye(4))) <= 10 * worst
    assert np.max(np.abs(np.linalg.norm(A, axis=0) * np.sqrt(values) - 1)) <= 100 * tolerances.eps(dtype)


@pytest.mark.parametrize("solver", SOLVERS)
def test_scores_are_uncorrelated_with_variance_lambda_over_n_minus_one(xp, dtype, solver):
    X = rows(90, 4).astype(dtype)
    estimator = model(5, dtype, solver, kernel="rbf", gamma=0.2)
    Z = xp.host(estimator.fit_transform(xp.array(X))).astype(np.float64)
    values = xp.host(estimator.eigenvalues_).astype(np.float64)
    bound = 10 * tolerances.residual(dtype, solver) * values[0]
    assert np.max(np.abs(Z.T @ Z - np.diag(values))) <= bound
    assert np.max(np.abs(Z.mean(axis=0))) <= bound
    variances = xp.host(estimator.explained_variance_).astype(np.float64)
    assert np.max(np.abs(variances - values / 89)) <= tolerances.eps(dtype) * values[0]
    assert np.max(np.abs(np.cov(Z.T) - np.diag(variances))) <= bound


@each("solver", SOLVERS)
@each("kernel", ["linear", "rbf", "poly", "laplacian", "matern", "rational_quadratic", "cosine"])
def test_transform_of_the_training_data_is_fit_transform(xp, dtype, kernel, solver):
    X = xp.array((rows(80, 6) + 1.0).astype(dtype))
    estimator = model(4, dtype, solver, kernel=kernel, gamma=0.1 if kernel not in ("linear", "cosine") else None)
    Z, again = xp.host(estimator.fit_transform(X)), xp.host(estimator.transform(X))
    values = xp.host(estimator.eigenvalues_).astype(np.float64)
    errors = np.max(np.abs(Z.astype(np.float64) - again), axis=0)
    # What centering cancels is rounding noise too: the size is lambda_1 or 1'K1/n, whichever is larger.
    noise = max(1.0, float(np.mean(estimator.kernel_(xp.host(X)))) * 80 / values[0])
    assert np.all(errors <= tolerances.scores(dtype, "dense", values) * noise)


def test_three_thousand_new_points_at_once_equal_one_by_one():
    X, new = rows(120, 5), rows(3000, 5, 1)
    for kernel, gamma in (("rbf", 0.2), ("poly", 0.2), ("linear", None)):
        estimator = model(4, kernel=kernel, gamma=gamma).fit(X)
        together = estimator.transform(new)
        some = [0, 1, 1023, 1024, 1025, 2047, 2048, 2999]
        single = np.concatenate([estimator.transform(new[i : i + 1]) for i in some])
        assert np.max(np.abs(together[some] - single)) <= 1e-11 * np.max(np.abs(together))
        halves = np.concatenate([estimator.transform(new[:1500]), estimator.transform(new[1500:])])
        assert np.max(np.abs(together - halves)) <= 1e-11 * np.max(np.abs(together))


# -- invariances -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_permuted_rows_give_permuted_scores(solver):
    X = rows(60, 3)
    order = np.random.default_rng(3).permutation(60)
    estimator = model(4, solver=solver, kernel="rbf", gamma=0.3)
    Z, permuted = estimator.fit_transform(X), estimator.fit_transform(X[order])
    assert close(permuted, Z[order], estimator.eigenvalues_, solver)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "matern", "linear"])
def test_a_translation_changes_nothing(kernel, solver):
    X = np.round(rows(60, 3) * 2**20) / 2**20  # so that adding 1000 rounds nothing
    estimator = model(3, solver=solver, kernel=kernel, gamma=None if kernel == "linear" else 0.3)
    Z = estimator.fit_transform(X)
    assert close(estimator.fit_transform(X + 1000.0), Z, estimator.eigenvalues_, solver)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kernel", ["rbf", "poly", "cosine", "matern"])
def test_a_rotation_changes_nothing(kernel, solver):
    X = rows(60, 4)
    Q = np.linalg.qr(np.random.default_rng(4).standard_normal((4, 4)))[0]
    estimator = model(4, solver=solver, kernel=kernel, gamma=0.3 if kernel != "cosine" else None)
    Z = estimator.fit_transform(X)
    assert close(estimator.fit_transform(X @ Q), Z, estimator.eigenvalues_ / 3.0, solver)


def test_doubling_every_row_doubles_every_eigenvalue():
    X = rows(50, 3)
    once, twice = (model(4, kernel="rbf", gamma=0.3).fit(Z) for Z in (X, np.concatenate([X, X])))
    moved = np.max(np.abs(twice.eigenvalues_ - 2 * once.eigenvalues_))
    assert moved <= tolerances.eigenvalue("float64") * twice.eigenvalues_[0]
    new = rows(9, 3, 1)
    assert close(twice.transform(new), once.transform(new), once.eigenvalues_)


# -- classical scaling -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_half_the_negative_square_distances_are_classical_scaling(xp, solver):
    X = rows(60, 3)
    D2 = np.sum((X[:, None, :] - X[None, :, :]) ** 2, axis=2)
    Z = xp.host(model(3, solver=solver, kernel="precomputed").fit_transform(xp.array(-D2 / 2)))
    back = np.sum((Z[:, None, :] - Z[None, :, :]) ** 2, axis=2)
    assert np.max(np.abs(back - D2)) <= 1e-11 * D2.max()
    centered = X - X.mean(axis=0)
    rotation, _ = scipy.linalg.orthogonal_procrustes(Z, centered)
    assert np.max(np.abs(Z @ rotation - centered)) <= 1e-12 * 10


# -- PCA as the special case -------------------------------------------------------------------------------------------


@each("solver", SOLVERS)
@each("shape", [(90, 8), (40, 120)])
def test_the_linear_kernel_is_pca(xp, dtype, solver, shape):
    X = (rows(*shape) + 5.0).astype(dtype)
    new = (rows(11, shape[1], 1) + 5.0).astype(dtype)
    pca = PCA(4, svd_solver="full").fit(X.astype(np.float64))
    estimator = model(4, dtype, solver).fit(xp.array(X))
    bound = tolerances.eigenvalue(dtype) * 2
    variances = xp.host(estimator.explained_variance_)
    assert np.max(np.abs(variances - pca.explained_variance_)) <= bound * pca.explained_variance_[0]
    ratios = xp.host(estimator.explained_variance_ratio_)
    assert np.max(np.abs(ratios - pca.explained_variance_ratio_)) <= bound
    gaps = -np.diff(np.append(pca.singular_values_**2, 0.0))
    condition = pca.singular_values_[0] ** 2 / np.min(gaps[:3])
    for Z in (X, new):
        expected = pca.transform(Z.astype(np.float64))
        found = xp.host(estimator.transform(xp.array(Z)))
        difference = oracle.up_to_sign(found, expected) - expected
        limit = 10 * tolerances.residual(dtype, solver) * condition * np.max(np.abs(expected))
        assert np.max(np.abs(difference)) <= limit


def test_total_variance_is_that_of_the_data():
    X = rows(70, 5) + 3.0
    assert KernelPCA(2).fit(X).total_variance_ == pytest.approx(np.var(X, axis=0, ddof=1).sum(), rel=1e-14)


def test_the_ratio_is_exact_without_the_spectrum(xp, dtype):
    X = rows(120, 4).astype(dtype)
    full = oracle.eigenpairs(oracle.centered(oracle.gram(oracle.rbf(0.3), X)))[0]
    for solver in SOLVERS:
        estimator = model(5, dtype, solver, kernel="rbf", gamma=0.3).fit(xp.array(X))
        ratios = xp.host(estimator.explained_variance_ratio_)
        assert np.max(np.abs(ratios - full[:5] / full.sum())) <= 20 * tolerances.eps(dtype)


@each("solver", SOLVERS)
@each("fraction", [0.05, 0.3, 0.5, 0.77, 0.9, 0.99])
def test_a_fraction_keeps_the_fewest_components_that_reach_it(solver, fraction):
    X = rows(160, 5)
    full = np.maximum(oracle.eigenpairs(oracle.centered(oracle.gram(oracle.rbf(0.1), X)))[0], 0.0)
    expected = int(np.searchsorted(np.cumsum(full) / full.sum(), fraction)) + 1
    estimator = model(fraction, solver=solver, kernel="rbf", gamma=0.1).fit(X)
    assert estimator.eigenvalues_.shape == (expected,)
    assert np.sum(estimator.explained_variance_ratio_) >= fraction
    assert np.sum(estimator.explained_variance_ratio_[:-1]) < fraction
    assert estimator.plan_.n_components == expected
    assert estimator.transform(X[:3]).shape == (3, expected)


def test_a_fraction_of_the_linear_kernel_is_that_of_pca():
    X = rows(100, 8)
    for fraction in (0.2, 0.6, 0.95):
        ours, theirs = KernelPCA(fraction).fit(X), PCA(fraction, svd_solver="full").fit(X)
        assert ours.eigenvalues_.shape[0] == theirs.n_components_


# -- the formula of centering ------------------------------------------------------------------------------------------
