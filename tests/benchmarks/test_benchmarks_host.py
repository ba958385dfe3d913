"""The benchmarks of the host at tiny sizes: cases, floors, growth and the pages; no figure here is a speed."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are not part of the package")

from benchmarks import ceilings, contestant, floors, plan_tables, publish, report
from benchmarks.accuracy import eigen_errors
from benchmarks.cases import CASES, GROWTH, Case
from benchmarks.datasets import REAL, load
from benchmarks.peers import PEERS, taking_part
from benchmarks.places import Host
from benchmarks.verdicts import share_of_floor, slope
from tests.each import each

ROOT = Path(__file__).resolve().parents[2]
TINY = ceilings.Sizes(copy=2**16, edge=64, tile=64, runs=3)
# Rates of 1 operation, 1 byte of memory, of a tile and of exponentials each nanosecond.
UNIT = {name: {"value": 1.0, "unit": "GB/s"} for name in ("copy", "tile copy", "exp float32", "exp float64")}
UNIT |= {name: {"value": 1e-3, "unit": "TFLOP/s"} for name in ("sgemm", "dgemm")}
ALL = [*CASES, *(case for cases in GROWTH.values() for case in cases)]
SHARES = [case for case in CASES if case.name.startswith("share")]
SAMPLE = [*CASES, *(cases[0] for cases in GROWTH.values())]
OURS = [(case, name) for case in SAMPLE for name in case.contestants if name.startswith("gpukpca")]


def tiny(case: Case) -> Case:
    """Return the same problem with few rows and columns of generated data; bundled data whole."""
    if case.data in ("iris", "digits"):
        return replace(case, repeats=1)
    data = "gaussian" if case.data in REAL else case.data
    n, d = 20 + case.n % 11 + min(case.n, 300), min(case.d, 30)
    most = {"limit_mib": 2000, "most_mib": None, "rank": 20, "new": min(case.new, 10)}
    return replace(case, data=data, n=n, d=d, p=min(case.p, 3), repeats=1, **most)


def entry_of(case: Case, name: str, median: float, **more: Any) -> dict[str, Any]:
    fields = ("n", "d", "p", "dtype", "kernel", "task", "data", "new", "rank", "limit_mib")
    entry = {"case": case.name, "contestant": name, "median": median, "outcome": "ok", "seconds": [median]}
    entry |= {field: getattr(case, field) for field in fields}
    return entry | {"facts": {}, "peak_mib": 20.0, "device_mib": None, "residual": 1e-7} | more


def test_cases_are_apart_and_their_contestants_exist() -> None:
    assert len({case.name for case in ALL}) == len(ALL)
    assert {name for case in ALL for name in case.contestants} <= set(PEERS)
    assert set(publish.SUMMARY) <= {case.name for case in CASES}
    assert [case for case in ALL if case.contestants[0] not in taking_part(case)] == []


@each("case, name", OURS)
def test_each_case_of_ours_is_certified_and_has_a_floor(case: Case, name: str) -> None:
    small = tiny(case)
    found = contestant.measured(small, PEERS[name], True)
    if PEERS[name].certified:
        assert found["residual"] <= 3 * small.tol
    entry = entry_of(small, name, **(found | {"median": found["seconds"][0]}))
    if small.kernel == "rbf" and small.data != "words":  # sparse
        assert floors.floor_seconds(UNIT, entry) > 0
        assert share_of_floor(entry, UNIT)


def test_a_peer_that_reports_integers_of_numpy_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"cases": [asdict(tiny(SHARES[0]))], "contestant": "sklearn PCA, 95 %", "certify": True}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(job)))
    contestant.main()
    assert json.loads(capsys.readouterr().out)["facts"]["components"] > 1


def test_approximations_are_judged_by_the_eigenvalues_that_they_report() -> None:
    case = replace(GROWTH["accuracy", "rank"][0], n=200, gamma=0.05)
    X = load(case.data, case.n, case.d, case.dtype)
    for name in case.contestants:
        answer = contestant.fitted(PEERS[name], case, X)
        values = answer["eigenvalues"][: case.p]
        found, quotients = eigen_errors(case, X, answer["scores"], values)
        assert np.all(values < quotients), name
        assert found > 1.2 * eigen_errors(case, X, answer["scores"], None)[0], name


def test_the_shares_of_the_variance_have_as_many_components_as_their_neighbors() -> None:
    for n, d in ((1000, 300), (4000, 100)):
        values = np.linalg.eigvalsh(np.cov(load("steep", n, d, "float64").T))[::-1]
        assert np.searchsorted(np.cumsum(values) / values.sum(), 0.95) + 1 == 12
    assert {case.p for case in CASES if case.data == "steep"} == {12}


# -- rates and floors --------------------------------------------------------------------------------------------------


def test_rates_of_the_host_use_every_core(monkeypatch: pytest.MonkeyPatch) -> None:
    class TwoCores(Host):
        cores = 2

    found = ceilings.measured(TwoCores(), TINY)
    assert tuple(found) == ceilings.HOST_NAMES
    assert all(row["value"] > 0 for row in found.values())
    assert "2 × " in found["copy"]["what"]


@each(
    "changes, nanoseconds",
    [
        # n² d + 2 n² b operations; n²/2 exponentials of 8 bytes each; 3 n²/2 items of tiles.
        ({"facts": {"passes": 1, "columns": 2, "tiles": 1, "cached_tiles": 1}}, 500 + 400 + 50 * 8 + 150 * 4),
        # A second pass over stored tiles: n²/2 items of memory, n²/2 of the tile.
        (
            {"facts": {"passes": 2, "columns": 4, "tiles": 1, "cached_tiles": 1}},
            500 + 400 + 50 * 8 + 150 * 4 + 400 + 2 * 50 * 4,
        ),
        ({"facts": {"solver": "dense"}}, 500 + 4000 / 3 + 50 * 8 + 50 * 4),
        ({"task": "transform", "new": 3, "p": 2}, 2 * 30 * 7 + 3 * 7 * 4 + 30 * 8 + 60 * 4),
        ({"contestant": "gpukpca, Nystrom", "rank": 3}, 2 * 30 * 8 + 30 * 8 + 60 * 4),
        # The symmetric half of XᵀX, X once, and a reduction to tridiagonal form of 5 × 5.
        ({"task": "axes", "facts": {"solver": "covariance_eigh: dense"}}, 250 + 50 * 4 + 500 / 3),
        ({"task": "axes", "p": 2, "facts": {"solver": "covariance_eigh: block Krylov"}}, 250 + 50 * 4 + 2 * 25 * 2),
        ({"task": "axes", "d": 20, "p": 2, "facts": {"solver": "dual: dense"}}, 2000 + 800 + 800 + 4000 / 3),
        ({"task": "axes", "p": 2, "facts": {"solver": "randomized: block Krylov"}}, 4 * 50 * 2 + 50 * 4),
        ({"kernel": "laplacian"}, None),
        ({"outcome": "MemoryError"}, None),
    ],
)
def test_floors_count_operations_and_bytes(changes: dict[str, Any], nanoseconds: float | None) -> None:
    entry = entry_of(Case("case", (), "gaussian", 10, 5), "gpukpca", 1.0) | changes
    floor = floors.floor_seconds(UNIT, entry)
    assert floor == (None if nanoseconds is None else pytest.approx(1e-9 * nanoseconds))


def test_narrow_rows_are_multiplied_at_the_rate_of_their_width() -> None:
    entry = entry_of(Case("case", (), "gaussian", 10, 5), "gpukpca", 1.0)
    entry |= {"task": "axes", "facts": {"solver": "covariance_eigh: dense"}}
    rates = UNIT | {"scatter 5": {"value": 5e-4, "unit": "TFLOP/s"}}
    assert floors.floor_seconds(rates, entry) == pytest.approx(1e-9 * (2 * 250 + 500 / 3))
    assert floors.floor_seconds(rates, entry | {"dtype": "float64"}) == floors.floor_seconds(
        UNIT, entry | {"dtype": "float64"}
    )


@pytest.mark.parametrize(
    ("changes", "seconds", "text"),
    [
        ({}, 1.25, "80 % (target 75 %: reached)"),
        ({}, 2.0, "50 % (target 75 %: missed)"),
        ({"n": 5000}, 2.0, "50 %"),
        ({"cached": 1}, 2.0, "50 %"),
        ({"cached": None}, 2.0, "50 %"),
        ({"task": "axes", "n": 50_000}, 2.0, "50 % (target 70 %: missed)"),
        ({"contestant": "sklearn dense"}, 2.0, ""),
        ({}, 1e6, "< 1 % (target 75 %: missed)"),
    ],
)
def test_shares_of_the_floor_are_judged(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], seconds: float, text: str
) -> None:
    monkeypatch.setattr("benchmarks.verdicts.floor_seconds", lambda *_: 1.0)
    cached = changes.get("cached", 3)  # None: a low rank storage
    facts = {"tiles": 3} if cached is None else {"tiles": 3, "cached_tiles": cached}
    entry = entry_of(Case("case", (), "gaussian", 10_000, 5), "gpukpca", seconds, facts=facts) | changes
    assert share_of_floor(entry, UNIT) == text


# -- growth ------------------------------------------------------------------------------------------------------------


def growing() -> list[dict[str, Any]]:
    """Return entries whose time grows like n² and whose memory grows like n, and one that failed."""
    cases = GROWTH["growth-n", "n"]
    facts = {"cached_tiles": 0, "tiles": 3}
    made = [
        entry_of(case, case.contestants[0], (case.n / 1e4) ** 2, peak_mib=case.n / 1e3, facts=facts) for case in cases
    ]
    return [*made, entry_of(cases[-1], "gpukpca", 0.0, outcome="MemoryError")]


def test_exponents_of_growth_are_fitted_and_judged() -> None:
    assert slope(growing(), "n", "median") == pytest.approx(2.0)
    assert slope(growing()[:1], "n", "median") is None
    small = [entry if entry["n"] >= 5000 else entry | {"median": 1.0} for entry in growing()]
    assert slope(small, "n", "median") == pytest.approx(2.0)
    text = report.growth(growing(), "gpukpca, nothing cached", "n")
    assert text == "time n^2.00 (at most 2.0: reached), memory n^1.00 (at most 1.05: reached)"
    steeper = [entry | {"median": entry["n"] ** 2.2, "peak_mib": entry["n"] ** 1.2} for entry in growing()]
    assert report.growth(steeper, "gpukpca, nothing cached", "n").count("missed") == 2


# -- the pages ---------------------------------------------------------------------------------------------------------


def test_the_pages_have_the_figures_of_the_kept_records() -> None:
    for page, parts in publish.sections(publish.kept().values()).items():
        text = (ROOT / page).read_text(encoding="utf-8")
        for name, section in parts.items():
            assert publish.with_section(text, name, section, page) == text, f"{page}: run benchmarks.publish"


def test_the_summary_has_the_fastest_peer() -> None:
    case = CASES[0]
    slow, fast = (entry_of(case, name, t, peak_mib=60.0) for name, t in (("sklearn arpack", 9.0), ("TorchDR", 4.0)))
    record = {"machine": {}, "entries": [entry_of(case, "gpukpca", 2.0), slow, fast, fast | {"median": None}]}
    row = publish.summary_table(record).splitlines()[-1]
    assert row == "| kernel PCA, MNIST 10\u00a0000 × 784, float32, rbf, p = 10 | 2 s | TorchDR | 2 | 3 | 1e-07, 1e-07 |"
    assert publish.summary_table(record | {"entries": [entry_of(case, "gpukpca", 2.0)]}) == ""


def test_the_tables_of_the_plan_are_those_of_the_page() -> None:
    text = (ROOT / plan_tables.PAGE).read_text(encoding="utf-8")
    assert plan_tables.page_with_tables(text) == text, "run python -m benchmarks.plan_tables"


def test_the_time_of_a_plan_holds_to_a_factor_of_three() -> None:
    for found in plan_tables.record_ratios().values():
        assert all(1 / 3 <= ratio <= 3 for ratio in found)
