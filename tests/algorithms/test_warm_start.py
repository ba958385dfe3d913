"""Starts of the iteration: fewer passes where passes are dear, nothing missed, and residuals that are true."""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca import KernelPCA
from gpukpca.algorithms.kernel_pca.warm_start import components_of_sample
from gpukpca.backend.random import random_subset
from gpukpca.eigen import BlockKrylov, top_eigh
from gpukpca.exceptions import MemoryBudgetError
from gpukpca.gram import CenteredGram, DenseGram
from gpukpca.kernels import RBF
from tests import oracle, tolerances

N, P = 300, 6


class Operator:
    """A matrix that counts the columns it is multiplied with."""

    def __init__(self, A):
        self.A, self.shape, self.dtype, self.like = A, A.shape, A.dtype, A[:0, 0]
        self.passes = self.columns_multiplied = 0

    def __matmul__(self, V):
        self.passes += 1
        self.columns_multiplied += V.shape[1]
        return self.A @ V

    def to_dense(self, overwrite=False):
        return self.A + 0.0


class Diagonal(Operator):
    """A diagonal matrix by its diagonal."""

    def __init__(self, values):
        self.values, self.shape, self.dtype, self.like = values, (len(values),) * 2, values.dtype, values[:0]
        self.passes = self.columns_multiplied = 0

    def __matmul__(self, V):
        self.passes += 1
        self.columns_multiplied += V.shape[1]
        return self.values[:, None] * V


def smooth(n=N, d=5, seed=0, dtype="float64"):
    """Points whose kernel has a spectrum that falls off slowly."""
    return (np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(2.0, 0.5, d)).astype(dtype)


def centered_matrix(n=N, dtype="float64"):
    return oracle.centered(RBF(0.2)(smooth(n))).astype(dtype)


def check(A, result, dtype, tol, exact=None):
    """Eigenvalues, residuals that are told, and orthonormality, all recomputed in float64."""
    A = np.asarray(A, dtype=np.float64)
    p = result.eigenvalues.shape[0]
    exact = oracle.eigenpairs(A, p)[0] if exact is None else exact
    values, U, told = (
        np.asarray(part, dtype=np.float64) for part in (result.eigenvalues, result.eigenvectors, result.residual_norms)
    )
    rounding = tolerances.residual(dtype) * exact[0]
    # Ritz values are from below, and off by no more than a residual.
    assert np.max(np.abs(values - exact)) <= tol * exact[0] + rounding
    assert np.max(values - exact) <= rounding
    residuals = np.linalg.norm(A @ U - U * values, axis=0)
    assert np.max(np.abs(residuals - told)) <= rounding
    assert np.max(np.abs(U.T @ U - np.eye(p))) <= tolerances.orthogonality(dtype)
    assert np.array_equal(result.converged, told <= result.tolerance * values[0])


@pytest.fixture
def small_samples(monkeypatch):
    """Starts from 250 rows, for data that are large already with 1000."""
    monkeypatch.setattr("gpukpca.algorithms.kernel_pca.planning.START_LANDMARKS", 250)


# -- passes where they are dear ----------------------------------------------------------------------------------------


def dear_limits(X, **settings):
    """Memory limits under which so little of K is kept that the iteration gets a start, from much to little."""
    enough = KernelPCA(**settings).plan(X).predicted_bytes
    limits = [int(enough * share / 40) for share in range(40, 0, -1)]
    return [limit for limit in limits if start_landmarks(X, memory_limit=limit, **settings)]


def start_landmarks(X, **settings):
    try:
        return KernelPCA(**settings).plan(X).start_landmarks
    except MemoryBudgetError:
        return 0


def cached_and_dear(X, least=True, **settings):
    """The same seed with K in memory, and with K made anew in every pass."""
    settings = {"n_components": P, "kernel": "rbf", "random_state": 0, "n_jobs": 2, **settings}
    limit = dear_limits(X, **settings)[-1 if least else 0]
    cached, dear = KernelPCA(**settings).fit(X), KernelPCA(**settings, memory_limit=limit).fit(X)
    assert cached.plan_.start_landmarks == 0
    assert not dear.plan_.storage.is_fully_cached
    assert f"start     components of {dear.plan_.start_landmarks} random rows" in str(dear.plan_)
    assert dear.converged_
    return cached, dear


