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

from benchmarks import certified, contestant, plan_tables, publish, report
from benchmarks.accuracy import eigen_errors
from benchmarks.cases import CASES, GROWTH, Case
from benchmarks.datasets import REAL, load
from benchmarks.peers import PEERS, taking_part
from benchmarks.verdicts import slope
from gpukpca import Plan
from gpukpca.eigen import Nystrom
from tests.each import each

ROOT = Path(__file__).resolve().parents[2]
ALL = [*CASES, *(case for cases in GROWTH.values() for case in cases)]
SHARES = [case for case in CASES if case.name.startswith("share")]
SAMPLE = [*CASES, *(cases[0] for cases in GROWTH.values())]
OURS = [(case, name) for case in SAMPLE for name in case.contestants if name.startswith("gpukpca")]


def tiny(case: Case) -> Case:
    """Return the same problem with few rows and columns of generated data; bundled data whole."""
    if case.data in ("iris", "digits"):
        return case
    data = "gaussian" if case.data in REAL else case.data
    n, d = 20 + case.n % 11 + min(case.n, 300), min(case.d, 30)
    most = {"limit_mib": 2000, "most_mib": None, "rank": 20, "new": min(case.new, 10)}
    return replace(case, data=data, n=n, d=d, p=min(case.p, 3), **most)


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


@pytest.mark.filterwarnings("ignore:the best gamma of the search lies on the edge")  # of few, which are timed
@each("case, name", OURS)
def test_each_case_of_ours_is_certified(case: Case, name: str) -> None:
    small, player = tiny(case), contestant.Player(name)
    assert player.answer("prepare", case=asdict(small)) == {"outcome": "ok"}
    fit = player.answer("fit", calls=2)
    assert fit["seconds"] > 0
    assert fit["cpu"] >= 0
    found = player.answer("finish", certify=True)
    assert found["outcome"] == "ok"
    if PEERS[name].certified:
        assert found["residual"] <= 3 * small.tol


def test_a_peer_that_reports_integers_of_numpy_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [
        {"do": "prepare", "case": asdict(tiny(SHARES[0]))},
        {"do": "fit"},
        {"do": "finish", "certify": True},
        {"do": "fit"},
    ]
    monkeypatch.setattr("sys.argv", ["contestant", "sklearn PCA, 95 %"])
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(json.dumps, steps))))
    contestant.main()
    *_, finished, freed = map(json.loads, capsys.readouterr().out.splitlines())
    assert finished["facts"]["components"] > 1
    assert freed["outcome"].startswith("AttributeError")  # nothing is left of the case


def test_approximations_are_judged_by_the_eigenvalues_that_they_report() -> None:
    case = replace(GROWTH["accuracy", "rank"][0], n=200, gamma=0.05)
    X = load(case.data, case.n, case.d, case.dtype)
    for name in (name for name in case.contestants if not PEERS[name].package):
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


# -- growth ------------------------------------------------------------------------------------------------------------


def growing() -> list[dict[str, Any]]:
    """Return entries whose time grows like n² and whose memory grows like n, and one that failed."""
    cases = GROWTH["growth-n", "n"]
    facts = {"cached_tiles": 0, "tiles": 3}
    made = [
        entry_of(case, case.contestants[0], (case.n / 1e4) ** 2, peak_mib=case.n / 1e3, facts=facts) for case in cases
    ]
    return [*made, entry_of(cases[-1], "gpukpca", 0.0, outcome="MemoryError")]


def test_exponents_of_growth_are_fitted() -> None:
    assert slope(growing(), "n", "median") == pytest.approx(2.0)
    assert slope(growing()[:1], "n", "median") is None
    small = [entry if entry["n"] >= 5000 else entry | {"median": 1.0} for entry in growing()]
    assert slope(small, "n", "median") == pytest.approx(2.0)
    assert report.growth(growing(), "gpukpca, nothing cached", "n") == "time n^2.00, memory n^1.00"
    assert report.growth(growing()[:1], "gpukpca, nothing cached", "n") == ""


# -- the pages ---------------------------------------------------------------------------------------------------------


def test_the_pages_have_the_figures_of_the_kept_records() -> None:
    for page, parts in publish.sections(publish.kept().values()).items():
        text = (ROOT / page).read_text(encoding="utf-8")
        for name, section in parts.items():
            assert publish.with_section(text, name, section, page) == text, f"{page}: run benchmarks.publish"


def test_the_front_page_tells_the_figures_of_the_fits_whose_kernel_matrix_fits_nowhere() -> None:
    text = " ".join((ROOT / "docs" / "index.md").read_text(encoding="utf-8").split())
    *_, digits, million = [row.strip("| ").split(" | ") for row in certified.table().splitlines()]
    for (_, stored, memory, spent, _), also in ((digits, True), (million, False)):
        seconds, unit = spent.split(", ")[0].split()
        assert stored in text
        assert f"{float(seconds):.0f} {unit}" in text
        assert memory in text or not also


