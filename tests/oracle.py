"""Plain float64 oracles: slow and obviously right. Nothing here imports the package."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import scipy.linalg

Function = Callable[[np.ndarray, np.ndarray], float]

# -- kernels of two vectors --------------------------------------------------------------------------------------------

# Each is one object for the same parameters, so that `gram` knows a matrix that it has computed.


def square_distance(x: np.ndarray, y: np.ndarray) -> float:
    return float(((x - y) ** 2).sum())


def linear(x: np.ndarray, y: np.ndarray) -> float:
    return float((x * y).sum())


@lru_cache
def poly(degree: int, gamma: float, coef0: float) -> Function:
    return lambda x, y: (gamma * linear(x, y) + coef0) ** degree


@lru_cache
def sigmoid(gamma: float, coef0: float) -> Function:
    return lambda x, y: math.tanh(gamma * linear(x, y) + coef0)


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    size = math.sqrt(linear(x, x)) * math.sqrt(linear(y, y))
    return linear(x, y) / size if size > 0 else 0.0


@lru_cache
def rbf(gamma: float) -> Function:
    return lambda x, y: math.exp(-gamma * square_distance(x, y))


@lru_cache
def laplacian(gamma: float) -> Function:
    return lambda x, y: math.exp(-gamma * float(np.abs(x - y).sum()))


@lru_cache
def matern(gamma: float, nu: float) -> Function:
    """Rasmussen & Williams (2006), eqs. 4.16 and 4.17, with length scale l = 1 / sqrt(2 gamma)."""
    length = 1.0 / math.sqrt(2.0 * gamma)

    def k(x: np.ndarray, y: np.ndarray) -> float:
        r = math.sqrt(square_distance(x, y))
        if nu == 0.5:
            return math.exp(-r / length)
        if nu == 1.5:
            return (1 + math.sqrt(3) * r / length) * math.exp(-math.sqrt(3) * r / length)
        if nu == 2.5:
            return (1 + math.sqrt(5) * r / length + 5 * r**2 / (3 * length**2)) * math.exp(-math.sqrt(5) * r / length)
        return math.exp(-(r**2) / (2 * length**2))

    return k


@lru_cache
def rational_quadratic(gamma: float, alpha: float) -> Function:
    return lambda x, y: (1 + gamma * square_distance(x, y) / alpha) ** -alpha


# -- matrices ----------------------------------------------------------------------------------------------------------


def gram(k: Function, X: np.ndarray, Y: np.ndarray | None = None) -> np.ndarray:
    """K_ij = k(x_i, y_j), pair by pair, in float64; k(x_i, x_j) is computed once for i and j in either order."""
    X = np.asarray(X, dtype=np.float64)
    Y = X if Y is None else np.asarray(Y, dtype=np.float64)
    return _gram(k, X.tobytes(), X.shape, Y.tobytes(), Y.shape).copy()


# The same matrix is the truth for every library, storage and solver.
@lru_cache(maxsize=64)
def _gram(k: Function, X: bytes, shape: tuple[int, int], Y: bytes, shape_y: tuple[int, int]) -> np.ndarray:
    A, B = np.frombuffer(X).reshape(shape), np.frombuffer(Y).reshape(shape_y)
    if X != Y:
        return np.array([[k(x, y) for y in B] for x in A]).reshape(len(A), len(B))
    K = np.empty((len(A), len(A)))
    for i, x in enumerate(A):
        K[i, : i + 1] = K[: i + 1, i] = [k(x, y) for y in A[: i + 1]]
    return K


def centering(n: int) -> np.ndarray:
    """H = I - 11'/n."""
    return np.eye(n) - np.full((n, n), 1.0 / n)


def centered(K: np.ndarray) -> np.ndarray:
    """H K H with the explicit H."""
    H = centering(len(K))
    Kc = H @ np.asarray(K, dtype=np.float64) @ H
    return (Kc + Kc.T) / 2


