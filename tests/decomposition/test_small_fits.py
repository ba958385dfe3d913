"""The fixed cost of small data: threads that start, and functions of Python that are called."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from gpukpca import PCA, KernelPCA, Nystrom
from gpukpca._rules import Rule
from gpukpca.algorithms import KernelPCASettings, PCASettings
from gpukpca.decomposition._session import pca_settings, settings_of
from gpukpca.kernels import Linear


def rows(n: int, d: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, d))


def pca(n: int, d: int) -> Callable[[], Any]:
    X = rows(n, d)
    return lambda: PCA(2).fit(X)


def kernel_pca(n: int, d: int) -> Callable[[], Any]:
    X = rows(n, d)
    return lambda: KernelPCA(2, kernel="rbf").fit(X)


def one_row(model: Any) -> Callable[[], Any]:
    X = rows(60, 5)
    model.fit(X)
    return lambda: model.transform(X[:1])


# About a quarter more than were counted. Another version of scikit-learn or NumPy may call more functions.
CALLS = {
    "PCA of 150 x 4": (pca(150, 4), 730),
    "PCA of 1797 x 64": (pca(1797, 64), 990),
    "KernelPCA of 60 x 5": (kernel_pca(60, 5), 1900),
    "PCA of a row": (one_row(PCA(2)), 225),
    "KernelPCA of a row": (one_row(KernelPCA(2, kernel="rbf")), 440),
}


@pytest.mark.parametrize("name", CALLS)
def test_small_data_start_no_thread_and_take_few_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    work, most = CALLS[name]
    work()
    started: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", started.append)
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    with threadpool_limits(2, "blas"):
        sys.setprofile(count)
        try:
            work()
        finally:
            sys.setprofile(before)
    assert not started
    assert 0 < calls <= most


@pytest.mark.parametrize("name", ["PCA of 150 x 4", "PCA of 1797 x 64"])
def test_a_solution_without_random_numbers_makes_no_generator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    work, _ = CALLS[name]
    made: list[Any] = []
    monkeypatch.setattr(np.random, "default_rng", made.append)
    work()
    assert not made


def test_a_fit_checks_every_parameter_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    check = Rule.check

    def record(rule: Rule, owner: str, name: str, value: Any) -> None:
        names.append(name)
        check(rule, owner, name, value)

    monkeypatch.setattr(Rule, "check", record)
    PCA(2, svd_solver="full", tol=1e-3, scale=True, iterated_power=3).fit(rows(60, 5))
    assert sorted(names) == ["iterated_power", "n_components", "scale", "svd_solver", "tol"]


def test_settings_of_an_estimator_are_those_that_a_user_makes() -> None:
    model = PCA(2, svd_solver="arpack", tol=1e-3, iterated_power=3, center=False)
    assert pca_settings(model) == PCASettings(solver="arpack", tol=1e-3, passes=4, center=False)
    kernel_model = KernelPCA(3, tol=1e-3, max_iter=7, gram="tiled", eigen_solver=Nystrom(rank=9))
    given = {"tol": 1e-3, "max_passes": 7, "gram": "tiled", "solver": Nystrom(rank=9)}
    assert settings_of(kernel_model, Linear()) == KernelPCASettings(n_components=3, **given)


def test_one_job_starts_no_thread_for_landmarks(monkeypatch: pytest.MonkeyPatch, sizes: Any) -> None:
    """Nor do the products of the factor, with several threads for BLAS."""
    sizes(MULTIPLICATIONS_A_THREAD=1)
    model = KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(rank=20), random_state=0)
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def record(thread: threading.Thread) -> None:
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", record)
    with threadpool_limits(2, "blas"):
        model.set_params(n_jobs=1).fit(rows(9000, 5))
    assert not started
