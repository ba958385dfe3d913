"""What a run leaves: a folder of tables and figures, and pages that only --publish writes."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are not part of the package")

import gpukpca
from benchmarks import conftest, contest, contestant, contestants, figures, machine, peers, publish, report
from benchmarks.cases import BY_NAME, CASES, GROWTH, Case
from benchmarks.gpu_cases import SWEEPS
from benchmarks.peers import taking_part

ON_CARD = [case for cases in SWEEPS.values() for case in cases]
EVERY = [*(case for cases in GROWTH.values() for case in cases), *CASES]
ROOT = Path(__file__).resolve().parents[2]
MACHINE = {"date": "today", "cpu": "a host", "cpus": 2, "blas_threads": 2, "python": "3.11", "gpukpca": "1.2.0 (abc)"}


def entries_of(*cases: Case) -> list[dict[str, Any]]:
    """Return an entry for every contestant of the cases; one of them failed, another is absent."""
    found = []
    for case in cases:
        for place, who in enumerate(taking_part(case)):
            seconds = 1e-7 * case.n * case.p * (1 + place)
            entry = asdict(case) | {"case": case.name, "contestant": who, "outcome": "ok", "facts": {}}
            entry |= {"seconds": [seconds], "median": seconds, "peak_mib": case.n / 100, "device_mib": None}
            ratio = {"value": 1.0 + place, "low": 0.98 + place, "high": 1.02 + place, "pairs": 9, "settled": True}
            entry["columns"] = {"1": {"seconds": [seconds], "cpu": [seconds], "once": False, "pairs": []}}
            entry["columns"]["1"] |= {"ratio": ratio} if place else {}
            found.append(entry | {"residual": 1e-3 / (1 + case.rank) if "Nystr" in who else 1e-7})
    for place, outcome in (
        (1, "MemoryError: 90 % of x_1 & more | ü"),
        (-1, "skipped: falkon is not installed: pip install falkon"),
    ):
        for name in ("peak_mib", "device_mib", "residual"):  # which an entry has after its first figure
            del found[place][name]
        found[place] |= {"outcome": outcome, "median": None, "seconds": [], "columns": {}}
    return found


GROWING = [case for family in ("growth-n", "growth-pca-n") for case in GROWTH[family, "n"][:2]]
RECORD = {
    "machine": MACHINE,
    "ceilings": {},
    "entries": entries_of(CASES[0], *GROWING, *GROWTH["growth-p", "p"][:2], *GROWTH["accuracy", "rank"][:2]),
}


# -- the folder --------------------------------------------------------------------------------------------------------


def test_a_run_leaves_tables_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    record = RECORD | {"entries": entries_of(*GROWTH["growth-p", "p"][:2], *GROWTH["accuracy", "rank"][:2])}
    (tmp_path / "record.json").write_text(json.dumps(record), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["report", str(tmp_path / "record.json"), "--folder", str(tmp_path)])
    report.main()
    texts = {name: (tmp_path / name).read_text(encoding="utf-8") for name in ("tables.md", "table.tex", "table.csv")}
    for name, text in (texts | {"terminal": capsys.readouterr().out}).items():
        assert "sklearn randomized" in text, name
        assert "MemoryError" in text, name
        assert ("pip install falkon" in text) == (name != "table.tex"), name
        assert ("3.0 (3.0" in text) == (name != "table.csv"), name
    assert r" & MemoryError: 90 \% of x\_1 \& more $|$ ? & " in texts["table.tex"]
    assert "9 pairs" in texts["table.tex"]
    header, *rows = csv.reader(texts["table.csv"].splitlines())
    assert len(rows) == len(record["entries"])
    first, third = (dict(zip(header, rows[place], strict=True)) for place in (0, 2))
    assert first["median"] == first["CPU s, one thread"] == str(record["entries"][0]["median"])
    assert [third[f"{name}, one thread"] for name in ("value", "low", "pairs", "settled")] == [
        "3.0",
        "2.98",
        "9",
        "True",
    ]
    assert third["value, all threads"] == ""
    for file in ("time_p.png", "time_accuracy.png"):
        assert (tmp_path / file).read_bytes().startswith(b"\x89PNG")


def test_rows_that_do_not_settle_say_so_and_have_no_seconds() -> None:
    first, second, *_ = entries_of(CASES[0])[2:]
    second["median"] = None
    second["columns"]["1"]["ratio"] |= {"low": 1.1, "settled": False}
    assert report.contestant_row(second, first)[1] == "not settled (1.1–4.0), 9 pairs"
    assert report.contestant_row(second, first)[3] == "not settled"
    assert report.sweep_cell(second).startswith("not settled (1.1–4.0), 9 pairs; ")
    second["columns"]["1"] |= {"once": True, "seconds": [700.0], "cpu": [650.0]}
    second["seconds"] = [700.0]
    assert report.contestant_row(second, first)[1:5] == ["one run", "", "700 s (one run)", "650 s (one run)"]
    assert report.sweep_cell(second).startswith("700 s (one run); ")


def test_figures_have_a_line_for_each_contestant_that_ran_and_tell_cards_apart() -> None:
    card = [entry | {"device_mib": 5.0} if entry["contestant"] == "gpukpca" else entry for entry in RECORD["entries"]]
    found = figures.panels_of(RECORD | {"entries": card})
    assert {name: len(panels) for name, panels in found.items()} == dict(
        zip(figures.FIGURES, (2, 1, 1, 2), strict=True)
    )
    kernel, linear = found["time_n.png"]
    assert set(kernel.lines) == {(who, who == "gpukpca") for who in taking_part(GROWING[0])}
    assert [len(points) for points in linear.lines.values()] == [2] * len(linear.lines)
    (accuracy,) = found["time_accuracy.png"]
    assert re.search(r"; ranks \d+ to \d+ from right to left$", accuracy.title)
    assert len(accuracy.lines["gpukpca, Nystrom", False]) == 2
    assert len(accuracy.lines["sklearn arpack, matched", False]) == 1
    assert figures.spread([0.1, 0.1, 0.99, 1.2]) == pytest.approx(
        [0.1, 0.1 + figures.LABEL_GAP, 1 - figures.LABEL_GAP, 1]
    )


def test_quick_selects_small_sizes_of_the_host() -> None:
    items = {
        case.name: [SimpleNamespace(name=name) for name in ["large"] * case.large + ["quick"] * bool(case.quick_n)]
        for case in EVERY
    }
    left = [SimpleNamespace(name=name, iter_markers=lambda marks=marks: marks) for name, marks in items.items()]
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    config = SimpleNamespace(getoption=lambda name: name == "--quick", hook=hook)
    conftest.pytest_collection_modifyitems(config, left)
    chosen = {item.name for item in left}
    assert chosen == {case.name for case in EVERY if case.quick_n}
    assert {"growth-n-1000", "growth-pca-n-2000", "growth-p-2", "accuracy-rank-50"} <= chosen
    assert "growth-n-5000" not in chosen


def test_a_limit_of_time_takes_the_table_of_the_front_page_first_and_small_sizes_before_large_ones() -> None:
    items = [SimpleNamespace(callspec=SimpleNamespace(params={"case": case.name}), iter_markers=list) for case in EVERY]
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    for seconds in (None, 1500.0):
        options = {"--seconds": seconds, "--large": True, "--gpu": False, "--quick": False}
        left = list(items)
        conftest.pytest_collection_modifyitems(SimpleNamespace(getoption=options.__getitem__, hook=hook), left)
        if seconds is None:
            assert left == items
    names = [item.callspec.params["case"] for item in left]
    assert names[: len(publish.SUMMARY)] == list(publish.SUMMARY)
    others = [BY_NAME[name] for name in names[len(publish.SUMMARY) :]]
    cases, sweeps = (
        [case.n for case in others if (case.name in report.SWEPT) == is_swept] for is_swept in (False, True)
    )
    assert [case.n for case in others] == [*sorted(cases), *sorted(sweeps)]


DRAWN = next(case for case in CASES if case.data == "gaussian")  # its data are never absent


class Late:
    """A process that answers too late."""

    pid = 1

    def __init__(self, *_: Any) -> None:
        pass

    def ask(self, do: str, timeout: float, **_: Any) -> dict[str, Any]:
        return {"outcome": f"timeout after {timeout:.0f} s"}

    def close(self) -> None:
        pass


def test_late_contestants_of_a_quick_run_are_left_out_and_do_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "Worker", Late)
    for deadline, reason in ((0.0, "130 s were over"), (float("inf"), "timeout after 15 s")):
        record = contest.Contest({}, 15.0, deadline, late="skipped: 130 s were over")
        (entry,) = record.play(DRAWN, ["gpukpca"])
        contest.check(DRAWN, entry)
        assert not contest.is_figure(entry)
        assert report.left_out([entry]) == f"- left out: gpukpca ({reason})"
    (entry,) = contest.Contest({}).play(DRAWN, ["gpukpca"])
    with pytest.raises(AssertionError, match="timeout"):
        contest.check(DRAWN, entry)
    # With figures of other cases it is named with the case.
    elsewhere, late = {"contestant": "gpukpca", "case": "b", "outcome": "ok"}, "timeout after 15 s"
    entry |= {"outcome": f"skipped: {late}"}
    assert report.left_out([entry, elsewhere]) == f"- left out: gpukpca in {DRAWN.name} ({late})"


def test_a_case_without_data_is_in_the_record_and_named_by_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUKPCA_DATA", str(tmp_path))
    case = next(case for case in CASES if case.data == "mnist")
    record = contest.Contest({})
    entries = record.play(case, taking_part(case)[:2])
    assert record.record()["entries"] == entries
    reason = "no data of mnist: set GPUKPCA_DATA to the folder that holds mnist/mnist.npz"
    assert report.left_out(entries) == f"- left out: {case.name} ({reason})"


def test_a_module_that_the_library_lacks_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = {"falkon": "skipped: ", "gpukpca.gram.lost": "ModuleNotFoundError: "}
    for name, outcome in outcomes.items():

        def build(case: Case, name: str = name) -> None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        monkeypatch.setitem(peers.PEERS, "gpukpca", peers.Peer(build))
        answer = contestant.Player("gpukpca").answer("prepare", case=asdict(DRAWN))
        assert answer["outcome"] == f"{outcome}No module named {name!r}"


def test_a_run_on_the_host_is_no_record_of_the_card_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "device", lambda: {"gpu": "a card"})
    assert publish.kind_of({"machine": machine.machine()}) == "host"


# -- a new contestant --------------------------------------------------------------------------------------------------


def test_the_page_of_the_guide_adds_a_contestant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    (page,) = re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL)
    assert len(page.splitlines()) <= 15
    (tmp_path / "a_new_page.py").write_text(page, encoding="utf-8")
    monkeypatch.setattr(contestants, "__path__", [str(tmp_path)])
    ((name, peer),) = contestants.of_all_pages().items()
    monkeypatch.setitem(peers.PEERS, name, peer)
    case = next(case for case in GROWTH["growth-pca-n", "n"])
    assert name in taking_part(case)
    with pytest.raises(ValueError, match=r"a_new_page\.py: sklearn IncrementalPCA is the name of another contestant"):
        contestants.check_apart("a_new_page", [name], peers.PEERS)
    small = Case(case.name, case.contestants, case.data, 200, 10, "float64", p=3, task="axes")
    assert played(name, small)["residual"] < 1e-12  # by the one script that judges all
    monkeypatch.setitem(peers.PEERS, name, peers.Peer(lambda case: Turned(peer.build(case)), kernels=("rbf",)))
    assert played(name, small)["residual"] > 0.01
    monkeypatch.setitem(peers.PEERS, name, peers.Peer(peer.build, package="no-such-package"))
    (entry,) = contest.Contest({}).play(small, [name])
    assert entry["outcome"] == "skipped: no-such-package is not installed: pip install no-such-package"


def played(name: str, case: Case) -> dict[str, Any]:
    """Return the answer of a contestant in this process."""
    player = contestant.Player(name)
    for step in ({"do": "prepare", "case": asdict(case)}, {"do": "fit"}):
        assert player.answer(**step)["outcome"] == "ok"
    return player.answer("finish", certify=True)


class Turned:
    """A model whose components are in a wrong order."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: Any) -> Turned:
        self.model.fit(X)
        self.components_, self.explained_variance_ = self.model.components_[::-1], self.model.explained_variance_
        self.singular_values_ = self.model.singular_values_
        return self


