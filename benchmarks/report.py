"""Tables and pictures of records: ``python -m benchmarks.report [RECORD ...] [--plots FOLDER]``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument(
        "records", nargs="*", type=Path, help="JSON files of ci/bench.sh --record; default: all results"
    )
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw time and memory against n as PNG there")
    options = parser.parse_args()
    for path in options.records or sorted(RESULTS.glob("*.json")):
        record = json.loads(path.read_text())
        if "entries" not in record:
            print(f"{path.name}: no record of ci/bench.sh --record", file=sys.stderr)
            continue
        print(f"`{path.name}`: " + ", ".join(f"{key} {value}" for key, value in record["machine"].items()))
        print("\n" + markdown(record["entries"]) + "\n")
        if options.plots:
            options.plots.mkdir(parents=True, exist_ok=True)
            for name in QUANTITIES:
                draw(record["entries"], name, options.plots / f"{path.stem}-{name}.png")


# -- table -------------------------------------------------------------------------------------------------------------


def markdown(entries: list[dict[str, Any]]) -> str:
    """One row for each contestant, cases in the order they ran, ratios to the first contestant."""
    lines = ["| case | contestant | time / first | peak memory, growth | residual |", "|---|---|---|---|---|"]
    for _, group in groupby(entries, key=lambda entry: entry["case"]):
        rows = list(group)
        labels = [label(rows[0])] + [""] * (len(rows) - 1)
        lines += [f"| {text} | {row(entry, rows[0])} |" for text, entry in zip(labels, rows, strict=True)]
    return "\n".join(lines)


def label(entry: dict[str, Any]) -> str:
    """The case in words."""
    data = f"{entry['data']} {spaced(entry['n'])} × {spaced(entry['d'])}, {entry['dtype']}, {entry['kernel']}"
    if entry["task"] == "transform":
        return f"{data}: transform of {spaced(entry['new'])} points, p = {entry['p']}"
    if entry["task"] == "product":
        return f"{data}: one product with {entry['p']} columns"
    return f"{data}, p = {entry['p']}"


def row(entry: dict[str, Any], first: dict[str, Any]) -> str:
    """The other cells."""
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
    """A quantity against n for every contestant of the scaling cases, with the slope of its line; log-log."""
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
    """contestant -> (n, values), ascending; what is missing or zero has no logarithm."""
    points: dict[str, list[tuple[int, float]]] = {}
    for entry in entries:
        if entry["outcome"] == "ok" and (value := of(entry)):
            points.setdefault(entry["contestant"], []).append((entry["n"], value))
    return {contestant: tuple(np.array(sorted(pairs)).T) for contestant, pairs in points.items()}


if __name__ == "__main__":
    main()
