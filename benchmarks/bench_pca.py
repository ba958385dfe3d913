"""PCA beside scikit-learn's routes: tall, tall and far from the origin, pictures, wide."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.cases import PCA_CASES, Case
from benchmarks.contest import clock, rows

pytestmark = pytest.mark.benchmark(timer=clock.read)
BY_NAME = {case.name: case for case in PCA_CASES}


@rows(PCA_CASES)
def test_axes(play: Callable[[Case, str], None], case: str, contestant: str) -> None:
    play(BY_NAME[case], contestant)
