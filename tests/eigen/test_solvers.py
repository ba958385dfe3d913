"""All solvers on operators with known spectra: accuracy, completeness, scaling, determinism, wrong arguments."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from gpukpca.backend.random import format_generator, random_directions, restore_generator
from gpukpca.eigen import BlockKrylov, Dense, EigenResult, top_eigh
from gpukpca.eigen.solve import choose_solver
from gpukpca.exceptions import ConvergenceError, InvalidParameterError
from gpukpca.gram import TiledGram
from tests import cupy_device, oracle, tolerances
from tests.conftest import MAKERS, Namespace
from tests.each import covering, each
from tests.operators import MATRICES, SPECTRA, N, Operator, P, matrix

NUMPY = MAKERS["numpy"]()
SOLVERS = ["dense", "krylov"]
SOME = ["zero", "0.99^i", "cluster-of-6-and-15", "rank-5", "indefinite", "path"]


def solver(name: str, dtype: str, **settings) -> Dense | BlockKrylov:
    """Return a solver that goes on to rounding."""
    tol = tolerances.ITERATIVE_TOL * tolerances.eps(dtype)
    return Dense() if name == "dense" else BlockKrylov(tol=tol, **settings)


def check(A: np.ndarray, result: EigenResult, dtype: str, name: str, xp: Namespace = NUMPY) -> None:
    """Recompute eigenvalues, residuals, orthogonality and completeness of the top p in float64."""
    A = np.asarray(A, dtype=np.float64)
    exact, _ = oracle.eigenpairs(A)
    norm = np.max(np.abs(exact))
    values, U = (xp.host(part).astype(np.float64) for part in (result.eigenvalues, result.eigenvectors))
    p = len(values)
    assert np.all(np.diff(values) <= 0)
    assert np.max(np.abs(values - exact[:p])) <= tolerances.eigenvalue(dtype) * norm
    residuals = np.linalg.norm(A @ U - U * values, axis=0)
    assert np.max(residuals) <= tolerances.residual(dtype, name) * norm
    assert np.max(np.abs(U.T @ U - np.eye(p))) <= tolerances.orthogonality(dtype, xp.name)
    reported = xp.host(result.residual_norms).astype(np.float64)
    # Reported residuals are true up to the rounding of the product they come from.
    assert np.all(residuals <= reported + tolerances.residual(dtype) * norm)
    slack = 2 * tolerances.eigenvalue(dtype) * norm
    if norm > 0:
        sigma = values[-1] + 2 * slack
        assert oracle.count_above(A, sigma) <= np.sum(values > sigma - slack)


# -- the table ---------------------------------------------------------------------------------------------------------


@each("of, dtype, name", covering(MATRICES, ["float64", "float32"], SOLVERS))
def test_top_eigenpairs_of_a_known_spectrum(of, dtype, name):
    A = matrix(of, dtype)
    result = top_eigh(Operator(A), P, solver=solver(name, dtype), rng=0)
    assert result.eigenvalues.dtype == A.dtype
    assert result.eigenvectors.shape == (len(A), P)
    rounding = 60 * tolerances.eps(dtype) * np.max(np.abs(oracle.eigenpairs(A)[0]))
    assert np.max(np.abs(result.products - A @ result.eigenvectors)) <= rounding
    assert result.smallest_seen <= result.eigenvalues[-1] + rounding
    check(A, result, dtype, name)


def check_on(xp: Namespace, of: str, dtype: str, name: str) -> None:
    """Check a solver on an array library."""
    A = matrix(of, dtype, 120)
    result = top_eigh(Operator(A, xp), 6, solver=solver(name, dtype), rng=0)
    for part in (result.eigenvalues, result.eigenvectors, result.products, result.residual_norms):
        assert xp.owns(part)
        assert part.dtype == xp.dtype(dtype)
    check(A, result, dtype, name, xp)
    if name == "krylov":
        U = xp.host(result.eigenvectors).astype(np.float64)
        # Without a last step towards orthonormal columns some are off by 120 eps.
        assert np.max(np.abs(U.T @ U - np.eye(6))) <= 50 * tolerances.eps(dtype)


@each("name", SOLVERS)
@each("of", SOME)
def test_top_eigenpairs_on_every_library(xp, dtype, of, name):
    check_on(xp, of, dtype, name)


@each("of", [name for name in MATRICES if name not in SOME])
def test_the_iteration_on_every_library(xp, of):
    check_on(xp, of, "float64", "krylov")


CLUSTERED = ["cluster-of-40", "cluster-of-6-and-15", "gap-0", "identity", "laplacian", "averaging"]


@each("of, block_size", [*((of, 4) for of in CLUSTERED), ("cluster-of-6-and-15", 1)])
def test_narrow_blocks_miss_no_member_of_a_cluster(of, dtype, block_size):
    A = matrix(of, dtype)
    for seed in (0, 1):
        found = top_eigh(Operator(A), P, solver=solver("krylov", dtype, block_size=block_size), rng=seed)
        check(A, found, dtype, "krylov")


@pytest.mark.parametrize("name", SOLVERS)
def test_large_low_rank_in_single_precision(name):
    """n = 1024 of rank 7: the class of matrices that cuSOLVER once failed on."""
    F = np.random.default_rng(3).standard_normal((1024, 7))
    A = (F @ F.T).astype(np.float32)
    result = top_eigh(Operator(A), P, solver=solver(name, "float32"), rng=0)
    exact = np.linalg.eigvalsh(A.astype(np.float64))[::-1][:P]
    assert np.max(np.abs(result.eigenvalues - exact)) <= 3e-6 * exact[0]
    assert np.all(result.eigenvalues[7:] == 0.0)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize(("of", "gap", "error"), [("gap-0", 0.0, 1e-13), ("gap-1e-3", 1e-3, 1e-9)])
def test_the_relative_gap_is_reported(of, gap, error, name):
    result = top_eigh(Operator(matrix(of)), P, solver=solver(name, "float64"), rng=0)
    assert result.gap == pytest.approx(gap, abs=error)


@pytest.mark.parametrize("name", SOLVERS)
def test_vectors_with_a_gap_are_exact_to_the_gap(dtype, name):
    values = np.concatenate([2.0 ** -np.arange(P), np.linspace(1e-4, 0, N - P)])
    A = oracle.with_spectrum(values, 7).astype(dtype)
    result = top_eigh(Operator(A), P, solver=solver(name, dtype), rng=0)
    exact, vectors = oracle.eigenpairs(A, P + 1)
    gaps = np.minimum(np.abs(np.diff(exact)), np.abs(np.diff(np.concatenate([[np.inf], exact[:-1]]))))
    U = result.eigenvectors.astype(np.float64)
    outside = U - vectors[:, :P] * np.sum(vectors[:, :P] * U, axis=0)
    assert np.all(np.linalg.norm(outside, axis=0) <= tolerances.angle(dtype, name, gaps))


@each("name", SOLVERS)
@each("of, rank", [("zero", 0), ("rank-5", 5), ("ones", 1)])
def test_eigenvalues_within_rounding_of_zero_are_zero(dtype, of, rank, name):
    values = top_eigh(Operator(matrix(of, dtype)), P, solver=solver(name, dtype), rng=0).eigenvalues
    assert np.all(values[rank:] == 0.0)
    assert np.all(values[:rank] > 0.0)


@pytest.mark.parametrize("name", ["dense", "randomized"])
def test_all_pairs_and_one_point(xp, dtype, name):
    A = oracle.with_spectrum(np.linspace(-1, 2, 30), 9).astype(dtype)
    result = top_eigh(Operator(A, xp), 30, solver=name, rng=0)
    check(A, result, dtype, "dense", xp)
    assert result.gap is None
    one = top_eigh(Operator(np.array([[2.5]], dtype=dtype), xp), 1, solver=name, rng=0)
    assert float(xp.host(one.eigenvalues)[0]) == 2.5
    assert float(xp.host(one.eigenvectors)[0, 0]) == 1.0


def test_the_full_spectrum_is_an_option_of_the_dense_solver():
    result = top_eigh(Operator(matrix("indefinite")), P, solver=Dense(full_spectrum=True))
    exact = np.sort(SPECTRA["indefinite"](0.0))
    assert np.max(np.abs(result.spectrum - exact)) <= tolerances.eigenvalue("float64")
    assert result.smallest_seen == result.spectrum[0]


@pytest.mark.parametrize("name", SOLVERS)
def test_the_matrix_of_the_user_is_untouched(name):
    A = matrix("0.9^i")
    before = A.copy()
    A.flags.writeable = False
    top_eigh(Operator(A), P, solver=solver(name, "float64"), rng=0)
    assert np.array_equal(A, before)


@pytest.mark.parametrize("name", ["dense", "randomized"])
def test_a_product_that_is_not_finite_is_an_error(name):
    with pytest.raises((ConvergenceError, ValueError), match=r"NaN|finite"):
        top_eigh(Operator(np.full((N, N), np.nan)), P, solver=name, rng=0)


# -- scaling by powers of two ------------------------------------------------------------------------------------------


@each("dtype, exponent", [("float64", 500), ("float64", -500), ("float32", 60), ("float32", -60)])
@each("of", ["geometric", "i^-1/2"])
@each("name", SOLVERS)
def test_a_power_of_two_changes_eigenvalues_exactly_and_vectors_not_at_all(name, of, dtype, exponent):
    A = matrix(of, dtype)
    plain = top_eigh(Operator(A), P, solver=solver(name, dtype), rng=0)
    scaled = top_eigh(Operator(np.ldexp(A, exponent).astype(dtype)), P, solver=solver(name, dtype), rng=0)
    assert np.array_equal(scaled.eigenvectors, plain.eigenvectors)
    assert np.array_equal(scaled.eigenvalues, np.ldexp(plain.eigenvalues, exponent))
    assert np.array_equal(scaled.residual_norms, np.ldexp(plain.residual_norms, exponent))
    assert scaled.n_passes == plain.n_passes


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("exponent", [-1000, -970, 900, 980])
def test_operators_at_the_ends_of_the_range(exponent, name):
    A = np.ldexp(matrix("0.9^i"), exponent)
    result = top_eigh(Operator(A), P, solver=solver(name, "float64"), rng=0)
    scaled = np.ldexp(result.eigenvalues, -exponent)
    assert np.max(np.abs(scaled - 0.9 ** np.arange(1, P + 1))) <= tolerances.eigenvalue("float64")


# -- signs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOLVERS)
def test_the_entry_of_largest_modulus_is_positive_and_the_first_of_equal_ones(xp, dtype, name):
    U = xp.host(top_eigh(Operator(matrix("0.9^i", dtype), xp), 4, solver=solver(name, dtype), rng=0).eigenvectors)
    assert np.all(U[np.argmax(np.abs(U), axis=0), np.arange(4)] > 0)
    H = np.array([[1.0]])  # eigenvectors of +-1/sqrt(n) entries: rounding must not decide the sign
    for _ in range(5):
        H = np.block([[H, H], [H, -H]])
    H = np.roll(H, 1, axis=0) / np.sqrt(32)
    A = ((H * np.arange(32, 0, -1.0)) @ H.T).astype(dtype)
    U = xp.host(top_eigh(Operator(A, xp), 4, solver=solver(name, dtype), rng=0).eigenvectors)
    assert np.all(U[0] > 0)


# -- determinism -------------------------------------------------------------------------------------------------------


def test_the_seed_decides_everything(dtype):
    A = matrix("i^-1/2", dtype)
    global_state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second, other = (top_eigh(Operator(A), P, solver="randomized", rng=seed) for seed in (4, 4, 5))
    assert np.array_equal(first.eigenvectors, second.eigenvectors)
    assert np.array_equal(first.eigenvalues, second.eigenvalues)
    assert not np.array_equal(first.eigenvectors, other.eigenvectors)
    generator = top_eigh(Operator(A), P, solver="randomized", rng=np.random.default_rng(4))
    assert np.array_equal(generator.eigenvectors, first.eigenvectors)
    assert np.array_equal(np.random.get_state()[1], global_state)  # noqa: NPY002


def test_libraries_agree_up_to_rounding(xp):
    A, wide = matrix("0.9^i", n=130), BlockKrylov(block_size=16)  # by default wider on a device
    plain, result = top_eigh(Operator(A), 5, solver=wide, rng=0), top_eigh(Operator(A, xp), 5, solver=wide, rng=0)
    # A host skips checks while a device checks every pass.
    assert 0 <= plain.n_passes - result.n_passes <= 1
    assert np.max(np.abs(xp.host(result.eigenvectors) - plain.eigenvectors)) <= 1e-7


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


def test_a_draw_needs_no_more_of_a_device_than_its_bytes_and_its_answer(cuda):
    like = cuda.empty((0,), "float32")
    with cupy_device.peak_bytes() as most:
        random_directions(np.random.default_rng(0), (4096, 64), like)
    assert most.peak <= (1 + 4) * 4096 * 64 + 4096


# -- operators of the user and arguments -------------------------------------------------------------------------------


def test_an_operator_has_the_defaults_for_what_it_does_not_define():
    class Noisy(Operator):
        noise_scale = 7.0

        def project(self, V):
            return V - V.mean(axis=0)

    V = np.arange(6.0)[:, None]
    plain, noisy = Operator(np.eye(6)), Noisy(np.eye(6))
    assert (plain.noise_scale, plain.rounding, plain.workers, plain.name) == (0.0, 0.0, 0, "the kernel matrix")
    assert plain.factor() is plain.block([0], [0]) is plain.sizes() is plain.known_means is None
    assert np.array_equal(plain.project(V), V)
    assert noisy.noise_scale == 7.0
    assert noisy.project(V).sum() == 0.0
    assert np.array_equal(noisy @ V, V)
    assert copy.deepcopy(noisy).noise_scale == 7.0
    with pytest.raises(AttributeError):
        _ = plain.nothing


@pytest.mark.parametrize(
    ("n", "p", "on_gpu", "kind"),
    [
        (400, 10, False, Dense),
        (401, 10, False, BlockKrylov),
        (6000, 501, False, Dense),
        (6000, 500, False, BlockKrylov),
        (1000, 10, True, Dense),
        (1001, 10, True, BlockKrylov),
        (5000, 126, True, Dense),
        (5000, 125, True, BlockKrylov),
        (30_000, 2501, True, Dense),
        (30_000, 2500, True, BlockKrylov),
    ],
)
def test_the_solver_is_chosen_by_size_and_device(n, p, on_gpu, kind):
    chosen = choose_solver(n, p, on_gpu=on_gpu, tol=1e-3)
    assert type(chosen) is kind
    assert chosen.tol == 1e-3


@pytest.mark.parametrize("name", ["auto", "dense", "randomized", "arpack"])
def test_solvers_have_names(name):
    result = top_eigh(Operator(np.diag(np.arange(60.0))), 3, solver=name, rng=0)
    assert np.max(np.abs(result.eigenvalues - [59, 58, 57])) <= 1e-12
    assert ("dense" in result.solver) == (name in ("auto", "dense"))


@each(
    "op, p, name, text",
    [(op, 1, "auto", "expected a symmetric operator") for op in (np.eye(4), [[1.0]], None, TiledGram)]
    + [(Operator(np.eye(30)), p, "auto", "1 <= p <= n = 30") for p in (0, -1, 31, 2.0, True, "3", None)]
    + [(Operator(np.eye(30)), 2, name, "solver") for name in ("lanczos", None, 3)],
)
def test_wrong_operators_counts_and_solvers_are_refused(op, p, name, text):
    with pytest.raises(InvalidParameterError, match=text):
        top_eigh(op, p, solver=name)
