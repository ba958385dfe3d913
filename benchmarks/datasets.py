"""The data of the benchmarks: real where available, else from seeded generators."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse


def load(data: str, n: int, d: int, dtype: str) -> Any:
    """Return the first n rows of a data set, shape (n, d); pixels in [0, 1], USPS in [-1, 1]."""
    if data in REAL:
        with np.load(path_of(data)) as archive:
            X = archive["x_train"][:n].reshape(-1, d).astype(dtype)  # Keras keeps MNIST as squares
        if data == "mnist":
            X /= 255
    elif data in BUNDLED:
        from sklearn import datasets

        loader, unit = BUNDLED[data]
        X = getattr(datasets, loader)().data[:n].astype(dtype) / unit
    else:
        X = GENERATORS[data](n, d).astype(dtype)
    if X.shape != (n, d):
        raise ValueError(f"{data} has shape {X.shape}; the case says {(n, d)}.")
    return X


def why_absent(data: str) -> str | None:
    """Return a sentence where a data set is not at hand, else None."""
    if data not in REAL or path_of(data).exists():
        return None
    return f"{ABSENT}{data}: set GPUKPCA_DATA to the folder that holds {REAL[data]}"


def path_of(data: str) -> Path:
    """Return the expected path of a real data set."""
    folder_name = os.environ.get("GPUKPCA_DATA")
    folder = Path(folder_name) if folder_name else Path(__file__).resolve().parents[2] / "shared" / "data"
    return folder / REAL[data]


def gaussian(n: int, d: int) -> np.ndarray:
    """Return independent normal entries with decaying scales."""
    return np.random.default_rng(0).standard_normal((n, d)) * np.linspace(2.0, 0.2, d)


def clusters(n: int, d: int) -> np.ndarray:
    """Return twelve round clouds: eleven eigenvalues far above the others."""
    rng = np.random.default_rng(0)
    centers = 3.0 * rng.standard_normal((12, d))
    return centers[rng.integers(12, size=n)] + rng.standard_normal((n, d))


def decaying(n: int, d: int) -> np.ndarray:
    """Return independent normal entries in float32, whose scales fall like k^-0.7."""
    scales = np.arange(1.0, d + 1.0) ** -0.7
    return np.random.default_rng(0).standard_normal((n, d), dtype=np.float32) * scales.astype(np.float32)


def steep(n: int, d: int) -> np.ndarray:
    """Return normal rows in float32, reflected: twelve components have 95 % of the variance."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32) * (np.exp(-np.arange(d) / 7.8) + 1e-4).astype(np.float32)
    mirror = rng.standard_normal(d, dtype=np.float32)
    mirror /= np.linalg.norm(mirror)
    return X - 2.0 * (X @ mirror)[:, None] * mirror


def offset(n: int, d: int) -> np.ndarray:
    """Return `decaying` far from the origin: in float32 its squares lose all digits of the variances."""
    return decaying(n, d) + np.float32(1e4)


def flat(n: int, d: int) -> np.ndarray:
    """Return sixteen factors and noise in float32: from the seventeenth component on all variances are near."""
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((16, d), dtype=np.float32) * np.linspace(3.0, 1.0, 16, dtype=np.float32)[:, None]
    factors = rng.standard_normal((n, 16), dtype=np.float32)
    return factors @ loadings + rng.standard_normal((n, d), dtype=np.float32)


def words(n: int, d: int) -> Any:
    """Return a sparse matrix of logarithms of counts: about 120 words a row by Zipf's law, half of them of a topic."""
    rng = np.random.default_rng(0)
    frequency = np.cumsum(1.0 / np.arange(1.0, d + 1.0))
    rows = np.repeat(np.arange(n), rng.poisson(120, n))
    drawn = np.searchsorted(frequency, frequency[-1] * rng.random(len(rows)))
    shifts = rng.integers(d, size=12)[rng.integers(12, size=n)]
    columns = (drawn + np.where(rng.random(len(rows)) < 0.5, shifts[rows], 0)) % d
    X = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, d))
    X.data = 1.0 + np.log(X.data)
    return X


def scattered(n: int, d: int) -> Any:
    """Return a sparse matrix of uniform numbers in 1 % of its places: the variances are near each other."""
    return sparse.random_array((n, d), density=0.01, format="csr", rng=np.random.default_rng(0))


ABSENT = "no data of "  # the beginning of the reason where a case has none
REAL = {"mnist": "mnist/mnist.npz", "usps": "usps/usps.npz"}
BUNDLED = {"digits": ("load_digits", 16), "iris": ("load_iris", 1)}
GENERATORS = {f.__name__: f for f in (gaussian, clusters, decaying, steep, offset, flat, words, scattered)}
