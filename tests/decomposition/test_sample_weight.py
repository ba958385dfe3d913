"""Weights of rows: whole numbers are repeated rows, 0 is no row, and a common factor changes no axis."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gpukpca
from gpukpca import PCA, Batches, IncrementalPCA, KernelPCA, Nystrom
from gpukpca.algorithms import KernelPCASettings, fit_kernel_pca
from gpukpca.exceptions import GpuKPCAWarning, InvalidParameterError, RankWarning
from gpukpca.kernels import RBF
from tests import oracle
from tests.data.test_containers import held_by_all

COMMON = ("explained_variance_", "explained_variance_ratio_")
OF_PCA = (*COMMON, "components_", "mean_", "singular_values_", "noise_variance_", "n_samples_")
OF_KERNEL = (*COMMON, "eigenvalues_", "total_variance_")


class Slices:
    """A set that is read by slices."""

    def __init__(self, X):
        self.X, self.shape, self.dtype, self.ndim = X, X.shape, X.dtype, 2

    def __getitem__(self, rows):
        return self.X[rows]


@pytest.fixture
def data(rng):
    """Rows, their weights, and the repeated rows."""
    X = rng.standard_normal((60, 6)) * np.linspace(3.0, 0.5, 6) + 5.0
    w = rng.integers(0, 4, 60)
    return X, w.astype(float), np.repeat(X, w, axis=0)


def mapped(X, folder):
    where = np.memmap(folder / f"{len(list(folder.iterdir()))}", dtype=X.dtype, mode="w+", shape=X.shape)
    where[:] = X
    return where


def agree(model, repeated, names, X, tol=1e-10, unsigned=False, why=""):
    """The model of weighted rows has the attributes and the scores of that of repeated rows."""
    for name in names:
        if hasattr(repeated, name):
            ours, theirs = (np.asarray(getattr(one, name), dtype=float) for one in (model, repeated))
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tol * max(1.0, np.max(np.abs(theirs))), err_msg=why)
    ours, theirs = model.transform(X), repeated.transform(X)
    ours, theirs = (np.abs(ours), np.abs(theirs)) if unsigned else (ours, theirs)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tol * np.max(np.abs(theirs)), err_msg=why)


def test_pca_of_whole_weights_is_that_of_repeated_rows(data, tmp_path):
    X, w, R = data
    options = product(("auto", "covariance_eigh", "dual", "full", "randomized"), (True, False), (True, False))
    for solver, center, scale in options:
        how = {"svd_solver": solver, "center": center, "scale": scale, "random_state": 0}
        repeated = PCA(3, **how).fit(R)
        model = PCA(3, **how)
        scores = model.fit_transform(X, sample_weight=w)
        agree(model, repeated, OF_PCA, X, why=str(how))
        np.testing.assert_allclose(scores, model.transform(X), atol=1e-12)
        if solver != "full":
            agree(PCA(3, **how).fit(sp.csr_array(X), sample_weight=w), repeated, OF_PCA, X, why=f"sparse {how}")
    wide, few = X[:5].T @ np.ones((5, 40)) + np.eye(6, 40), np.array([1, 2, 0, 3, 1, 2])
    for n_components in (None, 2, 0.9):  # fewer rows than features
        repeated = PCA(n_components, svd_solver="auto").fit(np.repeat(wide, few, axis=0))
        names = OF_PCA if n_components else ()
        agree(PCA(2).fit(wide, sample_weight=few), PCA(2).fit(np.repeat(wide, few, axis=0)), OF_PCA, wide)
        if n_components:
            agree(PCA(n_components).fit(wide, sample_weight=few), repeated, names, wide)
    agree(PCA("mle").fit(X, sample_weight=w), PCA("mle").fit(R), (*OF_PCA, "n_components_"), X)
    repeated = PCA(3, whiten=True).fit(R)
    for rows in (mapped(X, tmp_path), Slices(X), Batches([X[:20], X[20:]])):
        agree(PCA(3, whiten=True).fit(rows, sample_weight=w), repeated, OF_PCA, X, why=type(rows).__name__)


def test_kernel_pca_of_whole_weights_is_that_of_repeated_rows(data):
    X, w, R = data
    keep, first = np.flatnonzero(w), np.flatnonzero(np.diff(np.repeat(np.arange(60), w.astype(int)), prepend=-1))
    kernels = (
        {"kernel": "rbf", "gamma": 0.01},
        {"kernel": "rbf", "gamma": 1e-7},  # flat: k - 1
        {"kernel": "linear"},
        {"kernel": "poly", "gamma": 0.1, "degree": 2, "coef0": 1.0},
    )
    landmarks = np.arange(0, len(keep), 2)
    solvers = (
        ("dense", "dense", "auto"),
        ("randomized", "randomized", "tiled"),
        ("auto", "auto", "auto"),
        (Nystrom(landmarks=keep[landmarks].tolist()), Nystrom(landmarks=first[landmarks].tolist()), "auto"),
    )
    for kernel, (ours, theirs, gram), center in product(kernels, solvers, (True, False)):
        how = {**kernel, "center": center, "gram": gram, "random_state": 0}
        repeated = KernelPCA(3, eigen_solver=theirs, **how).fit(R)
        model = KernelPCA(3, eigen_solver=ours, **how)
        scores = model.fit_transform(X, sample_weight=w)
        agree(model, repeated, (*OF_KERNEL, "certificate_"), X, 1e-8, why=f"{ours} {how}")
        np.testing.assert_allclose(scores, model.transform(X), atol=1e-9 * np.max(np.abs(scores)))
        assert model.eigenvectors_.shape == (len(keep), 3)
    ones = np.maximum(w, 1.0)
    again = np.repeat(X, ones.astype(int), axis=0)
    model = KernelPCA(3, kernel="precomputed").fit(X @ X.T, sample_weight=ones)
    repeated = KernelPCA(3, kernel="precomputed").fit(again @ again.T)
    np.testing.assert_allclose(model.eigenvalues_, repeated.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(model.transform(X @ X.T), repeated.transform(X @ again.T), atol=1e-9)


def test_streams_count_rows_by_their_weights(data, tmp_path):
    X, w, R = data
    ones = np.maximum(w, 1.0)
    again = np.repeat(X, ones.astype(int), axis=0)
    how = {"kernel": "rbf", "gamma": 0.01, "eigen_solver": Nystrom(landmarks=X[::3])}
    repeated = KernelPCA(3, **how).fit(again)
    for rows in (X, mapped(X, tmp_path), Slices(X)):
        model = KernelPCA(3, **how).fit(rows, sample_weight=ones)
        agree(model, repeated, (*OF_KERNEL, "certificate_"), X, 1e-9, unsigned=True, why=type(rows).__name__)
    model = KernelPCA(3, **how).partial_fit(X[:30], sample_weight=w[:30])
    model.save(tmp_path / "m")
    model = gpukpca.load(tmp_path / "m").partial_fit(X[30:], sample_weight=w[30:])
    agree(model, KernelPCA(3, **how).partial_fit(R), (*OF_KERNEL, "certificate_", "n_samples_seen_"), X, 1e-9, True)
    with pytest.raises(InvalidParameterError, match="partial_fit"):
        KernelPCA(3, **how).fit(Batches([X[:30], X[30:]]), sample_weight=w)


def test_incremental_pca_counts_rows_by_their_weights(data):
    X, w, R = data
    for center in (True, False):
        model = IncrementalPCA(6, batch_size=20, center=center).fit(X, sample_weight=w)
        names = (*OF_PCA, "var_", "n_samples_seen_")
        agree(model, IncrementalPCA(6, center=center).fit(R), names, X)  # all components: batches do not matter
        model = IncrementalPCA(3, center=center)
        repeated = IncrementalPCA(3, center=center)
        for rows in (slice(0, 25), slice(25, 60)):
            model.partial_fit(X[rows], sample_weight=w[rows])
            repeated.partial_fit(np.repeat(X[rows], w[rows].astype(int), axis=0))
        agree(model, repeated, names, X)
    none = np.concatenate([np.zeros(20), w[20:]])
    agree(
        IncrementalPCA(2, batch_size=20).fit(X, sample_weight=none),
        IncrementalPCA(2, batch_size=20).fit(X[20:], sample_weight=w[20:]),
        OF_PCA,
        X,
    )


def test_small_weights_have_a_noise_and_a_likelihood(data):
    X, w, _ = data
    ones = np.maximum(w, 1.0)
    for make in (lambda: PCA(2), lambda: IncrementalPCA(2, batch_size=60)):
        model = make().fit(X, sample_weight=ones)
        with pytest.warns(GpuKPCAWarning, match="fewer than two rows"):
            small = make().fit(X, sample_weight=ones / ones.sum())
        total = ones.sum()
        np.testing.assert_allclose(small.noise_variance_ * total, model.noise_variance_ * (total - 1.0), rtol=1e-9)
        if hasattr(model, "score"):
            assert abs(small.score(X) - model.score(X)) < 0.1
    shares = np.full(45, 1.0 / 45.0)
    assert np.sum(shares) > 1.0  # by rounding
    for make in (lambda: PCA(1), lambda: IncrementalPCA(1), lambda: KernelPCA(1)):
        with pytest.warns(GpuKPCAWarning, match="fewer than two rows"):
            model = make().fit(X[:45], sample_weight=shares)
        np.testing.assert_allclose(model.explained_variance_ * 45, make().fit(X[:45]).explained_variance_ * 44)
    model = PCA(2).fit(X, sample_weight=0.37 * ones)
    assert PCA.from_sklearn(model.as_sklearn()).n_samples_ == model.n_samples_
    with pytest.raises(InvalidParameterError, match="means without weights"):
        KernelPCA(2).fit(X, sample_weight=ones).as_sklearn()


def test_the_scale_of_the_weights_changes_no_axis(data):
    X, w, _ = data
    for make in (
        lambda: PCA(3),
        lambda: IncrementalPCA(3),
        lambda: KernelPCA(3, kernel="rbf", gamma=0.01),
        lambda: KernelPCA(3, kernel="rbf", gamma=0.01, eigen_solver=Nystrom(landmarks=list(range(20)))),
    ):
        model = make().fit(X, sample_weight=np.maximum(w, 1.0))
        for factor in (7.25, 1e-12, 1e12):
            with pytest.warns(GpuKPCAWarning, match="fewer than two rows") if factor < 1 else config_context():
                other = make().fit(X, sample_weight=factor * np.maximum(w, 1.0))
            agree(other, model, ("explained_variance_ratio_", "components_"), X, 1e-9)
            if factor < 1:  # variances of a population
                total = np.sum(np.maximum(w, 1.0))
                np.testing.assert_allclose(
                    other.explained_variance_ * total, model.explained_variance_ * (total - 1.0), rtol=1e-9
                )
    assert PCA(2).fit(X, sample_weight=np.ones(60)).components_.tobytes() == PCA(2).fit(X).components_.tobytes()


def test_weights_of_any_range_leave_scores_and_files(data, tmp_path):
    X, w, _ = data
    ones, fading = np.maximum(w, 1.0), 0.5 ** np.maximum(0.0, 30.0 * np.arange(-40, 20))  # whose roots underflow
    for make in (
        lambda: PCA(2),
        lambda: IncrementalPCA(2),
        lambda: KernelPCA(2, kernel="rbf", gamma=0.01),
        lambda: KernelPCA(2, kernel="rbf", gamma=0.01, eigen_solver=Nystrom(rank=20), random_state=0),
        lambda: KernelPCA(2, kernel="rbf", gamma=0.01, eigen_solver=Nystrom(landmarks=X[::3])),
    ):
        model = make()
        scores = model.fit_transform(X.astype("float32"), sample_weight=fading)
        np.testing.assert_allclose(scores, model.transform(X.astype("float32")), atol=1e-4 * np.max(np.abs(scores)))
        for sums in (1e22, 1e-22):
            for rows in (X, Slices(X)):
                with pytest.warns(GpuKPCAWarning, match="fewer than two rows") if sums < 1 else config_context():
                    model = make().fit(rows, sample_weight=sums * ones / ones.sum())
                model.save(tmp_path / "m")
                assert gpukpca.load(tmp_path / "m").transform(X).tobytes() == model.transform(X).tobytes()
                assert getattr(model, "plan_", None) is None or model.plan_.n_samples == 60
    model = KernelPCA(2, eigen_solver=Nystrom(landmarks=X[::3])).partial_fit(X, sample_weight=np.full(60, 1e15))
    with pytest.raises(InvalidParameterError, match="pass the same weights"):  # and makes no 6e16 row numbers
        gpukpca.residuals(model, X)


@pytest.mark.filterwarnings("ignore:sample_weight counts fewer than two rows")
def test_rows_of_weight_zero_may_hold_anything(data, rng):
    X, w, _ = data
    solvers = "covariance_eigh", "dual", "full", "randomized"
    # A column that is constant elsewhere, and the fill values of netCDF and others.
    for dtype, (first, others) in product(("float64", "float32"), ((0.0, None), (7.1, None), (None, 9.96921e36))):
        rows = X.astype(dtype)
        if first is not None:
            rows[w > 0, 0] = first
        if others is not None:
            rows[w == 0] = others
        for center, scale, solver in product((True, False), (True, False), solvers):
            model = PCA(2, svd_solver=solver, center=center, scale=scale, random_state=0)
            kept = PCA(2, svd_solver=solver, center=center, scale=scale, random_state=0)
            kept.fit(rows[w > 0], sample_weight=w[w > 0])
            for container in (np.asarray, lambda X: Batches([X[:20], X[20:]]), sp.csr_array):
                if solver != "full" or container is not sp.csr_array:
                    agree(model.fit(container(rows), sample_weight=w), kept, OF_PCA, rows[w > 0], 1e-4)
    for _ in range(200):
        with pytest.warns(RankWarning):  # one row that counts has no variance
            model = PCA(1, svd_solver="dual").fit(rng.standard_normal((2, 7)), sample_weight=[0.7, 0.0])
        assert model.explained_variance_[0] == model.total_variance_ == 0.0


def test_weights_work_in_every_library(data, xp):
    X, w, R = data
    for dtype, tol in (("float64", 1e-10), ("float32", 2e-4)):
        rows = xp.array(X.astype(dtype))
        for weights in (w, xp.array(w)):
            for make in (
                lambda: PCA(3),
                lambda: KernelPCA(3, kernel="rbf", gamma=0.01),
                lambda: IncrementalPCA(3, batch_size=200),
            ):
                scores = make().fit_transform(rows, sample_weight=weights)
                assert xp.owns(scores)
                expected = make().fit(R).transform(X)
                np.testing.assert_allclose(xp.host(scores), expected, atol=tol * np.max(np.abs(expected)))


def test_weights_that_are_none_are_refused(data):
    X, w, _ = data
    bad = w.copy()
    for k, value in ((3, -1.0), (4, np.nan), (5, np.inf)):
        bad = w.copy()
        bad[k] = value
        for model in (PCA(2), KernelPCA(2), IncrementalPCA(2)):
            with pytest.raises(InvalidParameterError, match=rf"entry {k} is {value}"):
                model.fit(X, sample_weight=bad)
    for weights, words in (
        (w[:5], r"shape is \(5,\), and X has 60 rows"),
        (np.ones((60, 2)), r"shape is \(60, 2\)"),
        (0.0 * w, "all weights are zero"),
        (w + 1j, "holds no real numbers"),
        (["a"] * 60, "holds no real numbers"),
        (np.ma.array(w, mask=w > 1), "holds no real numbers"),
        (np.full(60, 1e308), "the sum is inf, and from 1e-24 to 1e"),
        (np.full(60, 1e-30), "the sum is 6e-29, and from 1e-24 to 1e"),
    ):
        for model in (PCA(2), KernelPCA(2), IncrementalPCA(2)):
            with pytest.raises(InvalidParameterError, match=words) as error:
                model.fit(X, sample_weight=weights)
            assert error.value.argument == "sample_weight"
            assert not hasattr(model, "components_")
    with pytest.raises(InvalidParameterError, match=r"K\[keep\]\[:, keep\]"):
        KernelPCA(2, kernel="precomputed").fit(X @ X.T, sample_weight=w)
    for preimage in ({"fit_inverse_transform": True}, {"preimage": "ridge"}, {"preimage": "distance_constraint"}):
        with pytest.raises(InvalidParameterError, match="sample_weight is not taken by"):
            KernelPCA(2, kernel="rbf", **preimage).fit(X, sample_weight=w)


def test_audits_take_the_weights_of_the_fit(data):
    X, w, R = data
    for make in (lambda: PCA(2), lambda: PCA(2, center=False), lambda: KernelPCA(2, kernel="rbf", gamma=0.01)):
        model = make().fit(X, sample_weight=w)
        found = gpukpca.residuals(model, X, sample_weight=w)
        expected = gpukpca.residuals(make().fit(R), R)
        for name in ("eigenvalues", "rayleigh_quotients", "ritz_values", "trace"):
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)
        assert np.max(found.residual_norms) <= 1e-7 * found.eigenvalues[0]
        with pytest.raises(InvalidParameterError, match=r"sample_weight|come from"):
            gpukpca.residuals(model, X)
    scores = model.transform(X)
    np.testing.assert_allclose(
        gpukpca.residuals((model.kernel_, scores[w > 0]), X[w > 0], sample_weight=w[w > 0]).eigenvalues,
        model.eigenvalues_,
        rtol=1e-9,
    )
    model = KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(rank=20), random_state=0).fit(X, sample_weight=w)
    found = gpukpca.residuals(model, X, sample_weight=w, passes=2, random_state=0)
    exact = KernelPCA(2, kernel="rbf").fit(X, sample_weight=w).eigenvalues_
    assert np.all((found.bounds[:, 0] <= exact) & (exact <= found.bounds[:, 1]))
    assert found.norm_bound < 1.01 * found.trace_bound <= 1.02 * model.certificate_
    with pytest.raises(InvalidParameterError, match="pass the same weights"):
        gpukpca.residuals(model, X)
    part = np.where(np.arange(60) % 2, 0.25, 1.75)  # whose sum is the number of rows
    for make in (lambda: PCA(2), lambda: IncrementalPCA(2, batch_size=7), lambda: KernelPCA(2)):
        model = make().fit(X, sample_weight=part)
        found = gpukpca.residuals(model, X, sample_weight=part)
        assert np.max(found.residual_norms) <= 0.05 * found.eigenvalues[0]  # of batches approximate
        fractions = make().fit(X, sample_weight=0.3 * part)
        gpukpca.residuals(fractions, X, sample_weight=0.3 * part)
    with pytest.raises(InvalidParameterError, match="pass the same weights"):
        gpukpca.residuals(PCA(2).fit(X, sample_weight=part), X)


def test_the_fixed_point_knows_the_weighted_mean(data):
    X, w, R = data
    how = {"kernel": "rbf", "gamma": 0.01, "preimage": "fixed_point"}
    model, repeated = KernelPCA(3, **how).fit(X, sample_weight=w), KernelPCA(3, **how).fit(R)
    Z = model.transform(X[:5])
    np.testing.assert_allclose(model.inverse_transform(Z), repeated.inverse_transform(Z), atol=1e-6)


def test_pipelines_route_weights(data, tmp_path):
    X, w, R = data
    with config_context(enable_metadata_routing=True):
        for model in (PCA(2), KernelPCA(2, kernel="rbf", gamma=0.1)):
            scaler = StandardScaler().set_fit_request(sample_weight=True)
            pipeline = make_pipeline(scaler, model.set_fit_request(sample_weight=True)).fit(X, sample_weight=w)
            repeated = make_pipeline(StandardScaler(), type(model)(**model.get_params())).fit(R)
            np.testing.assert_allclose(pipeline.transform(X), repeated.transform(X), atol=1e-9)
    model = PCA(2).fit(X, sample_weight=0.5 * w)
    model.save(tmp_path / "m")
    loaded = gpukpca.load(tmp_path / "m")
    assert loaded.n_samples_ == model.n_samples_ == float(np.sum(w)) / 2.0
    assert loaded.as_sklearn().transform(X[:3]).shape == (3, 2)


def test_landmarks_have_the_numbers_that_they_have_in_all_rows(data, tmp_path):
    X, w, _ = data
    assert 0 in w[:6]
    keep = np.flatnonzero(w)
    named = np.concatenate([keep[[1, -1]], np.flatnonzero(w == 0)[:2], [59]])  # two of weight 0
    function = oracle.rbf(0.05)
    C, W = oracle.gram(function, X, X[named]), oracle.gram(function, X[named])
    F = np.linalg.solve(np.linalg.cholesky(W), C.T).T
    F = np.sqrt(w)[:, None] * (F - w @ F / w.sum())
    expected = np.linalg.eigvalsh(F.T @ F)[::-1][:2]
    containers = {
        "array": X,
        "list": X.tolist(),
        "frame": pytest.importorskip("pandas").DataFrame(X),
        "CSR": sp.csr_array(X),
        "memory map": mapped(X, tmp_path),
        "set": Slices(X),
    }
    solvers = (
        Nystrom(landmarks=named),
        Nystrom(landmarks=named.tolist()),
        Nystrom(rank=9),
        Nystrom(rank=9, landmarks="uniform"),
    )
    for solver, (name, rows) in product(solvers, containers.items()):
        model = KernelPCA(2, kernel="rbf", gamma=0.05, eigen_solver=solver, random_state=0).fit(rows, sample_weight=w)
        basis = np.asarray(model.X_fit_.toarray() if name == "CSR" else model.X_fit_)
        np.testing.assert_array_equal(basis, X[model.landmarks_], err_msg=f"{name}, {solver}")
        if not isinstance(solver.landmarks, str):
            np.testing.assert_array_equal(np.sort(model.landmarks_), np.sort(named))
            np.testing.assert_allclose(model.eigenvalues_, expected, rtol=1e-9, err_msg=name)
        else:
            assert np.all(w[model.landmarks_] > 0)
        model.save(tmp_path / "model")
        assert gpukpca.load(tmp_path / "model").transform(X).tobytes() == model.transform(X).tobytes()
    fit = fit_kernel_pca(X, RBF(0.05), 2, sample_weight=w, settings=KernelPCASettings(solver=solvers[0]))
    np.testing.assert_allclose(fit.spectrum.eigenvalues, expected, rtol=1e-9)
    for solver in (Nystrom(landmarks=keep[::3]), Nystrom(landmarks=named)):  # a function of two rows is stored
        model = KernelPCA(2, kernel=function, eigen_solver=solver)
        if np.all(w[list(solver.landmarks)] > 0):
            np.testing.assert_array_equal(np.sort(model.fit(X, sample_weight=w).landmarks_), keep[::3])
        else:
            with pytest.raises(InvalidParameterError, match="a landmark is a row of weight 0"):
                model.fit(X, sample_weight=w)
    Z = X.copy()
    Z[named[2]] = np.nan
    for rows in (Z, sp.csr_array(Z), mapped(Z, tmp_path), Slices(Z)):
        with pytest.raises(ValueError, match="NaN"):  # a landmark has numbers, whatever its weight
            KernelPCA(2, kernel="rbf", eigen_solver=solvers[0]).fit(rows, sample_weight=w)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_rows_of_weight_zero_need_no_numbers_in_any_container(data, tmp_path):
    X, w, _ = data
    keep = w > 0
    S = X[keep][::4]
    makers = {
        "PCA": lambda: PCA(2),
        "full": lambda: PCA(2, svd_solver="full"),
        "dual": lambda: PCA(2, svd_solver="dual"),
        "incremental": lambda: IncrementalPCA(6, batch_size=60),
        "kernel": lambda: KernelPCA(2, kernel="rbf", gamma=0.05),
        "points": lambda: KernelPCA(2, kernel="rbf", gamma=0.05, eigen_solver=Nystrom(landmarks=S)),
    }
    for fill, (name, make) in product((np.nan, np.inf), makers.items()):
        Z = X.copy()
        Z[~keep] = fill
        expected = make().fit(X[keep], sample_weight=w[keep])
        for container, rows in held_by_all(Z, tmp_path):
            is_iterable = container in ("short batches", "sparse batches")
            if is_iterable and name not in ("PCA", "full", "dual"):
                continue  # which takes weights with each batch
            if name == "full" and container in ("CSR", "CSC", "COO", "view of CSR"):
                continue
            if name == "incremental" and container == "Dask":
                continue  # chunk by chunk
            model = make().fit(rows, sample_weight=w)
            names = ("explained_variance_", "eigenvalues_", "components_", "total_variance_")
            agree(model, expected, names, X[keep], 1e-8, unsigned=True, why=f"{name} of {container}")
            if not is_iterable and container not in ("Dask", "sparse set"):
                with pytest.raises(ValueError, match=r"NaN|infin|finite"):  # which has no scores
                    make().fit_transform(rows, sample_weight=w)
        if hasattr(make(), "partial_fit"):
            model = make().partial_fit(Z[:30], sample_weight=w[:30]).partial_fit(Z[30:], sample_weight=w[30:])
            agree(model, expected, ("explained_variance_",), X[keep], 1e-8, unsigned=True, why=name)
        bad, row = Z.copy(), np.flatnonzero(keep)[5]
        bad[row, 2] = np.nan
        with pytest.raises(ValueError, match=rf"row {row}, column 2"):
            make().fit(bad, sample_weight=w)
    for make in makers.values():
        of_objects = make().fit(Z, sample_weight=w.astype(object))
        expected = make().fit(Z, sample_weight=w)
        np.testing.assert_array_equal(of_objects.explained_variance_, expected.explained_variance_)
    for wrong in (["a"] * 60, [None] * 60):
        with pytest.raises(InvalidParameterError, match="sample_weight"):
            PCA(2).fit(X, sample_weight=wrong)
    kernel = KernelPCA(2, kernel="rbf", gamma=0.05).fit(Z, sample_weight=w)
    assert np.all(np.isfinite(gpukpca.residuals(kernel, Z, sample_weight=w).residual_norms))
    assert np.all(np.isfinite(gpukpca.residuals(PCA(2).fit(Z, sample_weight=w), Z, sample_weight=w).residual_norms))
