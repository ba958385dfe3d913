"""The data of the benchmarks: real where they are at hand, seeded generators else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest


def mnist(n: int, dtype: str = "float32") -> np.ndarray:
    """The first n training digits, pixels in [0, 1], shape (n, 784); skips where the file is absent."""
    given = os.environ.get("GPUKPCA_DATA")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    path = folder / "mnist" / "mnist.npz"
    if not path.exists():
        pytest.skip("MNIST not found: set GPUKPCA_DATA to the folder that holds mnist/mnist.npz")
    with np.load(path) as archive:
        return (archive["x_train"][:n] / 255.0).astype(dtype)


def gaussian(n: int, d: int, dtype: str = "float64") -> np.ndarray:
    """Independent normal entries with decaying scales, shape (n, d)."""
    rng = np.random.default_rng(0)
    return (rng.standard_normal((n, d)) * np.linspace(2.0, 0.2, d)).astype(dtype)
