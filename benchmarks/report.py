"""Tables and pictures of records: ``python -m benchmarks.report [RECORD ...] [--plots FOLDER] [--page]``.

Of a record made on a card also: on what card and when, what it can do, what was reached of what should be, and from
which sizes on it is worth it; ``--page`` writes that between the marks in docs/gpu.md.
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

import numpy as np

from benchmarks.floors import floor_seconds
from benchmarks.verdicts import faster_from, fastest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
# Between these lines of docs/gpu.md stand the figures of a card.
MARKS = "<!-- figures of a card: begin -->", "<!-- figures of a card: end -->"
# The name of the card of tests/fake_cupy.
IMAGINARY = "Imaginary GPU"
SWEPT = "gpu-crossover", "gpu-dense-or-krylov", "gpu-tile-edge", "gpu-block-width"


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
            records[path] = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            parser.error(f"{path} is no record of ci/bench.sh --benchmark-json: {error}")
    for path in [path for path, record in records.items() if "entries" not in record]:
        print(f"{path.name}: no record of ci/bench.sh --benchmark-json", file=sys.stderr)
        del records[path]
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
    """All that a record has to tell, as Markdown; ceilings that another record has told before may be left out."""
    ceilings = {row["name"]: row for row in record.get("ceilings", [])}
    swept = [entry for entry in record["entries"] if entry["case"].startswith(SWEPT)]
    others = [entry for entry in record["entries"] if not entry["case"].startswith(SWEPT)]
    if record.get("verdicts"):  # which tell of contestants that are alone
        counts = Counter(entry["case"] for entry in others)
        others = [entry for entry in others if counts[entry["case"]] > 1]
    parts = [f"`{name}`: {where_and_when(record['machine'])}"]
    if ceilings and with_ceilings:
        parts.append(ceiling_table(ceilings))
    if record.get("verdicts"):
        parts.append(verdict_table(record["verdicts"]))
    if others:
        parts.append(markdown(others))
    for family, entries in families(swept):
        parts.append(sweep_table(family, entries, ceilings))
    return "\n\n".join(parts) + "\n"


def where_and_when(machine: dict[str, Any]) -> str:
    """Return the card first, where there is one; else everything that is known."""
    if "gpu" not in machine:
        return ", ".join(f"{key} {value}" for key, value in machine.items())
    gib = f" ({machine['gpu_bytes'] / 2**30:.0f} GiB)" if "gpu_bytes" in machine else ""
    libraries = ["cupy", "numpy", "scipy", "scikit-learn", "torch", "torchdr"]
    found = [f"{name} {machine[name]}" for name in libraries if name in machine]
    return (
        f"**{machine['gpu']}**{gib}, driver {machine.get('driver') or 'unknown'}, "
        f"CUDA runtime {cuda(machine['cuda_runtime'])}, {machine['date']}; gpukpca {machine['gpukpca']}, "
        f"Python {machine['python']}, {', '.join(found)}; host {machine['cpu']}, {machine['cpus']} processors, "
        f"{machine['blas_threads']} BLAS threads"
    )


def cuda(number: int) -> str:
    """13010 -> 13.1."""
    return f"{number // 1000}.{number % 1000 // 10}"


# -- the page ----------------------------------------------------------------------------------------------------------


def card_section(records: list[dict[str, Any]], force: bool = False) -> str:
    """Return the figures of the records of one card, as Markdown.

    Figures of the imitation of a card are refused unless `force` is True; then the first line says what they are.
    """
    records = [record for record in records if "gpu" in record["machine"]]
    cards = {record["machine"]["gpu"] for record in records}
    if len(cards) != 1:
        sys.exit(f"--page: the records must be of one card, and these are of {sorted(cards) or 'none'}. Name others.")
    if IMAGINARY in cards and not force:
        sys.exit("--page: the records were made on the imitation of a card. Name records of a card.")
    parts = ["**Imaginary figures, made on the imitation of a card.**"] if IMAGINARY in cards else []
    parts.append(f"Measured on {where_and_when(records[0]['machine'])}.")
    ceilings = {row["name"]: row for record in records for row in record.get("ceilings", [])}
    if ceilings:
        parts.append(ceiling_table(ceilings))
    verdicts = {verdict["case"]: verdict for record in records for verdict in record.get("verdicts", [])}
    if verdicts:
        parts.append(verdict_table(list(verdicts.values())))
    entries = [entry for record in records for entry in record["entries"] if entry["case"].startswith(SWEPT)]
    lines = [f"- {name}: {line}" for name, group in families(entries) for line in sweep_conclusions(name, group)]
    return "\n\n".join([*parts, *(["\n".join(lines)] if lines else [])])


def write_page(file: Path, section: str) -> None:
    """Put the section in place of what stands between the marks of a file."""
    before, begin, rest = file.read_text(encoding="utf-8").partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        sys.exit(f"--page: {file} lacks the lines {MARKS[0]} and {MARKS[1]}. Add them where the figures shall stand.")
    file.write_text(f"{before}{begin}\n{section}\n{end}{after}", encoding="utf-8")


# -- a card ------------------------------------------------------------------------------------------------------------


def ceiling_table(ceilings: dict[str, dict[str, Any]]) -> str:
    """Return the table of ceilings, medians."""
    lines = ["| what the card does | rate | median of one | runs |", "|---|---|---|---|"]
    lines += [
        f"| {row['what']} | {figure(row['value'])} {row['unit']} | {spelled(row['seconds'])} | {row['runs']} |"
        for row in ceilings.values()
    ]
    return "\n".join(lines)


def verdict_table(verdicts: list[dict[str, Any]]) -> str:
    """Return the table of targets."""
    lines = [
        "| case | target | measured | reached | of what the card can do | residual | runs |",
        "|---|---|---|---|---|---|---|",
    ]
    for verdict in verdicts:
        reached = {True: "yes", False: "**no**", None: "not judged"}[verdict["reached"]]
        share = "" if verdict["share"] is None else f"{verdict['share']:.0%} (floor {spelled(verdict['floor_s'])})"
        residual = "" if verdict["residual"] is None else f"{verdict['residual']:.0e}"
        note = f"; {verdict['note']}" if verdict["note"] else ""
        size = (
            f"{verdict['data']} {spaced(verdict['n'])} × {spaced(verdict['d'])}, {verdict['dtype']}, p = {verdict['p']}"
        )
        lines.append(
            f"| {verdict['case']}: {verdict['contestant']}, {size} | {verdict['target']} | {verdict['measured']}{note} "
            f"| {reached} | {share} | {residual} | {verdict['runs']} |"
        )
    return "\n".join(lines)


def families(entries: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """(name of the sweep, its entries), in their order; the sweeps' cases end in their size or setting."""
    grouped = groupby(entries, key=lambda entry: entry["case"].rpartition("-")[0])
    return [(name, list(group)) for name, group in grouped]


