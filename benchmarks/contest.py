"""Rounds of contestants, each in a separate process, and the record of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle
from statistics import median
from typing import Any

import pytest

from benchmarks.cases import Case
from benchmarks.datasets import why_absent
from benchmarks.machine import ROOT
from benchmarks.peers import PEERS, taking_part
from benchmarks.verdicts import Entry, agrees, bounds_hold

NO_TF32 = {"CUPY_TF32": "0", "NVIDIA_TF32_OVERRIDE": "0"}
# With less time left no process is started: it would hardly have loaded its libraries.
LEAST_SECONDS = 10.0
NO_TIME = "not run: no time left"


class MeasuredClock:
    """The timer of pytest-benchmark: shows the seconds that a contestant measured, without the start of its process."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


clock = MeasuredClock()


def replay(benchmark: Any, seconds: Sequence[float], check: Callable[[], Any] = lambda: None) -> None:
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
        pytest.param(case.name, name, id=f"{case.name}-{name}", marks=marks_of(case))
        for case in cases
        for name in taking_part(case)
    ]
    return pytest.mark.parametrize(("case", "contestant"), each)


def marks_of(case: Case) -> list[pytest.MarkDecorator]:
    """Return the marks by which the options select cases."""
    return [pytest.mark.large] * case.large + [pytest.mark.quick] * bool(case.quick_n)


def selected(session: pytest.Session, case: str) -> list[str]:
    """Return the contestants of a case whose rows this run has."""
    rows = [item.callspec.params for item in session.items if "contestant" in item.fixturenames]
    return [row["contestant"] for row in rows if row["case"] == case]


def alternate(names: Sequence[str], run: Callable[[str], Any], rounds: int) -> dict[str, list[Any]]:
    """Return the results of ``run(name)`` in rounds; the last of a round is the first of the next."""
    found: dict[str, list[Any]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names[:: -1 if number % 2 else 1]:
            found[name].append(run(name))
    return found


@dataclass
class Contest:
    """All cases of one run."""

    machine: dict[str, Any]  # see `benchmarks.machine`
    timeout: float = 600.0  # seconds for one process, from its start to its end
    deadline: float = float("inf")  # in `time.monotonic`: no process begins after it, and none outlasts it
    late: str = NO_TIME  # the outcome of what would begin after it; with another one a timeout is no failure either
    # (case, contestant) -> fields of the case, seconds, median, outcome, memory, accuracy, facts and verdict
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)  # contestant that this machine does not have -> reason
    ceilings: dict[str, Any] = field(default_factory=dict)  # see `benchmarks.ceilings`
    busy: list[str] | None = None  # rates that changed during the run; None: they were measured once

    def play(self, case: Case, contestants: Sequence[str]) -> list[Entry]:
        """Play all rounds of a case; return its entries.

        Contestants alternate, so that a slow minute of the machine affects all of them. None runs after its failure.
        """
        entries = [self._enter(case, name) for name in contestants]
        for _ in range(case.rounds):
            for entry in entries:
                if entry["outcome"] == "ok":
                    self._run([case], [entry])
        return entries

    def play_sweep(self, cases: Sequence[Case], contestant: str) -> list[Entry]:
        """Let one contestant answer all the cases, in one process unless it fails at one of them."""
        entries = [self._enter(case, contestant) for case in cases]
        done, last = 0, entries[0]["outcome"]
        while done < len(cases) and not last.startswith("skipped"):
            done += self._run(cases[done:], entries[done:])
            last = entries[done - 1]["outcome"]
        for entry in entries[done:]:
            entry["outcome"] = last
        return entries

    def _enter(self, case: Case, contestant: str) -> Entry:
        """Return an entry without seconds, kept in the record."""
        if reason := PEERS[contestant].why_absent():
            self.absent[contestant] = f"skipped: {reason}"
        no_data = why_absent(case.data)
        outcome = f"skipped: {no_data}" if no_data else self.absent.get(contestant, "ok")
        problem = asdict(case)
        del problem["contestants"]
        entry = {"case": problem.pop("name"), "contestant": contestant, **problem}
        entry |= {"seconds": [], "median": None, "outcome": outcome}
        self.entries[case.name, contestant] = entry
        return entry

    def _run(self, cases: Sequence[Case], entries: Sequence[Entry]) -> int:
        """Let one process answer as many of the cases as it can; return their number."""
        contestant, certify = entries[0]["contestant"], not entries[0]["seconds"]
        timeout = min(self.timeout, self.deadline - time.monotonic())
        if timeout < LEAST_SECONDS:
            answers = [{"outcome": self.late} for _ in cases]
        else:
            answers = run_alone(cases, contestant, certify, timeout)
        for entry, answer in zip(entries, answers, strict=False):
            if answer["outcome"].startswith("skipped"):
                self.absent[contestant] = answer["outcome"]
            if answer["outcome"].startswith("timeout") and self.late != NO_TIME:
                answer["outcome"] = f"skipped: {answer['outcome']}"
            entry["outcome"] = answer.pop("outcome")
            if entry["outcome"] == "ok":
                add(entry, answer)
        return len(answers)

    def note(self, case: str, contestant: str, label: str, seconds: list[float], **facts: Any) -> None:
        """Keep the seconds of what is not one of the cases."""
        entry = {"case": case, "contestant": contestant, "task": "other", "label": label, "facts": facts}
        entry |= {"seconds": seconds, "median": median(seconds), "outcome": "ok"}
        self.entries[case, contestant] = entry | dict.fromkeys(("residual", "peak_mib", "device_mib"))

    def record(self) -> dict[str, Any]:
        """Return what `benchmarks.report` reads: machine, ceilings, changed rates, and the played entries."""
        played = [entry for entry in self.entries.values() if entry["seconds"] or entry["outcome"] != "ok"]
        return {"machine": self.machine, "ceilings": self.ceilings, "busy": self.busy, "entries": played}


