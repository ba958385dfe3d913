"""What a run leaves: a folder of tables and figures, marks of a busy machine, and pages that only --publish writes."""

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
from benchmarks import (
    ceilings,
    conftest,
    contest,
    contestant,
    contestants,
    figures,
    machine,
    peers,
    publish,
    report,
    verdicts,
)
from benchmarks.cases import CASES, GROWTH, Case
from benchmarks.gpu_cases import SWEEPS
from benchmarks.peer import is_ours
from benchmarks.peers import taking_part

ON_CARD = [case for cases in SWEEPS.values() for case in cases]
EVERY = [*(case for cases in GROWTH.values() for case in cases), *CASES]
ROOT = Path(__file__).resolve().parents[2]
MACHINE = {"date": "today", "cpu": "a host", "cpus": 2, "blas_threads": 2, "python": "3.11", "gpukpca": "1.2.0 (abc)"}
BUSY = "sgemm 0.06, then 0.02 TFLOP/s"


def entries_of(*cases: Case) -> list[dict[str, Any]]:
    """Return an entry for every contestant of the cases; one of them failed, another is absent."""
    found = []
    for case in cases:
        for place, who in enumerate(taking_part(case)):
            seconds = 1e-7 * case.n * case.p * (1 + place)
            entry = asdict(case) | {"case": case.name, "contestant": who, "outcome": "ok", "facts": {}}
            entry |= {"seconds": [seconds], "median": seconds, "peak_mib": case.n / 100, "device_mib": None}
            found.append(entry | {"residual": 1e-3 / (1 + case.rank) if "Nystr" in who else 1e-7})
    for place, outcome in (
        (1, "MemoryError: 90 % of x_1 & more | ü"),
        (-1, "skipped: falkon is not installed: pip install falkon"),
    ):
        for name in ("peak_mib", "device_mib", "residual"):  # which an entry has after its first figure
            del found[place][name]
        found[place] |= {"outcome": outcome, "median": None, "seconds": []}
    return found


GROWING = [case for family in ("growth-n", "growth-pca-n") for case in GROWTH[family, "n"][:2]]
RECORD = {
    "machine": MACHINE,
    "ceilings": {},
    "busy": [],
    "entries": entries_of(CASES[0], *GROWING, *GROWTH["growth-p", "p"][:2], *GROWTH["accuracy", "rank"][:2]),
}


# -- the folder --------------------------------------------------------------------------------------------------------


def test_a_run_leaves_tables_and_figures_that_say_whether_the_machine_was_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notes: list[str] = []
    figure = pytest.importorskip("matplotlib.figure").Figure
    monkeypatch.setattr(figure, "supxlabel", lambda self, text, **_: notes.append(text))
    quiet = RECORD | {"entries": entries_of(*GROWTH["growth-p", "p"][:2], *GROWTH["accuracy", "rank"][:2])}
    busy = quiet | {"busy": [BUSY]}
    (tmp_path / "record.json").write_text(json.dumps(busy), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["report", str(tmp_path / "record.json"), "--folder", str(tmp_path)])
    report.main()
    texts = {name: (tmp_path / name).read_text(encoding="utf-8") for name in ("tables.md", "table.tex", "table.csv")}
    for name, text in (texts | {"terminal": capsys.readouterr().out}).items():
        assert BUSY in text, name
        assert "sklearn randomized" in text, name
        assert "MemoryError" in text, name
        assert ("pip install falkon" in text) == (name != "table.tex"), name
    assert r" & MemoryError: 90 \% of x\_1 \& more $|$ ? & " in texts["table.tex"]
    header, *rows = csv.reader(texts["table.csv"].splitlines())
    assert len(rows) == len(quiet["entries"])
    first = dict(zip(header, rows[0], strict=True))
    assert first["median"] == str(quiet["entries"][0]["median"])
    assert first["busy"].startswith("Busy machine: ")
    assert [BUSY in note for note in notes] == [True] * 2
    for file in ("time_p.png", "time_accuracy.png"):
        assert (tmp_path / file).read_bytes().startswith(b"\x89PNG")
    assert BUSY not in report.text_of("name", quiet) + report.latex(quiet) + str(report.plain_rows(quiet))
    once = "The rates were measured once: whether the machine was busy is not known"
    for record, said in ((quiet, False), (quiet | {"busy": None}, True)):
        for text in (report.text_of("name", record), report.latex(record), str(report.plain_rows(record))):
            assert (once in text) == said
        for cards in ([record], [quiet, record], [record, quiet], [record, busy]):
            assert (once in report.about(publish.merged(cards))) == (said and busy not in cards)
    assert BUSY in report.about(publish.merged([quiet | {"busy": None}, busy]))


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
    assert len(accuracy.lines["gpukpca, Nystrom", False]) == 2
    assert len(accuracy.lines["sklearn arpack, matched", False]) == 1
    assert figures.spread([0.1, 0.1, 0.99, 1.2]) == pytest.approx(
        [0.1, 0.1 + figures.LABEL_GAP, 1 - figures.LABEL_GAP, 1]
    )