def eigenpairs(A: np.ndarray, p: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The p largest eigenvalues by value, descending, and their vectors."""
    values, vectors = _eigh(np.asarray(A, dtype=np.float64).tobytes(), len(A))
    return values[::-1][:p].copy(), vectors[:, ::-1][:, :p].copy()


@lru_cache(maxsize=16)
def _eigh(A: bytes, n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.linalg.eigh(np.frombuffer(A).reshape(n, n))


def scores(K: np.ndarray, p: int) -> np.ndarray:
    """Scores of the training points: U sqrt(lambda)."""
    values, vectors = eigenpairs(centered(K), p)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def projected(K_new: np.ndarray, K: np.ndarray, p: int) -> np.ndarray:
    """Scores of new points: the centered kernel rows (K_new - 1'K/n) H times U / sqrt(lambda)."""
    values, vectors = eigenpairs(centered(K), p)
    rows = (K_new - K.mean(axis=0)[None, :]) @ centering(len(K))
    return rows @ (vectors / np.sqrt(values))


def count_above(A: np.ndarray, sigma: float) -> int:
    """Number of eigenvalues of A greater than sigma, by the inertia of A - sigma I (Sylvester)."""
    _, D, _ = scipy.linalg.ldl(np.asarray(A, dtype=np.float64) - sigma * np.eye(len(A)))
    return int(np.sum(np.linalg.eigvalsh(D) > 0))


def up_to_sign(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """A with the signs of its columns turned to agree with B."""
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    return A * np.where(np.sum(A * B, axis=0) < 0, -1.0, 1.0)


def with_spectrum(values: np.ndarray, seed: int) -> np.ndarray:
    """Q diag(values) Q' with a Haar-distributed Q, exactly symmetric, in float64."""
    n = len(values)
    Q, R = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))
    Q = Q * np.sign(np.diag(R))
    A = (Q * np.asarray(values, dtype=np.float64)) @ Q.T
    return (A + A.T) / 2


def singular_values(A: np.ndarray, sweeps: int = 30) -> np.ndarray:
    """Return the singular values of A, descending, by one-sided Jacobi rotations in long double.

    Their errors are the eps of long double times the largest one, where LAPACK's have that of float64. Where the two
    are one, each has small relative error if the columns differ in scale alone.
    """
    A = np.asarray(A, dtype=np.longdouble)
    return _singular_values(A.tobytes(), A.shape, sweeps).copy()


# The same values are the truth for every library and solver.
@lru_cache(maxsize=64)
def _singular_values(A: bytes, shape: tuple[int, int], sweeps: int) -> np.ndarray:
    B = np.frombuffer(A, dtype=np.longdouble).reshape(shape)
    B = B.T if len(B) >= len(B.T) else B  # a column is a row of B: its numbers lie side by side
    eps = np.finfo(np.longdouble).eps
    if eps < np.finfo(np.float64).eps:  # LAPACK's vectors, made orthogonal to eps, leave few rotations
        U = np.linalg.svd(B.astype(np.float64), full_matrices=False)[0].astype(np.longdouble)
        for _ in range(2):
            U = 1.5 * U - 0.5 * U @ (U.T @ U)
        B = U.T @ B
    B = np.concatenate([B, np.zeros((len(B) % 2, len(B.T)), np.longdouble)])
    d = len(B)
    order = np.arange(d)
    for _ in range(sweeps):
        largest = 0.0
        for _ in range(d - 1):  # a round of a tournament: every pair of columns once a sweep
            i, j = order[: d // 2], order[d // 2 :][::-1]
            first, second = B[i], B[j]
            a, b, c = (
                np.einsum("ij,ij->i", p, q)[:, None] for p, q in ((first, first), (second, second), (first, second))
            )
            size = np.sqrt(a * b)
            cosine = np.divide(np.abs(c), size, out=np.zeros_like(c), where=size > 0)
            largest = max(largest, float(np.max(cosine)))
            turned = cosine > eps
            zeta = np.divide(b - a, 2 * c, out=np.zeros_like(c), where=turned)
            t = np.where(turned, np.where(zeta >= 0, 1.0, -1.0) / (np.abs(zeta) + np.sqrt(1 + zeta**2)), 0.0)
            cos = 1 / np.sqrt(1 + t**2)
            B[i], B[j] = cos * (first - t * second), cos * (t * first + second)
            order = np.concatenate([order[:1], np.roll(order[1:], 1)])
        if largest <= 4 * eps:
            break
    return np.sort(np.sqrt(np.sum(B**2, axis=1)))[::-1]


def variances(X: np.ndarray) -> np.ndarray:
    """Return the variances of all components of the rows of X, descending, in long double; see `singular_values`."""
    X = np.asarray(X, dtype=np.longdouble)
    n = len(X)
    s = singular_values(X - X.mean(axis=0))[: min(X.shape)]
    return s**2 / (n - 1)
