"""Kernel PCA without an estimator: the same bits as the estimator's attributes, on every library."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
import scipy.sparse

from gpukpca import KernelPCA, Nystrom, kernels
from gpukpca.algorithms import KernelPCASettings, Resources, fit_kernel_pca
from gpukpca.algorithms.kernel_pca.feature_space import AffineProjection
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.decomposition import RidgePreimage
from gpukpca.eigen import Dense
from gpukpca.exceptions import InvalidParameterError, RankWarning
from tests import oracle
from tests.datasets import same_bits
from tests.each import each

SOLVERS = {"dense": "dense", "block Krylov": "randomized", "Nyström": Nystrom(rank=25)}
KERNELS = {"rbf": kernels.RBF(gamma=0.05), "linear": kernels.Linear(), "laplacian": kernels.Laplacian(gamma=0.05)}
ARRAYS = ("eigenvalues", "eigenvectors", "explained_variance", "explained_variance_ratio", "residual_norms")
SCALARS = ("gap", "n_passes", "n_products", "solver", "total_variance")


def rows_of(xp, rng, dtype="float64", n=61, d=9):
    return xp.array((rng.standard_normal((n, d)) @ np.diag(np.linspace(3.0, 0.1, d)) + 7.0).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_function_has_the_bits_of_the_estimator(xp, rng, kernel, solver, dtype):
    X, X_new = rows_of(xp, rng, dtype), rows_of(xp, rng, dtype, n=7)
    settings = KernelPCASettings(solver=SOLVERS[solver])
    fit = fit_kernel_pca(X, KERNELS[kernel], 3, settings=settings, rng=0)
    model = KernelPCA(3, kernel=KERNELS[kernel], eigen_solver=SOLVERS[solver], random_state=0)
    scores = model.fit_transform(X)
    for name in ARRAYS:
        assert same_bits(getattr(fit, name), getattr(model, f"{name}_"), xp), name
    assert same_bits(fit.map.projection, model.projection_, xp)
    assert same_bits(fit.map.offset, model.offset_, xp)
    assert [getattr(fit, name) for name in SCALARS] == [getattr(model, f"{name}_") for name in SCALARS]
    assert same_bits(fit.scores, scores, xp)
    assert same_bits(fit.transform(X_new), model.transform(X_new), xp)


@pytest.mark.parametrize("wanted", [None, 0.8])
def test_the_function_keeps_as_many_components_as_the_estimator(rng, wanted):
    X = rng.standard_normal((40, 6))
    fit, model = fit_kernel_pca(X, kernels.RBF(), wanted), KernelPCA(wanted, kernel="rbf").fit(X)
    np.testing.assert_array_equal(fit.eigenvalues, model.eigenvalues_)
    np.testing.assert_array_equal(fit.explained_variance_ratio, model.explained_variance_ratio_)


def test_the_settings_hold_the_number_of_components_too(rng):
    X = rng.standard_normal((40, 6))
    by_settings = fit_kernel_pca(X, kernels.RBF(), settings=KernelPCASettings(n_components=4))
    assert np.array_equal(by_settings.eigenvalues, fit_kernel_pca(X, kernels.RBF(), 4).eigenvalues)


def test_the_fit_agrees_with_the_oracle(xp, rng):
    X, X_new = rows_of(xp, rng), rows_of(xp, rng, n=5)
    K = oracle.gram(oracle.rbf(0.05), xp.host(X))
    K_new = oracle.gram(oracle.rbf(0.05), xp.host(X_new), xp.host(X))
    fit = fit_kernel_pca(X, kernels.RBF(gamma=0.05), 4)
    np.testing.assert_allclose(xp.host(fit.eigenvalues), oracle.eigenpairs(oracle.centered(K), 4)[0], rtol=1e-10)
    expected = oracle.projected(K_new, K, 4)
    np.testing.assert_allclose(oracle.up_to_sign(xp.host(fit.transform(X_new)), expected), expected, atol=1e-9)


def test_a_kernel_matrix_is_fitted_too(rng):
    X = rng.standard_normal((30, 4))
    K = oracle.gram(oracle.rbf(0.1), X)
    fit = fit_kernel_pca(K, kernels.Precomputed(), 3)
    np.testing.assert_allclose(fit.transform(K[:5]), fit.scores[:5], atol=1e-12)


def test_sparse_rows_are_fitted_too(rng):
    X = scipy.sparse.random_array((60, 20), density=0.3, format="csr", rng=rng)
    fit, model = fit_kernel_pca(X, kernels.Linear(), 3), KernelPCA(3).fit(X)
    np.testing.assert_array_equal(fit.eigenvalues, model.eigenvalues_)
    np.testing.assert_array_equal(fit.transform(X[:4]), model.transform(X[:4]))


def test_a_truncated_fit_is_that_with_fewer_components(xp, rng):
    X = rows_of(xp, rng)
    for kernel in KERNELS.values():
        fit = fit_kernel_pca(X, kernel, 5)
        cut = fit.truncated(2)
        assert same_bits(cut.transform(X), fit.transform(X)[:, :2], xp) or np.allclose(
            xp.host(cut.transform(X)), xp.host(fit.transform(X))[:, :2], atol=1e-12
        )
        assert cut.eigenvalues.shape == (2,)
        assert cut.gap == pytest.approx(float(fit.spectrum.eigenvalues[1] - fit.spectrum.eigenvalues[2]))
        assert fit.truncated(5) is fit
    assert fit.leading(0).gap is None


@pytest.mark.parametrize("keep", [-1, 0, 4, None, True, 1.5, "a"])
def test_only_components_of_the_fit_are_kept(rng, keep):
    fit = fit_kernel_pca(rng.standard_normal((20, 5)), kernels.RBF(), 3)
    with pytest.raises(InvalidParameterError, match=r"keep=.* from 1 to 3"):
        fit.truncated(keep)


@each(
    "name, value, words",
    [
        ("remove_zeros", "no", "True or False"),
        ("copies_data", 3, "True or False"),
        ("tol", 2, r"\[0, 1\)"),
        ("tol", -1, r"\[0, 1\)"),
        ("tol", True, r"\[0, 1\)"),
        ("tol", float("nan"), r"\[0, 1\)"),
        ("preimage", "ridge", "RidgeMethod"),
        ("preimage", RidgePreimage(), "RidgeMethod"),
        ("solver", Dense, "not a solver"),
        ("passes", 1.5, "integer"),
        ("gram", "Tiled", "tiled"),
        ("solver", "densse", "Did you mean 'dense'"),
        ("max_passes", 0, "max_passes must be|integer"),
    ],
)
def test_settings_refuse_wrong_values(name, value, words):
    with pytest.raises(InvalidParameterError, match=f"{name}=.*{words}"):
        KernelPCASettings(**{name: value})


def test_rows_are_copied_unless_the_settings_say_no(rng):
    X = rng.standard_normal((30, 4))
    fit = fit_kernel_pca(X, kernels.RBF(), 2)
    scores = fit.transform(X[:3])
    kept, X[:] = X[:3].copy(), 0.0
    np.testing.assert_array_equal(fit.transform(kept), scores)
    X = rng.standard_normal((30, 4))
    assert fit_kernel_pca(X, kernels.RBF(), 2, settings=KernelPCASettings(copies_data=False)).map.basis is X


def test_the_function_keeps_to_its_resources(rng):
    X = rng.standard_normal((300, 20))
    with pytest.raises(MemoryError, match="allowed or free"):
        fit_kernel_pca(X, kernels.RBF(), 2, resources=Resources.for_data(X, memory_limit="10 kB"))


def test_more_components_than_rows_are_reported(rng):
    with pytest.warns(RankWarning, match="more than the number of samples"):
        fit_kernel_pca(
            rng.standard_normal((5, 3)), kernels.RBF(gamma=1.0), 6, settings=KernelPCASettings(remove_zeros=True)
        )


@each(
    "X, arguments, words",
    [
        (np.ones(3), {}, "Expected 2D array"),
        (np.array([[1.0, np.nan]]), {}, "NaN"),
        (np.ones((0, 3)), {}, "a minimum of 1 is required"),
        (np.ones((3, 2)), {"kernel": kernels.Precomputed()}, "square"),
        (np.eye(3), {"kernel": "rbf"}, "expected a kernel object"),
        (np.eye(3), {"kernel": kernels.RBF}, "expected a kernel object"),
        (np.eye(3), {"n_components": 0}, "n_components=0 is not allowed"),
        (np.eye(3), {"n_components": 1.5}, r"n_components=1\.5 is not allowed"),
        (np.eye(3), {"n_components": "many"}, "n_components='many' is not allowed"),
        (np.eye(3), {"settings": None}, "settings=None"),
        (np.eye(3), {"settings": {}}, "KernelPCASettings"),
        (np.eye(3), {"settings": KernelPCASettings}, "KernelPCASettings"),
        (np.eye(3), {"resources": "cpu"}, "resources="),
        (np.eye(3), {"progress": 3}, "progress=3"),
        (np.eye(3), {"open_checkpoint": "folder"}, "open_checkpoint='folder'"),
        (np.eye(3), {"rng": "a"}, "rng='a'"),
    ],
)
def test_errors_name_what_is_wrong(X, arguments, words):
    with pytest.raises(ValueError, match=words):
        fit_kernel_pca(X, **{"kernel": kernels.RBF(), "n_components": 1} | arguments)


def test_new_points_are_checked(rng):
    fit = fit_kernel_pca(rng.standard_normal((20, 4)), kernels.RBF(), 2)
    with pytest.raises(ValueError, match=r"X_new has 3 feature\(s\), and the fit has 4"):
        fit.transform(np.ones((2, 3)))
    with pytest.raises(ValueError, match="X_new contains NaN"):
        fit.transform(np.full((2, 4), np.nan))


@pytest.mark.parametrize("cls", [KernelPCAFit, AffineProjection])
def test_every_field_states_its_meaning_once(cls):
    for field in dataclasses.fields(cls):
        assert field.metadata["meaning"].endswith("."), field.name
        assert cls.__doc__.count(field.metadata["meaning"]) == 1


def test_the_arrays_have_the_shapes_that_the_fields_state(xp, rng):
    fit = fit_kernel_pca(rows_of(xp, rng), kernels.RBF(gamma=0.05), 3, settings=KernelPCASettings(solver="nystrom"))
    sizes = {"n": 61, "d": 9, "p": 3, "m": len(fit.landmarks), "landmarks": len(fit.landmarks)}
    for part in (fit, fit.map):
        for field in dataclasses.fields(part):
            if shape := field.metadata["shape"]:
                assert tuple(getattr(part, field.name).shape) == tuple(sizes[letter] for letter in shape), field.name


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e12])
def test_linear_scores_of_training_rows_are_those_of_the_fit_whatever_the_mean(xp, rng, offset):
    X = xp.array(rng.standard_normal((60, 5)) * np.arange(1, 6) + offset)
    fit = fit_kernel_pca(X, kernels.Linear(), 3)
    np.testing.assert_allclose(xp.host(fit.transform(X)), xp.host(fit.scores), atol=1e-12)


def test_two_numbers_of_components_are_refused():
    X, settings = np.arange(12.0).reshape(6, 2), KernelPCASettings(n_components=2)
    with pytest.raises(InvalidParameterError, match="n_components=3 is not that of the settings, 2"):
        fit_kernel_pca(X, kernels.RBF(gamma=0.1), 3, settings=settings)
    assert fit_kernel_pca(X, kernels.RBF(gamma=0.1), 2, settings=settings).eigenvalues.shape == (2,)


def test_new_rows_get_the_warnings_and_errors_of_the_estimator(rng):
    X, texts = rng.standard_normal((30, 4)), []
    for kernel, rows in ((kernels.RBF(1.0), X[:3] + 1e6), (kernels.Polynomial(degree=3), X[:3] * 1e200)):
        fit, model = fit_kernel_pca(X, kernel, 2), KernelPCA(2, kernel=kernel).fit(X)
        for transform in (fit.transform, model.transform, lambda Y, model=model: model.transform(Y, np.zeros((3, 2)))):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    transform(rows)
                except ValueError as error:
                    texts.append(str(error))
            texts += [f"{warning.message} {warning.message.values}" for warning in caught]
    assert len(texts) == 6
    assert len(set(texts[:3])) == len(set(texts[3:])) == 1
    assert "'rows': [0, 1, 2]" in texts[0]
    assert "The kernel overflows on the new points." in texts[3]
