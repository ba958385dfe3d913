"""Kernel PCA beside its peers over sizes, dimensions, components, kernels, dtypes and data."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.cases import SWEEPS, Case
from benchmarks.contest import clock, rows

pytestmark = pytest.mark.benchmark(timer=clock.read)
BY_NAME = {case.name: case for case in SWEEPS}


@rows(SWEEPS)
def test_sweep(play: Callable[[Case, str], None], case: str, contestant: str) -> None:
    play(BY_NAME[case], contestant)
