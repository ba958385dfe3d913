"""What a fit copies between host and device: numbers of clusters, components and landmarks, never those of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpukpca import PCA, Batches, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA
from gpukpca.backend.random import weighted_draws
from gpukpca.eigen import pivoted_cholesky
from gpukpca.gram import TiledGram
from gpukpca.kernels import RBF
from tests import cupy_device
from tests.datasets import data

ROWS = 10_000
RBF_OF = {"kernel": "rbf", "gamma": 0.1, "random_state": 0}
LOCAL = {"n_init": 2, "max_iter": 12, "tol": 0.0, "random_state": 0}
# Model, most copies, most bytes of all together.
FITS = {
    "local": (lambda: LocalPCA(3, 2, **LOCAL), 900, 50_000),
    "local, hard": (lambda: LocalPCA(3, 2, method="hard", **LOCAL), 400, 25_000),
    "rpcholesky": (lambda: KernelPCA(2, eigen_solver=Nystrom(30), **RBF_OF), 200, 50_000),
    "uniform": (lambda: KernelPCA(2, eigen_solver=Nystrom(30, landmarks="uniform"), **RBF_OF), 100, 50_000),
    "full": (lambda: PCA(2, svd_solver="full"), 30, 5_000),
    "full, in batches": (lambda: PCA(2, svd_solver="full"), 60, 10_000),
    "EM": (lambda: ProbabilisticPCA(2, solver="em", random_state=0, max_iter=5), 300, 10_000),
}


@pytest.mark.filterwarnings("ignore:the fit stopped")
@pytest.mark.parametrize("name", FITS)
def test_a_fit_copies_nothing_of_the_length_of_the_rows(stand_in: Any, name: str) -> None:
    make, most, most_bytes = FITS[name]
    A = data(ROWS, 4)
    if name == "EM":
        A[::7, 1] = np.nan
    X = stand_in.asarray(A)
    make().fit(X[:200])  # constants of libraries
    rows = Batches([X[: ROWS // 2], X[ROWS // 2 :]]) if "batches" in name else X
    with cupy_device.copied() as sizes:
        make().fit(rows)
    assert max(sizes) < ROWS  # less than a byte a row
    assert len(sizes) <= most
    assert sum(sizes) <= most_bytes


def test_draws_and_landmarks_are_those_of_the_host(cuda: Any) -> None:
    X, weights = data(300, 3), np.random.default_rng(0).random(300) ** 8
    weights[250:] = 0.0
    for seed in range(5):
        drawn = [weighted_draws(np.random.default_rng(seed), w, 200) for w in (weights, cuda.asarray(weights))]
        np.testing.assert_array_equal(*drawn)
        assert drawn[0].max() < 250
        pivots = [
            pivoted_cholesky(TiledGram(RBF(0.2), rows), 40, seed, sample_weight=weights).pivots
            for rows in (X, cuda.asarray(X))
        ]
        np.testing.assert_array_equal(*pivots)
