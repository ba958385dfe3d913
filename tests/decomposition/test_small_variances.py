"""Components beside much larger ones: one feature in large units must not hide the others."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import scipy.sparse

from gpukpca import PCA, Batches, KernelPCA, Nystrom, ProbabilisticPCA
from gpukpca.eigen import BlockKrylov, top_eigh
from gpukpca.exceptions import ConvergenceWarning, InvalidParameterError, PrecisionWarning
from gpukpca.gram import DenseGram
from tests import oracle, tolerances

pytestmark = pytest.mark.filterwarnings("ignore:one column holds more than:gpukpca.exceptions.GpuKPCAWarning")

SOLVERS = ["auto", "covariance_eigh", "dual", "full", "randomized", "arpack"]


def with_large_column(n: int, d: int, size: float, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Return normal rows with one column in large units."""
    X = np.random.default_rng(seed).standard_normal((n, d))
    X[:, d // 3] *= size
    return X.astype(dtype)


def with_decay(n: int, d: int, values: np.ndarray, dtype: str, seed: int = 0) -> np.ndarray:
    """Return rows with these singular values, in random directions."""
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, len(values)))]))[0][:, 1:]
    return ((U * values) @ np.linalg.qr(rng.standard_normal((d, len(values))))[0].T).astype(dtype)


def errors(model, variances: np.ndarray) -> np.ndarray:
    """Return the errors of the standard deviations as shares of the largest one."""
    found = np.asarray(model.explained_variance_, dtype=np.longdouble)
    return np.abs(np.sqrt(found) - np.sqrt(variances[: len(found)])).astype(float) / float(np.sqrt(variances[0]))


# -- PCA ---------------------------------------------------------------------------------------------------------------


def test_counts_beside_a_time_stamp_an_income_and_a_number():
    rng = np.random.default_rng(0)
    counts = rng.binomial(2, 0.3, (150, 60))
    for large in (
        1.7e9 + 3e7 * rng.random(150),
        100.0 * np.exp(rng.normal(13.0, 1.0, 150)),
        rng.integers(10**9, 10**10, 150),
    ):
        X = np.column_stack([counts, large])
        variances = oracle.variances(X)
        Z = X.astype(np.longdouble) - X.astype(np.longdouble).mean(axis=0)
        for solver in SOLVERS:
            model = PCA(4, svd_solver=solver, random_state=0).fit(X)
            # Those of LAPACK's SVD have eps of the largest.
            assert np.max(errors(model, variances)) <= tolerances.ROOM * 5.0 * tolerances.eps("float64"), solver
            assert np.all(model.residual_norms_ <= 1e-3 * model.explained_variance_), solver
            np.testing.assert_allclose(model.explained_variance_, variances[:4].astype(float), rtol=1e-5)
            # The scores have these variances, and no correlation.
            scores = Z @ model.components_.T.astype(np.longdouble)
            size = np.sqrt(model.explained_variance_)
            covariance = (scores.T @ scores).astype(float) / 149.0 / size[:, None] / size
            np.testing.assert_allclose(covariance, np.eye(4), atol=1e-4)


@pytest.mark.parametrize("shape", [(150, 40), (40, 150)], ids=["tall", "wide"])
def test_no_size_of_a_column_hides_the_others(xp, dtype, shape):
    most = 1e8 if dtype == "float64" else 1e5
    for size in (1e2, most**0.75, most):
        X = with_large_column(*shape, size, dtype)
        variances = oracle.variances(X)
        for solver in ("covariance_eigh", "dual", "randomized"):
            model = PCA(4, svd_solver=solver, random_state=0).fit(xp.array(X))
            found = xp.host(model.explained_variance_).astype(float)
            rtol = 1e-7 if dtype == "float64" else 1e-4
            np.testing.assert_allclose(found, variances[:4].astype(float), rtol=rtol)
            V = xp.host(model.components_).astype(float)
            np.testing.assert_allclose(V @ V.T, np.eye(4), atol=tolerances.orthogonality(dtype, xp.name))


def test_sparse_rows_streams_and_whitened_scores():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 50)) * (rng.random((300, 50)) < 0.2)
    for dtype, size in (("float32", 50.0), ("float64", 5e4), ("float64", 1e8)):
        X[:, 7] = size * rng.standard_normal(300)
        rows = scipy.sparse.csr_array(X.astype(dtype))
        variances = oracle.variances(rows.toarray())
        for solver in ("randomized", "arpack", "covariance_eigh"):
            model = PCA(5, svd_solver=solver, random_state=0).fit(rows)
            np.testing.assert_allclose(
                model.explained_variance_, variances[:5].astype(float), rtol=1e-4 if dtype == "float32" else 1e-6
            )
        streamed = PCA(5, whiten=True).fit(Batches(np.array_split(rows.toarray(), 5)))
        np.testing.assert_allclose(streamed.explained_variance_, variances[:5].astype(float), rtol=1e-5)
        np.testing.assert_allclose(streamed.transform(rows.toarray()).std(axis=0, ddof=1), 1.0, rtol=1e-3)


