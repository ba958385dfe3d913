"""Write records into README.md and pages of docs: ``python -m benchmarks.publish [RECORD ...]``.

The records are kept in benchmarks/results, in place of those of the same kind, of a host or of a card; without any, the
kept ones are written again. That of a host is one run of the whole. No figure enters a page by hand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path

from benchmarks.cases import GROWTH
from benchmarks.figures import FIGURES, draw, panels_of
from benchmarks.machine import ROOT
from benchmarks.peer import is_ours
from benchmarks.ratios import ratio_text
from benchmarks.report import (
    CONTESTANT_HEADER,
    SWEPT,
    Record,
    ceiling_table,
    conclude,
    contestant_rows,
    duration,
    exponent,
    families,
    has_not_run,
    is_absent,
    label,
    name_of,
    read,
    sweep_table,
    table,
    too_late,
    verdict_table,
    where_and_when,
)
from benchmarks.verdicts import Entry

RESULTS, PICTURES = Path("benchmarks", "results"), Path("benchmarks", "pictures")
# Less memory is the noise of an allocator.
SMALL_MIB = 10.0
NONE_YET = "No settled figures yet: the next record is measured in pairs."
# The name of the card of ci/cupy_on_cpu.
IMAGINARY = "CPU stand-in"
# The cases of README's table, in the order in which a limit of time takes them.
SUMMARY = (
    *("gaussian-10000", "nystrom-200000", "pca-iris-150x4", "pca-digits-1797x64", "pca-flat-10000x784"),
    *("pca-decaying-200000x100", "pca-scattered-20000x5000", "pca-mnist-10000x784", "mnist-10000"),
    *("pca-decaying-1000000x100", "pca-decaying-50000x2000", "pca-gaussian-1000x100000", "mnist-20000"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.publish", description=__doc__)
    parser.add_argument("records", nargs="*", type=Path, help="files of ci/bench.sh; default: the kept ones")
    parser.add_argument("--to", type=Path, default=ROOT, metavar="FOLDER", help="the pages of another folder")
    parser.add_argument("--force", action="store_true", help="also figures of the stand-in for a card")
    options = parser.parse_args()
    new, old = read(options.records), kept(options.to)
    kinds = {kind_of(record) for record in new.values()}
    if host := of_host(new.values()):
        check_whole(host)
    replaced = [path for path, record in old.items() if kind_of(record) in kinds]
    records = [*(record for path, record in old.items() if path not in replaced), *new.values()]
    texts = {}
    for page, parts in sections(records, options.force).items():
        texts[page] = (options.to / page).read_text(encoding="utf-8")
        for name, section in parts.items():
            texts[page] = with_section(texts[page], name, section, page)
    copies = {path: path.read_bytes() for path in new}
    for path in replaced:
        path.unlink()
    (options.to / RESULTS).mkdir(parents=True, exist_ok=True)
    for path, content in copies.items():
        name = "host.json" if kind_of(new[path]) == "host" else f"card-{path.stem}.json"
        (options.to / RESULTS / name).write_bytes(content)
    for page, text in texts.items():
        (options.to / page).write_text(text, encoding="utf-8")
    if (host := of_host(records)) and is_settled(host):
        draw(host, options.to / PICTURES)


def kept(folder: Path = ROOT) -> dict[Path, Record]:
    """Return the records that the pages of a folder show."""
    return read(sorted((folder / RESULTS).glob("*.json")))


def kind_of(record: Record) -> str:
    """Return whether a record is of a host or of a card."""
    return "card" if "gpu" in record["machine"] else "host"


def of_host(records: Iterable[Record]) -> Record | None:
    """Return the record of a host; end with a sentence where there are several."""
    found = [record for record in records if kind_of(record) == "host"]
    if len(found) > 1:
        sys.exit("publish: there are several records of a host, and one run has all cases: bash ci/bench.sh --publish.")
    return found[0] if found else None


def is_settled(record: Record) -> bool:
    """Return whether a record of a host has any figure."""
    return any(entry["median"] for entry in record["entries"])


def check_whole(record: Record) -> None:
    """End with a sentence where a record lacks figures that the pages of a host show."""
    cases = {entry["case"] for entry in record["entries"] if entry["columns"] or is_absent(entry)}
    absent = sorted(set(SUMMARY) - cases)
    absent += [family for (family, _), found in GROWTH.items() if cases.isdisjoint(case.name for case in found)]
    absent += [name for name, select in PARTS.items() if not apart_from_sweeps(record, select)]
    if absent:
        sys.exit(f"publish: the record lacks {', '.join(absent)}. Run bash ci/bench.sh --publish.")


def merged(cards: Iterable[Record]) -> Record:
    """Return records of one card as one."""
    first, *others = cards
    whole = {**first, "entries": list(first["entries"])}
    for record in others:
        whole["ceilings"] = whole["ceilings"] | record["ceilings"]
        whole["entries"] += record["entries"]
    return whole


def sections(records: Iterable[Record], force: bool = False) -> dict[str, dict[str, str]]:
    """Return page -> name of a part -> its text; end with a sentence where the records are not fit to be published."""
    records = list(records)
    card, host = [record for record in records if kind_of(record) == "card"], of_host(records)
    pages: dict[str, dict[str, str]] = {}
    if card:
        pages["docs/benchmarks.md"] = {"a card": card_section(card, force)}
    if host:
        parts = dict.fromkeys((*PARTS, "growth", "pictures", "machine"), NONE_YET)
        if is_settled(host):
            found = {name: apart_from_sweeps(host, select) for name, select in PARTS.items()}
            tables = {name: table(CONTESTANT_HEADER, contestant_rows(entries)) for name, entries in found.items()}
            parts = {name: "\n\n".join(filter(None, [tables[name], too_late(found[name])])) for name in found}
            parts["growth"] = "\n\n".join(sweep_table(*found) for found in families(host["entries"]))
            pictures = [f"![{FIGURES[file]}](../{PICTURES.as_posix()}/{file})" for file in panels_of(host)]
            parts |= {"pictures": "\n\n".join(pictures), "machine": f"{where_and_when(host['machine'])}."}
        pages["docs/benchmarks.md"] = pages.get("docs/benchmarks.md", {}) | parts
        pages["README.md"], pages["docs/index.md"] = {"summary": summary(host)}, {"front": front(host)}
    if not pages:
        sys.exit("publish: there is no record.")
    return pages


PARTS: dict[str, Callable[[Entry], bool]] = {
    "kernel PCA": lambda entry: entry["task"] in ("fit", "transform"),
    "PCA": lambda entry: entry["task"] == "axes",
    "searches": lambda entry: entry["task"] == "search",
}


def apart_from_sweeps(record: Record, select: Callable[[Entry], bool]) -> list[Entry]:
    """Return the selected entries that are not in a sweep."""
    return [entry for entry in record["entries"] if entry["case"] not in SWEPT and select(entry)]


def front(record: Record) -> str:
    """Return the line of the front page, the first row of README's table in words."""
    if not (rows := summary_rows(record)):
        return NONE_YET
    problem, time, peer, ratio, _, residuals = rows[0]
    ours, its = residuals.split(", ")
    return (
        f"**Fast.** {problem[0].upper()}{problem[1:]}: {time} on one thread, with residuals of {ours}.\n"
        f"The fastest peer, {peer.replace(', ', ' ')}, takes {ratio.split()[0]} times as long, with residuals "
        f"of {its}.\nThe [benchmarks](benchmarks.md) have all cases."
    )


