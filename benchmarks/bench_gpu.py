"""Kernel PCA on a card: what should be reached there, and from which sizes on it is worth it; only with ``--gpu``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.cases import Case
from benchmarks.ceilings import NAMES
from benchmarks.contest import clock, replay, rows
from benchmarks.gpu_cases import HEADLINE, SWEEPS, Sweep, Trial

pytestmark = [pytest.mark.gpu, pytest.mark.benchmark(timer=clock.read)]


TRIALS = {trial.case.name: trial for trial in HEADLINE}
SWEPT = {case.name: (sweep, case) for sweep in SWEEPS for case in sweep.cases}


@rows(trial.case for trial in HEADLINE)
def test_trial(try_on_card: Callable[[Trial, str], None], case: str, contestant: str) -> None:
    try_on_card(TRIALS[case], contestant)


@rows(case for _, case in SWEPT.values())
def test_sweep_on_card(sweep_on_card: Callable[[Sweep, Case, str], None], case: str, contestant: str) -> None:
    sweep_on_card(*SWEPT[case], contestant)


@pytest.mark.parametrize("contestant", NAMES)
@pytest.mark.parametrize("case", ["ceilings"])
def test_ceilings(benchmark: Any, card: dict[str, dict[str, Any]], case: str, contestant: str) -> None:
    """Show what the card can do; measured before the first case of any run, and alone by -k ceilings."""
    benchmark.group = case
    benchmark.extra_info |= card[contestant]
    replay(benchmark, [card[contestant]["seconds"]])
