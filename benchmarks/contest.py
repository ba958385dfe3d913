"""Rounds of contestants, each in a process of its own, and the record of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.card import NO_TF32
from benchmarks.cases import Case
from benchmarks.peers import PEERS, taking_part
from benchmarks.places import nothing
from benchmarks.verdicts import agrees, bounds_hold

ROOT = Path(__file__).resolve().parents[1]
# With less time left no process is started: it would hardly have loaded its libraries.
LEAST_SECONDS = 10.0
NO_TIME = "not run: no time left"


class MeasuredClock:
    """The timer of pytest-benchmark: shows what a contestant measured, not what starting its process takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        """Return the seconds since `replay` began a round."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


clock = MeasuredClock()


def replay(benchmark: Any, seconds: Sequence[float], check: Callable[[], Any] = nothing) -> None:
    """Make measured seconds the rounds of a row in the table of pytest-benchmark, whose timer must be `clock.read`.

    A row whose check raises fails, and has no place in the table.
    """
    durations = cycle(seconds)

    def begin() -> tuple[tuple[float], dict[str, Any]]:
        check()
        clock.now = 0.0
        return (next(durations),), {}

    benchmark.pedantic(clock.advance, setup=begin, rounds=max(1, len(seconds)))


def rows(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """Parametrize a test by the names of a case and of a contestant: a test for each row of the table."""
    each = [
        pytest.param(case.name, name, id=f"{case.name}-{name}", marks=[pytest.mark.large] * case.large)
        for case in cases
        for name in taking_part(case)
    ]
    return pytest.mark.parametrize(("case", "contestant"), each)


@dataclass
class Contest:
    """All cases of one run.

    Attributes
    ----------
    machine : dict
        What the figures were measured on.
    timeout : float
        Seconds for one process, from its start to its end.
    memory_limit : int, optional
        Bytes of address space for what is timed; not on devices.
    deadline : float
        Of `time.monotonic`: no process begins after it, and none outlasts it.
    entries : list of dict
        One for each contestant at each case.
    absent : dict
        Contestants that this machine does not have, and why; each is asked once.
    ceilings : dict
        What the card can do, see `benchmarks.ceilings`; empty without one.
    verdicts : list of dict
        What was reached of what should be, see `benchmarks.verdicts`.
    """

    machine: dict[str, Any]
    timeout: float = 600.0
    memory_limit: int | None = None
    deadline: float = float("inf")
    entries: list[dict[str, Any]] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    ceilings: dict[str, Any] = field(default_factory=dict)
    verdicts: list[dict[str, Any]] = field(default_factory=list)

    def enter(self, case: Case, contestants: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return empty entries of the contestants of a case, by default of all, kept in the record from now on."""
        problem = {key: value for key, value in asdict(case).items() if key in FIELDS}
        new = [
            {"case": case.name, "contestant": name, **problem, "seconds": [], "median": None}
            | {"outcome": self.absent.get(name, "ok")}
            for name in (taking_part(case) if contestants is None else contestants)
        ]
        self.entries += new
        return new

    def play_round(self, case: Case, entries: list[dict[str, Any]]) -> None:
        """Everybody once, so that a slow minute of the machine meets everybody; who failed is not asked again."""
        for entry in entries:
            if entry["outcome"] == "ok":
                self._play([case], [entry])

    def play_sweep(self, cases: Sequence[Case], entries: list[dict[str, Any]]) -> None:
        """Let one contestant answer all the cases, in one process unless it fails at one of them."""
        by_name = {case.name: case for case in cases}
        waiting = entries
        while waiting and waiting[0]["outcome"] == "ok":
            played = self._play([by_name[entry["case"]] for entry in waiting], waiting)
            waiting = waiting[played:]
            for entry in waiting:
                entry["outcome"] = self.absent.get(entry["contestant"], "ok")

    def entry(self, case: str, contestant: str) -> dict[str, Any] | None:
        """Return the entry of a contestant at a case, if it was entered."""
        mine = (entry for entry in self.entries if (entry["case"], entry["contestant"]) == (case, contestant))
        return next(mine, None)

    def _play(self, cases: Sequence[Case], entries: list[dict[str, Any]]) -> int:
        """Let one process answer as many of the cases as it can; how many it has."""
        first = not entries[0]["seconds"]
        timeout = min(self.timeout, self.deadline - time.monotonic())
        if timeout < LEAST_SECONDS:
            answers = [{"outcome": NO_TIME} for _ in cases]
        else:
            answers = run_alone(cases, entries[0]["contestant"], first, timeout, self.memory_limit)
        for entry, answer in zip(entries, answers, strict=False):
            self._note(entry, answer)
        return len(answers)

    def _note(self, entry: dict[str, Any], answer: dict[str, Any]) -> None:
        entry["outcome"] = answer.pop("outcome")
        if entry["outcome"].startswith("skipped"):
            self.absent[entry["contestant"]] = entry["outcome"]
        if entry["outcome"] != "ok":
            return
        first = not entry["seconds"]
        entry["seconds"] += answer.pop("seconds")
        entry["median"] = median(entry["seconds"])
        for what in ("peak_mib", "total_mib", "device_mib"):
            entry[what] = largest(entry.get(what), answer.pop(what))
        if first:  # later rounds are not certified again
            entry |= answer

    def record(self) -> dict[str, Any]:
        """Return what `benchmarks.report` reads: machine, ceilings, verdicts and the played entries."""
        found = {"ceilings": [{"name": name} | row for name, row in self.ceilings.items()], "verdicts": self.verdicts}
        played = [entry for entry in self.entries if entry["seconds"] or entry["outcome"] != "ok"]
        return {"machine": self.machine} | {name: rows for name, rows in found.items() if rows} | {"entries": played}