def test_the_summary_has_the_fastest_peer_where_its_ratio_is_settled() -> None:
    case = CASES[0]

    def beside(name: str, value: float, settled: bool = True) -> dict[str, Any]:
        ratio = {"value": value, "low": 0.9 * value, "high": 1.1 * value, "pairs": 9, "settled": settled}
        return entry_of(case, name, value if settled else None, peak_mib=60.0, columns={"1": {"ratio": ratio}})

    ours, slow, fast = entry_of(case, "gpukpca", 1.0), beside("sklearn arpack", 9.0), beside("TorchDR", 4.0)
    about = {"cpu": "a host", "date": "today", "gpukpca": "1.2.0 (abc)"}
    text = publish.summary({"machine": about, "entries": [ours, slow, fast]})
    line, _, *_, row = text.splitlines()
    assert line == "a host, one thread, today, gpukpca 1.2.0 (abc)."
    problem = "kernel PCA, MNIST 10\u00a0000 × 784, float32, rbf, p = 10"
    assert row == f"| {problem} | 1 s | TorchDR | 4.0 (3.6–4.4), 9 pairs | 3 | 1e-07, 1e-07 |"
    sentence = publish.front({"machine": about, "entries": [ours, slow, fast]})
    assert f"K{problem[1:]}: 1 s on one thread" in sentence
    assert "TorchDR, takes 4.0 times as long, with residuals of 1e-07" in sentence
    # A peer that may be faster and has not settled leaves no fastest one; one that may not be faster does.
    for unsettled, has_table in ((beside("plain NumPy", 4.3, False), False), (beside("plain NumPy", 5.0, False), True)):
        found = publish.summary({"machine": about, "entries": [ours, slow, fast, unsettled]})
        assert (found == text) == has_table
        assert (found == publish.NONE_YET) != has_table
    assert publish.summary({"machine": about, "entries": [ours]}) == publish.NONE_YET
    assert publish.front({"machine": about, "entries": [ours]}) == publish.NONE_YET
    # One that no time was left for may be the fastest; one that took too long is not.
    for outcome, has_table in (("not run: 9 s were over", False), ("timeout after 60 s", True)):
        entry = entry_of(case, "sklearn auto", 0.0, columns={}, outcome=f"skipped: {outcome}")
        found = publish.summary({"machine": about, "entries": [ours, slow, fast, entry]})
        assert (found == text) == has_table
        assert (found == publish.NONE_YET) != has_table
        assert report.contestant_row(entry, ours)[1] == outcome
    # One whose process was ready, and whose first round no time was left for.
    entry = entry_of(case, "sklearn auto", 0.0, columns={"1": {"pairs": [], "seconds": [], "ratio": {"pairs": 0}}})
    assert report.contestant_row(entry, ours)[1] == "not run: no time left"
    # A case without a round of any peer is named below the table; the only contestant of a case needs none.
    ours = ours | {"columns": {}}
    absent = entry_of(case, "TorchDR", 0.0, columns={}, outcome="skipped: TorchDR is not installed")
    assert report.contestant_rows([ours, entry, absent]) == report.contestant_rows([ours, entry]) == []
    assert report.too_late([ours, entry]) == f"No time was left for: {report.label(ours)}."
    ours |= {"columns": {"1": {"pairs": [{}], "seconds": [1.0]}}}
    for few in ([ours], [ours, entry, slow]):
        assert (len(report.contestant_rows(few)), report.too_late(few)) == (len(few), "")


def test_the_tables_of_the_plan_are_those_of_the_page() -> None:
    text = (ROOT / plan_tables.PAGE).read_text(encoding="utf-8")
    assert plan_tables.page_with_tables(text) == text, "run python -m benchmarks.plan_tables"


def plan_of(entry: dict[str, Any]) -> Plan | None:
    """Return the plan of the fit of an entry of ours; of sparse data a shape alone says nothing of their time."""
    n, d, dtype, p, task = (entry[name] for name in ("n", "d", "dtype", "p", "task"))
    is_ours = entry["contestant"] in ("gpukpca", "gpukpca, Nystrom", "gpukpca PCA")
    if not is_ours or entry["data"] in ("words", "scattered"):
        return None
    if task == "fit" and entry["kernel"] == "rbf":
        solver = Nystrom(rank=entry["rank"]) if "Nystrom" in entry["contestant"] else "auto"
        return plan_tables.kernel_plan(n, d, dtype, solver, p)
    return plan_tables.linear_plan(n, d, dtype, p) if task == "axes" else None


def misses(entries: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the cases whose settled seconds on one thread differ from those of the plan by more than a factor of 3."""
    for task in (plan_tables.KernelTask, plan_tables.LinearTask):
        monkeypatch.setattr(task, "workers", 1)
    monkeypatch.setattr(plan_tables, "THREADS", 1)
    plans = [(entry, plan_of(entry)) for entry in entries if entry["median"]]
    return [
        entry["case"] for entry, plan in plans if plan and not 1 / 3 <= entry["median"] / plan.estimated_seconds <= 3
    ]


def test_the_time_of_a_plan_holds_to_a_factor_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    for record in publish.kept().values():
        assert misses(record["entries"], monkeypatch) == []


def test_a_plan_that_misses_by_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, linear = (entry_of(case, case.contestants[0], 1.0) for case in (CASES[0], tiny(SHARES[0])))
    linear["contestant"] = "gpukpca PCA"
    seconds = [plan_of(entry).estimated_seconds for entry in (kernel, linear)]
    assert all(seconds)
    slow = [entry | {"median": 9.0 * s} for entry, s in zip((kernel, linear), seconds, strict=True)]
    assert misses(slow, monkeypatch) == [CASES[0].name, SHARES[0].name]
    assert misses([entry | {"median": None} for entry in slow], monkeypatch) == []