def test_many_components_of_a_long_decay_are_right_to_rounding():
    for dtype, last in (("float64", -10), ("float32", -5)):
        for shape in ((200, 60), (60, 200)):
            X = with_decay(*shape, np.logspace(0, last, 50), dtype)
            variances = oracle.variances(X)
            for solver in SOLVERS:
                for p in (10, 45):
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", PrecisionWarning)
                        model = PCA(p, svd_solver=solver, random_state=0).fit(X)
                    # 10 eps were seen.
                    assert np.max(errors(model, variances)) <= tolerances.ROOM * 10.0 * tolerances.eps(dtype), solver


def test_passes_for_small_values_do_not_stop_beside_the_large_one():
    """The dense solver forms no matrix of the features here, and the last component is 1e-3 of the first."""
    X = with_large_column(140, 100, 1e6)
    variances = oracle.variances(X)[:4]
    model = PCA(4, svd_solver="randomized", random_state=0).fit(X)
    np.testing.assert_allclose(model.explained_variance_, variances.astype(float), rtol=1e-9)
    assert model.converged_


def test_probabilistic_pca_has_the_same_components():
    X = with_large_column(200, 30, 1e7)
    variances = oracle.variances(X)
    model = ProbabilisticPCA(3).fit(X)
    noise = float(np.mean(variances[3:]))
    np.testing.assert_allclose(model.noise_variance_, noise, rtol=1e-6)
    loadings = np.linalg.svd(np.asarray(model.loadings_), compute_uv=False)
    np.testing.assert_allclose(loadings[:3] ** 2 + noise, variances[:3].astype(float), rtol=1e-6)


def test_float32_svd_keeps_or_names_what_it_resolves():
    for size in (1e4, 1e6, 1e8):
        for n_components in (5, None):
            X = with_large_column(120, 30, size, "float32")
            variances = oracle.variances(X)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = PCA(n_components, svd_solver="full").fit(X)
            off = (
                np.abs(model.explained_variance_ - variances[: model.n_components_]) > 1e-2 * model.explained_variance_
            )
            named = any(warning.category is PrecisionWarning for warning in caught)
            assert named or not off.any()


def test_a_share_and_all_components_count_beside_a_large_column():
    X = with_large_column(100, 20, 1e6)
    variances = oracle.variances(X)
    assert PCA(0.9).fit(X).n_components_ == 1
    np.testing.assert_allclose(PCA().fit(X).explained_variance_, variances.astype(float), rtol=1e-8)
    np.testing.assert_allclose(PCA().fit(X).explained_variance_ratio_.sum(), 1.0, rtol=1e-12)


def test_components_without_variance_stay_zero_beside_a_large_column():
    X = with_large_column(80, 12, 1e7)
    X[:, -1], X[:, -2] = X[:, 0] + X[:, 1], 3.0
    for solver in SOLVERS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = PCA(12 if solver != "arpack" else 11, svd_solver=solver, random_state=0).fit(X)
        assert np.sum(model.explained_variance_ > 0) == 10, solver
        np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(model.n_components_), atol=1e-12)


# -- kernel PCA --------------------------------------------------------------------------------------------------------


