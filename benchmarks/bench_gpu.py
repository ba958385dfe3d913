"""Kernel PCA on a card: the cases with targets, and sweeps over sizes and settings; only with ``--gpu``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.ceilings import NAMES
from benchmarks.contest import Contest, clock, replay, rows
from benchmarks.gpu_cases import SWEEPS, SWEPT, TRIALS, fits, sized

pytestmark = [pytest.mark.gpu, pytest.mark.benchmark(timer=clock.read)]

BY_NAME = {case.name: (case, target) for case, target in TRIALS}
CASES = {case.name: case for cases in SWEEPS.values() for case in cases}


@pytest.fixture
def quick_and_free_bytes(contest: Contest, pytestconfig: pytest.Config) -> tuple[bool, int]:
    """Return the two limits of sizes."""
    return pytestconfig.getoption("--quick"), contest.machine["gpu_free_bytes"]


@rows(case for case, _ in TRIALS)
def test_trial(play: Callable[..., None], quick_and_free_bytes: tuple[bool, int], case: str, contestant: str) -> None:
    planned, target = BY_NAME[case]
    play(sized(planned, *quick_and_free_bytes), contestant, target, planned_n=planned.n)


@rows(CASES.values())
def test_sweep_on_card(
    play_sweep: Callable[..., None], quick_and_free_bytes: tuple[bool, int], case: str, contestant: str
) -> None:
    quick, free_bytes = quick_and_free_bytes
    cases = [one for one in SWEEPS[SWEPT[case]] if (one.quick_n or not quick) and fits(one, free_bytes)]
    if CASES[case] not in cases:
        pytest.skip("left out: --quick, or too large for this card")
    play_sweep(CASES[case], cases, contestant)


@pytest.mark.parametrize("contestant", NAMES)
@pytest.mark.parametrize("case", ["ceilings"])
def test_ceilings(benchmark: Any, request: pytest.FixtureRequest, case: str, contestant: str) -> None:
    """Show the rates of the card; measured before the first case of any run, and alone by -k ceilings."""
    row = request.getfixturevalue("contest").ceilings[contestant]
    benchmark.group = case
    benchmark.extra_info |= row
    replay(benchmark, [row["seconds"]])
