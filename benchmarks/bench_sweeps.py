"""Kernel PCA beside its peers over sizes, dimensions, components, kernels, dtypes and data."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.cases import SWEEPS, Case
from benchmarks.contest import clock


@pytest.mark.benchmark(timer=clock.read)
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name, marks=[pytest.mark.large] * c.large) for c in SWEEPS])
def test_sweep(play: Callable[[Case], None], case: Case) -> None:
    play(case)