def test_kernel_pca_resolves_or_names_components_below_a_large_one():
    n = 400
    basis = with_decay(n, n, np.ones(40), "float64", seed=2)
    basis = np.linalg.qr(basis)[0][:, :40]
    for first in (1e3, 1e9):
        values = np.concatenate([[first, 1.0, 0.9, 0.8], np.linspace(0.5, 0.1, 36)])
        K = (basis * values) @ basis.T
        K = oracle.centered((K + K.T) / 2.0)
        truth = np.linalg.eigvalsh(K)[::-1]
        for solver in ("randomized", "arpack", "dense"):
            model = KernelPCA(4, kernel="precomputed", eigen_solver=solver, random_state=0).fit(K)
            np.testing.assert_allclose(model.eigenvalues_, truth[:4], rtol=1e-5)
            assert np.all(model.residual_norms_ <= 1e-3 * model.eigenvalues_)
    X = with_large_column(70, 160, 1e4, seed=3)
    truth = 69.0 * oracle.variances(X)[:5].astype(float)
    for solver in ("randomized", "arpack"):
        model = KernelPCA(5, eigen_solver=solver, random_state=0).fit(X)
        np.testing.assert_allclose(model.eigenvalues_, truth, rtol=1e-5)
    far = with_large_column(70, 160, 1e7, seed=3)
    for solver in ("randomized", "dense"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = KernelPCA(5, eigen_solver=solver, random_state=0).fit(far)
        assert any("uncertain" in str(warning.message) for warning in caught)
        assert np.all(model.residual_norms_[1:] > 1e-3 * model.eigenvalues_[1:])


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.IndefiniteKernelWarning")
def test_a_sigmoid_that_is_almost_linear():
    X = np.random.default_rng(4).standard_normal((450, 8))
    K = oracle.centered(np.tanh(1e-6 * X @ X.T + 1.0))
    truth = np.linalg.eigvalsh(K)[::-1]
    model = KernelPCA(5, kernel="sigmoid", gamma=1e-6, coef0=1.0, eigen_solver="randomized", random_state=0).fit(X)
    np.testing.assert_allclose(model.eigenvalues_, truth[:5], rtol=1e-6)


def test_components_of_a_large_tolerance_are_named_by_that_tolerance():
    K = np.diag(np.concatenate([[1e4], np.linspace(1.0, 0.1, 499)]))
    found = top_eigh(DenseGram(K), 3, BlockKrylov(tol=1e-2), rng=0)
    assert np.all(found.residual_norms <= 1.001e-2 * found.eigenvalues)


# -- arpack ------------------------------------------------------------------------------------------------------------


def test_arpack_goes_as_far_as_rounding_allows():
    X = np.random.default_rng(5).standard_normal((500, 100))
    exact = PCA(1, svd_solver="full").fit(X).components_
    found = PCA(1, svd_solver="arpack", random_state=0).fit(X).components_
    np.testing.assert_allclose(np.abs(found), np.abs(exact), rtol=1e-7)
    kernel = {"kernel": "rbf", "gamma": 0.01, "n_components": 3}
    tight = KernelPCA(**kernel, eigen_solver="arpack", random_state=0).fit(X)
    assert np.max(tight.residual_norms_) <= 1e-12 * tight.eigenvalues_[0]
    loose = KernelPCA(**kernel, eigen_solver="arpack", tol=1e-3, random_state=0).fit(X)
    assert loose.plan_.solver.tol == 1e-3
    with pytest.raises(ValueError, match="n_components='mle' cannot be a string with svd_solver='arpack'"):
        PCA("mle", svd_solver="arpack").fit(X)


# -- no false alarm ----------------------------------------------------------------------------------------------------


def test_ordinary_data_warn_of_nothing():
    rng = np.random.default_rng(6)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrecisionWarning)
        warnings.simplefilter("error", ConvergenceWarning)
        for dtype in ("float64", "float32"):
            for shape in ((300, 20), (40, 200), (450, 30)):
                X = (rng.standard_normal(shape) * 0.9 ** np.arange(shape[1]) + rng.normal(0, 3, shape[1])).astype(dtype)
                for solver in ("auto", "full", "randomized"):
                    PCA(5, svd_solver=solver, random_state=0).fit(X)
                PCA().fit(X)
                PCA(0.95).fit(X)
                X = X - X.mean(axis=0)
                for kernel in ("linear", "rbf", "poly", "cosine", "laplacian"):
                    for solver in ("auto", "randomized"):
                        KernelPCA(5, kernel=kernel, eigen_solver=solver, random_state=0).fit(X)
                    KernelPCA(kernel=kernel).fit(X)


def test_numbers_beyond_a_type_say_which_way_and_what_brings_them_back():
    """Overflow or underflow, and a factor that can be typed: one beyond the type is given as two."""
    X = np.random.default_rng(0).standard_normal((30, 3))
    for dtype, sizes in (
        ("float64", (1e160, 1e307, 1e-160, 1e-308, 1e-310, 1e-320)),
        ("float32", (1e25, 1e-30, 1e-42)),
    ):
        for size in sizes:
            rows = (X * size).astype(dtype)
            for model in (KernelPCA(2), KernelPCA(2, eigen_solver=Nystrom(rank=3)), PCA(2), PCA(2, scale=True)):
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", PrecisionWarning)
                        model.fit(rows)
                except InvalidParameterError as error:
                    text = str(error)
                    assert ("overflow" if size > 1 else "underflow") in text, text
                    assert ("pass float64" in text) == (
                        dtype == "float32" and bool(re.search("the kernel (matrix|Linear) overflows", text))
                    )
                    near, factors = rows, re.findall(r"by (2\*\*-?\d+)", text)
                    for factor in factors:
                        near = near * eval(factor)
                    if factors:
                        assert near.dtype == dtype
                        assert 0.05 < np.std(near.astype(np.float64)) < 5.0
                        model.fit(near)
                    else:
                        assert "overflow" in text
                        assert "Scale the features" in text
                else:
                    assert isinstance(model, PCA)
