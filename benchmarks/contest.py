"""Contestants in processes that live on, their pairs of fits, and the record of a run."""

from __future__ import annotations

import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import cycle
from math import ceil
from statistics import median
from typing import Any

import pytest

from benchmarks.cases import Case
from benchmarks.datasets import why_absent
from benchmarks.machine import ROOT
from benchmarks.peers import PEERS, taking_part
from benchmarks.ratios import LEAST_PAIRS, LEAST_PAIRS_QUICK, ratio_of
from benchmarks.readings import Canary, between, counters, why_discarded
from benchmarks.verdicts import NO_TIME, Entry, agrees, bounds_hold

NO_TF32 = {"CUPY_TF32": "0", "NVIDIA_TF32_OVERRIDE": "0"}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
# With less time left no fit begins: a process would hardly have loaded its libraries.
LEAST_SECONDS = 10.0
# A reading of the clock covers calls that take so long together: CPU time is counted in hundredths of a second.
READING_SECONDS, MOST_CALLS = 0.25, 1000
# A cell whose pairs would take longer, or longer than one answer may, runs once; the pairs of any other take at most so
# many times what they should.
LONGEST_CELL, REPEATS, LEAST_PATIENCE = 600.0, 3, 30.0
# After so many rounds of shorter fits other processes go on: the place of an array in memory stays for the life of one.
ROUNDS_OF_PROCESS, LONG_FITS = 3, 10.0
# The share of accepted rounds from which on a machine is quiet enough for columns of all threads.
QUIET = 0.8
CANARIES = 9
# Of --quick on a host; figures take the rest of three minutes.
QUICK_SECONDS = 140.0
# A limit of time on a host has room for so many of the longest answers, which may take so long in any case.
LEAST_ANSWERS, LEAST_TIMEOUT = 25, 15.0
# Within such a limit a peer runs once where one fit takes so many seconds, and so many times those of the first one.
FAR_SECONDS, FAR_TIMES = 1.0, 3.5

Round = dict[str, Any]  # seconds, CPU seconds and reading of each, who was first, and why the round is discarded


@dataclass
class MeasuredClock:
    """The timer of pytest-benchmark: shows the seconds that a contestant measured, without the start of its process."""

    now: float = 0.0

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
    marks = {case: [pytest.mark.large] * case.large + [pytest.mark.quick] * bool(case.quick_n) for case in cases}
    each = [
        pytest.param(case.name, name, id=f"{case.name}-{name}", marks=marks[case])
        for case in marks
        for name in taking_part(case)
    ]
    return pytest.mark.parametrize(("case", "contestant"), each)


def selected(session: pytest.Session, case: str) -> list[str]:
    """Return the contestants of a case whose rows this run has."""
    rows = [item.callspec.params for item in session.items if "contestant" in item.fixturenames]
    return [row["contestant"] for row in rows if row["case"] == case]


# -- processes ---------------------------------------------------------------------------------------------------------


