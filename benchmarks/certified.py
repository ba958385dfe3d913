"""Time against certified error: ``python -m benchmarks.certified`` computes what its record lacks, and draws it.

The records of `python -m benchmarks.headline`, moved into results/headline, give the table of README.md. Every point is
one fit in a new process. The error of Nyström is `norm_bound_`, that of exact fits the largest residual, both in units
of λ₁. Peers bound no error: they are tried within the memory of the machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.headline import generated
from benchmarks.publish import with_section

HEADLINES = Path(__file__).parent / "results" / "headline"
RECORD = HEADLINES / "certified.json"
PICTURE = Path(__file__).parent / "pictures" / "certified.png"
P, GAMMA = 5, 0.05
SMALL, LARGE = (100, 200, 500, 1000), (2000, 3000)
RANKS = {10_000: SMALL + LARGE, 100_000: SMALL + LARGE, 1_000_000: SMALL[:3]}
# The last one is that of `python -m benchmarks.headline million`, which takes many minutes.
EXACT = {10_000: "float64", 100_000: "float64", 1_000_000: "float32"}
MILLION = HEADLINES / "headline-million-1000000.json"
BOUND_ROWS = 2000
PEERS = ("sklearn arpack", "sklearn randomized")
OUT_OF_MEMORY = "out of memory"


def points() -> list[dict[str, Any]]:
    """Return what the figure needs, the fastest first."""
    nystrom = [{"n": n, "method": "Nyström", "rank": rank} for n, ranks in RANKS.items() for rank in ranks]
    exact = [{"n": n, "method": "exact", "rank": 0} for n in EXACT if n < max(EXACT)]
    peers = [{"n": n, "method": peer, "rank": 0} for n in EXACT for peer in PEERS]
    return sorted(nystrom + exact + peers, key=lambda point: (point["n"], point["method"] == "exact"))


def measured(point: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds and the certified error of one fit."""
    from gpukpca import KernelPCA, Nystrom

    n, method = point["n"], point["method"]
    X = generated(n).astype("float64")
    how: dict[str, Any] = {"kernel": "rbf", "gamma": GAMMA, "random_state": 0}
    started = time.perf_counter()
    if method in PEERS:
        from sklearn.decomposition import KernelPCA as Peer

        Peer(P, **how, eigen_solver=method.split()[1], n_jobs=-1).fit(X)
        return {"seconds": time.perf_counter() - started, "error": None}
    if method == "exact":
        model: Any = KernelPCA(P, **how, memory_limit="12GiB", verbose=1).fit(X)
        seconds, bound = time.perf_counter() - started, float(np.max(model.residual_norms_))
        more = {"passes": model.n_passes_, "columns": model.n_products_}
    else:
        model = KernelPCA(P, **how, eigen_solver=Nystrom(point["rank"], bound_rows=BOUND_ROWS)).fit(X)
        fitted, bound = time.perf_counter() - started, model.norm_bound_
        seconds = time.perf_counter() - started
        more = {"fit": fitted, "trace": model.certificate_ / float(model.eigenvalues_[0])}
    return {"seconds": seconds, "error": float(bound) / float(model.eigenvalues_[0]), **more}


def in_a_process(point: dict[str, Any]) -> dict[str, Any]:
    """Return `measured` of a process that may take the memory of the machine, or why there is nothing."""
    command = [sys.executable, "-m", "benchmarks.certified", "--point", json.dumps(point)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"seconds": None, "error": None, "why": OUT_OF_MEMORY if done.returncode in (-9, 9) else "failed"}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def within_memory() -> None:
    """Let this process fail where it asks for more than the machine has."""
    import os
    import resource

    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    resource.setrlimit(resource.RLIMIT_AS, (total, total))


