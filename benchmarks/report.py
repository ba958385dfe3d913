"""Tables and pictures of records: ``python -m benchmarks.report [RECORD ...] [--plots FOLDER] [--page]``.

Of a record made on a card also: the card, its rates, the targets, and from which sizes on it pays; ``--page`` writes
that between the marks in docs/gpu.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.floors import floor_seconds
from benchmarks.gpu_cases import SWEPT
from benchmarks.machine import ROOT
from benchmarks.verdicts import Entry, faster_from, medians

RESULTS = ROOT / "benchmarks" / "results"
# The figures of a card stand between these lines of docs/gpu.md.
MARKS = "<!-- figures of a card: begin -->", "<!-- figures of a card: end -->"
# The name of the card of tests/fake_cupy.
IMAGINARY = "Imaginary GPU"
LIBRARIES = ("cupy", "numpy", "scipy", "scikit-learn", "torch", "torchdr")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument(
        "records", nargs="*", type=Path, help="JSON files of ci/bench.sh --benchmark-json; default: all results"
    )
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw time and memory against n as PNG there")
    parser.add_argument(
        "--page",
        nargs="?",
        type=Path,
        const=ROOT / "docs" / "gpu.md",
        metavar="FILE",
        help="write the figures of a card into a file, default docs/gpu.md",
    )
    parser.add_argument("--force", action="store_true", help="with --page: also figures of the imitation of a card")
    options = parser.parse_args()
    records = {}
    for path in options.records or sorted(RESULTS.glob("*.json")):
        try:
            record = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            parser.error(f"{path} is no record of ci/bench.sh --benchmark-json: {error}")
        if "entries" in record:
            records[path] = record
        else:
            print(f"{path.name}: no record of ci/bench.sh --benchmark-json", file=sys.stderr)
    if options.page:
        write_page(options.page, card_section(list(records.values()), options.force))
        return
    printed: list[Any] = []
    for path, record in records.items():
        print(text_of(path.name, record, with_ceilings=record.get("ceilings") not in printed))
        printed.append(record.get("ceilings"))
        if options.plots:
            options.plots.mkdir(parents=True, exist_ok=True)
            for name in QUANTITIES:
                draw(record["entries"], name, options.plots / f"{path.stem}-{name}.png")


def text_of(name: str, record: dict[str, Any], with_ceilings: bool = True) -> str:
    """Return all tables of a record as Markdown; ceilings of an earlier record may be left out."""
    ceilings, entries = record.get("ceilings", {}), record["entries"]
    counts = Counter(entry["case"] for entry in entries)
    # The verdict shows the whole entry of a contestant that is alone.
    others = [e for e in entries if e["case"] not in SWEPT and ("verdict" not in e or counts[e["case"]] > 1)]
    parts = [
        f"`{name}`: {where_and_when(record['machine'])}",
        ceiling_table(ceilings) if with_ceilings else "",
        verdict_table(entries),
        contestant_table(others),
        *(sweep_table(family, group, ceilings) for family, group in families(entries)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def where_and_when(machine: dict[str, Any]) -> str:
    """Return the card first, where there is one; else everything that is known."""
    if "gpu" not in machine:
        return ", ".join(f"{key} {value}" for key, value in machine.items())
    gib = f" ({machine['gpu_bytes'] / 2**30:.0f} GiB)" if "gpu_bytes" in machine else ""
    runtime = machine["cuda_runtime"]  # 13010 is 13.1
    libraries = ", ".join(f"{name} {machine[name]}" for name in LIBRARIES if name in machine)
    return (
        f"**{machine['gpu']}**{gib}, driver {machine.get('driver') or 'unknown'}, "
        f"CUDA runtime {runtime // 1000}.{runtime % 1000 // 10}, {machine['date']}; gpukpca {machine['gpukpca']}, "
        f"Python {machine['python']}, {libraries}; host {machine['cpu']}, {machine['cpus']} processors, "
        f"{machine['blas_threads']} BLAS threads"
    )


# -- the page ----------------------------------------------------------------------------------------------------------


def card_section(records: list[dict[str, Any]], force: bool = False) -> str:
    """Return the figures of the records of one card, as Markdown.

    Figures of the imitation of a card are refused unless `force` is True; then the first line names them so.
    """
    records = [record for record in records if "gpu" in record["machine"]]
    cards = {record["machine"]["gpu"] for record in records}
    if len(cards) != 1:
        sys.exit(f"--page: the records must be of one card, and these are of {sorted(cards) or 'none'}. Name others.")
    if IMAGINARY in cards and not force:
        sys.exit("--page: the records were made on the imitation of a card. Name records of a card.")
    ceilings = {name: row for record in records for name, row in record["ceilings"].items()}
    entries = [entry for record in records for entry in record["entries"]]
    conclusions = [f"- {family[0]}: {line}" for family, group in families(entries) for line in conclude(family, group)]
    parts = [
        "**Imaginary figures, made on the imitation of a card.**" if IMAGINARY in cards else "",
        f"Measured on {where_and_when(records[0]['machine'])}.",
        ceiling_table(ceilings),
        verdict_table(entries),
        "\n".join(conclusions),
    ]
    return "\n\n".join(part for part in parts if part)


def write_page(file: Path, section: str) -> None:
    """Replace the text between the marks of a file by the section."""
    before, begin, rest = file.read_text(encoding="utf-8").partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        sys.exit(f"--page: {file} lacks the lines {MARKS[0]} and {MARKS[1]}. Add them where the figures shall stand.")
    file.write_text(f"{before}{begin}\n{section}\n{end}{after}", encoding="utf-8")


# -- tables ------------------------------------------------------------------------------------------------------------


def table(header: str, rows: list[list[str]]) -> str:
    """Return a table in Markdown, or nothing without rows; the header's cells are separated by |."""
    if not rows:
        return ""
    lines = [f"| {header} |", "|---" * (header.count("|") + 1) + "|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def ceiling_table(ceilings: dict[str, dict[str, Any]]) -> str:
    """Return the rates of the card."""
    rows = [
        [row["what"], f"{figure(row['value'])} {row['unit']}", duration(row["seconds"]), str(row["runs"])]
        for row in ceilings.values()
    ]
    return table("operation of the card | rate | median of one | runs", rows)


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


def contestant_table(entries: list[Entry]) -> str:
    """Return a row for each contestant, cases in the order they ran, ratios to the first contestant."""
    rows = []
    for _, group in groupby(entries, key=lambda entry: entry["case"]):
        first, *others = group
        rows.append([label(first), *contestant_row(first, first)])
        rows += [["", *contestant_row(entry, first)] for entry in others]
    return table("case | contestant | time / first | peak memory, growth | residual", rows)


def contestant_row(entry: Entry, first: Entry) -> list[str]:
    """Return name, time, memory and residual of a contestant."""
    name = entry["contestant"]
    if entry["outcome"] != "ok":
        return [name, entry["outcome"], "", ""]
    if entry is first:
        name, time = f"**{name}** ({entry['median']:.2g} s)", "1"
    else:
        time = f"{entry['median'] / first['median']:.2g}" if first["median"] else f"{entry['median']:.2g} s"
    where = "" if entry["device_mib"] is None else " on the device"
    peak = "" if memory(entry) is None else f"{memory(entry):.0f} MiB{where}"
    return [name, time, peak, exponent(entry["residual"])]


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
    title = f"{name}: d = {entries[0]['d']}, {entries[0]['dtype']}" if axis == "n" else f"{name}: {label(entries[0])}"
    made = table(" | ".join([axis.replace("_", " "), *contestants]), rows)
    return "\n".join([title, "", made, "", *conclude(family, entries)])


def sweep_cell(entry: Entry, ceilings: dict[str, dict[str, Any]]) -> str:
    """Return the median, passes, a solver other than the one in the name, and the share of what the card can do."""
    if entry["outcome"] != "ok":
        return entry["outcome"]
    facts, floor = entry["facts"], floor_seconds(ceilings, entry)
    more = [f"{facts['passes']} passes"] if facts.get("passes", 1) > 1 else []
    if "dense" in entry["contestant"] and not is_dense(entry):
        more.append(str(facts.get("solver", "another solver")))
    if floor is not None:
        more.append(f"{floor / entry['median']:.0%}")
    return duration(entry["median"]) + (f" ({', '.join(more)})" if more else "")


def is_dense(entry: Entry) -> bool:
    """Return whether the dense solver ran: where it fails, or is too large, another one replaces it."""
    return str(entry.get("facts", {}).get("solver", "")).startswith("dense")


def conclude(family: tuple[str, str], entries: list[Entry]) -> list[str]:
    """Return the conclusions of a sweep, in sentences."""
    axis = family[1]
    first, *others = contestants = list(dict.fromkeys(entry["contestant"] for entry in entries))
    if axis != "n":
        seconds = {who: medians(entries, who, axis) for who in contestants}
        return [f"Fastest: {who}: {min(times, key=times.__getitem__)}." for who, times in seconds.items() if times]
    entries = [entry for entry in entries if "dense" not in entry["contestant"] or is_dense(entry)]
    found = {who: faster_from(entries, first, who) for who in others}
    return [
        f"{who} is faster than {first} {'at no size measured' if n is None else f'from n = {spaced(n)} on'}."
        for who, n in found.items()
    ]


def label(entry: Entry) -> str:
    """Return the problem of an entry."""
    data = f"{entry['data']} {spaced(entry['n'])} × {spaced(entry['d'])}, {entry['dtype']}, {entry['kernel']}"
    if entry["task"] == "transform":
        return f"{data}: transform of {spaced(entry['new'])} points, p = {entry['p']}"
    if entry["task"] == "product":
        return f"{data}: one product with {entry['p']} columns"
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


# -- pictures ----------------------------------------------------------------------------------------------------------

QUANTITIES = {
    "time": (lambda entry: entry["median"], "time of fit (s)"),
    "memory": (memory, "memory (MiB): growth in fit, or on the device"),
}


def draw(entries: list[Entry], name: str, path: Path) -> None:
    """Draw a quantity against n for every contestant of the scaling cases, with the slope of its line; log-log."""
    from matplotlib.figure import Figure

    entries = [entry for entry in entries if entry["case"].startswith("scaling-")]
    if not entries:
        return
    quantity, text = QUANTITIES[name]
    points: dict[str, list[tuple[int, float]]] = {}
    for entry in entries:
        if entry["outcome"] == "ok" and (value := quantity(entry)):  # 0 has no logarithm
            points.setdefault(entry["contestant"], []).append((entry["n"], value))
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for contestant, pairs in points.items():
        n, values = np.array(sorted(pairs)).T
        slope = f"n^{np.polyfit(np.log(n), np.log(values), 1)[0]:.1f}" if len(n) > 1 else "one size"
        axes.loglog(n, values, marker="o", label=f"{contestant}, {slope}")
    title = "{data} data, d = {d}, {dtype}, {kernel} kernel, p = {p}".format(**entries[0])
    axes.set(xlabel="samples n", ylabel=text, title=title)
    axes.grid(which="both", alpha=0.3)
    figure.legend(loc="outside right upper")  # beside the axes, where it hides no point
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