def run_module(module: str, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a module of this package in its own process."""
    command, env = [sys.executable, "-m", module, *arguments], os.environ | NO_TF32
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=ROOT, env=env, check=False)


class Worker:
    """A contestant in its own process, which answers one message after the other.

    With `threads` its libraries have as many threads and, where the system can say so, processors.
    """

    def __init__(self, contestant: str, threads: int | None = None, folder: str = "") -> None:
        env = os.environ | NO_TF32 | (dict.fromkeys(THREADS, str(threads)) if threads else {})
        command = [sys.executable, "-m", "benchmarks.contestant", contestant, *[folder] * bool(folder)]
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  (closed with the process)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self.errors, cwd=ROOT, env=env, text=True
        )
        self.pid, self.lines, self.cpus = self.process.pid, queue.SimpleQueue[str](), list[int]()
        if threads and hasattr(os, "sched_setaffinity"):
            self.cpus = sorted(os.sched_getaffinity(0))[-threads:]
            os.sched_setaffinity(self.pid, self.cpus)
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        """Pass on the lines that are answers, as libraries may print others; at the end an empty one."""
        for line in self.process.stdout:
            if line.startswith('{"outcome"') and line.endswith("\n"):
                self.lines.put(line)
        self.lines.put("")

    def ask(self, do: str, timeout: float, **message: Any) -> dict[str, Any]:
        """Return the answer to a message; "outcome" is "ok" or the reason of a failure."""
        try:
            print(json.dumps({"do": do} | message), file=self.process.stdin, flush=True)
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            answer = {"outcome": f"timeout after {timeout:.0f} s"}
        except OSError:
            answer = {"outcome": self._why_ended()}
        else:
            answer = json.loads(line) if line else {"outcome": self._why_ended()}
        return answer

    def _why_ended(self) -> str:
        status = self.process.wait()
        self.errors.seek(0)
        reason = (self.errors.read().splitlines() or ["no message"])[-1][:200]
        return f"killed by signal {-status}" if status < 0 else f"exit {status}: {reason}"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.listener.join()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            with suppress(OSError):  # of a message that was not read
                file.close()


# -- a contest ---------------------------------------------------------------------------------------------------------


@dataclass
class Contest:
    """All cases of one run: on a host by pairs, on a card each contestant in turn."""

    machine: dict[str, Any]  # see `benchmarks.machine`
    timeout: float = 600.0  # seconds for one answer
    deadline: float = float("inf")  # in `time.monotonic`: nothing begins after it, and nothing outlasts it
    late: str = NO_TIME  # the outcome of what would begin after it; with another one a timeout is no failure either
    # (case, contestant) -> fields of the case, outcome, memory, accuracy, facts, verdict, median, and the columns:
    # threads -> accepted seconds and CPU seconds, the ratio to the first contestant, all rounds with their readings.
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)  # contestant that this machine does not have -> reason
    ceilings: dict[str, Any] = field(default_factory=dict)  # see `benchmarks.ceilings`; of a card
    quick: bool = False
    rows_left: int = 0  # rows that share the time until the deadline
    workers: dict[tuple[str, int | None], Worker] = field(default_factory=dict)
    origins: dict[str, tuple[str, str]] = field(default_factory=dict)  # of contestants of other checkouts
    canaries: list[float] = field(default_factory=list)

    @property
    def least(self) -> int:
        return LEAST_PAIRS_QUICK if self.quick else LEAST_PAIRS

    def play(self, case: Case, contestants: Sequence[str]) -> list[Entry]:
        """Play a case; return its entries. Processes of contestants that it does not have end first."""
        self.close(but=contestants)
        entries = [self._enter(case, name) for name in contestants]
        if "gpu" in self.machine:
            for entry in entries:
                self._play_in_turn(case, entry)
            return entries
        is_quiet, cpus = self.play_column(case, entries, 1), self.machine.get("cpus", 1)
        if is_quiet and cpus > 1 and self.deadline == float("inf"):
            self.play_column(case, entries, cpus)
        return entries

    def close(self, but: Sequence[str] = ()) -> None:
        """End the processes of all contestants but these."""
        for key in [key for key in self.workers if key[0] not in but]:
            self.workers.pop(key).close()

    def _enter(self, case: Case, contestant: str) -> Entry:
        """Return an entry without seconds, kept in the record."""
        if reason := PEERS[contestant].why_absent():
            self.absent[contestant] = f"skipped: {reason}"
        no_data = why_absent(case.data)
        outcome = f"skipped: {no_data}" if no_data else self.absent.get(contestant, "ok")
        problem = asdict(case)
        del problem["contestants"]
        entry = {"case": problem.pop("name"), "contestant": contestant, **problem}
        entry |= {"seconds": [], "median": None, "outcome": outcome, "columns": {}}
        self.entries[case.name, contestant] = entry
        return entry

    # -- messages ------------------------------------------------------------------------------------------------------

    def _ask(self, entry: Entry, threads: int | None, do: str, **message: Any) -> dict[str, Any]:
        """Return the answer of a contestant's process of so many threads; a failure is the outcome of the entry."""
        is_late_check = do == "finish" and self.late != NO_TIME  # of what has been measured
        left = float("inf") if is_late_check else self.deadline - time.monotonic()
        timeout, key = min(self.timeout, left), (entry["contestant"], threads)
        if entry["outcome"] == "ok" and timeout < LEAST_SECONDS:
            entry["outcome"] = self.late
        if entry["outcome"] != "ok":
            return {}
        if key not in self.workers:
            name, folder = self.origins.get(key[0], (key[0], ""))
            self.workers[key] = Worker(name, threads, folder)
        answer = self.workers[key].ask(do, timeout, **message)
        entry["outcome"] = answer.pop("outcome")
        if entry["outcome"] != "ok":  # an error on a device can spoil all that follows in its process
            self.workers.pop(key).close()
        if entry["outcome"].startswith("skipped"):
            self.absent[entry["contestant"]] = entry["outcome"]
        elif entry["outcome"].startswith("timeout") and self.late != NO_TIME:
            entry["outcome"] = self.late if time.monotonic() >= self.deadline else f"skipped: {entry['outcome']}"
        return answer

    def _finish(self, entry: Entry, threads: int | None) -> None:
        """Add memory, facts and accuracy to an entry: those of the first column."""
        is_first = "residual" not in entry
        answer = self._ask(entry, threads, "finish", certify=is_first)
        if is_first:
            entry |= answer

    def _play_in_turn(self, case: Case, entry: Entry) -> None:
        """Let one contestant run a case on a card; none begins that would likely outlast the patience of the case."""
        self._ask(entry, None, "prepare", case=asdict(case))
        seconds: list[float] = entry["seconds"]
        while len(seconds) < case.repeats and (not seconds or sum(seconds) + seconds[-1] <= case.patience):
            if not (answer := self._ask(entry, None, "fit")):
                break
            seconds.append(answer["seconds"])
        self._finish(entry, None)
        entry["median"] = median(seconds) if seconds else None

    # -- pairs ---------------------------------------------------------------------------------------------------------

    def play_column(self, case: Case, entries: Sequence[Entry], threads: int) -> bool:
        """Play the first contestant beside every other one; return whether most rounds were accepted."""
        first, *peers = entries
        rounds: list[Round] = []
        own = self._prepare(case, first, threads)
        for peer in peers or [None]:
            pair, alone = [first], [own]
            if peer is not None:
                pair, alone = [first, peer], [own, self._prepare(case, peer, threads)]
            if all(entry["outcome"] == "ok" for entry in pair):
                rounds += self._play_cell(case, pair, alone, threads)
            elif peer is not None and peer["outcome"] == "ok":
                peer["outcome"] = f"skipped: {first['contestant']} has no figure"
            if peer is not None:
                self._finish(peer, threads)
            self.rows_left -= 1
        self._finish(first, threads)
        return bool(rounds) and sum(not one["discarded"] for one in rounds) >= QUIET * len(rounds)

    def _play_cell(self, case: Case, pair: Sequence[Entry], alone: Sequence[float], threads: int) -> list[Round]:
        """Keep the rounds of a pair, or of one contestant, in the column of the last of them; return the rounds."""
        found, once = self._rounds(case, pair, alone, threads)
        counted = [one for one in found if once or not one["discarded"]]
        for place, entry in enumerate(pair):
            column = entry["columns"].setdefault(str(threads), {"seconds": [], "cpu": [], "once": once})
            if once and not column["once"]:  # one of several peers takes too long
                continue
            if column["once"] and not once:
                column |= {"seconds": [], "cpu": [], "once": False}
            for name in ("seconds", "cpu"):
                column[name] += [one[name][place] for one in counted]
            is_settled = len(column["seconds"]) >= self.least
            if place:
                column["ratio"] = ratio_of([one["seconds"] for one in counted], self.least)
                is_settled = column["ratio"]["settled"]
            if threads == 1:
                entry["seconds"] = column["seconds"]
                entry["median"] = median(column["seconds"]) if is_settled and not column["once"] else None
        column["pairs"] = found
        return found

    def _prepare(self, case: Case, entry: Entry, threads: int) -> float:
        """Let a contestant prepare a case and run it once, to its end; return the seconds."""
        self._ask(entry, threads, "prepare", case=asdict(case))
        return self._ask(entry, threads, "fit").get("seconds", 0.0)

    def _rounds(
        self, case: Case, pair: Sequence[Entry], alone: Sequence[float], threads: int
    ) -> tuple[list[Round], bool]:
        """Return rounds until enough are accepted and their ratio settles, or the time of the cell is over.

        And whether there is a single one, because the cell would take too long.
        """
        calls = [min(MOST_CALLS, ceil(READING_SECONDS / max(seconds, 1e-6))) for seconds in alone]
        expected = self.least * sum(seconds * times for seconds, times in zip(alone, calls, strict=True))
        patience = min(max(REPEATS * expected, LEAST_PATIENCE), LONGEST_CELL)
        if self.quick:
            patience = min(patience, (self.deadline - time.monotonic()) / max(1, self.rows_left + 1))
        is_far = self.late != NO_TIME and alone[-1] > max(FAR_SECONDS, FAR_TIMES * alone[0])
        once, end = is_far or expected > min(self.timeout, LONGEST_CELL), time.monotonic() + patience
        # A round may follow, after two other processes have begun.
        end = min(end, self.deadline - LEAST_SECONDS * (1 if self.quick else 3) - 2.0 * expected / self.least)
        found: list[Round] = []
        while time.monotonic() < end and not (once and found):
            if found and len(found) % ROUNDS_OF_PROCESS == 0 and not self.quick and sum(alone) < LONG_FITS:
                self._renew(case, pair, threads)
            if not (one := self._round(pair, calls, threads)):
                break
            found.append(one)
            accepted = [one["seconds"] for one in found if not one["discarded"]]
            if len(accepted) >= self.least and (len(pair) == 1 or ratio_of(accepted, self.least)["settled"]):
                break
            if not accepted and len(found) >= REPEATS * self.least:  # something else uses the machine all the time
                break
        return found, once and bool(found)

    def _renew(self, case: Case, pair: Sequence[Entry], threads: int) -> None:
        """Let other processes of the same contestants go on."""
        for entry in pair:
            if worker := self.workers.pop((entry["contestant"], threads), None):
                worker.close()
            self._prepare(case, entry, threads)

    def _round(self, pair: Sequence[Entry], calls: Sequence[int], threads: int) -> Round:
        """Return one fit of each, in random order, with its readings; nothing where one fails."""
        order = random.sample(range(len(pair)), len(pair))
        fits: dict[int, dict[str, Any]] = {}
        for place in order:
            self.canaries.append(self._canary.seconds())
            if not (worker := self.workers.get((pair[place]["contestant"], threads))):  # it failed
                return {}
            before = counters(worker.pid, worker.cpus)
            answer = self._ask(pair[place], threads, "fit", calls=calls[place])
            if not answer:
                return {}
            after, count = counters(worker.pid, worker.cpus), len(worker.cpus) or self.machine.get("cpus", 1)
            reading = between(before, after, count)
            reading = {"calls": calls[place], "canary": round(self.canaries[-1], 5)} | reading
            fits[place] = answer | {"reading": reading}
        made = [fits[place] for place in range(len(pair))]
        reasons = [why_discarded(fit["reading"], self.canaries) for fit in made]
        return {
            **{name: [fit[name] for fit in made] for name in ("seconds", "cpu", "reading")},
            "first": pair[order[0]]["contestant"],
            "discarded": ", ".join(filter(None, reasons)),
        }

    @cached_property
    def _canary(self) -> Canary:
        bird = Canary()
        self.canaries += [bird.seconds() for _ in range(CANARIES)]
        return bird

    def record(self) -> dict[str, Any]:
        """Return what `benchmarks.report` reads: machine, ceilings, and the played entries."""
        return {"machine": self.machine, "ceilings": self.ceilings, "entries": list(self.entries.values())}


# -- promises ----------------------------------------------------------------------------------------------------------


def is_figure(entry: Entry) -> bool:
    """Return whether there are seconds to show, or a promise is broken, because there should be."""
    promised = PEERS[entry["contestant"]].is_promised and not entry["outcome"].startswith("skipped")
    return bool(entry["seconds"]) or entry["outcome"] == NO_TIME or (promised and entry["outcome"] != "ok")


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
