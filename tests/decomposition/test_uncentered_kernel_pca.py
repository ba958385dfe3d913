"""KernelPCA with center=False: eigenpairs of K itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import aslinearoperator

from gpukpca import PCA, Batches, KernelPCA, Nystrom, load, residuals
from gpukpca.algorithms import KernelPCASettings, fit_kernel_pca
from gpukpca.exceptions import GpuKPCAWarning, InvalidParameterError
from gpukpca.gram import CenteredGram, DenseGram
from gpukpca.kernels import RBF, Laplacian, Linear, Polynomial
from gpukpca.model_selection import KernelPCACV, n_components_for
from tests import oracle, tolerances
from tests.each import each

N, P = 90, 3
X = np.random.default_rng(0).standard_normal((N, 5)) * [3.0, 2.0, 1.0, 0.5, 0.25] + 1.5
KERNELS = {
    "rbf": (RBF(0.05), oracle.rbf(0.05)),
    "flat": (RBF(1e-3), oracle.rbf(1e-3)),  # k - 1 with centering
    "linear": (Linear(), oracle.linear),
    "poly": (Polynomial(2, 0.1, 1.0), oracle.poly(2, 0.1, 1.0)),
    "sum": (Laplacian(0.05) + 2.0 * RBF(0.1), lambda x, y: oracle.laplacian(0.05)(x, y) + 2.0 * oracle.rbf(0.1)(x, y)),
    "function": (oracle.laplacian(0.05), oracle.laplacian(0.05)),
}
SOLVERS = [("auto", "auto"), ("dense", "dense"), ("randomized", "tiled"), ("arpack", "dense")]


def assert_is_eigh(model, scores, K, host=np.asarray, dtype="float64"):
    """Check a fit with its scores against LAPACK's eigenpairs of K in float64."""
    values, U = oracle.eigenpairs(K)
    tol = 1e4 * tolerances.eps(dtype) * values[0]
    np.testing.assert_allclose(host(model.eigenvalues_), values[:P], atol=tol)
    np.testing.assert_allclose(np.abs(host(scores)), np.abs(U[:, :P] * np.sqrt(values[:P])), atol=1e4 * tol**0.5 * 1e-6)
    assert model.total_variance_ == pytest.approx(np.trace(K) / (N - 1), rel=1e4 * tolerances.eps(dtype))
    assert not np.any(host(model.offset_))


@each("name", KERNELS)
@each("solver", SOLVERS)
def test_every_solver_and_storage_finds_the_eigenpairs_of_the_kernel_matrix(name, solver):
    kernel, function = KERNELS[name]
    gram = "auto" if name == "function" else solver[1]
    options = {"eigen_solver": solver[0], "gram": gram, "tol": 1e-11, "random_state": 0}
    model = KernelPCA(P, kernel=kernel, center=False, **options)
    scores = model.fit_transform(X)
    assert_is_eigh(model, scores, oracle.gram(function, X))
    np.testing.assert_allclose(model.transform(X), scores, atol=1e-8 * np.abs(scores).max())


@each("name", ["rbf", "linear", "poly"])
@each("solver", ["dense", "randomized"])
@each("dtype", ["float64", "float32"])
def test_every_library_gives_the_eigenpairs_of_the_kernel_matrix(xp, name, solver, dtype):
    kernel, function = KERNELS[name]
    rows = X.astype(dtype)
    model = KernelPCA(P, kernel=kernel, center=False, eigen_solver=solver, random_state=0)
    scores = model.fit_transform(xp.array(rows))
    assert xp.owns(scores)
    K = oracle.gram(function, rows.astype(np.float64))
    values = np.linalg.eigvalsh(K)[::-1][:P]
    np.testing.assert_allclose(xp.host(model.eigenvalues_), values, atol=1e4 * tolerances.eps(dtype) * values[0])
    np.testing.assert_allclose(
        xp.host(model.transform(xp.array(rows))), xp.host(scores), atol=3e4 * tolerances.eps(dtype) * values[0] ** 0.5
    )


