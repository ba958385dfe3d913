"""Options, and the fixtures through which every benchmark runs."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases import Case
from benchmarks.contest import Contest, check, is_figure, replay, run_module, selected
from benchmarks.datasets import why_absent
from benchmarks.machine import machine
from benchmarks.report import ceiling_table, verdict_table
from benchmarks.verdicts import Target, judged

CARD_SECONDS = 180.0
CONTEST: pytest.StashKey[Contest] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpukpca")
    group.addoption("--large", action="store_true", help="also the cases that take minutes")
    group.addoption("--contestant-timeout", type=float, default=600.0, metavar="SECONDS", help="for one process (600)")
    group.addoption("--memory-limit", type=float, metavar="GIB", help="address space for the timed part (no limit)")
    group.addoption("--gpu", action="store_true", help="the cases on a card, and no others")
    group.addoption("--quick", action="store_true", help="with --gpu: small sizes, whose targets are not judged")
    group.addoption("--ceilings", type=Path, metavar="FILE", help="with --gpu: a JSON file of this card that has them")
    group.addoption("--seconds", type=float, metavar="SECONDS", help="for all of it; cases that begin later fail")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "large: takes minutes; only with --large")
    config.addinivalue_line("markers", "gpu: on a card; only with --gpu")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    gpu, large = config.getoption("--gpu"), config.getoption("--large")
    selected = [
        item
        for item in items
        if bool(item.get_closest_marker("gpu")) == gpu and (large or not item.get_closest_marker("large"))
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in selected])
    items[:] = selected


def pytest_benchmark_update_json(config: pytest.Config, benchmarks: Any, output_json: dict[str, Any]) -> None:
    """Add what `benchmarks.report` reads: the machine, its ceilings, and all contestants, also those without a row."""
    if (contest := config.stash.get(CONTEST, None)) is not None:
        output_json |= contest.record()


@pytest.fixture(scope="session")
def contest(pytestconfig: pytest.Config) -> Contest:
    """Return the contest of this run, which `--benchmark-json` writes."""
    about = machine() | (described_card() if pytestconfig.getoption("--gpu") else {})
    print("\n" + ", ".join(f"{key} {value}" for key, value in about.items()))
    gib, seconds = pytestconfig.getoption("--memory-limit"), pytestconfig.getoption("--seconds")
    contest = Contest(
        about,
        pytestconfig.getoption("--contestant-timeout"),
        None if gib is None else int(gib * 2**30),
        float("inf") if seconds is None else time.monotonic() + seconds,
    )
    pytestconfig.stash[CONTEST] = contest
    return contest


@pytest.fixture
def show_row(benchmark: Any, contest: Contest) -> Callable[[Case, str], None]:
    """``show_row(case, contestant)``: the row of an entry in the table; promises are asserted, speed never is.

    A peer without a figure is skipped with its reason.
    """

    def show(case: Case, contestant: str) -> None:
        entry = contest.entries[case.name, contestant]
        if not is_figure(entry):
            pytest.skip(entry["outcome"])
        benchmark.group = case.name
        benchmark.extra_info |= {name: entry.get(name) for name in ("residual", "peak_mib", "device_mib", "facts")}
        replay(benchmark, entry["seconds"], lambda: check(case, entry))

    return show


@pytest.fixture
def play(
    show_row: Callable[[Case, str], None], contest: Contest, request: pytest.FixtureRequest
) -> Callable[..., None]:
    """``play(case, contestant)``: all rounds of all contestants at the first row of a case; then the row.

    With ``target=`` and ``planned_n=`` the verdict too, on the first contestant of the case if it was selected.
    """

    def run(case: Case, contestant: str, target: Target | None = None, planned_n: int = 0) -> None:
        if reason := why_absent(case.data):
            pytest.skip(reason)
        if (case.name, contestant) not in contest.entries:
            entries = contest.play(case, selected(request.session, case.name))
            if target is not None and entries[0]["contestant"] == case.contestants[0]:
                entries[0]["verdict"] = judged(target, planned_n, case, entries, contest.ceilings)
                print(f"\n{verdict_table(entries[:1])}")
        show_row(case, contestant)

    return run


# -- on a card ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def card(contest: Contest, pytestconfig: pytest.Config) -> dict[str, dict[str, Any]]:
    """Return the ceilings of the card: measured first of all, or read from a record of the same card.

    Those that cannot be measured are missing, and verdicts that need them say so.
    """
    path = pytestconfig.getoption("--ceilings")
    if path is not None:
        contest.ceilings = ceilings_of(json.loads(path.read_text()), contest.machine["gpu"])
    else:
        contest.ceilings = measured_ceilings(["--quick"] * pytestconfig.getoption("--quick"))
    print(f"\n{ceiling_table(contest.ceilings)}")
    return contest.ceilings


def described_card() -> dict[str, Any]:
    """Return what ``benchmarks.machine --card`` prints in its own process; without a card the session ends."""
    done = run_module("benchmarks.machine", "--card", timeout=CARD_SECONDS)
    if done.returncode:
        pytest.exit((done.stderr.splitlines() or ["benchmarks.machine --card failed."])[-1], returncode=1)
    return json.loads(done.stdout.splitlines()[-1])


def measured_ceilings(arguments: list[str]) -> dict[str, dict[str, Any]]:
    """Return what `benchmarks.ceilings` prints in its own process."""
    try:
        done = run_module("benchmarks.ceilings", *arguments, timeout=CARD_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"\nthe ceilings of the card took more than {CARD_SECONDS:g} s")
        return {}
    print("\n" + done.stderr)
    return {} if done.returncode else json.loads(done.stdout.splitlines()[-1])


def ceilings_of(record: dict[str, Any], gpu: str) -> dict[str, dict[str, Any]]:
    """Return the ceilings of a record, if it is one of this card."""
    if record["machine"].get("gpu") != gpu:
        raise pytest.UsageError(f"--ceilings: a record of {record['machine'].get('gpu')}, and this is {gpu}.")
    return record["ceilings"]
