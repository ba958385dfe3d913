"""Rounds of contestants, each in a process of its own, and the record of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cases import Case
from benchmarks.peers import taking_part

ROOT = Path(__file__).resolve().parents[1]


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
    entries : list of dict
        One for each contestant at each case.
    absent : dict
        Contestants that this machine does not have, and why; each is asked once.
    """

    machine: dict[str, Any]
    timeout: float = 600.0
    memory_limit: int | None = None
    entries: list[dict[str, Any]] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

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
                self._play(case, entry)
        if entries[0]["outcome"] == "ok":
            clock.now += median(entries[0]["seconds"][-case.repeats :])

    def _play(self, case: Case, entry: dict[str, Any]) -> None:
        first = not entry["seconds"]
        answer = run_alone(case, entry["contestant"], first, self.timeout, self.memory_limit)
        entry["outcome"] = answer["outcome"]
        if entry["outcome"].startswith("skipped"):
            self.absent[entry["contestant"]] = entry["outcome"]
        if entry["outcome"] != "ok":
            return
        entry["seconds"] += answer["seconds"]
        entry["median"] = median(entry["seconds"])
        for what in ("peak_mib", "total_mib", "device_mib"):
            entry[what] = largest(entry.get(what), answer[what])
        if first:
            entry |= {"residual": answer["residual"], "gamma": answer["gamma"]}

    def save(self, file: Path) -> None:
        """Write the record, an entry a line; after every case, so that an interrupted run leaves what it has."""
        entries = ",\n".join(json.dumps(entry) for entry in self.entries)
        file.write_text(f'{{"machine": {json.dumps(self.machine)},\n"entries": [\n{entries}\n]}}\n')


FIELDS = ("task", "data", "n", "d", "dtype", "p", "kernel", "new")


def run_alone(
    case: Case, contestant: str, certify: bool = True, timeout: float = 600.0, memory_limit: int | None = None
) -> dict[str, Any]:
    """What `benchmarks.contestant` measured; "outcome" is "ok" or says what happened instead."""
    job = {"case": asdict(case), "contestant": contestant, "certify": certify, "memory_limit": memory_limit}
    command = [sys.executable, "-m", "benchmarks.contestant"]
    try:
        done = subprocess.run(
            command, input=json.dumps(job), capture_output=True, text=True, timeout=timeout, cwd=ROOT, check=False
        )
    except subprocess.TimeoutExpired:
        return {"outcome": f"timeout after {timeout:g} s"}
    if done.returncode < 0:
        return {"outcome": f"killed by signal {-done.returncode}"}
    if done.returncode > 0:
        return {"outcome": f"exit {done.returncode}: {(done.stderr.splitlines() or ['nothing said'])[-1]}"}
    return json.loads(done.stdout.splitlines()[-1])


def shown(entries: Iterable[dict[str, Any]]) -> str:
    """One line for each entry, ratios to the first."""
    entries = list(entries)
    ours = entries[0]["median"]
    return "\n".join(f"  {entry['contestant']:28s} {figures(entry, ours)}" for entry in entries)


def figures(entry: dict[str, Any], ours: float | None) -> str:
    """Median, ratio, memory and error of one contestant, or why there are none."""
    if entry["outcome"] != "ok":
        return entry["outcome"]
    ratio = f"{entry['median'] / ours:6.2f} x" if ours else " " * 8
    peak = "" if entry["peak_mib"] is None else f"{entry['peak_mib']:7.0f} MiB"
    residual = "" if entry["residual"] is None else f"residual {entry['residual']:.1e}"
    return f"{entry['median']:9.4f} s {ratio} {peak}  {residual}"


def largest(a: float | None, b: float | None) -> float | None:
    """Of two numbers that may be missing."""
    return max((x for x in (a, b) if x is not None), default=None)
