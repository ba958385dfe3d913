"""Options, and the fixture through which every benchmark runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases import Case
from benchmarks.contest import Contest, shown
from benchmarks.datasets import why_absent
from benchmarks.machine import machine
from benchmarks.peers import PEERS


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpukpca")
    group.addoption("--large", action="store_true", help="also the cases that take minutes")
    group.addoption("--record", type=Path, metavar="FILE", help="write a JSON record for benchmarks.report")
    group.addoption("--timeout", type=float, default=600.0, metavar="SECONDS", help="for one process (600)")
    group.addoption("--memory-limit", type=float, metavar="GIB", help="address space for what is timed (no limit)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "large: takes minutes; only with --large")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--large"):
        return
    large = [item for item in items if item.get_closest_marker("large")]
    config.hook.pytest_deselected(items=large)
    items[:] = [item for item in items if item not in large]


@pytest.fixture(scope="session")
def contest(pytestconfig: pytest.Config) -> Contest:
    """The record of this run."""
    about = machine()
    print("\n" + ", ".join(f"{key} {value}" for key, value in about.items()))
    gib = pytestconfig.getoption("--memory-limit")
    return Contest(about, pytestconfig.getoption("--timeout"), None if gib is None else int(gib * 2**30))


@pytest.fixture
def play(benchmark: Any, contest: Contest, pytestconfig: pytest.Config) -> Callable[[Case], None]:
    """``play(case)``: all rounds of all contestants; then what gpukpca promises is asserted. Speed never is."""

    def run(case: Case) -> None:
        if reason := why_absent(case.data):
            pytest.skip(reason)
        entries = contest.enter(case)
        benchmark.pedantic(contest.play_round, args=(case, entries), rounds=case.rounds)
        benchmark.extra_info.update({"machine": contest.machine, "entries": entries})
        print(f"\n{case.name}\n{shown(entries)}")
        if pytestconfig.getoption("--record"):
            contest.save(pytestconfig.getoption("--record"))
        for entry in entries:
            if PEERS[entry["contestant"]].certified and not entry["outcome"].startswith("skipped"):
                check(case, entry)
        if case.most_mib and entries[0]["total_mib"] is not None:
            assert entries[0]["total_mib"] < case.most_mib

    return run


def check(case: Case, entry: dict[str, Any]) -> None:
    """The promise of a certified contestant: it ends, and its error is near the tolerance."""
    assert entry["outcome"] == "ok", entry["contestant"]
    assert entry["residual"] <= 3 * case.tol, entry["contestant"]
