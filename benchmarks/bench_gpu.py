"""Kernel PCA on a card: the cases with targets, and sweeps over sizes and settings; only with ``--gpu``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.contest import Contest, clock, rows
from benchmarks.gpu_cases import SWEEPS, TRIALS, fits, sized

pytestmark = [pytest.mark.gpu, pytest.mark.benchmark(timer=clock.read)]

BY_NAME = {case.name: (case, target) for case, target in TRIALS}
SWEPT = {case.name: case for cases in SWEEPS.values() for case in cases}


@pytest.fixture
def quick_and_free_bytes(contest: Contest, pytestconfig: pytest.Config) -> tuple[bool, int]:
    """Return the two limits of sizes."""
    return pytestconfig.getoption("--quick"), contest.machine["gpu_free_bytes"]


@rows(case for case, _ in TRIALS)
def test_trial(play: Callable[..., None], quick_and_free_bytes: tuple[bool, int], case: str, contestant: str) -> None:
    planned, target = BY_NAME[case]
    play(sized(planned, *quick_and_free_bytes), contestant, target, planned_n=planned.n)


@rows(SWEPT.values())
def test_sweep_on_card(
    play: Callable[..., None], quick_and_free_bytes: tuple[bool, int], case: str, contestant: str
) -> None:
    planned, (quick, free_bytes) = SWEPT[case], quick_and_free_bytes
    if (quick and not planned.quick_n) or not fits(planned, free_bytes):
        pytest.skip("left out: --quick, or too large for this card")
    play(sized(planned, quick, free_bytes), contestant)
