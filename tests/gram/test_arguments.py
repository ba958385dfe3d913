"""Operators and solvers refuse what is no matrix, no block and no row number."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse

from gpukpca.eigen import BlockKrylov, Dense, Nystrom, pivoted_cholesky, top_eigh
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import CenteredGram, DenseGram, TiledGram, double_center, gram_matrix, kernel_matmat
from gpukpca.gram.base_point import BasePointGram
from gpukpca.gram.low_rank import LowRankGram
from gpukpca.kernels import RBF, Laplacian, Linear, Matern, Polynomial, is_psd
from tests.each import each

N = 12
X = np.random.default_rng(0).standard_normal((N, 3))


def operators(array):
    K = array(np.asarray(X @ X.T))
    return {
        "dense": DenseGram(K),
        "factor": LowRankGram(array(X)),
        "tiled": TiledGram(RBF(0.1), array(X)),
        "centered": CenteredGram(DenseGram(K)),
        "base point": BasePointGram(DenseGram(K)),
    }


@each("name", ["dense", "factor", "tiled", "centered", "base point"])
def test_operators_refuse_blocks_and_indices_of_other_shapes(xp, name):
    op = operators(xp.array)[name]
    V = xp.array(X)
    for block in (V[:, 0], V[:5, :], [[1.0]] * N, None):
        with pytest.raises(InvalidParameterError, match="expected a"):
            op @ block
    for chosen in (3, [0.5], [N], [-1], None, ["a"], [True]):
        with pytest.raises(InvalidParameterError, match="indices="):
            op.columns(chosen)
    assert op.columns([]).shape == (N, 0)


@pytest.mark.parametrize("dtype", ["int64", "bool", "float16"])
def test_matrices_of_other_types_are_computed_in_float64(dtype):
    K = (np.eye(N) * 2).astype(dtype)
    for op in (DenseGram(K), CenteredGram(DenseGram(K)), LowRankGram(K), DenseGram(K.tolist())):
        assert op.dtype == np.float64
        assert np.all(np.isfinite(top_eigh(op, 2, "dense").eigenvalues))


@each(
    "make, error",
    [
        (lambda: DenseGram(None), r"^K is None, and not an array of shape \(n, n\)"),
        (lambda: DenseGram("a"), r"^K is 'a', and not an array of shape \(n, n\)"),
        (lambda: double_center(None), r"^K is None, and not an array of shape \(n, n\)"),
        (lambda: DenseGram(X), "square"),
        (lambda: DenseGram(X[0]), "Expected 2D array"),
        (lambda: DenseGram(np.ma.masked_greater(X @ X.T, 1.0)), "^K has masked"),
        (lambda: DenseGram(1j * np.eye(3)), "complex"),
        (lambda: double_center(1j * np.eye(3)), "complex"),
        (lambda: double_center("K.npy"), "Read a file first"),
        (lambda: double_center([[10**400]]), "Input K contains an integer beyond float64"),
        (lambda: LowRankGram(None), r"^F is None, and not an array of shape \(n, k\)"),
        (lambda: CenteredGram(X @ X.T), "wrap a matrix"),
        (lambda: CenteredGram(None), "wrap a matrix"),
        (lambda: CenteredGram(DenseGram), "symmetric operator"),
        (lambda: BasePointGram(X @ X.T), "wrap a matrix"),
        (lambda: pivoted_cholesky(X @ X.T, 3), "wrap a matrix"),
        (lambda: pivoted_cholesky(None, landmarks=[1]), "wrap a matrix"),
        (lambda: pivoted_cholesky(DenseGram(X @ X.T), 3, "a"), "'a' is not allowed"),
        (lambda: top_eigh(DenseGram(X @ X.T), 2, solver=Dense), "solver="),
        (lambda: top_eigh(DenseGram, 2), "wrap a matrix"),
        (lambda: top_eigh(DenseGram(X @ X.T), 2, report=3), "report=3"),
        (lambda: top_eigh(DenseGram(X @ X.T), 2, checkpointer="job"), "checkpointer='job'"),
        (lambda: BlockKrylov(block_size=1.5), "block_size=1.5"),
        (lambda: BlockKrylov(max_passes="a"), "max_passes='a'"),
        (lambda: BlockKrylov(passes=True), "passes=True"),
        (lambda: BlockKrylov(tol="a"), "tol='a'"),
        (lambda: Dense(tol=None), "tol=None"),
        (lambda: Dense(full_spectrum="no"), "full_spectrum='no'"),
        (lambda: gram_matrix(RBF(), X[:0]), "a minimum of 1 is required"),
        (lambda: gram_matrix(RBF(), X[:, :0]), "a minimum of 1 is required"),
        (lambda: gram_matrix(RBF(), X, n_jobs="a"), "n_jobs='a'"),
        (lambda: CenteredGram.of_kernel(RBF(), X[:0]), "a minimum of 1 is required"),
        (lambda: TiledGram(RBF(), X, n_jobs=1.5), r"n_jobs=1\.5"),
        (lambda: kernel_matmat(RBF(), X, X, None), "expected an array, got NoneType"),
        (lambda: kernel_matmat(RBF(), X, X, 1j * X), "V holds complex"),
        (lambda: is_psd("rbf", X), "kernel object"),
        (lambda: Nystrom(landmarks=[0.5]), "landmarks="),
    ],
)
def test_wrong_arguments_are_named(make, error):
    with pytest.raises(InvalidParameterError, match=error):
        make()


@pytest.mark.parametrize("rng", [None, 3, np.random.default_rng(3)])
def test_factorizations_take_a_seed_as_top_eigh_does(rng):
    op = DenseGram(X @ X.T)
    found = pivoted_cholesky(op, 3, rng)
    np.testing.assert_allclose(found.F @ found.F.T, X @ X.T, atol=1e-10)


def test_definiteness_is_not_asked_of_missing_numbers():
    with pytest.raises(ValueError, match="NaN"):
        is_psd(RBF(), np.full((3, 2), np.nan))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_kernel_matrices_refuse_rows_that_are_not_finite(xp, bad):
    damaged, ones = np.array(X), np.ones((N, 1))
    damaged[3, 1] = bad
    good, damaged, ones = xp.array(X), xp.array(damaged), xp.array(ones)
    calls = (
        ("X", lambda kernel: gram_matrix(kernel, damaged)),
        ("Y", lambda kernel: gram_matrix(kernel, good, damaged)),
        ("X", lambda kernel: kernel_matmat(kernel, damaged, good, ones)),
        ("Y", lambda kernel: kernel_matmat(kernel, good, damaged, ones)),
        ("V", lambda kernel: kernel_matmat(kernel, good, good, damaged)),
    )
    for kernel, (name, call) in itertools.product((Linear(), RBF(0.1), Matern(0.1, 0.5), Laplacian(0.1)), calls):
        with pytest.raises(InvalidParameterError, match=rf"Input {name} contains .*: 1 value.*row 3, column 1"):
            call(kernel)


def test_sparse_rows_that_are_not_finite_are_refused():
    damaged = scipy.sparse.csr_array(np.where(np.arange(3) == 1, np.nan, 0.0) * np.ones((N, 1)))
    with pytest.raises(InvalidParameterError, match="Input X contains NaN: 12 value"):
        gram_matrix(RBF(0.1), damaged)


def test_kernel_values_that_are_not_finite_are_refused(xp):
    rows, ones = xp.array(1e10 * X), xp.array(np.ones((N, 1)))
    for call in (
        lambda kernel: gram_matrix(kernel, rows),
        lambda kernel: gram_matrix(kernel, rows, rows[:5, :]),
        lambda kernel: kernel_matmat(kernel, rows, rows, ones),
    ):
        with pytest.raises(InvalidParameterError, match="the kernel Polynomial overflows float64 on these data"):
            call(Polynomial(9, gamma=1e50))
    values = gram_matrix(Linear(), xp.array(np.full((40, 1), 1e154)))  # finite, and their sum is not
    assert float(np.min(xp.host(values))) == float(np.max(xp.host(values))) == 1e154 * 1e154
