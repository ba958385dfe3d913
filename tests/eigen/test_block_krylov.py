"""The block Krylov iteration: passes, restarts, starts, residuals, and what a device does meanwhile."""

from __future__ import annotations

import copy
import warnings
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from gpukpca.backend.random import format_generator
from gpukpca.eigen import BlockKrylov, top_eigh
from gpukpca.eigen.krylov_iteration import first_state, result, step
from gpukpca.eigen.krylov_state import KrylovTask
from gpukpca.eigen.request import PairRequest
from gpukpca.exceptions import ConvergenceError, ConvergenceWarning
from gpukpca.gram import CenteredGram, DenseGram, TiledGram
from gpukpca.kernels import RBF
from tests import cupy_device, oracle, tolerances
from tests.each import each
from tests.operators import MATRICES, N, Operator, P, matrix, points


class Diagonal(Operator):
    """A diagonal matrix by its diagonal."""

    def __matmul__(self, V):
        return np.diagonal(self.A)[:, None] * V


def smooth(dtype="float64"):
    """Return a centered kernel matrix whose spectrum falls off slowly."""
    return oracle.centered(RBF(0.2)(points(N, 5) * np.linspace(2.0, 0.5, 5))).astype(dtype)


def check(A, found, dtype, tol, exact=None):
    """Recompute eigenvalues, reported residuals and orthonormality in float64."""
    A = np.asarray(A, dtype=np.float64)
    p = found.eigenvalues.shape[0]
    exact = oracle.eigenpairs(A, p)[0] if exact is None else exact
    parts = (found.eigenvalues, found.eigenvectors, found.residual_norms)
    values, U, reported = (np.asarray(part, dtype=np.float64) for part in parts)
    rounding = tolerances.residual(dtype) * exact[0]
    # Ritz values are from below, and off by no more than a residual.
    assert np.max(np.abs(values - exact)) <= tol * exact[0] + rounding
    assert np.max(values - exact) <= rounding
    residuals = np.linalg.norm(A @ U - U * values, axis=0)
    assert np.max(np.abs(residuals - reported)) <= rounding
    assert np.max(np.abs(U.T @ U - np.eye(p))) <= tolerances.orthogonality(dtype)
    assert np.array_equal(found.converged, reported <= found.tolerance * values[0])


# -- passes and residuals ----------------------------------------------------------------------------------------------

TOLERANCES = {"float64": [0.3, 1e-2, 1e-4, 1e-8, 1e-12, 2.5e-14], "float32": [0.3, 1e-2, 1e-4, 1e-5, 1.5e-5]}
SETTINGS = [{}, {"block_size": 2}, {"block_size": P + 30, "max_blocks": 6}, {"max_blocks": 2}, {"max_blocks": 3}]


@each("warm", [False, True])
@each("dtype, tol", [(dtype, tol) for dtype in TOLERANCES for tol in TOLERANCES[dtype]])
def test_reported_residuals_and_counts_are_true_at_every_tolerance(dtype, tol, warm):
    """With the last pass that verifies and without."""
    A = smooth(dtype)
    start = oracle.eigenpairs(A, 2 * P)[1].astype(dtype) if warm else None
    for settings in SETTINGS:
        op = Operator(A)
        found = top_eigh(op, P, solver=BlockKrylov(tol=tol, start=start, **settings), rng=0)
        assert found.converged.all()
        check(A, found, dtype, max(tol, found.tolerance))
        assert (found.n_passes, found.n_products) == (op.passes, op.columns_multiplied)
        assert found.seconds > 0


@each("passes", [1, 2, 3, 5])
@each("block_size", [None, 3, 40])
def test_a_fixed_number_of_passes_is_kept(passes, block_size):
    A = smooth()
    for start in (None, oracle.eigenpairs(A, P)[1], np.zeros((N, 2))):
        op = Operator(A)
        found = top_eigh(op, P, solver=BlockKrylov(passes=passes, start=start, block_size=block_size), rng=0)
        assert found.n_passes == op.passes == passes
        assert found.n_products == op.columns_multiplied
        U, values = found.eigenvectors, found.eigenvalues
        assert U.shape == (N, P)
        assert np.max(np.abs(U.T @ U - np.eye(P))) <= 1e-12
        residuals = np.linalg.norm(A @ U - U * values, axis=0)
        assert np.max(np.abs(residuals - found.residual_norms)) <= 1e-12 * oracle.eigenpairs(A, 1)[0][0]
        assert np.all(values <= oracle.eigenpairs(A, P)[0] * (1 + 1e-13))  # Rayleigh-Ritz is from below


