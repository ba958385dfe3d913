"""Tables and figures of records: ``python -m benchmarks.report [RECORD ...] [--folder FOLDER]``.

``--folder`` writes table.csv, tables.md, table.tex and the figures.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cases import GROWTH
from benchmarks.datasets import ABSENT, REAL
from benchmarks.gpu_cases import SWEEPS
from benchmarks.machine import PACKAGES
from benchmarks.peer import is_ours
from benchmarks.ratios import ratio_text
from benchmarks.verdicts import NO_TIME, Entry, faster_from, medians, slope

SWEPT = {case.name: family for family, cases in (SWEEPS | GROWTH).items() for case in cases}
# Residuals above it are shown in the tables of sweeps.
POOR = 1e-4
NOT_SETTLED = ratio_text(None)

Record = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("records", nargs="*", type=Path, help="files of ci/bench.sh; default: the published ones")
    parser.add_argument("--folder", type=Path, help="write all tables and figures of one record into a folder")
    options = parser.parse_args()
    from benchmarks.publish import kept  # which has these tables

    records = read(options.records) or kept()
    for path, record in records.items():
        print(aligned(text_of(path.name, record)))
        if options.folder:
            write_folder(record, path.name, options.folder)


def read(paths: Iterable[Path]) -> dict[Path, Record]:
    """Return the records of files; end with a sentence where one is none."""
    records = {}
    for path in paths:
        try:
            records[path] = json.loads(path.read_text(encoding="utf-8"))
            if any("columns" not in entry for entry in records[path]["entries"]):
                raise ValueError("it was made before version 0.21, without pairs of fits")
        except (OSError, ValueError, KeyError) as error:
            sys.exit(f"{path} is no record of ci/bench.sh: {type(error).__name__}: {error}")
    return records


# -- a record in all forms ---------------------------------------------------------------------------------------------


def write_folder(record: Record, name: str, folder: Path) -> None:
    """Write the tables of a record as Markdown, CSV and LaTeX, and its figures."""
    from benchmarks.figures import draw

    folder.mkdir(parents=True, exist_ok=True)
    pictures = "\n".join(f"![{path.stem}]({path.name})" for path in draw(record, folder))
    (folder / "tables.md").write_text(f"{text_of(name, record)}\n{pictures}\n", encoding="utf-8")
    (folder / "table.tex").write_text(latex(record), encoding="utf-8")
    with (folder / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(plain_rows(record))


def plain_rows(record: Record) -> list[list[object]]:
    """Return a header and a row for each entry, numbers as they were measured, also of absent contestants."""
    fields = ("case", "contestant", "outcome", "task", "data", "n", "d", "p", "dtype", "kernel", "rank")
    measured = ("median", "residual", "peak_mib", "device_mib")
    figures = ("value", "low", "high", "pairs", "settled")
    per_column = [f"{name}, {which}" for which in COLUMNS for name in ("CPU s", *figures)]
    found: list[list[object]] = [[*fields, "fits", *measured, *per_column, "gpukpca", "machine"]]
    about_all = [record["machine"]["gpukpca"], record["machine"].get("gpu", record["machine"]["cpu"])]
    for entry in record["entries"]:
        values: list[object] = [entry.get(name) for name in fields]
        values += [len(entry["seconds"]), *(entry.get(name) for name in measured)]
        for column in columns_of(entry):
            values += [
                median(column["cpu"]) if column.get("cpu") else None,
                *(column.get("ratio", {}).get(name) for name in figures),
            ]
        found.append([*values, *about_all])
    return found


def latex(record: Record) -> str:
    """Return the contestants of all cases as a longtable of LaTeX."""
    header, rows = CONTESTANT_HEADER.split(" | "), contestant_rows(record["entries"])
    caption = rf"\caption{{{escaped(where_and_when(record['machine']))}}} \\"
    head = [r"% \usepackage{longtable}", r"\begin{longtable}{llrrrrrr}", caption]
    lines = [" & ".join(map(escaped, row)) + r" \\" for row in rows]
    return "\n".join([*head, " & ".join(header) + r" \\ \hline \endhead", *lines, r"\end{longtable}", ""])


TEX_OF = r"\& \% \$ \# \_ \{ \} $\times$ -- $\mu$ $<$ $\to$ / $>$ $|$ \~{} \^{}"
TEX = dict(zip("&%$#_{}×–µ<→\\>|~^", TEX_OF.split(), strict=True)) | {"\u00a0": "~"}


def escaped(text: str) -> str:
    """Return text for LaTeX, without the marks of Markdown."""
    return "".join(TEX.get(c, c if c.isascii() else "?") for c in text.replace("**", "").replace("`", ""))


def aligned(text: str) -> str:
    """Return Markdown with the columns of its tables aligned, for a terminal."""
    lines, block = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            block.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        widths = [max(map(len, column)) for column in zip(*block, strict=True)]
        for row in block:
            cells = (c.ljust(w, "-" if c == "---" else " ") for c, w in zip(row, widths, strict=True))
            lines.append("  ".join(cells).rstrip())
        lines.append(line)
        block = []
    return "\n".join(lines)


def text_of(name: str, record: Record) -> str:
    """Return all tables of a record as Markdown."""
    ceilings, entries = record["ceilings"], record["entries"]
    counts = Counter(entry["case"] for entry in entries)
    # The verdict shows the whole entry of a contestant that is alone.
    others = [e for e in entries if e["case"] not in SWEPT and ("verdict" not in e or counts[e["case"]] > 1)]
    parts = [
        f"`{name}`: {where_and_when(record['machine'])}",
        left_out(entries),
        ceiling_table(ceilings),
        verdict_table(entries),
        table(CONTESTANT_HEADER, contestant_rows(others)),
        *(sweep_table(family, group) for family, group in families(entries)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def left_out(entries: list[Entry]) -> str:
    """Return the contestants that did not run, by the reason, or the cases without data; of absent ones the remedy.

    A contestant that ran in other cases is named with the case.
    """
    groups: dict[str, dict[str, None]] = {}
    ran = {entry["contestant"] for entry in entries if not is_absent(entry)}
    for entry in filter(is_absent, entries):
        reason = entry["outcome"].removeprefix("skipped: ")
        who = entry["contestant"]
        name = entry["case"] if reason.startswith(ABSENT) else f"{who} in {entry['case']}" if who in ran else who
        groups.setdefault(reason, {})[name] = None
    return "\n".join(f"- left out: {'; '.join(names)} ({reason})" for reason, names in groups.items())


def is_absent(entry: Entry) -> bool:
    """Return whether a contestant was left out: the machine lacks what it needs, or no time was left."""
    return bool(entry["outcome"].startswith("skipped"))


def where_and_when(machine: dict[str, Any]) -> str:
    """Return the card, where there is one, the host, the date and the versions."""
    card = ""
    if "gpu" in machine:
        gib = f" ({machine['gpu_bytes'] / 2**30:.0f} GiB)" if "gpu_bytes" in machine else ""
        runtime = machine["cuda_runtime"]  # 13010 is 13.1
        card = f"**{machine['gpu']}**{gib}, driver {machine.get('driver') or 'unknown'}, "
        card += f"CUDA runtime {runtime // 1000}.{runtime % 1000 // 10}; host "
    names = [name for name in PACKAGES if not name.startswith("cupy-")]
    libraries = ", ".join(f"{name} {machine[name]}" for name in names if name in machine)
    return (
        f"{card}{machine['cpu']}, {machine['cpus']} cores, {machine['blas_threads']} BLAS threads, {machine['date']}; "
        f"gpukpca {machine['gpukpca']}, Python {machine['python']}, {libraries}"
    )


# -- tables ------------------------------------------------------------------------------------------------------------


def table(header: str, rows: list[list[str]]) -> str:
    """Return a table in Markdown, or nothing without rows; cells of the header are separated by |, and have none."""
    if not rows:
        return ""
    lines = [f"| {header} |", "|---" * (header.count("|") + 1) + "|"]
    return "\n".join(lines + [f"| {' | '.join(cell.replace('|', '¦') for cell in row)} |" for row in rows])


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


CONTESTANT_HEADER = (
    "case | contestant | time / first, one thread | all threads | seconds, one thread | CPU seconds | memory | residual"
)
COLUMNS = ("one thread", "all threads")


def columns_of(entry: Entry) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns of one and of all threads of an entry, empty where they were not measured."""
    more = [column for threads, column in entry["columns"].items() if threads != "1"]
    return entry["columns"].get("1", {}), more[0] if more else {}


