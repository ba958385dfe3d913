"""What a plan predicts is what a fit allocates, within a tenth; and a plan can be had before the fit."""

from __future__ import annotations

import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest

from gpukpca import KernelPCA, Nystrom
from gpukpca.exceptions import MemoryBudgetError

CASES: dict[str, tuple[int, int, str, dict[str, Any]]] = {
    "all cached, float32": (3000, 20, "float32", {}),
    "all cached, float64": (1000, 20, "float64", {}),
    "all cached, wide data": (1000, 300, "float32", {}),
    "some cached": (4500, 20, "float64", {"memory_limit": "60MB"}),
    "few cached": (5000, 20, "float32", {"memory_limit": "28MB"}),
    "fifty components": (3000, 20, "float32", {"n_components": 50}),
    "laplacian": (2000, 30, "float32", {"kernel": "laplacian"}),
    "cosine": (2000, 30, "float64", {"kernel": "cosine"}),
    "polynomial features": (4000, 12, "float64", {"kernel": "poly"}),
    "linear": (5000, 50, "float32", {"kernel": "linear"}),
    "distances in float64": (2000, 30, "float32", {"gamma": 0.6}),
    "gamma from the data": (2000, 300, "float32", {"gamma": "scale"}),
    "no copy": (2000, 300, "float32", {"copy_X": False}),
    "dense": (1000, 20, "float64", {"eigen_solver": "dense"}),
    "pre-image": (2000, 20, "float32", {"fit_inverse_transform": True}),
    "nystrom": (5000, 20, "float32", {"eigen_solver": Nystrom(400)}),
    "nystrom, wide data": (4000, 300, "float64", {"eigen_solver": Nystrom(300)}),
}


@pytest.mark.parametrize("case", CASES)
def test_prediction_and_peak_agree_within_a_tenth(case: str) -> None:
    n, d, dtype, parameters = CASES[case]
    X = np.random.default_rng(0).standard_normal((n, d)).astype(dtype)
    settings = {"n_components": 10, "kernel": "rbf", "n_jobs": 2, "random_state": 0, **parameters}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        KernelPCA(**settings | {"n_components": 2, "eigen_solver": "auto", "memory_limit": None}).fit(X[:50])  # imports
        model = KernelPCA(**settings)
        tracemalloc.start()
        try:
            model.fit(X)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak / 1.1 <= model.plan_.predicted_bytes <= 1.1 * peak


@pytest.mark.parametrize(
    "parameters",
    [{}, {"memory_limit": "20MB"}, {"eigen_solver": Nystrom(50)}, {"kernel": "linear"}, {"eigen_solver": "dense"}],
    ids=repr,
)
def test_the_plan_before_the_fit_is_the_plan_after_it(parameters: dict[str, Any]) -> None:
    X = np.random.default_rng(0).standard_normal((1500, 8))
    model = KernelPCA(**{"n_components": 3, "kernel": "rbf", "memory_limit": "2GB", "random_state": 0, **parameters})
    before = dict(vars(model))
    plan = model.plan(X)
    assert vars(model) == before
    assert plan == model.fit(X).plan_


def test_what_cannot_fit_is_an_error_before_anything_is_allocated() -> None:
    X = np.random.default_rng(0).standard_normal((4000, 50))
    model = KernelPCA(10, kernel="rbf", memory_limit="1MB", copy_X=False)
    tracemalloc.start()
    try:
        with pytest.raises(MemoryBudgetError, match=r"needs .* MiB .* 976.6 KiB are allowed .*nystrom"):
            model.fit(X)
        assert tracemalloc.get_traced_memory()[1] < 2 * X.nbytes
    finally:
        tracemalloc.stop()


def test_the_limit_of_a_container_is_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpukpca.backend.device._control_group_available", lambda: [30 * 10**6])
    plan = KernelPCA(10, kernel="rbf").plan(np.random.default_rng(0).standard_normal((4000, 20)))
    assert plan.available_bytes == int(0.85 * 30 * 10**6)
    assert plan.predicted_bytes <= plan.available_bytes
    assert "made anew in every pass" in " ".join(plan.notes)


def test_a_wide_block_and_a_start_where_passes_are_dear_and_not_where_they_are_not() -> None:
    X = np.random.default_rng(0).standard_normal((5000, 20)).astype(np.float32)
    dear = KernelPCA(10, kernel="rbf", memory_limit="28MB", random_state=0)
    cheap = KernelPCA(10, kernel="rbf", random_state=0)
    assert dear.plan(X).solver.block_size == 40
    assert dear.plan(X).start_landmarks == 1000
    assert cheap.plan(X).start_landmarks == 0
    assert dear.fit(X).n_passes_ < cheap.fit(X).n_passes_
    np.testing.assert_allclose(dear.eigenvalues_, cheap.eigenvalues_, rtol=2e-5)
    assert "components of 1000 random rows" in str(dear.plan_)