@pytest.mark.parametrize("settings", [{"max_passes": 1, "block_size": 4}, {"max_passes": 2, "block_size": 4}, {}])
def test_too_few_passes_return_all_pairs_and_say_which_have_not_converged(settings):
    found = top_eigh(Operator(matrix("0.99^i")), P, solver=BlockKrylov(**{"max_passes": 2} | settings), rng=0)
    assert found.eigenvectors.shape == (N, P)
    assert found.n_passes <= 2
    assert found.tolerance == 1e-8
    assert not found.converged.all()
    assert np.all(found.converged == (found.residual_norms <= 1e-8 * found.eigenvalues[0]))


def test_a_loose_tolerance_needs_no_pass_that_verifies():
    """Residuals of the products so far are true ones; one more pass is made where rounding counts."""
    passes = []
    for tol in (1e-2, 1e-6, 1e-12, 2.5e-14):
        events: list[tuple] = []
        found = top_eigh(
            Operator(smooth()), P, solver=BlockKrylov(tol=tol), rng=0, report=lambda *event, to=events: to.append(event)
        )
        passes.append(found.n_passes)
        assert events[-1][0] == found.n_passes
        assert events[-1][2] <= events[-1][3] == tol
        met = [event[0] for event in events if event[2] is not None and event[2] <= tol]
        # The first check that meets the tolerance is the last pass.
        if tol >= 1e-6:
            assert met[0] == found.n_passes
    assert passes == sorted(passes)


@pytest.mark.parametrize("max_blocks", [2, 3, 4])
def test_restarts_lose_nothing(dtype, max_blocks):
    A = matrix("0.99^i", dtype)
    tol = tolerances.ITERATIVE_TOL * tolerances.eps(dtype)
    found = top_eigh(Operator(A), P, solver=BlockKrylov(max_blocks=max_blocks, tol=tol), rng=0)
    assert "restart" in found.solver
    check(A, found, dtype, tol)


@pytest.mark.parametrize("start", [None, np.ones((N, 3))], ids=["cold", "warm"])
def test_the_iteration_draws_one_byte_an_entry(start):
    b, rng, twin = 16, np.random.default_rng(5), np.random.default_rng(5)
    top_eigh(Operator(matrix("0.9^i")), P, solver=BlockKrylov(block_size=b, start=start, passes=2), rng=rng)
    twin.bytes(N * (b if start is None else b - 1))  # of a start that depends on itself one direction is left
    assert format_generator(rng) == format_generator(twin)


# -- starts ------------------------------------------------------------------------------------------------------------

V = np.random.default_rng(7).standard_normal((N, 4))
STARTS = {
    "zeros": lambda: np.zeros((N, 5)),
    "some zeros": lambda: np.concatenate([V, np.zeros((N, 3))], axis=1),
    "constant": lambda: np.ones((N, 3)),
    "unit": lambda: np.eye(N)[:, :1],
    "twice the same": lambda: np.concatenate([V, V], axis=1),
    "nearly dependent": lambda: np.concatenate([V, V + 1e-12 * V[::-1]], axis=1),
    "one column": lambda: V[:, :1].copy(),
    "no columns": lambda: V[:, :0].copy(),
    "as wide as the block": lambda: points(N, 16),
    "wider than the block": lambda: points(N, 60),
    "wider than the basis": lambda: points(N, 200),
    "square": lambda: np.eye(N),
    "huge": lambda: 1e300 * V,
    "tiny": lambda: 1e-300 * V,
    "badly scaled": lambda: V * [1e-12, 1.0, 1e6, 1e12],
    "in order of Fortran": lambda: np.asfortranarray(V),
    "a view": lambda: points(2 * N, 8)[::2, ::2],
}


