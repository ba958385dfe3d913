"""Kernel PCA on a card: what should be reached there, and from which sizes on it is worth it; only with ``--gpu``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.contest import clock
from benchmarks.gpu_cases import HEADLINE, SWEEPS, Sweep, Trial

pytestmark = [pytest.mark.gpu, pytest.mark.benchmark(timer=clock.read)]


@pytest.mark.parametrize("trial", [pytest.param(trial, id=trial.case.name) for trial in HEADLINE])
def test_trial(try_on_card: Callable[[Trial], None], trial: Trial) -> None:
    try_on_card(trial)


@pytest.mark.parametrize("sweep", [pytest.param(sweep, id=sweep.name) for sweep in SWEEPS])
def test_sweep_on_card(sweep_on_card: Callable[[Sweep], None], sweep: Sweep) -> None:
    sweep_on_card(sweep)


def test_ceilings(card: dict[str, dict[str, object]]) -> None:
    """Measured before the first case of any run; this case lets them be measured alone (-k ceilings)."""
    assert {"copy", "sgemm", "dgemm", "exp", "to device", "to host"} <= set(card)
    assert all(row["value"] > 0 for row in card.values())  # type: ignore[operator]
