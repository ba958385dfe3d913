"""K by a factor, K seen from an anchor, a few columns of K, and rows picked by number."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from gpukpca.backend.linalg import column_sums, has_narrow_square, inner_products, narrow_square, times_small
from gpukpca.eigen import pivoted_cholesky, top_eigh
from gpukpca.eigen.low_rank import LowRank
from gpukpca.gram import CenteredGram, DenseGram, TiledGram
from gpukpca.gram.base_point import BasePointGram
from gpukpca.gram.low_rank import LowRankGram
from gpukpca.gram.product import compute_tile, kernel_columns, panel_rows
from gpukpca.kernels import (
    RBF,
    Cosine,
    Laplacian,
    Linear,
    Matern,
    PairwiseCallable,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
    exp,
    modulate,
)
from gpukpca.kernels.prepared import PreparedRows
from tests import oracle, tolerances
from tests.each import each


def rows(n, d=3, dtype="float64", seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


def worst(A, B):
    return float(np.max(np.abs(np.asarray(A, dtype=np.float64) - B), initial=0.0))


# -- K = F F' ----------------------------------------------------------------------------------------------------------


def test_a_factor_in_either_order_of_memory():
    F = rows(50, 7)
    plain, turned = LowRankGram(F), LowRankGram(np.asfortranarray(F))
    V = rows(50, 3, seed=2)
    assert worst(plain @ V, turned @ V) <= 1e-12
    assert worst(plain.diagonal(), turned.diagonal()) <= 1e-13


def test_the_pairs_of_a_centered_factor_are_those_of_the_small_matrix(dtype):
    F = rows(120, 6, dtype)
    result = top_eigh(CenteredGram(LowRankGram(F)), 4, solver="randomized", rng=0)
    centered = F.astype(np.float64) - np.mean(F, axis=0, dtype=np.float64)
    exact = np.linalg.eigvalsh(centered.T @ centered)[::-1][:4]
    assert worst(result.eigenvalues, exact) <= tolerances.eigenvalue(dtype) * exact[0]


def test_workers_share_the_panels_of_a_product(dtype):
    F, S = rows(5000, 6, dtype), rows(6, 2)
    wide = F.astype(np.float64)
    squares = inner_products(F, F, 3)
    assert np.array_equal(squares, squares.T)
    assert worst(squares, wide.T @ wide) <= 1e-9
    assert worst(inner_products(F, F[:, :2], 3), wide.T @ wide[:, :2]) <= 1e-9
    assert worst(column_sums(F, 3), wide.sum(axis=0)) <= 1e-9
    assert worst(times_small(F, S, 3), wide @ S) <= 100 * tolerances.eps(dtype)


@pytest.mark.parametrize("n", [1, 511, 512, 1025])
def test_every_square_of_a_block_is_within_its_accuracy(dtype, n):
    """The narrow one is as exact as its type; the other is exact in the widest one."""
    F = rows(n, 7, dtype) + 1
    exact = F.astype(np.float64).T @ F.astype(np.float64)
    assert has_narrow_square(F) == (dtype == "float32")
    assert worst(narrow_square(F, 2), exact) <= tolerances.product(dtype, 512) * np.max(exact)
    assert worst(inner_products(F, F, 2), exact) <= tolerances.product("float64", n) * np.max(exact)


@pytest.mark.parametrize(("first", "is_formed_again"), [(1.0, False), (3e3, True)])
def test_a_square_that_float32_rounds_is_formed_again(first, is_formed_again, monkeypatch):
    """Where one row holds most of the sum, the rounding of its products hides those of the others."""
    F, formed = rows(600, 4, "float32"), []
    F[0, 0] = first

    def inner(A, B, workers=1):
        formed.append(A is F and B is F)
        return inner_products(A, B, workers)

    monkeypatch.setattr("gpukpca.eigen.low_rank.inner_products", inner)
    result = LowRank().solve(LowRankGram(F), 3, np.random.default_rng(0))
    assert any(formed) == is_formed_again
    wide = F.astype(np.float64)
    exact = np.linalg.eigvalsh(wide.T @ wide)[::-1][:3]
    U = result.eigenvectors.astype(np.float64)
    products = wide @ (wide.T @ U)
    assert worst(result.eigenvalues, exact) <= tolerances.eigenvalue("float32") * exact[0]
    assert worst(products, U * result.eigenvalues) <= tolerances.residual("float32") * exact[0]
    assert worst(result.products, products) <= tolerances.residual("float32") * exact[0]


# -- seen from an anchor -----------------------------------------------------------------------------------------------


def test_the_base_evaluates_one_column_once_and_stays_untouched():
    K = np.array([[2.0, 1.0], [1.0, 3.0]])
    before = K.copy()

    class Counted(DenseGram):
        asked = 0

        def columns(self, indices):
            Counted.asked += 1
            return super().columns(indices)

    op = BasePointGram(Counted(K), 1)
    for _ in range(3):
        op.diagonal()
        op @ np.ones((2, 1))
        op.to_dense()
    assert Counted.asked == 1
    assert np.array_equal(K, before)


def test_minus_half_the_distance_becomes_positive_semidefinite():
    """Conditionally positive definite: -|x - y| / 2 seen from 0 is min(x, y), the covariance of Brownian motion."""
    x = np.arange(80.0)
    op = BasePointGram(DenseGram(-np.abs(x[:, None] - x[None, :]) / 2))
    assert np.array_equal(op.to_dense(), np.minimum(x[:, None], x[None, :]))
    result = pivoted_cholesky(op, 80, np.random.default_rng(0))
    assert result.rank == 79
    assert worst(result.F @ result.F.T, op.to_dense()) <= 1e-12 * 80


def test_a_flat_kernel_keeps_its_digits_through_anchor_and_factor(xp, dtype):
    """k itself is 1 everywhere to rounding of float32."""
    X, gamma = rows(90, 3, dtype), 1e-7
    base = CenteredGram.of_kernel(RBF(gamma), xp.array(X)).base
    assert base.rows.shifted
    factor = pivoted_cholesky(BasePointGram(base), 20, np.random.default_rng(0))
    assert factor.stopped == "exhausted"
    F = xp.host(factor.F).astype(np.float64)
    squares = oracle.gram(oracle.square_distance, X)
    exact = oracle.eigenpairs(oracle.centered(np.expm1(-gamma * squares)), 3)[0]
    found = oracle.eigenpairs(oracle.centered(F @ F.T), 3)[0]
    assert worst(found, exact) <= factor.certificate
    assert np.max(np.abs(found / exact - 1)) <= (200 * tolerances.eps(dtype) if dtype == "float32" else 1e-10)


# -- a few columns -----------------------------------------------------------------------------------------------------

KERNELS = {
    "rbf": RBF(0.3),
    "flat": RBF(1e-6),
    "rational": RationalQuadratic(0.3, 1.5),
    "matern": Matern(0.3, 1.5),
    "rough": Matern(0.3, 0.5),
    "laplacian": Laplacian(0.3),
    "linear": Linear(),
    "poly": Polynomial(2, 0.3, 1.0),
    "sigmoid": Sigmoid(0.1),
    "cosine": Cosine(),
    "callable": PairwiseCallable(oracle.rbf(0.3)),
    "sum": Linear() + Laplacian(0.3),
    "modulated": modulate(RBF(0.3) * exp(Linear()), lambda X: X[:, 0] * X[:, 0]),
}


@each("n, workers", [(1, 2), (7, 1), (8, 2), (9, 1), (50, 2)])
def test_columns_are_those_of_the_matrix(xp, dtype, n, workers):
    X, chosen = xp.array(rows(n, dtype=dtype)), np.array([n - 1, 0, n // 2])
    threads = workers if xp.name == "numpy" else 1
    for name in ("rbf", "laplacian", "poly", "modulated"):
        kernel = KERNELS[name].resolve(X)
        prepared = kernel.prepare(X)
        K = xp.host(compute_tile(kernel, prepared, prepared, X[:0, 0], True)).astype(np.float64)
        C = kernel_columns(kernel, prepared, chosen, X[:0, 0], tile_edge=8, workers=threads)
        assert xp.owns(C)
        assert C.shape == (n, 3)
        assert worst(xp.host(C), K[:, chosen]) <= tolerances.kernel(dtype, max(1.0, np.max(np.abs(K))))
        assert np.array_equal(xp.host(C)[chosen, np.arange(3)], xp.host(kernel.tile_diagonal(prepared))[chosen])


def test_no_columns_at_all(xp):
    X = xp.array(rows(5))
    kernel = RBF(0.3).resolve(X)
    assert kernel_columns(kernel, kernel.prepare(X), [], X[:0, 0], tile_edge=8, workers=1).shape == (5, 0)


def test_panels_are_tall_where_columns_are_few_and_leave_every_worker_some():
    assert panel_rows(RBF(1.0), 10**6, 64, 1024, 2) == 16384
    assert panel_rows(RBF(1.0), 10**6, 4096, 1024, 2) == 1024
    assert panel_rows(RBF(1.0), 16_000, 1, 1024, 2) == 2000
    assert panel_rows(Laplacian(1.0), 10**6, 64, 100, 2) == 100


# -- rows by number ----------------------------------------------------------------------------------------------------


@each("name", KERNELS)
def test_picked_rows_make_the_same_tiles(xp, dtype, name):
    X, chosen = xp.array(rows(12, dtype=dtype)), [7, 0, 11, 7]
    kernel = KERNELS[name].resolve(X)
    for centered in (False, True):
        prepared = kernel.prepare(X, centered=centered)
        picked = prepared.take(chosen)
        assert type(picked) is type(prepared)
        assert picked.n_rows == 4
        assert picked.shifted == prepared.shifted
        K = xp.host(kernel.tile(prepared, prepared))
        assert worst(xp.host(kernel.tile(prepared, picked)), K[:, chosen]) <= tolerances.kernel(dtype, 100.0)
        assert np.array_equal(xp.host(kernel.tile_diagonal(picked)), xp.host(kernel.tile_diagonal(prepared))[chosen])


@each("name", ["rbf", "flat", "laplacian", "linear", "poly", "sum", "cosine"])
@each("container", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
def test_sparse_rows_are_picked_as_well(name, container):
    X = container(scipy.sparse.random_array((12, 6), density=0.5, rng=np.random.default_rng(0), format="csr"))
    kernel = KERNELS[name].resolve(X)
    prepared = kernel.prepare(X)
    K = np.asarray(kernel.tile(prepared, prepared))
    C = kernel_columns(kernel, prepared, [3, 9], np.empty(0), tile_edge=5, workers=1)
    assert worst(C, K[:, [3, 9]]) <= 1e-13


def test_rows_know_whether_their_tiles_are_shifted():
    X = rows(9)
    flat = RBF(1e-6)
    for kernel in (flat, RationalQuadratic(1e-6), Laplacian(1e-6), Linear() + flat, 2.0 * flat, flat * flat, flat**2):
        assert kernel.prepare(X, centered=True).shifted
        assert not kernel.prepare(X).shifted
    for kernel in (RBF(0.3), Linear(), Polynomial(2, 0.3), Matern(1e-6, 1.5), flat * Matern(1e-6, 1.5)):
        assert not kernel.prepare(X, centered=True).shifted


def test_rows_of_a_kernel_of_ones_own_must_say_how_they_are_picked():
    with pytest.raises(AttributeError, match=r"take\(indices\)"):
        PreparedRows().take([0])
    assert not PreparedRows().shifted


# -- all together ------------------------------------------------------------------------------------------------------


@each("kernel", [RBF(0.05), Laplacian(0.1), Polynomial(2, 0.3, 1.0), Linear() + RBF(0.1)])
def test_a_factor_of_a_kernel_matrix_has_the_eigenvalues_it_certifies(xp, dtype, kernel):
    X = rows(150, dtype=dtype)
    op = TiledGram(kernel, xp.array(X))
    factor = pivoted_cholesky(op, 40, 0)
    exact = oracle.eigenpairs(oracle.centered(kernel(X.astype(np.float64))), 3)[0]
    F = xp.host(factor.F).astype(np.float64)
    theta = oracle.eigenpairs(oracle.centered(F @ F.T), 3)[0]
    assert np.all(exact - theta <= factor.certificate)
    assert np.all(exact - theta >= -factor.rounding)
    found = top_eigh(CenteredGram(LowRankGram(factor.F)), 3, solver="randomized", rng=0).eigenvalues
    assert worst(xp.host(found), theta) <= tolerances.eigenvalue(dtype) * theta[0] * 10
