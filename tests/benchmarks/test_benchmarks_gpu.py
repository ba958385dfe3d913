"""The benchmarks of a card at tiny sizes, NumPy or the stand-in in its place: no figure here is a speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are not part of the package")

from benchmarks import (
    accuracy,
    ceilings,
    contest,
    contestant,
    floors,
    host_time,
    machine,
    peers,
    places,
    publish,
    report,
    shapes,
    tensor_cores,
)
from benchmarks.cases import Case
from benchmarks.contest import Contest, check
from benchmarks.datasets import load
from benchmarks.gpu_cases import NUMPY_IN, SHARE, SWEEPS, TRIALS, fits, needed_bytes, sized
from benchmarks.places import Host
from benchmarks.verdicts import Target, faster_from, judged, medians
from gpukpca.backend import blocking
from gpukpca.cuda import linalg as cuda_linalg
from gpukpca.eigen import BlockKrylov, Dense
from gpukpca.eigen.solve import DENSE_UP_TO_GPU, choose_solver
from tests.each import each

ROOT = Path(__file__).resolve().parents[2]
TINY = ceilings.Sizes(copy=2**16, edge=64, tile=64, runs=3)
RATES = ("copy", "tile copy", "exp float32", "exp float64", "sgemm", "dgemm")
CARD = {"gpu": "Stand-in", "gpu_bytes": 2**30, "driver": None, "cuda_driver": 13000, "cuda_runtime": 13010}
ABOUT = {"date": "today", "gpukpca": "0", "python": "3", "cpu": "a host", "cpus": 1, "blas_threads": 1} | CARD
# A card with round rates: 50 TFLOP/s, 4 TB/s.
ROUND = {
    "copy": {"value": 4000.0, "unit": "GB/s"},
    "sgemm": {"value": 50.0, "unit": "TFLOP/s"},
    "dgemm": {"value": 25.0, "unit": "TFLOP/s"},
}
BY_NAME = {case.name: (case, target) for case, target in TRIALS}
SWEPT = [case for cases in SWEEPS.values() for case in cases]
SOLVERS = SWEEPS["gpu-dense-or-krylov", "n"]
each_trial = pytest.mark.parametrize(("case", "target"), TRIALS, ids=list(BY_NAME))


class NumpyDevice(Host):
    """NumPy as a device: the accuracy is computed by the code for devices."""

    on_device = True
    check = staticmethod(np.asarray)

    def taken(self) -> int:
        return 2**20


@pytest.fixture(scope="module")
def rates() -> dict[str, dict[str, Any]]:
    return ceilings.measured(NumpyDevice(), TINY)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run contestants in this process, and check them by the code for devices."""
    monkeypatch.setattr(accuracy, "DEVICE_FROM", 0)
    monkeypatch.setattr(accuracy, "DEVICE_EDGE", 150)
    monkeypatch.setattr(contest, "Worker", Here)


