"""The classes of the pages on extending the library, against the oracle."""

from __future__ import annotations

import ast
import sqlite3
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpukpca import PCA, KernelPCA
from gpukpca.eigen import top_eigh
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import CenteredGram, Storage
from gpukpca.kernels import RBF
from tests import oracle, tolerances
from tests.algorithms.test_predicted_memory import model_and_peak, rows
from tests.datasets import data
from tests.eigen.test_solvers import check
from tests.operators import Operator, matrix
from tests.test_docs import ROOT, blocks

# page -> the class that it adds, and the most lines of it
CLASSES = {
    "kernel": "Cauchy",
    "storage": "ToeplitzGram",
    "solver": "SubspaceIteration",
    "container": "TableRows",
    "feature_map": "Circles",
}
LINES = 15


@cache
def first_block(page: str) -> str:
    return blocks(ROOT / "docs" / "development" / f"{page}.md", "python")[0]


def class_of(page: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(compile(first_block(page), page, "exec"), namespace)
    return namespace[CLASSES[page]]


@pytest.mark.parametrize("page", CLASSES)
def test_the_protocol_asks_for_few_lines(page):
    lines = first_block(page).splitlines()
    (tree,) = (part for part in ast.parse(first_block(page)).body if isinstance(part, ast.ClassDef))
    assert tree.name == CLASSES[page]
    assert sum(bool(line.strip()) for line in lines[tree.lineno - 1 : tree.end_lineno]) <= LINES


def test_the_kernel(xp, dtype):
    X, Y = data(40, 3).astype(dtype), data(17, 3, 1).astype(dtype)
    kernel, k = class_of("kernel")(gamma=0.3), oracle.rational_quadratic(0.3, 1.0)
    bound = tolerances.kernel(dtype)
    for K, expected in (
        (kernel(xp.array(X), xp.array(Y)), oracle.gram(k, X, Y)),
        (kernel(xp.array(X)), oracle.gram(k, X)),
    ):
        assert xp.owns(K)
        assert np.max(np.abs(xp.host(K) - expected)) <= bound


def test_the_kernel_takes_sparse_rows():
    X = scipy.sparse.random(40, 9, 0.3, "csr", random_state=0)
    model, dense = (KernelPCA(3, kernel=class_of("kernel")(gamma=0.3)).fit(rows) for rows in (X, X.toarray()))
    np.testing.assert_allclose(model.eigenvalues_, dense.eigenvalues_, rtol=1e-12)
    np.testing.assert_allclose(model.transform(X[:7]), dense.transform(X[:7].toarray()), atol=1e-12)


def test_the_feature_map(xp, dtype):
    X = data(260, 3).astype(dtype)
    kernel = class_of("feature_map")()
    angles = np.concatenate([np.cos(X), np.sin(X)], axis=1, dtype=np.float64)
    F, K = xp.host(kernel.features(xp.array(X), None)), xp.host(kernel(xp.array(X)))
    assert F.shape[1] == kernel.feature_count(3)
    assert np.max(np.abs(K - angles @ angles.T)) <= 4 * tolerances.kernel(dtype, 3)
    model = KernelPCA(2, kernel=kernel).fit(xp.array(X))
    assert "6 features" in str(model.plan_)
    expected = oracle.eigenpairs(oracle.centered(angles @ angles.T), 2)[0]
    np.testing.assert_allclose(xp.host(model.eigenvalues_), expected, rtol=100 * np.finfo(dtype).eps)
    np.testing.assert_allclose(F @ F.T, K, atol=4 * tolerances.kernel(dtype, 3))


@pytest.mark.parametrize("n", [2, 101])
def test_the_storage(xp, dtype, n):
    X = np.linspace(0.0, 8.0, n, dtype=dtype)[:, None]
    K, V = oracle.gram(oracle.rbf(0.5), X), data(n, 4, 1).astype(dtype)
    op = class_of("storage")(RBF(0.5)(xp.array(X), xp.array(X[:1]))[:, 0])
    values = xp.host(top_eigh(CenteredGram(op), 2, rng=0).eigenvalues)
    bound = 4 * tolerances.kernel(dtype, n)
    for answer, expected in ((op @ xp.array(V), K @ V), (op.diagonal(), np.diag(K)), (op.to_dense(), K)):
        assert xp.owns(answer)
        assert answer.dtype == op.dtype
        assert np.max(np.abs(xp.host(answer) - expected)) <= bound
    assert np.max(np.abs(values - oracle.eigenpairs(oracle.centered(K), 2)[0])) <= bound


class Extra(Storage):
    """A class of storage whose operator has rows that the data do not have, or is not finite."""

    rows, factor = 0, 1.0

    def bytes_held(self, item_size):
        return self.n**2 * item_size

    def build(self, source):
        rows = self.n + self.rows
        return class_of("storage")(self.factor * source.kernel(np.ones((rows, 1)), np.ones((1, 1)))[:, 0])

    def __str__(self):
        return "extra"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"rows": 2}, r"Extra has shape \(42, 42\), and K of 40 rows \(40, 40\)"),
        ({"factor": np.nan}, "NaN or infinity"),
    ],
)
@pytest.mark.parametrize("solver", ["dense", "randomized"])
def test_an_operator_that_cannot_be_the_kernel_matrix_is_refused(solver, members, message):
    storage = type("Extra", (Extra,), members)
    with pytest.raises(InvalidParameterError, match=message):
        KernelPCA(2, kernel="rbf", gram=storage, eigen_solver=solver).fit(data(40, 1))


def test_the_solver(xp, dtype):
    A = matrix("0.9^i", dtype, 120)
    found = top_eigh(Operator(A, xp), 6, class_of("solver")(passes=200), rng=0)
    assert xp.owns(found.eigenvectors)
    check(A, found, dtype, "krylov", xp)


def test_classes_that_state_no_bytes_keep_to_the_bound(dtype):
    X = rows(900, 8, dtype)
    for kernel in (class_of("kernel")(gamma=0.1), class_of("feature_map")(), RBF(0.1)):
        for solver in (class_of("solver")(passes=4), "dense", "randomized"):
            model, peak = model_and_peak(X, kernel=kernel, eigen_solver=solver, n_jobs=1)
            assert peak <= model.plan_.predicted_bytes, (kernel, solver)


def test_the_container(tmp_path):
    X = data(70, 4)
    connection = sqlite3.connect(tmp_path / "rows.db")
    connection.execute("CREATE TABLE x (a REAL, b REAL, c REAL, d REAL)")
    connection.executemany("INSERT INTO x VALUES (?, ?, ?, ?)", X.tolist())
    model, whole = PCA(2).fit(class_of("container")(connection, "x", 9)), PCA(2).fit(X)
    connection.close()
    np.testing.assert_allclose(model.explained_variance_, whole.explained_variance_, rtol=1e-12)
    np.testing.assert_allclose(model.transform(X), whole.transform(X), atol=1e-12)
