"""`residuals`: eigenpairs of any library against dense float64 matrices, and bounds that no data violate."""

from __future__ import annotations

import tracemalloc
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.sparse
import sklearn.decomposition
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from gpukpca import (
    PCA,
    Batches,
    IncrementalPCA,
    KernelPCA,
    KernelPCACV,
    Nystrom,
    ProbabilisticPCA,
    load,
    residuals,
    save,
)
from gpukpca.exceptions import InvalidParameterError, MemoryBudgetError
from gpukpca.kernels import RBF, Laplacian, Linear, Polynomial
from tests import oracle, tolerances

N, D, P = 120, 4, 3


def points(n=N, d=D, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def overlap(x, y, power=1.0):
    """A positive semidefinite function of two rows, as scikit-learn takes it."""
    return float(np.exp(-0.1 * power * ((x - y) ** 2).sum()))


def truth(function, X):
    """K centered, its eigenvalues, descending, and their rounding in a dtype: that of K before it was centered."""
    K = oracle.gram(function, X)
    size = np.linalg.norm(K, 2)
    Kc = oracle.centered(K)
    values = oracle.eigenpairs(Kc)[0]
    return SimpleNamespace(Kc=Kc, values=values, rounding=lambda dtype="float64": tolerances.eigenvalue(dtype) * size)


def check_pairs(audit, true, U, dtype="float64"):
    """The numbers of an audit are those of unit columns of U, from dense products; each interval has an eigenvalue."""
    U = np.asarray(U, dtype=np.float64)
    U = U / np.linalg.norm(U, axis=0)
    W, allowed = true.Kc @ U, true.rounding(dtype)
    theta = np.sum(U * W, axis=0)
    assert np.max(np.abs(audit.rayleigh_quotients - theta)) <= allowed
    r = np.linalg.norm(W - U * theta, axis=0)
    assert np.all(audit.residual_norms >= r - allowed)
    assert np.all(audit.residual_norms <= r + allowed + 4.0 * audit.rounding)
    low, high = audit.intervals.T
    slack = true.rounding()  # of the dense matrix
    inside = (low[None, :] - slack <= true.values[:, None]) & (true.values[:, None] <= high[None, :] + slack)
    assert np.all(np.any(inside, axis=0))
    ritz = scipy.linalg.eigh(U.T @ W, U.T @ U, eigvals_only=True)[::-1]
    assert np.max(np.abs(audit.ritz_values - ritz)) <= 8.0 * allowed
    assert np.isclose(audit.trace, np.trace(true.Kc), rtol=100.0 * tolerances.eps(dtype))


def check_bounds(audit, true):
    """Every eigenvalue lies in its bounds, and the norm of E and the sum of the errors in theirs."""
    p, allowed = len(audit.eigenvalues), true.rounding()
    low, high = audit.bounds.T
    assert np.all(low - allowed <= true.values[:p])
    assert np.all(true.values[:p] <= high + allowed)
    errors = true.values[:p] - audit.landmark_eigenvalues
    assert np.max(errors) <= audit.norm_bound + allowed
    assert audit.trace_bound is None or np.sum(np.maximum(errors, 0.0)) <= audit.trace_bound + allowed


# -- the bounds of landmarks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gamma", "error", "trace", "one", "two"), [(0.5, 0.106, 23.5, 1.68, 0.43), (0.1, 0.008, 1.60, 0.18, 0.053)]
)
def test_one_pass_tightens_the_certificate_of_digits_and_a_second_one_again(gamma, error, trace, one, two):
    X = load_digits().data / 16.0
    settings = {"n_components": 10, "kernel": "rbf", "gamma": gamma, "random_state": 0}
    model = KernelPCA(**settings, eigen_solver=Nystrom(rank=200, bound_rows=0)).fit(X)
    values = KernelPCA(**settings).fit(X).eigenvalues_
    first, second = (residuals(model, X, passes=passes, random_state=1) for passes in (1, 2))
    assert np.isclose(np.max(values - model.eigenvalues_) / values[0], error, rtol=0.05)
    found = np.array([first.trace_bound, first.norm_bound, second.norm_bound]) / values[0]
    assert np.allclose(found, [trace, one, two], rtol=0.15)  # landmarks and vectors are random
    for audit in (first, second):
        assert np.all((audit.bounds[:, 0] <= values) & (values <= audit.bounds[:, 1]))
        assert np.allclose(audit.landmark_eigenvalues, model.eigenvalues_, rtol=1e-10)
        assert audit.failure_probability == 2.0**-30
    assert (first.n_passes, first.n_products, second.n_passes, second.n_products) == (1, 40, 2, 70)
    better = np.max(np.abs(first.ritz_values - values)) / np.max(np.abs(model.eigenvalues_ - values))
    assert better < 0.2  # the Ritz values of the same product are nearer


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.GpuKPCAWarning")  # of ranks and clusters
def test_no_bound_is_violated_on_random_problems():
    rng, checked = np.random.default_rng(5), 0
    for number in range(100):
        n, d, seed = int(rng.integers(5, 36)), int(rng.integers(1, 6)), int(rng.integers(2**31))
        X = points(n, d, seed) * 10.0 ** rng.uniform(-1, 1) + rng.choice([0.0, 100.0])
        gamma = 10.0 ** rng.uniform(-4, 1)
        kernel, function = [
            (RBF(gamma), oracle.rbf(gamma)),
            (Laplacian(gamma), oracle.laplacian(gamma)),
            (Polynomial(2, gamma, 1.0), oracle.poly(2, gamma, 1.0)),
        ][number % 3]
        true, rank = truth(function, X), int(rng.integers(1, n + 1))
        p = int(rng.integers(1, rank + 1))
        model = KernelPCA(
            p, kernel=kernel, eigen_solver=Nystrom(rank, bound_rows=(0, None)[number % 2]), random_state=seed
        ).fit(X)
        audit = residuals(model, X, passes=1 + number % 2, random_state=seed)
        if model._result.landmarks is None:  # exact features of the kernel
            assert audit.bounds is None
            continue
        check_bounds(audit, true)
        checked += 1
        # The trace is that of E centered, so it is no larger but for rounding, of rows far from 0 too.
        assert audit.trace_bound <= model.certificate_ + 1e-6 * (model.certificate_ + true.values[0])
    assert checked > 70


