"""The estimated time of a fit: the sum of its parts, monotone in the size of the job, and printed with the plan."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpukpca import PCA, KernelPCA, Nystrom, load
from gpukpca.algorithms.kernel_pca.parts import FEATURES_SPEED, PACKED_FEATURES, TILE_SPEED
from gpukpca.algorithms.plan import seconds_text
from gpukpca.backend.work import CARD, CORE, SHARED_BY, Work
from gpukpca.eigen import BlockKrylov, Dense, Solver
from tests.conftest import Namespace
from tests.each import each

HOST = np.empty(0)
KINDS = [kind.name for kind in fields(Work)]


def rows(n: int, d: int, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, d)).astype(dtype)


def sparse(n: int, d: int, dtype: str = "float64") -> Any:
    return scipy.sparse.random_array((n, d), density=0.3, format="csr", rng=0, dtype=np.dtype(dtype))


# -- the sum of the parts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("item", [8, 4])
def test_every_kind_of_work_takes_its_own_time(kind: str, item: int, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(**{kind: 6.0})
    for workers in (1, 2, 64):
        shared = min(workers, SHARED_BY.get(kind, workers))
        assert work.seconds(HOST, item, workers) == pytest.approx(6.0 / getattr(CORE[item], kind) / shared)
    monkeypatch.setattr("gpukpca.backend.work.is_on_gpu", lambda like: True)
    assert work.seconds(HOST, item, 64) == pytest.approx(6.0 / getattr(CARD[item], kind))


def test_the_time_is_the_sum_of_the_parts() -> None:
    parts = [Work(**{kind: 10.0 ** (6 + place)}) for place, kind in enumerate(KINDS)]
    together = sum(parts, Work())
    for item in CORE:
        assert together.seconds(HOST, item, 3) == pytest.approx(sum(part.seconds(HOST, item, 3) for part in parts))
        assert (together * 2.5).seconds(HOST, item, 3) == pytest.approx(2.5 * together.seconds(HOST, item, 3))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_plan_adds_up_what_its_fit_does(dtype: str) -> None:
    """Of a full cache: K once, and every pass two products of each tile."""
    X, n, d, p, passes = rows(20_000, 50, dtype), 20_000, 50, 3, 5
    model = KernelPCA(p, kernel="rbf", gamma=0.1, memory_limit="4GB", n_jobs=1, eigen_solver=BlockKrylov(passes=passes))
    plan = model.plan(X)
    entries = plan.storage.bytes_held(1)
    columns, features = plan.solver.width(n, p, False) / TILE_SPEED, (d + PACKED_FEATURES) / FEATURES_SPEED
    most_of_it = Work(products=2 * features * entries, functions=entries, blocks=2 * n * n * columns * passes)
    most_of_it += Work(calls=passes * plan.storage.tiles)
    floor = most_of_it.seconds(X, X.itemsize, 1)
    assert floor <= plan.estimated_seconds <= 1.5 * floor


# -- monotone ----------------------------------------------------------------------------------------------------------

WAYS: dict[str, dict[str, Any]] = {
    "tiles": {"eigen_solver": "randomized"},
    "few tiles cached": {"eigen_solver": "randomized", "memory_limit": "12MB"},
    "no start": {"eigen_solver": BlockKrylov(passes=6)},
    "square": {"eigen_solver": "randomized", "gram": "dense"},
    "dense": {"eigen_solver": "dense"},
    "nystrom": {"eigen_solver": Nystrom(rank=60)},
    "laplacian": {"kernel": "laplacian", "eigen_solver": "randomized"},
    "linear": {"kernel": "linear"},
    "poly": {"kernel": "poly", "gram": "tiled"},
    "pre-image": {"fit_inverse_transform": True, "eigen_solver": "randomized"},
    "all components": {"n_components": None, "eigen_solver": "dense"},
}


def seconds(X: Any, **parameters: Any) -> float:
    usual = {"n_components": 4, "kernel": "rbf", "gamma": 0.1, "memory_limit": "8GB", "n_jobs": 1}
    estimate = KernelPCA(**usual | parameters).plan(X).estimated_seconds
    assert estimate is not None
    assert estimate > 0
    return estimate


OF_BOTH = [way for way in WAYS if way not in ("linear", "few tiles cached", "pre-image")]


@each("way, make", [(way, rows) for way in WAYS] + [(way, sparse) for way in OF_BOTH])
def test_more_rows_or_features_never_take_less(way: str, make: Any) -> None:
    options = dict(WAYS[way])
    by_rows = [seconds(make(n, 9), **options) for n in (800, 1600, 3200)]
    assert by_rows[0] < by_rows[1] < by_rows[2]
    by_features = [seconds(make(1600, d), **options) for d in (9, 40, 160)]
    assert by_features[0] < by_features[1] < by_features[2]


@pytest.mark.parametrize("way", WAYS)
def test_fewer_workers_never_take_less(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpukpca.backend.parallel.usable_cpus", lambda: 16)
    options = {name: value for name, value in WAYS[way].items() if name != "memory_limit"}
    by_workers = [seconds(rows(4000, 9), n_jobs=workers, **options) for workers in (1, 2, 4, 16)]
    assert by_workers == sorted(by_workers, reverse=True)
    assert by_workers[0] > by_workers[-1]


def test_more_passes_and_fewer_cached_tiles_take_longer() -> None:
    X = rows(3000, 9)
    by_passes = [seconds(X, eigen_solver=BlockKrylov(passes=passes)) for passes in (2, 4, 8)]
    assert by_passes[0] < by_passes[1] < by_passes[2]
    by_tolerance = [seconds(X, eigen_solver="randomized", tol=tol) for tol in (1e-3, 1e-6, 1e-12)]
    assert by_tolerance[0] < by_tolerance[1] < by_tolerance[2]
    by_limit = [seconds(X, eigen_solver=BlockKrylov(passes=6), memory_limit=limit) for limit in ("12MB", "24MB", "1GB")]
    assert by_limit[0] > by_limit[1] > by_limit[2]


SOLVERS = ["covariance_eigh", "dual", "randomized"]


@pytest.mark.parametrize(
    ("solver", "make"), [("full", rows)] + [(solver, make) for solver in SOLVERS for make in (rows, sparse)]
)
def test_more_of_anything_takes_pca_longer(solver: str, make: Any) -> None:
    def estimate(X: Any, **parameters: Any) -> float:
        plan = PCA(**{"n_components": 5, "svd_solver": solver, "memory_limit": "8GB", "n_jobs": 1} | parameters).plan(X)
        assert plan.estimated_seconds is not None
        return plan.estimated_seconds

    assert estimate(make(900, 80)) < estimate(make(1800, 80)) < estimate(make(1800, 160))
    if solver == "randomized":
        by_power = [estimate(make(900, 80), iterated_power=power) for power in (1, 3, 9)]
        assert by_power[0] < by_power[1] < by_power[2]


# -- plans -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "less than 1 s"), (12.3, "about 12 s"), (240.0, "about 4 min"), (9e4, "about 25.0 h")]
)
def test_the_time_is_printed_in_words(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
    plan = replace(PCA(2).plan(rows(20, 3)), estimated_seconds=seconds)
    assert f"time      {text}, estimated" in str(plan).splitlines()


@pytest.mark.parametrize("model", [KernelPCA(3, kernel="rbf"), PCA(3)], ids=["KernelPCA", "PCA"])
def test_plans_print_the_time_of_arrays_of_every_library(xp: Namespace, model: Any) -> None:
    plan = model.plan(xp.array(rows(600, 8, "float32")))
    assert plan.estimated_seconds > 0
    assert "time      less than 1 s, estimated" in str(plan).splitlines()


def test_what_nobody_knows_the_time_of_has_no_estimate() -> None:
    class Own(Solver):
        def solve(self, op: Any, p: int, rng: Any, report: Any = None) -> Any:
            return Dense().solve(op, p, rng)

    X = rows(60, 3)
    for model in (KernelPCA(2, kernel=lambda x, y: float(x @ y)), KernelPCA(2, kernel="rbf", eigen_solver=Own())):
        plan = model.plan(X)
        assert plan.estimated_seconds is None
        assert "estimated" not in str(plan)


@pytest.mark.parametrize("model", [KernelPCA(3, kernel="rbf"), PCA(3)], ids=["KernelPCA", "PCA"])
def test_a_saved_plan_keeps_its_time(model: Any, tmp_path: Path) -> None:
    model.fit(rows(200, 5)).save(tmp_path / "model.npz")
    assert load(tmp_path / "model.npz").plan_.estimated_seconds == model.plan_.estimated_seconds
