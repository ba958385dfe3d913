"""The benchmarks of a card at tiny sizes, NumPy or the fake CuPy in its place: nothing here says how fast it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import fake_cupy

pytest.importorskip("benchmarks", reason="the benchmarks are not part of the package")

from benchmarks import accuracy, card, ceilings, contest, contestant, floors, peers, places, report, shapes, verdicts
from benchmarks.cases import Case
from benchmarks.contest import check
from benchmarks.datasets import load
from benchmarks.gpu_cases import HEADLINE, NUMPY_IN, SHARE, SWEEPS, Sweep, Trial, needed_bytes
from benchmarks.places import Place
from gpukpca.backend import blocking
from gpukpca.eigen import BlockKrylov, Dense
from gpukpca.eigen.solve import DENSE_UP_TO_GPU, choose_solver

ROOT = Path(__file__).resolve().parents[2]
TINY = ceilings.Sizes(copy=2**16, transfer=2**16, exponentials=2**16, edge=64, tile=64, block=8, runs=3)
CARD = {"gpu": "Stand-in", "gpu_bytes": 2**30, "driver": None, "cuda_driver": 13000, "cuda_runtime": 13010}
ABOUT = {"date": "today", "gpukpca": "0", "python": "3", "cpu": "a host", "cpus": 1, "blas_threads": 1} | CARD
# A card with round rates: 50 TFLOP/s, 4 TB/s.
ROUND = {
    "copy": {"value": 4000.0, "unit": "GB/s"},
    "sgemm": {"value": 50.0, "unit": "TFLOP/s"},
    "dgemm": {"value": 25.0, "unit": "TFLOP/s"},
}
SOLVERS = next(sweep for sweep in SWEEPS if sweep.name == "gpu-dense-or-krylov")


@pytest.fixture(scope="module")
def measured_ceilings() -> dict[str, dict[str, Any]]:
    return ceilings.measured(Place(), TINY)


@pytest.fixture
def numpy_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy as the device of every contestant, and the accuracy computed by the code for devices."""
    place = Place(taken=lambda: 2**20, on_device=True)
    for name, peer in peers.PEERS.items():
        if peer.on_device:
            monkeypatch.setitem(peers.PEERS, name, replace(peer, place=place))
    on_host = replace(peers.PEERS[NUMPY_IN[0]], build=partial(peers.ours, device="cpu"))
    monkeypatch.setitem(peers.PEERS, NUMPY_IN[0], on_host)
    in_this_process(monkeypatch)


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "DEVICE_FROM", 0)
    monkeypatch.setattr(accuracy, "DEVICE_EDGE", 150)
    monkeypatch.setattr(contest, "run_alone", run_here)


def run_here(cases: Sequence[Case], name: str, certify: bool = True, *_: Any) -> list[dict[str, Any]]:
    """What `benchmarks.contest.run_alone` gives, without another process; through JSON, as there."""
    if name == "TorchDR on CUDA":  # brings PyTorch, and warnings of its own
        return [{"outcome": f"skipped: {name}"}]
    found = [{"outcome": "ok"} | contestant.measured(case, peers.PEERS[name], certify, None) for case in cases]
    return json.loads(json.dumps(found))


