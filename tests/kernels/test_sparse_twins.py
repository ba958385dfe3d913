"""CSR and dense rows of the same data are one problem: every kernel, dtype and offset of fully stored columns."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpukpca import KernelPCA
from gpukpca.data.csr import sparse_square_distances, stored_means
from gpukpca.data.slicing import shifted_rows
from gpukpca.eigen import Nystrom
from gpukpca.exceptions import PrecisionWarning, RankWarning
from gpukpca.gram import gram_matrix
from gpukpca.kernels import RBF, Cosine, Kernel, Laplacian, Linear, Matern, Polynomial, RationalQuadratic, Sigmoid
from gpukpca.kernels.prepared import DataRows, DensifiedRows
from tests import oracle
from tests.each import covering, each

OFFSETS = [0.0, 10.0, 1e3, 1e6, 1e8]
DISTANCE = {
    "rbf": (RBF(0.3), oracle.rbf(0.3)),
    "matern12": (Matern(0.3, 0.5), oracle.matern(0.3, 0.5)),
    "matern32": (Matern(0.3, 1.5), oracle.matern(0.3, 1.5)),
    "rational": (RationalQuadratic(0.3, 2.0), oracle.rational_quadratic(0.3, 2.0)),
    "laplacian": (Laplacian(0.2), oracle.laplacian(0.2)),
    "linear": (Linear(), oracle.linear),
}
PRODUCT: dict[str, Kernel] = {"cosine": Cosine(), "poly": Polynomial(2, gamma=0.1), "sigmoid": Sigmoid(0.01)}


def mixed_rows(offset: float, seed: int, dtype: str, n: int = 60) -> np.ndarray:
    """Three full columns about an offset beside five that are mostly zero; the last rows repeat the first."""
    rng = np.random.default_rng(seed)
    full = rng.standard_normal((n, 3)) + offset * np.array([1.0, -1.0, 0.5])
    X = np.concatenate([full, rng.standard_normal((n, 5)) * (rng.random((n, 5)) < 0.3)], axis=1)
    X[-5:] = X[:5]
    return X.astype(dtype)


@pytest.mark.parametrize("cls", [DataRows, DensifiedRows])
def test_rows_are_pickled_by_the_names_of_earlier_versions(cls: type[DataRows]) -> None:
    X = scipy.sparse.csr_array(np.eye(3))
    assert vars(cls(X)) == {"data": X, "n_rows": 3}


def fitted(X: Any, X_new: Any, kernel: Any, solver: Any) -> tuple[np.ndarray, np.ndarray, set[type]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = KernelPCA(3, kernel=kernel, eigen_solver=solver, random_state=0).fit(X)
        return model.eigenvalues_, np.abs(model.transform(X_new)), {seen.category for seen in caught}


@each(
    "name, solver, dtype, offset",
    [
        *covering(DISTANCE, ["dense"], ["float64", "float32"], OFFSETS),
        *covering(["rbf", "linear"], ["randomized", Nystrom(rank=40)], ["float64", "float32"], [0.0, 1e8]),
    ],
)
def test_distances_of_sparse_rows_are_those_of_dense_ones(name: str, solver: Any, dtype: str, offset: float) -> None:
    kernel, function = DISTANCE[name]
    X, X_new = (mixed_rows(offset, seed, dtype) for seed in (1, 2))
    dense = fitted(X, X_new, kernel, solver)
    sparse = fitted(scipy.sparse.csr_array(X), scipy.sparse.csr_array(X_new), kernel, solver)
    accuracy = {"float64": 1e-13, "float32": 1e-5}[dtype] if solver != "randomized" else 1e-5
    # The mean itself is known to rounding, and so are scores of new rows.
    moved = 8.0 * np.finfo(np.float64).eps * offset if name == "linear" else 0.0
    for found, _, _ in (dense, sparse):
        if solver == "dense":
            centered = X.astype(np.float64) - X.astype(np.float64).mean(axis=0)
            wanted = oracle.eigenpairs(oracle.centered(oracle.gram(function, centered)), 3)[0]
            assert np.max(np.abs(found - wanted)) <= accuracy * wanted[0]
    assert np.max(np.abs(dense[0] - sparse[0])) <= accuracy * dense[0][0]
    assert np.max(np.abs(dense[1] - sparse[1])) <= 100.0 * accuracy * np.sqrt(dense[0][0]) + moved
    assert dense[2] == sparse[2] == set()


@each("offset", OFFSETS)
@each("dtype", ["float64", "float32"])
@each("name", PRODUCT)
def test_products_of_sparse_rows_agree_with_dense_ones_or_warn(name: str, dtype: str, offset: float) -> None:
    X, X_new = (mixed_rows(offset, seed, dtype) for seed in (1, 2))
    dense = fitted(X, X_new, PRODUCT[name], "dense")
    sparse = fitted(scipy.sparse.csr_array(X), scipy.sparse.csr_array(X_new), PRODUCT[name], "dense")
    assert (PrecisionWarning in dense[2]) == (PrecisionWarning in sparse[2])
    if not (dense[2] | sparse[2]) & {PrecisionWarning, RankWarning}:
        accuracy = {"float64": 1e-8, "float32": 1e-5}[dtype]
        assert np.max(np.abs(dense[0] - sparse[0])) <= accuracy * dense[0][0]
        assert np.max(np.abs(dense[1] - sparse[1])) <= 30.0 * accuracy * np.sqrt(dense[0][0])


@each("dtype", ["float64", "float32"])
@each("size", [1e3, 1e5, 1e9])
@each("name", ["rbf", "matern12", "matern32", "rational"])
def test_sparse_rows_far_apart_are_computed_by_differences(name: str, size: float, dtype: str) -> None:
    """Clusters in columns that are mostly zero cannot be shifted."""
    kernel, function = DISTANCE[name]
    rng = np.random.default_rng(3)
    X = np.zeros((30, 12))
    X[np.arange(30), np.arange(30) % 6] = size + np.round(rng.standard_normal(30), 3)
    X[:, 6:] = rng.standard_normal((30, 6)) * (rng.random((30, 6)) < 0.5)
    X = np.concatenate([X, X[:4]]).astype(dtype)
    K = gram_matrix(kernel, scipy.sparse.csr_array(X))
    accuracy = {"float64": 1e-9, "float32": 1e-6}[dtype]
    assert np.max(np.abs(K - oracle.gram(function, X))) <= accuracy
    assert np.array_equal(np.diagonal(K[:4, 30:]), np.ones(4)) or name in ("matern32", "rational", "rbf")
    new = gram_matrix(kernel, scipy.sparse.csr_array(X[:7]), scipy.sparse.csr_array(X))
    assert np.max(np.abs(new - oracle.gram(function, X[:7], X))) <= accuracy


def test_duplicates_of_sparse_rows_are_at_distance_zero() -> None:
    X = mixed_rows(1e6, 5, "float64")
    K = gram_matrix(Matern(0.3, 0.5), scipy.sparse.csr_array(X))
    assert np.array_equal(np.diagonal(K[:5, -5:]), np.ones(5))


def test_only_full_columns_are_shifted_and_the_rows_stay_sparse() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 6)) + 1e7
    X[rng.random((50, 6)) < 0.7] = 0.0
    X[:, 0], X[:, 1] = 1e7 + np.arange(50), 7.3
    X[3, 0] = 0.0
    sparse = scipy.sparse.csr_matrix(X)
    before = sparse.copy()
    means = stored_means(sparse)
    assert means[0] == pytest.approx(X[X[:, 0] > 0, 0].mean(), rel=1e-15)
    assert means[1] == 7.3
    assert np.array_equal(means[2:], np.zeros(4))
    shifted = shifted_rows(sparse, means, 2.0, np.float64)
    assert np.array_equal(shifted.toarray(), 2.0 * (X - means))
    assert shifted.nnz <= sparse.nnz + 1
    assert (sparse != before).nnz == 0
    assert np.array_equal(stored_means(sparse[:0]), np.zeros(6))


def test_rows_with_entries_given_twice_are_those_with_their_sums() -> None:
    X = scipy.sparse.csr_array(mixed_rows(1e6, 4, "float64"))
    halves = scipy.sparse.csr_array((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)
    assert np.array_equal(stored_means(halves), stored_means(X))
    assert halves.data.size == 2 * X.data.size
    for kernel in (RBF(0.3), Matern(0.3, 0.5), Linear()):
        found, wanted = (KernelPCA(2, kernel=kernel).fit(rows).eigenvalues_ for rows in (halves, X))
        assert np.max(np.abs(found - wanted)) <= 1e-13 * wanted[0]


def test_sparse_distances_by_differences() -> None:
    rng = np.random.default_rng(1)
    A, B = (rng.standard_normal((n, 9)) * (rng.random((n, 9)) < 0.4) for n in (7, 5))
    B[2] = A[4]
    found = sparse_square_distances(scipy.sparse.csr_array(A), scipy.sparse.csr_array(B))
    wanted = ((A[:, None, :] - B[None, :, :]) ** 2).sum(axis=2)
    assert np.max(np.abs(found - wanted)) <= 1e-14 * np.max(wanted)
    assert found[4, 2] == 0.0