def test_the_bound_keeps_its_digits_where_the_kernel_is_nearly_flat():
    """Features relative to a base point have a constant that is 1e8 times their size."""
    X = points()
    model = KernelPCA(P, kernel=RBF(1e-8), eigen_solver=Nystrom(rank=8), random_state=0).fit(X)
    audit = residuals(model, X, random_state=0)
    assert 0.9 * model.certificate_ < audit.trace_bound <= model.certificate_
    assert audit.norm_bound < 1e-5 * model.eigenvalues_[0]


def test_landmarks_that_are_all_rows_leave_rounding():
    X = points(40)
    model = KernelPCA(P, kernel=RBF(0.1), eigen_solver=Nystrom(rank=40), random_state=0).fit(X)
    audit = residuals(model, X, passes=2, random_state=0)
    assert audit.bound < 1e-9 * model.eigenvalues_[0]
    check_bounds(audit, truth(oracle.rbf(0.1), X))


# -- every library of arrays -------------------------------------------------------------------------------------------


def test_pairs_and_bounds_are_right_in_every_library(xp, dtype):
    X = points().astype(dtype)
    true, there = truth(oracle.rbf(0.1), X), xp.array(X)
    exact = KernelPCA(P, kernel="rbf", gamma=0.1, random_state=0).fit(there)
    audit = residuals(exact, there)
    check_pairs(audit, true, xp.host(exact.eigenvectors_), dtype)
    assert audit.bounds is None
    model = KernelPCA(P, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(rank=15), random_state=0).fit(there)
    for passes in (1, 2):
        audit = residuals(model, there, passes=passes, random_state=0)
        check_pairs(audit, true, xp.host(model.eigenvectors_), dtype)
        check_bounds(audit, true)
    variances = oracle.variances(X)
    audit = residuals(PCA(P).fit(there), there)
    assert np.max(np.abs(audit.rayleigh_quotients - variances[:P])) <= tolerances.eigenvalue(dtype) * variances[0]
    assert np.max(audit.residual_norms) <= tolerances.residual(dtype) * variances[0]
    assert np.isclose(audit.trace, np.sum(variances), rtol=100.0 * tolerances.eps(dtype))