def summary(record: Record) -> str:
    """Return README's line about the machine, and its table: the fastest peer of cases where its ratio is settled."""
    header = "case | ours | fastest peer | its time / ours | its memory / ours | residuals, ours and its"
    about = record["machine"]
    line = f"{about['cpu']}, one thread, {about['date']}, gpukpca {about['gpukpca']}."
    return f"{line}\n\n{table(header, rows)}" if (rows := summary_rows(record)) else NONE_YET


def summary_rows(record: Record) -> list[list[str]]:
    """Return the rows of README's table, in the order of `SUMMARY`."""
    rows = {}
    for case, entries in groupby(record["entries"], key=lambda entry: entry["case"]):
        first, *others = entries
        peers = [one for one in others if one["columns"].get("1", {}).get("ratio") and not is_ours(one["contestant"])]
        # One that no time was left for may be the fastest.
        is_whole = not any(map(has_not_run, others))
        if case in SUMMARY and first["median"] and peers and is_whole:
            fastest = min(peers, key=least_ratio)
            if fastest["median"] and fastest["outcome"] == "ok":
                rows[case] = summary_row(first, fastest)
    return [rows[case] for case in SUMMARY if case in rows]


def least_ratio(entry: Entry) -> float:
    """Return the ratio of a peer; the least that it may be where it is not settled."""
    ratio = entry["columns"]["1"]["ratio"]
    return ratio["value"] if ratio["settled"] else ratio.get("low", 0.0)


def summary_row(ours: Entry, peer: Entry) -> list[str]:
    """Return a row of README's table."""
    more = f"{peer['peak_mib'] / ours['peak_mib']:.2g}" if (ours["peak_mib"] or 0.0) > SMALL_MIB else ""
    residuals = f"{exponent(ours['residual'])}, {exponent(peer['residual'])}"
    problem = f"{'PCA' if ours['task'] == 'axes' else 'kernel PCA'}, {label(ours)}"
    _, _, solver = name_of(ours).partition(", ")
    time = duration(ours["median"]) + (f" ({solver})" if solver else "")
    return [problem, time, peer["contestant"], ratio_text(peer["columns"]["1"]["ratio"]), more, residuals]


def card_section(records: list[Record], force: bool = False) -> str:
    """Return the figures of the records of one card, as Markdown.

    Figures of the stand-in for a card are refused unless `force` is True; then the first line names them so.
    """
    cards = {record["machine"]["gpu"] for record in records}
    if len(cards) != 1:
        sys.exit(f"publish: the records must be of one card, and these are of {sorted(cards)}. Name others.")
    if IMAGINARY in cards and not force:
        sys.exit("publish: the records were made on the stand-in for a card. Name records of a card.")
    whole = merged(records)
    found = families(whole["entries"])
    conclusions = [f"- {family[0]}: {line}" for family, group in found for line in conclude(family, group)]
    parts = [
        "**Imaginary figures, made on the stand-in for a card.**" if IMAGINARY in cards else "",
        f"Measured on {where_and_when(whole['machine'])}.",
        ceiling_table(whole["ceilings"]),
        verdict_table(whole["entries"]),
        "\n".join(conclusions),
    ]
    return "\n\n".join(part for part in parts if part)


def marks(name: str) -> tuple[str, str]:
    """Return the lines between which a part of a page stands."""
    return f"<!-- figures of {name}: begin -->", f"<!-- figures of {name}: end -->"


def with_section(text: str, name: str, section: str, page: str) -> str:
    """Return the text of a page with a part replaced."""
    begin, end = marks(name)
    before, found, rest = text.partition(f"{begin}\n")
    _, ended, after = rest.partition(end)
    if not found or not ended:
        sys.exit(f"{page} lacks the lines {begin} and {end}. Add them where the figures shall stand.")
    return f"{before}{begin}\n{section or 'Not measured.'}\n{end}{after}"


if __name__ == "__main__":
    main()
