"""No page compares times by a figure that the record does not carry as settled."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are not part of the package")

from benchmarks import publish
from benchmarks.ratios import LEAST_PAIRS, digits

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "gpukpca/README.md", "CONTRIBUTING.md")),
    *(path for kind in ("md", "rst", "py") for path in sorted((ROOT / "docs").rglob(f"*.{kind}"))),
]
PEER = re.compile(r"scikit-learn|sklearn|ARPACK|arpack|dask[-_ ]ml|TorchDR|KeOps|cuML|[Ff]alkon|Intel|cupy's", re.I)
NUMBER = r"(\d+(?:\.\d+)?|twice|half|third|quarter|(?:two|three|four|five|ten) times)"
CLAIM = re.compile(
    rf"{NUMBER}[ \u00a0]?(?:×(?!\s*\d)|(?:times|seconds?|s|ms|µs|minutes?)\b)"
    rf"|{NUMBER} (?:of )?(?:the|its) time|{NUMBER} as (?:fast|slow|long)|{NUMBER} (?:faster|slower)"
    "|(less than an? (?:second|minute|hour))"
)
MARKED = re.compile(r"<!-- figures of ([^>]+): begin -->.*?<!-- figures of \1: end -->", re.DOTALL)


def claims(text: str) -> list[str]:
    """Return the numbers of seconds and ratios in sentences that name a peer, outside of the parts from a record."""
    plain = re.sub(r"```.*?```", "", MARKED.sub("", text), flags=re.DOTALL)
    sentences = re.split(r"(?<=[.:;!?])\s+(?=[A-Z«*`|-])|\n\n|\n(?=[-*|])", plain)
    named = [sentence for sentence in sentences if PEER.search(sentence)]
    return [next(filter(None, claim.groups())) for sentence in named for claim in CLAIM.finditer(sentence)]


def carried(record: dict[str, Any] | None) -> set[str]:
    """Return the figures of a record that have settled, as its tables show them."""
    columns = [column for entry in (record or {"entries": []})["entries"] for column in entry["columns"].values()]
    ratios = [column["ratio"] for column in columns if "ratio" in column and column["ratio"]["settled"]]
    return {digits(ratio["value"]) for ratio in ratios if ratio["pairs"] >= LEAST_PAIRS}


def test_no_page_compares_times_by_a_figure_that_the_record_lacks() -> None:
    settled = carried(publish.of_host(publish.kept().values()))
    assert len(PAGES) > 50
    found = {path.relative_to(ROOT).as_posix(): claims(path.read_text(encoding="utf-8")) for path in PAGES}
    assert {page: quoted for page, quoted in found.items() if set(quoted) - settled} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Ours takes less than a second, a third of the time of scikit-learn's.", ["less than a second", "third"]),
        ("It is 2.8 times faster than sklearn.", ["2.8"]),
        ("`dask_ml` took 15 s with tsqr.", ["15"]),
        ("Fastest of sklearn: 25 × with images of 8 × 8 pixels.", ["25"]),
        ("KernelPCA took 3 s. The interface is that of scikit-learn.", []),
        ("scikit-learn has 3 components.", []),
        ("<!-- figures of x: begin -->\nsklearn | 2.8 ×\n<!-- figures of x: end -->", []),
    ],
)
def test_comparisons_of_times_are_found(text: str, found: list[str]) -> None:
    assert claims(text) == found


def test_only_settled_figures_are_carried() -> None:
    ratio = {"value": 2.84, "pairs": LEAST_PAIRS, "settled": True}
    cells = [ratio, ratio | {"value": 3.0, "settled": False}, ratio | {"value": 4.0, "pairs": 3}]
    assert carried({"entries": [{"columns": {"1": {"ratio": cell}}} for cell in cells]}) == {"2.8"}
    assert carried(None) == set()


def test_readme_has_room_for_its_table() -> None:
    text = MARKED.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))
    # The line about the machine, an empty line, two of the header, two marks.
    assert len(text.splitlines()) + len(publish.SUMMARY) + 6 <= 160
    assert "busy" not in text.lower()