def test_a_model_in_float32_is_audited_in_float64():
    X = points()
    model = KernelPCA(P, kernel="rbf", gamma=0.1, random_state=0).fit(X.astype("float32"))
    audit, true = residuals(model, X), truth(oracle.rbf(0.1), X)
    check_pairs(audit, true, model.eigenvectors_)
    assert 1e-9 < np.max(audit.residual_norms) / true.values[0] < 1e-4  # what float32 left


# -- models of anybody -------------------------------------------------------------------------------------------------


def test_models_of_scikit_learn_are_audited_as_they_are():
    X = points()
    peers = {
        "rbf": (oracle.rbf(0.1), {"gamma": 0.1}),
        "poly": (oracle.poly(2, 0.3, 1.0), {"degree": 2, "gamma": 0.3, "coef0": 1.0}),
        "linear": (oracle.linear, {}),
        "sigmoid": (oracle.sigmoid(0.01, 1.0), {"gamma": 0.01}),
        "cosine": (oracle.cosine, {}),
        overlap: (oracle.rbf(0.2), {"kernel_params": {"power": 2.0}}),
    }
    for kernel, (function, options) in peers.items():
        peer = sklearn.decomposition.KernelPCA(P, kernel=kernel, **options).fit(X)
        audit, true = residuals(peer, X), truth(function, X)
        check_pairs(audit, true, peer.eigenvectors_)
        assert np.max(np.abs(audit.eigenvalues - true.values[:P])) <= true.rounding()
    K = oracle.gram(oracle.rbf(0.1), X)
    peer = sklearn.decomposition.KernelPCA(P, kernel="precomputed").fit(K.copy())
    check_pairs(residuals(peer, K), truth(oracle.rbf(0.1), X), peer.eigenvectors_)


def test_a_model_from_a_file_or_from_scikit_learn_is_audited_as_before(tmp_path):
    X = points()
    landmarks = KernelPCA(P, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(rank=15), random_state=0).fit(X)
    for model in (landmarks, PCA(P).fit(X)):
        save(model, tmp_path / "model.safetensors")
        expected, audit = residuals(model, X), residuals(load(tmp_path / "model.safetensors"), X)
        assert np.array_equal(audit.residual_norms, expected.residual_norms)
    for kernel, rows in (("rbf", X), ("precomputed", oracle.gram(oracle.rbf(0.1), X))):
        peer = sklearn.decomposition.KernelPCA(P, kernel=kernel, gamma=0.1).fit(rows.copy())
        audit = residuals(KernelPCA.from_sklearn(peer), rows)
        check_pairs(audit, truth(oracle.rbf(0.1), X), peer.eigenvectors_)


def test_a_nystrom_model_of_an_earlier_version_has_pairs_and_no_bounds():
    """Its file has no sums over the rows of the factor."""
    rows = np.random.default_rng(0).standard_normal((12, 3))  # as its maker drew them
    model = load(Path(__file__).parents[1] / "persistence" / "golden" / "nystrom_1.safetensors")
    audit = residuals(model, rows)
    check_pairs(audit, truth(oracle.rbf(model.kernel_.gamma), rows), model.eigenvectors_)
    assert audit.bounds is None
    assert model.norm_bound_ is None
    assert "earlier version" in model.norm_bound_info_.reason


def test_models_of_streams_are_audited_by_their_map():
    X = points(200)
    true = truth(oracle.rbf(0.1), X)
    for gamma, landmarks in ((0.1, "uniform"), (0.1, X[:20] + 0.01), (1e-8, "uniform")):
        rank = 20 if isinstance(landmarks, str) else None
        settings = {"kernel": "rbf", "gamma": gamma, "random_state": 0}
        settings["eigen_solver"] = Nystrom(rank=rank, landmarks=landmarks)
        by_parts = KernelPCA(P, **settings)
        for batch in (X[:90], X[90:]):
            by_parts.partial_fit(batch)
        for model in (by_parts, KernelPCA(P, **settings).fit(Batches([X[:90], X[90:]]))):
            audit = residuals(model, X, passes=2, random_state=0)
            assert np.allclose(audit.landmark_eigenvalues, model.eigenvalues_, rtol=1e-9)
            assert 0.8 * model.certificate_ < audit.trace_bound <= model.certificate_ * (1 + 1e-9)
            assert audit.skew < 1e-6
            if gamma == 0.1:
                check_pairs(audit, true, model.transform(X) - model.transform(X).mean(axis=0))
                check_bounds(audit, true)
        with pytest.raises(InvalidParameterError, match="X has 90 rows, and the model or the scores come from 200"):
            residuals(model, X[:90])


