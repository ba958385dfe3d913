"""Every operator of K at odd sizes: products, diagonal, columns, blocks and the matrix itself, against the oracle."""

from __future__ import annotations

from functools import partial

import numpy as np

from gpukpca.gram import CenteredGram, DenseGram, TiledGram, gram_matrix
from gpukpca.gram.base_point import BasePointGram
from gpukpca.gram.low_rank import LowRankGram
from gpukpca.kernels import RBF, Laplacian, Linear, Matern, Polynomial
from tests import oracle, tolerances
from tests.datasets import data
from tests.each import covering, each

EDGE = 8
ODD_SIZES = (1, EDGE - 1, EDGE, EDGE + 1, 3 * EDGE + 2)
KERNELS = {
    "rbf": (RBF(0.3), oracle.rbf(0.3)),
    "poly": (Polynomial(2, 0.3, 1.0), oracle.poly(2, 0.3, 1.0)),
    "laplacian": (Laplacian(0.3), oracle.laplacian(0.3)),
    "sum": (Linear() + Matern(0.3, 2.5), lambda x, y: oracle.linear(x, y) + oracle.matern(0.3, 2.5)(x, y)),
}
STORAGES = {
    "tiled": lambda kernel, X: TiledGram(kernel, X, tile_edge=EDGE, cached_tiles=0),
    "two tiles cached": lambda kernel, X: TiledGram(kernel, X, tile_edge=EDGE, cached_tiles=2),
    "all tiles cached": lambda kernel, X: TiledGram(kernel, X, tile_edge=EDGE),
    "dense": lambda kernel, X: DenseGram(gram_matrix(kernel, X)),
}


def from_row(K: np.ndarray, i: int) -> np.ndarray:
    """Return K seen from row i."""
    return K - K[:, [i]] - K[[i], :] + K[i, i]


# name -> (operator of an operator, the same of a matrix)
VIEWS = {
    "centered": (CenteredGram, oracle.centered),
    "not centered": (partial(CenteredGram, center=False), lambda K: K),
    "first row": (lambda op: BasePointGram(op, 0), lambda K: from_row(K, 0)),
    "last row": (lambda op: BasePointGram(op, op.shape[0] - 1), lambda K: from_row(K, len(K) - 1)),
}
SIZES = [*((n, "float64") for n in ODD_SIZES), (ODD_SIZES[-1], "float32")]
CASES = [("poly", *case) for case in covering(STORAGES, (None, *VIEWS), SIZES)]
CASES += [(kernel, "two tiles cached", None, size) for kernel in KERNELS if kernel != "poly" for size in SIZES]


def rows(n: int, d: int = 3, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    return data(n, d, seed).astype(dtype)


def check_protocol(xp, op, K, bound):
    """Compare everything that a solver may ask of an operator with the matrix itself."""
    n, dtype = len(K), "float32" if "float32" in str(op.dtype) else "float64"
    V, some, others = rows(n, 4, dtype, 1), [0, n - 1, n // 2, 0], [n // 3, 0]
    assert op.shape == (n, n)
    assert op.dtype == xp.dtype(dtype)
    assert op.like.shape == (0,)
    assert xp.owns(op.like)
    answers = {
        "product": (op @ xp.array(V), K @ V),
        "product from the cache": (op @ xp.array(V), K @ V),
        "diagonal": (op.diagonal(), np.diag(K)),
        "columns": (op.columns(some), K[:, some]),
        "column panel": (op.column_panels(some)(n // 3, n), K[n // 3 :, some]),
        "dense": (op.to_dense(), K),
    }
    if not isinstance(op, CenteredGram):
        answers["block"] = (op.block(some, others), K[np.ix_(some, others)])
    for name, (answer, expected) in answers.items():
        assert xp.owns(answer), name
        assert answer.dtype == op.dtype, name
        assert answer.shape == expected.shape, name
        error = np.max(np.abs(xp.host(answer).astype(np.float64) - expected))
        assert error <= bound * (n if "product" in name else 1), name
    dense = xp.host(op.to_dense())
    assert np.array_equal(dense, dense.T)


@each("kernel, storage, view, size", CASES)
def test_every_storage_and_every_view_of_it(xp, kernel, storage, view, size):
    (n, dtype), (k, function) = size, KERNELS[kernel]
    X = rows(n, dtype=dtype)
    K = oracle.gram(function, X)
    bound = 4 * tolerances.kernel(dtype, max(1.0, np.max(np.abs(K))) * 2)
    op = STORAGES[storage](k, xp.array(X))
    if view is None:
        check_protocol(xp, op, K, bound)
        assert op.factor() is None
        return
    make, of_matrix = VIEWS[view]
    op = make(op)
    check_protocol(xp, op, of_matrix(K), bound)
    if view == "centered":
        assert np.max(np.abs(xp.host(op.column_means) - K.mean(axis=0))) <= bound
        assert abs(op.trace - np.trace(oracle.centered(K))) <= bound * n
        assert abs(op.noise_scale - abs(K.sum()) / n) <= bound * n
    if view == "not centered":
        assert not np.any(xp.host(op.column_means))
        assert abs(op.trace - np.trace(K)) <= bound * n
        assert op.noise_scale == 0.0
    if view in ("centered", "not centered"):
        assert abs(op.entry_noise - np.linalg.norm(K.sum(axis=0)) / n) <= bound * n


@each("k", [0, 1, 3, 40])
@each("view", [None, *VIEWS])
def test_every_view_of_a_factor(xp, dtype, k, view):
    F = rows(30, k, dtype)
    K = F.astype(np.float64) @ F.astype(np.float64).T
    op = LowRankGram(xp.array(F))
    if view is not None:
        op, K = VIEWS[view][0](op), VIEWS[view][1](K)
    check_protocol(xp, op, K, 4 * tolerances.product(dtype, max(k, 1), max(1.0, float(np.max(np.abs(K))))))
    if view != "centered":
        found = xp.host(op.factor()).astype(np.float64)
        assert np.max(np.abs(found @ found.T - K), initial=0.0) <= 1e3 * tolerances.eps(dtype)
