"""Kernel PCA beside its peers: the cases that the README quotes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.cases import CASES, Case
from benchmarks.contest import clock, rows

pytestmark = pytest.mark.benchmark(timer=clock.read)
BY_NAME = {case.name: case for case in CASES}


@rows(CASES)
def test_case(play: Callable[[Case, str], None], case: str, contestant: str) -> None:
    play(BY_NAME[case], contestant)
