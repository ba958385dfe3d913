"""Gram matrices: every way of holding K against the oracle and against each other, at odd sizes."""

from __future__ import annotations

import threading
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from threadpoolctl import threadpool_info

from gpukpca.exceptions import DeviceMismatchError, InvalidParameterError
from gpukpca.gram import CenteredGram, DenseGram, TiledGram, double_center, gram_matrix, kernel_matmat
from gpukpca.gram.product import upper_triangle
from gpukpca.kernels import (
    RBF,
    BlockCallable,
    Cosine,
    Kernel,
    Laplacian,
    Linear,
    Polynomial,
    modulate,
)
from tests import oracle, tolerances
from tests.each import each
from tests.gram.test_protocol import EDGE, KERNELS, ODD_SIZES

pytestmark = pytest.mark.usefixtures("threads_for_little")


def rows(n: int, d: int = 3, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


def worst(A: np.ndarray, B: np.ndarray) -> float:
    return float(np.max(np.abs(np.asarray(A, dtype=np.float64) - B), initial=0.0))


# -- products ----------------------------------------------------------------------------------------------------------


@each("n_jobs", [1, 2])
@each("b", [1, 5])
@each("n", ODD_SIZES)
def test_threads_and_cache_change_nothing_but_the_last_digits(n, b, n_jobs):
    kernel, k = KERNELS["rbf"]
    X, V = rows(n), rows(n, b, seed=1)
    expected = oracle.gram(k, X) @ V
    answers = []
    for cached in (0, 1, 3, None):
        op = TiledGram(kernel, X, tile_edge=EDGE, cached_tiles=cached, n_jobs=n_jobs)
        first, second = op @ V, op @ V
        assert np.array_equal(first, second)
        assert worst(first, expected) <= tolerances.product("float64", n)
        answers.append(first)
    assert all(np.array_equal(answer, answers[0]) for answer in answers)


def test_results_are_bitwise_the_same_in_every_run():
    X, V = rows(700, 7), rows(700, 6, seed=1)
    for n_jobs in (1, 2):
        runs = [TiledGram(RBF(0.1), X, tile_edge=128, cached_tiles=3, n_jobs=n_jobs) @ V for _ in range(3)]
        assert all(np.array_equal(run, runs[0]) for run in runs)
        runs = [kernel_matmat(RBF(0.1), X[:301], X, V, tile_edge=100, n_jobs=n_jobs) for _ in range(3)]
        assert all(np.array_equal(run, runs[0]) for run in runs)
        runs = [gram_matrix(RBF(0.1), X, n_jobs=n_jobs) for _ in range(2)]
        assert np.array_equal(*runs)


def test_a_rectangular_product_does_not_depend_on_the_thread_count():
    X, Y, V = rows(333, 5), rows(201, 5, seed=1), rows(201, 4, seed=2)
    one, two = (kernel_matmat(RBF(0.1), X, Y, V, tile_edge=50, n_jobs=jobs) for jobs in (1, 2))
    assert np.array_equal(one, two)


@each("name", KERNELS)
@each("m, n", [(1, 1), (7, 9), (26, 8), (1, 26), (17, 1)])
def test_rectangular_products_and_matrices_equal_the_oracle(xp, dtype, name, m, n):
    kernel, k = KERNELS[name]
    X, Y, V = rows(m, dtype=dtype), rows(n, dtype=dtype, seed=1), rows(n, 2, dtype, 2)
    K = oracle.gram(k, X, Y)
    bound = tolerances.product(dtype, n, max(1.0, np.max(np.abs(K))) * 3)
    a, b, v = xp.array(X), xp.array(Y), xp.array(V)
    assert worst(xp.host(kernel_matmat(kernel, a, b, v, tile_edge=EDGE)), K @ V.astype(np.float64)) <= bound
    assert worst(xp.host(gram_matrix(kernel, a, b)), K) <= bound


def test_gamma_of_a_product_comes_from_the_training_side():
    X, Y, V = rows(9) * 7, rows(12, seed=1), rows(12, 2, seed=2)
    gamma = 1 / (3 * Y.var())
    expected = oracle.gram(oracle.rbf(gamma), X, Y) @ V
    assert worst(kernel_matmat(RBF("scale"), X, Y, V), expected) <= 1e-14


@pytest.mark.parametrize(
    "shapes", [((4, 3), (5, 2), (5, 1)), ((4, 3), (5, 3), (4, 1)), ((4, 3), (5, 3), (5,))], ids=str
)
def test_shapes_that_do_not_fit_are_refused(shapes):
    with pytest.raises(InvalidParameterError, match="shapes do not fit"):
        kernel_matmat(RBF(1.0), *(np.ones(shape) for shape in shapes))


def test_operator_and_matrix_refuse_wrong_shapes():
    with pytest.raises(InvalidParameterError, match="block of shape"):
        TiledGram(RBF(1.0), rows(5)) @ np.ones((4, 1))
    with pytest.raises(InvalidParameterError, match="square"):
        DenseGram(np.ones((3, 2)))
    with pytest.raises(InvalidParameterError, match="features"):
        gram_matrix(RBF(1.0), np.ones((3, 2)), np.ones((3, 4)))


@pytest.mark.parametrize("edge", [0, -1, 1.5, "a", True])
def test_a_tile_edge_is_a_positive_integer(edge):
    X, message = rows(5), r"tile_edge=.* must be None or an integer >= 1"
    calls = [
        lambda: TiledGram(RBF(1.0), X, tile_edge=edge),
        lambda: CenteredGram.of_kernel(RBF(1.0), X, tile_edge=edge),
        lambda: kernel_matmat(RBF(1.0), X, X, np.ones((5, 1)), tile_edge=edge),
    ]
    for call in calls:
        with pytest.raises(InvalidParameterError, match=message):
            call()


@pytest.mark.parametrize("cached", [-1, 1.5, "a", True])
def test_a_number_of_cached_tiles_is_an_integer_from_0_on(cached):
    for make in (TiledGram, CenteredGram.of_kernel):
        with pytest.raises(InvalidParameterError, match=r"cached_tiles=.* must be None or an integer >= 0"):
            make(RBF(1.0), rows(5), cached_tiles=cached)


def test_sparse_rows_make_the_same_products():
    generator = np.random.default_rng(3)
    X = generator.standard_normal((29, 6)) * (generator.random((29, 6)) < 0.5)
    V = rows(29, 3, seed=4)
    for kernel in (RBF(0.3), Linear(), Laplacian(0.3)):
        expected = gram_matrix(kernel, X) @ V
        sparse = scipy.sparse.csr_array(X)
        assert worst(TiledGram(kernel, sparse, tile_edge=EDGE) @ V, expected) <= 1e-13
        assert worst(kernel_matmat(kernel, sparse, sparse, V, tile_edge=EDGE), expected) <= 1e-13


# -- the operator protocol ---------------------------------------------------------------------------------------------


def test_column_means_and_trace_are_exact_before_and_after_a_product():
    X = rows(300, 5)
    K = gram_matrix(RBF(0.2), X)
    Kc = oracle.centered(K)
    for use in (False, True):
        op = CenteredGram(TiledGram(RBF(0.2), X, tile_edge=100))
        if use:
            _ = op @ rows(300, 3, seed=1)
        assert worst(op.column_means, K.mean(axis=0)) <= 1e-15
        assert abs(op.trace - np.trace(Kc)) <= 1e-12


def test_the_means_ride_in_the_first_product():
    class Counted(TiledGram):
        products = 0

        def __matmul__(self, V):
            self.products += 1
            return super().__matmul__(V)

    op = CenteredGram(Counted(RBF(0.2), rows(50)))
    _ = op @ rows(50, 3, seed=1)
    _ = op.column_means, op.trace, op.noise_scale
    assert op.base.products == 1


def test_products_of_the_centered_operator_sum_to_zero(xp, dtype):
    X = rows(40, dtype=dtype)
    op = CenteredGram.of_kernel(RBF(0.2), xp.array(X), tile_edge=EDGE)
    W = xp.host(op @ xp.array(rows(40, 3, dtype, 1))).astype(np.float64)
    assert np.max(np.abs(W.sum(axis=0))) <= 40 * tolerances.eps(dtype) * np.max(np.abs(W)) * 4


@each("name", KERNELS)
def test_of_kernel_matches_the_oracle_on_offset_data(xp, dtype, name):
    kernel, k = KERNELS[name]
    X = rows(27, dtype=dtype) + np.float32(3.0)
    Kc = oracle.centered(oracle.gram(k, X))
    op = CenteredGram.of_kernel(kernel, xp.array(X), tile_edge=EDGE)
    size = np.max(np.abs(oracle.gram(k, X)))
    assert worst(xp.host(op.to_dense()), Kc) <= tolerances.kernel(dtype, size * 2)


@pytest.mark.parametrize("offset", [1e4, 1e8])
def test_the_linear_operator_keeps_the_digits_of_offset_data(xp, offset):
    X = rows(30) + offset
    centered = X - X.mean(axis=0)
    op = CenteredGram.of_kernel(Linear(), xp.array(X), tile_edge=EDGE)
    assert worst(xp.host(op.to_dense()), centered @ centered.T) <= 1e-14 * 40 + 30 * 2e-16 * offset


# -- double centering --------------------------------------------------------------------------------------------------


@each("n", [1, 2, 17, 300])
def test_double_centering_equals_h_k_h(xp, dtype, n):
    K = rows(n, n, dtype)  # not symmetric: both means are needed
    H = oracle.centering(n)
    expected = H @ K.astype(np.float64) @ H
    result = double_center(xp.array(K))
    assert xp.owns(result)
    assert result.dtype == xp.dtype(dtype)
    assert worst(xp.host(result), expected) <= tolerances.kernel(dtype, 10.0)


def test_a_symmetric_matrix_stays_symmetric_to_the_last_bit(xp, dtype):
    for n in (5, 63, 301):
        K = rows(n, n, dtype)
        K = K + K.T
        result = xp.host(double_center(xp.array(K)))
        assert np.array_equal(result, result.T)
        dense = xp.host(CenteredGram(DenseGram(xp.array(K))).to_dense())
        assert np.array_equal(dense, dense.T)


def test_double_centering_leaves_its_argument_alone(xp):
    K = rows(20, 20)
    given = xp.array(K.copy())
    double_center(given)
    assert np.array_equal(xp.host(given), K)


def test_double_centering_can_write_into_its_argument():
    K = rows(20, 20)
    expected = double_center(K)
    assert double_center(K, overwrite=True) is K
    assert np.array_equal(K, expected)


def test_double_centering_of_integers_and_lists_is_in_float64(xp):
    K = np.array([[4, 1], [1, 2]])
    result = double_center(xp.array(K))
    assert result.dtype == xp.dtype("float64")
    assert worst(xp.host(result), oracle.centered(K)) <= 1e-15
    assert np.array_equal(K, [[4, 1], [1, 2]])
    assert worst(double_center([[4.0, 1.0], [1.0, 2.0]]), oracle.centered(K)) <= 1e-15


def test_double_centering_copies_integers_once():
    K = np.arange(1200 * 1200).reshape(1200, 1200)
    tracemalloc.start()
    try:
        double_center(K)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.9 * K.nbytes


def test_double_centering_a_large_constant_leaves_nothing_but_the_differences():
    K = rows(50, 50)
    K = K @ K.T
    assert worst(double_center(K + 1e8), oracle.centered(K)) <= 50 * 1e8 * 2.3e-16


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_double_centering_refuses_what_is_not_finite(xp, bad):
    K = np.eye(4)
    K[1, 2] = bad
    with pytest.raises(ValueError, match=r"NaN|inf"):
        double_center(xp.array(K))


def test_double_centering_refuses_rectangles():
    with pytest.raises(InvalidParameterError, match=r"\(3, 2\)"):
        double_center(np.ones((3, 2)))


# -- ownership ---------------------------------------------------------------------------------------------------------


def test_the_users_arrays_are_never_written_to():
    X, Y, V = rows(30), rows(20, seed=1), rows(20, 4, seed=2)
    for array in (X, Y, V):
        array.flags.writeable = False
    K = gram_matrix(RBF(0.3), Y)
    K.flags.writeable = False
    before = K.copy()
    kernel_matmat(RBF(0.3), X, Y, V)
    for base in (DenseGram(K), TiledGram(RBF(0.3), Y)):
        op = CenteredGram(base)
        _ = op @ V
        op.to_dense()
        op.diagonal()
        op.columns([1])
    double_center(K)
    assert np.array_equal(K, before)


def test_a_dense_matrix_is_memory_of_the_caller():
    K = gram_matrix(RBF(0.3), rows(12))
    before = K.copy()
    for op in (DenseGram(K), CenteredGram(DenseGram(K))):
        op.to_dense()[:] = 0.0
    assert np.array_equal(K, before)


def test_the_cache_of_a_tiled_operator_survives_the_dense_matrix():
    op = CenteredGram(TiledGram(RBF(0.3), rows(20), tile_edge=EDGE))
    V = rows(20, 2, seed=1)
    before = op @ V
    op.to_dense()
    assert np.array_equal(op @ V, before)
    single = CenteredGram(TiledGram(RBF(0.3), rows(20), tile_edge=64))  # one tile is the whole matrix
    before = single @ V
    single.to_dense()
    assert np.array_equal(single @ V, before)


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_kernel_that_overflows_is_a_clear_error(xp):
    X = xp.array(rows(30) * 1e3)
    for op in (
        CenteredGram(TiledGram(Polynomial(200, 1.0, 0.0), X, tile_edge=EDGE)),
        CenteredGram(DenseGram(Polynomial(200, 1.0, 0.0)(X))),
    ):
        for use in (lambda o: o @ xp.array(rows(30, 2)), lambda o: o.column_means, lambda o: o.to_dense()):
            with pytest.raises(ValueError, match="NaN or infinity"):
                use(op)


def test_two_devices_do_not_meet():
    strict = pytest.importorskip("array_api_strict")
    X, Y = (strict.asarray(rows(5), device=strict.Device(name)) for name in ("CPU_DEVICE", "device1"))
    V = strict.asarray(rows(5, 2), device=strict.Device("device1"))
    for attempt in (
        lambda: gram_matrix(RBF(1.0), X, Y),
        lambda: kernel_matmat(RBF(1.0), X, Y, V),
        lambda: kernel_matmat(RBF(1.0), X, X, V),
        lambda: TiledGram(RBF(1.0), X) @ V,
        lambda: kernel_matmat(RBF(1.0), rows(5), Y, V),
    ):
        with pytest.raises(DeviceMismatchError):
            attempt()


class Broken(Kernel):
    """A user's kernel whose tile is whatever the test wants."""

    def __init__(self, answer=None):
        self.answer = answer

    def tile(self, a, b, out=None):
        return self.answer(a, b)

    def tile_diagonal(self, a):
        return np.ones(a.n_rows)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda a, b: np.ones((1, 1)), "block of shape"),
        (lambda a, b: np.ones((a.n_rows, b.n_rows), dtype=np.float32), "dtype"),
        (lambda a, b: None, "block of shape"),
    ],
)
def test_a_users_kernel_is_checked(answer, message):
    with pytest.raises(InvalidParameterError, match=message):
        TiledGram(Broken(answer), rows(12), tile_edge=5) @ rows(12, 1)