def test_a_device_computes_for_rows_and_models_of_the_host(cuda):
    X = points()
    settings = {"n_components": P, "kernel": "rbf", "gamma": 0.1, "random_state": 0}
    for model in (KernelPCA(**settings), KernelPCA(**settings, eigen_solver=Nystrom(rank=15)), PCA(P)):
        expected = residuals(model.fit(X), X, passes=2, random_state=0)
        for there in (residuals(model, X, passes=2, random_state=0, device="cuda"), residuals(model, cuda.asarray(X))):
            assert np.allclose(there.rayleigh_quotients, expected.rayleigh_quotients, rtol=1e-12)
        on_device = clone(model).set_params(device="cuda").fit(X)
        assert np.allclose(residuals(on_device, X).rayleigh_quotients, expected.rayleigh_quotients, rtol=1e-7)


def test_an_inaccurate_solver_is_found_out():
    X, true = points(), truth(oracle.rbf(1.0), points())
    options = {"kernel": "rbf", "gamma": 1.0, "eigen_solver": "randomized", "iterated_power": 0, "random_state": 0}
    peer = sklearn.decomposition.KernelPCA(20, **options).fit(X)
    audit = residuals(peer, X)
    check_pairs(audit, true, peer.eigenvectors_)
    assert np.max(audit.residual_norms) > 0.01 * true.values[0]


# Kernels of scikit-learn's features, with gamma = 0.1.
KERNELS = ("rbf", oracle.rbf(0.1)), ("polynomial", oracle.poly(3, 0.1, 1)), (overlap, oracle.rbf(0.1))


def test_features_and_pca_of_scikit_learn_are_an_approximation_of_kernel_pca():
    for kernel, function in (
        ("rbf", oracle.rbf(0.1)),
        ("polynomial", oracle.poly(3, 0.1, 1)),
        (overlap, oracle.rbf(0.1)),
    ):
        features = Nystroem(kernel, gamma=None if callable(kernel) else 0.1, n_components=20, random_state=0)
        for whiten in (False, True):
            pipeline = make_pipeline(StandardScaler(), features, sklearn.decomposition.PCA(P, whiten=whiten)).fit(
                points()
            )
            X = pipeline[0].transform(points())
            audit, true = residuals(pipeline, points(), passes=2, random_state=0), truth(function, X)
            F = pipeline[1].transform(X)
            F = F - F.mean(axis=0)
            check_pairs(audit, true, F @ pipeline[-1].components_.T)
            check_bounds(audit, true)
            assert np.allclose(audit.landmark_eigenvalues, audit.eigenvalues, rtol=1e-8)
            E = np.linalg.norm(true.Kc - F @ F.T, 2)
            assert E <= audit.norm_bound <= 6.0 * E
            assert audit.trace_bound is None
            assert "for certain" not in str(audit)


def test_features_of_distances_that_cancel_have_no_certain_bound():
    """Far from the origin F Fᵀ of scikit-learn exceeds K in some directions, and so its trace hides what it misses."""
    hidden = 0
    for seed in range(6):
        X = np.random.default_rng(seed).standard_normal((120, 3)) + 1e4
        features = Nystroem(gamma=0.1, n_components=100, random_state=0)
        pipeline = make_pipeline(features, sklearn.decomposition.PCA(30))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            audit = residuals(pipeline.fit(X), X, passes=2, random_state=0)
        assert audit.trace_bound is None
        assert "for certain" not in str(audit)
        true = truth(oracle.rbf(0.1), X)
        check_bounds(audit, true)
        F = oracle.gram(oracle.rbf(0.1), X)[:, features.component_indices_] @ features.normalization_.T
        F = F - F.mean(axis=0)
        missed = np.maximum(true.values[:30] - np.linalg.eigvalsh(F @ F.T)[::-1][:30], 0.0).sum()
        hidden += bool(missed > 1.5 * np.trace(true.Kc - F @ F.T))
    assert hidden


