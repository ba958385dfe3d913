"""Kernel PCA on a card: the cases with targets, and sweeps over sizes and settings; only with ``--gpu``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.ceilings import NAMES
from benchmarks.contest import clock, replay, rows
from benchmarks.gpu_cases import SWEEPS, SWEPT, TRIALS

pytestmark = [pytest.mark.gpu, pytest.mark.benchmark(timer=clock.read)]

BY_NAME = {case.name: (case, target) for case, target in TRIALS}
CASES = {case.name: case for cases in SWEEPS.values() for case in cases}


@rows(case for case, _ in TRIALS)
def test_trial(try_on_card: Callable[..., None], case: str, contestant: str) -> None:
    try_on_card(*BY_NAME[case], contestant)


@rows(CASES.values())
def test_sweep_on_card(sweep_on_card: Callable[..., None], case: str, contestant: str) -> None:
    sweep_on_card(SWEEPS[SWEPT[case]], CASES[case], contestant)


@pytest.mark.parametrize("contestant", NAMES)
@pytest.mark.parametrize("case", ["ceilings"])
def test_ceilings(benchmark: Any, card: dict[str, dict[str, Any]], case: str, contestant: str) -> None:
    """Show the rates of the card; measured before the first case of any run, and alone by -k ceilings."""
    benchmark.group = case
    benchmark.extra_info |= card[contestant]
    replay(benchmark, [card[contestant]["seconds"]])
