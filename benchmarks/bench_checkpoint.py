"""The cost of a checkpoint after every pass: the same fit with and without, in turn; seconds of wall and CPUs.

Run alone on an idle machine: ``python -m pytest benchmarks/bench_checkpoint.py --large``.
"""

from __future__ import annotations

import tempfile
import time
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.contest import alternate, clock, replay
from benchmarks.datasets import load, why_absent
from gpukpca import Checkpoint, KernelPCA

N, COMPONENTS, ROUNDS = 20_000, 10, 5
# Data, features, dtype; clouds with the width of USPS, and MNIST.
PROBLEMS = {
    f"checkpoint-{data}-{dtype}": (data, d, dtype)
    for data, d in (("clusters", 256), ("mnist", 784))
    for dtype in ("float64", "float32")
}
SETTINGS = {"kernel": "rbf", "gamma": "scale", "random_state": 0, "copy_X": False}
CONTESTANTS = ("plain", "checkpoint")

pytestmark = [pytest.mark.large, pytest.mark.benchmark(timer=clock.read)]


@cache
def taken(data: str, d: int, dtype: str) -> dict[str, list[tuple[float, float]]]:
    """Return the seconds of both, on the wall and of all CPUs, after a round that warms up."""
    X = load(data, N, d, dtype)

    def seconds(name: str) -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = Checkpoint(Path(folder) / "fit", interval=0) if name == "checkpoint" else None
            model = KernelPCA(COMPONENTS, **SETTINGS, checkpoint=checkpoint)
            wall, cpu = time.perf_counter(), time.process_time()
            model.fit(X)
            return time.perf_counter() - wall, time.process_time() - cpu

    return {name: rounds[1:] for name, rounds in alternate(CONTESTANTS, seconds, ROUNDS + 1).items()}


@pytest.mark.parametrize("contestant", CONTESTANTS)
@pytest.mark.parametrize("case", PROBLEMS)
def test_checkpoint(benchmark: Any, case: str, contestant: str) -> None:
    data, d, dtype = PROBLEMS[case]
    if reason := why_absent(data):
        pytest.skip(reason)
    both = taken(data, d, dtype)
    benchmark.group = case
    for kind, name in enumerate(("wall", "cpu")):
        pairs = zip(both[contestant], both["plain"], strict=True)
        benchmark.extra_info[f"{name} ratio"] = median(mine[kind] / plain[kind] for mine, plain in pairs)
    replay(benchmark, [wall for wall, _ in both[contestant]])
