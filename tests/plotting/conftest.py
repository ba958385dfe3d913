"""Models whose pictures are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris

from gpukpca import PCA, KernelPCA
from gpukpca.exceptions import GpuKPCAWarning
from gpukpca.model_selection import KernelPCACV


@pytest.fixture(scope="module")
def iris() -> tuple[Any, np.ndarray, np.ndarray]:
    data = load_iris()
    return KernelPCA(3, kernel="rbf", gamma="median").fit(data.data), data.data, data.target_names[data.target]


@pytest.fixture(scope="module")
def digits() -> tuple[Any, np.ndarray, np.ndarray]:
    data = load_digits()
    return PCA(20).fit(data.data), data.data, data.target


@pytest.fixture(scope="module")
def search() -> KernelPCACV:
    X = np.random.default_rng(0).standard_normal((40, 3))
    alphas = {"alpha": [0.1, 1.0]}
    with pytest.warns(GpuKPCAWarning, match="the edge of the grid"):
        return KernelPCACV(gammas=[0.01, 0.1, 1.0], n_components=[1, 2, 4], param_grid=alphas, cv=2).fit(X)
