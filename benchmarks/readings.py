"""What a machine did during a fit: CPU time of others, stolen and throttled time, and the time of a canary."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import numpy as np

# Shares of the time of the processors that a fit has, above which it is discarded; of the canary the distance from its
# median.
MOST_FOREIGN, MOST_STOLEN, MOST_THROTTLED, MOST_OFF = 0.03, 0.01, 0.01, 0.1
# Counters of CPU time are in units of a hundredth of a second: no share is known better than its sum of roundings.
UNSURE_SECONDS = 0.02
PROC = Path("/proc")
THROTTLED = {"cpu.stat": ("throttled_usec", 1e-6), "cpu/cpu.stat": ("throttled_time", 1e-9)}
# Three square matrices in the second cache of a core, and a copy of 64 MB.
EDGE, PRODUCTS, COPIED_ITEMS = 160, 40, 2**23

Counters = dict[str, float]


def counters(pid: int, cpus: Sequence[int] = (), root: Path = PROC, groups: Path = Path("/sys/fs/cgroup")) -> Counters:
    """Return seconds of these processors, or of all, and of a process with its children, as far as they are counted."""
    found = {"wall": time.perf_counter()}
    with suppress(OSError, ValueError, KeyError):
        tick = 1.0 / os.sysconf("SC_CLK_TCK")
        rows = [line.split() for line in (root / "stat").read_text().splitlines() if line.startswith("cpu")]
        lines = {name: list(map(int, ticks)) for name, *ticks in rows}
        # Of user, nice, system, idle, waiting, irq, softirq and stolen.
        busy = {name: sum(ticks[:3]) + sum(ticks[5:7]) for name, ticks in lines.items()}
        names = [f"cpu{cpu}" for cpu in cpus] or ["cpu"]
        own = (root / str(pid) / "stat").read_text().rpartition(")")[2].split()[11:15]
        ticks = {"busy": sum(busy[name] for name in names), "stolen": sum(lines[name][7] for name in names)}
        ticks |= {"own": sum(map(int, own)), "elsewhere": busy["cpu"] - ticks["busy"]}
        found |= {name: tick * count for name, count in ticks.items()}
    with suppress(OSError, IndexError):
        found["pressure"] = 1e-6 * int((root / "pressure" / "cpu").read_text().split("total=")[1].split()[0])
    for file, (name, unit) in THROTTLED.items():
        with suppress(OSError, ValueError):
            lines = dict(line.split() for line in (groups / file).read_text().splitlines())
            found["throttled"] = unit * int(lines.get(name, 0))
    return found if "busy" in found else found | counters_of_psutil(pid)


def counters_of_psutil(pid: int) -> Counters:
    """Return the same from psutil, where it is installed: other systems than Linux have no such files."""
    try:
        import psutil
    except ModuleNotFoundError:
        return {}
    every, process = psutil.cpu_times(), psutil.Process(pid)
    own = sum(sum(one.cpu_times()[:2]) for one in (process, *process.children(recursive=True)))
    return {"busy": every.user + every.system, "stolen": getattr(every, "steal", 0.0), "own": own}


def between(before: Counters, after: Counters, cpus: int) -> dict[str, float]:
    """Return shares of the time between two readings of so many processors, and the CPU seconds of the process.

    Pressure, throttling and the processors that were busy elsewhere are shares of the wall time.
    """
    took = {name: after[name] - before[name] for name in before.keys() & after.keys()}
    wall = max(took.pop("wall"), 1e-9)
    found = {f"{name}_share": took[name] / wall for name in ("pressure", "throttled", "elsewhere") if name in took}
    if "busy" in took:
        for name, seconds in (("foreign", took["busy"] - took["own"]), ("stolen", took["stolen"])):
            found[f"{name}_share"] = max(0.0, seconds - UNSURE_SECONDS) / (cpus * wall)
        found["cpu_s"] = took["own"]
    return {name: round(value, 4) for name, value in found.items()}


def why_discarded(reading: dict[str, float], canaries: list[float]) -> str:
    """Return why a fit with these readings does not count, or nothing."""
    off = reading["canary"] / median(canaries) - 1.0
    for name, most in (("foreign", MOST_FOREIGN), ("stolen", MOST_STOLEN), ("throttled", MOST_THROTTLED)):
        if (share := reading.get(f"{name}_share", 0.0)) > most:
            return f"{name} {share:.0%}"
    return f"canary {off:+.0%}" if abs(off) > MOST_OFF else ""


class Canary:
    """The same work of 20 ms before every fit: products within a cache, and a copy within memory."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.matrix, self.product = rng.random((EDGE, EDGE)), np.empty((EDGE, EDGE))
        self.source, self.target = np.ones(COPIED_ITEMS), np.ones(COPIED_ITEMS)

    def seconds(self) -> float:
        """Return the seconds of the work, on one thread."""
        from gpukpca.backend.parallel import single_threaded_blas

        start = time.perf_counter()
        with single_threaded_blas():
            for _ in range(PRODUCTS):
                np.matmul(self.matrix, self.matrix, out=self.product)
        np.copyto(self.target, self.source)
        return time.perf_counter() - start