def test_absent_libraries_are_named_with_the_command_that_brings_them() -> None:
    for name, peer in contestants.PEERS.items():
        assert peer.package, name
        reason = peer.why_absent()
        assert reason is None or reason.startswith(f"{peer.package} is not installed: pip install "), name
        joins = bool(peer.joins) and any(case.name.startswith(peer.joins) for case in (*EVERY, *ON_CARD))
        assert joins or any(name in case.contestants for case in CASES) or "CUDA" in name, name


# -- publishing --------------------------------------------------------------------------------------------------------


def whole_record() -> dict[str, Any]:
    return RECORD | {"entries": entries_of(*EVERY)}


def test_a_record_without_pairs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    for entries in ([{"case": "a", "median": 1.0}], None):
        path.write_text(json.dumps({"entries": entries} if entries else {}), encoding="utf-8")
        with pytest.raises(SystemExit, match=r"old\.json is no record of ci/bench\.sh: ") as refused:
            report.read([path])
        assert ("before version 0.21" in str(refused.value)) == bool(entries)


def test_a_part_of_the_cases_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = whole_record()
    (tmp_path / "part.json").write_text(json.dumps(RECORD), encoding="utf-8")
    (tmp_path / "other.json").write_text(json.dumps(whole), encoding="utf-8")
    publish.check_whole(whole)
    for cases, lacking in (
        (["part.json"], "lacks gaussian-10000, .* growth-d, PCA, searches. Run bash"),
        (["part.json", "other.json"], "several records of a host"),
    ):
        monkeypatch.setattr(sys, "argv", ["publish", *(str(tmp_path / case) for case in cases), "--to", str(tmp_path)])
        with pytest.raises(SystemExit, match=lacking):
            publish.main()
    without = [e | {"columns": {}} if e["case"] == "mnist-10000" else e for e in whole["entries"]]
    with pytest.raises(SystemExit, match=r"lacks mnist-10000\. Run"):
        publish.check_whole(whole | {"entries": without})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.json", "part.json"]