def sweep_table(name: str, entries: list[dict[str, Any]], ceilings: dict[str, dict[str, Any]]) -> str:
    """Return a row for each size or setting, a column for each contestant; what follows from it below."""
    axis, contestants = axis_of(name), contestants_of(entries)
    lines = [f"{name}: {label(entries[0])}" if axis != "n" else f"{name}: d = {entries[0]['d']}, {entries[0]['dtype']}"]
    lines += ["", f"| {axis.replace('_', ' ')} | {' | '.join(contestants)} |", "|---" * (len(contestants) + 1) + "|"]
    for setting in sorted({entry[axis] for entry in entries}):
        cells = {entry["contestant"]: swept_cell(entry, ceilings) for entry in entries if entry[axis] == setting}
        lines.append(f"| {spaced(setting)} | {' | '.join(cells.get(who, '') for who in contestants)} |")
    return "\n".join([*lines, "", *sweep_conclusions(name, entries)])


def axis_of(name: str) -> str:
    """Return the field that varies in a sweep."""
    return next(axis for prefix, axis in AXES.items() if name.startswith(prefix))


def contestants_of(entries: list[dict[str, Any]]) -> list[str]:
    """Return the contestants in their order."""
    return list(dict.fromkeys(entry["contestant"] for entry in entries))


AXES = {"gpu-crossover": "n", "gpu-dense-or-krylov": "n", "gpu-tile-edge": "tile_edge", "gpu-block-width": "block"}


def swept_cell(entry: dict[str, Any], ceilings: dict[str, dict[str, Any]]) -> str:
    """Median, passes, solver where it is not the one in the name, and the share of what the card can do."""
    if entry["outcome"] != "ok":
        return entry["outcome"]
    facts, floor = entry.get("facts") or {}, floor_seconds(ceilings, entry)
    more = [f"{facts['passes']} passes"] if facts.get("passes", 1) > 1 else []
    if "dense" in entry["contestant"] and not is_dense(entry):
        more.append(str(facts.get("solver", "another solver")))
    if floor is not None:
        more.append(f"{floor / entry['median']:.0%}")
    return spelled(entry["median"]) + (f" ({', '.join(more)})" if more else "")


def is_dense(entry: dict[str, Any]) -> bool:
    """Whether the dense solver ran: where it fails, or is too large, another one takes its place."""
    return str((entry.get("facts") or {}).get("solver", "")).startswith("dense")