def test_a_pipeline_that_ends_in_a_model_is_that_model_of_its_rows():
    X = points()
    for model in (KernelPCA(P, kernel="rbf", gamma=0.1), PCA(P), sklearn.decomposition.PCA(P)):
        pipeline = make_pipeline(StandardScaler(), "passthrough", model).fit(X)
        audit, alone = residuals(pipeline, X), residuals(model, StandardScaler().fit_transform(X))
        assert np.allclose(audit.rayleigh_quotients, alone.rayleigh_quotients)
    search = KernelPCACV("rbf", gammas=[0.1, 0.2], n_components=[2]).fit(X)
    assert residuals(search, X).n_products == 2
    search = GridSearchCV(make_pipeline(PCA(2)), {"pca__n_components": [1, 2]}, cv=2).fit(X)
    assert residuals(search, X).n_products == search.best_params_["pca__n_components"]


def test_scores_of_anybody_are_directions_one_by_one_and_together():
    rng, X = np.random.default_rng(1), points()
    true = truth(oracle.rbf(0.1), X)
    for Z in (oracle.scores(oracle.gram(oracle.rbf(0.1), X), P), rng.standard_normal((N, P)) * [1.0, 1e6, 1e-6]):
        audit = residuals((RBF(0.1), Z), X)
        check_pairs(audit, true, Z)
        assert np.allclose(audit.eigenvalues, np.sum(Z**2, axis=0))
    skew = abs(float(np.corrcoef(Z[:, 0], Z[:, 1])[0, 1]))  # up to the means
    assert abs(audit.skew - skew) < 0.5
    assert "not orthogonal" in str(audit)
    twice = residuals(("rbf", np.stack([Z[:, 0], 2.0 * Z[:, 0], np.zeros(N)], axis=1)), X)
    assert np.isclose(*twice.rayleigh_quotients[:2])
    assert np.isclose(twice.skew, 1.0)
    assert np.array_equal(np.isfinite(twice.residual_norms), [True, True, False])  # zeros are no direction
    assert np.array_equal(np.isfinite(twice.ritz_values), [True, False, False])  # the span is a line


def test_pca_has_the_residuals_of_the_covariance_matrix():
    X = points(200, 6) * np.linspace(3.0, 1.0, 6) + 50.0
    peer = sklearn.decomposition.IncrementalPCA
    models = PCA(P), sklearn.decomposition.PCA(P), IncrementalPCA(P, batch_size=20), peer(P, batch_size=20)
    for model in (*models, PCA(P, scale=True)):
        model.fit(X)
        scale = getattr(model, "scale_", None)
        C, V = np.cov((X if scale is None else X / scale).T), model.components_.T
        audit = residuals(model, X)
        theta = np.sum(V * (C @ V), axis=0)
        assert np.allclose(audit.rayleigh_quotients, theta, rtol=1e-12)
        r, allowed = np.linalg.norm(C @ V - V * theta, axis=0), 1e-13 * theta[0]
        assert np.max(np.abs(audit.residual_norms - r)) <= allowed
        assert np.array_equal(audit.eigenvalues, model.explained_variance_)
        assert np.isclose(audit.trace, np.trace(C))
    assert np.max(residuals(models[2], X).residual_norms) > 1e-4  # of 20 rows at a time
    for size in (1e150, 1e-150):  # whose squares leave the range of numbers on the way
        audit, near = residuals(PCA(2).fit(X * size), X * size), residuals(models[0], X)
        assert np.allclose(audit.rayleigh_quotients / size / size, near.rayleigh_quotients[:2], rtol=1e-12)


# -- containers, memory, progress --------------------------------------------------------------------------------------