def test_containers_give_one_answer(tmp_path):
    kernel, function = KERNELS["rbf"]
    K = oracle.gram(function, X)
    file = np.memmap(tmp_path / "rows", X.dtype, "w+", shape=X.shape)
    file[:] = X
    given = [(kernel, rows) for rows in (file, scipy.sparse.csr_array(X))]
    given += [("precomputed", K), ("precomputed", scipy.sparse.csr_array(K)), ("precomputed", _WithDiagonal(K))]
    for kind, rows in given:
        model = KernelPCA(P, kernel=kind, center=False, tol=1e-11, random_state=0)
        scores = model.fit_transform(rows)
        assert_is_eigh(model, scores, K)
    matrix = KernelPCA(P, kernel="precomputed", center=False).fit(K)
    np.testing.assert_allclose(matrix.transform(K[:7]), matrix.fit_transform(K)[:7], atol=1e-10)
    model = KernelPCA(P, kernel="precomputed", center=False, tol=1e-11).fit(aslinearoperator(K))
    np.testing.assert_allclose(model.eigenvalues_, matrix.eigenvalues_, rtol=1e-10)
    sparse = scipy.sparse.csr_array(np.where(np.abs(X) < 1.0, 0.0, X))
    for name in ("linear", "poly"):
        models = [KernelPCA(P, kernel=KERNELS[name][0], center=False).fit(rows) for rows in (sparse, sparse.toarray())]
        np.testing.assert_allclose(models[0].eigenvalues_, models[1].eigenvalues_, rtol=1e-8)


class _WithDiagonal:
    """A kernel matrix that is known by its products and its diagonal."""

    def __init__(self, K):
        self.K, self.shape, self.dtype = K, K.shape, K.dtype

    def __matmul__(self, V):
        return self.K @ V

    def diagonal(self):
        return np.diagonal(self.K)


def test_a_centered_matrix_gives_the_centered_answer():
    Kc = oracle.centered(oracle.gram(oracle.rbf(0.05), X))
    one, other = (KernelPCA(P, kernel="precomputed", center=center).fit(Kc) for center in (True, False))
    np.testing.assert_allclose(one.eigenvalues_, other.eigenvalues_, rtol=1e-12)
    np.testing.assert_allclose(one.fit_transform(Kc), other.fit_transform(Kc), atol=1e-11)
    rows = np.round(X * 2**10)
    rows = np.concatenate([rows, -rows])
    one, other = (KernelPCA(P, center=center).fit(rows) for center in (True, False))
    np.testing.assert_allclose(one.transform(rows), other.transform(rows), atol=1e-10 * np.abs(rows).max())


def test_the_linear_kernel_has_the_scores_of_pca_without_a_mean():
    s = np.linalg.svd(X)[1]
    for solver in ("auto", "dense", "randomized", Nystrom(rank=5)):
        model = KernelPCA(5, center=False, eigen_solver=solver, preimage="ridge", random_state=0).fit(X)
        np.testing.assert_allclose(model.eigenvalues_, s**2, rtol=1e-7)
        np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-6)
        np.testing.assert_allclose(model.transform(np.zeros((1, 5))), 0.0, atol=1e-12)


def test_landmarks_of_the_linear_kernel_span_a_space_through_zero():
    rows = np.random.default_rng(0).standard_normal((40, 100)) + 1.0
    model = KernelPCA(10, center=False, preimage="ridge", eigen_solver=Nystrom(rank=30), random_state=0).fit(rows)
    assert model.X_fit_.shape == (30, 100)
    scores = model.transform(rows)
    np.testing.assert_allclose(model.transform(model.inverse_transform(scores)), scores, atol=1e-10)
    np.testing.assert_allclose(model.inverse_transform(np.zeros((1, 10))), 0.0, atol=1e-12)


def test_a_search_keeps_candidates_with_and_without_centering_apart():
    both, *each_one = (
        KernelPCACV("rbf", gammas=0.05, n_components=[2, 4], param_grid={"center": choice}, cv=3).fit(X)
        for choice in ([True, False], [True], [False])
    )
    alone = [score for search in each_one for score in search.cv_results_["mean_test_score"]]
    np.testing.assert_allclose(both.cv_results_["mean_test_score"], alone, rtol=1e-9)
    assert abs(alone[0] - alone[2]) > 1e-6