def sweep_conclusions(name: str, entries: list[dict[str, Any]]) -> list[str]:
    """Return what a sweep was made for, in sentences."""
    axis, contestants = axis_of(name), contestants_of(entries)
    if axis != "n":
        best = [(who, fastest(entries, who, axis)) for who in contestants]
        return [f"Fastest: {who}: {setting}." for who, setting in best if setting is not None]
    if name.startswith("gpu-dense"):
        entries = [entry for entry in entries if "dense" not in entry["contestant"] or is_dense(entry)]
    first = contestants[0]
    found = [(who, faster_from(entries, first, who)) for who in contestants[1:]]
    return [
        f"{who} is faster than {first} {'at no size measured' if n is None else f'from n = {spaced(n)} on'}."
        for who, n in found
    ]


def figure(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def spelled(seconds: float) -> str:
    """1.23 s, 45.6 ms, 7.89 µs."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 0.9995:
            return f"{figure(seconds * factor)} {unit}"
    return f"{figure(seconds * 1e6)} µs"


# -- contestants -------------------------------------------------------------------------------------------------------


def markdown(entries: list[dict[str, Any]]) -> str:
    """One row for each contestant, cases in the order they ran, ratios to the first contestant."""
    lines = ["| case | contestant | time / first | peak memory, growth | residual |", "|---|---|---|---|---|"]
    for _, group in groupby(entries, key=lambda entry: entry["case"]):
        rows = list(group)
        labels = [label(rows[0])] + [""] * (len(rows) - 1)
        lines += [f"| {text} | {row(entry, rows[0])} |" for text, entry in zip(labels, rows, strict=True)]
    return "\n".join(lines)


def label(entry: dict[str, Any]) -> str:
    """Return the label of a case."""
    data = f"{entry['data']} {spaced(entry['n'])} × {spaced(entry['d'])}, {entry['dtype']}, {entry['kernel']}"
    if entry["task"] == "transform":
        return f"{data}: transform of {spaced(entry['new'])} points, p = {entry['p']}"
    if entry["task"] == "product":
        return f"{data}: one product with {entry['p']} columns"
    return f"{data}, p = {entry['p']}"


def row(entry: dict[str, Any], first: dict[str, Any]) -> str:
    """Return the cells of a contestant."""
    if entry["outcome"] != "ok":
        return f"{entry['contestant']} | {entry['outcome']} | |"
    if entry is first:
        name, time = f"**{entry['contestant']}** ({entry['median']:.2g} s)", "1"
    else:
        name = entry["contestant"]
        time = f"{entry['median'] / first['median']:.2g}" if first["median"] else f"{entry['median']:.2g} s"
    where = " on the device" if entry["device_mib"] is not None else ""
    peak = "" if memory(entry) is None else f"{memory(entry):.0f} MiB{where}"
    return f"{name} | {time} | {peak} | {'' if entry['residual'] is None else format(entry['residual'], '.0e')}"


def seconds(entry: dict[str, Any]) -> float | None:
    """Median of the runs."""
    return entry["median"]


def memory(entry: dict[str, Any]) -> float | None:
    """MiB: growth of the process, or what the device held."""
    return entry["peak_mib"] if entry["device_mib"] is None else entry["device_mib"]


def spaced(n: int) -> str:
    """10 000."""
    return f"{n:,}".replace(",", " ") if n >= 10_000 else str(n)


# -- pictures ----------------------------------------------------------------------------------------------------------

QUANTITIES = {"time": (seconds, "time of fit (s)"), "memory": (memory, "memory (MiB): growth in fit, or on the device")}


def draw(entries: list[dict[str, Any]], name: str, path: Path) -> None:
    """Draw a quantity against n for every contestant of the scaling cases, with the slope of its line; log-log."""
    from matplotlib.figure import Figure

    entries = [entry for entry in entries if entry["case"].startswith("scaling-")]
    if not entries:
        return
    of, text = QUANTITIES[name]
    title = "{data} data, d = {d}, {dtype}, {kernel} kernel, p = {p}".format(**entries[0])
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for contestant, (n, values) in lines(entries, of).items():
        slope = f"n^{np.polyfit(np.log(n), np.log(values), 1)[0]:.1f}" if len(n) > 1 else "one size"
        axes.loglog(n, values, marker="o", label=f"{contestant}, {slope}")
    axes.set(xlabel="samples n", ylabel=text, title=title)
    axes.grid(which="both", alpha=0.3)
    figure.legend(loc="outside right upper")  # beside the axes, where it hides no point
    figure.savefig(path, dpi=150)


def lines(
    entries: list[dict[str, Any]], of: Callable[[dict[str, Any]], float | None]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return contestant -> (n, values), ascending; what is missing or zero has no logarithm."""
    points: dict[str, list[tuple[int, float]]] = {}
    for entry in entries:
        if entry["outcome"] == "ok" and (value := of(entry)):
            points.setdefault(entry["contestant"], []).append((entry["n"], value))
    return {contestant: tuple(np.array(sorted(pairs)).T) for contestant, pairs in points.items()}


if __name__ == "__main__":
    main()
