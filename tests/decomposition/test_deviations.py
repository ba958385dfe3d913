"""Deviations from scikit-learn: every line of docs/reference/deviations.md, run on both sides."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sklearn.decomposition as theirs
from sklearn import config_context

from gpukpca import PCA, Batches, IncrementalPCA, KernelPCA
from gpukpca.exceptions import ConvergenceError, IndefiniteKernelError, InvalidParameterError, RankWarning
from tests import oracle
from tests.datasets import data

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "deviations.md"
X = data(40, 4)
K = oracle.gram(oracle.rbf(0.1), X)


def test_every_line_of_the_page_has_a_test_here():
    lines = PAGE.read_text(encoding="utf-8").partition("## New")[0]
    labels = re.findall(r"^- \*\*([^*]+?)\.?\*\*", lines, flags=re.M)
    assert len(labels) >= 19
    for label in labels:
        assert callable(globals()[f"test_{label.lower().replace(' ', '_')}"])


def test_weights():
    few, counts = X[:3], np.array([1, 2, 3])
    repeated, weighted = PCA().fit(np.repeat(few, counts, axis=0)), PCA().fit(few, sample_weight=counts)
    assert (weighted.n_components_, repeated.n_components_) == (3, 4)
    np.testing.assert_allclose(weighted.explained_variance_[:2], repeated.explained_variance_[:2])
    batches = [
        fitted(IncrementalPCA(1, batch_size=2), np.repeat(few, counts, axis=0)),
        IncrementalPCA(1, batch_size=2).fit(few, sample_weight=counts),
    ]
    assert not np.allclose(*(model.components_ for model in batches), rtol=1e-3)
    for preimage in ("ridge", "distance_constraint"):
        with pytest.raises(ValueError, match="sample_weight is not taken"):
            KernelPCA(2, kernel="rbf", preimage=preimage).fit(few, sample_weight=counts)


@pytest.mark.parametrize("name", ["KernelPCA", "PCA", "IncrementalPCA"])
def test_the_page_lists_the_new_parameters(name):
    text = re.search(rf"^- \*\*{name}:\*\*([^.]*)\.", PAGE.read_text(encoding="utf-8"), flags=re.M)
    mine, peer = globals()[name]().get_params(), getattr(theirs, name)().get_params()
    assert text is not None
    assert set(re.findall(r"`(\w+)`", text[1])) == set(mine) - set(peer)


def fitted(estimator: Any, rows: Any = X) -> Any:
    """Return the estimator, fitted without a warning that counts here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(rows)


# -- KernelPCA ---------------------------------------------------------------------------------------------------------


def test_unused_parameters():
    for settings in ({"gamma": 3.0}, {"kernel": "cosine", "gamma": 3.0}, {"kernel": "rbf", "degree": 2}):
        with pytest.warns(UserWarning, match="is not used by kernel="):
            KernelPCA(2, **settings).fit(X)
        theirs.KernelPCA(2, **settings).fit(X)  # and no warning: they are errors here
    KernelPCA(2).set_params(kernel="cosine", gamma=3.0).fit(X)


def test_largest_by_value():
    A = oracle.with_spectrum(np.array([3.0, 2.0, 1.0, *np.zeros(20), -10.0]), 0)
    settings = {"n_components": 2, "kernel": "precomputed", "eigen_solver": "randomized", "random_state": 0}
    largest = oracle.eigenpairs(oracle.centered(A), 2)[0]
    np.testing.assert_allclose(fitted(KernelPCA(**settings), A).eigenvalues_, largest, rtol=1e-8)
    with pytest.raises(ValueError, match="significant negative eigenvalues"):
        theirs.KernelPCA(**settings).fit(A)


@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-8), ("float32", 1e-5)])
def test_tolerance(dtype, tol):
    rows = data(450, 4).astype(dtype)
    settings = {"n_components": 3, "kernel": "rbf", "eigen_solver": "randomized", "random_state": 0}
    default, stated = (fitted(KernelPCA(**settings, tol=value), rows) for value in (0, tol))
    assert default.n_passes_ == stated.n_passes_ < fitted(KernelPCA(**settings, tol=tol / 1e3), rows).n_passes_
    settings["eigen_solver"] = "arpack"
    assert fitted(KernelPCA(**settings), rows).n_passes_ >= fitted(KernelPCA(**settings, tol=tol), rows).n_passes_


