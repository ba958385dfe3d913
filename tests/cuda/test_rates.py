"""The measured rates of a card: when they are measured, what follows from them, and how they are forbidden."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from gpukpca import PCA, KernelPCA, ProbabilisticPCA
from gpukpca._process import state
from gpukpca.backend.device import describe_device
from gpukpca.backend.work import CARD, CORE, SCALED, Work, rates_of
from gpukpca.cuda import device as cuda_device
from gpukpca.data.place import placement_for
from tests import cupy_device
from tests.cli.runs import run
from tests.datasets import data

# Of a consumer card: float64 at a sixty-fourth of float32.
CONSUMER = (48e12, 0.75e12)


def test_two_products_are_timed_once_a_device(stand_in: Any, timings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "PRODUCT_EDGE", 32)
    with stand_in.cuda.Device(1):
        like = stand_in.empty(0)
    with cupy_device.launches() as made:
        rates = rates_of(like)
    assert len(made.products) == 6
    assert stand_in.cuda.runtime.getDevice() == 0
    assert list(state.product_rates) == [1]
    single, double = state.product_rates[1]
    assert 0 < single < np.inf
    assert (rates[4].products, rates[8].products) == pytest.approx((single, double))
    with cupy_device.launches() as made:
        assert rates_of(like) == rates
    assert made.names == []


def test_a_full_device_is_timed_later(stand_in: Any, timings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "PRODUCT_EDGE", 32)
    like = stand_in.empty(0)
    with cupy_device.fail_allocation(1):
        assert rates_of(like) == CARD
    assert state.product_rates == {}
    assert rates_of(like) != CARD


def test_rates_follow_the_products_of_their_dtype(stand_in: Any, timings: None) -> None:
    state.product_rates[0] = CONSUMER
    like = stand_in.empty(0)
    for item, rate in zip((4, 8), CONSUMER, strict=True):
        ratio = rate / CARD[item].products
        for kind, value in vars(CARD[item]).items():
            expected = value * (ratio if kind in SCALED else 1)
            assert getattr(rates_of(like)[item], kind) == pytest.approx(expected)
    work = Work(products=1e15)
    assert work.seconds(like, 8, 1) == pytest.approx(64 * work.seconds(like, 4, 1))


def test_timings_that_are_forbidden_change_nothing(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    state.product_rates[0] = CONSUMER
    like = stand_in.empty(0)
    assert rates_of(like) is CARD  # as in all tests
    monkeypatch.delenv("GPUKPCA_TIMED_CHOICES")
    assert rates_of(like)[8].products == pytest.approx(CONSUMER[1])


def test_nothing_is_timed_on_the_host(timings: None) -> None:
    assert rates_of(np.empty(0)) is CORE


# -- the choice of the device ------------------------------------------------------------------------------------------


def rows(n: int, d: int, dtype: str = "float64") -> np.ndarray:
    return np.broadcast_to(np.zeros(1, dtype), (n, d))


def chosen(X: Any, of_pairs: bool | None, device: str = "auto") -> tuple[str, str]:
    place = placement_for(device, X, None if of_pairs is None else X.shape, bool(of_pairs))
    return describe_device(place.work)[:6], place.reason


def test_auto_goes_where_the_work_takes_less_time(
    stand_in: Any, timings: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpukpca.data.place.worker_count", lambda like: 2)
    for name, X, of_pairs, place, reason in (
        ("iris", rows(150, 4), True, "cpu", "0.00 s of work are less than the start of a card"),
        ("kernel PCA, float32", rows(10**5, 100, "float32"), True, "cuda:0", ""),
        ("kernel PCA, float64", rows(10**5, 100), True, "cuda:0", ""),
        ("PCA of few features", rows(10**6, 20), False, "cpu", "the start of a card"),
        ("PCA of many features", rows(10**5, 2000, "float32"), False, "cuda:0", ""),
        ("integers are float64", np.zeros((10, 3), np.int32), True, "cpu", "the start of a card"),
        ("of no known size", rows(10, 3), None, "cuda:0", ""),
    ):
        state.product_rates[0] = CONSUMER
        where, why = chosen(X, of_pairs)
        assert where == place, name
        assert (reason in why) if reason else why == "", name
        assert chosen(X, of_pairs, "cuda") == ("cuda:0", ""), name
        monkeypatch.setenv("GPUKPCA_TIMED_CHOICES", "0")
        assert chosen(X, of_pairs) == ("cuda:0", ""), name
        monkeypatch.setenv("GPUKPCA_TIMED_CHOICES", "1")


@pytest.mark.parametrize("of_pairs", [True, None])
def test_auto_leaves_float64_to_a_cpu_that_is_faster(
    stand_in: Any, timings: None, monkeypatch: pytest.MonkeyPatch, of_pairs: bool | None
) -> None:
    """A laptop has 15 TF/s in float32 and 0.24 in float64, and eight cores do 0.43."""
    monkeypatch.setattr("gpukpca.data.place.worker_count", lambda like: 8)
    state.product_rates[0] = 15e12, 0.24e12
    X = rows(10**5, 1000)
    where, why = chosen(X, of_pairs)
    assert where == "cpu"
    assert re.fullmatch(r"on the CPU: [0-9.]+ s are less than [0-9.]+ s on cuda:0 .*", why)
    assert chosen(X.astype(np.float32), of_pairs) == ("cuda:0", "")


def test_a_small_fit_by_auto_asks_no_card(stand_in: Any, timings: None) -> None:
    X = data(150, 4)
    with cupy_device.counted("operations") as made:
        for model in (KernelPCA(2, kernel="rbf", device="auto"), PCA(2, device="auto")):
            fitted = model.fit(X)
            assert fitted.fallbacks_ == ()
            assert any("the start of a card" in note for note in fitted.plan_.notes)
            assert model.plan(X).device == "cpu"
        ProbabilisticPCA(2, device="auto").fit(X)
    assert made.count == 0
    assert not state.product_rates


def test_plans_print_the_rates_of_a_card(stand_in: Any, timings: None) -> None:
    state.product_rates[0] = CONSUMER
    X = stand_in.asarray(data(60, 4))
    for model in (KernelPCA(2, kernel="rbf"), PCA(2)):
        plan = model.fit(X).plan_
        assert str(plan).count("note      rates: float32 48, float64 0.75 TF/s, measured") == 1
        assert "rates" not in str(type(model)(2).fit(data(60, 4)).plan_)


def test_a_probe_times_products(stand_in: Any, timings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "PRODUCT_EDGE", 32)
    assert cuda_device.probe()[0]
    assert list(state.product_rates) == [0]


# -- eigenproblems that CUDA 12 refuses --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [12090, 13000])
def test_what_cusolver_refuses_is_said_before_the_fit(stand_in: Any, version: int) -> None:
    K, other = "cuSOLVER of CUDA 12 refuses n = 24000", "block Krylov for 2100" if version < 13000 else "dense for 2100"
    cases = (
        ({"n_components": 10}, 24_000, "block Krylov for 10", None),
        ({"n_components": 2100}, 24_000, other, f"{K}; block Krylov instead"),
        ({"n_components": 10, "eigen_solver": "dense"}, 24_000, "dense for 10", f"{K}: block Krylov solves"),
        ({"n_components": 5000}, 24_000, "dense for 5000", f"{K}: LAPACK on the host, which takes about"),
        ({"n_components": 5000}, 23_000, "dense for 5000", None),
    )
    settings: dict[str, Any] = {"device": "cuda", "memory_limit": "99GiB"}
    with cupy_device.cuda_version(version):
        for parameters, n, solver, note in cases:
            plan = KernelPCA(kernel="rbf", gamma=0.1, **settings, **parameters).plan((n, 5), dtype="float32")
            assert f"solver    {solver}" in str(plan), parameters
            said = [one for one in plan.notes if "CUDA 12" in one]
            assert len(said) == (note is not None and version < 13000), parameters
            assert all(one.startswith(str(note)) for one in said), parameters
        plan = PCA(6000, svd_solver="covariance_eigh", **settings).plan((30_000, 24_000), dtype="float32")
    assert any(f"{K}: LAPACK" in one for one in plan.notes) == (version < 13000)


def test_the_time_counts_the_host_where_cusolver_refuses(stand_in: Any) -> None:
    model = KernelPCA(5000, kernel="rbf", gamma=0.1, device="cuda", memory_limit="99GiB")
    seconds = []
    for version in (12090, 13000):
        with cupy_device.cuda_version(version):
            seconds.append(model.plan((24_000, 5), dtype="float32").estimated_seconds)
    assert seconds[0] > seconds[1] + 100


def test_info_prints_the_rates_of_the_card(stand_in: Any, timings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    state.product_rates[0] = CONSUMER
    assert re.search(r"rates +float32 48, float64 0.75 TF/s, measured", run("info").stdout)
    monkeypatch.setenv("GPUKPCA_TIMED_CHOICES", "0")
    assert re.search(r"rates +float32 47, float64 50 TF/s, of a data sheet", run("info").stdout)
