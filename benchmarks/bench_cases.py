"""Kernel PCA and PCA beside their peers on the processor."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.cases import BY_NAME, CASES, GROWTH
from benchmarks.contest import clock, rows

pytestmark = pytest.mark.benchmark(timer=clock.read)


@rows(CASES)
def test_case(play: Callable[..., None], case: str, contestant: str) -> None:
    """Run the cases that the documentation quotes."""
    play(BY_NAME[case], contestant)


@rows(case for cases in GROWTH.values() for case in cases)
def test_growth(play: Callable[..., None], case: str, contestant: str) -> None:
    """Vary samples, components and features, and the rank of approximations; contestants alternate at each size."""
    play(BY_NAME[case], contestant)
