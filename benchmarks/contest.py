"""Rounds of contestants, each in a process of its own, and the record of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.card import NO_TF32
from benchmarks.cases import Case
from benchmarks.peers import taking_part

ROOT = Path(__file__).resolve().parents[1]
# With less time left no process is started: it would hardly have loaded its libraries.
LEAST_SECONDS = 10.0
NO_TIME = "not run: no time left"


class MeasuredClock:
    """The timer of pytest-benchmark: advances by what the first contestant measured, not by starting processes."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        """Seconds measured so far."""
        return self.now


clock = MeasuredClock()


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

    def enter(self, case: Case) -> list[dict[str, Any]]:
        """Empty entries of the contestants of a case, kept in the record from now on."""
        problem = {key: value for key, value in asdict(case).items() if key in FIELDS}
        new = [
            {"case": case.name, "contestant": name, **problem, "seconds": [], "median": None}
            | {"outcome": self.absent.get(name, "ok")}
            for name in taking_part(case)
        ]
        self.entries += new
        return new

    def play_round(self, case: Case, entries: list[dict[str, Any]]) -> None:
        """Everybody once, so that a slow minute of the machine meets everybody; who failed is not asked again."""
        for entry in entries:
            if entry["outcome"] == "ok":
                self._play([case], [entry])
        if entries[0]["outcome"] == "ok":
            clock.now += median(entries[0]["seconds"][-case.repeats :])

    def play_sweep(
        self, cases: Sequence[Case], entries: list[dict[str, Any]], after_each: Callable[[], None] = lambda: None
    ) -> None:
        """Every contestant through all the cases, in one process of its own unless it fails at one of them.

        `after_each` is called after each contestant.
        """
        by_name = {case.name: case for case in cases}
        for contestant in dict.fromkeys(entry["contestant"] for entry in entries):
            mine = [entry for entry in entries if entry["contestant"] == contestant and entry["outcome"] == "ok"]
            while mine:
                played = self._play([by_name[entry["case"]] for entry in mine], mine)
                mine = [] if contestant in self.absent else mine[played:]
            for entry in entries:
                if entry["contestant"] == contestant and contestant in self.absent:
                    entry["outcome"] = self.absent[contestant]
            after_each()
        done = [entry["median"] for entry in entries if entry["median"] is not None]
        clock.now += sum(done)

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

    def save(self, file: Path) -> None:
        """Write the record, an entry a line; after every case, so that an interrupted run leaves what it has."""
        parts = [f'"machine": {json.dumps(self.machine)}']
        if self.ceilings:
            parts += [listed("ceilings", [{"name": name} | found for name, found in self.ceilings.items()])]
        if self.verdicts:
            parts += [listed("verdicts", self.verdicts)]
        text = "{" + ",\n".join([*parts, listed("entries", self.entries)]) + "}\n"
        beside = file.with_name(f".{file.name}.part")
        beside.write_text(text)
        beside.replace(file)  # a reader, or an end in between, never meets half a record


def listed(name: str, rows: list[dict[str, Any]]) -> str:
    """A JSON list, a row a line."""
    return f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]"


FIELDS = ("task", "data", "n", "d", "dtype", "p", "kernel", "new", "rank", "block", "tile_edge")


def run_alone(
    cases: Sequence[Case],
    contestant: str,
    certify: bool = True,
    timeout: float = 600.0,
    memory_limit: int | None = None,
) -> list[dict[str, Any]]:
    """What `benchmarks.contestant` measured at the cases up to the first that fails, that one included.

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
    """The whole lines of JSON that a contestant printed; libraries may print other lines."""
    whole = [line for line in text.splitlines(keepends=True) if line.startswith('{"outcome"') and line.endswith("\n")]
    return [json.loads(line) for line in whole]


def how_it_ended(done: subprocess.CompletedProcess[str]) -> str:
    """Of a process that gave no answer."""
    if done.returncode < 0:
        return f"killed by signal {-done.returncode}"
    return f"exit {done.returncode}: {(done.stderr.splitlines() or ['nothing said'])[-1][:200]}"


def shown(entries: Iterable[dict[str, Any]]) -> str:
    """One line for each entry, ratios to the first."""
    entries = list(entries)
    ours = entries[0]["median"]
    return "\n".join(f"  {entry['contestant']:31s} {figures(entry, ours)}" for entry in entries)


def figures(entry: dict[str, Any], ours: float | None) -> str:
    """Median, ratio, memory and error of one contestant, or why there are none."""
    if entry["outcome"] != "ok":
        return entry["outcome"]
    ratio = f"{entry['median'] / ours:6.2f} x" if ours else " " * 8
    where = "peak_mib" if entry["device_mib"] is None else "device_mib"
    peak = "" if entry[where] is None else f"{entry[where]:7.0f} MiB"
    residual = "" if entry["residual"] is None else f"residual {entry['residual']:.1e}"
    return f"{entry['median']:9.4f} s {ratio} {peak}  {residual}"


def largest(a: float | None, b: float | None) -> float | None:
    """Of two numbers that may be missing."""
    return max((x for x in (a, b) if x is not None), default=None)