def test_every_container_gives_the_same_audit(tmp_path):
    X = np.maximum(points(300, 12), 0.0)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    model = KernelPCA(P, kernel="rbf", gamma=0.05, eigen_solver=Nystrom(rank=20), random_state=0).fit(X)
    expected = residuals(model, X, passes=2, random_state=0)
    containers = scipy.sparse.csr_array(X), pd.DataFrame(X), mapped, X.tolist()
    for container in containers:
        audit = residuals(model, container, passes=2, random_state=0)
        for name in ("rayleigh_quotients", "residual_norms", "landmark_eigenvalues", "norm_bound", "trace_bound"):
            assert np.allclose(getattr(audit, name), getattr(expected, name), rtol=1e-9), name
    model = PCA(P).fit(X)
    expected = residuals(model, X)
    for container in (*containers, Batches([X[:100], X[100:]])):
        assert np.allclose(residuals(model, container).rayleigh_quotients, expected.rayleigh_quotients, rtol=1e-12)
    K = oracle.gram(oracle.rbf(0.1), points())
    for solver in ("dense", Nystrom(rank=15)):
        stored = KernelPCA(P, kernel="precomputed", eigen_solver=solver, random_state=0).fit(K)
        evaluated = KernelPCA(P, kernel="rbf", gamma=0.1, eigen_solver=solver, random_state=0).fit(points())
        found, expected = residuals(stored, K, random_state=0), residuals(evaluated, points(), random_state=0)
        assert np.allclose(found.residual_norms, expected.residual_norms, rtol=1e-6, atol=1e-10)
        assert expected.norm_bound is None or np.isclose(found.norm_bound, expected.norm_bound, rtol=1e-9)
        pairwise = KernelPCA(P, kernel=overlap, eigen_solver=solver, random_state=0).fit(points())
        found = residuals(pairwise, points(), random_state=0)
        assert np.allclose(found.residual_norms, expected.residual_norms, rtol=1e-6, atol=1e-10)


def test_the_kernel_matrix_is_never_stored_beyond_the_memory_limit(tmp_path):
    X = points(3000)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    model = KernelPCA(P, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(rank=50), random_state=0).fit(X)
    expected, limit = residuals(model, X, passes=2, random_state=0), 15 * 2**20
    for container in (X, mapped):
        for passes in (1, 2):
            tracemalloc.start()
            audit = residuals(model, container, passes=passes, random_state=0, memory_limit=limit, n_jobs=1)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < limit  # K takes 69 MiB
            assert np.allclose(audit.residual_norms, expected.residual_norms)
    assert np.isclose(audit.norm_bound, expected.norm_bound)
    with pytest.raises(MemoryBudgetError, match=r"an audit needs .* and 1.0 MiB are allowed"):
        residuals(model, X, memory_limit="1MiB")


def test_progress_counts_the_passes_and_their_tiles():
    X = points(900)
    model = KernelPCA(P, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(rank=10), random_state=0).fit(X)
    for passes in (1, 2):
        events = []
        audit = residuals(model, X, passes=passes, verbose=events.append)
        done = [event.done for event in events if event.stage == "pass"]
        assert done == list(range(1, passes + 1))
        assert audit.n_passes == passes
        tiles = [event for event in events if event.stage == "tiles"]
        assert sum(event.done == event.total for event in tiles) == passes
    events = []
    residuals(PCA(2).fit(X), X, verbose=events.append)
    assert [event.stage for event in events] == ["pass"]


def test_the_seed_decides_and_other_parameters_change_rounding_alone(threads_for_little):
    X = points()
    solver = Nystrom(rank=15, bound_rows=0)
    model = KernelPCA(P, kernel="rbf", gamma=0.1, eigen_solver=solver, random_state=0).fit(X)
    first, again, other = (residuals(model, X, random_state=seed) for seed in (3, 3, 4))
    assert first.norm_bound == again.norm_bound != other.norm_bound
    threads = residuals(model, X, random_state=3, n_jobs=2, device="cpu", memory_limit="1GiB")
    assert np.isclose(threads.norm_bound, first.norm_bound, rtol=1e-12)


def test_the_tightest_bound_counts():
    """The fit knows the norm of the error of 120 rows, which random vectors bound 2 to 4 times as high."""
    X, audits = points(), []
    for bound_rows in (None, 0):
        solver = Nystrom(rank=15, bound_rows=bound_rows)
        model = KernelPCA(P, kernel="rbf", gamma=0.1, eigen_solver=solver, random_state=0).fit(X)
        audits.append(residuals(model, X, random_state=0))
        assert audits[-1].bound == min(audits[-1].trace_bound, audits[-1].norm_bound)
        if bound_rows is None:
            assert audits[0].norm_bound == pytest.approx(model.norm_bound_, rel=1e-3)
    assert audits[0].norm_bound < 0.7 * audits[1].norm_bound