FIELDS = ("task", "data", "n", "d", "dtype", "p", "kernel", "new", "rank", "block", "tile_edge")


def run_alone(
    cases: Sequence[Case],
    contestant: str,
    certify: bool = True,
    timeout: float = 600.0,
    memory_limit: int | None = None,
) -> list[dict[str, Any]]:
    """Return what `benchmarks.contestant` measured at the cases up to the first that fails, inclusive.

    "outcome" is "ok" or says what happened instead; there is at least one answer.
    """
    job = {"cases": [asdict(case) for case in cases], "contestant": contestant}
    job |= {"certify": certify, "memory_limit": memory_limit}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.contestant"],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=ROOT,
            env=os.environ | NO_TF32,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        return [*answers_in(said), {"outcome": f"timeout after {timeout:.0f} s"}]
    answers = answers_in(done.stdout)
    if len(answers) == len(cases) or (answers and answers[-1]["outcome"] != "ok"):
        return answers
    return [*answers, {"outcome": how_it_ended(done)}]


def answers_in(text: str) -> list[dict[str, Any]]:
    """Return the whole lines of JSON that a contestant printed; libraries may print other lines."""
    whole = [line for line in text.splitlines(keepends=True) if line.startswith('{"outcome"') and line.endswith("\n")]
    return [json.loads(line) for line in whole]


def how_it_ended(done: subprocess.CompletedProcess[str]) -> str:
    """Of a process that gave no answer."""
    if done.returncode < 0:
        return f"killed by signal {-done.returncode}"
    return f"exit {done.returncode}: {(done.stderr.splitlines() or ['nothing said'])[-1][:200]}"


def largest(a: float | None, b: float | None) -> float | None:
    """Of two numbers that may be missing."""
    return max((x for x in (a, b) if x is not None), default=None)


# -- promises ----------------------------------------------------------------------------------------------------------


def is_figure(entry: dict[str, Any]) -> bool:
    """Return whether there are seconds to show, or a promise is broken, because there should be."""
    peer = PEERS[entry["contestant"]]
    promised = (peer.certified or peer.bounded) and not entry["outcome"].startswith("skipped")
    return entry["outcome"] in ("ok", NO_TIME) or promised


def check(case: Case, entry: dict[str, Any]) -> None:
    """Assert that a certified contestant ends, runs on its device, and has an error near the tolerance.

    Of an approximation its bounds are promised; of a compared fit that it is the fit of the host. Speed never is.
    """
    contestant, outcome = entry["contestant"], entry["outcome"]
    if outcome.startswith("skipped"):
        return
    assert outcome != NO_TIME, contestant
    if "certificate" in entry:
        assert bounds_hold(entry), contestant
    peer = PEERS[contestant]
    if not (peer.certified or peer.bounded):
        return
    assert outcome == "ok", f"{contestant}: {outcome}"
    where = str(entry["facts"].get("device", peer.place.name))
    assert where.startswith(peer.place.name), f"{contestant} computed on {where}"
    if peer.certified:
        assert entry["residual"] <= 3 * case.tol, contestant
    if case.most_mib and contestant == case.contestants[0] and entry["total_mib"] is not None:
        assert entry["total_mib"] < case.most_mib, contestant
    if case.task == "compared":
        assert agrees(case, entry), contestant