def contestant_rows(entries: list[Entry]) -> list[list[str]]:
    """Return a row for each contestant, cases in the order they ran, ratios to the first.

    Absent ones, and cases that no time was left for, are left out.
    """
    rows = []
    for first, *others in by_case(entries):
        if not is_late([first, *others]):
            rows.append([label(first), *contestant_row(first, first)])
            rows += [["", *contestant_row(entry, first)] for entry in others if not is_absent(entry)]
    return rows


def by_case(entries: list[Entry]) -> list[list[Entry]]:
    """Return the entries of each case, in the order they ran."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry["case"], []).append(entry)
    return list(groups.values())


def is_late(entries: list[Entry]) -> bool:
    """Return whether no time was left for the peers of a case; for the first contestant, where there are none."""
    peers = [entry for entry in entries[1:] if has_not_run(entry) or not is_absent(entry)]
    return all(map(has_not_run, peers or entries[:1]))


def has_not_run(entry: Entry) -> bool:
    """Return whether no time was left for a contestant."""
    return "not run" in outcome_of(entry)


def outcome_of(entry: Entry) -> str:
    """Return what became of a contestant, also of one whose process began and whose first round came too late."""
    one = columns_of(entry)[0]
    return entry["outcome"] if one.get("pairs", 1) or one.get("ratio", one)["pairs"] else NO_TIME


def too_late(entries: list[Entry]) -> str:
    """Return a sentence that names the cases that no time was left for, or nothing."""
    cases = [label(first) for first, *others in by_case(entries) if is_late([first, *others])]
    return f"No time was left for: {'; '.join(cases)}." if cases else ""


def contestant_row(entry: Entry, first: Entry) -> list[str]:
    """Return name, ratios, seconds, memory and residual of a contestant."""
    name = f"**{name_of(entry)}**" if entry is first else name_of(entry)
    one, every = columns_of(entry)
    if (outcome := outcome_of(entry)) != "ok":
        return [name, outcome.removeprefix("skipped: "), *[""] * 5]
    if entry is first:
        ratios = ["1", "1" if every else ""]
    elif entry["columns"]:
        ratios = [ratio_text(one.get("ratio")), ratio_text(every.get("ratio")) if every else ""]
    else:  # of a card
        has_both = first["median"] and entry["median"]
        ratios = [f"{entry['median'] / first['median']:.2g}" if has_both else NOT_SETTLED, ""]
    where = " on the device" * (entry["device_mib"] is not None)
    peak = "" if memory(entry) is None else f"{memory(entry):.0f} MiB{where}"
    cpu_text = (duration(median(one["cpu"])) if one.get("cpu") else "") + " (one run)" * one.get("once", False)
    ratios[0] = "one run" if one.get("once") else ratios[0]
    return [name, *ratios, seconds_text(entry), cpu_text, peak, exponent(entry["residual"])]


def seconds_text(entry: Entry) -> str:
    """Return the median, or why there is none."""
    if entry["median"]:
        return duration(entry["median"])
    return f"{duration(entry['seconds'][0])} (one run)" if columns_of(entry)[0].get("once") else NOT_SETTLED


def name_of(entry: Entry) -> str:
    """Return the name of a contestant, with its limit of memory."""
    return str(entry["contestant"]).replace("little memory", f"{entry.get('limit_mib')} MiB")


def families(entries: list[Entry]) -> list[tuple[tuple[str, str], list[Entry]]]:
    """Return ((sweep, field that varies), its entries) of the sweeps, in their order."""
    grouped: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry["case"] in SWEPT and not is_absent(entry):
            grouped.setdefault(SWEPT[entry["case"]], []).append(entry)
    return list(grouped.items())


def sweep_table(family: tuple[str, str], entries: list[Entry]) -> str:
    """Return a row for each setting, a column for each contestant, and the conclusions below."""
    (name, axis), contestants = family, list(dict.fromkeys(entry["contestant"] for entry in entries))
    rows = []
    for setting in sorted({entry[axis] for entry in entries}):
        cells = {entry["contestant"]: sweep_cell(entry) for entry in entries if entry[axis] == setting}
        rows.append([spaced(setting), *(cells.get(who, "") for who in contestants)])
    fixed = ", ".join(f"{field} = {entries[0][field]}" for field in ("n", "d", "p") if field != axis)
    made = table(" | ".join([axis.replace("_", " "), *contestants]), rows)
    return "\n".join([f"{name}: {fixed}, {entries[0]['dtype']}", "", made, "", *conclude(family, entries)])


def sweep_cell(entry: Entry) -> str:
    """Return the median or the ratio, passes, a solver other than the one in the name, and the memory."""
    if entry["outcome"] != "ok":
        return entry["outcome"]
    facts = entry["facts"]
    more = [f"{facts['passes']} passes"] if facts.get("passes", 1) > 1 else []
    if is_ours(entry["contestant"]) and "dense" in entry["contestant"] and not is_dense(entry):
        more.append(str(facts.get("solver", "another solver")))
    if (entry["residual"] or 0.0) > POOR:
        more.append(f"residual {exponent(entry['residual'])}")
    if entry["device_mib"] is None and entry["peak_mib"]:
        more.append(f"{entry['peak_mib']:.0f} MiB")
    one = columns_of(entry)[0]
    time = seconds_text(entry) if one.get("once") or "ratio" not in one else ratio_text(one["ratio"])
    return "; ".join([time, *more])


def is_dense(entry: Entry) -> bool:
    """Return whether the dense solver ran: where it fails, or is too large, another one replaces it."""
    return str(entry.get("facts", {}).get("solver", "")).startswith("dense")


def conclude(family: tuple[str, str], entries: list[Entry]) -> list[str]:
    """Return the conclusions of a sweep, in sentences."""
    axis = family[1]
    first, *others = contestants = list(dict.fromkeys(entry["contestant"] for entry in entries))
    if family in GROWTH:
        return [f"- {who}: {text}." for who in contestants if (text := growth(entries, who, axis))]
    if axis != "n":
        seconds = {who: medians(entries, who, axis) for who in contestants}
        return [f"Fastest: {who}: {min(times, key=times.__getitem__)}." for who, times in seconds.items() if times]
    entries = [e for e in entries if not is_ours(e["contestant"]) or "dense" not in e["contestant"] or is_dense(e)]
    found = {who: faster_from(entries, first, who) for who in others}
    return [
        f"{who} is faster than {first} {'at no size measured' if n is None else f'from n = {spaced(n)} on'}."
        for who, n in found.items()
    ]


def growth(entries: list[Entry], contestant: str, axis: str) -> str:
    """Return the exponents of time and of memory of a contestant."""
    mine = [entry for entry in entries if entry["contestant"] == contestant and entry["outcome"] == "ok"]
    powers = {name: slope(mine, axis, quantity) for name, quantity in (("time", "median"), ("memory", "peak_mib"))}
    return ", ".join(f"{name} {axis}^{power:.2f}" for name, power in powers.items() if power is not None)


def label(entry: Entry) -> str:
    """Return the problem of an entry."""
    name = entry["data"].upper() if entry["data"] in REAL else entry["data"]
    data = f"{name} {spaced(entry['n'])} × {spaced(entry['d'])}, {entry['dtype']}"
    if entry["task"] == "axes":
        return f"{data}, p = {entry['p']}"
    data = f"{data}, {entry['kernel']}"
    if entry["task"] == "transform":
        return f"{data}: transform of {spaced(entry['new'])} points, p = {entry['p']}"
    if entry["task"] == "search":
        grid = f"{entry['grid'][0]} gammas × {len(entry['grid']) - 1} numbers of components"
        return f"search: {data}, 5 folds, {grid}"
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
    """Return an integer as 10 000, with a space at which no line ends."""
    return f"{n:,}".replace(",", "\u00a0") if n >= 10_000 else str(n)


if __name__ == "__main__":
    main()
