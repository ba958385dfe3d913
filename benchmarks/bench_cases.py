"""Kernel PCA and PCA beside their peers on the processor."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.cases import CASES, PCA_CASES, SWEEPS
from benchmarks.contest import clock, rows

pytestmark = pytest.mark.benchmark(timer=clock.read)
BY_NAME = {case.name: case for case in (*CASES, *SWEEPS, *PCA_CASES)}


@rows(CASES)
def test_case(play: Callable[..., None], case: str, contestant: str) -> None:
    """Run the cases that the documentation quotes."""
    play(BY_NAME[case], contestant)


@rows(SWEEPS)
def test_sweep(play: Callable[..., None], case: str, contestant: str) -> None:
    """Vary sizes, dimensions, components, kernels, dtypes and data."""
    play(BY_NAME[case], contestant)


@pytest.mark.large
@rows(PCA_CASES)
def test_axes(play: Callable[..., None], case: str, contestant: str) -> None:
    """Compare PCA with scikit-learn's routes: tall, tall and far from the origin, pictures, wide."""
    play(BY_NAME[case], contestant)
