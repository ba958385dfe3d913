"""Pairs of fits: readings of a machine, which pairs count, and when a ratio settles; all readings are invented."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are not part of the package")

from benchmarks import against, contest, ratios, readings
from benchmarks.cases import Case

CASE = Case("case", ("gpukpca", "sklearn auto"), "gaussian", 100, 5)
SECONDS = {"gpukpca": 2.0, "sklearn auto": 5.0, "gpukpca of REV": 1.5}


# -- ratios ------------------------------------------------------------------------------------------------------------


def test_the_figure_is_the_median_of_the_ratios_with_an_interval() -> None:
    rng = np.random.default_rng(1)
    for spread, settles in ((0.03, True), (0.5, False)):
        found = ratios.ratio_of([(1.0, 2.8 * np.exp(spread * x)) for x in rng.standard_normal(9)])
        assert found["low"] <= found["value"] <= found["high"]
        assert found["pairs"] == 9
        assert found["settled"] is settles
    # A slow minute affects both of a pair, and one pair of nine does not move the median.
    drift = [(x, 3.0 * x) for x in (1.0, 2.0, 4.0, 1.0, 1.0, 1.0, 1.0, 1.0)]
    assert ratios.ratio_of([*drift, (1.0, 30.0)])["value"] == 3.0
    assert (ratios.ratio_of(drift)["low"], ratios.ratio_of(drift)["high"]) == (2.94, 3.06)  # what no pair sees
    assert [ratios.ratio_of(drift[:n], least)["settled"] for n, least in ((6, 7), (7, 7), (2, 3), (3, 3))] == [
        *(False, True, False, True)
    ]
    assert ratios.ratio_of([]) == {"pairs": 0, "settled": False}


def test_an_interval_of_15_percent_is_the_widest_that_settles() -> None:
    for width, settles in ((1.127, True), (1.129, False)):
        for ends in ((1.0, width), (1.0, 1.0 / width)):
            pairs = [(1.0, ends[0])] * 6 + [(1.0, ends[1])] * 5
            found = ratios.ratio_of(pairs)
            wider = [(1.0 - ratios.UNSEEN) * min(ends), (1.0 + ratios.UNSEEN) * max(ends)]
            assert [found["low"], found["high"]] == pytest.approx(wider, abs=1e-3)
            assert found["settled"] is settles


def test_ratios_are_shown_with_interval_and_pairs() -> None:
    ratio = {"value": 2.8, "low": 2.63, "high": 3.0, "pairs": 9, "settled": True}
    assert ratios.ratio_text(ratio) == "2.8 (2.6–3.0), 9 pairs"
    assert ratios.ratio_text(ratio | {"settled": False}) == "not settled (2.6–3.0), 9 pairs"
    assert ratios.ratio_text(ratio | {"settled": False, "pairs": 1}) == "not settled (2.6–3.0), 1 pair"
    assert ratios.ratio_text({"pairs": 0, "settled": False}) == ratios.ratio_text(None) == "not settled"
    assert [ratios.digits(x) for x in (0.042, 0.456, 0.996, 1.04, 9.949, 9.96, 123.4)] == [
        *("0.04", "0.46", "1.0", "1.0", "9.9", "10", "123")
    ]


# -- readings ----------------------------------------------------------------------------------------------------------


def test_counters_are_those_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "pressure").mkdir()
    (tmp_path / "groups" / "cpu").mkdir(parents=True)
    unit = 1.0 / os.sysconf("SC_CLK_TCK")
    lines = "cpu  100 20 30 9999 9999 4 5 6 70 80\ncpu0 60 20 30 99 99 4 5 4 70 80\ncpu1 40 0 0 9 9 0 0 2 0 0\nintr 7\n"
    (tmp_path / "stat").write_text(lines, encoding="utf-8")
    fields = ["R", *"0" * 10, "11", "12", "13", "14", "99"]
    (tmp_path / "7" / "stat").write_text(f"7 (a (name) of) {' '.join(fields)}\n", encoding="utf-8")
    (tmp_path / "pressure" / "cpu").write_text(
        "some avg10=1.0 avg60=2.0 total=3000000\nfull total=0\n", encoding="utf-8"
    )
    (tmp_path / "groups" / "cpu" / "cpu.stat").write_text("nr_periods 3\nthrottled_time 5000000000\n", encoding="utf-8")
    for cpus, busy, stolen in (((), 159, 6), ((0, 1), 159, 6), ((1,), 40, 2)):
        found = readings.counters(7, cpus, tmp_path, tmp_path / "groups")
        found.pop("wall")
        expected = {"busy": busy * unit, "stolen": stolen * unit, "own": 50 * unit, "elsewhere": (159 - busy) * unit}
        assert found == pytest.approx(expected | {"pressure": 3.0, "throttled": 5.0})
    (tmp_path / "groups" / "cpu.stat").write_text("throttled_usec 2000000\n", encoding="utf-8")
    (tmp_path / "groups" / "cpu" / "cpu.stat").unlink()
    assert readings.counters(7, (), tmp_path, tmp_path / "groups")["throttled"] == 2.0


def test_psutil_counts_where_the_system_has_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def process(pid: int, *children: Any) -> Any:
        return SimpleNamespace(cpu_times=lambda: (pid, 0.5, 9.0), children=lambda recursive: children)

    every = SimpleNamespace(user=50.0, system=5.0)
    both = SimpleNamespace(cpu_times=lambda: every, Process=lambda pid: process(pid, process(2)))
    monkeypatch.setitem(sys.modules, "psutil", both)
    found = readings.counters(7, (), tmp_path, tmp_path)
    assert {name: found[name] for name in ("busy", "stolen", "own")} == {"busy": 55.0, "stolen": 0.0, "own": 10.0}
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert set(readings.counters(7, (), tmp_path, tmp_path)) == {"wall"}


QUIET = {"wall": 10.0, "busy": 10.0, "own": 10.0, "stolen": 0.0, "pressure": 0.0, "throttled": 0.0}


@pytest.mark.parametrize(
    ("change", "canary", "why"),
    [
        ({}, 1.0, ""),
        ({"busy": 10.6}, 1.0, ""),
        ({"busy": 10.7}, 1.0, "foreign 3%"),
        ({"busy": 18.0, "own": 9.0}, 1.0, "foreign 45%"),
        ({"busy": 9.0}, 1.0, ""),  # rounding
        ({"stolen": 0.21}, 1.0, ""),
        ({"stolen": 0.5}, 1.0, "stolen 2%"),
        ({"throttled": 0.2}, 1.0, "throttled 2%"),
        ({"pressure": 5.0}, 1.09, ""),
        ({}, 1.11, "canary +11%"),
        ({}, 0.89, "canary -11%"),
    ],
)
def test_fits_count_where_nothing_else_used_the_machine(change: dict[str, float], canary: float, why: str) -> None:
    before = dict.fromkeys(QUIET, 5.0)
    after = {name: 5.0 + value for name, value in (QUIET | change).items()}
    reading = readings.between(before, after, 2)
    assert reading["cpu_s"] == change.get("own", 10.0)
    assert reading["pressure_share"] == change.get("pressure", 0.0) / 10.0
    assert readings.why_discarded(reading | {"canary": canary}, [1.0] * 4) == why
    # A system that counts nothing has the canary alone.
    reading = readings.between({"wall": 1.0}, {"wall": 2.0}, 2)
    assert readings.why_discarded(reading | {"canary": canary}, [1.0] * 4) == (why if "canary" in why else "")


def test_the_canary_takes_time_and_a_process_is_counted() -> None:
    assert 0.0 < readings.Canary().seconds() < 5.0
    found = readings.counters(os.getpid())
    if "busy" in found:
        assert 0.0 < found["own"] <= found["busy"] + found["own"]


# -- pairs -------------------------------------------------------------------------------------------------------------


class Machine:
    """A machine whose clock moves with each fit: invented seconds, and the shares of others in fit after fit."""

    def __init__(self, foreign: Callable[[int], float] = lambda number: 0.0) -> None:
        self.now, self.others, self.own, self.fits, self.foreign = 0.0, 0.0, 0.0, 0, foreign
        self.played: list[str] = []
        machine = self

        class Worker:
            pid, cpus = 1, ()

            def __init__(self, name: str, threads: int, folder: str = "") -> None:
                self.name, self.threads = name, threads

            def ask(self, do: str, timeout: float, calls: int = 1, **_: Any) -> dict[str, Any]:
                if do != "fit":
                    return {"outcome": "ok"} | {"residual": 0.0, "facts": {}} if do == "finish" else {"outcome": "ok"}
                seconds = SECONDS[self.name] * calls / self.threads
                machine.fits += 1
                machine.now += seconds
                machine.own += seconds
                machine.others += 2.0 * seconds * machine.foreign(machine.fits)
                machine.played.append(self.name)
                return {"outcome": "ok", "seconds": seconds / calls, "cpu": seconds / calls}

            def close(self) -> None:
                machine.played.append(f"end of {self.name}")

        self.Worker = Worker

    def counters(self, pid: int, cpus: Any) -> dict[str, float]:
        return {"wall": self.now, "busy": self.own + self.others, "own": self.own, "stolen": 0.0}

    def contest(self, monkeypatch: pytest.MonkeyPatch, cpus: int = 1, **more: Any) -> contest.Contest:
        monkeypatch.setattr(contest, "Worker", self.Worker)
        monkeypatch.setattr(contest, "Canary", lambda: SimpleNamespace(seconds=lambda: 0.02))
        monkeypatch.setattr(contest, "counters", self.counters)
        monkeypatch.setattr(contest, "time", SimpleNamespace(monotonic=lambda: self.now))
        return contest.Contest({"cpus": cpus}, **more)


def test_a_round_is_a_pair_and_seven_of_them_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    ours, peer = machine.contest(monkeypatch).play(CASE, CASE.contestants)
    assert peer["columns"]["1"]["ratio"] == {"value": 2.5, "low": 2.45, "high": 2.55, "pairs": 7, "settled": True}
    assert (ours["median"], peer["median"]) == (2.0, 5.0)
    assert ours["columns"]["1"]["cpu"] == [2.0] * 7
    pairs = peer["columns"]["1"]["pairs"]
    assert len(pairs) == 7
    assert {pair["first"] for pair in pairs} == set(CASE.contestants)  # in random order
    # Processes of short fits change after three rounds, and the new ones prepare and run once.
    ends = [i for i, name in enumerate(machine.played) if name == "end of gpukpca"]
    assert ends == [8, 18]
    assert machine.played[8:12] == ["end of gpukpca", "gpukpca", "end of sklearn auto", "sklearn auto"]
    names = machine.played[2:8]
    assert all(set(pair) == set(CASE.contestants) for pair in zip(names[::2], names[1::2], strict=True))
    assert pairs[0]["reading"][0] == {
        "calls": 1,
        "canary": 0.02,
        "foreign_share": 0.0,
        "stolen_share": 0.0,
        "cpu_s": 2.0,
    }
    json.dumps(peer)


def test_pairs_beside_others_are_repeated_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(lambda number: 0.5 if number % 5 == 0 else 0.0)
    ours, peer = machine.contest(monkeypatch, cpus=2).play(CASE, CASE.contestants)
    pairs = peer["columns"]["1"]["pairs"]
    discarded = [pair["discarded"] for pair in pairs if pair["discarded"]]
    assert len(pairs) - len(discarded) == 7 == len(ours["seconds"])
    assert discarded
    assert all(why.startswith("foreign ") for why in discarded)
    assert peer["columns"]["1"]["ratio"]["settled"]
    assert set(peer["columns"]) == {"1"}  # more threads are measured where it is quiet


def test_a_neighbor_that_stays_leaves_nothing_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(lambda number: 0.5)
    ours, peer = machine.contest(monkeypatch).play(CASE, CASE.contestants)
    assert peer["columns"]["1"]["ratio"] == {"pairs": 0, "settled": False}
    assert (ours["median"], peer["median"], ours["seconds"], peer["outcome"]) == (None, None, [], "ok")
    assert ratios.LEAST_PAIRS < len(peer["columns"]["1"]["pairs"]) <= contest.REPEATS * ratios.LEAST_PAIRS
    assert peer["residual"] == ours["residual"] == 0.0  # accuracy is checked all the same
    assert not contest.is_figure(ours)


def test_a_quiet_machine_has_a_column_of_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for options, columns in (({"cpus": 2}, {"1", "2"}), ({"cpus": 2, "deadline": 1e4}, {"1"}), ({}, {"1"})):
        ours, peer = Machine().contest(monkeypatch, **options).play(CASE, CASE.contestants)
        assert set(peer["columns"]) == set(ours["columns"]) == columns
        assert peer["median"] == 5.0
    assert len(peer["columns"]["1"]["pairs"]) == 7


def test_quick_is_content_with_three_pairs_and_shares_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    _, peer = machine.contest(monkeypatch, quick=True, deadline=1000.0, rows_left=3).play(CASE, CASE.contestants)
    assert peer["columns"]["1"]["ratio"]["pairs"] == 3
    assert peer["columns"]["1"]["ratio"]["settled"]
    machine = Machine(lambda number: 0.5)
    record = machine.contest(monkeypatch, quick=True, deadline=140.0, rows_left=20)
    _, peer = record.play(CASE, CASE.contestants)
    assert machine.now < 30.0
    assert peer["columns"]["1"]["ratio"]["pairs"] == 0


def test_short_fits_are_repeated_within_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SECONDS, "gpukpca", 0.01)
    _, peer = Machine().contest(monkeypatch).play(CASE, CASE.contestants)
    assert {tuple(one["calls"] for one in pair["reading"]) for pair in peer["columns"]["1"]["pairs"]} == {(25, 1)}
    assert peer["columns"]["1"]["ratio"]["value"] == 500.0


def test_cells_of_more_than_ten_minutes_run_once_and_have_no_ratio_to_quote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SECONDS, "plain NumPy", 100.0)
    machine = Machine()
    ours, short, long = machine.contest(monkeypatch).play(CASE, ["gpukpca", "sklearn auto", "plain NumPy"])
    assert (long["columns"]["1"]["once"], long["seconds"], long["median"]) == (True, [100.0], None)
    assert long["columns"]["1"]["cpu"] == [100.0]
    assert not long["columns"]["1"]["ratio"]["settled"]
    # The pairs of the others are the figure of ours.
    assert not ours["columns"]["1"]["once"]
    assert len(ours["seconds"]) == 7 == len(short["seconds"])
    (alone,) = machine.contest(monkeypatch).play(CASE, ["plain NumPy"])
    assert (alone["seconds"], alone["median"], alone["columns"]["1"]["once"]) == ([100.0], None, True)


def test_a_limit_of_time_keeps_what_has_settled_and_names_what_has_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SECONDS, "plain NumPy", 50.0)
    monkeypatch.setitem(SECONDS, "sklearn dense", 1.0)
    late, names = "skipped: not run: 114 s were over", ["gpukpca", "sklearn auto", "plain NumPy", "sklearn dense"]
    machine = Machine()
    ask = machine.Worker.ask

    def answer(self: Any, do: str, timeout: float, **more: Any) -> dict[str, Any]:
        if do == "fit" and SECONDS[self.name] > timeout:
            machine.now += timeout
            return {"outcome": f"timeout after {timeout:.0f} s"}
        return ask(self, do, timeout, **more)

    machine.Worker.ask = answer
    record = machine.contest(monkeypatch, cpus=2, deadline=114.0, timeout=60.0, late=late)
    ours, auto, numpy, dense = record.play(CASE, names)
    assert auto["columns"]["1"]["ratio"]["settled"]
    assert [entry["outcome"] for entry in (ours, auto, numpy, dense)] == ["ok", "ok", late, late]
    assert (ours["median"], ours["residual"], set(ours["columns"])) == (2.0, 0.0, {"1"})
    assert machine.now <= 114.0
    assert {entry["outcome"] for entry in record.play(CASE, names)} == {late}
    # One that is far behind needs no pairs where time is limited.
    monkeypatch.setitem(SECONDS, "sklearn auto", 1.1 * contest.FAR_TIMES * SECONDS["gpukpca"])
    for far, more in ((True, {"deadline": 1e4, "late": late}), (False, {})):
        record = Machine().contest(monkeypatch, **more)
        assert record.play(CASE, ["gpukpca", "sklearn auto"])[1]["columns"]["1"]["once"] == far
    # Longer than one answer may take, and not the limit of all.
    record = Machine().contest(monkeypatch, deadline=1e4, timeout=40.0, late=late)
    assert record.play(CASE, ["gpukpca", "sklearn auto"])[1]["columns"]["1"]["once"]


def test_contestants_alternate_at_each_size_and_processes_end_when_they_are_not_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine()
    record = machine.contest(monkeypatch)
    for n in (100, 200):
        record.play(Case(f"size-{n}", CASE.contestants, "gaussian", n, 5), CASE.contestants)
    sizes = [entry["case"] for entry in record.entries.values()]
    assert sizes == ["size-100"] * 2 + ["size-200"] * 2
    ended = machine.played.count("end of sklearn auto")
    record.play(CASE, ["gpukpca"])
    assert machine.played.count("end of sklearn auto") == ended + 1
    record.close()
    assert machine.played[-1] == "end of gpukpca"


def test_peers_of_a_contestant_that_failed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    ask = machine.Worker.ask

    def failing(self: Any, do: str, timeout: float, **more: Any) -> dict[str, Any]:
        failed = self.name == "gpukpca" and do == "fit"
        return {"outcome": "MemoryError: too large"} if failed else ask(self, do, timeout, **more)

    machine.Worker.ask = failing
    ours, peer = machine.contest(monkeypatch).play(CASE, CASE.contestants)
    assert ours["outcome"] == "MemoryError: too large"
    assert peer["outcome"] == "skipped: gpukpca has no figure"


# -- two checkouts -----------------------------------------------------------------------------------------------------


def test_a_checkout_that_fails_is_no_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    machine.Worker.ask = lambda *_, **__: {"outcome": "MemoryError"}
    assert against.compared(machine.contest(monkeypatch), CASE, "REV", "folder")


@pytest.mark.parametrize(("there", "status", "text"), [(1.5, 1, "0.75 (0.73–0.77)"), (2.0, 0, "1.00 (0.98–1.02)")])
def test_two_checkouts_are_compared_in_pairs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], there: float, status: int, text: str
) -> None:
    machine = Machine()
    record = machine.contest(monkeypatch)

    def worker(name: str, threads: int, folder: str = "") -> Any:
        return machine.Worker(f"{name} of REV" if folder else name, threads)

    monkeypatch.setitem(SECONDS, "gpukpca of REV", there)
    monkeypatch.setattr(contest, "Worker", worker)
    monkeypatch.setattr(against, "Contest", lambda *_, **__: record)
    monkeypatch.setattr(against, "EVERY", [CASE, Case("other", CASE.contestants, "gaussian", 9, 9)])
    monkeypatch.setattr(against, "checkout", lambda revision: nullcontext("folder"))
    monkeypatch.setattr(sys, "argv", ["against", "REV", "-k", "cas"])
    with pytest.raises(SystemExit) as ended:
        against.main()
    assert ended.value.code == status
    head, line = capsys.readouterr().out.splitlines()
    assert head == "time of REV / time of this checkout, one thread"
    assert line.split() == ["case", "gpukpca", *f"{text}, 7 pairs; 0 discarded".split()]


def test_the_library_of_another_folder_is_the_one_that_is_measured(tmp_path: Path) -> None:
    package = tmp_path / "gpukpca"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('the other checkout')\n", encoding="utf-8")
    worker = contest.Worker("gpukpca", 1, str(tmp_path))
    try:
        answer = worker.ask("prepare", 60.0, case={"name": "c", "contestants": [], "data": "gaussian", "n": 60, "d": 4})
    finally:
        worker.close()
    assert answer == {"outcome": "ImportError: the other checkout"}


def test_a_revision_is_checked_out_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def git(*arguments: str) -> None:
        settings = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *settings, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--quiet")
    for text in ("old", "new"):
        (tmp_path / "file").write_text(text, encoding="utf-8")
        git("add", "file")
        git("commit", "--quiet", "--message", text)
    monkeypatch.setattr(against, "ROOT", tmp_path)
    with against.checkout("HEAD~1") as folder:
        assert (Path(folder) / "file").read_text(encoding="utf-8") == "old"
    assert not Path(folder).exists()
    with pytest.raises(SystemExit, match="git has no revision nothing"), against.checkout("nothing"):
        pass
