"""`residuals` of Dask arrays: the answer of one process, from products on the workers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA as PeerPCA
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline

from gpukpca import PCA, KernelPCA, Nystrom, exceptions, residuals, variable_correlations
from gpukpca.distributed.rows import ClusterRows

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")

NAMES = ("rayleigh_quotients", "residual_norms", "ritz_values", "trace", "trace_bound", "norm_bound")


def data(n: int = 301) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, 4)) * [2.0, 1.0, 1.0, 0.5]


def test_a_cluster_gives_the_audit_of_one_process(active):
    X = data()
    rbf, landmarks = {"n_components": 3, "kernel": "rbf", "random_state": 0}, Nystrom(rank=20)
    ours = (
        KernelPCA(**rbf, gamma=0.1),
        KernelPCA(**rbf, gamma=0.1, eigen_solver=landmarks),
        KernelPCA(**rbf, gamma=1e-7, eigen_solver=Nystrom(rank=6)),  # relative to a base point
        KernelPCA(3),
        PCA(3),
        PCA(3, scale=True),
    )
    peer = make_pipeline(Nystroem(gamma=0.1, n_components=20, random_state=0), PeerPCA(3))
    counts = {"sample_weight": np.random.default_rng(1).integers(1, 4, len(X))}
    for model, weights in (*((model, weights) for model in ours for weights in ({}, counts)), (peer, {})):
        model.fit(X, **weights)
        here = residuals(model, X, passes=2, random_state=0, **weights)
        there = residuals(model, da.from_array(X, chunks=(100, -1)), passes=2, random_state=0, **weights)
        assert there.n_passes == here.n_passes
        largest = here.rayleigh_quotients[0]
        for name in NAMES:
            found, expected = getattr(there, name), getattr(here, name)
            if expected is None:
                assert found is None
            else:
                assert np.allclose(found, expected, rtol=1e-7, atol=1e-13 * largest), (model, name)


def test_an_audit_leaves_counted_rows_on_the_cluster(active, monkeypatch):
    X, w = data(), np.random.default_rng(1).integers(0, 4, len(data()))
    model, taken, take = KernelPCA(3, kernel="rbf", gamma=0.1).fit(X, sample_weight=w), [], ClusterRows.take
    monkeypatch.setattr(ClusterRows, "take", lambda *given: taken.append(len(given[1])) or take(*given))
    audit = residuals(model, da.from_array(X, chunks=(100, -1)), sample_weight=w, random_state=0)
    assert np.allclose(audit.rayleigh_quotients, model.eigenvalues_, rtol=1e-9)
    assert max(taken) < np.count_nonzero(w)


def test_a_model_that_was_fitted_on_a_cluster_is_audited_there(active):
    A = da.from_array(data(), chunks=(100, -1))
    settings = {"kernel": "rbf", "gamma": 0.1, "eigen_solver": Nystrom(rank=20), "random_state": 0}
    model, events = KernelPCA(3, **settings).fit(A), []
    audit = residuals(model, A, verbose=events.append)
    assert np.allclose(audit.landmark_eigenvalues, model.eigenvalues_, rtol=1e-9)
    assert [event.done for event in events if event.stage == "pass"] == [1]
    assert audit.trace_bound <= model.certificate_ * (1 + 1e-9)
    with pytest.raises(exceptions.InvalidParameterError, match="row 0 of X is not that of the fit"):
        residuals(KernelPCA(3, kernel="rbf").fit(data()), A[::-1])
    with pytest.raises(exceptions.MemoryBudgetError):
        residuals(model, A, memory_limit=10_000)
    with pytest.raises(exceptions.InvalidParameterError, match="which a cluster cannot share out"):
        residuals((lambda x, y: float(x @ y), data()), A)


def test_correlations_of_variables_are_computed_where_the_rows_are(active):
    X = data()
    rows = da.from_array(X, chunks=(100, -1))
    for model in (PCA(3), KernelPCA(3, kernel="rbf", gamma=0.1)):
        expected = variable_correlations(model.fit(X), X)
        for Y in (None, rows):
            np.testing.assert_allclose(variable_correlations(model, rows, Y), expected, atol=1e-13)
