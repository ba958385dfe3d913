"""Golden answers end to end: data, Gram matrix, centering, eigenpairs, projection, against closed forms."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris

from gpukpca import PCA, KernelPCA
from gpukpca.exceptions import PrecisionWarning, RankWarning
from gpukpca.kernels import RBF, Polynomial
from tests import oracle, tolerances
from tests.datasets import circle
from tests.each import each

SOLVERS = ("dense", "randomized")
# lambda_k of exp(-g |x - y|^2) on n points of the circle, mpmath at 50 digits
CIRCLE_64_1 = {1: 13.777234511932010186, 2: 5.967298131502936344, 3: 1.8426382489261374982}
CIRCLE_64_1 |= {5: 0.0851047100280421, 8: 2.3991692917930502e-4}
CIRCLE_256_HALF = {1: 53.225066329525363, 2: 12.784326884921226, 3: 2.0877587898404592}
BROWNIAN_100 = {1: 1013.2951738692072805, 2: 253.38630889109574662, 3: 112.66246329333061202, 99: 0.25006169517570602}
HYPERCUBE_6 = [3.7794906112378289] * 6 + [1.2713282116691817] * 15 + [0.42764371923035676] * 20
DUPLICATES = 54.002160963605480819
ORTHONORMAL = 0.63212055882855767
PHI = (1 + math.sqrt(5)) / 2


def model(p, dtype: str, solver: str, **parameters) -> KernelPCA:
    """Return an estimator; the tolerance of the iterative solver is 100 eps."""
    if solver != "dense":
        parameters["tol"] = tolerances.ITERATIVE_TOL * tolerances.eps(dtype)
    return KernelPCA(p, eigen_solver=solver, random_state=0, **parameters)


def fitted(X, p, dtype: str, solver: str, **parameters) -> KernelPCA:
    """Fitted, where p may lie in a cluster or above the rank: what those warn of is tested elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        warnings.simplefilter("ignore", RankWarning)
        return model(p, dtype, solver, **parameters).fit(X)


def error(estimator: KernelPCA, exact, host=np.asarray) -> float:
    """Largest error of an eigenvalue over the largest one."""
    exact = np.asarray(exact, dtype=np.float64)
    return float(np.max(np.abs(host(estimator.eigenvalues_).astype(np.float64) - exact)) / exact[0])