@each("name", STARTS)
def test_no_start_does_harm(name):
    A, start = smooth(), STARTS[name]()
    before = start.copy()
    start.flags.writeable = False
    for settings in ({}, {"block_size": 4}, {"block_size": P + 30, "max_blocks": 6}):
        found = top_eigh(Operator(A), P, solver=BlockKrylov(start=start, **settings), rng=0)
        assert found.converged.all()
        check(A, found, "float64", 1e-8)
    assert np.array_equal(start, before)


@each("name", ["zeros", "twice the same", "wider than the block"])
def test_no_start_does_harm_on_any_library(xp, dtype, name):
    A = smooth(dtype)
    start = xp.array(STARTS[name]().astype(dtype))
    found = top_eigh(Operator(A, xp), 4, solver=BlockKrylov(start=start), rng=0)
    assert xp.owns(found.eigenvectors)
    exact = oracle.eigenpairs(A, 4)[0]
    assert np.max(np.abs(xp.host(found.eigenvalues) - exact)) <= (1e-8 if dtype == "float64" else 1e-5) * exact[0]


@pytest.mark.parametrize("first", [1, 4, 50, N - 20])
def test_an_invariant_subspace_that_is_not_the_top_one_is_left(first):
    """Residuals of such a start are zero; random directions must lead out of it."""
    values = np.linspace(1.0, 0.01, N)
    values[:4] = [9.0, 8.0, 7.0, 6.0]
    start = np.eye(N)[:, first : first + P + 8]
    for seed in range(3):
        found = top_eigh(Diagonal(np.diag(values)), P, solver=BlockKrylov(start=start, tol=1e-10), rng=seed)
        assert np.max(np.abs(found.eigenvalues - values[:P])) <= 1e-8


@pytest.mark.parametrize("missing", range(0, P, 3))
def test_a_start_made_of_the_answer_but_for_one_vector(missing):
    A = smooth()
    exact, vectors = oracle.eigenpairs(A, 2 * P)
    found = top_eigh(Operator(A), P, solver=BlockKrylov(start=np.delete(vectors, missing, axis=1)), rng=0)
    check(A, found, "float64", 1e-8)
    assert np.max(np.abs(found.eigenvalues - exact[:P])) <= 1e-10


def test_a_start_of_the_answer_is_verified_in_three_passes():
    A = smooth()
    op = Operator(A)
    cold = top_eigh(Operator(A), P, solver=BlockKrylov(), rng=0)
    warm = top_eigh(op, P, solver=BlockKrylov(start=oracle.eigenpairs(A, P + 8)[1]), rng=0)
    assert warm.n_passes == op.passes == 3 < cold.n_passes
    check(A, warm, "float64", 1e-8)


@pytest.mark.parametrize("block_size", [1, 2, 5])
def test_blocks_narrower_than_the_components_miss_nothing_from_a_start(block_size):
    A = oracle.with_spectrum(np.concatenate([np.full(5, 3.0), np.linspace(2.0, 0.0, N - 5)]), 4)
    vectors = oracle.eigenpairs(A)[1]
    for start in (vectors[:, 4 : 4 + block_size], vectors[:, 100:108], vectors[:, :1]):
        solver = BlockKrylov(block_size=block_size, start=start, tol=1e-8)
        check(A, top_eigh(Operator(A), 6, solver=solver, rng=1), "float64", 1e-8)


@pytest.fixture(scope="module")
def hidden():
    """Return a kernel matrix with a tight cluster of 40 far away, that centered, and rows without the cluster."""
    n, m = 900, 40
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4)) * [2.0, 1.0, 0.7, 0.5]
    X[:m] = 60 + 1e-3 * rng.standard_normal((m, 4))
    K = RBF(1.0)(X)
    return K, oracle.centered(K), m + rng.permutation(n - m)[:250]


def share_of_the_cluster(vectors):
    """Return how much of the direction of the cluster of 40 the vectors hold."""
    return float(np.sum(np.sum(vectors[:40], axis=0) ** 2)) / 40


