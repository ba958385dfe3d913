"""PCA of a share of the variance: as many components as scikit-learn, in the memory of the first guess."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sklearn
from sklearn.decomposition import PCA as SklearnPCA

from gpukpca import PCA, Batches, KernelPCA, Nystrom
from gpukpca.algorithms.pca.components import SolverTools
from gpukpca.algorithms.pca.fit import solution
from gpukpca.algorithms.pca.planning import METHODS, PCATask
from gpukpca.algorithms.pca.settings import PCASettings, RankRequest
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.random import Randomness
from gpukpca.covariance.dense import DenseCenteredMatrix
from gpukpca.eigen.request import count_of_share
from gpukpca.exceptions import ConvergenceWarning, MemoryBudgetError
from gpukpca.model_selection import n_components_for
from tests.conftest import Namespace
from tests.each import covering, each

ROWS = np.random.default_rng(0).standard_normal((90, 30))
DATA = {
    "fast": ROWS * np.exp(-np.arange(30) / 3.0),
    "slow": ROWS * np.arange(1.0, 31.0) ** -0.7,
    "flat": ROWS,
    "wide": (ROWS * np.arange(1.0, 31.0) ** -0.7).T,
    "offset": ROWS * np.exp(-np.arange(30) / 3.0) + 1e4,
    "rank 1": ROWS[:, :1] * np.arange(30.0),
    "equal pairs": np.kron(np.eye(6), np.array([[1.0, -1.0]]).T) * np.repeat([[4.0, 4.0, 2.0, 2.0, 1.0, 1.0]], 12, 0),
}
SOLVERS = ["auto", "covariance_eigh", "dual", "full", "randomized", "arpack"]


@cache
def peer(of: str, share: float) -> SklearnPCA:
    return SklearnPCA(share, svd_solver="full").fit(DATA[of])


@each(
    "of, share, solver",
    covering(DATA, [0.01, 0.5, 0.95, 0.999999], SOLVERS),
)
def test_as_many_components_as_scikit_learn(xp: Namespace, of: str, share: float, solver: str) -> None:
    X = DATA[of]
    theirs = peer(of, share)
    ours = PCA(share, svd_solver=solver, random_state=0).fit(xp.array(X))
    assert ours.n_components_ == theirs.n_components_
    ratios = xp.host(ours.explained_variance_ratio_)
    np.testing.assert_allclose(ratios, theirs.explained_variance_ratio_, atol=1e-10)
    assert np.sum(ratios) > share - 1e-12
    assert np.sum(ratios[:-1]) <= share + 1e-12
    np.testing.assert_allclose(ours.noise_variance_, theirs.noise_variance_, atol=1e-10 * theirs.explained_variance_[0])


EQUAL = np.vstack([np.eye(4), -np.eye(4)])
TIES = DATA | {"equal": EQUAL, "pairs": EQUAL * [4.0, 4.0, 1.0, 1.0], "low rank": ROWS[:, :4] @ ROWS[:4]}
del TIES["rank 1"]
WAYS: dict[str, Callable[[np.ndarray, float], Any]] = {
    **{name: partial(lambda X, p, name: PCA(p, svd_solver=name, random_state=0).fit(X), name=name) for name in SOLVERS},
    "CSR": lambda X, p: PCA(p).fit(scipy.sparse.csr_array(X)),
    "batches": lambda X, p: PCA(p).fit(Batches([X[:5], X[5:]])),
    "counted rows": lambda X, p: PCA(p).fit(X, sample_weight=np.ones(len(X))),
    "kernel, dense": lambda X, p: KernelPCA(p, eigen_solver="dense").fit(X),
    "kernel, iterative": lambda X, p: KernelPCA(p, eigen_solver="randomized", random_state=0).fit(X),
    "kernel, landmarks": lambda X, p: KernelPCA(p, eigen_solver=Nystrom(rank=60), random_state=0).fit(X),
}

SKLEARN = tuple(map(int, sklearn.__version__.split(".")[:2]))


@each("of, dtype", covering(TIES, ["float64", "float32"]))
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.GpuKPCAWarning")
def test_a_share_that_k_components_hold_takes_one_more(of: str, dtype: str) -> None:
    """By every solver, container and estimator, with shares from NumPy and from the fits, as scikit-learn."""
    X = TIES[of].astype(dtype)
    wide = X.astype(np.float64)
    squares = np.linalg.svd(wide - wide.mean(axis=0), compute_uv=False) ** 2
    ratios = squares / np.sum(squares)
    # Below it the next component is rounding.
    seen = int(np.sum(ratios > 100 * np.sqrt(len(ratios)) * np.finfo(dtype).eps))
    for k in np.unique(np.linspace(1, seen - 1, 5).astype(int)):
        shares = [float(np.sum(ratios[:k]))]
        for way, order in (("full", 1), ("covariance_eigh", 1), ("kernel, dense", -1)):
            published = np.asarray(WAYS[way](X, int(k)).explained_variance_ratio_)
            shares.append(float(np.cumsum(published[::order])[-1]))
        for i, share in enumerate(shares):
            for name, fit in list(WAYS.items())[i % 2 :: 2]:
                if name == "kernel, landmarks" and (min(X.shape) > 20 or dtype == "float32"):
                    continue  # which hold less of the variance than all rows do
                kept = len(fit(X, share).explained_variance_ratio_)
                assert kept == k + 1, f"{name}: {kept} components hold more than {share!r}, the sum of {k}"
            assert n_components_for(X, "variance", share) == k + 1
        theirs = SklearnPCA(svd_solver="full").fit(X).explained_variance_ratio_
        if np.max(np.abs(theirs - ratios)) <= np.finfo(dtype).eps:  # not of float32 with a large mean
            if dtype == "float32" and SKLEARN < (1, 8):
                continue  # they are added in float64
            own = float(np.cumsum(theirs)[k - 1])
            assert PCA(own).fit(X).n_components_ == SklearnPCA(own, svd_solver="full").fit(X).n_components_


@each("eps", [2.0**-52, 2.0**-23])
def test_a_share_near_1_counts_to_half_of_what_it_leaves(eps: float) -> None:
    values = np.array([0.5, 0.25, 0.125, 0.125])
    for share, k in ((0.5, 2), (0.5 + 6 * eps, 2), (0.75, 3), (0.2, 1), (1.0 - 100 * eps, 4), (1.0 - 16 * eps, 4)):
        assert count_of_share(values, 1.0, share, eps) == k, share
    assert count_of_share(values, 1.0, 1.0 - eps, eps) is None  # all of the variance, to rounding
    assert count_of_share(values[:2], 1.0, 0.75, eps) is None
    assert count_of_share(np.zeros(3), 0.0, 0.5, eps) == 1
    tail = np.append(1.0 - 1e-4, np.full(1000, 1e-7))  # the rounding of many float32 ratios is near 1 - share
    assert 100 < (count_of_share(tail, 1.0, 0.99993, eps) or 0) < 1000


def test_a_share_takes_no_more_memory_than_its_first_guess() -> None:
    """Without the matrix of all features."""
    d = 2001
    X = np.random.default_rng(0).standard_normal((d, d), dtype=np.float32)
    X *= np.exp(-np.arange(d, dtype=np.float32) / 3.0) + np.float32(1e-4)
    share, number = (PCA(count, n_jobs=1, random_state=0) for count in (0.95, 16))
    predicted = share.plan(X).predicted_bytes
    assert predicted == number.plan(X).predicted_bytes < 4 * d * d * 3
    tracemalloc.start()
    try:
        share.fit(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert share.plan_.method == "randomized"
    assert "left to covariance_eigh" in str(share.plan_)
    assert peak <= predicted + 2**20
    assert np.sum(share.explained_variance_ratio_) > 0.95 >= np.sum(share.explained_variance_ratio_[:-1])


def test_a_requested_iteration_grows_to_the_share_with_small_residuals():
    X = np.random.default_rng(0).standard_normal((900, 300)) * np.exp(-np.arange(300) / 20.0)
    for solver in ("randomized", "arpack"):
        fit = PCA(0.9, svd_solver=solver, random_state=0).fit(X)
        assert fit.solver_.startswith("randomized: block Krylov")
        assert fit.n_components_ == SklearnPCA(0.9, svd_solver="full").fit(X).n_components_ > 16
        assert np.max(fit.residual_norms_) <= 1e-8 * fit.explained_variance_[0]
    many = PCA(0.99, svd_solver="randomized", random_state=0).fit(X)
    assert many.n_components_ == SklearnPCA(0.99, svd_solver="full").fit(X).n_components_
    assert "pairs are needed" in many.plan_.solver_reason


@pytest.mark.parametrize("n", [400, 100])
def test_many_components_of_a_share_are_left_to_a_stored_matrix(n: int) -> None:
    X = np.random.default_rng(0).standard_normal((n, 150))
    task = PCATask(X, Resources.for_data(X), RankRequest.of(0.9, "auto", *X.shape), PCASettings())
    Z, tools = DenseCenteredMatrix(X, n >= 150), SolverTools(Randomness(0))
    beyond = METHODS["covariance_eigh" if n >= 150 else "dual"](task, "many")
    few = replace(METHODS["randomized"](task, "few"), beyond=beyond, few=20)
    found, chosen = solution(Z, few, task.rank, tools)
    plan = chosen.plan
    assert (plan.method, plan.predicted_bytes) == (beyond.plan.method, beyond.plan.predicted_bytes)
    assert "(more than 20 pairs" in str(plan)
    assert "randomized came first" in str(plan)
    theirs = SklearnPCA(0.9, svd_solver="full").fit(X)
    assert found.squares.shape == (theirs.n_components_,)
    np.testing.assert_allclose(found.squares, theirs.singular_values_**2, rtol=1e-10)


def test_a_share_that_memory_cannot_hold_is_an_error() -> None:
    rng = np.random.default_rng(0)
    few, many = rng.standard_normal((600, 8)) @ rng.standard_normal((8, 2000)), rng.standard_normal((600, 2000))
    limit = PCA(16, svd_solver="randomized").plan(few).predicted_bytes + 2**20
    model = PCA(0.9, memory_limit=limit, random_state=0).fit(few)
    assert model.plan_.method == "randomized"
    assert model.n_components_ <= 8
    with pytest.raises(MemoryBudgetError, match=r"n_components=0.9 needs many components"):
        PCA(0.9, memory_limit=limit, random_state=0).fit(many)
    with pytest.warns(ConvergenceWarning) as caught:
        PCA(0.9, memory_limit=limit, random_state=0, iterated_power=2).fit(many)
    assert any(warning.message.values.get("share") == 0.9 for warning in caught)


@pytest.mark.parametrize("shape", [(60, 400), (400, 60), (300, 40)])
def test_a_share_that_takes_more_than_the_limit_is_refused(shape: tuple[int, int]) -> None:
    X = np.random.default_rng(0).standard_normal(shape)
    solver = "full" if shape == (300, 40) else "auto"
    few, all_but_few = (PCA(share, svd_solver=solver, n_jobs=1).fit(X) for share in (0.02, 0.97))
    limit = (few.plan_.predicted_bytes + all_but_few.plan_.predicted_bytes) // 2
    limited = {"svd_solver": solver, "n_jobs": 1, "memory_limit": limit}
    assert PCA(0.02, **limited).fit(X).n_components_ == few.n_components_
    with pytest.raises(MemoryBudgetError, match=r"n_components=0.97 needs many components: more than \d+"):
        PCA(0.97, **limited).fit(X)