@pytest.mark.parametrize(("gamma", "least"), [(0.1, True), (0.3, True), (0.3, False), (1.0, True)])
def test_where_passes_are_dear_there_are_fewer(small_samples, gamma, least):
    """Counted, not timed."""
    X = smooth(1200)
    cached, dear = cached_and_dear(X, least, gamma=gamma)
    assert dear.n_passes_ <= cached.n_passes_ - 2
    # Both are off by no more than the square of their residuals over the gap, far below the tolerance of 1e-8.
    np.testing.assert_allclose(dear.eigenvalues_, cached.eigenvalues_, rtol=1e-10)
    assert np.max(dear.residual_norms_) <= 1e-8 * dear.eigenvalues_[0]
    largest = float(dear.eigenvalues_[0])
    assert np.max(np.abs(dear.eigenvectors_ * dear.eigenvalues_**0.5 - dear.transform(X))) <= 1e-7 * largest**0.5


def test_fewer_in_earnest():
    cached, dear = cached_and_dear(smooth(4500), gamma=0.3)
    assert dear.plan_.start_landmarks == 1000
    assert dear.n_passes_ <= cached.n_passes_ - 3
    np.testing.assert_allclose(dear.eigenvalues_, cached.eigenvalues_, rtol=1e-10)


def test_fewer_in_single_precision_too(small_samples):
    cached, dear = cached_and_dear(smooth(1200, dtype="float32"), gamma=0.3)
    assert dear.n_passes_ < cached.n_passes_
    np.testing.assert_allclose(dear.eigenvalues_, cached.eigenvalues_, rtol=2e-5)


def test_the_start_of_a_fit_is_drawn_from_its_seed(small_samples):
    X = smooth(1200)
    settings = {"n_components": 3, "kernel": "rbf", "gamma": 0.3, "n_jobs": 2}
    limit = dear_limits(X, **settings)[0]
    first, second, other = (KernelPCA(random_state=seed, memory_limit=limit, **settings).fit(X) for seed in (1, 1, 2))
    assert first.plan_.start_landmarks == 250
    assert np.array_equal(first.eigenvectors_, second.eigenvectors_)
    assert not np.array_equal(first.eigenvectors_, other.eigenvectors_)
    np.testing.assert_allclose(first.eigenvalues_, other.eigenvalues_, rtol=1e-10)


@pytest.mark.parametrize("parameters", [{"iterated_power": 4}, {"eigen_solver": BlockKrylov(max_blocks=6)}], ids=str)
def test_who_fixes_passes_or_basis_gets_no_start(parameters):
    X, settings = smooth(4500), {"n_components": 3, "kernel": "rbf"}
    plan = KernelPCA(**settings, **parameters, memory_limit=dear_limits(X, **settings)[0]).plan(X)
    assert plan.start_landmarks == 0
    assert plan.solver.block_size is None


def test_components_of_a_sample_are_near_those_of_all(xp):
    X = smooth(800)
    kernel, data = RBF(0.1), xp.array(X)
    op = CenteredGram.of_kernel(kernel, data)
    start = components_of_sample(kernel, data, op.base.rows, 300, 10, np.random.default_rng(0))
    assert xp.owns(start)
    assert start.shape == (800, 10)
    basis = np.linalg.qr(oracle.centering(800) @ xp.host(start))[0]
    vectors = oracle.eigenpairs(oracle.centered(RBF(0.1)(X)), 3)[1]
    assert np.min(np.linalg.norm(basis.T @ vectors, axis=0)) >= 0.99
    cold = top_eigh(op, 3, solver=BlockKrylov(block_size=12), rng=0)
    warm = top_eigh(op, 3, solver=BlockKrylov(block_size=12, start=start), rng=0)
    assert warm.n_passes < cold.n_passes


# -- nothing is missed -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hidden():
    """Points with a tight cluster of 40 far away: the kernel matrix, that centered, and rows without the cluster."""
    n, m = 900, 40
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4)) * [2.0, 1.0, 0.7, 0.5]
    X[:m] = 60 + 1e-3 * rng.standard_normal((m, 4))
    K = RBF(1.0)(X)
    return K, oracle.centered(K), m + rng.permutation(n - m)[:250]


