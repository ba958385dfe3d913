"""PCA beside scikit-learn's routes: tall, tall and far from the origin, pictures, wide."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.cases import PCA_CASES, Case
from benchmarks.contest import clock


@pytest.mark.benchmark(timer=clock.read)
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name, marks=pytest.mark.large) for c in PCA_CASES])
def test_axes(play: Callable[[Case], None], case: Case) -> None:
    play(case)