def test_the_table_shows_the_pairs_and_what_the_bounds_mean():
    X = points()
    text = str(residuals(KernelPCA(P, kernel="rbf", eigen_solver=Nystrom(rank=15), random_state=0).fit(X), X))
    lines = text.splitlines()
    assert lines[0].startswith("3 eigenpairs of the centered kernel matrix of 120 rows: 1 pass, ")
    assert [line.split()[0] for line in lines[2:5]] == ["1", "2", "3"]
    assert "for certain, all i together: the trace that is left" in text
    assert "except with probability 9e-10" in text
    text = str(residuals(PCA(1).fit(X), X))
    assert text.startswith("1 eigenpair of the covariance matrix of 120 rows")
    assert "probability" not in text


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.RankWarning")
def test_data_without_variance_have_zeros():
    same = np.ones((20, 3))
    for model in (KernelPCA(2, kernel="rbf"), KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(rank=5)), PCA(2)):
        audit = residuals(model.fit(same), same)
        assert np.array_equal(audit.rayleigh_quotients, [0.0, 0.0])
        assert audit.bound in (None, 0.0)
    for model, X in ((KernelPCA(kernel="rbf"), same), (KernelPCA(1, kernel="rbf"), points(1)), (PCA(1), points(1))):
        assert np.max(residuals(model.fit(X), X).residual_norms, initial=0.0) == 0.0


def test_an_indefinite_kernel_has_no_bound_by_the_trace():
    X = points()
    pipeline = make_pipeline(Nystroem("sigmoid", gamma=0.3, n_components=20, random_state=0), PCA(P)).fit(X)
    audit = residuals(pipeline, X, random_state=0)
    assert audit.trace_bound is None
    check_bounds(audit, truth(oracle.sigmoid(0.3, 1.0), X))
    assert "for certain" not in str(audit)


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_wrong_models_and_rows_are_refused_with_advice():
    X = points()
    exact, linear = KernelPCA(P, kernel="rbf").fit(X), PCA(P).fit(X)
    landmarks = KernelPCA(P, kernel="rbf", eigen_solver=Nystrom(rank=15), random_state=0).fit(X)
    chi2 = make_pipeline(FunctionTransformer(np.abs), Nystroem("chi2", n_components=5), PCA(2)).fit(X)
    taken = "a fitted KernelPCA, PCA or IncrementalPCA of gpukpca or of scikit-learn, a fitted Pipeline"
    for model, rows, message in (
        (exact, X[1:], "X has 119 rows, and the model or the scores come from 120; pass the same rows, in their order"),
        (linear, X[1:], "X has 119 rows, and the model or the scores come from 120"),
        ((RBF(0.1), X), X[1:], "X has 119 rows, and the model or the scores come from 120"),
        (exact, X[::-1], "row 0 of X is not that of the fit; pass the rows of the fit, in their order"),
        (landmarks, X + 1.0, r"row \d+ of X is not that of the fit"),
        (exact, X[:, 1:], "X has 3 features, and the model was fitted to 4"),
        (linear, X[:, 1:], "X has 3 features, and the model was fitted to 4"),
        (KernelPCA, X, f"residuals takes {taken}.*; got the class KernelPCA"),
        (3, X, f"residuals takes {taken}.*; got an object of type int"),
        ((1, 2, 3), X, "got an object of type tuple"),
        (ProbabilisticPCA(2).fit(X), X, f"residuals takes {taken}.*; got ProbabilisticPCA"),
        (Nystroem(n_components=5).fit(X), X, "or a pair .kernel, scores.; got Nystroem"),
        (make_pipeline(PCA(2), StandardScaler()).fit(X), X, "got StandardScaler"),
        (chi2, X, r"Nystroem\(kernel='chi2'\) cannot be audited: its kernel must be one of linear, poly, rbf"),
        ((1, X), X, "kernel=1 is not allowed"),
        (("rfb", X), X, "Did you mean 'rbf'"),
        (("rbf", X[:, :0]), X, "give at least one column"),
        (("rbf", X[:, 0]), X, "scores has shape"),
        (("rbf", X * np.nan), X, "Input scores contains NaN"),
        (exact, np.where(X > 2, np.nan, X), "Input X contains NaN"),
    ):
        with pytest.raises((InvalidParameterError, ValueError), match=message):
            residuals(model, rows)
    for model in (KernelPCA(), PCA(), make_pipeline(PCA())):
        with pytest.raises(NotFittedError):
            residuals(model, X)
    wrong = {"passes": (0, 3, True, "2"), "device": ("tpu",), "memory_limit": (-1,), "n_jobs": (0,), "verbose": (-1,)}
    for name, values in (wrong | {"random_state": (-1,)}).items():
        for value in values:
            with pytest.raises(InvalidParameterError, match=f"{name}="):
                residuals(exact, X, **{name: value})


