"""Fits that take many passes: their data and settings."""

from __future__ import annotations

from typing import Any

import numpy as np


def rows(n: int = 300, d: int = 5, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


SETTINGS: dict[str, Any] = {"n_components": 3, "kernel": "rbf", "gamma": 0.2, "eigen_solver": "randomized"}
SETTINGS |= {"random_state": 0, "tol": 1e-11}
