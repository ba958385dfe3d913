"""Tables of records: ``python -m benchmarks.report [RECORD ...] [--pages]``.

``--pages`` writes them between the marks of README.md and docs/benchmarks.md, and the picture of the growth.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.cases import GROWTH
from benchmarks.datasets import REAL
from benchmarks.gpu_cases import SWEEPS
from benchmarks.machine import ROOT
from benchmarks.verdicts import Entry, faster_from, medians, share_of_floor, slope

# Less memory is the noise of an allocator.
SMALL_MIB = 10.0
RESULTS = ROOT / "benchmarks" / "results"
# The name of the card of ci/cupy_on_cpu.
IMAGINARY = "CPU stand-in"
LIBRARIES = ("cupy", "numpy", "scipy", "scikit-learn", "scikit-learn-intelex", "torch", "torchdr")
SWEPT = {case.name: family for family, cases in (SWEEPS | GROWTH).items() for case in cases}
# The cases of README's table.
SUMMARY = (
    *("mnist-10000", "mnist-10000-p20", "mnist-20000", "gaussian-10000", "small-500", "small-5000", "nystrom-200000"),
    *("pca-iris-150x4", "pca-digits-1797x64", "pca-mnist-10000x784", "pca-decaying-200000x100"),
    *("pca-decaying-50000x2000", "pca-decaying-1000000x100", "pca-gaussian-1000x100000"),
)
# The exponents of n that a fit should not exceed; of memory where no tile is stored.
TIME_EXPONENT, MEMORY_EXPONENT = 2.0, 1.05

Record = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("records", nargs="*", type=Path, help="files of ci/bench.sh --record; default: all results")
    parser.add_argument(
        "--pages", nargs="?", type=Path, const=ROOT, metavar="FOLDER", help="write the pages, of this folder if given"
    )
    parser.add_argument("--force", action="store_true", help="with --pages: also figures of the stand-in for a card")
    options = parser.parse_args()
    records = {}
    for path in options.records or sorted(RESULTS.glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            parser.error(f"{path} is no record of ci/bench.sh --record: {error}")
        if "entries" in record:
            records[path] = record
        else:
            print(f"{path.name}: no record of ci/bench.sh --record", file=sys.stderr)
    if options.pages:
        write_pages(options.pages, list(records.values()), options.force)
        return
    for path, record in records.items():
        print(text_of(path.name, record))


def text_of(name: str, record: Record) -> str:
    """Return all tables of a record as Markdown."""
    ceilings, entries = record["ceilings"], record["entries"]
    counts = Counter(entry["case"] for entry in entries)
    # The verdict shows the whole entry of a contestant that is alone.
    others = [e for e in entries if e["case"] not in SWEPT and ("verdict" not in e or counts[e["case"]] > 1)]
    parts = [
        f"`{name}`: {where_and_when(record['machine'])}",
        ceiling_table(ceilings),
        verdict_table(entries),
        table(CONTESTANT_HEADER, contestant_rows(others, ceilings)),
        *(sweep_table(family, group, ceilings) for family, group in families(entries)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def where_and_when(machine: dict[str, Any]) -> str:
    """Return the card, where there is one, the host, the date and the versions."""
    card = ""
    if "gpu" in machine:
        gib = f" ({machine['gpu_bytes'] / 2**30:.0f} GiB)" if "gpu_bytes" in machine else ""
        runtime = machine["cuda_runtime"]  # 13010 is 13.1
        card = f"**{machine['gpu']}**{gib}, driver {machine.get('driver') or 'unknown'}, "
        card += f"CUDA runtime {runtime // 1000}.{runtime % 1000 // 10}; host "
    libraries = ", ".join(f"{name} {machine[name]}" for name in LIBRARIES if name in machine)
    return (
        f"{card}{machine['cpu']}, {machine['cpus']} cores, {machine['blas_threads']} BLAS threads, {machine['date']}; "
        f"gpukpca {machine['gpukpca']}, Python {machine['python']}, {libraries}"
    )


# -- the pages ---------------------------------------------------------------------------------------------------------


def write_pages(folder: Path, records: list[Record], force: bool = False) -> None:
    """Write the parts of the pages that these records have, and the picture of the growth."""
    for page, texts in sections(records, force).items():
        text = (folder / page).read_text(encoding="utf-8")
        for name, section in texts.items():
            text = with_section(text, name, section, page)
        (folder / page).write_text(text, encoding="utf-8")
    growing = [entry for record in records for entry in record["entries"] if SWEPT.get(entry["case"]) in GROWTH]
    if growing:
        draw_growth(growing, folder / "benchmarks" / "pictures" / "growth.png")


def sections(records: list[Record], force: bool = False) -> dict[str, dict[str, str]]:
    """Return page -> name of a part -> its text."""
    card, host = ([r for r in records if ("gpu" in r["machine"]) == on_card] for on_card in (True, False))
    pages: dict[str, dict[str, str]] = {}
    if card:
        pages["docs/benchmarks.md"] = {"a card": card_section(card, force)}
    if host:
        parts = {name: host_section(host, select) for name, select in PARTS.items()}
        growing = [(*found, record["ceilings"]) for record in host for found in families(record["entries"])]
        parts["growth"] = "\n\n".join(sweep_table(*found) for found in growing)
        machine = "\n\n".join(dict.fromkeys(f"{where_and_when(record['machine'])}." for record in host))
        pages["docs/benchmarks.md"] = pages.get("docs/benchmarks.md", {}) | {"machine": machine} | parts
        pages["README.md"] = {"machine": machine, "summary": summary_table(host)}
    if not pages:
        sys.exit("--pages: there is no record.")
    return pages


PARTS: dict[str, Callable[[Entry], bool]] = {
    "kernel PCA": lambda entry: entry["task"] in ("fit", "transform"),
    "PCA": lambda entry: entry["task"] == "axes",
    "others": lambda entry: entry["task"] == "other",
}


def host_section(records: list[Record], select: Callable[[Entry], bool]) -> str:
    """Return the table of the selected contestants that are not in a sweep, from all records."""
    rows: list[list[str]] = []
    for record in records:
        chosen = [entry for entry in record["entries"] if entry["case"] not in SWEPT and select(entry)]
        rows += contestant_rows(chosen, record["ceilings"])
    return table(CONTESTANT_HEADER, rows)


def summary_table(records: list[Record]) -> str:
    """Return the fastest peer of the cases of README's table."""
    rows = {}
    for record in records:
        for case, entries in groupby(record["entries"], key=lambda entry: entry["case"]):
            first, *others = entries
            peers = [one for one in others if one["median"] and not one["contestant"].startswith("gpukpca")]
            if case in SUMMARY and first["median"] and peers:
                rows[case] = summary_row(first, min(peers, key=lambda entry: entry["median"]))
    header = "case | ours | fastest peer | its time / ours | its memory / ours | residuals, ours and its"
    return table(header, [rows[case] for case in SUMMARY if case in rows])


