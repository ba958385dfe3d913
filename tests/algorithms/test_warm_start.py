"""Fits whose iteration starts from the components of a sample: fewer passes over K, and nothing missed."""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca import KernelPCA
from gpukpca.algorithms.kernel_pca.start import components_by_sample
from gpukpca.backend.random import random_subset
from gpukpca.eigen import BlockKrylov, Nystrom, top_eigh
from gpukpca.exceptions import MemoryBudgetError
from gpukpca.gram import CenteredGram
from gpukpca.kernels import RBF
from tests import oracle

N, P = 300, 6


def smooth(n=N, d=5, seed=0, dtype="float64"):
    """Points whose kernel has a spectrum that falls off slowly."""
    return (np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(2.0, 0.5, d)).astype(dtype)


@pytest.fixture
def small_samples(monkeypatch):
    """Starts from 250 rows, for data that are large already with 1000."""
    for name, value in {"LARGEST_SAMPLE": 250, "SAMPLE_SHARE": 4, "SAMPLE_PAYS_IF_RECOMPUTED": 1000}.items():
        monkeypatch.setattr(f"gpukpca.algorithms.kernel_pca.planning.{name}", value)


# -- passes that recompute K -------------------------------------------------------------------------------------------


def tight_limits(X, **settings):
    """Memory limits under which so little of K is kept that the iteration gets a start, from much to little."""
    enough = KernelPCA(**settings).plan(X).predicted_bytes
    limits = [int(enough * share / 40) for share in range(40, 0, -1)]
    return [limit for limit in limits if start_landmarks(X, memory_limit=limit, **settings)]


def start_landmarks(X, **settings):
    try:
        return KernelPCA(**settings).plan(X).start_landmarks
    except MemoryBudgetError:
        return 0


def cached_and_recomputed(X, least=True, **settings):
    """The same seed with K in memory, and with K recomputed in every pass."""
    settings = {"n_components": P, "kernel": "rbf", "random_state": 0, "n_jobs": 2, **settings}
    limit = tight_limits(X, **settings)[-1 if least else 0]
    cached, recomputed = KernelPCA(**settings).fit(X), KernelPCA(**settings, memory_limit=limit).fit(X)
    assert cached.plan_.start_landmarks == 0
    assert not recomputed.plan_.storage.is_fully_cached
    assert f"start     components of {recomputed.plan_.start_landmarks} random rows" in str(recomputed.plan_)
    assert recomputed.converged_
    return cached, recomputed


@pytest.mark.parametrize(("gamma", "least"), [(0.1, True), (0.3, True), (0.3, False), (1.0, True)])
def test_fewer_passes_where_each_recomputes_K(small_samples, gamma, least):
    """Counted, not timed."""
    X = smooth(1200)
    cached, recomputed = cached_and_recomputed(X, least, gamma=gamma)
    assert recomputed.n_passes_ <= cached.n_passes_ - 2
    # Both are off by no more than the square of their residuals over the gap, far below the tolerance of 1e-8.
    np.testing.assert_allclose(recomputed.eigenvalues_, cached.eigenvalues_, rtol=1e-10)
    assert np.max(recomputed.residual_norms_) <= 1e-8 * recomputed.eigenvalues_[0]
    scores = recomputed.eigenvectors_ * recomputed.eigenvalues_**0.5
    np.testing.assert_allclose(recomputed.transform(X), scores, atol=1e-7 * float(recomputed.eigenvalues_[0]) ** 0.5)


def test_fewer_passes_at_the_default_size_of_the_sample():
    cached, recomputed = cached_and_recomputed(smooth(4500), gamma=0.3)
    assert recomputed.plan_.start_landmarks == 225
    assert recomputed.n_passes_ <= cached.n_passes_ - 3
    np.testing.assert_allclose(recomputed.eigenvalues_, cached.eigenvalues_, rtol=1e-10)


def test_fewer_passes_in_single_precision(small_samples):
    cached, recomputed = cached_and_recomputed(smooth(1200, dtype="float32"), gamma=0.3)
    assert recomputed.n_passes_ < cached.n_passes_
    np.testing.assert_allclose(recomputed.eigenvalues_, cached.eigenvalues_, rtol=2e-5)


def test_the_start_of_a_fit_is_drawn_from_its_seed(small_samples):
    X = smooth(1200)
    settings = {"n_components": 3, "kernel": "rbf", "gamma": 0.3, "n_jobs": 2}
    limit = tight_limits(X, **settings)[0]
    first, second, other = (KernelPCA(random_state=seed, memory_limit=limit, **settings).fit(X) for seed in (1, 1, 2))
    assert first.plan_.start_landmarks == 250
    assert np.array_equal(first.eigenvectors_, second.eigenvectors_)
    assert not np.array_equal(first.eigenvectors_, other.eigenvectors_)
    np.testing.assert_allclose(first.eigenvalues_, other.eigenvalues_, rtol=1e-10)