def share_of_the_cluster(vectors):
    """How much of the direction of the cluster of 40 the vectors hold."""
    return float(np.sum(np.sum(vectors[:40], axis=0) ** 2)) / 40


@pytest.mark.parametrize("tol", [0.0, 1e-3, 1e-2])
@pytest.mark.parametrize("block_size", [None, P + 30, P, 4])
def test_a_cluster_that_the_sample_does_not_know_is_found(hidden, block_size, tol):
    K, A, rows = hidden
    exact, vectors = oracle.eigenpairs(A, P)
    assert share_of_the_cluster(vectors) > 0.9
    sample = top_eigh(CenteredGram(DenseGram(K[np.ix_(rows, rows)].copy())), P + 8, rng=0).eigenvectors
    start = K[:, rows] @ sample
    # It does not know of the cluster, and would be off by much without it.
    assert np.max(np.abs(start[:40] - start[0])) <= 1e-10
    without = oracle.eigenpairs(oracle.centered(K[40:, 40:]), P)[0]
    assert np.max(np.abs(without - exact)) > 0.1 * exact[0]
    for seed in range(2):
        solver = BlockKrylov(tol=tol, start=start, block_size=block_size)
        result = top_eigh(CenteredGram(DenseGram(K)), P, solver=solver, rng=seed)
        assert result.converged.all()
        check(A, result, "float64", tol or 1e-8, exact)
        found = share_of_the_cluster(result.eigenvectors)
        assert found == pytest.approx(share_of_the_cluster(vectors), abs=1e-6 + 20 * tol)