def summary_row(ours: Entry, peer: Entry) -> list[str]:
    """Return a row of README's table."""
    more = f"{peer['peak_mib'] / ours['peak_mib']:.2g}" if (ours["peak_mib"] or 0.0) > SMALL_MIB else ""
    residuals = f"{exponent(ours['residual'])}, {exponent(peer['residual'])}"
    problem = f"{'PCA' if ours['task'] == 'axes' else 'kernel PCA'}, {label(ours)}"
    ratio = f"{peer['median'] / ours['median']:.2g}"
    return [problem, duration(ours["median"]), peer["contestant"], ratio, more, residuals]


def card_section(records: list[Record], force: bool = False) -> str:
    """Return the figures of the records of one card, as Markdown.

    Figures of the stand-in for a card are refused unless `force` is True; then the first line names them so.
    """
    cards = {record["machine"]["gpu"] for record in records}
    if len(cards) != 1:
        sys.exit(f"--pages: the records must be of one card, and these are of {sorted(cards)}. Name others.")
    if IMAGINARY in cards and not force:
        sys.exit("--pages: the records were made on the stand-in for a card. Name records of a card.")
    ceilings = {name: row for record in records for name, row in record["ceilings"].items()}
    entries = [entry for record in records for entry in record["entries"]]
    conclusions = [f"- {family[0]}: {line}" for family, group in families(entries) for line in conclude(family, group)]
    parts = [
        "**Imaginary figures, made on the stand-in for a card.**" if IMAGINARY in cards else "",
        f"Measured on {where_and_when(records[0]['machine'])}.",
        ceiling_table(ceilings),
        verdict_table(entries),
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
        sys.exit(f"--pages: {page} lacks the lines {begin} and {end}. Add them where the figures shall stand.")
    return f"{before}{begin}\n{section or 'The records have no such case.'}\n{end}{after}"


# -- tables ------------------------------------------------------------------------------------------------------------


def table(header: str, rows: list[list[str]]) -> str:
    """Return a table in Markdown, or nothing without rows; the header's cells are separated by |."""
    if not rows:
        return ""
    lines = [f"| {header} |", "|---" * (header.count("|") + 1) + "|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def ceiling_table(ceilings: dict[str, dict[str, Any]]) -> str:
    """Return the rates of the machine."""
    rows = [
        [row["what"], f"{figure(row['value'])} {row['unit']}", duration(row["seconds"]), str(row["runs"])]
        for row in ceilings.values()
    ]
    return table("operation | rate | median of one | runs", rows)


def verdict_table(entries: list[Entry]) -> str:
    """Return the targets; of several verdicts on a case the last."""
    rows = {}
    for entry in (entry for entry in entries if "verdict" in entry):
        verdict = entry["verdict"]
        share = verdict["share"]
        rows[entry["case"]] = [
            f"{entry['case']}: {entry['contestant']}, {label(entry)}",
            verdict["target"],
            verdict["measured"] + (f"; {verdict['note']}" if verdict["note"] else ""),
            {True: "yes", False: "**no**", None: "not judged"}[verdict["reached"]],
            "" if share is None else f"{share:.0%} (floor {duration(verdict['floor_s'])})",
            exponent(entry.get("residual")),
            str(len(entry["seconds"])),
        ]
    header = "case | target | measured | reached | of what the card can do | residual | runs"
    return table(header, list(rows.values()))


CONTESTANT_HEADER = "case | contestant | time / first | peak memory, growth | residual | share of the floor"


def contestant_rows(entries: list[Entry], ceilings: dict[str, Any]) -> list[list[str]]:
    """Return a row for each contestant, cases in the order they ran, ratios to the first; absent ones are left out."""
    rows = []
    for _, group in groupby(entries, key=lambda entry: entry["case"]):
        first, *others = group
        others = [entry for entry in others if not entry["outcome"].startswith("skipped")]
        rows.append([label(first), *contestant_row(first, first, ceilings)])
        rows += [["", *contestant_row(entry, first, ceilings)] for entry in others]
    return rows


def contestant_row(entry: Entry, first: Entry, ceilings: dict[str, Any]) -> list[str]:
    """Return name, time, memory, residual and share of the floor of a contestant."""
    name = entry["contestant"]
    if "little memory" in name:
        name = name.replace("little memory", f"{entry['limit_mib']} MiB")
    if entry["outcome"] != "ok":
        return [name, entry["outcome"], "", "", ""]
    if entry is first:
        name, time = f"**{name}** ({duration(entry['median'])})", "1"
    else:
        time = f"{entry['median'] / first['median']:.2g}" if first["median"] else duration(entry["median"])
    where = "" if entry["device_mib"] is None else " on the device"
    peak = "" if memory(entry) is None else f"{memory(entry):.0f} MiB{where}"
    return [name, time, peak, exponent(entry["residual"]), share_of_floor(entry, ceilings)]


def families(entries: list[Entry]) -> list[tuple[tuple[str, str], list[Entry]]]:
    """Return ((sweep, field that varies), its entries) of the sweeps, in their order."""
    grouped: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry["case"] in SWEPT:
            grouped.setdefault(SWEPT[entry["case"]], []).append(entry)
    return list(grouped.items())


def sweep_table(family: tuple[str, str], entries: list[Entry], ceilings: dict[str, dict[str, Any]]) -> str:
    """Return a row for each setting, a column for each contestant, and the conclusions below."""
    (name, axis), contestants = family, list(dict.fromkeys(entry["contestant"] for entry in entries))
    rows = []
    for setting in sorted({entry[axis] for entry in entries}):
        cells = {entry["contestant"]: sweep_cell(entry, ceilings) for entry in entries if entry[axis] == setting}
        rows.append([spaced(setting), *(cells.get(who, "") for who in contestants)])
    fixed = ", ".join(f"{field} = {entries[0][field]}" for field in ("n", "d", "p") if field != axis)
    made = table(" | ".join([axis.replace("_", " "), *contestants]), rows)
    return "\n".join([f"{name}: {fixed}, {entries[0]['dtype']}", "", made, "", *conclude(family, entries)])


def sweep_cell(entry: Entry, ceilings: dict[str, dict[str, Any]]) -> str:
    """Return the median, passes, a solver other than the one in the name, the share of the floor, and the memory."""
    if entry["outcome"] != "ok":
        return entry["outcome"]
    facts = entry["facts"]
    more = [f"{facts['passes']} passes"] if facts.get("passes", 1) > 1 else []
    if "dense" in entry["contestant"] and not is_dense(entry):
        more.append(str(facts.get("solver", "another solver")))
    if share := share_of_floor(entry, ceilings):
        more.append(share)
    if entry["device_mib"] is None and entry["peak_mib"]:
        more.append(f"{entry['peak_mib']:.0f} MiB")
    return duration(entry["median"]) + (f" ({', '.join(more)})" if more else "")


def is_dense(entry: Entry) -> bool:
    """Return whether the dense solver ran: where it fails, or is too large, another one replaces it."""
    return str(entry.get("facts", {}).get("solver", "")).startswith("dense")


def conclude(family: tuple[str, str], entries: list[Entry]) -> list[str]:
    """Return the conclusions of a sweep, in sentences."""
    axis = family[1]
    first, *others = contestants = list(dict.fromkeys(entry["contestant"] for entry in entries))
    if family in GROWTH:
        return [f"- {who}: {growth(entries, who, axis)}." for who in contestants]
    if axis != "n":
        seconds = {who: medians(entries, who, axis) for who in contestants}
        return [f"Fastest: {who}: {min(times, key=times.__getitem__)}." for who, times in seconds.items() if times]
    entries = [entry for entry in entries if "dense" not in entry["contestant"] or is_dense(entry)]
    found = {who: faster_from(entries, first, who) for who in others}
    return [
        f"{who} is faster than {first} {'at no size measured' if n is None else f'from n = {spaced(n)} on'}."
        for who, n in found.items()
    ]


def growth(entries: list[Entry], contestant: str, axis: str) -> str:
    """Return the exponents of time and of memory of a contestant; against n those of ours with their bounds."""
    mine = [entry for entry in entries if entry["contestant"] == contestant and entry["outcome"] == "ok"]
    judges = axis == "n" and contestant.startswith("gpukpca")
    tiled = judges and all(entry["facts"].get("cached_tiles") == 0 for entry in mine)
    found = []
    for name, quantity, bound in (
        ("time", "median", TIME_EXPONENT if judges else None),
        ("memory", "peak_mib", MEMORY_EXPONENT if tiled else None),
    ):
        if (power := slope(mine, axis, quantity)) is not None:
            judged = (
                "" if bound is None else f" (at most {bound}: {'reached' if round(power, 2) <= bound else 'missed'})"
            )
            found.append(f"{name} {axis}^{power:.2f}{judged}")
    return ", ".join(found)


def label(entry: Entry) -> str:
    """Return the problem of an entry."""
    if "label" in entry:
        return entry["label"]
    name = entry["data"].upper() if entry["data"] in REAL else entry["data"]
    data = f"{name} {spaced(entry['n'])} × {spaced(entry['d'])}, {entry['dtype']}"
    if entry["task"] == "axes":
        return f"{data}, p = {entry['p']}"
    data = f"{data}, {entry['kernel']}"
    if entry["task"] == "transform":
        return f"{data}: transform of {spaced(entry['new'])} points, p = {entry['p']}"
    if entry["task"] == "product":
        return f"{data}: one product with {entry['p']} columns"
    if "Nystrom" in entry["contestant"]:
        data = f"{data}, rank {entry['rank']}"
    return f"{data}, p = {entry['p']}"


def memory(entry: Entry) -> float | None:
    """Return MiB: growth of the process, or memory in use on the device."""
    return entry["peak_mib"] if entry["device_mib"] is None else entry["device_mib"]


def exponent(value: float | None) -> str:
    """Return one digit and an exponent."""
    return "" if value is None else f"{value:.0e}"


def figure(value: float) -> str:
    """Return three digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Return seconds as 1.23 s, 45.6 ms or 7.89 µs."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 0.9995:
            return f"{figure(seconds * factor)} {unit}"
    return f"{figure(seconds * 1e6)} µs"


def spaced(n: int) -> str:
    """Return an integer as 10 000."""
    return f"{n:,}".replace(",", " ") if n >= 10_000 else str(n)


# -- the picture -------------------------------------------------------------------------------------------------------


def draw_growth(entries: list[Entry], path: Path) -> None:
    """Draw time and memory of the growing cases against what grows, a row of panels for each; log-log."""
    from matplotlib.figure import Figure

    grown = families(entries)
    figure = Figure(figsize=(10, 3.3 * len(grown)), layout="constrained")
    panels = figure.subplots(len(grown), 2, squeeze=False)
    for ((_, axis), group), pair in zip(grown, panels, strict=True):
        for panel, (quantity, text) in zip(pair, QUANTITIES.items(), strict=True):
            for who in dict.fromkeys(entry["contestant"] for entry in group):
                mine = [e for e in group if e["contestant"] == who and e["outcome"] == "ok" and e[quantity]]
                if mine:
                    points = sorted((entry[axis], entry[quantity]) for entry in mine)
                    name = who if (power := slope(mine, axis, quantity)) is None else f"{who}, {axis}^{power:.1f}"
                    panel.loglog(*zip(*points, strict=True), marker="o", label=name)
            ticks = sorted({entry[axis] for entry in group})
            panel.set(xlabel=axis, ylabel=text)
            panel.set_xticks(ticks, [spaced(tick) for tick in ticks])
            panel.set_xticks([], minor=True)
            panel.grid(which="both", alpha=0.3)
            if panel.lines:
                panel.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


QUANTITIES = {"median": "time of fit (s)", "peak_mib": "growth of memory in fit (MiB)"}


if __name__ == "__main__":
    main()