def test_pre_images_of_all_components_give_the_rows_again():
    for preimage, error in (("ridge", 1e-2), ("fixed_point", 0.3), ("distance_constraint", 0.3)):
        model = KernelPCA(60, kernel=RBF(0.05), center=False, preimage=preimage, alpha=1e-8).fit(X)
        assert np.abs(model.inverse_transform(model.transform(X)) - X).max() < error
    # The distance from the span of the axes through 0: k(x, x) less the squares of the scores.
    fit = fit_kernel_pca(X, RBF(0.05), P, settings=KernelPCASettings(center=False))
    np.testing.assert_allclose(fit.space.errors(X, P), 1.0 - (fit.scores**2).sum(axis=1), atol=1e-12)


@each("name", ["rbf", "flat", "poly", "linear"])
@each("source", ["memory", "csr", "stream", "batches", "points"])
def test_nystrom_is_bounded_by_its_certificate(name, source):
    kernel, function = KERNELS[name]
    K = oracle.gram(function, X)
    values = np.linalg.eigvalsh(K)[::-1]
    solver = Nystrom(landmarks=X[::4]) if source == "points" else Nystrom(rank=25)
    model = KernelPCA(P, kernel=kernel, center=False, eigen_solver=solver, random_state=0)
    if source == "stream":
        for batch in (X[:50], X[50:]):
            model.partial_fit(batch)
    else:
        model.fit({"csr": scipy.sparse.csr_array(X), "batches": Batches([X[:40], X[40:]])}.get(source, X))
    rounding = 1e-9 * values[0]
    lost = values[:P] - model.eigenvalues_
    assert np.all(lost >= -rounding)
    assert lost.sum() <= model.certificate_ + rounding
    assert model.certificate_ < 0.5 * np.trace(K)
    low, high = model.total_variance_interval_
    assert low - rounding <= np.trace(K) / (N - 1) <= high + rounding
    assert not np.any(model.offset_)
    # A factor F of the landmarks S without centering: F Fᵀ = K(X, S) K(S, S)⁺ K(S, X).
    scores = model.transform(X)
    np.testing.assert_allclose((scores**2).sum(axis=0), model.eigenvalues_, rtol=1e-6)
    approximation = K[:, model.landmarks_] if hasattr(model, "landmarks_") else oracle.gram(function, X, X[::4])
    basis = np.linalg.qr(approximation)[0] if name == "rbf" else np.eye(N)
    residual = scores - basis @ (basis.T @ scores)
    np.testing.assert_allclose(residual, 0.0, atol=1e-7)


def assert_bounds_hold(audit, model, K, dtype="float64"):
    """No eigenvalue of K itself is outside the bounds of an audit, nor the norm and the trace of the error."""
    values = np.linalg.eigvalsh(K)[::-1]
    p, eps = len(audit.eigenvalues), tolerances.eps(dtype)
    allowed = 1e5 * eps * values[0] if dtype == "float64" else 1e3 * eps * values[0]
    assert np.all(audit.bounds[:, 0] - allowed <= values[:p])
    assert np.all(values[:p] <= audit.bounds[:, 1] + allowed)
    lost = values[:p] - audit.landmark_eigenvalues
    assert lost.max() <= audit.norm_bound + allowed
    assert np.maximum(lost, 0.0).sum() <= audit.trace_bound + allowed
    assert audit.trace_bound <= model.certificate_ * (1.0 + 1e-6) + allowed
    np.testing.assert_allclose(audit.landmark_eigenvalues, model.eigenvalues_, atol=10.0 * allowed)
    assert audit.trace == pytest.approx(np.trace(K), rel=1e3 * eps)


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.GpuKPCAWarning")  # of ranks and clusters
def test_no_bound_of_an_audit_is_violated_on_random_problems():
    rng, tight = np.random.default_rng(5), []
    for number in range(120):
        n, d, seed = int(rng.integers(5, 36)), int(rng.integers(1, 6)), int(rng.integers(2**31))
        rows = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-1, 1) + rng.choice([0.0, 100.0])
        gamma = 10.0 ** rng.uniform(-4, 1)
        kernel, function = [
            (RBF(gamma), oracle.rbf(gamma)),
            (Laplacian(gamma), oracle.laplacian(gamma)),
            (Polynomial(2, gamma, 1.0), oracle.poly(2, gamma, 1.0)),
        ][number % 3]
        rank = int(rng.integers(1, n + 1))
        p = int(rng.integers(1, rank + 1))
        model = KernelPCA(p, kernel=kernel, center=False, eigen_solver=Nystrom(rank=rank), random_state=seed).fit(rows)
        audit = residuals(model, rows, passes=1 + number % 2, random_state=seed)
        if audit.bounds is not None:  # not exact features of the kernel
            assert_bounds_hold(audit, model, oracle.gram(function, rows))
            tight.append(audit.norm_bound / audit.trace)
    assert len(tight) > 80
    assert np.median(tight) < 0.1


