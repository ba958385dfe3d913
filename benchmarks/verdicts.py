"""Whether a case reached what it should: told with the figures, never asserted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.accuracy import SCORE_TOLERANCE, VALUE_TOLERANCE_IN_EPS
from benchmarks.cases import Case
from benchmarks.floors import Ceilings, calls_seconds, floor_seconds

Entry = dict[str, Any]
Verdict = dict[str, Any]
# (case, its entries, the ceilings of the card) -> target, measured, reached, and more; without entries only the target.
Judge = Callable[[Case, list[Entry], Ceilings], Verdict]

# The bounds of an approximation hold up to the rounding of float32 sums; relative to its largest eigenvalue.
BOUND_SLACK = 1e-4


def judged(judge: Judge, planned_n: int, case: Case, entries: list[Entry], ceilings: Ceilings) -> Verdict:
    """Return the verdict of a judge with what every verdict has; at another size than planned nothing is judged.

    Keys: case, label, contestant, target (words), measured (words), reached (True, False, or None where there is
    nothing to say), seconds, runs, residual, floor_s, share (floor_s / seconds), note.
    """
    first = entries[0]
    found: Verdict = {"case": case.name, "contestant": first["contestant"], "data": case.data}
    found |= {"n": case.n, "d": case.d}
    found |= {"dtype": case.dtype, "p": case.p, "seconds": first["median"], "runs": len(first["seconds"])}
    floor = floor_seconds(ceilings, first)
    found |= {"residual": first.get("residual"), "floor_s": floor}
    found["share"] = None if floor is None or not first["median"] else floor / first["median"]
    found |= {"note": "" if ceilings else "the card's ceilings were not measured"}
    if first["outcome"] != "ok":
        empty = {"measured": first["outcome"], "reached": None}
        return found | {"target": judge(case, [], ceilings)["target"]} | empty
    found |= judge(case, entries, ceilings)
    if case.n != planned_n:
        found |= {"reached": None, "note": f"not judged: n = {case.n} in place of {planned_n}"}
    return found


# -- judges ------------------------------------------------------------------------------------------------------------


def seconds_within(*targets: float) -> Judge:
    """At most so many seconds, the tightest last, at the residual asked for or within the bounds of a certificate."""

    def judge(case: Case, entries: list[Entry], ceilings: Ceilings) -> Verdict:
        aims = " then ".join(f"{seconds:g} s" for seconds in targets)
        exact = "" if case.contestants[0].endswith("Nystrom") else f" with residual {case.tol:.0e}"
        found: Verdict = {"target": f"{aims}{exact}"}
        if not entries:
            return found
        first = entries[0]
        accurate = bounds_hold(first) if "certificate" in first else first["residual"] <= case.tol
        steps = [bool(first["median"] <= seconds and accurate) for seconds in targets]
        found |= {"measured": f"{first['median']:.3g} s", "reached": steps[-1]}
        if len(targets) > 1:
            words = [f"{s:g} s {'reached' if done else 'missed'}" for s, done in zip(targets, steps, strict=True)]
            found["note"] = ", ".join(words)
        return found

    return judge


def times_the_floor(factor: float) -> Judge:
    """At most so many times the floor of one pass."""

    def judge(case: Case, entries: list[Entry], ceilings: Ceilings) -> Verdict:
        found: Verdict = {"target": f"{factor:g} × the floor of the card"}
        if not entries:
            return found
        first = entries[0]
        floor = floor_seconds(ceilings, first)
        if floor is None:
            return found | {"measured": f"{first['median']:.3g} s", "reached": None}
        found["measured"] = f"{first['median']:.3g} s = {first['median'] / floor:.2f} × {floor:.3g} s"
        calls = calls_seconds(ceilings, case.n, case.d)
        if calls is not None:
            found |= {"calls_s": calls, "note": f"its single calls, measured alone, take {calls:.3g} s"}
        return found | {"reached": bool(first["median"] <= factor * floor)}

    return judge


def faster_than_peers(factor: float) -> Judge:
    """So many times faster than every peer on the card that there is; the fastest of them decides."""

    def judge(case: Case, entries: list[Entry], ceilings: Ceilings) -> Verdict:
        found: Verdict = {"target": f"{factor:g} × faster than TorchDR, or than a full eigh, on the same card"}
        if not entries:
            return found
        ours, peers = entries[0], [entry for entry in entries[1:] if entry["median"]]
        if not peers:
            return found | {"measured": f"{ours['median']:.3g} s; no peer ran", "reached": None}
        ratios = {peer["contestant"]: peer["median"] / ours["median"] for peer in peers}
        told = ", ".join(f"{name} {ratio:.3g} ×" for name, ratio in ratios.items())
        reached = min(ratios.values()) >= factor and ours["residual"] <= case.tol
        return found | {"measured": f"{ours['median']:.3g} s; {told}", "reached": bool(reached)}

    return judge


def copies_below(share: float) -> Judge:
    """Judge that copies take at most a share of a fit that takes and returns NumPy arrays.

    The larger of two figures counts: how much longer the fit takes than one of arrays on the card, and how long copies
    of the data and of the scores take by themselves.
    """

    def judge(case: Case, entries: list[Entry], ceilings: Ceilings) -> Verdict:
        found: Verdict = {"target": f"copies at most {share:.0%} of the fit"}
        if not entries:
            return found
        first = entries[0]
        on_card = next((entry for entry in entries[1:] if entry["median"]), None)
        alone = first["facts"].get("up_s", 0.0) + first["facts"].get("down_s", 0.0)
        longer = None if on_card is None else first["median"] - on_card["median"]
        copied = max(alone, longer or 0.0)
        told = f"{first['median']:.3g} s; copies by themselves {alone:.2g} s"
        if longer is not None:
            told += f"; {longer:+.2g} s beside arrays on the card"
        reached = None if longer is None else bool(copied <= share * first["median"])
        return found | {"measured": told, "reached": reached, "copied": copied / first["median"]}

    return judge


def agreeing() -> Judge:
    """Eigenvalues and scores as NumPy gives them."""

    def judge(case: Case, entries: list[Entry], ceilings: Ceilings) -> Verdict:
        scores = SCORE_TOLERANCE[case.dtype]
        found: Verdict = {"target": f"eigenvalues within {VALUE_TOLERANCE_IN_EPS:g} eps λ₁, scores within {scores:.0e}"}
        if not entries:
            return found
        first = entries[0]
        apart = "no column is determined so well" if first["scores"] is None else f"scores {first['scores']:.1e}"
        told = f"eigenvalues {first['values_in_eps']:.2g} eps λ₁, {apart} ({first['columns']} of {case.p} columns)"
        return found | {"measured": told, "reached": agrees(case, first)}

    return judge


def agrees(case: Case, entry: Entry) -> bool:
    """Whether a compared fit is as near as it should be, where the gaps allow a comparison."""
    scores = entry["scores"] is None or entry["scores"] <= SCORE_TOLERANCE[case.dtype]
    return bool(entry["values_in_eps"] <= VALUE_TOLERANCE_IN_EPS and scores)


def bounds_hold(entry: Entry) -> bool:
    """Whether the certificate of an approximation bounds what it says it does, where that was computed."""
    return max(entry.get("below_bound", 0.0), entry.get("above_bound", 0.0)) <= BOUND_SLACK


# -- sweeps ------------------------------------------------------------------------------------------------------------


def faster_from(entries: Iterable[Entry], slow: str, fast: str, axis: str = "n") -> int | None:
    """Return the smallest size from which on `fast` takes less time than `slow` wherever both ran; None: nowhere."""
    medians: dict[int, dict[str, float]] = {}
    for entry in entries:
        if entry["outcome"] == "ok" and entry["median"]:
            medians.setdefault(entry[axis], {})[entry["contestant"]] = entry["median"]
    both = sorted((size, times) for size, times in medians.items() if slow in times and fast in times)
    found = None
    for size, times in reversed(both):
        if times[fast] >= times[slow]:
            break
        found = size
    return found


def fastest(entries: Iterable[Entry], contestant: str, axis: str) -> int | None:
    """Return the setting with the least median of a contestant."""
    times = {entry[axis]: entry["median"] for entry in entries if entry["contestant"] == contestant and entry["median"]}
    return min(times, key=times.__getitem__) if times else None