def test_a_record_that_has_settled_fills_the_pages() -> None:
    for page, parts in publish.sections([whole_record()]).items():
        text = (ROOT / page).read_text(encoding="utf-8")
        for name, section in parts.items():
            assert section not in ("", publish.NONE_YET), name
            text = publish.with_section(text, name, section, page)
        assert page != "README.md" or len(text.splitlines()) <= 160
        rows = 0 if page == "docs/index.md" else len(publish.SUMMARY) - 2  # one failed, one is alone
        assert text.count("9 pairs") >= rows
    unsettled = [entry | {"median": None} for entry in whole_record()["entries"]]
    for parts in publish.sections([RECORD | {"entries": unsettled}]).values():
        assert set(parts.values()) == {publish.NONE_YET}


def minor(version: str) -> tuple[int, int]:
    major, number = version.split(".")[:2]
    return int(major), int(number)


def is_current(recorded: str, version: str) -> bool:
    """Return whether a record is of the version that ships, or of one minor version beside it."""
    (major, now), (then_major, then) = minor(version), minor(recorded)
    return major == then_major and abs(now - then) <= 1


def test_the_published_figures_are_of_the_version_that_ships() -> None:
    published = publish.of_host(publish.kept().values())
    assert is_current(published["machine"]["gpukpca"], gpukpca.__version__)
    assert published["benchmarks"], "no file of pytest-benchmark"