def test_rates_that_changed_by_a_fifth_show_a_busy_machine() -> None:
    before, after = ({"sgemm": {"value": value, "unit": "TFLOP/s"}} for value in (0.1, 0.081))
    assert ceilings.changed(before, after | {"copy": {"value": 1.0, "unit": "GB/s"}}) == []
    assert ceilings.changed(before, {}) == ["sgemm not measured again"]
    after["sgemm"]["value"] = 0.079
    assert ceilings.changed(before, after) == ["sgemm 0.1, then 0.079 TFLOP/s"]
    assert ceilings.changed(after, before) == ["sgemm 0.079, then 0.1 TFLOP/s"]


def test_quick_selects_small_sizes_of_the_host() -> None:
    items = {
        case.name: [SimpleNamespace(name=name) for name in ["large"] * case.large + ["quick"] * bool(case.quick_n)]
        for case in EVERY
    }
    left = [
        SimpleNamespace(
            name=name, callspec=SimpleNamespace(params={"case": name}), iter_markers=lambda marks=marks: marks
        )
        for name, marks in items.items()
        for _ in range(2)
    ]
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    config = SimpleNamespace(getoption=lambda name: name == "--quick", hook=hook)
    conftest.pytest_collection_modifyitems(config, left)
    chosen = {item.name for item in left}
    # The first contestant of every case, then the second: on a slow machine the last ones are left out.
    assert [item.name for item in left] == [name for name in items if name in chosen] * 2
    assert chosen == {case.name for case in EVERY if case.quick_n}
    assert {"growth-n-2000", "growth-pca-n-2000", "growth-p-2", "accuracy-rank-50"} <= chosen
    assert "growth-n-5000" not in chosen


DRAWN = next(case for case in CASES if case.data == "gaussian")  # its data are never absent


def test_late_contestants_of_a_quick_run_are_left_out_and_do_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "run_alone", lambda *_: [{"outcome": "timeout after 15 s"}])
    for deadline, reason in ((0.0, "130 s were over"), (float("inf"), "timeout after 15 s")):
        record = contest.Contest({}, deadline=deadline, late="skipped: 130 s were over")
        (entry,) = record.play(DRAWN, ["gpukpca"])
        contest.check(DRAWN, entry)
        assert not contest.is_figure(entry)
        assert report.left_out([entry]) == f"- left out: gpukpca ({reason})"
    # The sweep in which it was too slow ends; another one begins.
    started: list[int] = []
    monkeypatch.setattr(contest, "run_alone", lambda *_: started.append(1) or [{"outcome": "timeout after 15 s"}])
    record.deadline = float("inf")
    for cases in (GROWTH["growth-n", "n"][:3], GROWTH["growth-p", "p"][:3]):
        found = [entry["outcome"] for entry in record.play_sweep(cases, "gpukpca, nothing cached")]
        assert found == ["skipped: timeout after 15 s"] * 3
    assert len(started) == 2
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
        assert contestant.result(DRAWN, "gpukpca", True)["outcome"] == f"{outcome}No module named {name!r}"


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
    monkeypatch.setattr(contest, "run_alone", lambda *_: [contestant.result(small, name, True)])
    (entry,) = contest.Contest({}).play(small, [name])
    assert entry["outcome"] == "ok"
    assert entry["residual"] < 1e-12  # by the one script that judges all
    wrong = peers.Peer(lambda case: Turned(peer.build(case)), kernels=("rbf",))
    assert contestant.measured(small, wrong, True)["residual"] > 0.01
    monkeypatch.setitem(peers.PEERS, name, peers.Peer(peer.build, package="no-such-package"))
    (entry,) = contest.Contest({}).play(small, [name])
    assert entry["outcome"] == "skipped: no-such-package is not installed: pip install no-such-package"


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


