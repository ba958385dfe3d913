"""PCA with center=False: singular vectors of X itself."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse
from sklearn.decomposition import TruncatedSVD

from gpukpca import PCA, Batches, IncrementalPCA, load, residuals
from gpukpca.algorithms import PCASettings, fit_pca
from gpukpca.algorithms.pca.operator import centered_matrix
from gpukpca.exceptions import InvalidParameterError, RankWarning
from gpukpca.model_selection import n_components_for
from tests import tolerances
from tests.each import covering, each

SOLVERS = ["auto", "covariance_eigh", "dual", "full", "randomized", "arpack"]
P = 3


def rows_of(n, d, seed=0):
    """Return rows with a large mean and many zeros, and with gaps between the first singular values."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 0.6 ** np.arange(d) + 2.0
    return np.where(rng.random((n, d)) < 0.6, 0.0, X)


def assert_is_svd(model, X, dtype="float64", array=np.asarray, host=np.asarray):
    """Return the scores of a fit that is checked against LAPACK's SVD of X in float64."""
    n = len(X)
    Z = X if model.scale_ is None else X / np.sqrt((X**2).sum(axis=0) / (n - 1))
    s, Vt = np.linalg.svd(Z)[1:]
    tol = 2e4 * tolerances.eps(dtype)
    components = host(model.components_).astype(np.float64)
    np.testing.assert_allclose(host(model.singular_values_), s[:P], rtol=tol)
    np.testing.assert_allclose(host(model.explained_variance_), s[:P] ** 2 / (n - 1), rtol=tol)
    np.testing.assert_allclose(np.abs(np.sum(components * Vt[:P], axis=1)), 1.0, atol=tol)
    assert model.total_variance_ == pytest.approx((Z**2).sum() / (n - 1), rel=tol)
    assert not np.any(host(model.mean_))
    scores = host(model.transform(array(X.astype(dtype))))
    np.testing.assert_allclose(scores, Z @ components.T, atol=tol * s[0])
    return scores


@each(
    "solver, shape, scale, dtype",
    covering(SOLVERS, [(80, 10), (10, 80), (30, 30)], [False, True], ["float64", "float32"]),
)
def test_every_route_finds_the_singular_vectors_of_the_rows(xp, solver, shape, scale, dtype):
    X = rows_of(*shape).astype(dtype).astype(np.float64)
    model = PCA(P, center=False, svd_solver=solver, scale=scale, tol=1e-10 if dtype == "float64" else 0, random_state=0)
    scores = xp.host(model.fit_transform(xp.array(X.astype(dtype))))
    assert xp.owns(model.components_)
    np.testing.assert_allclose(
        scores, assert_is_svd(model, X, dtype, xp.array, xp.host), atol=2e4 * tolerances.eps(dtype) * 50
    )
    points = xp.host(model.inverse_transform(model.transform(xp.array(X.astype(dtype)))))
    V = xp.host(model.components_)
    weights = 1.0 if not scale else xp.host(model.scale_)
    np.testing.assert_allclose(points, X / weights @ V.T @ V * weights, atol=1e5 * tolerances.eps(dtype))


@each("solver", SOLVERS)
@each("shape", [(80, 10), (10, 80)])
def test_dense_and_sparse_rows_batches_and_memory_maps_give_one_answer(tmp_path, solver, shape):
    X = rows_of(*shape)
    file = np.memmap(tmp_path / "rows", X.dtype, "w+", shape=X.shape)
    file[:] = X
    containers = {"map": file, "batches": Batches([X[:3], X[3:4], X[4:]])}
    if solver != "full":
        containers |= {"csr": scipy.sparse.csr_array(X), "csc": scipy.sparse.csc_matrix(X)}
    for rows in containers.values():
        model = PCA(P, center=False, svd_solver=solver, tol=1e-10, random_state=0).fit(rows)
        assert_is_svd(model, X)


def test_sparse_rows_stay_sparse():
    X = scipy.sparse.random_array((50, 30), density=0.2, rng=0, format="csr")
    full = scipy.sparse.csr_array(np.column_stack([np.ones(50), X.toarray()]))  # with a column that is subtracted
    assert centered_matrix(full, True, 1, center=False).X.nnz == full.nnz
    s = np.linalg.svd(full.toarray(), compute_uv=False)
    np.testing.assert_allclose(PCA(P, center=False).fit(full).singular_values_, s[:P], rtol=1e-12)