@pytest.mark.parametrize("parameters", [{"iterated_power": 4}, {"eigen_solver": BlockKrylov(max_blocks=6)}], ids=str)
def test_fixed_passes_or_a_fixed_basis_have_no_start(parameters):
    X, settings = smooth(4500), {"n_components": 3, "kernel": "rbf"}
    plan = KernelPCA(**settings, **parameters, memory_limit=tight_limits(X, **settings)[0]).plan(X)
    assert plan.start_landmarks == 0
    assert plan.solver.block_size is None


def test_components_of_a_sample_are_near_those_of_all(xp):
    X = smooth(800)
    kernel, data = RBF(0.1), xp.array(X)
    op = CenteredGram.of_kernel(kernel, data)
    start = components_by_sample(kernel, data, op, 300, 10, np.random.default_rng(0), None)
    assert xp.owns(start)
    assert start.shape == (800, 10)
    basis = np.linalg.qr(oracle.centering(800) @ xp.host(start))[0]
    vectors = oracle.eigenpairs(oracle.centered(RBF(0.1)(X)), 3)[1]
    assert np.min(np.linalg.norm(basis.T @ vectors, axis=0)) >= 0.99
    cold = top_eigh(op, 3, solver=BlockKrylov(block_size=12), rng=0)
    warm = top_eigh(op, 3, solver=BlockKrylov(block_size=12, start=start), rng=0)
    assert warm.n_passes < cold.n_passes


def test_a_fit_finds_rare_clusters_that_its_sample_may_miss(small_samples):
    """A sample of 250 of 1200 rows has none of a cluster of 6 in one seed of four: in these."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((1200, 4)) * 2.0
    X[:6], X[6:46] = 15 + 1e-3 * rng.standard_normal((6, 4)), -15 + 1e-3 * rng.standard_normal((40, 4))
    settings = {"n_components": 4, "kernel": "rbf", "gamma": 4.0, "n_jobs": 2}
    cached = KernelPCA(**settings, random_state=0).fit(X)
    assert cached.eigenvalues_[:2] == pytest.approx([38.7, 6.0], rel=0.01)
    unlucky = [seed for seed in range(40) if np.min(random_subset(np.random.default_rng(seed), 1200, 250)) >= 6][:2]
    limit = tight_limits(X, **settings)[0]
    for seed in unlucky:
        recomputed = KernelPCA(**settings, random_state=seed, memory_limit=limit).fit(X)
        assert recomputed.plan_.start_landmarks == 250
        assert recomputed.converged_
        np.testing.assert_allclose(recomputed.eigenvalues_, cached.eigenvalues_, rtol=1e-10)


def test_landmarks_then_two_exact_passes():
    """The residuals are those of K, and a start that is a function is reported, for the time left."""
    X, events = smooth(1500), []
    near = KernelPCA(12, kernel="rbf", gamma=0.05, eigen_solver=Nystrom(rank=300), random_state=0)
    solver = BlockKrylov(start=lambda: near.fit_transform(X), block_size=16, passes=2, tol=1e-5)
    model = KernelPCA(5, kernel="rbf", gamma=0.05, eigen_solver=solver, random_state=0, verbose=events.append).fit(X)
    K = oracle.centered(RBF(0.05)(X))
    norms = np.linalg.norm(K @ model.eigenvectors_ - model.eigenvectors_ * model.eigenvalues_, axis=0)
    assert model.n_passes_ == 2
    assert np.max(norms) <= 1e-5 * model.eigenvalues_[0]
    np.testing.assert_allclose(model.residual_norms_, norms, rtol=1e-2, atol=1e-9 * model.eigenvalues_[0])
    stages = [event.stage for event in events]
    assert stages.index("plan") < stages.index("start") < stages.index("tiles")


def test_a_start_through_the_estimator():
    X = smooth(600)
    plain = KernelPCA(P, kernel="rbf", eigen_solver=BlockKrylov(), random_state=0).fit(X)
    warm = KernelPCA(P, kernel="rbf", eigen_solver=BlockKrylov(start=plain.eigenvectors_), random_state=0).fit(X)
    assert warm.n_passes_ < plain.n_passes_
    np.testing.assert_allclose(warm.eigenvalues_, plain.eigenvalues_, rtol=1e-12)