@each("name", ["rbf", "flat", "sum"])
@each("source", ["memory", "csr", "stream", "batches", "points", "precomputed", "float32"])
def test_landmarks_are_audited_in_every_container(name, source):
    kernel, function = KERNELS[name]
    K, rows, taken = oracle.gram(function, X), X, kernel
    solver = Nystrom(landmarks=X[::4]) if source == "points" else Nystrom(rank=25)
    if source == "precomputed":
        rows, taken = K, "precomputed"
    elif source != "memory":
        rows = {"csr": scipy.sparse.csr_array(X), "batches": Batches([X[:40], X[40:]]), "float32": X.astype("f4")}.get(
            source, X
        )
    model = KernelPCA(P, kernel=taken, center=False, eigen_solver=solver, random_state=0)
    model = model.partial_fit(X[:50]).partial_fit(X[50:]) if source == "stream" else model.fit(rows)
    audit = residuals(model, rows, passes=2, random_state=0)
    assert audit.matrix == "kernel matrix"
    assert_bounds_hold(audit, model, K, source if source == "float32" else "float64")


def test_streams_keep_their_setting_and_go_on_after_a_file(tmp_path):
    model = KernelPCA(P, kernel=RBF(0.05), center=False, eigen_solver=Nystrom(rank=25), random_state=0)
    model.partial_fit(X[:50]).save(tmp_path / "model")
    again = load(tmp_path / "model").partial_fit(X[50:])
    model.partial_fit(X[50:])
    np.testing.assert_allclose(again.eigenvalues_, model.eigenvalues_, rtol=1e-12)
    with pytest.raises(InvalidParameterError, match="center=True is requested now, and was False"):
        model.set_params(center=True).partial_fit(X[:50])


def test_models_are_saved_and_audited_and_functions_agree(tmp_path):
    kernel, function = KERNELS["rbf"]
    model = KernelPCA(P, kernel=kernel, center=False, tol=1e-11, random_state=0).fit(X)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").transform(X), model.transform(X))
    audit = residuals(model, X)
    assert audit.matrix == "kernel matrix"
    assert np.all(audit.residual_norms <= 1e-10 * audit.eigenvalues[0])
    assert audit.trace == pytest.approx(N)
    fit = fit_kernel_pca(X, kernel, P, settings=KernelPCASettings(center=False, tol=1e-11), rng=0)
    np.testing.assert_array_equal(fit.transform(X), model.transform(X))
    assert fit.total_variance == pytest.approx(np.trace(oracle.gram(function, X)) / (N - 1))


def test_what_is_of_centered_matrices_alone_refuses():
    model = KernelPCA(P, kernel=RBF(0.05), center=False).fit(X)
    overflowing = np.full((4, 4), np.finfo(np.float64).max)
    attempts = (
        (model.as_sklearn, "KernelPCA always centers"),
        (lambda: n_components_for(model, value=0.5), "center=False"),
        (lambda: KernelPCA(P, center=1.5).fit(X), r"center=1\.5"),
        (lambda: CenteredGram(DenseGram(np.eye(3)), center="no"), "center='no'"),
        (lambda: KernelPCA(1, kernel="precomputed", center=False).fit(overflowing), "overflow"),
    )
    for attempt, words in attempts:
        with pytest.raises(InvalidParameterError, match=words):
            attempt()