def test_truncated_svd_has_the_same_axes_and_another_variance():
    X = scipy.sparse.csr_array(rows_of(80, 10))
    peer = TruncatedSVD(P, algorithm="arpack", random_state=0).fit(X)
    model = PCA(P, center=False).fit(X)
    np.testing.assert_allclose(model.singular_values_, peer.singular_values_, rtol=1e-10)
    np.testing.assert_allclose(np.abs(np.sum(model.components_ * peer.components_, axis=1)), 1.0, rtol=1e-10)
    scores = model.transform(X)
    np.testing.assert_allclose(peer.explained_variance_, scores.var(axis=0), rtol=1e-8)
    np.testing.assert_allclose(model.explained_variance_, (scores**2).sum(axis=0) / 79, rtol=1e-10)


@each("solver", SOLVERS)
def test_rows_of_mean_exactly_zero_give_the_centered_answer(solver):
    X = np.round(np.random.default_rng(0).standard_normal((20, 6)) * 2.0 ** -np.arange(6) * 2**20)
    X = np.concatenate([X, -X])
    one, other = (
        PCA(4, center=center, svd_solver=solver, tol=1e-10, random_state=0).fit(X) for center in (True, False)
    )
    for name in ("singular_values_", "components_", "total_variance_", "noise_variance_"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-12)


def test_large_offsets_and_tiny_or_huge_entries_keep_their_digits():
    X = rows_of(40, 6)
    for unit in (2.0**-500, 2.0**450):
        model = PCA(P, center=False, svd_solver="covariance_eigh").fit(X * unit)
        np.testing.assert_allclose(model.singular_values_ / unit, np.linalg.svd(X, compute_uv=False)[:P], rtol=1e-12)
    constant = PCA(2, center=False).fit(np.full((30, 2), 1e6) + np.eye(30, 2))
    s = np.linalg.svd(np.full((30, 2), 1e6) + np.eye(30, 2), compute_uv=False)
    np.testing.assert_allclose(constant.singular_values_, s, rtol=1e-7)


@pytest.mark.filterwarnings("ignore:some components are uncertain")  # as with centering
def test_small_singular_values_beside_a_large_one_are_resolved():
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.standard_normal((size, 4)))[0] for size in (60, 8))
    values = np.array([1e6, 1e1, 1e-3, 1e-6])
    for solver in ("covariance_eigh", "dual", "full"):
        for X in ((U * values) @ V.T, ((U * values) @ V.T).T):
            model = PCA(4, center=False, svd_solver=solver, random_state=0).fit(X)
            np.testing.assert_allclose(model.singular_values_, np.linalg.svd(X, compute_uv=False)[:4], rtol=1e-2)


def test_what_needs_the_mean_refuses():
    X = rows_of(40, 6)
    model, fit = PCA(2, center=False).fit(X), fit_pca(X, 2, settings=PCASettings(center=False))
    attempts = (
        (lambda: fit.log_density(X), "no covariance and no likelihood"),
        (model.as_sklearn, "always centers"),
        (lambda: n_components_for(model, value=0.5), "center=False"),
        (lambda: PCA("mle", center=False).fit(X), "'mle' is a choice by the likelihood"),
        (lambda: PCA("mle", center=False).plan(X), "'mle' is a choice by the likelihood"),
        (lambda: PCA(center="no").fit(X), "center='no'"),
    )
    for attempt, words in attempts:
        with pytest.raises(InvalidParameterError, match=words):
            attempt()
    assert PCA(0.9, center=False).fit(X).explained_variance_ratio_.sum() > 0.9


def test_models_are_saved_audited_and_pickled(tmp_path):
    X = rows_of(80, 10)
    model = PCA(P, center=False, scale=True).fit(X)
    model.save(tmp_path / "model")
    for again in (load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.transform(X), model.transform(X))
        with pytest.raises(AttributeError, match="no likelihood"):
            again.set_params(center=True).score(X)  # the parameter of the next fit
    audit = residuals(model, X)
    assert np.all(audit.residual_norms <= 1e-12 * audit.eigenvalues[0])
    assert audit.trace == pytest.approx(model.total_variance_, rel=1e-12)


# -- in batches --------------------------------------------------------------------------------------------------------


def assert_same(one, other, factor=1e5, names=("components_", "explained_variance_", "singular_values_", "mean_")):
    for name in names:
        scale = factor * tolerances.eps(one.components_.dtype) * max(1.0, np.max(np.abs(getattr(other, name))))
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=scale, err_msg=name)
    for name in ("total_variance_", "noise_variance_"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e5 * tolerances.eps("float32")), name


