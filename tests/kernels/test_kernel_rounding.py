"""The rounding of a kernel's values is part of the certificate: each eigenvalue is as near as its residual says."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits, load_wine

from gpukpca import KernelPCA, load, residuals, save
from gpukpca.exceptions import IndefiniteKernelWarning, PrecisionWarning, RankWarning
from gpukpca.gram import CenteredGram, DenseGram, gram_matrix
from gpukpca.kernels import RBF, Cosine, Laplacian, Linear, Matern, Polynomial, Sigmoid, exp
from tests import oracle, tolerances
from tests.each import each

DEFAULT_TOL = {"float64": 1e-8, "float32": 1e-5}
# Of fits without a tolerance: the default, or 1e4 eps.
PROMISED = {"float64": 1e-8, "float32": 1e4 * tolerances.eps("float32")}
SEEDS = [0, 1, 2]


# -- kernels less a constant, without cancellation ---------------------------------------------------------------------


def distances(X: np.ndarray) -> np.ndarray:
    return ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)


def cosine_less_one(X: np.ndarray) -> np.ndarray:
    """-(‖x - y‖² - (‖x‖ - ‖y‖)²) / (2 ‖x‖ ‖y‖), the difference of the norms from (x - y)·(x + y)."""
    norms = np.linalg.norm(X, axis=1)
    sums = ((X[:, None, :] - X[None, :, :]) * (X[:, None, :] + X[None, :, :])).sum(axis=2)
    squares = distances(X) - (sums / (norms[:, None] + norms[None, :])) ** 2
    return -squares / (2.0 * norms[:, None] * norms[None, :])


def sigmoid_less_its_constant(gamma: float, c: float) -> Callable[[np.ndarray], np.ndarray]:
    """tanh(t + c) - tanh(c) = sinh(t) / (cosh(t + c) cosh(c))."""
    return lambda X: np.sinh(gamma * (X @ X.T)) / (np.cosh(gamma * (X @ X.T) + c) * math.cosh(c))


def polynomial_less_one(gamma: float, degree: int) -> Callable[[np.ndarray], np.ndarray]:
    """(1 + t)^m - 1 by the binomial theorem."""

    def values(X: np.ndarray) -> np.ndarray:
        t = gamma * (X @ X.T)
        return sum(math.comb(degree, k) * t**k for k in range(1, degree + 1))

    return values


def matern_three_halves(gamma: float) -> Callable[[np.ndarray], np.ndarray]:
    def values(X: np.ndarray) -> np.ndarray:
        r = np.sqrt(6.0 * gamma * distances(X))
        return (1.0 + r) * np.exp(-r)

    return values


# -- data --------------------------------------------------------------------------------------------------------------


def clusters(apart: float, width: float) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: width * rng.standard_normal((90, 3)) + np.repeat(apart * np.eye(3), 30, axis=0)


def offset_by(offset: float) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.standard_normal((80, 6)) + offset


PROBLEMS: dict[str, tuple[Any, Callable[[np.random.Generator], np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    "far clusters": (RBF(1.0), clusters(900.0, 0.01), lambda X: np.exp(-distances(X))),
    "clusters": (RBF(1.0), clusters(20.0, 0.4), lambda X: np.exp(-distances(X))),
    "far clusters, matern": (Matern(1.0, 1.5), clusters(300.0, 0.01), matern_three_halves(1.0)),
    "far clusters, a kink": (Matern(1.0, 0.5), clusters(300.0, 0.1), lambda X: np.exp(-np.sqrt(2.0 * distances(X)))),
    "normal": (RBF(0.1), offset_by(0.0), lambda X: np.exp(-0.1 * distances(X))),
    "cosine": (Cosine(), offset_by(10.0), cosine_less_one),
    "cosine, far out": (Cosine(), offset_by(1e5), cosine_less_one),
    "sigmoid": (Sigmoid(1e-3, 0.5), offset_by(0.0), sigmoid_less_its_constant(1e-3, 0.5)),
    "sigmoid, small gamma": (Sigmoid(1e-10, 0.5), offset_by(0.0), sigmoid_less_its_constant(1e-10, 0.5)),
    "poly": (Polynomial(3, gamma=1e-3), offset_by(0.0), polynomial_less_one(1e-3, 3)),
    "poly, small gamma": (Polynomial(3, gamma=1e-10), offset_by(0.0), polynomial_less_one(1e-10, 3)),
}


def fitted(X: Any, **parameters: Any) -> tuple[KernelPCA, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = KernelPCA(3, random_state=0, **parameters).fit(X)
    assert all(issubclass(seen.category, (PrecisionWarning, RankWarning, IndefiniteKernelWarning)) for seen in caught)
    texts = [str(seen.message) for seen in caught if issubclass(seen.category, PrecisionWarning)]
    return model, [text for text in texts if "not separately determined" not in text]


def assert_certified(model: KernelPCA, texts: list[str], K: np.ndarray) -> None:
    """`K` is known to the rounding of its centered matrix."""
    Kc = oracle.centered(K)
    values, U = model.eigenvalues_.astype(np.float64), model.eigenvectors_.astype(np.float64)
    stated = model.residual_norms_.astype(np.float64)
    assert np.all(np.abs(values - oracle.eigenpairs(Kc, 3)[0]) <= stated + 20.0 * tolerances.eps("float64") * values[0])
    true = np.linalg.norm(Kc @ U - U * values[None, :], axis=0)
    assert np.all(true <= 4.0 * stated)
    dtype = str(model.eigenvalues_.dtype)
    within = bool(np.all(model.residual_norms_ <= PROMISED[dtype] * model.eigenvalues_[0]))
    # Either the residuals are as promised, or a warning says that rounding does not allow it.
    assert model.converged_
    of_tolerance = [text for text in texts if "some components are uncertain" not in text]
    assert bool(of_tolerance) == (not within)
    assert len(of_tolerance) <= 1
    # No component is left with a residual that is large beside itself, and without a warning.
    assert texts or np.all(stated <= 1e-3 * values)


@each("seed", SEEDS)
@each("dtype", ["float64", "float32"])
@each("solver", ["dense", "randomized"])
@each("name", PROBLEMS)
def test_residuals_bound_what_the_kernels_rounding_does(name: str, solver: str, dtype: str, seed: int) -> None:
    kernel, make, exact = PROBLEMS[name]
    X = make(np.random.default_rng(seed)).astype(dtype)
    model, texts = fitted(X, kernel=kernel, eigen_solver=solver)
    if float(model.eigenvalues_[0]) == 0.0:  # nothing is left of it in this type
        assert texts or dtype == "float32"
        return
    assert_certified(model, texts, exact(X.astype(np.float64)))


@each("seed", SEEDS)
@each("constant", [0.0, 1e3, 1e7, 1e11])
@each("solver", ["dense", "randomized"])
def test_a_constant_of_a_precomputed_matrix_shows_in_the_residuals(solver: str, constant: float, seed: int) -> None:
    B = np.random.default_rng(seed).standard_normal((80, 12))
    K = B @ B.T
    K = (K + K.T) / 2.0
    model, texts = fitted(K + constant, kernel="precomputed", eigen_solver=solver)
    assert_certified(model, texts, K)
    assert bool(texts) == (constant == 1e11)
    if texts:
        assert any("subtract the feature means, or the constant" in text for text in texts)


@each("seed", SEEDS)
@each("name", ["far clusters", "clusters", "normal", "cosine", "sigmoid", "poly"])
def test_the_rounding_is_stated_within_two_orders_of_magnitude(name: str, seed: int) -> None:
    kernel, make, exact = PROBLEMS[name]
    X = make(np.random.default_rng(seed))
    model, _ = fitted(X, kernel=kernel, eigen_solver="dense")
    values, U = model.eigenvalues_, model.eigenvectors_
    true = np.linalg.norm(oracle.centered(exact(X)) @ U - U * values[None, :], axis=0)
    assert np.max(model.residual_norms_) <= 100.0 * np.max(true)


@each("dtype", ["float64", "float32"])
@each("kernel", ["linear", "poly", "rbf", "cosine", "laplacian", "matern", "rational_quadratic", "sigmoid"])
def test_ordinary_data_meet_the_default_tolerance_without_a_word(kernel: str, dtype: str) -> None:
    X = load_digits().data[:450].astype(dtype)
    gamma = None if kernel in ("linear", "cosine") else "scale"
    model = KernelPCA(5, kernel=kernel, gamma=gamma, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the kernel matrix has negative eigenvalues")
        model.fit(X)
    assert model.converged_
    assert np.all(model.residual_norms_ <= DEFAULT_TOL[dtype] * model.eigenvalues_[0])


def test_a_fit_without_a_tolerance_is_not_measured_by_one() -> None:
    """In float32 the default, 1e-5, is 84 eps: residuals above it lose no digit that the eigenvalues have."""
    for data in (load_wine().data, np.random.default_rng(0).standard_normal((200, 10)) + 10.0):
        X = data.astype(np.float32)
        exact = oracle.eigenpairs(oracle.centered(oracle.gram(oracle.cosine, X.astype(np.float64))), 3)[0]
        for solver in ("dense", "randomized"):
            model, texts = fitted(X, kernel="cosine", eigen_solver=solver)
            assert not [text for text in texts if "tol" in text.split("residual_norms_")[0]]
            values, stated = model.eigenvalues_.astype(np.float64), model.residual_norms_.astype(np.float64)
            assert model.converged_
            assert np.max(stated) > DEFAULT_TOL["float32"] * values[0]
            assert np.max(np.abs(values - exact)) <= DEFAULT_TOL["float32"] * values[0]
            _, texts = fitted(X, kernel="cosine", eigen_solver=solver, tol=1e-5)
            assert any(text.startswith("tol is below what rounding allows in float32") for text in texts)


def test_a_tolerance_below_rounding_is_reported_with_what_takes_its_place() -> None:
    X = np.random.default_rng(0).standard_normal((80, 5))
    with pytest.warns(PrecisionWarning, match="tol is below what rounding allows in float64") as caught:
        model = KernelPCA(3, kernel="rbf", gamma=0.1, tol=1e-15).fit(X)
    values = caught[0].message.values
    assert values["tol"] == 1e-15 < 1e-14 < 2.0 * values["reached"] < 2e-13
    assert model.converged_


# -- exponentials, powers and many features ----------------------------------------------------------------------------


def decimal_gram(X: np.ndarray, function: Callable[[Decimal, Decimal], Decimal]) -> np.ndarray:
    """Return the matrix of a function of x·y and ‖x - y‖², both exact for rows of integers, rounded once."""
    products, squares = X @ X.T, distances(X)
    values: dict[tuple[float, float], float] = {}
    with localcontext(prec=40):
        for pair in set(zip(products.ravel().tolist(), squares.ravel().tolist(), strict=True)):
            values[pair] = float(function(Decimal(pair[0]), Decimal(pair[1])))
    pairs = zip(products.ravel().tolist(), squares.ravel().tolist(), strict=True)
    return np.array([values[pair] for pair in pairs]).reshape(products.shape)


EXPONENTIALS: dict[str, tuple[Callable[[float], Any], Callable[[Decimal, Decimal, Decimal], Decimal]]] = {
    "linear": (lambda c: exp(c / 60.0 * Linear()), lambda t, _, c: (c / 60 * t).exp()),
    "rbf": (lambda c: exp(c * RBF(0.05)), lambda _, s, c: (c * (-Decimal("0.05") * s).exp()).exp()),
    "poly": (
        lambda c: exp(c / 4.0 * Polynomial(2, gamma=1 / 64, coef0=1.0)),
        lambda t, _, c: (c / 4 * (t / 64 + 1) ** 2).exp(),
    ),
    "of exponential": (
        lambda c: exp(c / 10.0 * exp(RBF(0.05))),
        lambda _, s, c: (Decimal(c / 10) * (-Decimal("0.05") * s).exp().exp()).exp(),
    ),
}


@pytest.mark.parametrize("solver", ["dense", "randomized"])
@pytest.mark.parametrize("name", EXPONENTIALS)
def test_residuals_bound_what_an_exponential_magnifies(name: str, solver: str) -> None:
    make, function = EXPONENTIALS[name]
    for (dtype, factor), seed in itertools.product((("float64", 256.0), ("float32", 32.0)), SEEDS):
        X = np.random.default_rng(seed).integers(0, 5, (50, 5)).astype(np.float64)
        model, _ = fitted(X.astype(dtype), kernel=make(factor), eigen_solver=solver)
        exact = decimal_gram(X, lambda t, s, c=factor: function(t, s, Decimal(c)))  # type: ignore[misc]
        Kc, values = oracle.centered(exact), model.eigenvalues_.astype(np.float64)
        slack = 20.0 * tolerances.eps("float64") * values[0]
        error = np.abs(values - oracle.eigenpairs(Kc, 3)[0])
        assert np.all(error <= model.residual_norms_ + slack)


def test_residuals_bound_sums_of_many_products_and_their_powers() -> None:
    """In float32, beside values in float64; twice the residual leaves room for another BLAS."""
    for d, degree, seed in itertools.product((3, 30, 300), (1, 6), range(8)):
        rng = np.random.default_rng(seed)
        for X in (1.1 * (rng.random((40, d)) < 0.3), 0.37 * rng.poisson(3.0, (40, d))):
            X = X.astype(np.float32)
            wide = X.astype(np.float64)
            gamma = 1.3 / float((wide**2).sum(axis=1).mean())
            model, _ = fitted(X, kernel=Polynomial(degree, gamma, 0.0), eigen_solver="dense")
            values = oracle.eigenpairs(oracle.centered((gamma * (wide @ wide.T)) ** degree), 3)[0]
            assert np.all(np.abs(model.eigenvalues_ - values) <= 2.0 * model.residual_norms_), (d, degree, seed)


def test_rounding_grows_with_features_powers_and_exponents() -> None:
    X = np.random.default_rng(0).standard_normal((40, 256))
    X /= np.linalg.norm(X, axis=1)[:, None]

    def rounding(kernel: Any, rows: Any = X) -> float:
        return kernel.rounding(kernel.template(rows, True))

    assert rounding(Cosine()) == rounding(Sigmoid(1.0)) == rounding(Linear()) == 3.0  # 1 + 256^½ / 8
    assert rounding(Polynomial(4, gamma=1.0)) == 4.0 * rounding(Linear())
    assert rounding(Cosine(), scipy.sparse.csr_array(X.astype(np.float32))) == pytest.approx(1.0)  # in float64
    few = scipy.sparse.csr_array((np.ones(80), np.arange(80), np.arange(0, 81, 4)), shape=(20, 10**6))
    assert rounding(Linear(), few) == rounding(Polynomial(1, 1.0), few) == 1.25  # 1 + 4^½ / 8
    assert rounding(Laplacian(1.0)) == 1.0
    for factor in (0.01, 20.0):
        assert rounding(exp(factor * Linear())) == pytest.approx(1.0 + 2.0 * 3.0 * max(factor, 1.0))


def test_zero_rows_below_an_exponential_warn_once() -> None:
    X = np.random.default_rng(0).standard_normal((30, 3))
    X[4] = 0.0
    with pytest.warns(RankWarning, match="Cosine: some rows are zero") as caught:
        KernelPCA(2, kernel=exp(Cosine())).fit(X)
    assert len([seen for seen in caught if "Cosine" in str(seen.message)]) == 1


# -- gamma x·y + coef0 that cancels ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [Sigmoid, lambda gamma, coef0: Polynomial(1, gamma, coef0)], ids=["sigmoid", "poly"])
def test_equal_rows_whose_values_cancel_have_no_component(make: Any) -> None:
    for seed, dtype, sparse in itertools.product(range(3), ("float64", "float32"), (False, True)):
        rng = np.random.default_rng(seed)
        row = rng.standard_normal(int(rng.integers(2, 30))).astype(dtype)
        gamma = 1.0 / float(row.astype(np.float64) @ row)
        X: Any = scipy.sparse.csr_array(np.tile(row, (20, 1))) if sparse else np.tile(row, (20, 1))
        for kernel in (make(gamma, -1.0), make(gamma, -1.0 + 1e-3)):
            assert len(np.unique(gram_matrix(kernel, X))) == 1
            model = KernelPCA(19, kernel=kernel)
            with pytest.warns(RankWarning, match="fewer components carry variance"):
                model.fit(X)
            assert not np.any(model.eigenvalues_)


def test_rows_near_each_other_keep_the_digits_of_what_cancels(xp: Any) -> None:
    """K against tanh of sums of fractions, for rows 1e-7 apart and values below 1e-6."""
    rng = np.random.default_rng(0)
    row = rng.integers(1, 9, 6) / 8.0
    X = row + rng.integers(-8, 9, (24, 6)) * 2.0**-26
    new = row + rng.integers(-8, 9, (5, 6)) * 2.0**-26
    gamma, coef0 = 0.25, -0.25 * float(row @ row)
    kernel = Sigmoid(gamma, coef0)

    def exact(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        rows = [[[Fraction(x) for x in row] for row in rows] for rows in (A, B)]
        sums = [[sum(x * y for x, y in zip(a, b, strict=True)) for b in rows[1]] for a in rows[0]]
        return np.array([[math.tanh(float(Fraction(gamma) * t + Fraction(coef0))) for t in line] for line in sums])

    K = exact(X, X)
    assert 1e-9 < np.max(np.abs(K)) < 1e-6
    bound = 64.0 * tolerances.eps("float64") * np.max(np.abs(K))  # the sums as they are err by eps
    for Y in (None, X, new):
        found = xp.host(gram_matrix(kernel, xp.array(X), None if Y is None else xp.array(Y)))
        np.testing.assert_allclose(found, exact(X, X if Y is None else Y), rtol=0, atol=bound)
    np.testing.assert_allclose(gram_matrix(kernel, scipy.sparse.csr_array(X)), K, rtol=0, atol=bound)
    op = CenteredGram.of_kernel(kernel, xp.array(X), tile_edge=7)
    np.testing.assert_allclose(xp.host(op.base.columns([3, 20])), K[:, [3, 20]], rtol=0, atol=bound)
    np.testing.assert_allclose(xp.host(op.base.diagonal()), np.diag(K), rtol=0, atol=bound)
    np.testing.assert_allclose(xp.host(op.to_dense()), oracle.centered(K), rtol=0, atol=4.0 * bound)


def test_a_model_of_values_that_cancel_is_stored(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    X = 1.0 + 1e-6 * rng.standard_normal((30, 4))
    model = KernelPCA(2, kernel="sigmoid", gamma=0.25, coef0=-1.0, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IndefiniteKernelWarning)
        scores = model.fit_transform(X)
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").transform(X[:5]), model.transform(X[:5]))
    np.testing.assert_allclose(model.transform(X), scores, rtol=0, atol=1e-6 * np.abs(scores).max())


def of_row_effects(rng: np.random.Generator, size: float) -> np.ndarray:
    """A matrix of rank 2 plus a_i + a_j, where Σ a_i = 0, in long double."""
    F, a = rng.standard_normal((60, 2)), size * rng.standard_normal(60)
    a -= a.mean()
    return F.astype(np.longdouble) @ F.T + a[:, None] + a[None, :]


def near_but_for_three(rng: np.random.Generator, size: float) -> np.ndarray:
    """Rows of gamma x·y near 1, but three of them."""
    X = size * rng.standard_normal((120, 200))
    X[:, 0] += np.where(np.arange(120) < 3, 3.0, 1.0)
    return X


def true_residuals(K: np.ndarray, model: KernelPCA, weights: np.ndarray, center: bool) -> np.ndarray:
    """‖A u - λ u‖ in long double, A the centered matrix of weighted rows."""
    roots = np.sqrt(weights.astype(np.longdouble))
    if center:
        means = K @ weights / weights.sum()
        K = K - means[:, None] - means[None, :] + weights @ means / weights.sum()
    U = model.eigenvectors_.astype(np.longdouble)
    left = (roots[:, None] * K * roots[None, :]) @ U - U * model.eigenvalues_[None, :]
    return np.sqrt((left**2).sum(axis=0)).astype(np.float64)


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="the oracle needs more digits than float64")
def test_residuals_bound_the_rounding_of_numbers_that_cancel() -> None:
    """Of rows that weigh the same or not, of K centered or not, from the fit and from an audit."""
    cases = [("precomputed", of_row_effects, size) for size in (1.0, 1e4, 1e8)]
    cases += [("sigmoid", near_but_for_three, size) for size in (1e-1, 1e-3, 1e-5)]
    options = itertools.product(("float64", "float32"), ("dense", "randomized"), (False, True), (True, False))
    for (dtype, solver, weighted, center), (kernel, make, size) in itertools.product(options, cases):
        case, rng = (kernel, size, dtype, solver, weighted, center), np.random.default_rng(0)
        if dtype == "float32" and size in (1e8, 1e-5):
            continue  # nothing is left in this type
        given = make(rng, size)
        X = given.astype(dtype)
        weights = rng.integers(1, 4, len(X)).astype(np.float64) if weighted else np.ones(len(X))
        model = KernelPCA(2, kernel=kernel, gamma=1.0, coef0=-1.0, center=center, eigen_solver=solver, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, sample_weight=weights)
            audit = residuals(model, X, sample_weight=weights)
        wide = X.astype(np.longdouble)
        K = given if kernel == "precomputed" else np.tanh(wide @ wide.T - 1.0)
        true, kept = true_residuals(K, model, weights, center), model.eigenvalues_ > 0
        assert np.any(kept), case
        assert np.all(true[kept] <= 4.0 * model.residual_norms_[kept]), case
        assert np.all(true[kept] <= 4.0 * (audit.residual_norms + audit.rounding)[kept]), case


def test_row_effects_leave_their_rank_and_a_warning() -> None:
    """What rounding leaves of a_i + a_j is no component, and what it hides is said."""
    for solver, size, seed in itertools.product(("dense", "randomized"), (1.0, 1e6, 1e10), SEEDS):
        K = of_row_effects(np.random.default_rng(seed), size).astype(np.float64)
        exact = oracle.eigenpairs(oracle.centered(of_row_effects(np.random.default_rng(seed), 0.0)), 2)[0]
        model, texts = fitted(K, kernel="precomputed", eigen_solver=solver)
        assert np.count_nonzero(model.eigenvalues_) == 2, (solver, size, seed)
        assert np.all(np.abs(model.eigenvalues_[:2] - exact) <= 2.0 * model.residual_norms_[:2])
        assert bool(texts) == (size == 1e10)


def test_rounding_of_distances_grows_with_the_size_of_what_cancels() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    size = math.sqrt(float(np.mean(np.sum((X - X.mean(axis=0)) ** 2, axis=1) ** 2)))
    for rows in (X, scipy.sparse.csr_array(X)):
        kernel = RBF(2.0)
        assert kernel.rounding(kernel.template(rows)) == pytest.approx(1.0 + 2.0 * size, rel=1e-9)
    wide = Matern(2.0, 0.5)  # of float32 rows the distances are made in float64
    assert wide.rounding(wide.template(X.astype(np.float32))) == pytest.approx(1.0, abs=1e-6)
    op = CenteredGram.of_kernel(RBF(2.0), X)
    assert op.rounding == op.base.rounding == pytest.approx(1.0 + 2.0 * size, rel=1e-9)
    assert CenteredGram(DenseGram(X @ X.T)).rounding == 1.0
