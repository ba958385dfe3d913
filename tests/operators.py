"""Symmetric operators with known spectra, shared by the tests of all solvers and factors."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import scipy.sparse.linalg
from scipy.sparse.linalg._special_sparse_arrays import MikotaPair, Sakurai

from gpukpca.gram import SymmetricOperator
from tests import oracle, tolerances

N, P = 256, 10  # rows of a matrix, and the components that tests compute


class Operator(SymmetricOperator):
    """A host matrix as an operator of any library. Count passes, columns multiplied and columns evaluated."""

    def __init__(self, A: np.ndarray, xp: Any = None) -> None:
        self.host, self.there = np.asarray(A), (lambda x: x) if xp is None else xp.array
        self.A = self.there(self.host)
        self.shape, self.dtype, self.like = self.host.shape, self.A.dtype, self.A[:0, 0]
        self.passes = self.columns_multiplied = self.columns_evaluated = 0

    def __matmul__(self, V: Any) -> Any:
        self.passes += 1
        self.columns_multiplied += V.shape[1]
        return self.A @ V

    def to_dense(self) -> Any:
        return self.A + 0.0

    def diagonal(self) -> Any:
        return self.there(np.diagonal(self.host).copy())

    def columns(self, indices: Any) -> Any:
        self.columns_evaluated += len(indices)
        return self.there(self.host[:, np.asarray(indices)])


class BlockOperator(Operator):
    """An operator that can also evaluate a small block."""

    def block(self, rows: Any, columns: Any) -> Any:
        return self.there(self.host[np.ix_(rows, columns)])


# -- spectra -----------------------------------------------------------------------------------------------------------


def _with_gap(relative: float) -> np.ndarray:
    """Return eigenvalues whose relative gap behind the first P is given."""
    values = np.concatenate([np.linspace(2.0, 1.0, P), np.linspace(0.5, 0.01, N - P)])
    values[P] = values[P - 1] * (1.0 - relative)
    return values


INDEX = np.arange(1.0, N + 1.0)
# name -> the eigenvalues, for the eps of a dtype
SPECTRA = {
    "zero": lambda eps: np.zeros(N),
    "identity": lambda eps: np.full(N, 3.0),
    "arithmetic": lambda eps: np.linspace(1.0, eps, N),
    "geometric": lambda eps: eps ** (np.arange(N) / (N - 1)),
    "one-large": lambda eps: np.concatenate([[1.0], np.full(N - 1, eps)]),
    "one-small": lambda eps: np.concatenate([np.ones(N - 1), [eps]]),
    "i^-1/2": lambda eps: INDEX**-0.5,
    "i^-1": lambda eps: 1.0 / INDEX,
    "i^-2": lambda eps: INDEX**-2,
    "0.5^i": lambda eps: 0.5**INDEX,
    "0.9^i": lambda eps: 0.9**INDEX,
    "0.99^i": lambda eps: 0.99**INDEX,
    "spikes": lambda eps: np.concatenate(
        [np.linspace(100, 50, 10), 1 + 1e-3 * np.random.default_rng(1).random(N - 10)]
    ),
    "gap-1e-3": lambda eps: _with_gap(1e-3),
    "gap-1e-6": lambda eps: _with_gap(1e-6),
    "gap-1e-9": lambda eps: _with_gap(1e-9),
    "gap-0": lambda eps: _with_gap(0.0),
    "cluster-of-40": lambda eps: np.concatenate([np.full(40, 2.0), np.linspace(1.0, 0.0, N - 40)]),
    "cluster-of-6-and-15": lambda eps: np.concatenate([np.full(6, 3.0), np.full(15, 2.0), np.linspace(1, 0, N - 21)]),
    "rank-5": lambda eps: np.concatenate([np.linspace(5, 1, 5), np.zeros(N - 5)]),
    "indefinite": lambda eps: np.concatenate([[1.0, -0.99], (-0.97) ** np.arange(2.0, N)]),
    "negative": lambda eps: -np.linspace(1.0, 2.0, N),
}


def _laplacian(ends: float) -> np.ndarray:
    """Return second differences; `ends` is the first and the last diagonal entry."""
    A = 2 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1)
    A[0, 0] = A[-1, -1] = ends
    return A


def _mikota() -> np.ndarray:
    """Return M^-1/2 K M^-1/2 of a chain of masses, with eigenvalues 1, 4, 9, ..."""
    pair = MikotaPair(64)
    M, K = (np.asarray(part.tosparse().toarray(), dtype=np.float64) for part in (pair.m, pair.k))
    root = np.diag(1 / np.sqrt(np.diag(M)))
    return root @ K @ root


def _far_narrow() -> np.ndarray:
    """Return a Gaussian kernel matrix whose eigenvalues fall off so fast that all but a few are zero."""
    x = np.linspace(500, 501, 257)
    return oracle.centered(np.exp(-((x[:, None] - x[None, :]) ** 2) / 2))


# name -> a symmetric float64 matrix, for a dtype
MATRICES = {
    "averaging": lambda dtype: oracle.centering(N),
    "ones": lambda dtype: np.ones((N, N)),
    "laplacian": lambda dtype: _laplacian(2.0),
    "path": lambda dtype: _laplacian(1.0),
    "mikota": lambda dtype: _mikota(),
    "sakurai": lambda dtype: np.asarray(Sakurai(150).toarray(), dtype=np.float64),
    "grid": lambda dtype: scipy.sparse.linalg.LaplacianNd((14, 15), boundary_conditions="neumann").toarray() + 0.0,
    "far-narrow": lambda dtype: _far_narrow(),
} | {
    name: (lambda dtype, make=make: oracle.with_spectrum(make(tolerances.eps(dtype)), 5))
    for name, make in SPECTRA.items()
}


def matrix(name: str, dtype: str = "float64", n: int | None = None) -> np.ndarray:
    """Return a matrix of the table in a dtype, or its leading n rows and columns."""
    A = _matrix(name, dtype)[:n, :n].astype(dtype)
    return (A + A.T) / 2


@cache
def _matrix(name: str, dtype: str) -> np.ndarray:
    return MATRICES[name](dtype)


# -- positive semidefinite matrices ------------------------------------------------------------------------------------


def points(n: int, d: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))


def gaussian(X: np.ndarray, gamma: float) -> np.ndarray:
    squares = np.sum(X * X, axis=1)
    return np.exp(-gamma * np.maximum(squares[:, None] + squares[None, :] - 2 * X @ X.T, 0.0))


def _clusters(n: int) -> np.ndarray:
    """Return one large cluster, and small ones that a few even draws miss."""
    X = 0.1 * points(n, 2)
    X[-n // 10 :] += 10.0 * (1 + np.arange(n // 10) // 4)[:, None]
    return X


def _products(X: np.ndarray) -> np.ndarray:
    return X @ X.T


M = 240
STEPS = np.arange(1.0, M + 1)
# name -> a positive semidefinite float64 matrix
SEMIDEFINITE = {
    "smooth": lambda: gaussian(points(M), 0.02),
    "line": lambda: gaussian(np.linspace(0, 6, M)[:, None], 0.5),
    "nearly flat": lambda: gaussian(np.linspace(500, 501, M)[:, None] - 500.5, 0.5),
    "rough": lambda: gaussian(points(M), 5.0),
    "duplicates": lambda: np.repeat(np.repeat(gaussian(points(M // 5), 0.3), 5, axis=0), 5, axis=1),
    "clusters": lambda: gaussian(_clusters(M), 1.0),
    "linear": lambda: _products(points(M, 20)),
    "offset": lambda: _products(points(M, 20) + 100),
    "outlier": lambda: _products(np.concatenate([points(M - 1, 20), np.full((1, 20), 1e3)])),
    "identity": lambda: np.eye(M),
    "ones": lambda: np.ones((M, M)),
    "geometric": lambda: oracle.with_spectrum(0.8 ** np.arange(M), 3),
    "algebraic": lambda: oracle.with_spectrum(1.0 / STEPS**2, 3),
    "brownian": lambda: np.minimum(STEPS[:, None], STEPS[None, :]),
}


def semidefinite(name: str, dtype: str = "float64") -> np.ndarray:
    """Return a matrix of the table in a dtype, exactly symmetric."""
    K = _semidefinite(name).astype(dtype)
    return np.triu(K) + np.triu(K, 1).T


@cache
def _semidefinite(name: str) -> np.ndarray:
    return SEMIDEFINITE[name]()
