"""Options, and the fixtures through which every benchmark runs."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases import BY_NAME, Case
from benchmarks.contest import (
    LEAST_ANSWERS,
    LEAST_TIMEOUT,
    QUICK_SECONDS,
    Contest,
    check,
    is_figure,
    replay,
    run_module,
    selected,
)
from benchmarks.machine import machine
from benchmarks.publish import SUMMARY
from benchmarks.report import SWEPT, ceiling_table, verdict_table
from benchmarks.verdicts import Target, judged

CEILING_SECONDS = 180.0
QUICK_CEILINGS = 20.0
CONTEST: pytest.StashKey[Contest] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpukpca")
    group.addoption("--large", action="store_true", help="also the cases that take minutes")
    group.addoption("--contestant-timeout", type=float, default=600.0, metavar="SECONDS", help="for one answer (600)")
    group.addoption("--gpu", action="store_true", help="the cases on a card, and no others")
    group.addoption("--quick", action="store_true", help="small sizes; targets of a card are not judged")
    group.addoption("--ceilings", type=Path, metavar="FILE", help="a record of this machine that has its rates")
    group.addoption("--record", type=Path, metavar="FILE", help="write the record for benchmarks.report")
    group.addoption("--seconds", type=float, help="for all of it; what would begin later is left out, on a card fails")


def pytest_configure(config: pytest.Config) -> None:
    if (file := config.getoption("--record")) is not None and not file.parent.is_dir():
        raise pytest.UsageError(f"--record: there is no folder {file.parent}.")
    config.addinivalue_line("markers", "large: takes minutes; only with --large")
    config.addinivalue_line("markers", "quick: has a small size; the only cases of the host with --quick")
    config.addinivalue_line("markers", "gpu: on a card; only with --gpu")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    gpu, large, quick = (config.getoption(f"--{name}") for name in ("gpu", "large", "quick"))

    def is_chosen(item: pytest.Item) -> bool:
        marks = {mark.name for mark in item.iter_markers()}
        if ("gpu" in marks) != gpu:
            return False
        return "quick" in marks if quick and not gpu else large or "large" not in marks

    chosen = [item for item in items if is_chosen(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen if gpu or not config.getoption("--seconds") else sorted(chosen, key=importance)


def importance(item: pytest.Item) -> tuple[int, bool, int]:
    """Return what sorts the rows of a limited time: README's table, then other cases, then sweeps, by their size."""
    name = item.callspec.params["case"]
    place = SUMMARY.index(name) if name in SUMMARY else len(SUMMARY)
    return place, name in SWEPT, BY_NAME[name].n


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what `benchmarks.report` reads, in a file of pytest-benchmark.

    Its own option writes nothing where no contestant had a figure, and those without one are part of a record.
    """
    config, contest = session.config, session.config.stash.get(CONTEST, None)
    if (file := config.getoption("--record")) is not None and contest is not None:
        found = config.hook.pytest_benchmark_generate_json(
            config=config,
            benchmarks=[row for row in config._benchmarksession.benchmarks if row],
            include_data=True,
            machine_info=contest.machine,
            commit_info={"id": contest.machine["gpukpca"]},
        )
        file.write_text(json.dumps(found | contest.record(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def contest(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Iterator[Contest]:
    """Yield the contest of this run, which `--record` writes; the rates of a card are measured first of all.

    With ``--ceilings`` they are read. Those that cannot be measured are missing, and verdicts that need them say so.
    """
    option, started = pytestconfig.getoption, time.monotonic()
    about = machine() | (described_card() if option("--gpu") else {})
    print("\n" + ", ".join(f"{key} {value}" for key, value in about.items()))
    rates: dict[str, dict[str, Any]] = {}
    if option("--ceilings") is not None:
        rates = ceilings_of(json.loads(option("--ceilings").read_text(encoding="utf-8")), about)
    elif option("--gpu"):
        rates = measured_ceilings(option("--quick"))
    print(f"\n{ceiling_table(rates)}")
    seconds, timeout = option("--seconds") or float("inf"), option("--contestant-timeout")
    contest = Contest(about, timeout, ceilings=rates, quick=option("--quick"), rows_left=len(request.session.items))
    if option("--quick") and not option("--gpu"):
        seconds = min(seconds, QUICK_SECONDS)
    if seconds < float("inf") and not option("--gpu"):
        contest.late = f"skipped: not run: {seconds:g} s were over"
        contest.timeout = min(timeout, max(LEAST_TIMEOUT, seconds / LEAST_ANSWERS))
    contest.deadline = started + seconds
    pytestconfig.stash[CONTEST] = contest
    yield contest
    contest.close()


@pytest.fixture
def play(benchmark: Any, contest: Contest, request: pytest.FixtureRequest) -> Callable[..., None]:
    """``play(case, contestant)``: all contestants at the first row of a case; then the row.

    Promises are asserted, speed never is; a peer without a figure is skipped with its reason. With ``target=`` and
    ``planned_n=`` the verdict too, on the first contestant of the case if it was selected.
    """

    def run(case: Case, contestant: str, target: Target | None = None, planned_n: int = 0) -> None:
        if (case.name, contestant) not in contest.entries:
            entries = contest.play(case, selected(request.session, case.name))
            if target is not None and entries[0]["contestant"] == case.contestants[0]:
                entries[0]["verdict"] = judged(target, planned_n, case, entries, contest.ceilings)
                print(f"\n{verdict_table(entries[:1])}")
        entry = contest.entries[case.name, contestant]
        if not is_figure(entry):
            check(case, entry)
            pytest.skip("no fit was accepted" if entry["outcome"] == "ok" else entry["outcome"])
        benchmark.group = case.name
        benchmark.extra_info |= {name: entry.get(name) for name in ("residual", "peak_mib", "device_mib", "facts")}
        replay(benchmark, entry["seconds"], lambda: check(case, entry))

    return run


# -- the machine -------------------------------------------------------------------------------------------------------


def described_card() -> dict[str, Any]:
    """Return what ``benchmarks.machine --card`` prints in its own process; without a card the session ends."""
    done = run_module("benchmarks.machine", "--card", timeout=CEILING_SECONDS)
    if done.returncode:
        pytest.exit((done.stderr.splitlines() or ["benchmarks.machine --card failed."])[-1], returncode=1)
    return json.loads(done.stdout.splitlines()[-1])


def measured_ceilings(is_quick: bool) -> dict[str, dict[str, Any]]:
    """Return what `benchmarks.ceilings` prints in its own process, within a limit of time."""
    patience = QUICK_CEILINGS if is_quick else CEILING_SECONDS
    try:
        done = run_module("benchmarks.ceilings", *["--quick"] * is_quick, timeout=patience)
    except subprocess.TimeoutExpired:
        print(f"\nthe ceilings took more than {patience:g} s")
        return {}
    print("\n" + done.stderr)
    return {} if done.returncode else json.loads(done.stdout.splitlines()[-1])


def ceilings_of(record: dict[str, Any], about: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the ceilings of a record, if it is one of this card."""
    named, here = record["machine"].get("gpu"), about.get("gpu")
    if named is None or named != here:
        raise pytest.UsageError(f"--ceilings: a record of the card {named}, and the card of this run is {here}.")
    return record["ceilings"]