def test_cosine_of_data_with_a_zero_row_is_centered_all_the_same():
    X = rows(9)
    X[4] = 0.0
    with pytest.warns(UserWarning, match="some rows are zero") as caught:
        op = CenteredGram(TiledGram(Cosine(), X))
    assert caught[0].message.values["rows"] == [4]
    assert worst(op.to_dense(), oracle.centered(oracle.gram(oracle.cosine, X))) <= 1e-14


# -- threads -----------------------------------------------------------------------------------------------------------


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_blas_has_its_threads_back_after_products(two_blas_threads):
    before = blas_threads()
    assert 2 in before
    op = TiledGram(RBF(0.1), rows(400), tile_edge=50, n_jobs=2)
    for _ in range(3):
        _ = op @ rows(400, 2)
        assert blas_threads() == before
    gram_matrix(RBF(0.1), rows(400), n_jobs=2)
    kernel_matmat(RBF(0.1), rows(400), rows(300), rows(300, 2), tile_edge=50, n_jobs=2)
    assert blas_threads() == before


def test_blas_has_its_threads_back_after_an_exception(two_blas_threads):
    before = blas_threads()
    assert 2 in before
    calls = []

    def fails_late(A, B):
        calls.append(1)
        if len(calls) > 5:
            raise KeyError("from the user's kernel")
        return A @ B.T

    with pytest.raises(KeyError, match="from the user's kernel"):
        TiledGram(BlockCallable(fails_late), rows(200), tile_edge=20, n_jobs=2) @ rows(200, 1)
    assert blas_threads() == before