def test_a_fit_finds_rare_clusters_that_its_sample_may_miss(small_samples):
    """A sample of 250 of 1200 rows has none of a cluster of 6 in one seed of four: in these."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((1200, 4)) * 2.0
    X[:6], X[6:46] = 15 + 1e-3 * rng.standard_normal((6, 4)), -15 + 1e-3 * rng.standard_normal((40, 4))
    settings = {"n_components": 4, "kernel": "rbf", "gamma": 4.0, "n_jobs": 2}
    cached = KernelPCA(**settings, random_state=0).fit(X)
    assert cached.eigenvalues_[:2] == pytest.approx([38.7, 6.0], rel=0.01)
    unlucky = [seed for seed in range(40) if np.min(random_subset(np.random.default_rng(seed), 1200, 250)) >= 6][:3]
    limit = dear_limits(X, **settings)[0]
    for seed in unlucky:
        dear = KernelPCA(**settings, random_state=seed, memory_limit=limit).fit(X)
        assert dear.plan_.start_landmarks == 250
        assert dear.converged_
        np.testing.assert_allclose(dear.eigenvalues_, cached.eigenvalues_, rtol=1e-10)


def test_an_invariant_subspace_that_is_not_the_top_one_is_left():
    """Residuals of such a start are zero; random directions must lead out of it."""
    values = np.linspace(1.0, 0.01, N)
    values[:4] = [9.0, 8.0, 7.0, 6.0]
    for first in (1, 4, 50, N - 20):
        start = np.eye(N)[:, first : first + P + 8]
        for seed in range(3):
            result = top_eigh(Diagonal(values), P, solver=BlockKrylov(start=start, tol=1e-10), rng=seed)
            assert np.max(np.abs(result.eigenvalues - values[:P])) <= 1e-8


def test_a_start_made_of_the_answer_but_for_one_vector():
    A = centered_matrix()
    exact, vectors = oracle.eigenpairs(A, 20)
    for missing in range(P):
        start = np.delete(vectors, missing, axis=1)
        result = top_eigh(Operator(A), P, solver=BlockKrylov(start=start), rng=0)
        check(A, result, "float64", 1e-8)
        assert np.max(np.abs(result.eigenvalues - exact[:P])) <= 1e-10


def test_a_start_of_the_answer_is_verified_in_three_passes():
    A = centered_matrix()
    op = Operator(A)
    cold = top_eigh(Operator(A), P, solver=BlockKrylov(), rng=0)
    warm = top_eigh(op, P, solver=BlockKrylov(start=oracle.eigenpairs(A, P + 8)[1]), rng=0)
    assert warm.n_passes == op.passes == 3 < cold.n_passes
    check(A, warm, "float64", 1e-8)


# -- starts of every shape ---------------------------------------------------------------------------------------------


def unusual(name):
    rng = np.random.default_rng(7)
    V = rng.standard_normal((N, 4))
    return {
        "zeros": np.zeros((N, 5)),
        "some zeros": np.concatenate([V, np.zeros((N, 3))], axis=1),
        "constant": np.ones((N, 3)),
        "twice the same": np.concatenate([V, V], axis=1),
        "nearly dependent": np.concatenate([V, V + 1e-12 * rng.standard_normal((N, 4))], axis=1),
        "one column": V[:, :1],
        "no columns": V[:, :0],
        "as wide as the block": rng.standard_normal((N, 16)),
        "wider than the block": rng.standard_normal((N, 60)),
        "wider than the basis": rng.standard_normal((N, 200)),
        "square": np.eye(N),
        "huge": 1e300 * V,
        "tiny": 1e-300 * V,
        "badly scaled": V * [1e-12, 1.0, 1e6, 1e12],
        "in order of Fortran": np.asfortranarray(V),
        "a view": rng.standard_normal((2 * N, 8))[::2, ::2],
    }[name]


STARTS = [
    "zeros",
    "some zeros",
    "constant",
    "twice the same",
    "nearly dependent",
    "one column",
    "no columns",
    "as wide as the block",
    "wider than the block",
    "wider than the basis",
    "square",
    "huge",
    "tiny",
    "badly scaled",
    "in order of Fortran",
    "a view",
]


@pytest.mark.parametrize("name", STARTS)
def test_no_start_does_harm(name):
    A, start = centered_matrix(), unusual(name)
    before = start.copy()
    start.flags.writeable = False
    for settings in ({}, {"block_size": 4}, {"block_size": P + 30, "max_blocks": 6}):
        result = top_eigh(Operator(A), P, solver=BlockKrylov(start=start, **settings), rng=0)
        assert result.converged.all()
        check(A, result, "float64", 1e-8)
    assert np.array_equal(start, before)


@pytest.mark.parametrize("name", ["zeros", "twice the same", "wider than the block"])
def test_no_start_does_harm_on_any_library(xp, dtype, name):
    A, start = centered_matrix(150, dtype), unusual(name)[:150].astype(dtype)
    op = Operator(xp.array(A))
    result = top_eigh(op, 4, solver=BlockKrylov(start=xp.array(start)), rng=0)
    assert xp.owns(result.eigenvectors)
    values = xp.host(result.eigenvalues)
    exact = oracle.eigenpairs(A, 4)[0]
    assert np.max(np.abs(values - exact)) <= (1e-8 if dtype == "float64" else 1e-5) * exact[0]


def test_a_start_through_the_estimator():
    X = smooth(600)
    plain = KernelPCA(P, kernel="rbf", eigen_solver=BlockKrylov(), random_state=0).fit(X)
    warm = KernelPCA(P, kernel="rbf", eigen_solver=BlockKrylov(start=plain.eigenvectors_), random_state=0).fit(X)
    assert warm.n_passes_ < plain.n_passes_
    np.testing.assert_allclose(warm.eigenvalues_, plain.eigenvalues_, rtol=1e-12)


def test_a_share_of_the_variance_grows_from_what_is_known():
    """The pairs of the first guess are the start of the next."""
    X = smooth(600)
    model = KernelPCA(0.9, kernel="rbf", gamma=0.5, eigen_solver="randomized", random_state=0).fit(X)
    p = model.eigenvalues_.shape[0]
    assert p > 16
    exact = oracle.eigenpairs(oracle.centered(RBF(0.5)(X)))[0]
    assert np.max(np.abs(model.eigenvalues_ - exact[:p])) <= 1e-8 * exact[0]
    shares = np.cumsum(exact) / np.sum(exact)
    assert shares[p - 1] >= 0.9 > shares[p - 2]


# -- residuals, tight and loose ----------------------------------------------------------------------------------------

TOLERANCES = {"float64": [0.3, 1e-2, 1e-4, 1e-8, 1e-12, 2.5e-14], "float32": [0.3, 1e-2, 1e-4, 1e-5, 1.5e-5]}


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize(("dtype", "tol"), [(dtype, tol) for dtype in TOLERANCES for tol in TOLERANCES[dtype]])
def test_residuals_that_are_told_are_true(dtype, tol, warm):
    """With the last pass that verifies and without: what is told is what the vectors give in float64."""
    A = centered_matrix(dtype=dtype)
    start = oracle.eigenpairs(A, 2 * P)[1].astype(dtype) if warm else None
    for settings in ({}, {"block_size": 2}, {"block_size": P + 30, "max_blocks": 6}, {"max_blocks": 3}):
        op = Operator(A)
        result = top_eigh(op, P, solver=BlockKrylov(tol=tol, start=start, **settings), rng=0)
        assert result.converged.all()
        check(A, result, dtype, max(tol, result.tolerance))
        assert result.n_passes == op.passes
        assert result.n_products == op.columns_multiplied


def test_a_loose_tolerance_needs_no_pass_that_verifies():
    """Residuals of the products so far are true ones; one more pass is made where rounding counts."""
    A = centered_matrix()
    passes = {}
    for tol in (1e-2, 1e-6, 1e-12, 2.5e-14):
        events = []
        report = lambda *event: events.append(event)  # noqa: E731, B023
        result = top_eigh(Operator(A), P, solver=BlockKrylov(tol=tol), rng=0, report=report)
        passes[tol] = result.n_passes
        met = [event[0] for event in events if event[2] is not None and event[2] <= tol]
        # The first look that meets the tolerance is the last pass.
        if tol >= 1e-6:
            assert met[0] == result.n_passes
    assert list(passes.values()) == sorted(passes.values())


@pytest.mark.parametrize("passes", [1, 2, 3, 5])
@pytest.mark.parametrize("block_size", [None, 3, 40])
def test_fixed_passes_are_kept_with_a_start_too(passes, block_size):
    A = centered_matrix()
    for start in (None, oracle.eigenpairs(A, P)[1], np.zeros((N, 2))):
        op = Operator(A)
        solver = BlockKrylov(passes=passes, start=start, block_size=block_size)
        result = top_eigh(op, P, solver=solver, rng=0)
        assert result.n_passes == op.passes == passes
        assert result.n_products == op.columns_multiplied
        U, values = result.eigenvectors, result.eigenvalues
        told = np.linalg.norm(A @ U - U * values, axis=0)
        assert np.max(np.abs(told - result.residual_norms)) <= 1e-12 * oracle.eigenpairs(A, 1)[0][0]
        assert np.all(values <= oracle.eigenpairs(A, P)[0] * (1 + 1e-13))


@pytest.mark.parametrize("block_size", [1, 2, 5])
def test_blocks_narrower_than_the_components_miss_nothing_from_a_start(block_size):
    values = np.concatenate([np.full(5, 3.0), np.linspace(2.0, 0.0, N - 5)])
    A = oracle.with_spectrum(values, 4)
    vectors = oracle.eigenpairs(A)[1]
    for start in (vectors[:, 4 : 4 + block_size], vectors[:, 100:108], vectors[:, :1]):
        solver = BlockKrylov(block_size=block_size, start=start, tol=1e-8)
        check(A, top_eigh(Operator(A), P, solver=solver, rng=1), "float64", 1e-8)


def test_time_and_products_are_counted(dtype):
    X = smooth(600, dtype=dtype)
    model = KernelPCA(P, kernel="rbf", eigen_solver="randomized", random_state=0).fit(X)
    assert model.n_passes_ >= 3
    assert model.n_products_ >= model.n_passes_ * P
    assert model.solver_seconds_ > 0
    assert "block Krylov" in model.solver_
    op = Operator(centered_matrix(dtype=dtype))
    result = top_eigh(op, P, solver=BlockKrylov(), rng=0)
    assert result.seconds > 0
    assert (result.n_passes, result.n_products) == (op.passes, op.columns_multiplied)