def add(entry: Entry, answer: dict[str, Any]) -> None:
    """Add the answer of a round to an entry: all seconds, the most memory, and the rest of the first round."""
    first = not entry["seconds"]
    entry["seconds"] += answer.pop("seconds")
    entry["median"] = median(entry["seconds"])
    for what in ("peak_mib", "total_mib", "device_mib"):
        entry[what] = max((x for x in (entry.get(what), answer.pop(what)) if x is not None), default=None)
    if first:  # later rounds are not certified again
        entry |= answer


def run_alone(
    cases: Sequence[Case], contestant: str, certify: bool = True, timeout: float = 600.0
) -> list[dict[str, Any]]:
    """Return what `benchmarks.contestant` measured at the cases up to the first that fails, inclusive.

    "outcome" is "ok" or the reason of the failure; there is at least one answer.
    """
    job = {"cases": [asdict(case) for case in cases], "contestant": contestant, "certify": certify}
    try:
        done = run_module("benchmarks.contestant", timeout=timeout, input=json.dumps(job))
    except subprocess.TimeoutExpired as late:
        output = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        return [*answers_in(output), {"outcome": f"timeout after {timeout:.0f} s"}]
    answers = answers_in(done.stdout)
    if len(answers) < len(cases) and all(answer["outcome"] == "ok" for answer in answers):
        reason = (done.stderr.splitlines() or ["no message"])[-1][:200]
        killed = f"killed by signal {-done.returncode}"
        answers.append({"outcome": killed if done.returncode < 0 else f"exit {done.returncode}: {reason}"})
    return answers


def run_module(module: str, *arguments: str, timeout: float, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a module of this package in its own process."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
        env=os.environ | NO_TF32,
        check=False,
        **more,
    )


def answers_in(text: str) -> list[dict[str, Any]]:
    """Return the whole lines of JSON that a contestant printed; libraries may print other lines."""
    whole = [line for line in text.splitlines(keepends=True) if line.startswith('{"outcome"') and line.endswith("\n")]
    return [json.loads(line) for line in whole]


# -- promises ----------------------------------------------------------------------------------------------------------


def is_figure(entry: Entry) -> bool:
    """Return whether there are seconds to show, or a promise is broken, because there should be."""
    promised = PEERS[entry["contestant"]].is_promised and not entry["outcome"].startswith("skipped")
    return entry["outcome"] in ("ok", NO_TIME) or promised


def check(case: Case, entry: Entry) -> None:
    """Assert that a certified contestant ends, runs on its device, and has an error near the tolerance.

    Of an approximation its bounds are promised; of a compared fit that it is the fit of the host. Speed never is.
    """
    contestant, outcome = entry["contestant"], entry["outcome"]
    if outcome.startswith("skipped"):
        return
    assert outcome != NO_TIME, contestant
    assert bounds_hold(entry), contestant
    peer = PEERS[contestant]
    if not peer.is_promised:
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
