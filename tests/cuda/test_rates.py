"""The measured rates of a card: when they are measured, what follows from them, and how they are forbidden."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpukpca._process import state
from gpukpca.backend.work import CARD, CORE, SCALED, Work, rates_of
from gpukpca.cuda import device as cuda_device
from tests import cupy_device

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
