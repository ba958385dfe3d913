"""PCA: a plain float64 oracle, properties, and scikit-learn; every route on every library."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn import datasets
from sklearn.base import clone
from sklearn.decomposition import PCA as SklearnPCA
from sklearn.exceptions import NotFittedError

from gpukpca import PCA, Batches, KernelPCA
from gpukpca.exceptions import ConvergenceWarning, GpuKPCAWarning, MemoryBudgetError, PrecisionWarning, RankWarning
from tests import oracle, tolerances
from tests.each import covering, each

SOLVERS = ["covariance_eigh", "dual", "full", "randomized"]
DTYPES = ["float64", "float32"]


def chosen(n, d, singular, seed=0, offset=0.0):
    """Return X = U S Vᵀ + offset, orthonormal columns of U that sum to zero: their exact singular values."""
    rng = np.random.default_rng(seed)
    k = len(singular)
    U = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, k))]))[0][:, 1:]
    V = np.linalg.qr(rng.standard_normal((d, k)))[0]
    return (U * singular) @ V.T + offset


def expected(X, scale=None):
    """Variances, components as rows, and the centered data, in float64, by an SVD."""
    X = np.asarray(X, dtype=np.float64)
    Z = X - X.mean(axis=0)
    Z = Z if scale is None else Z / scale
    _, s, Vt = np.linalg.svd(Z, full_matrices=False)
    return s**2 / (len(X) - 1), Vt, Z


def subspace_error(A, B):
    """The sine of the largest angle between the row spaces."""
    return float(np.linalg.norm(A - (A @ B.T) @ B, 2))


GEOMETRIC = 10.0 * 0.7 ** np.arange(12)
CLUSTERED = np.array([5.0, 5.0, 5.0, 2.0, 1.0, 1.0, 0.5, 0.2, 0.2, 0.1, 0.05, 0.01])


# -- exact problems ----------------------------------------------------------------------------------------------------


@each("solver", [*SOLVERS, "auto"])
@each("shape", [(60, 20), (20, 60)])
@each("dtype", DTYPES)
def test_every_route_finds_the_oracles_axes(xp, solver, shape, dtype):
    X = chosen(*shape, GEOMETRIC, offset=3.0).astype(dtype)
    variances, Vt, Z = expected(X)
    model = PCA(4, svd_solver=solver, random_state=0).fit(xp.array(X))
    assert xp.owns(model.components_)
    assert model.components_.dtype == xp.dtype(dtype)
    V = xp.host(model.components_).astype(np.float64)
    eps = tolerances.eps(dtype)
    found = xp.host(model.explained_variance_)
    np.testing.assert_allclose(found, variances[:4], rtol=60 * eps, atol=60 * eps * variances[0])
    np.testing.assert_allclose(V @ V.T, np.eye(4), atol=tolerances.orthogonality(dtype, xp.name))
    assert subspace_error(V, Vt[:4]) < (300 * eps if solver != "randomized" else 3e-4 if dtype == "float32" else 1e-7)
    np.testing.assert_allclose(
        xp.host(model.explained_variance_ratio_), variances[:4] / variances.sum(), rtol=1e3 * eps
    )
    np.testing.assert_allclose(model.total_variance_, variances.sum(), rtol=100 * eps)
    np.testing.assert_allclose(xp.host(model.singular_values_), np.sqrt(variances[:4] * (len(X) - 1)), rtol=1e3 * eps)
    left = variances[4:].sum() / (min(shape) - 4)
    np.testing.assert_allclose(model.noise_variance_, left, rtol=1e-3 if dtype == "float32" else 1e-9)
    C = Z.T @ Z / (len(X) - 1)
    true = np.linalg.norm(C @ V.T - V.T * xp.host(model.explained_variance_), axis=0)
    reported = xp.host(model.residual_norms_)
    assert np.all(true <= 10 * reported + 200 * eps * variances[0])
    assert np.all(reported <= (1e-4 if dtype == "float32" else 1e-7) * variances[0])
    assert model.converged_
    modulus = np.argmax(np.abs(V), axis=1)
    assert np.all(V[np.arange(4), modulus] > 0)


@each("solver", [*SOLVERS, "auto"])
@each("shape", [(60, 20), (20, 60)])
def test_transform_inverse_and_fit_transform_belong_together(xp, solver, shape):
    X = chosen(*shape, GEOMETRIC[:8], offset=-2.0)
    model = PCA(8, svd_solver=solver, random_state=1, tol=1e-12)
    T = model.fit_transform(xp.array(X))
    assert xp.owns(T)
    np.testing.assert_allclose(xp.host(T), xp.host(model.transform(xp.array(X))), atol=1e-8)
    np.testing.assert_allclose(xp.host(model.inverse_transform(T)), X, atol=1e-8)
    white = clone(model).set_params(whiten=True)
    W = xp.host(white.fit_transform(xp.array(X)))
    np.testing.assert_allclose(W.T @ W / (len(X) - 1), np.eye(8), atol=1e-7)
    np.testing.assert_allclose(xp.host(white.transform(xp.array(X))), W, atol=1e-7)
    np.testing.assert_allclose(xp.host(white.inverse_transform(xp.array(W))), X, atol=1e-8)


@each("singular", [GEOMETRIC, CLUSTERED])
@each("shape", [(50, 14), (14, 50)])
@each("offset", [0.0, 1e4, 1e8])
def test_linear_kernel_pca_and_all_routes_agree(singular, shape, offset):
    X = chosen(*shape, singular, offset=offset)
    s = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[: len(singular)]
    results = {solver: PCA(6, svd_solver=solver, random_state=0, tol=1e-13).fit(X) for solver in SOLVERS}
    results["kernel"] = KernelPCA(6, kernel="linear", eigen_solver="dense").fit(X)
    for model in results.values():
        np.testing.assert_allclose(model.explained_variance_ * (len(X) - 1), s[:6] ** 2, rtol=1e-12)
    if singular is GEOMETRIC:
        reference = results["full"].transform(X)
        for model in results.values():
            np.testing.assert_allclose(
                oracle.up_to_sign(model.transform(X), reference), reference, atol=1e-8 + 1e-15 * offset
            )


@each("solver", [*SOLVERS, "auto"])
@each("shape", [(80, 10), (10, 80)])
def test_tiny_singular_values_keep_their_digits(solver, shape):
    """PROBLEMS: the plain covariance route has a relative error of 1 at 1e-9."""
    singular = np.array([1.0, 1e-2, 1e-4, 1e-5, 1e-7, 1e-9])
    model = PCA(6, svd_solver=solver).fit(chosen(*shape, singular))
    error = np.abs(model.singular_values_ / singular - 1.0)
    assert np.all(error <= 120 * tolerances.eps("float64") / singular)


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.RankWarning")
def test_variances_that_an_iteration_cannot_resolve_are_named():
    X = chosen(1200, 300, 10.0 ** -np.linspace(0.0, 12.0, 30)).astype(np.float32)
    with pytest.warns(PrecisionWarning, match="some components are uncertain") as caught:
        model = PCA(15, svd_solver="randomized", random_state=0).fit(X)
    variances, resolved = model.explained_variance_, model.residual_norms_ <= 1e-3 * model.explained_variance_
    (warning,) = (seen.message for seen in caught if seen.category is PrecisionWarning)
    assert warning.values["components"] == (np.flatnonzero(~resolved & (variances > 0)) + 1).tolist()
    error = np.abs(np.sqrt(variances) - np.sqrt(expected(X)[0][:15]))
    assert np.max(error) <= tolerances.ROOM * 10.0 * tolerances.eps("float32") * np.sqrt(expected(X)[0][0])


@pytest.mark.parametrize("solver", SOLVERS)
def test_float32_with_a_large_offset(solver):
    X = (chosen(3000, 10, 100.0 * 0.5 ** np.arange(8), offset=0.0) + 1e4).astype(np.float32)
    variances, _, _ = expected(X)
    model = PCA(3, svd_solver=solver, random_state=0).fit(X)
    np.testing.assert_allclose(model.explained_variance_, variances[:3], rtol=2e-5)


def test_where_the_rows_that_the_shift_is_made_of_mislead():
    """All of them far from the others: the sums are made again about the mean that was found."""
    X = np.random.default_rng(0).standard_normal((50_000, 2)).astype(np.float32)
    X[np.linspace(0, 49_999, 1000).astype(int)] += 1e6
    variances, _, _ = expected(X)
    for solver in ("covariance_eigh", "randomized"):
        model = PCA(1, svd_solver=solver, random_state=0, tol=1e-4).fit(X)
        np.testing.assert_allclose(model.explained_variance_, variances[:1], rtol=2e-5)
        np.testing.assert_allclose(model.total_variance_, variances.sum(), rtol=2e-5)


# -- scikit-learn ------------------------------------------------------------------------------------------------------

REAL = {name: getattr(datasets, f"load_{name}")().data for name in ("iris", "wine", "breast_cancer", "digits")}
REAL["digits"] = REAL["digits"][::5]


@each(
    "name, n_components, solver",
    covering(REAL, [None, 0, 1, 3, 0.5, 0.95, "mle"], ["auto", "full", "covariance_eigh", "dual"]),
)
def test_same_as_scikit_learn(name, n_components, solver):
    X = REAL[name]
    theirs = SklearnPCA(n_components, svd_solver="full").fit(X)
    ours = PCA(n_components, svd_solver=solver).fit(X)
    assert ours.n_components_ == theirs.n_components_
    size = np.sum(theirs.explained_variance_) or 1.0
    for attribute in ("explained_variance_", "explained_variance_ratio_", "noise_variance_", "mean_"):
        mine, other = getattr(ours, attribute), getattr(theirs, attribute)
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-13 * size, err_msg=attribute)
    good = theirs.explained_variance_ > 1e-9 * size
    np.testing.assert_allclose(ours.components_[good], theirs.components_[good], atol=1e-8)
    np.testing.assert_allclose(ours.transform(X)[:, good], theirs.transform(X)[:, good], atol=1e-10 * np.abs(X).max())
    np.testing.assert_allclose(ours.get_covariance(), theirs.get_covariance(), atol=1e-12 * np.abs(X).max() ** 2)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("n_components", [1, 3])
def test_the_gaussian_model_is_scikit_learns(name, n_components):
    X = REAL[name]
    theirs, ours = (cls(n_components).fit(X) for cls in (SklearnPCA, PCA))
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-8)
    np.testing.assert_allclose(ours.score(X), theirs.score(X), rtol=1e-11)
    P, other = ours.get_precision(), theirs.get_precision()
    np.testing.assert_allclose(P, other, atol=1e-8 * np.abs(other).max())
    np.testing.assert_allclose(P @ ours.get_covariance(), np.eye(X.shape[1]), atol=1e-6)


@pytest.mark.parametrize("name", REAL)
def test_whitening_is_scikit_learns(name):
    X = REAL[name]
    theirs, ours, plain = SklearnPCA(3, whiten=True).fit(X), PCA(3, whiten=True).fit(X), PCA(3).fit(X)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-8)
    back = ours.inverse_transform(ours.transform(X))
    np.testing.assert_allclose(back, theirs.inverse_transform(theirs.transform(X)), atol=1e-9 * np.abs(X).max())
    # scikit-learn's model of whitened components has the square of every variance; the model of the data has not.
    np.testing.assert_array_equal(ours.get_covariance(), plain.get_covariance())
    np.testing.assert_array_equal(ours.score_samples(X), plain.score_samples(X))


def test_a_singular_model_is_finite_and_far_rows_are_unlikely():
    X = chosen(10, 30, GEOMETRIC[:9])
    model = PCA().fit(X)
    near, far = model.score_samples(X), model.score_samples(X + np.eye(10, 30))
    assert np.all(np.isfinite(near))
    assert far.max() < near.min() - 1e6


def test_defaults_parameters_and_names_are_scikit_learns():
    ours, theirs = PCA().get_params(), SklearnPCA().get_params()
    assert {name: ours[name] for name in theirs} == theirs
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(REAL["iris"], columns=list("abcd"))
    model = PCA(2).set_output(transform="pandas").fit(frame)
    assert list(model.transform(frame).columns) == ["pca0", "pca1"] == list(model.get_feature_names_out())
    assert list(model.feature_names_in_) == list("abcd")
    assert (model.n_samples_, model.n_features_in_) == (150, 4)


# -- sparse rows, files, memory ----------------------------------------------------------------------------------------


@each("solver", ["auto", "covariance_eigh", "dual", "randomized", "arpack"])
@each("shape", [(120, 40), (40, 120)])
@each("scale", [False, True])
def test_sparse_rows(solver, shape, scale):
    S = scipy.sparse.random_array(shape, density=0.2, format="csr", rng=np.random.default_rng(3))
    X = S.toarray()
    dense = PCA(3, svd_solver="full", scale=scale).fit(X)
    model = PCA(3, svd_solver=solver, random_state=0, tol=1e-12, scale=scale)
    T = model.fit_transform(S)
    np.testing.assert_allclose(model.explained_variance_, dense.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(model.components_, dense.components_, atol=1e-6)
    np.testing.assert_allclose(T, dense.transform(X), atol=1e-6)
    np.testing.assert_allclose(model.transform(S), dense.transform(X), atol=1e-6)
    np.testing.assert_allclose(model.score(S), dense.score(X), rtol=1e-7)
    np.testing.assert_allclose(model.noise_variance_, dense.noise_variance_, rtol=1e-9)


def test_sparse_float32_and_entries_given_twice():
    S = scipy.sparse.random_array((50, 12), density=0.3, format="coo", rng=np.random.default_rng(5), dtype=np.float32)
    rows, columns = np.concatenate([S.row, S.row]), np.concatenate([S.col, S.col])
    twice = scipy.sparse.csr_array((np.concatenate([S.data, S.data]), (rows, columns)), shape=S.shape)
    twice.sum_duplicates()
    model = PCA(2).fit(twice)
    assert model.components_.dtype == np.float32
    variances, _, _ = expected(2.0 * S.toarray())
    np.testing.assert_allclose(model.explained_variance_, variances[:2], rtol=1e-5)


def peak_of(function):
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("shape", "most"), [((100, 60_000), 0.5), ((40_000, 100), 0.4), ((1200, 2000), 3.0)])
def test_fits_in_less_than_was_predicted_and_less_than_the_data(shape, most):
    X = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    model = PCA(3, n_jobs=1)
    predicted = model.plan(X).predicted_bytes
    peak = peak_of(lambda: model.fit(X))
    assert peak <= predicted + 2**20
    assert peak <= most * X.nbytes + 2**22


def test_a_gram_matrix_of_shared_tiles():
    X = chosen(2100, 2500, 50.0 * 0.8 ** np.arange(10), offset=7.0)
    model = PCA(4, svd_solver="dual").fit(X)
    assert model.solver_.startswith("dual")
    np.testing.assert_allclose(model.singular_values_, 50.0 * 0.8 ** np.arange(4), rtol=1e-11)


def test_too_little_memory_is_refused_before_anything_is_allocated():
    X = np.zeros((300, 2000))
    with pytest.raises(MemoryBudgetError, match=r"needs .* allowed"):
        PCA(3, memory_limit="1KiB").fit(X)
    with pytest.raises(MemoryBudgetError, match=r"needs .*panels"):
        PCA(3, memory_limit="1MiB", svd_solver="dual").fit(X)
    with pytest.raises(MemoryBudgetError, match=r"needs .*Try a larger memory_limit"):
        PCA(50, memory_limit="1KiB", svd_solver="randomized").fit(X)


def test_where_memory_is_short_auto_iterates_and_says_so():
    X = chosen(600, 2000, GEOMETRIC)
    model = PCA(2, random_state=0)
    needed = model.plan(X).predicted_bytes
    less = model.set_params(memory_limit=2 * needed // 3).fit(X)
    assert less.plan_.method == "randomized"
    assert "would need" in str(less.plan_)
    np.testing.assert_allclose(less.singular_values_, GEOMETRIC[:2], rtol=1e-9)


# -- scale -------------------------------------------------------------------------------------------------------------


@each("solver", SOLVERS)
@each("shape", [(70, 9), (12, 40)])
def test_scaled_features_give_the_correlation_matrix(xp, solver, shape):
    rng = np.random.default_rng(1)
    X = rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 2, shape[1]) + 5.0
    X[:, 2] = 0.1  # constant
    deviations = np.where(np.arange(shape[1]) == 2, 1.0, X.std(axis=0, ddof=1))
    variances, _, Z = expected(X, deviations)
    model = PCA(2, scale=True, svd_solver=solver, random_state=0, tol=1e-13).fit(xp.array(X))
    np.testing.assert_allclose(xp.host(model.scale_), deviations, rtol=1e-12)
    np.testing.assert_allclose(xp.host(model.explained_variance_), variances[:2], rtol=1e-10)
    np.testing.assert_allclose(model.total_variance_, shape[1] - 1, rtol=1e-10)
    T = xp.host(model.transform(xp.array(X)))
    np.testing.assert_allclose(T, Z @ xp.host(model.components_).T, atol=1e-10)
    back = PCA(scale=True).fit(X)
    np.testing.assert_allclose(back.inverse_transform(back.transform(X)), X, atol=1e-9 * np.abs(X).max())


def test_any_diagonal_metric():
    X = REAL["wine"]
    s = np.linspace(1.0, 50.0, X.shape[1])
    ours, theirs = PCA(3, scale=s).fit(X), SklearnPCA(3).fit(X / s)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X / s), atol=1e-9)
    np.testing.assert_allclose(ours.get_covariance(), theirs.get_covariance() * s[:, None] * s, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(ours.score(X), theirs.score(X / s) - np.log(s).sum(), rtol=1e-10)
    assert PCA().fit(X).scale_ is None


# -- what is wrong -----------------------------------------------------------------------------------------------------

GOOD = np.arange(24.0).reshape(8, 3) ** 1.5
BAD = {
    "too many": (
        {"n_components": 4},
        GOOD,
        r"n_components=4 must be between 0 and min\(n_samples, n_features\)=3 with",
    ),
    "too many of the wide": ({"n_components": 9}, GOOD.T, r"min\(n_samples, n_features\)=3"),
    "none of an iteration": ({"n_components": 0, "svd_solver": "randomized"}, GOOD, "between 1 and"),
    "mle wide": ({"n_components": "mle"}, GOOD.T, "only supported if n_samples >= n_features"),
    "mle iterated": (
        {"n_components": "mle", "svd_solver": "randomized"},
        GOOD,
        "cannot be a string with svd_solver='randomized', which does not compute all eigenvalues; give",
    ),
    "solver": ({"svd_solver": "ful"}, GOOD, "Did you mean 'full'"),
    "NaN": ({}, np.where(GOOD > 100, np.nan, GOOD), "NaN"),
    "infinity": ({}, np.where(GOOD > 100, np.inf, GOOD), "infinity"),
    "1-D": ({}, GOOD[:, 0], "2D"),
    "scale length": ({"scale": np.ones(2)}, GOOD, "3 features"),
    "scale zero": ({"scale": [1.0, 0.0, 1.0]}, GOOD, "positive"),
    "sparse and full": ({"svd_solver": "full"}, scipy.sparse.csr_array(GOOD), "sparse"),
}


@each("case", BAD)
def test_bad_input_is_a_value_error_and_changes_nothing(case):
    parameters, X, words = BAD[case]
    model = PCA(2).fit(GOOD)
    before = dict(vars(model))
    model.set_params(**parameters)
    with pytest.raises(ValueError, match=words):
        model.fit(X)
    after = dict(vars(model))
    assert {name: after[name] for name in before if name.endswith("_")} == {
        name: before[name] for name in before if name.endswith("_")
    }
    assert set(before) == set(after)


def test_new_data_are_checked():
    with pytest.raises(NotFittedError):
        PCA().transform(GOOD)
    model = PCA(2).fit(GOOD)
    with pytest.raises(ValueError, match="3 features"):
        model.transform(GOOD[:, :2])
    with pytest.raises(ValueError, match="NaN"):
        model.transform(np.full((1, 3), np.nan))
    with pytest.raises(ValueError, match="n_components = 2"):
        model.inverse_transform(GOOD)


@each("solver", [*SOLVERS, "auto"])
@each("value", [0.0, 0.1, 1e8])
def test_constant_data(solver, value):
    with pytest.warns(RankWarning):
        model = PCA(2, svd_solver=solver, random_state=0).fit(np.full((7, 5), value))
    for found in (model.explained_variance_, model.explained_variance_ratio_, model.singular_values_):
        np.testing.assert_array_equal(found, 0.0)
    assert (model.total_variance_, model.noise_variance_) == (0.0, 0.0)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(2), atol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        white = model.set_params(whiten=True).transform(np.full((2, 5), value))
    np.testing.assert_array_equal(white, 0.0)


@each("dtype, value", [(np.float32, 1.6e9), (np.float64, 1e16)])
@each("columns", [1, 40])
@each("solver", ["auto", "covariance_eigh", "dual"])
def test_large_constant_columns_hide_no_variance(solver, columns, dtype, value):
    X = np.random.default_rng(0).standard_normal((60, 3))
    expected = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    model = PCA(3, svd_solver=solver).fit(np.c_[X, np.full((60, columns), value)].astype(dtype))
    np.testing.assert_allclose(model.explained_variance_, expected, rtol=1e-5)
    np.testing.assert_allclose(model.total_variance_, np.sum(expected), rtol=1e-5)


def test_one_sample_has_no_variance():
    with pytest.warns(RankWarning):
        model = PCA().fit(GOOD[:1])
    assert model.n_components_ == 1
    np.testing.assert_array_equal(model.explained_variance_ratio_, 0.0)


def test_fewer_directions_than_components():
    X = chosen(30, 10, GEOMETRIC[:3])
    with pytest.warns(RankWarning, match="fewer components carry variance") as caught:
        model = PCA(5, whiten=True).fit(X)
    assert caught[0].message.values == {"nonzero": 3, "n_components": 5}
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(5), atol=1e-12)
    np.testing.assert_array_equal(model.transform(X)[:, 3:], 0.0)


def test_too_few_passes_are_reported():
    X = chosen(300, 200, 10.0 * 0.97 ** np.arange(150))
    with pytest.warns(ConvergenceWarning, match="residual"):
        model = PCA(5, svd_solver="randomized", iterated_power=2, random_state=0).fit(X)
    assert not model.converged_


def test_overflow_is_reported():
    X = np.array([[1e200, 1.0], [-1e200, 2.0], [5e199, 3.0]])
    for solver in SOLVERS:
        with pytest.raises(ValueError, match="overflow"):
            PCA(1, svd_solver=solver).fit(X)


# -- plan, repetition, devices -----------------------------------------------------------------------------------------


def test_the_plan_says_what_is_done_and_why():
    plans = {shape: PCA(2).plan(np.zeros(shape)) for shape in ((300, 20), (6000, 20), (20, 600))}
    assert [plan.method for plan in plans.values()] == ["full", "covariance_eigh", "dual"]
    text = str(plans[20, 600])
    for words in ("20 x 600", "dual", "20 samples are fewer than 600 features", "predicted"):
        assert words in text
    assert not hasattr(PCA(2), "plan_")


@pytest.mark.usefixtures("threads_for_little")
@each("dtype", DTYPES)
@each("solver", SOLVERS)
@each("jobs", [1, 3])
def test_threads_change_nothing_but_rounding(dtype, solver, jobs):
    X = chosen(300, 30, 10 * GEOMETRIC, offset=2.0).astype(dtype)
    model = PCA(3, svd_solver=solver, random_state=0, n_jobs=jobs).fit(X)
    np.testing.assert_allclose(model.explained_variance_, expected(X)[0][:3], rtol=120 * tolerances.eps(dtype))


def test_passes_are_reported_to_a_listener():
    events = []
    PCA(2, svd_solver="randomized", verbose=events.append, random_state=0).fit(chosen(60, 40, GEOMETRIC))
    assert [event.stage for event in events[:2]] == ["plan", "pass"]
    assert "block Krylov" in events[0].text


def test_one_column_that_holds_the_variance_is_reported(tmp_path):
    """Whatever holds the rows and whatever solves: the share of a column is that of its variance."""
    X = np.random.default_rng(0).standard_normal((80, 5)) + 3.0
    X[:, 2] *= 100.0
    np.save(tmp_path / "X.npy", X)
    wide = np.hstack([X, np.random.default_rng(1).standard_normal((80, 200)) * 0.1])
    counts = np.arange(80) % 3
    for given, settings, weights in (
        *((X, {"svd_solver": solver}, None) for solver in ("auto", "full", "dual", "covariance_eigh")),
        (X, {"n_components": 1, "svd_solver": "randomized", "random_state": 0}, None),
        (X.astype(np.float32), {}, None),
        (X, {}, counts),
        (wide, {"n_components": 2}, None),
        (np.hstack([X, np.ones((80, 1))]), {"n_components": 2}, None),
        (scipy.sparse.csr_array(X), {}, None),
        (Batches([X[:30], X[30:]]), {}, None),
        (np.load(tmp_path / "X.npy", mmap_mode="r"), {}, None),
    ):
        with pytest.warns(GpuKPCAWarning, match=r"one column holds more than 0\.999 .* scale=True") as caught:
            PCA(**settings).fit(given, sample_weight=weights)
        assert [warning.message.values["column"] for warning in caught] == [2]
        rows = X if weights is None else np.repeat(X, weights, axis=0)
        share = np.var(rows[:, 2]) / np.sum(np.var(wide if given is wide else rows, axis=0))
        assert caught[0].message.values["share"] == pytest.approx(share, rel=1e-5)
    less = X.copy()
    less[:, 2] *= 0.5  # 0.998
    direction = np.random.default_rng(2).standard_normal((80, 1)) * [[30.0, 40.0, 10.0]]
    silent = (
        (X, {"scale": True}),
        (X, {"scale": [1.0, 1.0, 100.0, 1.0, 1.0]}),
        (X, {"center": False}),
        (less, {}),
        (X[:, 2:3], {}),
        (direction + 0.01 * X[:, :3], {"n_components": 2}),  # one direction, and no one column
        (np.hstack([X[:, 2:3], np.ones((80, 2))]), {"n_components": 1}),
    )
    for given, settings in silent:
        PCA(**settings).fit(given)