def test_a_record_is_current_within_one_minor_version() -> None:
    assert [is_current(f"{v} (abc)", "1.3.1") for v in ("1.2.9", "1.3.0", "1.4.0", "1.1.0", "1.5.0", "0.3.0")] == [
        *[True] * 3,
        *[False] * 3,
    ]


# In place of Python: notes its arguments, and writes the record.
STAND_IN = """#!/usr/bin/env bash
echo "$*" >>"$CALLS"
while [ $# -gt 0 ]; do [ "$1" != --record ] || echo '{}' >"$2"; shift; done
"""


def test_one_command_makes_the_folder_and_only_publish_writes_pages(tmp_path: Path) -> None:
    for name, text in (("python", STAND_IN), ("git", '#!/bin/sh\n[ -z "${DIRTY:-}" ] || echo "?? a_page.py"\n')):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    copy = tmp_path / "checkout"
    (copy / "ci").mkdir(parents=True)
    for name in ("bench.sh", "environment.sh"):
        (copy / "ci" / name).write_text((ROOT / "ci" / name).read_text(encoding="utf-8"), encoding="utf-8")

    def run(*options: str, **more: str) -> tuple[int, str, str]:
        calls = tmp_path / "calls"
        calls.write_text("", encoding="utf-8")
        paths = {"PYTHON": str(tmp_path / "python"), "CALLS": str(calls)}
        env = os.environ | paths | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"} | more
        command = ["bash", str(copy / "ci" / "bench.sh"), *options]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, calls.read_text(encoding="utf-8")

    status, output, calls = run("--quick")
    folder = Path(output.splitlines()[-1])
    assert status == 0
    assert folder.parent == copy / ".benchmarks"
    assert f"-m benchmarks.report {folder}/record.json --folder {folder}" in calls
    assert "benchmarks.publish" not in calls
    assert "--benchmark-quiet" in calls
    assert "--benchmark-quiet" not in run("--benchmark-compare")[2]
    status, output, calls = run("--publish")
    assert status == 0
    assert " --large " in calls
    assert f"-m benchmarks.publish {Path(output.splitlines()[-1])}/record.json\n-m benchmarks.plan_tables\n" in calls
    assert run("--publish", DIRTY="1")[0] == 1
    assert run("--against", "main", "--quick")[2].endswith("-m benchmarks.against main --quick\n")
    assert run("--publish", "--record", "r.json")[0] == 2
    assert "benchmarks.report" not in run("--record", str(tmp_path / "r.json"))[2]
