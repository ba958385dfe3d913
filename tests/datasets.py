"""Data sets shared by the tests of all rooms. Everything is seeded, and every call returns fresh arrays."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import scipy.sparse


def data(n: int = 30, d: int = 4, seed: int = 0) -> np.ndarray:
    """Return normal numbers."""
    return np.random.default_rng(seed).standard_normal((n, d))


def with_value(value: float, X: np.ndarray | None = None, at: tuple[int, int] = (3, 2)) -> np.ndarray:
    """Return data with one entry replaced."""
    X = data() if X is None else X
    X[at] = value
    return X


def circle(n: int = 32) -> np.ndarray:
    angles = 2.0 * np.pi * np.arange(n) / n
    return np.column_stack([np.cos(angles), np.sin(angles)])


def parallel_clusters(
    n: int = 400, k: int = 2, separation: float = 3.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return long clusters side by side, slanted, and their numbers: the first component of PCA runs along them."""
    rng, labels = np.random.default_rng(seed), np.arange(n) % k
    along = 2.6 * rng.standard_normal(n)
    across = separation * (labels - 0.5 * (k - 1)) + 0.35 * rng.standard_normal(n)
    cosine, sine = np.cos(np.pi / 6), np.sin(np.pi / 6)
    return np.column_stack([cosine * along - sine * across, sine * along + cosine * across]), labels


def spiral(n: int, seed: int = 0) -> np.ndarray:
    """Return points along a noisy spiral of 1.25 turns in the plane."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0.4, 1.65, n)
    curve = t[:, None] * np.column_stack([np.cos(2.0 * np.pi * t), np.sin(2.0 * np.pi * t)])
    return curve + 0.03 * rng.standard_normal((n, 2))


def hypercube(d: int = 8) -> np.ndarray:
    return np.array(list(itertools.product([-1.0, 1.0], repeat=d)))


def linear_gram(n: int = 30) -> np.ndarray:
    X = data(n)
    return X @ X.T


def gaussian(X: np.ndarray, gamma: float) -> np.ndarray:
    """Return the Gaussian kernel matrix from differences."""
    differences = X[:, None, :] - X[None, :, :]
    return np.exp(-gamma * np.sum(differences * differences, axis=2))


def graded(n: int = 61, d: int = 9, offset: float = 7.0, dtype: str = "float64", seed: int = 20240229) -> np.ndarray:
    """Return normal rows whose features have standard deviations from 3 down to 0.1, off the origin."""
    return (data(n, d, seed) * np.linspace(3.0, 0.1, d) + offset).astype(dtype)


def sparse_rows(n: int, d: int, density: float = 0.4, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Return a host array most of whose entries are zero."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, d)) * (rng.random((n, d)) < density)).astype(dtype)


def wide_sparse(n: int = 40, d: int = 4_000_000) -> Any:
    """Return CSR rows that would be 1.3 GB as a dense array."""
    rng = np.random.default_rng(1)
    entries = (rng.standard_normal(20 * n), (np.repeat(np.arange(n), 20), rng.integers(0, d, 20 * n)))
    return scipy.sparse.csr_array(entries, shape=(n, d))


def same_bits(actual: Any, expected: Any, xp: Any) -> bool:
    """Compare arrays by their bits, anything else by equality."""
    if hasattr(expected, "shape"):
        return xp.owns(actual) == xp.owns(expected) and xp.host(actual).tobytes() == xp.host(expected).tobytes()
    return str(actual) == str(expected)
