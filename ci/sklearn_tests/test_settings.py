"""scikit-learn's checks of estimators on many settings of all estimators, with SciPy's array-API switch on.

The suite runs them on some (`tests/decomposition/test_estimator_checks.py`).
"""

from __future__ import annotations

import os
from itertools import product
from typing import Any

import pytest

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA
from gpukpca.decomposition import DistanceConstraintPreimage, FixedPointPreimage, RidgePreimage
from gpukpca.kernels import RBF, Linear, Polynomial
from gpukpca.model_selection import KernelPCACV
from tests.decomposition.estimator_checks import ESTIMATORS, FEWEST, is_apart, run_checks


def each(kind: Any, **values: list[Any]) -> list[Any]:
    """Return an estimator for every combination of values."""
    return [kind(**dict(zip(values, some, strict=True))) for some in product(*values.values())]


pytestmark = pytest.mark.filterwarnings("error")
FLAGS = [False, True]
SETTINGS = [
    *each(
        PCA,
        svd_solver=["auto", "covariance_eigh", "dual", "full", "tsqr", "randomized", "arpack"],
        center=FLAGS,
        scale=FLAGS,
        whiten=FLAGS,
        n_components=[1],
    ),
    *each(PCA, n_components=[None, 0.9], svd_solver=["auto", "dual", "randomized", "arpack"], center=FLAGS),
    *each(PCA, svd_solver=["randomized"], iterated_power=[2, 5], n_oversamples=[3], n_components=[1]),
    *each(IncrementalPCA, n_components=[None, 1], center=FLAGS, whiten=FLAGS, batch_size=[None, 7]),
    *each(
        KernelPCA,
        kernel=["linear", "poly", "rbf", "sigmoid", "cosine", "laplacian", "matern", "rational_quadratic"],
        eigen_solver=["auto", "dense", "arpack", "randomized"],
        n_components=[1],
    ),
    *each(
        KernelPCA,
        kernel=["linear", "poly", "rbf", "cosine", "laplacian"],
        eigen_solver=["nystrom", Nystrom(rank=1), Nystrom(landmarks="uniform")],
        center=FLAGS,
        n_components=[1],
    ),
    *each(KernelPCA, kernel=["linear", "rbf"], center=[False], fit_inverse_transform=FLAGS, n_components=[1]),
    *each(KernelPCA, kernel=["linear", "poly", "rbf"], remove_zero_eig=FLAGS, gram=["auto", "dense"]),
    *each(KernelPCA, kernel=[RBF(0.1), Linear() + RBF(), Polynomial(2)], n_components=[1]),
    *each(KernelPCA, kernel=["rbf"], gamma=["scale", "median", 0.1], n_components=[0.9]),
    *each(KernelPCA, kernel=["linear", "poly", "rbf", "cosine", "laplacian"], preimage=["ridge"], n_components=[1]),
    *each(
        KernelPCA,
        kernel=["rbf"],
        preimage=[
            "distance_constraint",
            RidgePreimage(alpha=0.1),
            FixedPointPreimage(max_iter=20),
            DistanceConstraintPreimage(n_neighbors=3),
        ],
        n_components=[1],
    ),
    *each(KernelPCA, kernel=["rbf"], eigen_solver=["nystrom"], fit_inverse_transform=[True], n_components=[1]),
    *each(ProbabilisticPCA, solver=["auto", "closed_form", "em"], n_components=[None, 1], ddof=[0, 1], tol=[1e-4]),
    *each(BayesianPCA, solver=["auto", "spectrum", "em"], n_components=[None, 1], ddof=[0, 1], tol=[1e-4]),
    *each(LocalPCA, method=["mixture", "hard"], n_clusters=[1, 2], n_init=[1]),
    LocalPCA([1, 2], n_init=1, max_iter=20),
    *each(KernelPCACV, cv=[2], gammas=[0.1, [0.1, 1.0]], n_components=[1, [1, 2]], preimage=["ridge"]),
]


@pytest.mark.parametrize("estimator", [*ESTIMATORS, *SETTINGS], ids=repr)
def test_scikit_learn_estimator_checks(estimator):
    passed = run_checks(estimator)
    assert len(passed) >= FEWEST, passed
    name = "check_array_api_input(array_namespace=array_api_strict"
    if os.environ.get("SCIPY_ARRAY_API") == "1" and not is_apart(estimator, name):
        assert any(other.startswith(name) for other in passed), passed