@each("shape", [(80, 10), (10, 80)])
@each("dtype", ["float64", "float32"])
def test_batches_of_all_components_give_the_svd_of_the_rows(xp, shape, dtype):
    """A fit that drops nothing equals PCA of all rows at once, whatever the sizes of its batches."""
    X = rows_of(*shape).astype(dtype)
    p, rows = min(shape), Batches([X[:10], X[10:11], X[11:]] if len(X) > 10 else [X])
    model = IncrementalPCA(p, center=False)
    for batch in rows:
        model.partial_fit(xp.array(batch))
    assert model.n_samples_seen_ == len(X)
    assert xp.owns(model.mean_)
    assert not np.any(xp.host(model.mean_))
    wide = X.astype(np.float64)
    s = np.linalg.svd(wide, compute_uv=False)
    tol = 2e3 * tolerances.eps(dtype)
    np.testing.assert_allclose(xp.host(model.singular_values_), s, atol=tol * s[0])
    np.testing.assert_allclose(xp.host(model.explained_variance_ratio_), s**2 / (s**2).sum(), atol=tol)
    np.testing.assert_allclose(xp.host(model.var_), (wide**2).mean(axis=0), rtol=1e-6)
    assert model.total_variance_ == pytest.approx((wide**2).sum() / (len(X) - 1), rel=1e-12)
    scores = xp.host(model.transform(xp.array(X)))
    np.testing.assert_allclose(scores, wide @ xp.host(model.components_).T.astype(np.float64), atol=tol * s[0])
    np.testing.assert_allclose(xp.host(model.inverse_transform(xp.array(scores))), X, atol=tol * s[0])
    whitened = xp.host(model.set_params(whiten=True).transform(xp.array(X)))[:, : p // 2]
    np.testing.assert_allclose((whitened**2).sum(axis=0), len(X) - 1, rtol=tol * s[0] / s[p // 2])


def test_one_batch_is_the_pca_of_its_rows():
    for shape in ((40, 6), (6, 40)):
        X = rows_of(*shape)
        model, other = IncrementalPCA(3, center=False).partial_fit(X), PCA(3, center=False).fit(X)
        assert_same(model, other)
        audit, its = residuals(model, X), residuals(other, X)
        assert audit.trace == pytest.approx(its.trace)
        np.testing.assert_allclose(audit.residual_norms, its.residual_norms, atol=1e-12 * audit.trace)


def test_batches_are_saved_and_continued(tmp_path):
    X = rows_of(90, 8)
    whole = IncrementalPCA(3, center=False, batch_size=30).fit(X)
    model = IncrementalPCA(3, center=False).partial_fit(X[:30])
    for rows in (X[30:60], X[60:]):
        model.save(tmp_path / "model")
        model = load(tmp_path / "model").partial_fit(rows)
    for name in ("components_", "explained_variance_", "mean_", "var_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(whole, name), err_msg=name)
    with pytest.raises(InvalidParameterError, match="center has changed from False to True; all batches are centered"):
        model.set_params(center=True).partial_fit(X)
    assert not model.mean_.any()  # of the fit, as the state says
    with pytest.raises(AttributeError, match="no likelihood"):
        model.get_covariance()
    np.testing.assert_allclose(model.fit(X).mean_, X.mean(axis=0))


def test_batches_of_any_container_and_size(tmp_path):
    X = rows_of(60, 8)
    wanted = IncrementalPCA(3, center=False, batch_size=20).fit(X)
    for rows in (scipy.sparse.csr_array(X), iter([X[:20], X[20:40], X[40:]])):
        assert_same(IncrementalPCA(3, center=False, batch_size=20).fit(rows), wanted, factor=100)
    before = X.copy()
    for unit in (2.0**-500, 2.0**450):
        model = IncrementalPCA(3, center=False, batch_size=20).fit(X * unit)
        np.testing.assert_allclose(model.singular_values_ / unit, wanted.singular_values_, rtol=1e-12)
    constant = IncrementalPCA(2, center=False).fit(np.full((30, 2), 2.0**450))  # without deviations from the mean
    np.testing.assert_allclose(constant.singular_values_[0], 2.0**450 * 60**0.5, rtol=1e-12)
    np.testing.assert_array_equal(X, before)
    with pytest.warns(RankWarning, match="all rows are 0"):
        IncrementalPCA(2, center=False).fit(np.zeros((9, 3)))