def test_one_component_separates_rings_only_without_centering():
    """The first of x ↦ (x₁², √2 x₁x₂, x₂²) is ‖x‖² without centering: its mean square exceeds its variance."""
    angles = np.linspace(0.0, 2.0 * np.pi, 60, endpoint=False)
    radii = np.repeat([1.0, 2.0, 3.0], 60)
    rings = radii[:, None] * np.tile(np.stack([np.cos(angles), np.sin(angles)], axis=1), (3, 1))
    for center in (False, True):
        z = KernelPCA(3, kernel=Polynomial(2, 1.0, 0.0), center=center).fit_transform(rings)[:, 0]
        parts = [np.abs(z[radii == r]) for r in (1.0, 2.0, 3.0)]
        separated = all(inner.max() < outer.min() for inner, outer in itertools.pairwise(parts))
        assert separated != center
        if not center:
            np.testing.assert_allclose(np.abs(z), radii**2 / np.sqrt(2.0), rtol=1e-10)


def test_a_published_matrix_has_the_numbers_of_princomp_and_spss():
    """The spectral decomposition of the matrix itself, on which scores of rows follow."""
    pandas, rng = pytest.importorskip("pandas"), np.random.default_rng(3)
    rows = rng.standard_normal((60, 6)) @ rng.standard_normal((6, 6))
    pairwise = np.corrcoef(rows.T).round(2)
    usarrests = np.eye(4)  # of R, whose sdev are known
    usarrests[np.triu_indices(4, 1)] = 0.80187331, 0.06957262, 0.56357883, 0.25887170, 0.66524123, 0.41134124
    usarrests += np.triu(usarrests, 1).T
    names = list("abcdef")
    for matrix in (np.cov(rows.T), np.corrcoef(rows.T), pairwise, usarrests):
        d = len(matrix)
        values, V = (part[..., ::-1] for part in np.linalg.eigh(matrix))
        frame = pandas.DataFrame(matrix, index=names[:d], columns=names[:d])
        for given, count in ((matrix, None), (frame, None), (frame, 2), (scipy.sparse.csr_array(matrix), 2)):
            model = KernelPCA(count, kernel="precomputed", center=False, eigen_solver="dense")
            components, p = model.fit_transform(given), count or d
            np.testing.assert_allclose(model.eigenvalues_, values[:p], rtol=1e-12)
            shares = values[:p] / np.trace(matrix)
            np.testing.assert_allclose(model.explained_variance_ratio_, shares, rtol=1e-12)
            np.testing.assert_allclose(np.abs(model.eigenvectors_), np.abs(V[:, :p]), atol=1e-11)
            np.testing.assert_allclose(components, model.eigenvectors_ * np.sqrt(values[:p]), atol=1e-11)
            residual = matrix - components @ components.T
            left = np.trace(matrix) - np.sum(values[:p])
            assert np.trace(residual) == pytest.approx(left, abs=1e-11 * np.trace(matrix))
    np.testing.assert_allclose(np.sqrt(values), [1.5748783, 0.9948694, 0.5971291, 0.4164494], rtol=1e-7)
    Z = (rows - rows.mean(axis=0)) / rows.std(axis=0, ddof=1)
    model = KernelPCA(2, kernel="precomputed", center=False).fit(np.corrcoef(rows.T))
    expected = PCA(2, scale=True).fit_transform(rows)
    np.testing.assert_allclose(np.abs(Z @ model.eigenvectors_), np.abs(expected), atol=1e-11)


def test_a_labelled_matrix_of_variables_that_is_centered_is_reported():
    pandas = pytest.importorskip("pandas")
    matrix = np.array([[1.0, -0.5, 0.2], [-0.5, 1.0, 0.1], [0.2, 0.1, 1.0]])
    names = ["a", "b", "c"]
    frame = pandas.DataFrame(matrix, index=names, columns=names)
    with pytest.warns(GpuKPCAWarning, match="equal names .* and negative entries.* set center=False") as caught:
        KernelPCA(1, kernel="precomputed").fit(frame)
    assert len(caught) == 1
    silent = {
        "not centered": (frame, False),
        "no names": (matrix, True),
        "numbers": (pandas.DataFrame(matrix), True),
        "names of columns": (pandas.DataFrame(matrix, columns=names), True),
        "kernel": (frame.abs(), True),
        "other order": (pandas.DataFrame(matrix, index=names[::-1], columns=names), True),
    }
    for given, center in silent.values():
        KernelPCA(1, kernel="precomputed", center=center).fit(given)