@each("block_size, tol", [(None, 0.0), (None, 1e-2), (36, 1e-3), (6, 1e-2), (6, 0.0), (4, 1e-3)])
def test_a_cluster_that_the_sample_does_not_know_is_found(hidden, block_size, tol):
    (K, A, rows), p = hidden, 6
    exact, vectors = oracle.eigenpairs(A, p)
    assert share_of_the_cluster(vectors) > 0.9
    sample = top_eigh(CenteredGram(DenseGram(K[np.ix_(rows, rows)].copy())), p + 8, rng=0).eigenvectors
    start = K[:, rows] @ sample
    # It does not know of the cluster, and would be off by much without it.
    assert np.max(np.abs(start[:40] - start[0])) <= 1e-10
    without = oracle.eigenpairs(oracle.centered(K[40:, 40:]), p)[0]
    assert np.max(np.abs(without - exact)) > 0.1 * exact[0]
    solver = BlockKrylov(tol=tol, start=start, block_size=block_size)
    found = top_eigh(CenteredGram(DenseGram(K)), p, solver=solver, rng=0)
    assert found.converged.all()
    check(A, found, "float64", tol or 1e-8, exact)
    share = share_of_the_cluster(found.eigenvectors)
    assert share == pytest.approx(share_of_the_cluster(vectors), abs=1e-6 + 20 * tol)


# -- the host checks while a device works -----------------------------------------------------------------------------


def iterate(op, launches_early, forecast=None):
    """Run the iteration as on a device. Return the result and the states; `forecast` overrides every `is_far`."""
    eps = tolerances.eps(str(op.host.dtype))
    limits = {"max_columns": 180, "limit": 300, "tol": 1e-8 if eps < 1e-10 else 1e-5, "is_fixed": False}
    limits["request"] = PairRequest.of_count(P)
    task = KrylovTask(op, np.random.default_rng(0), p=P, b=18, launches_early=launches_early, **limits)
    states = [first_state(task, None)]
    while not states[-1].is_done:
        state = states[-1] if forecast is None else replace(states[-1], next_check=1000 * forecast)
        states.append(step(task, state))
    return result(task, states[-1]), states


@each("of", ["zero", "0.99^i", "cluster-of-6-and-15", "rank-5", "indefinite", "i^-1", "gap-1e-3", "spikes", "0.5^i"])
def test_products_launched_before_a_check_change_no_bit(of, dtype):
    A = matrix(of, dtype)
    op = Operator(A)
    plain, states = iterate(op, launches_early=False, forecast=False)  # a host checks every pass only where near
    assert op.passes == plain.n_passes == len(states) - 1
    for forecast in (None, True):
        op = Operator(A)
        late, states = iterate(op, launches_early=True, forecast=forecast)
        for field in ("eigenvalues", "eigenvectors", "products", "residual_norms"):
            assert np.array_equal(getattr(late, field), getattr(plain, field))
        assert (late.n_passes, late.n_products, late.solver) == (plain.n_passes, plain.n_products, plain.solver)
        assert of != "0.99^i" or any(state.product is not None for state in states)
        # Every wrong forecast is one product, and there is at most one before each verification.
        assert plain.n_passes <= op.passes <= plain.n_passes + 1 + late.solver.count("restart")


def test_a_host_skips_checks_after_one_that_finds_the_target_far():
    checked = []

    def report(done, limit, residual, tol):
        checked.append(residual is not None)

    found = top_eigh(Operator(matrix("0.99^i")), P, solver=BlockKrylov(), rng=0, report=report)
    assert found.converged.all()
    assert checked[-1]
    assert not all(checked[2:])
    assert all(any(checked[k : k + 4]) for k in range(2, len(checked) - 3))


def test_a_device_has_the_next_product_to_do_while_the_host_checks(cuda):
    op, ahead = Operator(matrix("0.99^i")), []
    op.A = cuda.asarray(op.host)
    op.like = op.A[:0, 0]

    def report(done, limit, residual, tol):
        if residual is not None:
            ahead.append(op.passes - done)

    found = top_eigh(op, P, solver=BlockKrylov(block_size=18), rng=0, report=report)
    assert op.passes == found.n_passes
    assert set(ahead) <= {0, 1}
    assert ahead[0] == ahead[-1] == 0  # nothing is known yet; the last check was forecast
    assert sum(ahead) >= len(ahead) / 2


