"""Small eigenproblems of many columns on a card: who solves them, and what happens where cuSOLVER fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpukpca import KernelPCA
from gpukpca.backend.linalg import leading_ritz_pairs, ritz_pairs, smallest_eigenvalue
from gpukpca.eigen import BlockKrylov
from tests import cupy_device
from tests.datasets import data
from tests.tolerances import eps

N, KEPT = 90, 12


def symmetric(n: int = N) -> np.ndarray:
    T = np.random.default_rng(0).standard_normal((n, n))
    return T + T.T


def solved(made: cupy_device.Launches) -> int:
    """Return how many eigenproblems cuSOLVER took."""
    return sum("syevd" in name.lower() and "buffer" not in name.lower() for name in made.names)


@pytest.mark.parametrize("size", [1.0, 2.0**900, 2.0**-900])
def test_wide_problems_go_to_the_card(stand_in: Any, sizes: Any, size: float) -> None:
    T, like = symmetric() * size, stand_in.empty(0)
    wanted, vectors = np.linalg.eigh(T)
    for most, count in ((N - 1, 1), (N, 0)):
        sizes(HOST_MATRIX=most)
        for pairs in (ritz_pairs, leading_ritz_pairs):
            with cupy_device.launches() as made:
                values, found, *smallest = pairs(T, KEPT, like)
            assert solved(made) == count
            assert found.shape == (N, KEPT)
            np.testing.assert_allclose(values, wanted[::-1][:KEPT], rtol=0, atol=100 * eps("float64") * wanted[-1])
            np.testing.assert_allclose(np.abs(np.sum(found * vectors[:, ::-1][:, :KEPT], axis=0)), 1, atol=1e-10)
            np.testing.assert_allclose(smallest, [wanted[0]] * len(smallest), rtol=1e-12)
        with cupy_device.launches() as made:
            assert smallest_eigenvalue(T, like) == pytest.approx(wanted[0], rel=1e-12)
        assert solved(made) == count
    with cupy_device.launches() as made:
        ritz_pairs(T, KEPT, np.empty(0))
    assert made.names == []


FAULTS = {
    **{name: lambda name=name: cupy_device.eigh_answers(name) for name in cupy_device.GARBAGE},
    "info": lambda: cupy_device.eigh_reports(7),
    "too large": lambda: cupy_device.eigh_refuses_above(10),
    "no memory": lambda: cupy_device.fail_allocation(1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_lapack_takes_over_what_cusolver_fails_at(stand_in: Any, sizes: Any, fault: str) -> None:
    sizes(HOST_MATRIX=10)
    T = symmetric()
    with FAULTS[fault]():
        values, vectors, smallest = ritz_pairs(T, KEPT, stand_in.empty(0))
    wanted = ritz_pairs(T, KEPT, np.empty(0))
    np.testing.assert_array_equal(values, wanted[0])
    np.testing.assert_array_equal(vectors, wanted[1])
    assert smallest == wanted[2]


def test_an_iteration_with_many_columns_uses_the_card(stand_in: Any, sizes: Any) -> None:
    X, solver = data(400, 5), BlockKrylov(tol=1e-10)
    model = KernelPCA(30, kernel="rbf", gamma=0.3, eigen_solver=solver, random_state=0)
    with cupy_device.launches() as made:
        wanted = model.fit(stand_in.asarray(X)).eigenvalues_.get()
    assert solved(made) == 0
    sizes(HOST_MATRIX=100)
    with cupy_device.launches() as made:
        found = model.fit(stand_in.asarray(X)).eigenvalues_.get()
    assert solved(made) > 0
    assert model.fallbacks_ == ()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * wanted[0])


def test_many_components_are_dense_on_a_card_earlier_than_on_a_cpu(stand_in: Any) -> None:
    X = stand_in.asarray(data(1200, 3))
    plans = [KernelPCA(p, kernel="rbf").plan(X) for p in (30, 31)]
    assert [plan.solver.name for plan in plans] == ["block Krylov", "dense"]
