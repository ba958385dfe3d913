"""Progress of a fit: one event a pass or a share of one, to a line on the terminal or to a callable."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Progress:
    """One event of a fit, given to ``KernelPCA(verbose=callable)``.

    Attributes
    ----------
    stage : "plan", "tiles", "pass", "rank" or "fold"
    text : str
        The event in words.
    done, total : int
        Tiles of this pass, passes, landmarks, or fits of a search; the total of passes is an upper limit.
    residual, tolerance : float or None
        Largest relative residual so far, and where the solver stops.
    """

    stage: str
    text: str
    done: int = 0
    total: int = 0
    residual: float | None = None
    tolerance: float | None = None


Listener = Callable[[Progress], None]


def listener_from(verbose: Any) -> Listener | None:
    """None for 0, a printer of plan and passes for a number, the callable itself for a callable."""
    if callable(verbose):
        return verbose
    return _print_line if verbose else None


def _print_line(event: Progress) -> None:
    if event.stage != "tiles":
        print(event.text, file=sys.stderr, flush=True)


def tile_report(listener: Listener | None) -> Callable[[int, int], None] | None:
    """What an operator calls during a product."""
    if listener is None:
        return None
    return lambda done, total: listener(Progress("tiles", f"{done} of {total} tiles", done, total))


def pass_report(listener: Listener | None) -> Callable[[int, int, float | None, float], None] | None:
    """What a solver calls after a pass."""
    if listener is None:
        return None

    def report(done: int, total: int, residual: float | None, tolerance: float) -> None:
        reached = "" if residual is None else f", largest relative residual {residual:.1e} (stops at {tolerance:.0e})"
        listener(Progress("pass", f"pass {done}{reached}", done, total, residual, tolerance))

    return report


def rank_report(listener: Listener | None) -> Callable[[int, int, float], None] | None:
    """What a factorization calls after a block of landmarks."""
    if listener is None:
        return None

    def report(done: int, total: int, left: float) -> None:
        listener(Progress("rank", f"{done} of {total} landmarks, {left:.2e} of the trace left", done, total))

    return report