def test_linear_kernels_use_the_features_and_agree_with_pca():
    X = points(400, 5)
    kernel, linear = residuals(KernelPCA(P).fit(X), X), residuals(PCA(P).fit(X), X)
    assert np.allclose(kernel.rayleigh_quotients / (len(X) - 1), linear.rayleigh_quotients, rtol=1e-12)
    scores = residuals((Linear(), PCA(P).fit_transform(X)), X)
    assert np.allclose(scores.rayleigh_quotients, kernel.rayleigh_quotients, rtol=1e-12)
    assert np.max(scores.residual_norms) < 1e-12 * kernel.rayleigh_quotients[0]


def test_a_stream_that_moves_is_audited_with_the_means_of_its_beginning() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((150, 6)) * np.arange(1, 7), rng.standard_normal((150, 6)) * np.arange(1, 7) + 2.0]
    X = np.concatenate(parts)
    exact = np.linalg.eigvalsh(np.cov(X.T))[::-1] * (len(X) - 1)
    for rank in (20, 4):
        model = KernelPCA(2, eigen_solver=Nystrom(rank=rank), random_state=0)
        for part in parts:
            model.partial_fit(part)
        found = residuals(model, X)
        low, high = found.intervals.T
        assert np.all(low <= exact[:2] * (1 + 1e-9))
        assert np.all(high >= exact[:2] * (1 - 1e-9))
        np.testing.assert_allclose(found.landmark_eigenvalues, model.eigenvalues_, rtol=1e-8)


def test_other_rows_than_those_of_the_fit_are_named() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    model = KernelPCA(3, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(landmarks=X[:20])).fit(Batches([X]))
    assert residuals(model, X).n_samples == 300
    with pytest.raises(InvalidParameterError, match="X are not the rows of the fit"):
        residuals(model, X * 2.0)


def test_rows_other_than_landmarks_are_compared_by_their_eigenvalues(rng):
    X = rng.standard_normal((400, 4))
    model = KernelPCA(3, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(rank=40), random_state=0).fit(X)
    features = Nystroem(gamma=0.1, n_components=40, random_state=0)
    pipeline = make_pipeline(features, sklearn.decomposition.PCA(3)).fit(X)
    for fitted, kept in ((model, model.landmarks_), (pipeline, features.component_indices_)):
        residuals(fitted, X)
        others = np.zeros_like(X)
        others[kept] = X[kept]
        with pytest.raises(InvalidParameterError, match="are not the rows of the fit"):
            residuals(fitted, others)


def test_scores_that_are_nearly_collinear_have_ritz_values_up_to_the_eigenvalues(dtype):
    """However near scores are to each other, the values of their span err by rounding of the largest eigenvalue."""
    rng, eps = np.random.default_rng(0), tolerances.eps(dtype)
    X = (rng.standard_normal((60, 5)) * [4.0, 2.0, 1.0, 0.5, 0.1]).astype(dtype)
    centered = X.astype(np.float64) - X.astype(np.float64).mean(axis=0)
    values, U = np.linalg.eigh(centered @ centered.T)
    values, U = values[::-1], U[:, ::-1]
    for angle in 10.0 ** -np.arange(0, 17):
        Z = (U[:, :1] + angle * U[:, :4] @ rng.standard_normal((4, 4))).astype(dtype)
        audit = residuals(("linear", Z), X)
        known = int(np.sum(np.isfinite(audit.ritz_values)))
        assert 1 <= known <= 4
        excess = np.max(audit.ritz_values[:known] - values[:known]) / values[0]
        assert excess <= 200 * eps, (angle, excess)