def test_a_reporter_that_raises_leaves_blas_and_the_operator_in_order(two_blas_threads):
    before = blas_threads()
    assert 2 in before

    interrupts = iter([KeyboardInterrupt])

    def interrupt(done, total):
        for kind in interrupts:
            raise kind

    X, V = rows(900, 20), rows(900, 2, seed=1)
    op = TiledGram(Laplacian(0.1), X, tile_edge=30, n_jobs=1, report=interrupt)
    with pytest.raises(KeyboardInterrupt):
        _ = op @ V
    assert worst(op @ V, gram_matrix(Laplacian(0.1), X) @ V) <= 1e-12
    assert blas_threads() == before


def test_blas_has_its_threads_back_after_many_interleaved_products(two_blas_threads):
    before = blas_threads()
    assert 2 in before
    X, V = rows(240), rows(240, 2, seed=1)
    expected = TiledGram(RBF(0.1), X, tile_edge=40, n_jobs=2) @ V
    answers: list[np.ndarray] = []

    def multiply():
        op = TiledGram(RBF(0.1), X, tile_edge=40, n_jobs=2)
        for _ in range(5):
            answers.append(op @ V)

    threads = [threading.Thread(target=multiply) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 30
    assert all(np.array_equal(answer, expected) for answer in answers)
    assert blas_threads() == before


def test_progress_counts_every_tile():
    events = []
    op = TiledGram(RBF(0.1), rows(40), tile_edge=10, n_jobs=1, report=lambda done, total: events.append((done, total)))
    _ = op @ rows(40, 1)
    assert events == [(i, 10) for i in range(1, 11)]


# -- no array times its own transpose ----------------------------------------------------------------------------------


def test_blocks_are_never_multiplied_by_their_own_buffer():
    for kernel in (Linear(), Polynomial(2, 1.0), Cosine(), RBF(0.1), Linear() * RBF(0.1)):
        prepared = kernel.prepare(rows(10))
        for part in getattr(prepared, "parts", [prepared]):
            assert not np.shares_memory(part.data, part.right)


def test_a_matrix_larger_than_a_tile_is_built_by_tiles(dtype):
    X = rows(1100, 4, dtype)
    op = TiledGram(Linear(), X)
    assert op.tiles >= 3
    K = gram_matrix(Linear(), X)
    assert np.array_equal(K, K.T)
    assert worst(K, X.astype(np.float64) @ X.astype(np.float64).T) <= tolerances.kernel(dtype, 20.0)


def test_modulated_rows_are_cut_with_their_factors(xp):
    """The factors g(x) belong to rows, and every tile must take its own."""

    def g(X):
        return 1.0 + X[:, 0] ** 2

    kernel = modulate(RBF(0.3), g)
    X = rows(26)
    expected = np.outer(g(X), g(X)) * oracle.gram(oracle.rbf(0.3), X)
    op = TiledGram(kernel, xp.array(X), tile_edge=EDGE)
    assert worst(xp.host(op.to_dense()), expected) <= 1e-12


def test_the_upper_triangle_alone_is_that_of_the_whole(xp, dtype):
    X = xp.array(rows(700, 3, dtype))  # more than one tile
    K, upper = xp.host(gram_matrix(RBF(0.2), X)), xp.host(upper_triangle(RBF(0.2), X))
    np.testing.assert_array_equal(np.triu(upper), np.triu(K))


def test_a_trace_beyond_the_largest_number_is_a_clear_error(xp):
    op = CenteredGram(DenseGram(xp.array(np.diag(np.full(40, 1e307)))))
    with pytest.raises(InvalidParameterError, match="overflows float64 on these data: its trace is infinite"):
        _ = op.trace