def tiny(case: Case) -> Case:
    """The same problem with few rows; the settings of sweeps stay apart."""
    settings = {"n": max(60, min(case.n // 100, 300)), "d": min(case.d, 8), "p": min(case.p, 8), "rank": 50}
    settings |= {"tile_edge": case.tile_edge and case.tile_edge // 64, "block": case.block and case.block // 4}
    return replace(case, repeats=2, **settings)


def played(case: Case, found: dict[str, Any]) -> tuple[contest.Contest, list[dict[str, Any]]]:
    record = contest.Contest(dict(ABOUT), ceilings=found)
    entries = record.enter(case)
    record.play_round(case, entries)
    return record, entries


def trials() -> Any:
    return pytest.mark.parametrize("trial", HEADLINE, ids=lambda trial: trial.case.name)


# -- the cases ---------------------------------------------------------------------------------------------------------


@trials()
def test_trials_are_measured_certified_and_judged(
    numpy_device: None, measured_ceilings: dict[str, Any], trial: Trial
) -> None:
    case = tiny(trial.case)
    _, entries = played(case, measured_ceilings)
    assert entries[0]["outcome"] == "ok"
    for entry in entries:
        check(case, entry)
        if entry["outcome"] == "ok":
            assert len(entry["seconds"]) == 2
            assert entry["median"] > 0
            assert floors.floor_seconds(measured_ceilings, entry) > 0
    verdict = verdicts.judged(trial.judge, case.n, case, entries, measured_ceilings)
    assert verdict["reached"] in (True, False)
    assert verdict["target"]
    assert verdict["measured"]
    assert verdict["share"] == pytest.approx(verdict["floor_s"] / verdict["seconds"])
    elsewhere = verdicts.judged(trial.judge, trial.case.n, case, entries, measured_ceilings)
    assert elsewhere["reached"] is None
    assert elsewhere["note"].startswith("not judged")


@trials()
def test_trials_on_cupy(cuda: Any, monkeypatch: pytest.MonkeyPatch, trial: Trial) -> None:
    """The branches for CuPy: placing, waiting, memory of the device, NumPy in, accuracy on the device."""
    in_this_process(monkeypatch)
    case = tiny(trial.case)
    case = replace(case, contestants=tuple(name for name in case.contestants if "torch" not in name.lower()))
    _, entries = played(case, ROUND)
    assert [entry["outcome"] for entry in entries] == ["ok"] * len(entries)
    for entry in entries:
        check(case, entry)
        assert entry["device_mib"] > 0
        assert entry["facts"].get("device", "cuda").startswith("cuda")
    assert verdicts.judged(trial.judge, case.n, case, entries, ROUND)["reached"] in (True, False)


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.name)
def test_sweeps_play_every_contestant_at_every_setting(
    numpy_device: None, measured_ceilings: dict[str, Any], sweep: Sweep
) -> None:
    cases = [tiny(case) for case in sweep.cases[-2:]]
    if sweep.axis == "n":
        cases = [replace(case, n=n) for case, n in zip(cases, (60, 90), strict=True)]
    record = contest.Contest(dict(ABOUT), ceilings=measured_ceilings)
    by_case = [record.enter(case) for case in cases]
    for of_contestant in zip(*by_case, strict=True):
        record.play_sweep(cases, list(of_contestant))
    for case, entries in zip(cases, by_case, strict=True):
        assert [entry["contestant"] for entry in entries] == list(case.contestants)
        for entry in entries:
            check(case, entry)
    if sweep.axis != "n":
        assert [entries[0][sweep.axis] for entries in by_case] == [getattr(case, sweep.axis) for case in cases]
        facts = by_case[0][0]["facts"]
        assert cases[0].tile_edge in (None, facts["tile_edge"])
        assert cases[0].block is None or f"block of {cases[0].block}" in facts["solver"]
    table = report.text_of("name", {"machine": ABOUT, "entries": record.entries})
    for name in cases[0].contestants:
        assert name in table


def test_data_settings_and_names_are_those_of_the_targets() -> None:
    names = [trial.case.name for trial in HEADLINE] + [case.name for sweep in SWEEPS for case in sweep.cases]
    assert len(set(names)) == len(names)
    by_name = {trial.case.name: trial.case for trial in HEADLINE}
    assert by_name["gpu-cached-100000"].tol == by_name["gpu-fit-1000000"].tol == 1e-5
    assert by_name["gpu-pass-1000000-d16"].p == 64
    for dtype in ("float32", "float64"):
        for agreement in agreements(dtype):
            assert agreement.case.tol == pytest.approx(100 * np.finfo(dtype).eps)
    for case in (*by_name.values(), *(case for sweep in SWEEPS for case in sweep.cases)):
        assert set(case.contestants) <= set(peers.PEERS)


def agreements(dtype: str) -> list[Trial]:
    return [trial for trial in HEADLINE if trial.case.task == "compared" and trial.case.dtype == dtype]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_card_and_host_are_compared_with_the_dense_and_the_iterative_solver(dtype: str, quick: bool) -> None:
    cases = [trial.sized(quick, None).case for trial in agreements(dtype)]
    assert [type(choose_solver(case.n, case.p, on_gpu=True)) for case in cases] == [Dense, BlockKrylov]


def test_dense_and_iterative_solver_are_timed_on_both_sides_of_the_limit_between_them() -> None:
    sizes = [case.n for case in SOLVERS.cases]
    assert sum(n < DENSE_UP_TO_GPU for n in sizes) >= 2
    assert sum(n > DENSE_UP_TO_GPU for n in sizes) >= 2
    assert DENSE_UP_TO_GPU in sizes


# -- accuracy ----------------------------------------------------------------------------------------------------------


def problem(n: int = 300, d: int = 5) -> tuple[Case, np.ndarray]:
    case = Case("problem", ("gpukpca",), "gaussian", n, d, "float64", p=4, gamma=0.1)
    return case, load(case.data, n, d, case.dtype)


def test_accuracy_on_a_device_is_that_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    case, X = problem()
    V = np.random.default_rng(1).standard_normal((len(X), 3))
    exact = accuracy.kernel_product(case, X, np.arange(len(X)), V)
    np.testing.assert_allclose(accuracy.device_product(case, X, V, np.asarray, edge=128), exact, rtol=0, atol=1e-11)
    scores = np.random.default_rng(2).standard_normal((len(X), 3))
    on_host = accuracy.eigen_errors(case, X, scores, np.array([3.0, 2.0, 1.0]))
    monkeypatch.setattr(accuracy, "DEVICE_FROM", 0)
    on_device = accuracy.eigen_errors(case, X, scores, np.array([3.0, 2.0, 1.0]), np.asarray)
    assert on_device[0] == pytest.approx(on_host[0], rel=1e-11)
    np.testing.assert_allclose(on_device[1], on_host[1], rtol=1e-10, atol=1e-10)
    wrong = exact + 1e-3 * np.abs(exact).max() * (np.arange(len(X)) == 7)[:, None]
    assert accuracy.product_error(case, X, V, wrong, np.asarray) == pytest.approx(1e-3, rel=0.01)


def test_a_wrong_eigenpair_is_found_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "DEVICE_FROM", 0)
    case, X = problem()
    model = peers.ours(case)
    scores = model.fit_transform(X)
    assert accuracy.largest_residual(case, X, scores, model.eigenvalues_, np.asarray) < 1e-8
    values = model.eigenvalues_ * [1.0, 1.0, 1.0, 1.01]
    found = accuracy.largest_residual(case, X, scores, values, np.asarray)
    assert found == pytest.approx(0.01 * model.eigenvalues_[3] / model.eigenvalues_[0], rel=1e-6)


def test_agreement_compares_what_the_gaps_determine() -> None:
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((50, 3)))[0]
    values, norms = np.array([4.0, 2.0, 2.0 - 1e-9]), np.full(3, 1e-13)
    fit = {"scores": U * values**0.5, "eigenvalues": values, "residual_norms": norms, "gap": 1.0}
    turned = U.copy()
    turned[:, 1:] = U[:, 1:] @ [[0.0, 1.0], [-1.0, 0.0]]
    turned[:, 0] *= -1
    other = fit | {"scores": turned * values**0.5, "eigenvalues": values * (1 + 10 * 2.0**-52)}
    found = accuracy.agreement(other, fit, "float64")
    assert found["columns"] == 1
    assert found["scores"] < 1e-14
    assert found["scores_all"] > 1
    assert found["values_in_eps"] == pytest.approx(10, abs=1)
    alike = fit | {"eigenvalues": np.ones(3), "gap": None}
    assert accuracy.agreement(fit, alike, "float64")["scores"] is None


def test_bounds_of_an_approximation_are_asserted(numpy_device: None) -> None:
    case = tiny(next(trial.case for trial in HEADLINE if "nystrom" in trial.case.name))
    _, entries = played(case, {})
    assert {"certificate", "below_bound", "above_bound"} <= set(entries[0])
    check(case, entries[0])
    for bound in ("below_bound", "above_bound"):
        with pytest.raises(AssertionError):
            check(case, entries[0] | {bound: 0.01})


def test_what_computes_on_the_host_is_no_figure_of_a_card() -> None:
    case = Case("case", ("gpukpca on CuPy",), "gaussian", 100, 5)
    entry = {"contestant": "gpukpca on CuPy", "outcome": "ok", "residual": 1e-7, "facts": {"device": "cuda:0 a card"}}
    check(case, entry)
    with pytest.raises(AssertionError, match="computed on cpu"):
        check(case, entry | {"facts": {"device": "cpu"}})
    with pytest.raises(AssertionError):
        check(case, entry | {"residual": 4e-5})
    with pytest.raises(AssertionError):
        check(case, entry | {"outcome": contest.NO_TIME})
    check(case, entry | {"outcome": "skipped: no library"})


# -- ceilings and floors -----------------------------------------------------------------------------------------------


def test_ceilings_are_complete(measured_ceilings: dict[str, Any]) -> None:
    tiles = {f"tile {d + more}" for d in (16, 100, 784) for more in (0, 2)}
    others = {"copy", "sgemm", "dgemm", "exp", "to device", "to host", "launch", "tile times block"}
    assert set(measured_ceilings) == tiles | others | {"transposed tile times block"} == set(ceilings.NAMES)
    for row in measured_ceilings.values():
        assert row["value"] > 0
        assert row["seconds"] > 0
        assert row["runs"] == 3
    assert measured_ceilings["sgemm"]["relative_error"] < 1e-6
    json.dumps(measured_ceilings)


def test_ceilings_on_cupy(cuda: Any) -> None:
    assert "sgemm" in ceilings.measured(places.CUPY, TINY)


def test_products_in_tf32_are_found_out(capsys: pytest.CaptureFixture[str]) -> None:
    def rounded(a: np.ndarray) -> np.ndarray:
        return (a.view(np.int32) & np.int32(-8192)).view(np.float32) if a.dtype == np.float32 else a

    found = ceilings.measured(Place(put=lambda a: rounded(np.array(a))), TINY)
    assert "sgemm" not in found
    assert "copy" in found
    assert "is TF32 on?" in capsys.readouterr().err


def test_sizes_fit_the_card() -> None:
    assert ceilings.Sizes().within(10**12) == ceilings.Sizes()
    small = ceilings.Sizes().within(2 * 2**30)
    assert 4 * small.copy <= 2 * 2**30
    assert small.edge < 8192


def test_floors_are_those_of_the_design() -> None:
    # n = 1e6, 64 columns, 47 TFLOP/s and 4.3 TB/s: the figures that the targets were made from.
    card = ROUND | {"sgemm": {"value": 47.0, "unit": "TFLOP/s"}, "copy": {"value": 4300.0, "unit": "GB/s"}}
    assert floors.pass_seconds(card, 10**6, 16, 64) == pytest.approx(5.4, abs=0.05)
    assert floors.pass_seconds(card, 10**6, 100, 64) == pytest.approx(7.15, abs=0.05)
    # n = 1e5, d = 16, 10 columns at 50 TFLOP/s and 4 TB/s.
    assert floors.pass_seconds(ROUND, 10**5, 16, 10) == pytest.approx(1e10 * 36 / 50e12 + 1e11 / 4e12)
    assert floors.pass_seconds(ROUND, 10**5, 16, 10, cached=1.0) == pytest.approx(1e10 * 20 / 50e12 + 4e10 / 4e12)
    assert floors.pass_seconds(ROUND, 10**5, 16, 10, "float64") == pytest.approx(1e10 * 36 / 25e12 + 2e11 / 4e12)
    entry = {"n": 10**5, "d": 16, "dtype": "float32", "facts": {"passes": 3, "columns": 30, "held": "tiled"}}
    entry["facts"] |= {"tiles": 10, "cached_tiles": 10}
    once, again = (floors.pass_seconds(ROUND, 10**5, 16, 10, cached=share) for share in (0.0, 1.0))
    assert floors.fit_seconds(ROUND, entry) == pytest.approx(once + 2 * again)
    calls = {"tile 18": {"seconds": 2e-3, "edge": 1000}, "tile times block": {"seconds": 3e-3}}
    calls |= {"transposed tile times block": {"seconds": 4e-3}, "exp": {"value": 1.0, "unit": "GB/s"}}
    assert floors.calls_seconds(calls, 10_000, 16) == pytest.approx(50 * (2e-3 + 8e-3 + 7e-3))
    assert floors.calls_seconds(calls, 10_000, 17) is None


def test_without_ceilings_nothing_is_said_about_shares(numpy_device: None) -> None:
    trial = HEADLINE[2]
    case = tiny(trial.case)
    _, entries = played(case, {})
    verdict = verdicts.judged(trial.judge, case.n, case, entries, {})
    assert verdict["reached"] is None
    assert verdict["share"] is None
    assert "not measured" in verdict["note"]


# -- judges ------------------------------------------------------------------------------------------------------------


def entry_of(case: Case, seconds: float, contestant: str | None = None, **more: Any) -> dict[str, Any]:
    usual = {"residual": 1e-6, "facts": {}, "outcome": "ok", "device_mib": 1.0, "n": case.n, "d": case.d}
    usual |= {"kernel": "rbf", "task": case.task, "dtype": case.dtype, "p": case.p, "seconds": [seconds]}
    return usual | {"contestant": contestant or case.contestants[0], "median": seconds} | more


def test_judges() -> None:
    by_name = {trial.case.name: trial for trial in HEADLINE}

    def reached(name: str, *entries: dict[str, Any]) -> bool | None:
        case = by_name[name].case
        return verdicts.judged(by_name[name].judge, case.n, case, list(entries), ROUND)["reached"]

    fit = by_name["gpu-cached-100000"].case
    assert reached(fit.name, entry_of(fit, 0.59)) is True
    assert reached(fit.name, entry_of(fit, 0.61)) is False
    assert reached(fit.name, entry_of(fit, 0.59, residual=1.1e-5)) is False
    assert reached(fit.name, entry_of(fit, 0.59, outcome="timeout after 600 s", median=None)) is None
    large = by_name["gpu-fit-1000000"]
    told = verdicts.judged(large.judge, large.case.n, large.case, [entry_of(large.case, 70.0)], ROUND)
    assert told["reached"] is False
    assert told["note"] == "90 s reached, 60 s missed"
    one = by_name["gpu-pass-1000000-d16"].case
    facts = {"tiles": 3, "cached_tiles": 0}
    floor = floors.pass_seconds(ROUND, one.n, one.d, one.p)
    assert reached(one.name, entry_of(one, 1.49 * floor, facts=facts)) is True
    assert reached(one.name, entry_of(one, 1.51 * floor, facts=facts)) is False
    both = by_name["gpu-peers-20000"].case
    ours, peer, lost = entry_of(both, 0.1), entry_of(both, 5.1, "plain CuPy"), entry_of(both, 0, "TorchDR on CUDA")
    lost |= {"median": None, "outcome": "skipped: not there"}
    assert reached(both.name, ours, peer, lost) is True
    assert reached(both.name, ours, peer, entry_of(both, 4.9, "plain torch on CUDA")) is False
    assert reached(both.name, ours, lost) is None
    numpy_in = by_name["gpu-numpy-in-50000"].case
    copies = {"up_s": 0.01, "down_s": 0.001}
    assert reached(numpy_in.name, entry_of(numpy_in, 0.2, facts=copies), entry_of(numpy_in, 0.19)) is True
    assert reached(numpy_in.name, entry_of(numpy_in, 0.2, facts=copies), entry_of(numpy_in, 0.15)) is False
    assert reached(numpy_in.name, entry_of(numpy_in, 0.05, facts=copies), entry_of(numpy_in, 0.05)) is False
    same = agreements("float64")[0].case
    near = {"values_in_eps": 49.0, "scores": 9e-11, "columns": 9}
    assert reached(same.name, entry_of(same, 1.0, **near)) is True
    assert reached(same.name, entry_of(same, 1.0, **near | {"values_in_eps": 51.0})) is False
    assert reached(same.name, entry_of(same, 1.0, **near | {"scores": 2e-10})) is False


def test_where_lines_cross() -> None:
    slow, fast = [1.0, 2.0, 4.0, 8.0], [3.0, 1.0, 5.0, 6.0]
    rows = [
        {"n": n, "contestant": who, "median": times[i], "outcome": "ok"}
        for i, n in enumerate((10, 20, 40, 80))
        for who, times in (("slow", slow), ("fast", fast))
    ]
    assert verdicts.faster_from(rows, "slow", "fast") == 80
    assert verdicts.faster_from(rows[:2], "slow", "fast") is None
    assert verdicts.fastest(rows, "fast", "n") == 20


@pytest.mark.parametrize("gib", [4, 16, 80])
def test_sizes_shrink_to_the_card(gib: int) -> None:
    for trial in HEADLINE:
        sized = trial.sized(False, gib * 2**30)
        assert needed_bytes(sized.case, trial.squares) <= SHARE * gib * 2**30
        assert sized.case.n == trial.case.n or needed_bytes(trial.case, trial.squares) > SHARE * gib * 2**30
        assert trial.sized(True, 10**13).case.n == trial.quick_n
    for sweep in SWEEPS:
        kept = sweep.sized(False, gib * 2**30).cases
        assert set(kept) <= set(sweep.cases)
    assert [len(sweep.sized(True, None).cases) for sweep in SWEEPS] == [5, 5, 8, 0, 0, 0]


# -- the record, the clock and the processes ---------------------------------------------------------------------------


def test_record_and_report_are_complete(
    numpy_device: None,
    measured_ceilings: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial = HEADLINE[0]
    case = tiny(trial.case)
    record, entries = played(case, measured_ceilings)
    record.verdicts.append(verdicts.judged(trial.judge, case.n, case, entries, measured_ceilings))
    file = saved(record, tmp_path / "record.json")
    read = json.loads(file.read_text())
    assert set(read) == {"benchmarks", "machine", "ceilings", "verdicts", "entries"}
    assert read["machine"] == ABOUT
    assert {row["name"] for row in read["ceilings"]} == set(measured_ceilings)
    text = report.text_of("record.json", read)
    for part in ("**Stand-in** (1 GiB)", "CUDA runtime 13.1", "today", "GB/s", "gpu-cached-100000", case.data):
        assert part in text
    reported(monkeypatch, file)
    assert text in capsys.readouterr().out


def saved(record: contest.Contest, path: Path) -> Path:
    """Write what the hook of `--benchmark-json` adds."""
    path.write_text(json.dumps({"benchmarks": []} | record.record()))
    return path


def reported(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    """Run `python -m benchmarks.report`."""
    monkeypatch.setattr(sys, "argv", ["report", *map(str, arguments)])
    report.main()


def record_of(path: Path, gpu: str, found: dict[str, Any]) -> Path:
    """Save the record of a headline case and of a sweep."""
    trial, sweep = HEADLINE[0], replace(SOLVERS, cases=SOLVERS.cases[:2])
    case = tiny(trial.case)
    record, entries = played(case, found)
    record.machine["gpu"] = gpu
    record.verdicts.append(verdicts.judged(trial.judge, case.n, case, entries, found))
    cases = [replace(tiny(case), n=n) for case, n in zip(sweep.cases, (60, 90), strict=True)]
    by_case = [record.enter(case) for case in cases]
    for of_contestant in zip(*by_case, strict=True):
        record.play_sweep(cases, list(of_contestant))
    return saved(record, path)


def test_figures_of_a_card_are_written_between_the_marks_of_the_page(
    numpy_device: None, measured_ceilings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, readme = record_of(tmp_path / "r.json", "A card", measured_ceilings), tmp_path / "README.md"
    begin, end = report.MARKS
    readme.write_text(f"before\n{begin}\nNot yet measured on a card.\n{end}\nafter\n")
    for _ in range(2):  # the second time over what the first wrote
        reported(monkeypatch, record, "--page", readme)
        text = readme.read_text()
        assert text.startswith(f"before\n{begin}\nMeasured on **A card**")
        assert text.endswith(f".\n{end}\nafter\n")
        assert text.count("0.6 s with residual 1e-05") == text.count("SGEMM 64 × 64 × 64") == 1
        assert "- gpu-dense-or-krylov: gpukpca on CuPy, block Krylov is faster than" in text
        assert "Not yet measured" not in text
    readme.write_text("no marks\n")
    with pytest.raises(SystemExit, match="lacks the lines"):
        reported(monkeypatch, record, "--page", readme)
    assert readme.read_text() == "no marks\n"
    host = tmp_path / "host.json"
    host.write_text(json.dumps({"machine": {"cpu": "a host"}, "entries": []}))
    with pytest.raises(SystemExit, match="one card"):
        reported(monkeypatch, host, "--page", readme)


def test_figures_of_the_imitation_are_kept_out_of_the_page(
    numpy_device: None, cuda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fake_cupy.is_installed():
        pytest.skip("a real card, whose figures are no imitation's")
    record, readme = record_of(tmp_path / "r.json", card.described()["gpu"], {}), tmp_path / "README.md"
    text = "\n".join(report.MARKS)
    readme.write_text(text)
    with pytest.raises(SystemExit, match="imitation"):
        reported(monkeypatch, record, "--page", readme)
    assert readme.read_text() == text
    reported(monkeypatch, record, "--page", readme, "--force")
    assert readme.read_text().splitlines()[1] == "**Imaginary figures, made on the imitation of a card.**"


def test_the_page_has_the_marks_once_and_figures_of_a_card_between_them_alone() -> None:
    text = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert [text.count(mark) for mark in report.MARKS] == [1, 1]
    outside = text.partition(report.MARKS[0])[0] + text.partition(report.MARKS[1])[2]
    assert "not yet measured" not in outside.lower()
    assert "not measured yet" not in outside.lower()
    assert "Imaginary" not in text


def test_shapes_of_a_fit_are_timed_and_failures_do_not_end_them(
    cuda: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shapes, "COMPONENTS", 2)
    made = shapes.shapes
    broken = {"broken": lambda: 1 / 0}
    monkeypatch.setattr(shapes, "shapes", lambda place, n: broken | made(place, n))
    shapes.timed(places.CUPY, 400)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 12
    assert lines[0].split()[:2] == ["broken", "ZeroDivisionError:"]
    assert [line for line in lines[1:] if not line.endswith((" s", " ms", " µs"))] == []


def test_shapes_of_the_library_stand_beside_those_of_the_device(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "COMPONENTS", 2)
    n = 400
    monkeypatch.setattr(blocking, "TRANSFER_BYTES", shapes.UPLOADED * n * shapes.D * 4 // 3)
    made = shapes.shapes(places.CUPY, n)
    pairs = {name: (run, made[name.removesuffix("plain") + "gpukpca"]) for name, run in made.items() if "plain" in name}
    assert [name.split()[0] for name in pairs] == ["product", "full", "full", "upload"]
    for name, (plain, own) in pairs.items():
        runs = (plain(), own(), own())  # the last: no run destroys what the next one reads
        expected, first, second = (cuda.asnumpy(run[0] if isinstance(run, tuple) else run) for run in runs)
        np.testing.assert_allclose(first, expected, rtol=0, atol=1e-4 * np.abs(expected).max(), err_msg=name)
        np.testing.assert_array_equal(second, first, err_msg=name)


def test_what_is_uploaded_is_long_beside_a_call_and_takes_pinned_memory() -> None:
    row = 4 * shapes.D * shapes.UPLOADED
    assert shapes.N * row >= 10**9
    assert shapes.N_QUICK * row > blocking.TRANSFER_BYTES


def test_the_clock_waits_and_warm_up_is_not_timed() -> None:
    calls: list[str] = []
    seconds, answer = places.timed_runs(lambda: calls.append("run") or 7, lambda: calls.append("wait"), runs=2)
    assert calls == ["wait", "run", "wait"] * 2
    assert answer == 7
    assert len(seconds) == 2
    assert len(places.timed_runs(lambda: time.sleep(0.01), runs=100, patience=0.05)[0]) < 10
    assert len(places.timed_runs(lambda: time.sleep(0.01), runs=100, patience=0.0)[0]) == 1
    calls.clear()
    found = places.seconds_each(lambda: calls.append("run"), before=lambda: calls.append("before"), runs=3)
    assert calls == ["before", "run"] * 5
    assert len(found) == 3


def test_contestants_answer_from_processes_of_their_own() -> None:
    cases = [Case("first", ("gpukpca",), "gaussian", 60, 4, p=2), Case("second", ("gpukpca",), "nothing", 60, 4, p=2)]
    answers = contest.run_alone([*cases, cases[0]], "gpukpca")
    assert [answer["outcome"] for answer in answers] == ["ok", "KeyError: 'nothing'"]
    assert answers[0]["residual"] < 1e-5
    assert answers[0]["facts"]["device"] == "cpu"
    late = contest.run_alone(cases, "gpukpca", timeout=0.01)
    assert late == [{"outcome": "timeout after 0 s"}]


def test_lines_of_libraries_and_halves_of_lines_are_no_answers() -> None:
    assert contest.answers_in('hello\n{"outcome": "ok", "x": 1}\n{"outcome": "o') == [{"outcome": "ok", "x": 1}]


def test_a_sweep_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [Case(f"n-{n}", ("gpukpca", "plain NumPy"), "gaussian", n, 4) for n in (1, 2, 3)]
    asked: list[tuple[str, list[int]]] = []

    def answered(cases: Sequence[Case], name: str, *_: Any) -> list[dict[str, Any]]:
        asked.append((name, [case.n for case in cases]))
        good = {"outcome": "ok", "seconds": [1.0], "peak_mib": None, "total_mib": None, "device_mib": None}
        upto = [case.n for case in cases].index(2) if any(case.n == 2 for case in cases) else len(cases)
        return [dict(good) for _ in cases[:upto]] + [{"outcome": "crashed"}] * (upto < len(cases))

    monkeypatch.setattr(contest, "run_alone", answered)
    record = contest.Contest({})
    by_case = [record.enter(case) for case in cases]
    entries = [entry for of_case in by_case for entry in of_case]
    for of_contestant in zip(*by_case, strict=True):
        record.play_sweep(cases, list(of_contestant))
    assert asked == [("gpukpca", [1, 2, 3]), ("gpukpca", [3]), ("plain NumPy", [1, 2, 3]), ("plain NumPy", [3])]
    assert [entry["outcome"] for entry in entries] == ["ok", "ok", "crashed", "crashed", "ok", "ok"]


def test_after_the_deadline_nothing_begins() -> None:
    record = contest.Contest({}, deadline=time.monotonic() + 1)
    case = Case("case", ("gpukpca",), "gaussian", 60, 4)
    entries = record.enter(case)
    record.play_round(case, entries)
    assert entries[0]["outcome"] == contest.NO_TIME


# -- the table ---------------------------------------------------------------------------------------------------------

# In place of processes: each name takes its own time, one peer fails, and one certified answer is wrong. The option is
# that of another plugin.
STAND_IN = """
from benchmarks import contest

def answered(cases, name, *_):
    if name == "plain NumPy":
        return [{"outcome": "MemoryError: too large"}]
    residual = 1.0 if name == "gpukpca" and cases[0].name == "full-2000" else 0.0
    memory = dict.fromkeys(("peak_mib", "total_mib", "device_mib"))
    seconds = [len(name) / 8 + i for i in range(cases[0].repeats)]
    return [memory | {"outcome": "ok", "seconds": seconds, "residual": residual, "facts": {}} for _ in cases]

contest.run_alone = answered

def pytest_addoption(parser):
    parser.addoption("--timeout", type=float)

def pytest_itemcollected(item):
    if "benchmark" in item.fixturenames:
        assert set(item.callspec.params) == {"case", "contestant"}
"""


def test_contestants_are_rows_of_the_table(tmp_path: Path) -> None:
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    options = ["-k", "full-2000 or kernel-rbf", "--timeout", "9", "--benchmark-json", "r.json"]
    options += ["--benchmark-group-by", "param:case", "-rs", "-p", "stand_in", "-p", "no:cacheprovider"]
    # pytest-benchmark takes no times where it finds itself in a process of pytest-xdist.
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(ROOT / "benchmarks"), "-p", "pytest_benchmark.plugin", *options],
        cwd=tmp_path,
        env=alone | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "benchmark 'case=kernel-rbf': 2 tests" in done.stdout, done.stdout + done.stderr
    assert "MemoryError: too large" in done.stdout
    assert "1 failed" in done.stdout
    written = json.loads((tmp_path / "r.json").read_text())
    rows = {row["name"]: row for row in written["benchmarks"]}
    ours, peer = rows["test_sweep[kernel-rbf-gpukpca]"], rows["test_sweep[kernel-rbf-sklearn arpack, matched]"]
    assert ours["stats"]["data"] == [7 / 8, 7 / 8 + 1, 7 / 8 + 2]
    assert peer["stats"]["data"] == [23 / 8, 23 / 8 + 1, 23 / 8 + 2]
    assert ours["group"] == peer["group"] == "kernel-rbf"
    assert ours["params"] == {"case": "kernel-rbf", "contestant": "gpukpca"}
    assert ours["extra_info"]["residual"] == 0.0
    # A wrong answer has no row; the record has it.
    assert "test_case[full-2000-gpukpca]" not in rows
    assert "test_case[full-2000-sklearn dense]" in rows
    entries = {(e["case"], e["contestant"]): e for e in written["entries"]}
    assert entries["full-2000", "plain NumPy"]["outcome"] == "MemoryError: too large"
    assert entries["full-2000", "gpukpca"]["residual"] == 1.0


# -- scripts -----------------------------------------------------------------------------------------------------------


def script(*command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHON": sys.executable}
    return subprocess.run(
        ["bash", *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_without_a_device_one_sentence_and_status_1(tmp_path: Path) -> None:
    from gpukpca.cuda.device import probe

    if probe()[0]:
        pytest.skip("there is a device")
    json_option = ["--benchmark-json", f"{tmp_path}/r.json"]
    for command in (["ci/bench.sh", "--gpu", *json_option], ["ci/gpu_session.sh", str(tmp_path)]):
        done = script(*command)
        assert done.returncode == 1
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("No CUDA device that CuPy can use")
        assert not list(tmp_path.iterdir())


def test_the_cases_of_a_card_are_not_run_without_being_asked_for() -> None:
    def collected(*options: str) -> str:
        done = script("ci/bench.sh", "--collect-only", "-q", *options)
        return done.stdout + done.stderr

    usual = collected()
    assert "bench_gpu" not in usual
    assert "test_case[mnist-10000-gpukpca]" in usual
    assert "test_axes" not in usual


def test_a_card_has_its_own_cases_alone() -> None:
    command = [sys.executable, "-m", "pytest", "benchmarks", "--gpu", "--collect-only", "-q", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "-p", "pytest_benchmark.plugin"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "gpu-cached-100000" in done.stdout
    assert "bench_cases" not in done.stdout