class Watched(CenteredGram):
    """Note the operations of the device after each product."""

    after_product = 0

    def __matmul__(self, V):
        product = super().__matmul__(V)
        self.after_product = cupy_device.controls().counts()["operations"]
        return product


def test_a_check_uses_nothing_of_the_device(stand_in):
    """The device would answer only after the product that it has to do."""
    op = Watched(TiledGram(RBF(0.5), stand_in.asarray(points(300))))
    limits = {"max_columns": 60, "limit": 300, "tol": 1e-8, "is_fixed": False}
    limits["request"] = PairRequest.of_count(3)
    task, launched = KrylovTask(op, np.random.default_rng(0), p=3, b=8, launches_early=True, **limits), 0
    state = first_state(task, None)
    while not state.is_done:
        state = step(task, state)
        if state.product is not None:
            launched += 1
            assert cupy_device.controls().counts()["operations"] == op.after_product
    assert launched >= 2


class Recorder:
    """A checkpointer that keeps nothing but how often it was called, and the passes begun until then."""

    def __init__(self, op):
        self.op, self.passes = op, []

    def resumed(self, task):
        return None

    def record(self, state):
        self.passes.append((state.n_passes, self.op.passes))


def test_with_a_checkpointer_a_pass_begins_once_its_state_is_recorded(stand_in):
    op = Operator(matrix("0.99^i"))
    op.A = stand_in.asarray(op.host)
    op.like = op.A[:0, 0]
    recorder = Recorder(op)
    found = top_eigh(op, P, solver=BlockKrylov(block_size=18), rng=0, checkpointer=recorder)
    assert recorder.passes == [(k, k) for k in range(1, found.n_passes + 1)]


class States:
    """A checkpointer that keeps copies of all states, and gives one of them to go on from."""

    def __init__(self, first=None):
        self.first, self.kept = first, []

    def resumed(self, task):
        return copy.deepcopy(self.first)

    def record(self, state):
        self.kept.append(copy.deepcopy(state))


@pytest.mark.parametrize("block_size", [1, 4])
def test_a_narrow_block_that_became_wide_goes_on_where_it_was(block_size):
    A, states, solver = matrix("cluster-of-6-and-15"), States(), BlockKrylov(block_size=block_size)
    whole = top_eigh(Operator(A), P, solver=solver, rng=0, checkpointer=states)
    wide = [state for state in states.kept if state.b == P > block_size]
    assert not wide[0].is_done
    for state in (wide[0], wide[len(wide) // 2]):
        op = Operator(A)
        found = top_eigh(op, P, solver=solver, rng=0, checkpointer=States(state))
        assert (found.n_passes, op.passes) == (whole.n_passes, whole.n_passes - state.n_passes)
        assert found.eigenvectors.tobytes() == whole.eigenvectors.tobytes()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_inner_products_that_are_not_computed_are_zero(dtype):
    """The small matrix of every state is that of the whole basis, through restarts and verifications."""
    skipped = 0
    for name in MATRICES:
        A = matrix(name, dtype)
        for block_size, max_blocks in ((2, None), (P, 3), (P + 7, None)):
            states = States()
            tol = tolerances.ITERATIVE_TOL * tolerances.eps(dtype)
            solver = BlockKrylov(block_size=block_size, max_blocks=max_blocks, tol=tol, max_passes=40)
            with warnings.catch_warnings(), suppress(ConvergenceError):
                warnings.simplefilter("ignore", ConvergenceWarning)
                top_eigh(Operator(A), P, solver=solver, rng=0, checkpointer=states)
            for state in states.kept:
                Q, exponent = state.Q.array.astype(np.float64), state.exponent or 0
                exact = Q.T @ (np.ldexp(A.astype(np.float64), -exponent) @ Q)
                error = np.abs(exact - state.T).max()
                assert error <= 2 * tolerances.residual(dtype) * np.abs(exact).max(), (name, block_size, state.n_passes)
                assert np.abs(Q.T @ Q - np.eye(len(exact))).max() <= 2 * tolerances.orthogonality(dtype)
                skipped += (state.coupled or 0) > 0
    assert skipped > 100