# -- regressions -------------------------------------------------------------------------------------------------------


def test_a_contestant_of_ours_that_got_slower_beside_its_peers_is_found() -> None:
    earlier = [entry for entry in RECORD["entries"] if entry["outcome"] == "ok"]
    slow_machine = [entry | {"median": 3.0 * entry["median"]} for entry in earlier]
    assert verdicts.slower(slow_machine, earlier) == []
    worse = [e | {"median": e["median"] * (1.5 if e["contestant"] == "gpukpca" else 1.0)} for e in slow_machine]
    (line,) = verdicts.slower(worse, earlier)
    assert line.startswith("gpukpca: 1.50 × slower in ")
    assert verdicts.slower(worse, earlier[:1]) == ["no case has a contestant of ours and a peer in both records"]
    one = GROWING[0].name
    slow = [
        e | {"median": e["median"] * (2.5 if e["contestant"] == "gpukpca" and e["case"] == one else 1.0)}
        for e in earlier
    ]
    assert verdicts.slower(slow, earlier) == [f"gpukpca: 2.50 × slower in {one}"]


def test_a_record_is_judged_by_the_published_ones_of_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    published = publish.of_host(publish.kept().values())
    entries = published["entries"]
    ours = [e | {"median": 2.0 * e["median"]} if is_ours(e["contestant"]) and e["median"] else e for e in entries]
    for judged, status in ((entries, False), (ours, True)):
        (tmp_path / "new.json").write_text(json.dumps(published | {"entries": judged}), encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["report", str(tmp_path / "new.json"), "--against"])
        with pytest.raises(SystemExit) as ended:
            report.main()
        assert ended.value.code == status
        assert ("gpukpca: 2.00 × slower in " in capsys.readouterr().out) == status


# -- publishing --------------------------------------------------------------------------------------------------------


def test_a_part_of_the_cases_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = publish.of_host(publish.kept().values())
    (tmp_path / "part.json").write_text(json.dumps(RECORD), encoding="utf-8")
    (tmp_path / "other.json").write_text(json.dumps(whole), encoding="utf-8")
    publish.check_whole(whole)
    for cases, lacking in (
        (["part.json"], "lacks gaussian-10000, .* growth-d, PCA, others. Run bash"),
        (["part.json", "other.json"], "several records of a host"),
    ):
        monkeypatch.setattr(sys, "argv", ["publish", *(str(tmp_path / case) for case in cases), "--to", str(tmp_path)])
        with pytest.raises(SystemExit, match=lacking):
            publish.main()
    without = [e | {"median": None} if e["case"] == "mnist-10000" else e for e in whole["entries"]]
    with pytest.raises(SystemExit, match=r"lacks mnist-10000\. Run"):
        publish.check_whole(whole | {"entries": without})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.json", "part.json"]


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
    assert run("--publish", "--record", "r.json")[0] == 2
    assert "benchmarks.report" not in run("--record", str(tmp_path / "r.json"))[2]
