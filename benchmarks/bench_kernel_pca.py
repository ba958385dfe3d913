"""Kernel PCA beside its peers: the cases that the README quotes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.cases import CASES, Case
from benchmarks.contest import clock


@pytest.mark.benchmark(timer=clock.read)
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name, marks=[pytest.mark.large] * c.large) for c in CASES])
def test_case(play: Callable[[Case], None], case: Case) -> None:
    play(case)
