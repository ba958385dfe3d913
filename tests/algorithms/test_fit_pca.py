"""Fits without an estimator: the same bits as the estimator's attributes, on every library."""

from __future__ import annotations

import sys

import array_api_compat
import numpy as np
import pytest
from scipy import sparse

from gpukpca import PCA
from gpukpca.algorithms import PCASettings, Resources, fit_pca
from gpukpca.algorithms.fields import attributes_of
from gpukpca.algorithms.pca import components
from gpukpca.exceptions import ConvergenceWarning, DeviceFallbackWarning, DeviceMismatchError
from tests import cupy_device
from tests.datasets import same_bits

SOLVERS = ("auto", "covariance_eigh", "dual", "full", "randomized")


def rows_of(xp, rng, dtype="float64", n=61, d=9):
    rows = rng.standard_normal((n, d)) @ np.diag(np.linspace(3.0, 0.1, d)) + 7.0
    return xp.array(rows.astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_fit_pca_has_the_bits_of_the_estimator(xp, rng, solver, dtype):
    X = rows_of(xp, rng, dtype)
    fit = fit_pca(X, 3, settings=PCASettings(solver=solver), rng=0, with_scores=True)
    model = PCA(3, svd_solver=solver, random_state=0)
    scores = model.fit_transform(X)
    for name, value in attributes_of(fit, "projection", "scores", "plan", "weighted").items():
        assert same_bits(value, getattr(model, name), xp), name
    assert same_bits(fit.scores, scores, xp)
    assert same_bits(fit.transform(X), model.transform(X), xp)
    assert same_bits(fit.inverse_transform(scores), model.inverse_transform(scores), xp)
    assert same_bits(fit.log_density(X), model.score_samples(X), xp)


@pytest.mark.parametrize("wanted", [None, 0.8, "mle"])
def test_fit_pca_takes_what_the_estimator_takes(rng, wanted):
    X = rng.standard_normal((40, 6)) * np.arange(1.0, 7.0)
    fit, model = fit_pca(X, wanted, settings=PCASettings(scale=True)), PCA(wanted, scale=True).fit(X)
    assert np.array_equal(fit.components, model.components_)
    assert np.array_equal(fit.scale, model.scale_)


def test_whitened_scores_are_undone_by_the_inverse(rng):
    X = rng.standard_normal((40, 6)) * np.arange(1.0, 7.0)
    fit = fit_pca(X)
    Z = fit.transform(X, whiten=True)
    assert np.allclose(np.var(Z, axis=0, ddof=1), 1.0)
    assert np.allclose(fit.inverse_transform(Z, whiten=True), X)


def test_truncated_fit_is_that_with_fewer_components(rng):
    X = rng.standard_normal((40, 6)) * np.arange(1.0, 7.0)
    few, cut = fit_pca(X, 2), fit_pca(X, 5).truncated(2)
    assert np.allclose(few.transform(X), cut.transform(X))
    assert few.noise_variance == pytest.approx(cut.noise_variance)
    assert np.allclose(few.log_density(X), cut.log_density(X))
    assert cut.n_components == 2


def test_fit_pca_agrees_with_the_oracle(rng):
    X = rng.standard_normal((50, 7)) @ rng.standard_normal((7, 7)) + 100.0
    centered = X - X.mean(axis=0)
    values = np.linalg.eigvalsh(centered.T @ centered / 49)[::-1]
    fit = fit_pca(X, 4)
    assert np.allclose(fit.explained_variance, values[:4])
    assert fit.total_variance == pytest.approx(np.sum(values))
    scores = fit.transform(X)
    assert np.allclose(scores.T @ scores / 49, np.diag(values[:4]), atol=1e-10 * values[0])


def test_fit_pca_keeps_to_its_resources(rng):
    X = rng.standard_normal((300, 200))
    with pytest.raises(MemoryError, match="allowed or free"):
        fit_pca(X, resources=Resources.for_data(X, memory_limit="10 kB"))


def test_resources_of_other_data(rng):
    X = rng.standard_normal((60, 5)) * np.arange(1.0, 6.0)
    integers = np.round(10.0 * X).astype(np.int64)
    for kind in (np.int64, np.float32, np.float16):
        given = Resources.for_data(integers.astype(kind))
        found = fit_pca(integers, 1, resources=given, rng=0).components
        expected = fit_pca(integers, 1, rng=0).components
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)
    torch = pytest.importorskip("torch")
    with pytest.raises(DeviceMismatchError, match="resources are for data of torch"):
        fit_pca(X, 1, resources=Resources.for_data(torch.asarray(X)))