@pytest.fixture
def numpy_device(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NumPy be the device of every contestant."""
    for name, peer in peers.PEERS.items():
        if peer.place.on_device:
            monkeypatch.setitem(peers.PEERS, name, replace(peer, place=NumpyDevice()))
    on_host = replace(peers.PEERS[NUMPY_IN[0]], build=partial(peers.ours, device="cpu"))
    monkeypatch.setitem(peers.PEERS, NUMPY_IN[0], on_host)


class Here:
    """Stand in for `benchmarks.contest.Worker` without another process; through JSON, as there."""

    pid = 1

    def __init__(self, name: str, *_: Any) -> None:
        # Imports PyTorch, which warns.
        self.player = None if name == "TorchDR on CUDA" else contestant.Player(name)

    def ask(self, do: str, timeout: float, **message: Any) -> dict[str, Any]:
        if self.player is None:
            return {"outcome": "skipped: no TorchDR"}
        return json.loads(json.dumps(self.player.answer(do, **json.loads(json.dumps(message)))))

    def close(self) -> None:
        pass


def tiny(case: Case, n: int | None = None) -> Case:
    """Return the same problem with few rows; the settings of sweeps stay apart."""
    settings = {"n": n or max(60, min(case.n // 100, 300)), "d": min(case.d, 8), "p": min(case.p, 8), "rank": 50}
    settings |= {"tile_edge": case.tile_edge and case.tile_edge // 64, "block": case.block and case.block // 4}
    return replace(case, repeats=2, **settings)


def play_sweep(record: Contest, cases: Sequence[Case]) -> list[dict[str, Any]]:
    return [entry for case in cases for entry in record.play(case, case.contestants)]


# -- the cases ---------------------------------------------------------------------------------------------------------


@each_trial
def test_trials_are_measured_certified_and_judged(
    numpy_device: None, rates: dict[str, Any], case: Case, target: Target
) -> None:
    small = tiny(case)
    entries = Contest(ABOUT).play(small, case.contestants)
    assert entries[0]["outcome"] == "ok"
    for entry in entries:
        check(small, entry)
        if entry["outcome"] == "ok":
            assert len(entry["seconds"]) == 2
            assert entry["median"] > 0
            assert floors.floor_seconds(rates, entry) > 0
    verdict = judged(target, small.n, small, entries, rates)
    assert verdict["reached"] in (True, False)
    assert verdict["target"]
    assert verdict["measured"]
    assert verdict["share"] == pytest.approx(verdict["floor_s"] / entries[0]["median"])
    elsewhere = judged(target, case.n, small, entries, rates)
    assert elsewhere["reached"] is None
    assert elsewhere["note"].startswith("not judged")
    assert judged(target, small.n, small, entries, {})["share"] is None


@each_trial
def test_trials_on_cupy(cuda: Any, here: None, case: Case, target: Target) -> None:
    """The branches for CuPy: placing, waiting, memory of the device, NumPy in, accuracy on the device."""
    small = tiny(case)
    entries = Contest(ABOUT).play(small, [name for name in case.contestants if "torch" not in name.lower()])
    assert [entry["outcome"] for entry in entries] == ["ok"] * len(entries)
    for entry in entries:
        check(small, entry)
        assert entry["device_mib"] > 0
        assert entry["facts"].get("device", "cuda").startswith("cuda")
    assert judged(target, small.n, small, entries, ROUND)["reached"] in (True, False)


@pytest.mark.parametrize("family", SWEEPS, ids=lambda family: family[0])
def test_sweeps_play_every_contestant_at_every_setting(
    numpy_device: None, rates: dict[str, Any], family: tuple[str, str]
) -> None:
    axis = family[1]
    cases = [
        tiny(case, n) for case, n in zip(SWEEPS[family][-2:], (60, 90) if axis == "n" else (None,) * 2, strict=True)
    ]
    record = Contest(ABOUT, ceilings=rates)
    entries = play_sweep(record, cases)
    assert [entry["contestant"] for entry in entries] == [*cases[0].contestants, *cases[1].contestants]
    for entry in entries:
        case = next(case for case in cases if case.name == entry["case"])
        check(case, entry)
        assert entry[axis] == getattr(case, axis)
    facts = entries[0]["facts"]
    assert cases[0].tile_edge in (None, facts.get("tile_edge"))
    assert cases[0].block is None or f"block of {cases[0].block}" in facts["solver"]
    text = report.text_of("name", record.record())
    assert text.count(f"{family[0]}: ") == 1
    assert all(name in text for name in cases[0].contestants)


def test_names_settings_and_contestants_are_those_of_the_targets() -> None:
    cases = [*(case for case, _ in TRIALS), *SWEPT]
    assert len({case.name for case in cases}) == len(cases)
    assert {name for case in cases for name in case.contestants} <= set(peers.PEERS)
    assert BY_NAME["gpu-cached-100000"][0].tol == BY_NAME["gpu-fit-1000000"][0].tol == 1e-5
    assert BY_NAME["gpu-pass-1000000-d16"][0].p == 64
    sizes = [case.n for case in SOLVERS]
    assert DENSE_UP_TO_GPU in sizes
    assert min(sum(n < DENSE_UP_TO_GPU for n in sizes), sum(n > DENSE_UP_TO_GPU for n in sizes)) >= 2


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_card_and_host_are_compared_with_the_dense_and_the_iterative_solver(dtype: str, quick: bool) -> None:
    cases = [case for case, _ in TRIALS if case.task == "compared" and case.dtype == dtype]
    assert [case.tol for case in cases] == pytest.approx([100 * np.finfo(dtype).eps] * 2)
    sizes = [sized(case, quick, 10**13).n for case in cases]
    assert [type(choose_solver(n, 10, on_gpu=True)) for n in sizes] == [Dense, BlockKrylov]


@pytest.mark.parametrize("gib", [4, 16, 80])
def test_sizes_shrink_to_the_card(gib: int) -> None:
    free = gib * 2**30
    for case, _ in TRIALS:
        small = sized(case, False, free)
        assert needed_bytes(small) <= SHARE * free
        assert small.n == case.n or not fits(case, free)
        assert sized(case, True, 10**13).n == case.quick_n
    assert [sum(case.quick_n > 0 for case in cases) for cases in SWEEPS.values()] == [3, 3, 4, 0, 0, 0, 1]


# -- accuracy ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def problem(monkeypatch: pytest.MonkeyPatch) -> tuple[Case, np.ndarray]:
    monkeypatch.setattr(accuracy, "DEVICE_FROM", 0)
    case = Case("problem", ("gpukpca",), "gaussian", 300, 5, "float64", p=4, gamma=0.1)
    return case, load(case.data, case.n, case.d, case.dtype)


def test_accuracy_on_a_device_is_that_on_the_host(problem: tuple[Case, np.ndarray]) -> None:
    case, X = problem
    V = np.random.default_rng(1).standard_normal((len(X), 3))
    exact = accuracy.kernel_product(case, X, np.arange(len(X)), V)
    np.testing.assert_allclose(accuracy.device_product(case, X, V, np.asarray, edge=128), exact, rtol=0, atol=1e-11)
    on_host, on_device = (
        accuracy.eigen_errors(case, X, V, np.array([3.0, 2.0, 1.0]), put) for put in (None, np.asarray)
    )
    assert on_device[0] == pytest.approx(on_host[0], rel=1e-11)
    np.testing.assert_allclose(on_device[1], on_host[1], rtol=1e-10, atol=1e-10)
    wrong = exact + 1e-3 * np.abs(exact).max() * (np.arange(len(X)) == 7)[:, None]
    assert accuracy.product_error(case, X, V, wrong, np.asarray) == pytest.approx(1e-3, rel=0.01)


def test_a_wrong_eigenpair_is_found_on_the_device(problem: tuple[Case, np.ndarray]) -> None:
    case, X = problem
    model = peers.ours(case)
    scores = model.fit_transform(X)
    assert accuracy.eigen_errors(case, X, scores, model.eigenvalues_, np.asarray)[0] < 1e-8
    values = model.eigenvalues_ * [1.0, 1.0, 1.0, 1.01]
    found = accuracy.eigen_errors(case, X, scores, values, np.asarray)[0]
    assert found == pytest.approx(0.01 * model.eigenvalues_[3] / model.eigenvalues_[0], rel=1e-6)


def test_agreement_compares_what_the_gaps_determine() -> None:
    U = np.linalg.qr(np.random.default_rng(0).standard_normal((50, 3)))[0]
    values, norms = np.array([4.0, 2.0, 2.0 - 1e-9]), np.full(3, 1e-13)
    fit = {"scores": U * values**0.5, "eigenvalues": values, "residual_norms": norms, "gap": 1.0}
    turned = np.hstack([-U[:, :1], U[:, 1:] @ [[0.0, 1.0], [-1.0, 0.0]]])
    other = fit | {"scores": turned * values**0.5, "eigenvalues": values * (1 + 10 * 2.0**-52)}
    found = accuracy.agreement(other, fit, "float64")
    assert found["columns"] == 1
    assert found["scores"] < 1e-14
    assert found["scores_all"] > 1
    assert found["values_in_eps"] == pytest.approx(10, abs=1)
    alike = fit | {"eigenvalues": np.ones(3), "gap": None}
    assert accuracy.agreement(fit, alike, "float64")["scores"] is None


def test_bounds_of_an_approximation_are_asserted(numpy_device: None) -> None:
    case = tiny(BY_NAME["gpu-nystrom-1000000"][0])
    (entry,) = Contest(ABOUT).play(case, case.contestants)
    assert entry["certificate"] > 0
    check(case, entry)
    for bound in ("below_bound", "above_bound"):
        with pytest.raises(AssertionError):
            check(case, entry | {bound: 0.01})


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        ({"facts": {"device": "cpu"}}, "computed on cpu"),
        ({"residual": 4e-5}, "gpukpca on CuPy"),
        ({"outcome": contest.NO_TIME}, "gpukpca on CuPy"),
        ({"outcome": "MemoryError: too large"}, "MemoryError"),
    ],
)
def test_broken_promises_fail_a_row(change: dict[str, Any], promise: str) -> None:
    case = Case("case", ("gpukpca on CuPy",), "gaussian", 100, 5)
    entry = entry_of(case, 1.0, facts={"device": "cuda:0 a card"})
    check(case, entry)
    check(case, entry | change | {"outcome": "skipped: no library"})
    with pytest.raises(AssertionError, match=promise):
        check(case, entry | change)


# -- ceilings and floors -----------------------------------------------------------------------------------------------


def test_ceilings_are_complete(rates: dict[str, Any]) -> None:
    assert set(rates) == set(RATES)
    for row in rates.values():
        assert min(row["value"], row["seconds"]) > 0
        assert row["runs"] == 3
    assert rates["sgemm"]["relative_error"] < 1e-6
    json.dumps(rates)


def test_ceilings_on_cupy(cuda: Any) -> None:
    assert set(ceilings.measured(places.Cupy(), TINY)) == set(RATES)


def test_the_time_of_the_host_is_printed_for_every_kernel(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(host_time, "SIDE", 2)
    monkeypatch.setattr(host_time, "REPEATS", 1)
    host_time.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == 2 * list(host_time.KERNELS)
    assert all(" µs a computed tile, " in line for line in lines)


def test_products_in_tf32_are_detected(capsys: pytest.CaptureFixture[str]) -> None:
    class Rounded(NumpyDevice):
        def put(self, X: np.ndarray) -> np.ndarray:
            return (X.view(np.int32) & np.int32(-8192)).view(np.float32) if X.dtype == np.float32 else X.copy()

    found = ceilings.measured(Rounded(), TINY)
    assert "sgemm" not in found
    assert "copy" in found
    assert "is TF32 on?" in capsys.readouterr().err


def test_sizes_of_the_ceilings_fit_the_card() -> None:
    assert ceilings.Sizes().within(10**12) == ceilings.Sizes()
    small = ceilings.Sizes().within(2 * 2**30)
    assert 4 * small.copy <= 2 * 2**30
    assert max(small.edge, small.tile) < 8192


def test_floors_are_those_of_the_design() -> None:
    # n = 1e6, 64 columns, 47 TFLOP/s and 4.3 TB/s: the figures that the targets were made from.
    card = ROUND | {"sgemm": {"value": 47.0, "unit": "TFLOP/s"}, "copy": {"value": 4300.0, "unit": "GB/s"}}
    assert floors.pass_seconds(card, 10**6, 16, 64) == pytest.approx(5.4, abs=0.05)
    assert floors.pass_seconds(card, 10**6, 100, 64) == pytest.approx(7.15, abs=0.05)
    # n = 1e5, d = 16, 10 columns at 50 TFLOP/s and 4 TB/s.
    assert floors.pass_seconds(ROUND, 10**5, 16, 10) == pytest.approx(1e10 * 36 / 50e12 + 1e11 / 4e12)
    assert floors.pass_seconds(ROUND, 10**5, 16, 10, cached=1.0) == pytest.approx(1e10 * 20 / 50e12 + 4e10 / 4e12)
    assert floors.pass_seconds(ROUND, 10**5, 16, 10, "float64") == pytest.approx(1e10 * 36 / 25e12 + 2e11 / 4e12)
    entry = {"n": 10**5, "d": 16, "dtype": "float32", "facts": {"passes": 3, "columns": 30}}
    assert floors.fit_seconds(ROUND, entry) is None
    entry["facts"] |= {"tiles": 10, "cached_tiles": 10}
    once, again = (floors.pass_seconds(ROUND, 10**5, 16, 10, cached=share) for share in (0.0, 1.0))
    assert floors.fit_seconds(ROUND, entry) == pytest.approx(once + 2 * again)


# -- targets -----------------------------------------------------------------------------------------------------------


def entry_of(case: Case, seconds: float | None, contestant: str = "", **more: Any) -> dict[str, Any]:
    usual = {"residual": 1e-6, "facts": {}, "outcome": "ok", "device_mib": 1.0, "n": case.n, "d": case.d}
    usual |= {"kernel": "rbf", "task": case.task, "dtype": case.dtype, "p": case.p, "seconds": [seconds]}
    return usual | {"contestant": contestant or case.contestants[0], "median": seconds, "total_mib": None} | more


FLOOR = floors.pass_seconds(ROUND, 10**6, 16, 64)
TILES = {"facts": {"tiles": 3, "cached_tiles": 0}}
COPIES = {"facts": {"up_s": 0.01, "down_s": 0.001}}
NEAR = {"values_in_eps": 49.0, "scores": 9e-11, "columns": 9}
LOST = (None, "TorchDR on CUDA", {"outcome": "skipped: not there"})


@each(
    "name, entries, reached",
    [
        ("gpu-cached-100000", [(0.59,)], True),
        ("gpu-cached-100000", [(0.61,)], False),
        ("gpu-cached-100000", [(0.59, "", {"residual": 1.1e-5})], False),
        ("gpu-cached-100000", [(None, "", {"outcome": "timeout after 600 s"})], None),
        ("gpu-fit-1000000", [(70.0,)], False),
        ("gpu-pass-1000000-d16", [(1.49 * FLOOR, "", TILES)], True),
        ("gpu-pass-1000000-d16", [(1.51 * FLOOR, "", TILES)], False),
        ("gpu-peers-20000", [(0.1,), (5.1, "plain CuPy"), LOST], True),
        ("gpu-peers-20000", [(0.1,), (5.1, "plain CuPy"), (4.9, "plain torch on CUDA")], False),
        ("gpu-peers-20000", [(0.1,), LOST], None),
        ("gpu-numpy-in-50000", [(0.2, "", COPIES), (0.19,)], True),
        ("gpu-numpy-in-50000", [(0.2, "", COPIES), (0.15,)], False),
        ("gpu-numpy-in-50000", [(0.05, "", COPIES), (0.05,)], False),
        ("gpu-agreement-10000-float64", [(1.0, "", NEAR)], True),
        ("gpu-agreement-10000-float64", [(1.0, "", NEAR | {"values_in_eps": 51.0})], False),
        ("gpu-agreement-10000-float64", [(1.0, "", NEAR | {"scores": 2e-10})], False),
    ],
)
def test_targets_are_judged(name: str, entries: list[tuple[Any, ...]], reached: bool | None) -> None:
    case, target = BY_NAME[name]
    made = [entry_of(case, *entry[:2], **(entry[2] if len(entry) > 2 else {})) for entry in entries]
    verdict = judged(target, case.n, case, made, ROUND)
    assert verdict["reached"] is reached
    assert verdict["note"] == ("90 s reached, 60 s missed" if "fit" in name else "")


def test_where_lines_cross() -> None:
    times = {"slow": [1.0, 2.0, 4.0, 8.0], "fast": [3.0, 1.0, 5.0, 6.0]}
    rows = [
        {"n": n, "contestant": who, "median": times[who][i], "outcome": "ok"}
        for i, n in enumerate((10, 20, 40, 80))
        for who in times
    ]
    assert faster_from(rows, "slow", "fast") == 80
    assert faster_from(rows[:2], "slow", "fast") is None
    assert medians([*rows, rows[0] | {"n": 5, "outcome": "crashed"}], "slow", "n") == {10: 1, 20: 2, 40: 4, 80: 8}


# -- the record and the report -----------------------------------------------------------------------------------------


def save_record(path: Path, gpu: str, rates: dict[str, Any]) -> Path:
    """Save the record of a case with a target and of a sweep, as `--record` writes it."""
    case, target = TRIALS[0]
    small, record = tiny(case), Contest(ABOUT | {"gpu": gpu}, ceilings=rates)
    entries = record.play(small, case.contestants)
    entries[0]["verdict"] = judged(target, small.n, small, entries, rates)
    play_sweep(record, [tiny(case, n) for case, n in zip(SOLVERS[:2], (60, 90), strict=True)])
    path.write_text(json.dumps(record.record()), encoding="utf-8")
    return path


def run_report(monkeypatch: pytest.MonkeyPatch, *arguments: object, module: Any = report) -> None:
    monkeypatch.setattr(sys, "argv", ["report", *map(str, arguments)])
    module.main()


run_publish = partial(run_report, module=publish)


def test_record_and_report_are_complete(
    numpy_device: None,
    rates: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = save_record(tmp_path / "record.json", "A card", rates)
    read = json.loads(file.read_text(encoding="utf-8"))
    assert set(read) == {"machine", "ceilings", "entries"}
    assert read["ceilings"] == rates
    run_report(monkeypatch, file)
    text = capsys.readouterr().out
    for part in (
        "**A card** (1 GiB)",
        "CUDA runtime 13.1",
        "today",
        "GB/s",
        "gpu-cached-100000: ",
        "gpukpca on CuPy, dense  ",
    ):
        assert part in text
    run_report(monkeypatch)
    assert "No CUDA" not in capsys.readouterr().out


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Make a folder with a page whose part of a card is empty; return the page."""
    page = tmp_path / "docs" / "benchmarks.md"
    page.parent.mkdir()
    page.write_text("before\n{}\nNot yet measured.\n{}\nafter\n".format(*publish.marks("a card")), encoding="utf-8")
    return page


def test_figures_of_a_card_are_written_between_the_marks_of_the_page(
    numpy_device: None, rates: dict[str, Any], pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, (begin, end) = save_record(tmp_path / "r.json", "A card", rates), publish.marks("a card")
    for _ in range(2):  # the second time over what the first wrote
        run_publish(monkeypatch, record, "--to", tmp_path)
        text = pages.read_text(encoding="utf-8")
        assert text.startswith(f"before\n{begin}\nMeasured on **A card**")
        assert text.endswith(f".\n{end}\nafter\n")
        assert text.count("0.6 s with residual 1e-05") == text.count("SGEMM 64 × 64 × 64") == 1
        assert "- gpu-dense-or-krylov: gpukpca on CuPy, block Krylov is faster than" in text
        assert "Not yet measured" not in text
    pages.write_text("no marks\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="lacks the lines"):
        run_publish(monkeypatch, record, "--to", tmp_path)
    assert pages.read_text(encoding="utf-8") == "no marks\n"
    other = save_record(tmp_path / "other.json", "Another card", rates)
    with pytest.raises(SystemExit, match="one card"):
        run_publish(monkeypatch, record, other, "--to", tmp_path)


def test_figures_of_the_stand_in_are_kept_out_of_the_page(
    numpy_device: None, stand_in: Any, pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, before = save_record(tmp_path / "r.json", machine.card()["gpu"], {}), pages.read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="stand-in"):
        run_publish(monkeypatch, record, "--to", tmp_path)
    assert pages.read_text(encoding="utf-8") == before
    run_publish(monkeypatch, record, "--to", tmp_path, "--force")
    third = pages.read_text(encoding="utf-8").splitlines()[2]
    assert third == "**Imaginary figures, made on the stand-in for a card.**"


def test_the_page_has_the_marks_once_and_figures_of_a_card_between_them_alone() -> None:
    text, marks = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8"), publish.marks("a card")
    assert [text.count(mark) for mark in marks] == [1, 1]
    outside = text.partition(marks[0])[0] + text.partition(marks[1])[2]
    assert "not yet measured" not in outside.lower()
    assert "Imaginary" not in text


# -- shapes ------------------------------------------------------------------------------------------------------------


def test_shapes_of_a_fit_are_timed_and_failures_do_not_end_them(
    cuda: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shapes, "COMPONENTS", 2)
    shapes.timed(places.Cupy(), {"broken": lambda: 1 / 0} | shapes.shapes(places.Cupy(), 400))
    first, *others = capsys.readouterr().out.splitlines()
    assert len(others) >= 11
    assert first.split()[:2] == ["broken", "ZeroDivisionError:"]
    assert [line for line in others if not line.endswith((" s", " ms", " µs"))] == []


def test_shapes_of_the_library_stand_beside_those_of_the_device(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "COMPONENTS", 2)
    n = 400
    monkeypatch.setattr(blocking, "TRANSFER_BYTES", shapes.UPLOADED * n * shapes.D * 4 // 3)
    made = shapes.shapes(places.Cupy(), n)
    pairs = {name: (run, made[name.removesuffix("plain") + "gpukpca"]) for name, run in made.items() if "plain" in name}
    assert [name.split()[0] for name in pairs] == ["product", "full", "full", "upload"]
    for name, (plain, own) in pairs.items():
        runs = (plain(), own(), own())  # the last: no run destroys what the next one reads
        expected, first, second = (cuda.asnumpy(run[0] if isinstance(run, tuple) else run) for run in runs)
        np.testing.assert_allclose(first, expected, rtol=0, atol=1e-4 * np.abs(expected).max(), err_msg=name)
        np.testing.assert_array_equal(second, first, err_msg=name)


def test_products_of_tensor_cores_are_those_of_matrices(cuda: Any) -> None:
    rng, answers = np.random.default_rng(0), dict.fromkeys(tensor_cores.PRECISIONS, "float32") | {"float64": "float64"}
    for name, (dtype, compute_type) in tensor_cores.PRECISIONS.items():
        A, B = (cuda.asarray(rng.random(shape).astype(dtype)) for shape in ((24, 16), (16, 8)))
        wanted = A.get().astype(np.float64) @ B.get().astype(np.float64)
        pairs = [(A, B), (A, cuda.asarray(B.T.copy()).T), (cuda.asarray(A.T.copy()).T, B)]
        for left, right in [*pairs, (pairs[2][0], pairs[1][1])]:
            made = cuda_linalg.product(left, right, cuda.zeros((24, 8), answers[name]), compute_type)
            error = np.abs(made.get() / wanted - 1.0).max()
            # Operands keep 10 bits in TF32; those in float16 have no more, and their products are exact in float32.
            assert error < {"TF32": 2e-3, "float64": 1e-14}.get(name, 1e-6), name
            assert (error > 1e-5) == (name == "TF32"), name
    runs = tensor_cores.products(400, 100, 64)
    assert list(tensor_cores.PRECISIONS) == ["float64", "float32", "TF32", "float16"]
    assert [run().dtype for run in runs.values()] == [np.float64] * 3 + [np.float32] * 9


def test_what_is_uploaded_is_long_beside_a_call_and_takes_pinned_memory() -> None:
    row = 4 * shapes.D * shapes.UPLOADED
    assert shapes.N * row >= 10**9
    assert shapes.N_QUICK * row > blocking.TRANSFER_BYTES


# -- the clock and the processes ---------------------------------------------------------------------------------------


def test_the_clock_waits_and_warm_up_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    now = [0.0]

    class Waiting(Host):
        def wait(self) -> None:
            calls.append("wait")

    def run() -> int:
        calls.append("run")
        now[0] += 0.01
        return 7

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    found = places.seconds_each(run, Waiting(), runs=3)
    assert calls[:6] == ["wait", "run", "wait"] * 2
    calls.clear()
    found = places.seconds_each(run, Host(), runs=3)
    assert calls == ["run"] * (2 + 3 * 2)
    assert found == pytest.approx([0.01] * 3)


def test_contestants_answer_from_processes_that_live_on(capfd: pytest.CaptureFixture[str]) -> None:
    def prepared(data: str) -> dict[str, Any]:
        return {"case": asdict(Case(data, ("gpukpca",), data, 60, 4, p=2)), "timeout": 60.0}

    worker = contest.Worker("gpukpca", 1)
    try:
        for _ in range(2):
            assert worker.ask("prepare", **prepared("gaussian")) == {"outcome": "ok"}
            assert worker.ask("fit", 60.0)["seconds"] > 0
            answer = worker.ask("finish", 60.0, certify=True)
            assert answer["residual"] < 1e-5
            assert answer["facts"]["device"] == "cpu"
        assert worker.ask("prepare", **prepared("nothing")) == {"outcome": "KeyError: 'nothing'"}
    finally:
        worker.close()
    absent, late = contest.Worker("nobody"), contest.Worker("gpukpca")
    try:
        for _ in range(2):  # a message to a process that has ended is answered too
            assert absent.ask("prepare", **prepared("gaussian")) == {"outcome": "exit 1: KeyError: 'nobody'"}
        assert late.ask("prepare", **prepared("gaussian") | {"timeout": 0.01}) == {"outcome": "timeout after 0 s"}
    finally:
        absent.close()
        late.close()
    assert late.process.returncode is not None


class Scripted(Here):
    """Contestants whose cases of two samples fail."""

    failure, started = "", 0

    def __init__(self, *_: Any) -> None:
        Scripted.started += 1

    def ask(self, do: str, timeout: float, **message: Any) -> dict[str, Any]:
        if message.get("case", {}).get("n") == 2:
            return {"outcome": self.failure}
        return {"outcome": "ok", "seconds": 1.0} if do == "fit" else {"outcome": "ok"}


@pytest.mark.parametrize(("failure", "processes"), [("crashed", 2), ("skipped: absent", 1)])
def test_a_sweep_continues_after_a_failure(monkeypatch: pytest.MonkeyPatch, failure: str, processes: int) -> None:
    cases = [Case(f"n-{n}", ("gpukpca",), "gaussian", n, 4) for n in (1, 2, 3)]
    monkeypatch.setattr(contest, "Worker", Scripted)
    monkeypatch.setattr(Scripted, "failure", failure)
    monkeypatch.setattr(Scripted, "started", 0)
    record = Contest(ABOUT)
    last = "ok" if failure == "crashed" else failure
    assert [entry["outcome"] for entry in play_sweep(record, cases)] == ["ok", failure, last]
    assert Scripted.started == processes


def test_after_the_deadline_nothing_begins() -> None:
    record = Contest({}, deadline=time.monotonic() + 1)
    (entry,) = record.play(Case("case", ("gpukpca",), "gaussian", 60, 4), ["gpukpca"])
    assert entry["outcome"] == contest.NO_TIME


# -- the table ---------------------------------------------------------------------------------------------------------

# In place of processes: each name takes its own time, one peer fails, and one certified answer is wrong. The option is
# that of another plugin.
STAND_IN = """
from pathlib import Path
from benchmarks import contest
from benchmarks.peer import Peer

Peer.why_absent = lambda self: None

class Answering:
    pid, cpus = 1, ()

    def __init__(self, name, *_):
        self.name = name

    def ask(self, do, timeout, case=None, **_):
        if case is not None:
            self.case = case
            return {"outcome": "MemoryError: too large" if self.name == "plain NumPy" else "ok"}
        if do == "fit":
            return {"outcome": "ok", "seconds": len(self.name) / 8, "cpu": 0.5}
        wrong = self.name == "gpukpca" and self.case["name"] == "full-2000"
        memory = dict.fromkeys(("peak_mib", "total_mib", "device_mib"))
        return memory | {"outcome": "ok", "residual": float(wrong), "facts": {}}

    def close(self):
        pass

class Steady:
    def seconds(self):
        return 1.0

contest.Worker, contest.Canary, contest.counters = Answering, Steady, lambda pid, cpus: {"wall": 0.0}

def pytest_addoption(parser):
    parser.addoption("--timeout", type=float)

def pytest_deselected(items):
    Path("deselected").write_text(" ".join(item.nodeid for item in items))

def pytest_itemcollected(item):
    if "benchmark" in item.fixturenames:
        assert set(item.callspec.params) == {"case", "contestant"}
"""


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    # pytest-benchmark takes no times where it finds itself in a process of pytest-xdist.
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    alone |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    command = [sys.executable, "-m", "pytest", str(ROOT / "benchmarks"), "-p", "pytest_benchmark.plugin"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=alone,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_contestants_are_rows_of_the_table_and_of_comparisons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stand_in.py").write_text(STAND_IN, encoding="utf-8")
    options = ["-k", "full-2000 or kernel-rbf", "--timeout", "9", "--record", "r.json"]
    done = run_pytest(tmp_path, *options, "--benchmark-group-by", "param:case", "-rs", "-p", "stand_in")
    assert "benchmark 'case=kernel-rbf': 7 tests" in done.stdout, done.stdout + done.stderr
    collected = done.stdout + (tmp_path / "deselected").read_text(encoding="utf-8")
    assert "test_case[mnist-10000-gpukpca]" in collected
    assert "bench_gpu" not in collected
    assert "test_growth" not in collected
    assert "MemoryError: too large" in done.stdout
    assert "1 failed" in done.stdout
    written = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    entries = {(e["case"], e["contestant"]): e for e in written["entries"]}
    ours, peer = entries["kernel-rbf", "gpukpca"], entries["kernel-rbf", "sklearn arpack, matched"]
    assert set(ours["seconds"]) == {7 / 8}
    assert peer["seconds"] == [23 / 8] * 7
    ratio = {"value": 3.286, "low": 3.22, "high": 3.351, "pairs": 7, "settled": True}
    assert peer["columns"]["1"]["ratio"] == ratio
    assert len(peer["columns"]["1"]["pairs"]) == 7
    # A wrong answer and a failure have no row; the record has them.
    assert "benchmark 'case=full-2000': 6 tests" in done.stdout
    assert entries["full-2000", "plain NumPy"]["outcome"] == "MemoryError: too large"
    assert entries["full-2000", "gpukpca"]["residual"] == 1.0
    # The record is one of pytest-benchmark, which compares it with another one.
    cli = pytest.importorskip("pytest_benchmark.cli")
    (tmp_path / "second.json").write_bytes((tmp_path / "r.json").read_bytes())
    arguments = [str(tmp_path / name) for name in ("r.json", "second.json")]
    monkeypatch.setattr(sys, "argv", ["pytest-benchmark", "compare", *arguments, "--columns=median,rounds"])
    cli.main()
    assert capfd.readouterr().out.count("test_case[kernel-rbf-gpukpca]") == 2


def test_the_cases_of_a_card_have_no_case_of_the_host(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "--collect-only", "-q", "--gpu")
    assert "gpu-cached-100000" in done.stdout
    assert "bench_cases" not in done.stdout
