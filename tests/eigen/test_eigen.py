"""Solvers alone, on operators with known spectra: accuracy, completeness, scaling, determinism."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scipy.sparse.linalg

from gpukpca._typing import complete_operator
from gpukpca.backend.random import format_generator, random_directions, restore_generator
from gpukpca.eigen import BlockKrylov, Dense, EigenResult, block_krylov, choose_solver, krylov_iteration, top_eigh
from gpukpca.exceptions import ConvergenceError, InvalidParameterError
from gpukpca.gram import CenteredGram, TiledGram
from gpukpca.kernels import RBF
from tests import fake_cupy, oracle, tolerances
from tests.conftest import MAKERS, Namespace

N, P = 256, 10
NUMPY = MAKERS["numpy"]()


class Operator:
    """All that a solver may ask of an operator."""

    def __init__(self, A):
        self.A, self.shape, self.dtype, self.like, self.products = A, A.shape, A.dtype, A[:0, 0], 0

    def __matmul__(self, V):
        self.products += 1
        return self.A @ V

    def to_dense(self, overwrite=False):
        return self.A + 0.0


def _geometric(n, dtype):
    return tolerances.eps(dtype) ** (np.arange(n) / (n - 1))


def _gap(relative):
    values = np.concatenate([np.linspace(2.0, 1.0, P), np.linspace(0.5, 0.01, N - P)])
    values[P] = values[P - 1] * (1.0 - relative)
    return values


def _index():
    return np.arange(1.0, N + 1.0)


def _tail(dtype):
    return np.full(N - 1, tolerances.eps(dtype))


# name -> the eigenvalues, given a dtype
SPECTRA = {
    "zero": lambda dtype: np.zeros(N),
    "identity": lambda dtype: np.full(N, 3.0),
    "arithmetic": lambda dtype: np.linspace(1.0, tolerances.eps(dtype), N),
    "geometric": lambda dtype: _geometric(N, dtype),
    "one-large": lambda dtype: np.concatenate([[1.0], _tail(dtype)]),
    "one-small": lambda dtype: np.concatenate([np.ones(N - 1), [tolerances.eps(dtype)]]),
    "i^-1/2": lambda dtype: _index() ** -0.5,
    "i^-1": lambda dtype: 1.0 / _index(),
    "i^-2": lambda dtype: _index() ** -2,
    "0.5^i": lambda dtype: 0.5 ** _index(),
    "0.9^i": lambda dtype: 0.9 ** _index(),
    "0.99^i": lambda dtype: 0.99 ** _index(),
    "spikes": lambda dtype: np.concatenate(
        [np.linspace(100, 50, 10), 1 + 1e-3 * np.random.default_rng(1).random(N - 10)]
    ),
    "gap-1e-3": lambda dtype: _gap(1e-3),
    "gap-1e-6": lambda dtype: _gap(1e-6),
    "gap-1e-9": lambda dtype: _gap(1e-9),
    "gap-0": lambda dtype: _gap(0.0),
    "cluster-of-40": lambda dtype: np.concatenate([np.full(40, 2.0), np.linspace(1.0, 0.0, N - 40)]),
    "cluster-of-6-and-15": lambda dtype: np.concatenate([np.full(6, 3.0), np.full(15, 2.0), np.linspace(1, 0, N - 21)]),
    "rank-5": lambda dtype: np.concatenate([np.linspace(5, 1, 5), np.zeros(N - 5)]),
    "indefinite": lambda dtype: np.concatenate([[1.0, -0.99], (-0.97) ** np.arange(2.0, N)]),
    "negative": lambda dtype: -np.linspace(1.0, 2.0, N),
}


def _laplacian():
    return 2 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1)


def _path():
    A = _laplacian()
    A[0, 0] = A[-1, -1] = 1.0
    return A


def _mikota():
    """M^-1/2 K M^-1/2 of a chain of masses: eigenvalues 1, 4, 9, ..."""
    from scipy.sparse.linalg._special_sparse_arrays import MikotaPair

    pair = MikotaPair(64)
    M, K = (np.asarray(part.tosparse().toarray(), dtype=np.float64) for part in (pair.m, pair.k))
    root = np.diag(1 / np.sqrt(np.diag(M)))
    return root @ K @ root


def _sakurai():
    from scipy.sparse.linalg._special_sparse_arrays import Sakurai

    return np.asarray(Sakurai(150).toarray(), dtype=np.float64)


def _grid():
    return np.asarray(scipy.sparse.linalg.LaplacianNd((14, 15), boundary_conditions="neumann").toarray(), float) + 0.0


def _far_narrow(dtype):
    """513 points on [500, 501], length scale 1: eigenvalues fall off so fast that all but a few are zero."""
    x = np.linspace(500, 501, 257)
    return oracle.centered(np.exp(-((x[:, None] - x[None, :]) ** 2) / 2))


MATRICES = {
    "averaging": lambda dtype: oracle.centering(N),
    "ones": lambda dtype: np.ones((N, N)),
    "laplacian": lambda dtype: _laplacian(),
    "path": lambda dtype: _path(),
    "mikota": lambda dtype: _mikota(),
    "sakurai": lambda dtype: _sakurai(),
    "grid": lambda dtype: _grid(),
    "far-narrow": _far_narrow,
} | {name: (lambda dtype, make=make: oracle.with_spectrum(make(dtype), 5)) for name, make in SPECTRA.items()}


def solvers(dtype: str) -> dict:
    return {"dense": Dense(), "krylov": BlockKrylov(tol=tolerances.ITERATIVE_TOL * tolerances.eps(dtype))}


def check(A: np.ndarray, result: EigenResult, dtype: str, solver: str, xp: Namespace = NUMPY) -> None:
    """Eigenvalues, true residuals, orthogonality and completeness of the top p, all recomputed in float64."""
    A = np.asarray(A, dtype=np.float64)
    exact, _ = oracle.eigenpairs(A)
    norm = np.max(np.abs(exact))
    values, U = (xp.host(part).astype(np.float64) for part in (result.eigenvalues, result.eigenvectors))
    p = len(values)
    assert np.all(np.diff(values) <= 0)
    assert np.max(np.abs(values - exact[:p])) <= tolerances.eigenvalue(dtype) * norm
    residuals = np.linalg.norm(A @ U - U * values, axis=0)
    assert np.max(residuals) <= tolerances.residual(dtype, solver) * norm
    assert np.max(np.abs(U.T @ U - np.eye(p))) <= tolerances.orthogonality(dtype, xp.name)
    reported = xp.host(result.residual_norms).astype(np.float64)
    # What is reported is true up to the rounding of the product it comes from.
    assert np.all(residuals <= reported + tolerances.residual(dtype) * norm)
    slack = 2 * tolerances.eigenvalue(dtype) * norm
    if norm > 0:
        sigma = values[-1] + 2 * slack
        assert oracle.count_above(A, sigma) <= np.sum(values > sigma - slack)


# -- the table ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["dense", "krylov"])
@pytest.mark.parametrize("name", MATRICES)
def test_top_eigenpairs_of_a_known_spectrum(name, dtype, solver):
    A = MATRICES[name](dtype).astype(dtype)
    result = top_eigh(Operator(A), P, solver=solvers(dtype)[solver], rng=0)
    assert result.eigenvalues.dtype == A.dtype
    assert result.eigenvectors.shape == (len(A), P)
    check(A, result, dtype, solver)


SOME = ["zero", "0.99^i", "cluster-of-6-and-15", "rank-5", "indefinite", "path"]


@pytest.mark.parametrize("name", MATRICES)
def test_vectors_of_the_iteration_are_orthonormal_to_rounding(xp, dtype, name):
    A = MATRICES[name](dtype)[:120, :120].astype(dtype)
    result = top_eigh(Operator(xp.array((A + A.T) / 2)), 6, solver=solvers(dtype)["krylov"], rng=0)
    U = xp.host(result.eigenvectors).astype(np.float64)
    # Without a last step towards orthonormal columns some are off by 120 eps.
    assert np.max(np.abs(U.T @ U - np.eye(6))) <= 50 * tolerances.eps(dtype)


@pytest.mark.parametrize("solver", ["dense", "krylov"])
@pytest.mark.parametrize("name", SOME)
def test_top_eigenpairs_on_every_library(xp, dtype, name, solver):
    A = MATRICES[name](dtype)[:120, :120].astype(dtype)
    A = (A + A.T) / 2
    result = top_eigh(Operator(xp.array(A)), 6, solver=solvers(dtype)[solver], rng=0)
    for part in (result.eigenvalues, result.eigenvectors, result.products, result.residual_norms):
        assert xp.owns(part)
        assert part.dtype == xp.dtype(dtype)
    check(A, result, dtype, solver, xp)


@pytest.mark.parametrize(
    "name", ["cluster-of-40", "cluster-of-6-and-15", "gap-0", "identity", "laplacian", "averaging"]
)
def test_narrow_blocks_miss_no_member_of_a_cluster(name, dtype):
    A = MATRICES[name](dtype).astype(dtype)
    solver = BlockKrylov(block_size=4, tol=tolerances.ITERATIVE_TOL * tolerances.eps(dtype))
    for seed in (0, 1):
        check(A, top_eigh(Operator(A), P, solver=solver, rng=seed), dtype, "krylov")


def test_a_block_of_one_column_still_finds_everything():
    A = MATRICES["cluster-of-6-and-15"]("float64")
    result = top_eigh(Operator(A), 9, solver=BlockKrylov(block_size=1, tol=2e-14), rng=0)
    check(A, result, "float64", "krylov")


def test_large_low_rank_in_single_precision():
    """n = 1024 of rank 7: the class of matrices that cuSOLVER once failed on."""
    F = np.random.default_rng(3).standard_normal((1024, 7))
    A = (F @ F.T).astype(np.float32)
    for name, solver in solvers("float32").items():
        result = top_eigh(Operator(A), P, solver=solver, rng=0)
        exact = np.linalg.eigvalsh(A.astype(np.float64))[::-1][:P]
        assert np.max(np.abs(result.eigenvalues - exact)) <= 3e-6 * exact[0], name
        assert np.all(result.eigenvalues[7:] == 0.0)


def test_a_gap_below_rounding_is_told():
    for solver in solvers("float64").values():
        result = top_eigh(Operator(MATRICES["gap-0"]("float64")), P, solver=solver, rng=0)
        assert abs(result.gap) <= 1e-13
        result = top_eigh(Operator(MATRICES["gap-1e-3"]("float64")), P, solver=solver, rng=0)
        assert result.gap == pytest.approx(1e-3, rel=1e-6)


@pytest.mark.parametrize("solver", ["dense", "krylov"])
def test_vectors_with_a_gap_are_exact_to_the_gap(dtype, solver):
    values = np.concatenate([2.0 ** -np.arange(P), np.linspace(1e-4, 0, N - P)])
    A = oracle.with_spectrum(values, 7).astype(dtype)
    result = top_eigh(Operator(A), P, solver=solvers(dtype)[solver], rng=0)
    exact, vectors = oracle.eigenpairs(A, P + 1)
    gaps = np.minimum(np.abs(np.diff(exact)), np.abs(np.diff(np.concatenate([[np.inf], exact[:-1]]))))
    U = result.eigenvectors.astype(np.float64)
    outside = U - vectors[:, :P] * np.sum(vectors[:, :P] * U, axis=0)
    assert np.all(np.linalg.norm(outside, axis=0) <= tolerances.angle(dtype, solver, gaps))


@pytest.mark.parametrize("name", ["indefinite", "negative"])
def test_the_largest_by_value_not_by_modulus(name, dtype):
    A = MATRICES[name](dtype).astype(dtype)
    exact = np.linalg.eigvalsh(A.astype(np.float64))[::-1][:P]
    for solver in solvers(dtype).values():
        result = top_eigh(Operator(A), P, solver=solver, rng=0)
        assert np.max(np.abs(result.eigenvalues - exact)) <= tolerances.eigenvalue(dtype) * 2.0
        assert result.smallest_seen <= result.eigenvalues[-1]


def test_eigenvalues_within_rounding_of_zero_are_zero(dtype):
    for name, rank in (("zero", 0), ("rank-5", 5), ("ones", 1)):
        A = MATRICES[name](dtype).astype(dtype)
        for solver in solvers(dtype).values():
            values = top_eigh(Operator(A), P, solver=solver, rng=0).eigenvalues
            assert np.all(values[rank:] == 0.0)
            assert np.all(values[:rank] > 0.0)


# -- scaling by powers of two ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "exponent"), [("float64", 500), ("float64", -500), ("float32", 60), ("float32", -60)]
)
@pytest.mark.parametrize("name", ["geometric", "i^-1/2"])
@pytest.mark.parametrize("solver", ["dense", "krylov"])
def test_a_power_of_two_changes_eigenvalues_exactly_and_vectors_not_at_all(solver, name, dtype, exponent):
    A = MATRICES[name](dtype).astype(dtype)
    plain = top_eigh(Operator(A), P, solver=solvers(dtype)[solver], rng=0)
    scaled = top_eigh(Operator(np.ldexp(A, exponent).astype(dtype)), P, solver=solvers(dtype)[solver], rng=0)
    assert np.array_equal(scaled.eigenvectors, plain.eigenvectors)
    assert np.array_equal(scaled.eigenvalues, np.ldexp(plain.eigenvalues, exponent))
    assert np.array_equal(scaled.residual_norms, np.ldexp(plain.residual_norms, exponent))
    assert scaled.n_passes == plain.n_passes


@pytest.mark.parametrize("exponent", [-1000, -970, 900, 980])
def test_operators_at_the_ends_of_the_range(exponent):
    A = np.ldexp(MATRICES["0.9^i"]("float64"), exponent)
    for solver in solvers("float64").values():
        result = top_eigh(Operator(A), P, solver=solver, rng=0)
        scaled = np.ldexp(result.eigenvalues, -exponent)
        assert np.max(np.abs(scaled - 0.9 ** np.arange(1, P + 1))) <= tolerances.eigenvalue("float64")


# -- settings of the iteration -----------------------------------------------------------------------------------------


def test_passes_and_products_are_counted():
    op = Operator(MATRICES["0.9^i"]("float64"))
    result = top_eigh(op, P, solver=BlockKrylov(block_size=15), rng=0)
    assert result.n_passes == op.products
    assert result.n_products >= result.n_passes * 10
    assert result.converged.all()
    assert result.tolerance == 1e-8


@pytest.mark.parametrize("passes", [1, 2, 5])
def test_a_fixed_number_of_passes_is_kept(passes):
    op = Operator(MATRICES["i^-1/2"]("float64"))
    result = top_eigh(op, P, solver=BlockKrylov(passes=passes), rng=0)
    assert result.n_passes == op.products == passes
    exact = np.linalg.eigvalsh(op.A)[::-1][:P]
    assert np.all(result.eigenvalues <= exact * (1 + 1e-13))  # Rayleigh-Ritz is from below
    residuals = np.linalg.norm(op.A @ result.eigenvectors - result.eigenvectors * result.eigenvalues, axis=0)
    assert np.max(np.abs(residuals - result.residual_norms)) <= 1e-12


@pytest.mark.parametrize("settings", [{"passes": 1}, {"max_passes": 1}, {"max_passes": 2}])
def test_p_pairs_are_returned_even_when_the_passes_were_too_few_for_the_block(settings):
    A = MATRICES["i^-1/2"]("float64")
    result = top_eigh(Operator(A), P, solver=BlockKrylov(block_size=4, **settings), rng=0)
    assert result.eigenvalues.shape == (P,)
    assert result.eigenvectors.shape == (N, P)
    assert not result.converged.all()
    assert np.max(np.abs(result.eigenvectors.T @ result.eigenvectors - np.eye(P))) <= 1e-12


def test_too_few_passes_are_told_by_the_flags():
    result = top_eigh(Operator(MATRICES["0.99^i"]("float64")), P, solver=BlockKrylov(max_passes=2), rng=0)
    assert result.n_passes == 2
    assert not result.converged.all()
    assert np.all(result.converged == (result.residual_norms <= 1e-8 * result.eigenvalues[0]))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("max_blocks", [2, 3, 4])
def test_restarts_lose_nothing(dtype, max_blocks):
    A = MATRICES["0.99^i"](dtype).astype(dtype)
    solver = BlockKrylov(max_blocks=max_blocks, tol=tolerances.ITERATIVE_TOL * tolerances.eps(dtype))
    result = top_eigh(Operator(A), P, solver=solver, rng=0)
    assert "restart" in result.solver
    check(A, result, dtype, "krylov")


def test_a_good_start_saves_passes():
    A = MATRICES["i^-1/2"]("float64")
    cold = top_eigh(Operator(A), P, solver=BlockKrylov(), rng=0)
    warm = top_eigh(Operator(A), P, solver=BlockKrylov(start=cold.eigenvectors), rng=0)
    assert warm.n_passes < cold.n_passes
    assert np.max(np.abs(warm.eigenvalues - cold.eigenvalues)) <= 1e-12


@pytest.mark.parametrize(
    "start",
    [
        np.zeros((N, 3)),
        np.ones((N, 5)),
        np.eye(N)[:, :1],
        np.random.default_rng(0).standard_normal((N, 40)),
    ],
    ids=["zero", "dependent", "unit", "wide"],
)
def test_a_poor_start_does_no_harm(start):
    A = MATRICES["0.9^i"]("float64")
    check(A, top_eigh(Operator(A), P, solver=BlockKrylov(start=start, tol=2e-14), rng=0), "float64", "krylov")


def test_a_start_inside_a_wrong_invariant_subspace_is_left():
    """Eigenvectors of small eigenvalues have zero residuals: only fresh directions lead out of them."""
    A = np.diag(np.arange(N, 0, -1.0))
    start = np.eye(N)[:, 100 : 100 + P + 8]
    check(A, top_eigh(Operator(A), P, solver=BlockKrylov(start=start, tol=2e-14), rng=0), "float64", "krylov")


def test_reports_come_after_every_pass():
    events = []
    op = Operator(MATRICES["0.9^i"]("float64"))
    result = top_eigh(op, P, solver="randomized", rng=0, report=lambda *event: events.append(event))
    assert [event[0] for event in events][-1] == result.n_passes
    assert events[-1][2] <= events[-1][3] == 1e-8


def test_a_product_that_is_not_finite_is_an_error():
    A = np.full((N, N), np.nan)
    for solver in ("dense", "randomized"):
        with pytest.raises((ConvergenceError, ValueError)):
            top_eigh(Operator(A), P, solver=solver, rng=0)


# -- determinism -------------------------------------------------------------------------------------------------------


def test_the_seed_decides_everything(dtype):
    A = MATRICES["i^-1/2"](dtype).astype(dtype)
    first, second, other = (top_eigh(Operator(A), P, solver="randomized", rng=seed) for seed in (4, 4, 5))
    assert np.array_equal(first.eigenvectors, second.eigenvectors)
    assert np.array_equal(first.eigenvalues, second.eigenvalues)
    assert not np.array_equal(first.eigenvectors, other.eigenvectors)
    generator = top_eigh(Operator(A), P, solver="randomized", rng=np.random.default_rng(4))
    assert np.array_equal(generator.eigenvectors, first.eigenvectors)


def test_the_seed_of_numpy_is_left_alone():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    top_eigh(Operator(np.eye(40)), 3, solver="randomized", rng=0)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_random_numbers_are_the_same_on_every_library(xp, dtype):
    like = xp.array(np.empty(0, dtype=dtype))
    drawn = random_directions(np.random.default_rng(8), (701, 3), like)
    assert xp.owns(drawn)
    assert drawn.dtype == xp.dtype(dtype)
    levels = np.frombuffer(np.random.default_rng(8).bytes(701 * 3), np.uint8).reshape(701, 3)
    assert np.array_equal(xp.host(drawn), (2.0 * levels - 255.0) / 128.0)
    assert np.unique(levels).size == 256


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_panels_of_a_draw_and_a_restored_generator_give_the_same_numbers(kind):
    like, rng = np.empty(0), np.random.Generator(kind(3))
    whole = random_directions(np.random.Generator(kind(3)), (24, 5), like)
    first = random_directions(rng, (8, 5), like)
    state = format_generator(rng)
    rest = random_directions(rng, (16, 5), like)
    assert np.array_equal(np.concatenate([first, rest]), whole)
    restore_generator(rng, state)
    assert np.array_equal(random_directions(rng, (16, 5), like), rest)


@pytest.mark.parametrize("n", [3, 4, 5, 8, 13])
def test_few_rows_have_independent_directions(n):
    """Columns of signs alone repeat each other; on 8 rows one draw in ten had."""
    for seed in range(200):
        V = random_directions(np.random.default_rng(seed), (n, min(n - 1, 4)), np.empty(0))
        sizes = np.linalg.svd(V - V.mean(axis=0), compute_uv=False)
        assert sizes[-1] > 1e-5 * sizes[0]


@pytest.mark.parametrize("start", [None, np.ones((N, 3))], ids=["cold", "warm"])
def test_the_iteration_draws_one_byte_an_entry(start):
    b, rng, twin = 16, np.random.default_rng(5), np.random.default_rng(5)
    solver = BlockKrylov(block_size=b, start=start, passes=2)
    top_eigh(Operator(MATRICES["0.9^i"]("float64")), P, solver=solver, rng=rng)
    twin.bytes(N * (b if start is None else b - 1))  # of a start that depends on itself one direction is left
    assert format_generator(rng) == format_generator(twin)


def test_a_draw_needs_no_more_of_a_device_than_its_bytes_and_its_answer(fake_cuda):
    like = fake_cuda.empty((0,), "float32")
    with fake_cupy.peak_bytes() as most:
        random_directions(np.random.default_rng(0), (4096, 64), like)
    assert most.count <= (1 + 4) * 4096 * 64 + 4096


def test_libraries_agree_up_to_rounding(xp):
    A = MATRICES["0.9^i"]("float64")[:130, :130]
    solver = BlockKrylov(block_size=16)  # by default wider on a device
    plain = top_eigh(Operator(A), 5, solver=solver, rng=0)
    result = top_eigh(Operator(xp.array(A)), 5, solver=solver, rng=0)
    assert result.n_passes == plain.n_passes
    assert np.max(np.abs(xp.host(result.eigenvectors) - plain.eigenvectors)) <= 1e-7


# -- the host looks while a device works -------------------------------------------------------------------------------


def watched(A, **settings):
    """The leading eigenpairs, the operator, and of every look its pass and the products launched before."""
    op, looks = Operator(A), []

    def report(done, limit, residual, tol):
        if residual is not None:
            looks.append((done, op.products))

    return top_eigh(op, P, solver=BlockKrylov(block_size=18), rng=0, report=report, **settings), op, looks


@pytest.mark.parametrize("fastest", [krylov_iteration.FASTEST, -1e9], ids=["as forecast", "always ahead"])
@pytest.mark.parametrize("name", [*SOME, "i^-1", "gap-1e-3", "spikes", "0.5^i"])
def test_products_launched_before_a_look_change_no_bit(name, dtype, fastest, monkeypatch):
    A = MATRICES[name](dtype).astype(dtype)
    plain, op, looks = watched(A)
    assert all(done == products for done, products in looks)
    assert op.products == plain.n_passes
    monkeypatch.setattr(krylov_iteration, "FASTEST", fastest)
    monkeypatch.setattr(block_krylov, "is_on_gpu", lambda x: True)
    late, op, looks = watched(A)
    for field in ("eigenvalues", "eigenvectors", "products", "residual_norms"):
        assert np.array_equal(getattr(late, field), getattr(plain, field))
    assert (late.n_passes, late.n_products, late.solver) == (plain.n_passes, plain.n_products, plain.solver)
    if fastest > 0:
        assert op.products == plain.n_passes
    else:  # every wrong forecast is one product, and there is at most one before each verification
        assert plain.n_passes <= op.products <= plain.n_passes + 1 + late.solver.count("restart")


def test_a_device_has_the_next_product_to_do_while_the_host_looks(cuda):
    A = cuda.asarray(MATRICES["0.99^i"]("float64"))
    result, op, looks = watched(A)
    assert op.products == result.n_passes
    ahead = [products - done for done, products in looks]
    assert set(ahead) <= {0, 1}
    assert ahead[0] == ahead[-1] == 0  # nothing is known yet; the last look was seen coming
    assert sum(ahead) >= len(ahead) / 2


def test_a_look_asks_nothing_of_the_device(fake_cuda, monkeypatch):
    """What is asked for behind a product that runs is answered after it."""
    X = fake_cuda.asarray(np.random.default_rng(0).standard_normal((300, 3)))
    op, seen, look = CountedGram(TiledGram(RBF(0.5), X)), [], krylov_iteration._look

    def counted(op, state, *more):
        with fake_cupy.operations() as made:
            answer = look(op, state, *more)
        seen.append((op.products - state.n_passes, made.count))
        return answer

    monkeypatch.setattr(krylov_iteration, "_look", counted)
    top_eigh(op, 3, solver=BlockKrylov(block_size=8), rng=0)
    assert sum(ahead for ahead, _ in seen) >= 2
    assert all(operations == 0 for _, operations in seen)


class CountedGram(CenteredGram):
    products = 0

    def __matmul__(self, V):
        self.products += 1
        return super().__matmul__(V)


class _States:
    """A checkpointer that keeps nothing but how often it was called."""

    def __init__(self):
        self.count = 0

    def resumed(self, p):
        return None

    def record(self, state):
        self.count += not state.is_done


def test_with_a_checkpointer_a_pass_begins_once_its_state_is_recorded(monkeypatch):
    monkeypatch.setattr(krylov_iteration, "FASTEST", -1e9)
    monkeypatch.setattr(block_krylov, "is_on_gpu", lambda x: True)
    checkpointer = _States()
    result, op, looks = watched(MATRICES["0.9^i"]("float64"), checkpointer=checkpointer)
    assert all(done == products for done, products in looks)
    assert checkpointer.count == result.n_passes == op.products


# -- signs -------------------------------------------------------------------------------------------------------------


def test_the_entry_of_largest_modulus_is_positive(xp, dtype):
    A = MATRICES["0.9^i"](dtype).astype(dtype)
    for solver in solvers(dtype).values():
        U = xp.host(top_eigh(Operator(xp.array(A)), 4, solver=solver, rng=0).eigenvectors)
        assert np.all(U[np.argmax(np.abs(U), axis=0), np.arange(4)] > 0)


def test_ties_of_modulus_are_decided_by_the_first_entry(xp, dtype):
    """Eigenvectors of +-1/sqrt(n) entries: rounding must not decide the sign."""
    H = np.array([[1.0]])
    for _ in range(5):
        H = np.block([[H, H], [H, -H]])
    H = np.roll(H, 1, axis=0) / np.sqrt(32)
    A = ((H * np.arange(32, 0, -1.0)) @ H.T).astype(dtype)
    for solver in solvers(dtype).values():
        U = xp.host(top_eigh(Operator(xp.array(A)), 4, solver=solver, rng=0).eigenvectors)
        assert np.all(U[0] > 0)


# -- operators of the user ---------------------------------------------------------------------------------------------


def test_an_operator_has_the_defaults_for_what_it_does_not_define():
    class Noisy(Operator):
        noise_scale = 7.0

        def project(self, V):
            return V - V.mean(axis=0)

    V = np.arange(6.0)[:, None]
    plain, noisy = complete_operator(Operator(np.eye(6))), complete_operator(Noisy(np.eye(6)))
    assert (plain.noise_scale, plain.rounding, plain.workers, plain.name) == (0.0, 0.0, 0, "the kernel matrix")
    assert plain.factor() is plain.block([0], [0]) is plain.sizes() is plain.known_means is None
    assert np.array_equal(plain.project(V), V)
    assert noisy.noise_scale == 7.0
    assert noisy.project(V).sum() == 0.0
    assert np.array_equal(noisy @ V, V)
    assert complete_operator(noisy) is noisy
    assert copy.deepcopy(noisy).noise_scale == 7.0
    with pytest.raises(AttributeError):
        _ = plain.nothing


@pytest.mark.parametrize("op", [np.eye(4), [[1.0]], None, TiledGram])
def test_what_is_no_operator_is_refused(op):
    with pytest.raises(InvalidParameterError, match="needs a symmetric operator"):
        top_eigh(op, 1)


# -- choosing and refusing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "p", "on_gpu", "kind"),
    [
        (400, 10, False, Dense),
        (401, 10, False, BlockKrylov),
        (6000, 501, False, Dense),
        (6000, 500, False, BlockKrylov),
        (1000, 10, True, Dense),
        (1001, 10, True, BlockKrylov),
        (5000, 1001, True, Dense),
        (5000, 1000, True, BlockKrylov),
    ],
)
def test_the_solver_chosen_can_be_asked(n, p, on_gpu, kind):
    solver = choose_solver(n, p, on_gpu=on_gpu, tol=1e-3)
    assert type(solver) is kind
    assert solver.tol == 1e-3


@pytest.mark.parametrize("name", ["auto", "dense", "randomized", "arpack"])
def test_solvers_have_names(name):
    result = top_eigh(Operator(np.diag(np.arange(60.0))), 3, solver=name, rng=0)
    assert np.max(np.abs(result.eigenvalues - [59, 58, 57])) <= 1e-12
    assert ("dense" in result.solver) == (name in ("auto", "dense"))


@pytest.mark.parametrize("p", [0, -1, 31, 2.0, True, "3", None])
def test_p_out_of_range_is_refused(p):
    with pytest.raises(InvalidParameterError, match=r"1 <= p <= n = 30"):
        top_eigh(Operator(np.eye(30)), p)


@pytest.mark.parametrize("solver", ["lanczos", None, 3])
def test_unknown_solvers_are_refused(solver):
    with pytest.raises(InvalidParameterError, match="solver"):
        top_eigh(Operator(np.eye(30)), 2, solver=solver)


def test_all_pairs_can_be_asked_for(xp, dtype):
    A = oracle.with_spectrum(np.linspace(-1, 2, 30), 9).astype(dtype)
    for solver in ("dense", "randomized"):
        result = top_eigh(Operator(xp.array(A)), 30, solver=solver, rng=0)
        check(A, result, dtype, "dense", xp)
        assert result.gap is None


def test_one_point(xp):
    for solver in ("dense", "randomized", BlockKrylov()):
        result = top_eigh(Operator(xp.array(np.array([[2.5]]))), 1, solver=solver, rng=0)
        assert float(xp.host(result.eigenvalues)[0]) == 2.5
        assert float(xp.host(result.eigenvectors)[0, 0]) == 1.0


def test_the_full_spectrum_comes_when_asked():
    A = MATRICES["indefinite"]("float64")
    result = top_eigh(Operator(A), P, solver=Dense(full_spectrum=True))
    exact = np.sort(SPECTRA["indefinite"]("float64"))
    assert np.max(np.abs(result.spectrum - exact)) <= tolerances.eigenvalue("float64")
    assert result.smallest_seen == result.spectrum[0]


def test_products_are_those_of_the_operator(dtype):
    A = MATRICES["0.9^i"](dtype).astype(dtype)
    for solver in solvers(dtype).values():
        result = top_eigh(Operator(A), P, solver=solver, rng=0)
        assert np.max(np.abs(result.products - A @ result.eigenvectors)) <= 60 * tolerances.eps(dtype)


def test_the_matrix_of_the_user_is_untouched():
    A = MATRICES["0.9^i"]("float64")
    before = A.copy()
    A.flags.writeable = False
    for solver in solvers("float64").values():
        top_eigh(Operator(A), P, solver=solver, rng=0)
    assert np.array_equal(A, before)
