"""The angles of `residuals` beside LAPACK: true for any model, with Nyström, weights, float32, and without a bound."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
import sklearn.decomposition
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline

from gpukpca import PCA, KernelPCA, Nystrom, residuals
from gpukpca.exceptions import IndefiniteKernelError
from gpukpca.kernels import RBF, Laplacian, Polynomial, Sigmoid
from tests import oracle, tolerances

pytestmark = pytest.mark.filterwarnings("ignore::gpukpca.exceptions.GpuKPCAWarning")  # of ranks and clusters


def check_angles(audit, A, U, dtype="float64", size=0.0):
    """Return the share of known angles; none is exceeded by that of unit columns of U and eigenvectors of A.

    LAPACK's eigenvectors err by eps size / gap, where size is that of what cancels in A.
    """
    values, V = oracle.eigenpairs(A)[:2]
    size = max(size, float(np.max(np.abs(values))))
    assert np.all(np.isnan(audit.angles[audit.groups < 0]))
    for group in np.unique(audit.groups[~np.isnan(audit.angles)]):
        members = np.flatnonzero(audit.groups == group)
        first, last = members[0], members[-1] + 1
        assert np.array_equal(members, np.arange(first, last))
        Z, lengths, _ = np.linalg.svd(np.asarray(U, dtype=np.float64)[:, first:last], full_matrices=False)
        above = values[first - 1] - values[first] if first else math.inf
        gap = min(above, values[last - 1] - values[last] if last < len(A) else math.inf)
        slack = 20.0 * tolerances.eps(dtype) + 100.0 * tolerances.eps("float64") * (1.0 + size / gap)
        bound, true = audit.angles[first], V[:, first:last]
        assert np.all(audit.angles[members] == bound)
        assert 0.0 <= bound < 1.0
        assert lengths[-1] > 1e-12
        assert np.linalg.norm(Z - true @ (true.T @ Z), 2) <= bound + slack
    return float(np.mean(~np.isnan(audit.angles)))


def matrix_of(K, weights=None, center=True):
    """W^½ H K Hᵀ W^½."""
    w = np.ones(len(K)) if weights is None else weights
    H = np.eye(len(K)) - np.outer(np.ones(len(K)), w) / w.sum() * center
    return np.sqrt(w)[:, None] * (H @ K @ H.T) * np.sqrt(w)


def test_no_angle_of_a_fit_is_exceeded():
    rng, known = np.random.default_rng(0), {}
    for number in range(100):
        n, d, seed = int(rng.integers(4, 40)), int(rng.integers(1, 6)), int(rng.integers(2**31))
        X = np.random.default_rng(seed).standard_normal((n, d)) * 10.0 ** rng.uniform(-1, 1)
        if number % 5 == 0:  # equal rows, and with them equal eigenvalues
            X = np.eye(n)[:, : max(2, n // 2)][rng.integers(0, max(2, n // 2), n)]
        gamma, dtype = 10.0 ** rng.uniform(-3, 1), "float32" if number % 4 == 3 else "float64"
        X, center = X.astype(dtype), bool(number % 3)
        kernel, function = [
            (RBF(gamma), oracle.rbf(gamma)),
            (Laplacian(gamma), oracle.laplacian(gamma)),
            (Polynomial(2, gamma, 1.0), oracle.poly(2, gamma, 1.0)),
            (Sigmoid(gamma, 0.5), oracle.sigmoid(gamma, 0.5)),
        ][int(rng.integers(4))]
        is_indefinite = isinstance(kernel, Sigmoid)
        weights = rng.uniform(0.1, 5.0, n) if number % 2 and not is_indefinite else None
        K, rank = oracle.gram(function, X.astype(np.float64)), int(rng.integers(1, n + 1))
        A, size = matrix_of(K, weights, center), np.linalg.norm(matrix_of(K, weights, False), 2)
        for solver in ("dense", Nystrom(rank=rank))[: 2 - is_indefinite]:
            p = int(rng.integers(1, 1 + (n if solver == "dense" else rank)))
            model = KernelPCA(p, kernel=kernel, eigen_solver=solver, center=center, random_state=seed)
            with contextlib.suppress(IndefiniteKernelError):  # negative eigenvalues among the first p
                model.fit(X, sample_weight=weights)
                for options in ({}, {"passes": 2}):
                    audit = residuals(model, X, sample_weight=weights, random_state=seed, **options)
                    share = check_angles(audit, A, model.eigenvectors_, dtype, size)
                known.setdefault((solver == "dense", dtype), []).append(share)
    assert sorted(known) == [(False, "float32"), (False, "float64"), (True, "float32"), (True, "float64")]
    assert all(np.mean(shares) > 0.3 for shares in known.values())


def test_angles_are_bounded_in_every_library(xp, dtype):
    X = (np.random.default_rng(0).standard_normal((60, 4)) * 2.0 ** -np.arange(4)).astype(dtype)
    K = oracle.gram(oracle.rbf(0.3), X.astype(np.float64))
    there, options = xp.array(X), {"kernel": "rbf", "gamma": 0.3, "random_state": 0}
    for solver in ("dense", Nystrom(rank=40)):
        model = KernelPCA(4, **options, eigen_solver=solver).fit(there)
        audit = residuals(model, there, passes=2, random_state=0)
        U = xp.host(model.eigenvectors_)
        assert check_angles(audit, matrix_of(K), U, dtype, np.linalg.norm(K, 2)) == 1.0
        assert np.max(audit.angles) < 1e5 * tolerances.eps(dtype) or solver != "dense"


def test_no_angle_of_a_model_of_another_library_is_exceeded():
    rng, known = np.random.default_rng(1), 0.0
    for _ in range(60):
        n, d, gamma = int(rng.integers(12, 40)), int(rng.integers(2, 6)), 10.0 ** rng.uniform(-3, 0.5)
        X, p = rng.standard_normal((n, d)) * 2.0 ** -np.arange(d), int(rng.integers(1, 7))
        K = oracle.gram(oracle.rbf(gamma), X)
        A = matrix_of(K)
        options = {"kernel": "rbf", "gamma": gamma, "random_state": 0}
        sloppy = sklearn.decomposition.KernelPCA(p, **options, eigen_solver="randomized", iterated_power=0).fit(X)
        known += check_angles(residuals(sloppy, X), A, sloppy.eigenvectors_)
        Z = oracle.scores(K, p) + 10.0 ** rng.uniform(-9, -1) * rng.standard_normal((n, p))
        known += check_angles(residuals((RBF(gamma), Z), X), A, Z)
        Z[:, -1] = Z[:, 0] * (p > 1)
        known += check_angles(residuals((RBF(gamma), Z), X), A, Z)
        features = Nystroem(gamma=gamma, n_components=12, random_state=0)
        pipeline = make_pipeline(features, sklearn.decomposition.PCA(p)).fit(X)
        F = features.transform(X) @ pipeline[-1].components_.T
        audit = residuals(pipeline, X, passes=2, random_state=0)
        known += check_angles(audit, A, F - F.mean(axis=0), size=1e3 * n)  # the features amplify rounding
        for axes in (PCA(min(p, d)), sklearn.decomposition.PCA(min(p, d)), sklearn.decomposition.IncrementalPCA(1)):
            known += check_angles(residuals(axes.fit(X), X), np.cov(X.T), axes.components_.T, size=np.var(X))
    assert known > 200


def test_the_spectrum_of_a_dense_fit_and_the_trace_are_what_is_known_without_landmarks():
    X = np.random.default_rng(0).standard_normal((150, 6)) * 1.5 ** -np.arange(6)
    options = {"kernel": "rbf", "gamma": 0.3, "random_state": 0}
    dense = KernelPCA(5, **options, eigen_solver="dense").fit(X)
    audit = residuals(dense, X)
    assert audit.groups.tolist() == [0, 1, 2, 3, 4]
    assert np.max(audit.angles) < 1e-9
    krylov = KernelPCA(5, **options, eigen_solver="randomized").fit(X)
    for model in (krylov, sklearn.decomposition.KernelPCA(5, kernel="rbf", gamma=0.3).fit(X)):
        audit = residuals(model, X)  # the trace that is left exceeds every eigenvalue
        assert audit.trace - np.sum(audit.ritz_values) > audit.ritz_values[0]
        assert np.all(np.isnan(audit.angles))
        assert "sin angle" in str(audit)
        assert "not known" in str(audit)
        assert "The angle from" not in str(audit)
    # With a smaller gamma the trace vouches for the first ones; that of a matrix which may be indefinite does not.
    smooth = sklearn.decomposition.KernelPCA(5, kernel="rbf", gamma=0.03).fit(X)
    assert np.isnan(residuals(smooth, X).angles).tolist() == [False, False, False, True, True]
    K = oracle.gram(oracle.rbf(0.03), X)
    stored = sklearn.decomposition.KernelPCA(5, kernel="precomputed").fit(K.copy())
    assert np.all(np.isnan(residuals(stored, K).angles))


def test_the_table_marks_the_vectors_of_a_group():
    X = np.repeat(np.eye(3), 5, axis=0)  # the first two eigenvalues are equal
    audit = residuals(KernelPCA(2, kernel="rbf", gamma=1.0, eigen_solver="dense").fit(X), X)
    lines = str(audit).splitlines()
    assert audit.groups.tolist() == [0, 0]
    assert lines[1].endswith("       Ritz  sin angle")
    assert all(line.endswith(f"{audit.angles[0]:.1e} of 1-2") for line in lines[2:4])
    assert lines[5].endswith("to eigenvector i is at most that; of a group, between the spans.")
    assert max(map(len, lines)) <= 120
    X = X * [3.0, 2.0, 1.0]
    assert "to eigenvector i is at most that." in str(residuals(PCA(2).fit(X), X))