def table() -> str:
    """Return the table of the exact fits whose K fits nowhere, from their records."""
    lines = [
        "| exact kernel PCA | K would take | memory, at the peak | time | residuals, of λ₁ |",
        "|---|---|---|---|---|",
    ]
    names = {"mnist": "all 70 000 MNIST digits, rbf, p = 10", "million": "10⁶ × 20, rbf, p = 5"}
    for case, what in names.items():
        for path in sorted(HEADLINES.glob(f"headline-{case}-*.json")):
            facts = json.loads(path.read_text())
            seconds, peak = facts["seconds"], facts["peak_bytes"] / 2**30
            spent = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} minutes"
            size, worst = facts["bytes_of_K"] / 1e9, max(facts["relative_residuals"])
            stored = f"{size / 1000:.0f} TB" if size >= 1000 else f"{size:.1f} GB"
            passes = f"{facts['passes']} passes"
            lines.append(f"| {what} | {stored} | {peak:.1f} GiB | {spent}, {passes} | {worst:.1e} |")
    about = json.loads(path.read_text())["machine"]
    head = f"{about['cpu']}, {about['cpus']} cores, float32, {about['date']}, gpukpca {about['gpukpca']}."
    return "\n".join([head, "", *lines])


def publish() -> None:
    """Write the table into the pages that show it."""
    root = Path(__file__).parents[1]
    for page in (root / "README.md", root / "docs" / "benchmarks.md"):
        page.write_text(with_section(page.read_text(), "headline", table(), page.name))


def draw(found: list[dict[str, Any]]) -> None:
    """Draw a panel for every n: seconds against the certified error."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.0), layout="constrained")
    for ax, n in zip(figure.subplots(1, len(EXACT), sharex=True, sharey=True), EXACT, strict=True):
        here = [point for point in found if point["n"] == n]
        line = sorted((p for p in here if p["method"] == "Nyström"), key=lambda point: int(point["rank"]))
        seconds = [point["seconds"] for point in line]
        bounds = [point["error"] for point in line]
        ax.loglog(bounds, seconds, "o-", color="#08519c", label="Nyström of this rank: its norm bound")
        traces = [point["trace"] for point in line]
        ax.loglog(traces, seconds, "s:", color="#e69f00", label="the same fits: the trace, a wider bound")
        for point in line:
            # The smallest rank is at the lower end of the line.
            ax.annotate(
                f"{point['rank']}",
                (point["error"], point["seconds"]),
                xytext=(0, -12) if point is line[0] else (-6, -3),
                textcoords="offset points",
                ha="center" if point is line[0] else "right",
                fontsize=7,
            )
        for point in here:
            if point["method"] == "exact" and point["error"]:
                ax.loglog(
                    point["error"], point["seconds"], "*", color="#6a51a3", markersize=12, label="exact: its residuals"
                )
        peers = [
            f"{p['method'].replace('sklearn', 'scikit-learn')}: "
            + (f"{p['seconds']:.3g} s" if p["seconds"] else p["why"])
            for p in here
            if p["method"] in PEERS
        ]
        ax.set_title(f"{n:,} rows".replace(",", " ") + "\n" + "\n".join(peers), fontsize=8)
        ax.set_xlabel("bound on the error of eigenvalues, over λ₁")
        ax.grid(alpha=0.3)
    figure.axes[0].set_ylabel("seconds of a fit and its bound")
    figure.suptitle("Kernel PCA: time against certified error, better to the left and below", fontsize=10)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(PICTURE, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--largest", type=int, default=max(EXACT), help="rows of the largest fits")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        within_memory()
        try:
            print(json.dumps(measured(json.loads(options.point))))
        except MemoryError:
            print(json.dumps({"seconds": None, "error": None, "why": OUT_OF_MEMORY}))
        return
    from benchmarks.machine import machine

    record = json.loads(options.record.read_text()) if options.record.exists() else {"machine": machine(), "points": []}
    known = {(p["n"], p["method"], p["rank"]) for p in record["points"]}
    for point in points():
        if point["n"] <= options.largest and tuple(point.values()) not in known:
            print(point, flush=True)
            record["points"].append(point | in_a_process(point))
            options.record.write_text(json.dumps(record, indent=1, ensure_ascii=False))
            print(record["points"][-1], flush=True)
    if MILLION.exists() and not any(p["n"] == max(EXACT) and p["method"] == "exact" for p in record["points"]):
        facts = json.loads(MILLION.read_text())
        found = {"seconds": facts["seconds"], "error": max(facts["relative_residuals"]), "passes": facts["passes"]}
        record["points"].append({"n": max(EXACT), "method": "exact", "rank": 0} | found)
        options.record.write_text(json.dumps(record, indent=1, ensure_ascii=False))
    draw(record["points"])
    publish()


if __name__ == "__main__":
    main()