def circle_spectrum(n: int, gamma: float, p: int) -> np.ndarray:
    """lambda_k = sum_m exp(-g (2 - 2 cos(2 pi m / n))) cos(2 pi k m / n), k = 1, 1, 2, 2, ..."""
    m = np.arange(n)
    c = np.exp(-gamma * (2 - 2 * np.cos(2 * np.pi * m / n)))
    values = [math.fsum(c * np.cos(2 * np.pi * ((k * m) % n) / n)) for k in range(1, n // 2 + 1)]
    counts = [1 if 2 * k == n else 2 for k in range(1, n // 2 + 1)]
    return np.sort(np.repeat(values, counts))[::-1][:p]


# -- T1: the circle ----------------------------------------------------------------------------------------------------


def test_the_formula_of_the_circle_gives_the_golden_digits():
    for n, gamma, golden in ((64, 1.0, CIRCLE_64_1), (256, 0.5, CIRCLE_256_HALF)):
        values = circle_spectrum(n, gamma, 16)
        for k, exact in golden.items():
            assert values[2 * k - 2] == pytest.approx(exact, rel=1e-12)
            assert values[2 * k - 1] == pytest.approx(exact, rel=1e-12)


@each("n, gamma", [(5, 1.0), (63, 1.0), (64, 1.0), (256, 0.5), (800, 1.0)])
@each("solver", SOLVERS)
def test_circle_of_any_size(dtype, solver, n, gamma):
    p = min(10, n - 1)
    estimator = fitted(circle(n).astype(dtype), p, dtype, solver, kernel="rbf", gamma=gamma)
    assert error(estimator, circle_spectrum(n, gamma, p)) <= tolerances.golden(dtype)


@pytest.mark.parametrize("solver", SOLVERS)
def test_circle_on_every_library(xp, dtype, solver):
    estimator = fitted(xp.array(circle(64).astype(dtype)), 10, dtype, solver, kernel="rbf", gamma=1.0)
    assert error(estimator, circle_spectrum(64, 1.0, 10), xp.host) <= tolerances.golden(dtype)


@pytest.mark.parametrize("solver", SOLVERS)
def test_circle_vectors_span_the_cosines_and_sines(dtype, solver):
    n = 64
    U = fitted(circle(n).astype(dtype), 10, dtype, solver, kernel="rbf", gamma=1.0).eigenvectors_.astype(np.float64)
    j = np.arange(n)
    values = circle_spectrum(n, 1.0, 12)
    for k in range(1, 6):
        pair = np.sqrt(2 / n) * np.stack([np.cos(2 * np.pi * k * j / n), np.sin(2 * np.pi * k * j / n)], axis=1)
        found = U[:, 2 * k - 2 : 2 * k]
        gap = min(values[2 * k - 2] - values[2 * k], (values[2 * k - 4] - values[2 * k - 2]) if k > 1 else np.inf)
        outside = found - pair @ (pair.T @ found)
        assert np.max(np.abs(outside)) <= tolerances.angle(dtype, solver, gap / values[0])


@pytest.mark.parametrize("solver", SOLVERS)
def test_new_points_of_the_circle_have_the_scores_of_the_formula(xp, solver):
    """z_k = sqrt(2 lambda_k / n) (cos k phi, sin k phi), up to a rotation of each pair."""
    n = 64
    phi = np.array([0.1, 1.0, 2.5, 6.0])
    new = np.stack([np.cos(phi), np.sin(phi)], axis=1)
    estimator = fitted(xp.array(circle(n)), 6, "float64", solver, kernel="rbf", gamma=1.0)
    Z = xp.host(estimator.transform(xp.array(new)))
    values = circle_spectrum(n, 1.0, 6)
    # The formula is exact in the limit of n; aliases I_{n-k}(2g) are below 1e-40 here.
    for k in range(1, 4):
        pair = Z[:, 2 * k - 2 : 2 * k]
        size = math.sqrt(2 * values[2 * k - 2] / n)
        exact = size * np.stack([np.cos(k * phi), np.sin(k * phi)], axis=1)
        left, _, right = np.linalg.svd(exact.T @ pair)
        assert np.max(np.abs(exact @ (left @ right) - pair)) <= 1e-13 * values[0] / values[2 * k - 2]


# -- T2: finite rank ---------------------------------------------------------------------------------------------------


@each("degree, shares", [(2, [1, 1, 1 / 4, 1 / 4]), (3, [15 / 8] * 2 + [3 / 4] * 2 + [1 / 8] * 2)])
@each("solver", SOLVERS)
def test_polynomials_on_the_circle_have_finite_rank(xp, dtype, solver, degree, shares):
    n = 60
    X = xp.array(circle(n).astype(dtype))
    exact = np.concatenate([np.array(shares) * n, np.zeros(10 - len(shares))])
    with pytest.warns(RankWarning, match="fewer components carry variance") as caught:
        estimator = model(10, dtype, solver, kernel="poly", degree=degree, gamma=1.0, coef0=1.0).fit(X)
    assert caught[0].message.values["nonzero"] == len(shares)
    assert error(estimator, exact, xp.host) <= tolerances.golden(dtype)
    assert np.all(xp.host(estimator.eigenvalues_)[len(shares) :] == 0.0)
    scores = xp.host(estimator.transform(X))
    assert np.all(scores[:, len(shares) :] == 0.0)


# -- T3: Brownian motion -----------------------------------------------------------------------------------------------


def brownian_spectrum(n: int) -> np.ndarray:
    return 1 / (4 * np.sin(np.pi * np.arange(1, n) / (2 * n)) ** 2)


@pytest.mark.parametrize("conditional", [False, True], ids=["min", "-|x-y|/2"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_brownian_motion(dtype, solver, conditional):
    n = 100
    x = np.arange(1.0, n + 1.0)
    K = np.minimum(x[:, None], x[None, :]) if not conditional else -np.abs(x[:, None] - x[None, :]) / 2
    estimator = fitted(K.astype(dtype), 10, dtype, solver, kernel="precomputed")
    exact = brownian_spectrum(n)[:10]
    for k, golden in BROWNIAN_100.items():
        assert brownian_spectrum(n)[k - 1] == pytest.approx(golden, rel=1e-13)
    bound = tolerances.golden(dtype)
    assert error(estimator, exact) <= bound
    vectors = np.cos(np.pi * np.arange(1, 11)[None, :] * (np.arange(1, n + 1)[:, None] - 0.5) / n) * np.sqrt(2 / n)
    gaps = -np.diff(brownian_spectrum(n)[:11]) / exact[0]
    U = estimator.eigenvectors_.astype(np.float64)
    difference = oracle.up_to_sign(U, vectors) - vectors
    assert np.all(np.linalg.norm(difference, axis=0) <= tolerances.angle(dtype, solver, gaps))


def test_a_conditionally_definite_kernel_as_a_function_of_two_rows():
    x = np.arange(1.0, 41.0)[:, None]
    estimator = KernelPCA(5, kernel=lambda a, b: -abs(float(a[0] - b[0])) / 2).fit(x)
    assert error(estimator, brownian_spectrum(40)[:5]) <= 1e-14


# -- T5, T6, T8 --------------------------------------------------------------------------------------------------------


def hypercube() -> np.ndarray:
    return ((np.arange(64)[:, None] >> np.arange(6)[None, :]) & 1).astype(np.float64)


@pytest.mark.parametrize("solver", SOLVERS)
def test_hypercube_with_all_multiplicities(xp, dtype, solver):
    X = xp.array(hypercube().astype(dtype))
    for p in (6, 10, 21):
        estimator = fitted(X, p, dtype, solver, kernel="rbf", gamma=0.7)
        assert error(estimator, HYPERCUBE_6[:p], xp.host) <= tolerances.golden(dtype)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_large_hypercube_with_all_multiplicities(dtype, solver):
    d, a = 9, math.exp(-0.7)
    X = ((np.arange(2**d)[:, None] >> np.arange(d)[None, :]) & 1).astype(dtype)
    exact = np.repeat([(1 + a) ** (d - k) * (1 - a) ** k for k in (1, 2)], [9, 36])[:40]
    estimator = fitted(X, 40, dtype, solver, kernel="rbf", gamma=0.7)
    assert error(estimator, exact) <= tolerances.eigenvalue(dtype)


@pytest.mark.parametrize("solver", SOLVERS)
def test_two_groups_of_duplicates(xp, dtype, solver):
    X = np.concatenate([np.zeros((70, 3)), np.ones((130, 3))]).astype(dtype)
    with pytest.warns(RankWarning, match="fewer components carry variance"):
        estimator = model(4, dtype, solver, kernel="rbf", gamma=0.3).fit(xp.array(X))
    found = float(xp.host(estimator.eigenvalues_)[0])
    assert abs(found - DUPLICATES) <= tolerances.eigenvalue(dtype) * DUPLICATES
    assert np.all(xp.host(estimator.eigenvalues_)[1:] == 0.0)
    scores = xp.host(estimator.transform(xp.array(X)))
    assert np.unique(np.round(scores[:, 0], 4)).size == 2


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n", [12, 100])
def test_orthonormal_rows(dtype, solver, n):
    estimator = fitted(np.eye(n, dtype=dtype), 10, dtype, solver, kernel="rbf", gamma=0.5)
    # The mean of K that centering takes away grows with n; at n = 100 it is sixty times the eigenvalues.
    bound = tolerances.golden(dtype) if n < 100 else tolerances.eigenvalue(dtype)
    assert error(estimator, np.full(10, ORTHONORMAL)) <= bound


# -- T9: the linear kernel is PCA --------------------------------------------------------------------------------------

SINGULAR = {"geometric": np.geomspace(1e3, 1.0, 8), "clustered": np.array([5.0, 5.0, 5.0, 2.0, 2.0, 1.0, 1.0, 1.0])}


def linear_data(n: int, d: int, singular: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """X = U S V' with U'1 = 0, and U S."""
    generator = np.random.default_rng(12)
    k = len(singular)
    U = np.linalg.qr(np.concatenate([np.ones((n, 1)), generator.standard_normal((n, k))], axis=1))[0][:, 1:]
    V = np.linalg.qr(generator.standard_normal((d, k)))[0]
    return (U * singular) @ V.T, U * singular


@each("name", SINGULAR)
@each("shape", [(120, 20), (30, 200)])
@each("solver", SOLVERS)
def test_the_linear_kernel_finds_the_singular_values(dtype, solver, shape, name):
    X, _ = linear_data(*shape, SINGULAR[name])
    p = 8 if name == "clustered" or shape[0] == 30 else 6
    if 5 * p > shape[0]:
        p = 5
    estimator = fitted(X.astype(dtype), p, dtype, solver, kernel="linear")
    assert error(estimator, SINGULAR[name][:p] ** 2) <= tolerances.golden(dtype)


@pytest.mark.parametrize("solver", SOLVERS)
def test_offset_data_in_single_precision(xp, solver):
    """Features centered with a float64 mean: 1.9e-7; with a float32 mean it would be 1.2e-5."""
    X = (linear_data(120, 20, np.geomspace(10.0, 1.0, 8))[0] + 1e4).astype(np.float32)
    centered = X.astype(np.float64) - X.astype(np.float64).mean(axis=0)
    exact = np.linalg.svd(centered, compute_uv=False)[:6] ** 2
    estimator = model(6, "float32", solver).fit(xp.array(X))
    assert error(estimator, exact, xp.host) <= 16 * tolerances.eps("float32")


# -- T10: the flat limit -----------------------------------------------------------------------------------------------


@each("kernel", ["rbf", "rational_quadratic"])
@each("solver", SOLVERS)
def test_the_flat_limit_is_pca(xp, dtype, solver, kernel):
    """lambda_k / (2 gamma) -> s_k^2 with an error O(gamma), 2e-7 at 1e-8, beside that of rounding."""
    X = np.random.default_rng(4).standard_normal((100, 3)).astype(dtype)
    centered = X.astype(np.float64) - X.astype(np.float64).mean(axis=0)
    exact = np.linalg.svd(centered, compute_uv=False) ** 2
    estimator = model(3, dtype, solver, kernel=kernel, gamma=1e-8).fit(xp.array(X))
    found = xp.host(estimator.eigenvalues_).astype(np.float64) / 2e-8
    assert np.max(np.abs(found - exact)) / exact[0] <= 2e-7 + 16 * tolerances.eps(dtype)


def test_new_points_of_a_flat_kernel_are_projected_as_by_pca(dtype):
    generator = np.random.default_rng(4)
    X, new = (generator.standard_normal((100, 3)).astype(dtype) for _ in range(2))
    flat = KernelPCA(3, kernel="rbf", gamma=1e-8).fit(X).transform(new) / np.sqrt(2e-8)
    plain = KernelPCA(3).fit(X).transform(new)
    bound = {"float64": 1e-6, "float32": 2e-5}[dtype]
    assert np.max(np.abs(oracle.up_to_sign(flat, plain) - plain)) <= bound * np.max(np.abs(plain))


# -- T11: Mercer -------------------------------------------------------------------------------------------------------


def mercer(k) -> np.ndarray:
    """Eigenvalues of exp(-|x - y|^2 / 2) under N(0, 1): phi^-(2k+1)."""
    return PHI ** -(2.0 * np.asarray(k) + 1)


def test_mercer_by_gauss_hermite_nodes(dtype):
    """sqrt(w) K sqrt(w) at 80 nodes: all even and odd k, by the solver alone (no centering)."""
    from gpukpca.eigen import top_eigh
    from gpukpca.gram import DenseGram, gram_matrix
    from gpukpca.kernels import modulate

    x, w = np.polynomial.hermite_e.hermegauss(80)
    w = w / w.sum()
    X = x[:, None].astype(dtype)
    roots = np.sqrt(w).astype(dtype)
    K = gram_matrix(modulate(RBF(0.5), lambda Z: roots), X)
    values = top_eigh(DenseGram(K), 10, solver="dense").eigenvalues.astype(np.float64)
    assert np.max(np.abs(values - mercer(np.arange(10)))) <= tolerances.golden(dtype)


def test_mercer_on_normal_quantiles():
    """Odd functions survive centering; the grid of quantiles gives 0.23607937 at n = 400."""
    from scipy.stats import norm

    x = norm.ppf((np.arange(400) + 0.5) / 400)[:, None]
    values = KernelPCA(4, kernel="rbf", gamma=0.5).fit(x).eigenvalues_ / 400
    assert values[0] == pytest.approx(0.23607937, abs=5e-9)
    assert values[0] == pytest.approx(mercer(1), abs=2e-5)


@pytest.mark.parametrize("solver", SOLVERS)
def test_mercer_on_random_points(dtype, solver):
    """lambda_1 / n within five standard deviations, 4.2 mu_1 / sqrt(n)."""
    n = 400
    x = np.random.default_rng(0).standard_normal((n, 1)).astype(dtype)
    value = float(fitted(x, 5, dtype, solver, kernel="rbf", gamma=0.5).eigenvalues_[0]) / n
    assert abs(value - mercer(1)) <= 4.2 * mercer(1) / math.sqrt(n)


# -- T13: identities ---------------------------------------------------------------------------------------------------


@each("solver", SOLVERS)
@each("exponent", [-40, -7, 9, 40])
def test_a_power_of_two_between_data_and_gamma_is_bitwise_nothing(dtype, solver, exponent):
    """X -> 2^k X, gamma -> 4^-k gamma."""
    X = np.random.default_rng(6).standard_normal((70, 4)).astype(dtype)
    plain = model(5, dtype, solver, kernel="rbf", gamma=0.3).fit(X)
    scaled = model(5, dtype, solver, kernel="rbf", gamma=0.3 * 4.0**-exponent).fit((X * 2.0**exponent).astype(dtype))
    assert np.array_equal(plain.eigenvalues_, scaled.eigenvalues_)
    assert np.array_equal(plain.eigenvectors_, scaled.eigenvectors_)


# -- T14: pre-images ---------------------------------------------------------------------------------------------------


# -- published examples of PCA -----------------------------------------------------------------------------------------

HALD = np.array(
    [
        [7, 1, 11, 11, 7, 11, 3, 1, 2, 21, 1, 11, 10],
        [26, 29, 56, 31, 52, 55, 71, 31, 54, 47, 40, 66, 68],
        [6, 15, 8, 8, 6, 9, 17, 22, 18, 4, 23, 9, 8],
        [60, 52, 20, 47, 33, 22, 6, 44, 22, 26, 34, 12, 12],
    ]
).T


@pytest.mark.parametrize("solver", ["full", "covariance_eigh", "randomized"])
def test_the_ingredients_of_cement_have_the_published_components(solver):
    """Hald (1952), as in the manual of MATLAB's `pca`: coefficients, variances, shares, scores and Hotelling's T^2."""
    model = PCA(svd_solver=solver, random_state=0).fit(HALD)
    axes = [
        [-0.0678, -0.6785, 0.0290, 0.7309],
        [-0.6460, -0.0200, 0.7553, -0.1085],
        [0.5673, -0.5440, 0.4036, -0.4684],
        [0.5062, 0.4933, 0.5156, 0.4844],
    ]
    np.testing.assert_allclose(model.components_, axes, atol=5.1e-5)
    np.testing.assert_allclose(model.explained_variance_, [517.7969, 67.4964, 12.4054, 0.2372], atol=5.1e-5)
    np.testing.assert_allclose(100 * model.explained_variance_ratio_, [86.5974, 11.2882, 2.0747, 0.0397], atol=5.1e-5)
    scores = model.transform(HALD)
    np.testing.assert_allclose(scores[0], [36.8218, -6.8709, -4.5909, 0.3967], atol=5.1e-5)
    distances = np.sum(scores**2 / model.explained_variance_, axis=1)
    np.testing.assert_allclose(distances[:3], [5.6803, 3.0758, 6.0002], atol=5.1e-5)


@pytest.mark.parametrize(
    ("scale", "deviations", "axis"),
    [
        (False, [2.0562689, 0.4926162, 0.2796596, 0.1543862], [0.36138659, -0.08452251, 0.85667061, 0.35828920]),
        (True, [1.7083611, 0.9560494, 0.3830886, 0.1439265], [0.5210659, -0.2693474, 0.5804131, 0.5648565]),
    ],
)
def test_the_irises_have_the_deviations_that_r_prints(scale, deviations, axis):
    """`prcomp(iris[, 1:4], scale. = ...)` of R."""
    model = PCA(scale=scale).fit(load_iris().data)
    np.testing.assert_allclose(np.sqrt(model.explained_variance_), deviations, atol=5.1e-8)
    np.testing.assert_allclose(model.components_[0], axis, atol=5.1e-8)


# -- new points --------------------------------------------------------------------------------------------------------


def test_the_raw_row_would_be_off_by_exactly_the_mean_row_times_a():
    generator = np.random.default_rng(9)
    X, new = generator.standard_normal((60, 3)), generator.standard_normal((11, 3))
    kernel = Polynomial(2, 0.5, 1.0)
    estimator = KernelPCA(4, kernel=kernel).fit(X)
    m = kernel(X).mean(axis=0)
    raw = kernel(new, X) @ estimator.projection_
    assert np.max(np.abs(raw - estimator.transform(new) - m @ estimator.projection_)) <= 1e-12
    assert np.max(np.abs(estimator.offset_ - m @ estimator.projection_)) <= 1e-13
