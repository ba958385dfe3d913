"""Alternating rounds of all contestants, medians, accuracy after the clock has stopped."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pytest
import scipy
import sklearn

from gpukpca.backend.tiles import blas_threads, usable_cpus


@pytest.fixture(scope="session", autouse=True)
def machine() -> dict[str, Any]:
    """What the figures were measured on; quote ratios, not seconds."""
    about = {
        "processor": platform.processor() or platform.machine(),
        "cpus": usable_cpus(),
        "blas_threads": blas_threads(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }
    print("\n" + ", ".join(f"{key} {value}" for key, value in about.items()))
    return about


@pytest.fixture
def alternate(benchmark: Any, machine: dict[str, Any]) -> Callable[..., dict[str, float]]:
    """``alternate({name: run}, rounds)``: medians in seconds; recorded in the benchmark's JSON."""

    def measure(contestants: dict[str, Callable[[], Any]], rounds: int = 3) -> dict[str, float]:
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(rounds):
            for name, run in contestants.items():
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
        medians = {name: median(values) for name, values in times.items()}
        first = next(iter(contestants))
        benchmark.extra_info.update(
            {"machine": machine, "medians": medians, "ratios": {n: t / medians[first] for n, t in medians.items()}}
        )
        benchmark.pedantic(contestants[first], rounds=1)  # so that the JSON of pytest-benchmark has an entry
        for name, seconds in medians.items():
            print(f"  {name:30s} {seconds:8.3f} s   {seconds / medians[first]:6.2f} x")
        return medians

    return measure
