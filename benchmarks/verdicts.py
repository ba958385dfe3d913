"""Targets of the cases on a card. Whether a target was reached is recorded, never asserted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from benchmarks.accuracy import SCORE_TOLERANCE, VALUE_TOLERANCE_IN_EPS
from benchmarks.cases import Case
from benchmarks.ceilings import Ceilings
from benchmarks.floors import floor_seconds

Entry = dict[str, Any]
Verdict = dict[str, Any]

# The outcome of what no time was left for.
NO_TIME = "not run: no time left"

# The bounds of an approximation hold up to the rounding of float32 sums; relative to its largest eigenvalue.
BOUND_SLACK = 1e-4
# Samples from which on exponents of n are fitted.
LARGE = 5000


class Target(Protocol):
    """A goal for the first contestant of a case."""

    def text(self, case: Case) -> str:
        """Return the target as text."""

    def judge(self, case: Case, first: Entry, others: list[Entry], ceilings: Ceilings) -> Verdict:
        """Return "measured" as text, "reached" (None: undecided) and, if any, "note"; the first contestant ended."""


def judged(target: Target, planned_n: int, case: Case, entries: list[Entry], ceilings: Ceilings) -> Verdict:
    """Return the verdict on the first of the entries.

    Keys: target, measured, reached (None where nothing can be decided), floor_s, share (floor_s over the median), note.
    At another size than planned nothing is judged.
    """
    first, others = entries[0], entries[1:]
    floor = floor_seconds(ceilings, first)
    found: Verdict = {
        "target": target.text(case),
        "measured": first["outcome"],
        "reached": None,
        "floor_s": floor,
        "share": None if floor is None or not first["median"] else floor / first["median"],
        "note": "" if ceilings else "the rates of the machine were not measured",
    }
    if first["outcome"] == "ok":
        found |= target.judge(case, first, others, ceilings)
        if case.n != planned_n:
            found |= {"reached": None, "note": f"not judged: n = {case.n} in place of {planned_n}"}
    return found


# -- targets -----------------------------------------------------------------------------------------------------------


class SecondsWithin:
    """At most so many seconds, the tightest last, at the tolerance or within the bounds of a certificate."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = seconds

    def text(self, case: Case) -> str:
        exact = "" if case.contestants[0].endswith("Nystrom") else f" with residual {case.tol:.0e}"
        return " then ".join(f"{seconds:g} s" for seconds in self.seconds) + exact

    def judge(self, case: Case, first: Entry, others: list[Entry], ceilings: Ceilings) -> Verdict:
        accurate = bounds_hold(first) if "certificate" in first else first["residual"] <= case.tol
        steps = {s: bool(first["median"] <= s and accurate) for s in self.seconds}
        found: Verdict = {"measured": f"{first['median']:.3g} s", "reached": steps[self.seconds[-1]]}
        if len(steps) > 1:
            found["note"] = ", ".join(f"{s:g} s {'reached' if done else 'missed'}" for s, done in steps.items())
        return found


@dataclass(frozen=True)
class TimesTheFloor:
    """At most so many times the floor of one pass."""

    factor: float

    def text(self, case: Case) -> str:
        return f"{self.factor:g} × the floor of the card"

    def judge(self, case: Case, first: Entry, others: list[Entry], ceilings: Ceilings) -> Verdict:
        floor = floor_seconds(ceilings, first)
        if floor is None:
            return {"measured": f"{first['median']:.3g} s"}
        ratio = first["median"] / floor
        measured = f"{first['median']:.3g} s = {ratio:.2f} × {floor:.3g} s"
        return {"measured": measured, "reached": bool(ratio <= self.factor)}


@dataclass(frozen=True)
class FasterThanPeers:
    """So many times faster than every peer that ran on the card."""

    factor: float

    def text(self, case: Case) -> str:
        return f"{self.factor:g} × faster than TorchDR, or than a full eigh, on the same card"

    def judge(self, case: Case, first: Entry, others: list[Entry], ceilings: Ceilings) -> Verdict:
        ratios = {peer["contestant"]: peer["median"] / first["median"] for peer in others if peer["median"]}
        if not ratios:
            return {"measured": f"{first['median']:.3g} s; no peer ran"}
        peers = ", ".join(f"{name} {ratio:.3g} ×" for name, ratio in ratios.items())
        reached = min(ratios.values()) >= self.factor and first["residual"] <= case.tol
        return {"measured": f"{first['median']:.3g} s; {peers}", "reached": bool(reached)}