def test_new_rows_and_scores_get_the_errors_of_the_estimator(rng):
    X = rng.standard_normal((40, 6))
    fit, model = fit_pca(X), PCA().fit(X)
    rows, scores = (1.7e308 * np.sign(along)[None, :] for along in (fit.components[0], fit.components[:, 0]))
    for method, values, words in (
        ("transform", rows, "The array of scores contains infinity"),
        ("inverse_transform", scores, "The array of points contains infinity"),
        ("inverse_transform", scores[:, :2], "n_components = 6; got shape"),
        ("inverse_transform", 0.0 * scores + np.nan, "The array of scores contains NaN"),
    ):
        texts = []
        for owner in (fit, model):
            with pytest.raises(ValueError, match=words) as caught:
                getattr(owner, method)(values)
            texts.append(str(caught.value).replace("m >= 0", "m >= 1"))
        assert texts[0] == texts[1]


def test_narrow_blocks_of_sparse_rows_miss_no_equal_variances(rng):
    """Six equal blocks: each variance is there five times, with sparse rows of more than 1000 on either side."""
    values = sparse.random_array((180, 200), density=0.05, rng=rng)
    X = sparse.csr_array(sparse.block_diag([values] * 6))
    for rows, p in ((X, 5), (sparse.csr_array(X.T), 12)):
        fit = fit_pca(rows, p, rng=0)
        Z = rows.toarray()
        exact = np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False)[:p] ** 2 / (len(Z) - 1)
        assert 1 < fit.plan.solver.block_size < p, fit.plan
        assert np.allclose(fit.explained_variance, exact, rtol=1e-9, atol=0.0), p
        assert fit.converged


def test_narrow_blocks_of_sparse_rows_take_fewer_products(rng):
    X = sparse.csr_array(sparse.random_array((1100, 1500), density=0.01, rng=rng))
    products = {}
    for name, more in (("narrow", {}), ("wide", {"oversampling": 3})):
        seen = []
        fit = fit_pca(X, 5, rng=0, settings=PCASettings(**more), progress=seen.append)
        width = fit.plan.solver.width(1100, 5, False)
        products[name] = width * sum(step.stage == "pass" for step in seen)
        assert fit.converged
    assert products["narrow"] < 0.7 * products["wide"], products


def test_a_wrong_svd_is_noticed_by_the_residuals(xp, rng, monkeypatch):
    def wrong(A):
        U, s, Vt = svd(A)
        return U, 1.3 * s, Vt

    svd = components.thin_svd
    X = rows_of(xp, rng)
    monkeypatch.setattr(components, "thin_svd", wrong)
    with pytest.warns(ConvergenceWarning, match="library is wrong"):
        fit = fit_pca(X, 3, settings=PCASettings(solver="full"))
    assert not fit.converged
    assert xp.host(fit.residual_norms)[0] > 0.4 * xp.host(fit.explained_variance)[0]


def test_an_svd_on_a_device_is_that_of_a_triangle_on_the_host(stand_in, rng, monkeypatch):
    """Tall rows call no function of cuSOLVER; wide ones its QR, and LAPACK's where it refuses or is wrong."""
    for shape, functions in (((61, 9), 0), ((9, 61), 1)):
        X = rng.standard_normal(shape)
        exact = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:3]
        with cupy_device.launches() as made:
            fit = fit_pca(stand_in.asarray(X), 3, settings=PCASettings(solver="full"))
        names = [name for name in made.names if name.startswith("cusolver")]
        assert bool(names) == bool(functions), names
        assert not [name for name in names if "gesvd" in name]
        np.testing.assert_allclose(fit.singular_values.get(), exact, rtol=1e-12)
        assert fit.converged

    def refused(*_, **__):
        raise sys.modules["cupy_backends.cuda.libs.cusolver"].CUSOLVERError(3)

    qr = stand_in.linalg.qr
    for answer in (refused, lambda *a, **k: (qr(*a, **k)[0], np.nan * qr(*a, **k)[1])):
        monkeypatch.setattr(array_api_compat.cupy.linalg, "qr", answer)
        with pytest.warns(DeviceFallbackWarning, match="LAPACK took its place"):
            fit = fit_pca(stand_in.asarray(X), 3, settings=PCASettings(solver="full"))
        np.testing.assert_allclose(fit.singular_values.get(), exact, rtol=1e-12)