def test_passes():
    settings = {"n_components": 3, "kernel": "rbf", "eigen_solver": "randomized", "random_state": 0}
    assert [fitted(KernelPCA(**settings, iterated_power=k), data(450, 4)).n_passes_ for k in (2, 5)] == [2, 5]


@pytest.mark.parametrize(("kernel", "columns"), [("linear", 4), ("poly", 35)])
def test_explicit_features(kernel, columns):
    assert KernelPCA(2, kernel=kernel).fit(data(300, 4)).plan_.storage.rank_bound == columns


def test_memory_maps(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert np.shares_memory(KernelPCA(2, kernel="rbf", copy_X=True).fit(rows).X_fit_, rows)
    assert not np.shares_memory(theirs.KernelPCA(2, kernel="rbf", copy_X=True).fit(rows).X_fit_, rows)


def test_linear_inverse():
    rows = X + 10.0
    mine, peer = (kind(4, fit_inverse_transform=True, alpha=1e-6).fit(rows) for kind in (KernelPCA, theirs.KernelPCA))
    np.testing.assert_allclose(mine.inverse_transform(mine.transform(rows)), rows, atol=1e-12)
    assert np.max(np.abs(peer.inverse_transform(peer.transform(rows)) - rows)) > 1.0
    assert hasattr(peer, "dual_coef_")
    assert not hasattr(mine, "dual_coef_")


def test_kernel_parameters():
    settings = {"kernel": "rbf", "kernel_params": {"unknown": 1}}
    theirs.KernelPCA(2, **settings).fit(X)
    with pytest.raises(InvalidParameterError, match="unknown"):
        KernelPCA(2, **settings).fit(X)


@pytest.mark.parametrize(("n_components", "kernel", "match"), [(50, "rbf", "more than"), (6, "linear", "fewer ")])
def test_rank(n_components, kernel, match):
    with pytest.warns(RankWarning) as caught:
        mine = KernelPCA(n_components, kernel=kernel).fit(X)
    assert match in str(caught[0].message)
    assert mine.eigenvalues_.shape == theirs.KernelPCA(n_components, kernel=kernel).fit(X).eigenvalues_.shape


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.IndefiniteKernelWarning")
@pytest.mark.parametrize("solver", ["auto", "dense", "arpack", "randomized"])
def test_asymmetric_matrix(solver):
    A = K.copy()
    A[0, 1] += 0.01
    settings = {"n_components": 1, "kernel": "precomputed", "eigen_solver": solver, "random_state": 0}
    with pytest.warns(UserWarning, match="not symmetric") as caught:
        given = KernelPCA(**settings).fit(A)
    assert caught[0].message.values == {"asymmetry": pytest.approx(0.01), "entry": [0, 1]}
    part = (A + A.T) / 2
    np.testing.assert_array_equal(given.eigenvalues_, fitted(KernelPCA(**settings), part).eigenvalues_)
    peer = theirs.KernelPCA(1, kernel="precomputed", eigen_solver="dense")
    assert abs(peer.fit(A).eigenvalues_[0] - peer.fit(part).eigenvalues_[0]) > 1e-6


def test_negative_eigenvalues():
    for unit in (1.0, 1e-12):
        A = unit * oracle.with_spectrum(np.array([2.0, 1.0, *np.full(10, 0.1), -0.5]), 0)
        with pytest.raises(IndefiniteKernelError):
            KernelPCA(kernel="precomputed").fit(A)
    theirs.KernelPCA(kernel="precomputed").fit(A)
    with pytest.raises(ValueError, match="significant negative"):
        theirs.KernelPCA(kernel="precomputed").fit(A / unit)


def test_precomputed_matrix():
    mine, peer = (kind(2, kernel="precomputed", copy_X=False).fit(K.copy()) for kind in (KernelPCA, theirs.KernelPCA))
    np.testing.assert_array_equal(mine.X_fit_, K)
    np.testing.assert_allclose(peer.X_fit_, oracle.centered(K), atol=1e-14)


def test_score():
    model = KernelPCA(2, kernel="rbf", preimage="ridge").fit(X)
    assert model.score(X) == pytest.approx(-np.mean(np.sum((X - model.denoise(X)) ** 2, axis=1)))
    assert not hasattr(KernelPCA(2, kernel="rbf").fit(X), "score")
    assert not hasattr(theirs.KernelPCA(2, kernel="rbf").fit(X), "score")


def test_landmarks():
    strict = pytest.importorskip("array_api_strict").asarray(X)
    model = KernelPCA(2, kernel="rbf", eigen_solver="nystrom").fit(strict)
    assert isinstance(model.X_fit_, type(strict))
    assert isinstance(model.landmarks_, np.ndarray)


def test_sparse_input():
    for kind, error in ((KernelPCA, ValueError), (theirs.KernelPCA, NotImplementedError)):
        with pytest.raises(error, match="Inverse transform not implemented for sparse matrices"):
            kind(2, kernel="rbf", fit_inverse_transform=True).fit(scipy.sparse.csr_array(X))


# -- PCA and IncrementalPCA --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-8), ("float32", 1e-5)])
def test_tolerance_of_pca(dtype, tol):
    rows = data(300, 150).astype(dtype)
    settings = {"n_components": 3, "svd_solver": "randomized", "random_state": 0}
    default, stated, finer = (fitted(PCA(**settings, tol=value), rows).residual_norms_ for value in (0, tol, tol / 1e3))
    np.testing.assert_array_equal(default, stated)
    assert np.max(finer) < np.max(default)
    theirs.PCA(2, tol=1.0).fit(X)
    with pytest.raises(InvalidParameterError, match="tol"):
        PCA(2, tol=1.0).fit(X)


def test_passes_of_pca():
    rows = data(300, 150)
    settings = {"n_components": 1, "svd_solver": "randomized", "n_oversamples": 1, "random_state": 0}
    assert [fitted(PCA(**settings, iterated_power=k), rows).plan_.solver.passes for k in (3, 5)] == [4, 6]
    with pytest.raises(ConvergenceError, match="no component was found in 1 pass"):
        fitted(PCA(**settings, iterated_power=0), rows)
    theirs.PCA(**settings, iterated_power=0).fit(rows)


@pytest.mark.parametrize("name", ["PCA", "IncrementalPCA"])
def test_whitening(name):
    def covariances(kind: Any) -> list[np.ndarray]:
        return [kind(2, whiten=whiten).fit(X).get_covariance() for whiten in (False, True)]

    np.testing.assert_array_equal(*covariances(globals()[name]))
    assert not np.allclose(*covariances(getattr(theirs, name)), rtol=0.1)
    scores = [PCA(2, whiten=whiten).fit(X).score(X) for whiten in (False, True)]
    assert scores[0] == scores[1]


def test_evidence():
    small = 1e-9 * data(60, 4)
    assert PCA("mle").fit(small).n_components_ == PCA("mle").fit(1e9 * small).n_components_ > 0
    assert theirs.PCA("mle").fit(small).n_components_ == 0 < theirs.PCA("mle").fit(1e9 * small).n_components_


def test_solver_limits(monkeypatch):
    assert fitted(PCA(4, svd_solver="arpack")).n_components_ == 4
    with pytest.raises(ValueError, match="strictly less"):
        theirs.PCA(4, svd_solver="arpack").fit(X)
    sparse = scipy.sparse.csr_array(X)
    assert fitted(PCA(2, svd_solver="randomized"), sparse).n_components_ == 2
    with pytest.raises(TypeError, match="sparse"):
        theirs.PCA(2, svd_solver="randomized").fit(sparse)
    strict = pytest.importorskip("array_api_strict").asarray(X)
    assert isinstance(fitted(PCA(2, svd_solver="arpack"), strict).components_, type(strict))
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # which the peer demands
    with config_context(array_api_dispatch=True), pytest.raises(ValueError, match="arpack"):
        theirs.PCA(2, svd_solver="arpack").fit(strict)


def test_choice_of_the_solver():
    rows = data(550, 60)
    mine, peer = (fitted(kind(55), rows) for kind in (PCA, theirs.PCA))
    assert (mine.plan_.method, peer._fit_svd_solver) == ("covariance_eigh", "full")
    assert not hasattr(mine, "_fit_svd_solver")


def test_words_of_errors():
    sparse = scipy.sparse.csr_array(X)
    for kind, named, full in ((PCA, "auto", '"dual" or "rand'), (theirs.PCA, "covariance_eigh", '"arpack" and')):
        with pytest.raises(ValueError, match=f"n_components=5 must be between 0 and .*=4 with svd_solver='{named}'"):
            kind(5).fit(X)
        with pytest.raises(TypeError, match=full):
            kind(2, svd_solver="full").fit(sparse)


def test_singular_covariance():
    rows = np.column_stack([X, X[:, 0]])
    mine = fitted(PCA(5), rows)
    largest = np.linalg.eigvalsh(mine.get_precision())[-1]
    assert largest == pytest.approx(1 / (np.finfo(float).eps * mine.explained_variance_[0]))


@pytest.mark.parametrize("name", ["PCA", "IncrementalPCA"])
def test_one_row(name):
    with pytest.warns(RankWarning):
        assert globals()[name](1).fit(X[:1]).explained_variance_ == 0.0
    assert np.isnan(fitted(getattr(theirs, name)(1), X[:1]).explained_variance_)


def test_whitened_zeros():
    rows = np.repeat(X[:, :1], 3, axis=1)
    mine, peer = (fitted(kind(3, whiten=True), rows).transform(rows) for kind in (PCA, theirs.PCA))
    assert not np.any(mine[:, 1:])
    assert np.max(np.abs(peer[:, 1:])) > 0.1


@pytest.mark.filterwarnings("ignore:(Mean of empty slice|invalid value):RuntimeWarning")
def test_short_first_batches():
    X = data(20, 4)
    with pytest.raises(ValueError, match="from 2 to 3"):
        theirs.IncrementalPCA(3, batch_size=2).fit(X)
    found = IncrementalPCA(3, batch_size=2).fit(X)
    expected = IncrementalPCA(3).fit(Batches([X[:4], *(X[k : k + 2] for k in range(4, 16, 2)), X[16:]]))
    np.testing.assert_array_equal(found.components_, expected.components_)
    few = "must be less or equal to the batch number of samples 2"
    with pytest.raises(InvalidParameterError, match=f"{few} for the first partial_fit call: "):
        IncrementalPCA(3).partial_fit(X[:2])
    for rows in (X[:2], Batches([X[:1], X[1:2]])):
        with pytest.raises(InvalidParameterError, match=f"{few}: the first batch of shape"):
            IncrementalPCA(3).fit(rows)


def test_size_of_batches():
    peer = theirs.IncrementalPCA(1).fit(data(1000, 2)).batch_size_
    for rows, d, expected in ((1000, 2, peer), (3000, 2, 30), (550_000, 1, 5500), (40, 4, 20)):
        model = IncrementalPCA(1)
        assert model.fit(data(rows, d)).batch_size_ == expected
    assert model._rows_of_a_batch(30_000_000, 50) == 2**20 // 50
    assert model._rows_of_a_batch(30_000_000, 10_000) == 50_000
    events = []
    IncrementalPCA(1, verbose=events.append).fit(data(3000, 2))
    assert len(events) == 100
    assert IncrementalPCA(1, batch_size=7).fit(data(3000, 2)).batch_size_ == 7


def test_batches():
    batches = Batches([X[:10], X[10:11], X[11:]])
    np.testing.assert_allclose(PCA(2).fit(batches).explained_variance_, PCA(2).fit(X).explained_variance_, rtol=1e-12)
    with pytest.raises((TypeError, ValueError)):
        theirs.PCA(2).fit(batches)
    assert hasattr(IncrementalPCA(2), "partial_fit")