@dataclass(frozen=True)
class CopiesBelow:
    """Copies take at most a share of a fit of NumPy arrays.

    The larger of two figures counts: how much longer the fit takes than one of arrays on the card, and how long copies
    of the data and of the scores take alone.
    """

    share: float

    def text(self, case: Case) -> str:
        return f"copies at most {self.share:.0%} of the fit"

    def judge(self, case: Case, first: Entry, others: list[Entry], ceilings: Ceilings) -> Verdict:
        alone = first["facts"].get("up_s", 0.0) + first["facts"].get("down_s", 0.0)
        measured = f"{first['median']:.3g} s; copies alone {alone:.2g} s"
        on_card = next((entry["median"] for entry in others if entry["median"]), None)
        if on_card is None:
            return {"measured": measured}
        longer = first["median"] - on_card
        reached = max(alone, longer) <= self.share * first["median"]
        return {"measured": f"{measured}; {longer:+.2g} s against arrays on the card", "reached": bool(reached)}


class AgreesWithHost:
    """Eigenvalues and scores as NumPy gives them."""

    def text(self, case: Case) -> str:
        return f"eigenvalues within {VALUE_TOLERANCE_IN_EPS:g} eps λ₁, scores within {SCORE_TOLERANCE[case.dtype]:.0e}"

    def judge(self, case: Case, first: Entry, others: list[Entry], ceilings: Ceilings) -> Verdict:
        apart = "no column is determined so well" if first["scores"] is None else f"scores {first['scores']:.1e}"
        values = f"eigenvalues {first['values_in_eps']:.2g} eps λ₁"
        measured = f"{values}, {apart} ({first['columns']} of {case.p} columns)"
        return {"measured": measured, "reached": agrees(case, first)}


def agrees(case: Case, entry: Entry) -> bool:
    """Return whether a compared fit is within the tolerances, where the gaps allow a comparison."""
    scores = entry["scores"] is None or entry["scores"] <= SCORE_TOLERANCE[case.dtype]
    return bool(entry["values_in_eps"] <= VALUE_TOLERANCE_IN_EPS and scores)


def bounds_hold(entry: Entry) -> bool:
    """Return whether the certificate of an approximation bounds the Rayleigh quotients, where they were computed."""
    return max(entry.get("below_bound", 0.0), entry.get("above_bound", 0.0)) <= BOUND_SLACK


def slope(entries: Iterable[Entry], axis: str, quantity: str) -> float | None:
    """Return the slope of the logarithm of a quantity against that of the axis; None with less than two points.

    Against n from `LARGE` on, where there are two points: below, the costs of every call count.
    """
    points = [(entry[axis], entry[quantity]) for entry in entries if entry["outcome"] == "ok" and entry[quantity]]
    large = [point for point in points if axis == "n" and point[0] >= LARGE]
    points = large if len(large) > 1 else points
    return float(np.polyfit(*np.log(np.transpose(points)), 1)[0]) if len(points) > 1 else None


# -- sweeps ------------------------------------------------------------------------------------------------------------


def medians(entries: Iterable[Entry], contestant: str, axis: str) -> dict[int, float]:
    """Return setting -> median seconds of a contestant, where it has one."""
    mine = (entry for entry in entries if entry["contestant"] == contestant and entry["outcome"] == "ok")
    return {entry[axis]: entry["median"] for entry in mine if entry["median"]}


def faster_from(entries: list[Entry], slow: str, fast: str) -> int | None:
    """Return the smallest n from which on `fast` takes less time than `slow` wherever both ran; None: nowhere."""
    slows, fasts = medians(entries, slow, "n"), medians(entries, fast, "n")
    found = None
    for n in sorted(slows.keys() & fasts.keys(), reverse=True):
        if fasts[n] >= slows[n]:
            break
        found = n
    return found
