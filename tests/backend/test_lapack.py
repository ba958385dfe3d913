"""LAPACK beside other threads: SciPy's digits, without SciPy's hold on the interpreter."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg

from gpukpca.backend.lapack import cholesky_solution, graded_svd, leading_eigenpairs
from gpukpca.backend.linalg import column_norms, largest_eigenpairs
from gpukpca.backend.orthogonalization import thin_svd
from gpukpca.backend.parallel import single_threaded_blas
from tests import oracle, tolerances
from tests.each import each


def definite(n: int, dtype: str, seed: int = 0) -> np.ndarray:
    A = np.random.default_rng(seed).standard_normal((n, n + 2))
    return (A @ A.T + np.eye(n)).astype(dtype)


@each("dtype", ["float32", "float64"])
@each("n, p", [(1, 1), (2, 1), (7, 7), (60, 10), (130, 1), (130, 32), (130, 33), (130, 0)])
def test_eigenpairs_are_those_of_scipy_and_of_the_definition(n: int, p: int, dtype: str):
    A, counted = definite(n, dtype), []
    values, vectors = leading_eigenpairs(A.copy(), lambda values: counted.append(values) or p)
    theirs = scipy.linalg.eigh(A, eigvals_only=True)[::-1]
    atol = 50 * n**0.5 * tolerances.eps(dtype) * float(np.linalg.eigvalsh(A.astype(np.float64))[-1])
    assert values.dtype == vectors.dtype == A.dtype
    assert vectors.shape == (n, p)
    for computed in (values, *counted):
        np.testing.assert_allclose(computed, theirs, atol=atol, rtol=0)
    np.testing.assert_allclose(A @ vectors, vectors * values[:p], atol=atol, rtol=0)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(p), atol=50 * n * tolerances.eps(dtype))


SPECIAL = {
    "identity": np.eye(40),
    "centered identity": np.eye(40) - 1.0 / 40,
    "rank one": np.ones((40, 40)),
    "blocks": np.kron(np.eye(8), np.ones((5, 5))),
    "diagonal": np.diag(np.arange(40.0)),
    "huge": 1e250 * definite(40, "float64"),
    "tiny": 1e-300 * definite(40, "float64"),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_clusters_and_extreme_scales_cost_no_digits(name: str):
    A = SPECIAL[name]
    for p in (10, 20):  # inverse iteration, and divide and conquer
        values, vectors = largest_eigenpairs(A.copy(), lambda _, p=p: p)
        size = np.abs(A).max()
        np.testing.assert_allclose(values / size, np.linalg.eigvalsh(A / size)[::-1], atol=1e-12)
        np.testing.assert_allclose(A / size @ vectors, vectors * (values[:p] / size), atol=1e-12)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(p), atol=1e-13)


def test_vectors_in_float32_have_no_entries_below_the_normal_numbers():
    """Entries of vectors of a nearly diagonal matrix fall below every number, where products take twice as long."""
    n, tiny = 200, np.finfo(np.float32).tiny
    A = np.diag(np.linspace(1.0, 2.0, n)) + 1e-4 * (np.eye(n, k=1) + np.eye(n, k=-1))
    for p in (5, n):  # by inverse iteration, and by divide and conquer
        _, vectors = leading_eigenpairs(A.astype(np.float32), lambda values, p=p: p)
        assert not ((vectors != 0.0) & (np.abs(vectors) < tiny)).any()


@pytest.mark.parametrize("p", [2, 9])
def test_a_zero_matrix_has_orthonormal_vectors_and_nan_is_an_error(p: int):
    values, vectors = largest_eigenpairs(np.zeros((9, 9)), lambda _: p)
    np.testing.assert_array_equal(values, np.zeros(9))
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(p), atol=1e-15)
    with pytest.raises(np.linalg.LinAlgError):
        leading_eigenpairs(np.full((9, 9), np.nan), lambda _: p)


def test_a_solution_reads_the_upper_triangle():
    A, B = definite(30, "float64"), np.arange(60.0).reshape(30, 2)
    upper = np.where(np.triu(np.ones_like(A)) > 0, A, np.nan)
    np.testing.assert_array_equal(cholesky_solution(upper, B), cholesky_solution(A, B))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 3), (65, 1), (130, 200)])
def test_solutions_solve(n: int, k: int, dtype: str):
    A, B = definite(n, dtype), np.random.default_rng(1).standard_normal((n, k)).astype(dtype)
    before = B.copy()
    solution = cholesky_solution(A.copy(), B)
    exact = np.linalg.solve(A.astype(np.float64), B.astype(np.float64))
    assert solution.dtype == A.dtype
    np.testing.assert_array_equal(B, before)
    bound = 20 * n * tolerances.eps(dtype) * np.linalg.cond(A.astype(np.float64)) * np.max(np.abs(exact))
    np.testing.assert_allclose(solution, exact, atol=bound, rtol=0)
    np.testing.assert_allclose(solution, scipy.linalg.solve(A, B, assume_a="pos"), atol=bound, rtol=0)


def test_any_layout_will_do_and_arrays_that_may_not_be_written_to_are_not():
    A, B = definite(9, "float64"), np.arange(18.0).reshape(9, 2)
    A.setflags(write=False)
    before, spread = A.copy(), np.zeros((18, 18))
    spread[::2, ::2] = A
    for given in (A, np.asfortranarray(A), spread[::2, ::2]):
        np.testing.assert_allclose(cholesky_solution(given.copy("K"), B[::-1]), np.linalg.solve(before, B[::-1]))
        np.testing.assert_allclose(
            leading_eigenpairs(given.copy("K"), lambda _: 1)[0], np.linalg.eigvalsh(before)[::-1]
        )
    cholesky_solution(A, B)
    leading_eigenpairs(A, lambda _: 3)
    np.testing.assert_array_equal(A, before)
    wide = cholesky_solution(before.astype(np.float32), B)
    assert wide.dtype == np.float64


def test_an_indefinite_matrix_is_refused():
    with pytest.raises(np.linalg.LinAlgError, match="leading minor of order 2 is not positive definite"):
        cholesky_solution(np.diag([1.0, -1.0, 1.0]), np.ones((3, 1)))


@each("dtype", ["float32", "float64"])
@each("shape", [(1, 1), (7, 3), (3, 7), (40, 40), (90, 5)])
def test_singular_vectors_are_those_of_scipy_and_the_matrix_stays(shape: tuple[int, int], dtype: str):
    A = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    for given in (A.copy(order="C"), A.copy(order="F")):
        U, s, Vt = thin_svd(given)
        theirs = scipy.linalg.svdvals(A)
        np.testing.assert_array_equal(given, A)
        np.testing.assert_allclose(s, theirs, rtol=0, atol=50 * tolerances.eps(dtype) * theirs[0])
        np.testing.assert_allclose((U * s) @ Vt, A, rtol=0, atol=200 * tolerances.eps(dtype) * theirs[0])
        np.testing.assert_allclose(U.T @ U, np.eye(min(shape)), rtol=0, atol=200 * tolerances.eps(dtype))


def test_graded_svd_of_columns_that_depend_on_each_other(rng):
    for size in range(2, 9):
        for scale in (np.ones(size), 10.0 ** -np.arange(0, 6 * size, 6)):
            A = np.triu(rng.standard_normal((size, size))) * scale[:, None]
            A[-1] = 0.0
            values, V = graded_svd(A)
            np.testing.assert_allclose(values, oracle.singular_values(A)[:size], rtol=0, atol=1e-14 * values[0])
            np.testing.assert_allclose(V.T @ V, np.eye(size), atol=1e-13)
            np.testing.assert_allclose(np.linalg.norm(A @ V, axis=0), values, atol=1e-14 * values[0])


def test_a_matrix_beyond_the_integers_of_lapack_is_an_error():
    with pytest.raises(np.linalg.LinAlgError, match="2147483648"):
        thin_svd(np.broadcast_to(np.zeros(1), (2**16, 2**15)))


def test_norms_of_columns_neither_overflow_nor_vanish(xp):
    V = np.random.default_rng(0).standard_normal((20, 3))
    for size in (1.0, 0.0, 1e-300, 1e-160, 1e-120, 1e160, 1e300):
        norms = column_norms(xp.array(V * [1.0, size, 1.0]))
        np.testing.assert_allclose(norms, np.linalg.norm(V, axis=0) * [1.0, size, 1.0], rtol=1e-14)
    narrow = (V * [1e-30, 1.0, 1e30]).astype(np.float32)
    np.testing.assert_allclose(column_norms(xp.array(narrow)), np.linalg.norm(narrow.astype(float), axis=0), rtol=1e-6)


@pytest.mark.parametrize(
    "work", [lambda A: leading_eigenpairs(A, lambda _: 100), lambda A: cholesky_solution(A, A.copy())]
)
def test_other_threads_run_meanwhile(work: Callable[[np.ndarray], object]):
    with single_threaded_blas():
        assert any(ran_beside(work, definite(700, "float64", seed)) for seed in range(5))


def ran_beside(work: Callable[[np.ndarray], object], A: np.ndarray) -> bool:
    """Whether this thread ran in the middle half of the other one's call."""
    ends: list[float] = []

    def timed() -> None:
        ends.append(time.perf_counter())
        work(A)
        ends.append(time.perf_counter())

    other, ticks = threading.Thread(target=timed), []
    other.start()
    while other.is_alive():
        ticks.append(time.perf_counter())
    quarter = (ends[1] - ends[0]) / 4
    return any(ends[0] + quarter < tick < ends[1] - quarter for tick in ticks)
