"""What a checkpoint costs: the same fit with one and without, in turn; wall seconds, and those of all CPUs.

Run alone on an idle machine: ``python -m pytest benchmarks/bench_checkpoint.py --large -s``.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.datasets import load, why_absent
from gpukpca import KernelPCA

N, COMPONENTS, ROUNDS = 20_000, 10, 5
# Data, features, dtype; clouds with the width of USPS, and MNIST.
PROBLEMS = [("clusters", 256, "float64"), ("clusters", 256, "float32"), ("mnist", 784, "float64")]
PROBLEMS += [("mnist", 784, "float32")]


@pytest.mark.large
@pytest.mark.parametrize(("data", "d", "dtype"), PROBLEMS)
def test_checkpoint(benchmark: Any, tmp_path: Path, data: str, d: int, dtype: str) -> None:
    if reason := why_absent(data):
        pytest.skip(reason)
    X = load(data, N, d, dtype)
    taken: dict[bool, list[tuple[float, float]]] = {False: [], True: []}

    def both() -> None:
        """The one that came last comes first in the next round."""
        for saves in (False, True) if len(taken[True]) % 2 else (True, False):
            folder = tmp_path / str(len(taken[True])) if saves else None
            model = KernelPCA(COMPONENTS, kernel="rbf", gamma="scale", random_state=0, copy_X=False, checkpoint=folder)
            wall, cpu = time.perf_counter(), time.process_time()
            model.fit(X)
            taken[saves].append((time.perf_counter() - wall, time.process_time() - cpu))
        benchmark.extra_info["passes"] = model.n_passes_

    benchmark.pedantic(both, rounds=ROUNDS, warmup_rounds=1)
    words = []
    for kind, name in enumerate(("wall", "cpu")):
        plain, saved = (median(run[kind] for run in taken[saves][1:]) for saves in (False, True))
        pairs = [b[kind] / a[kind] for a, b in zip(taken[False][1:], taken[True][1:], strict=True)]
        words.append(f"{name} {plain:.2f} s, with a checkpoint {saved:.2f} s, median of the ratios {median(pairs):.3f}")
        benchmark.extra_info[f"{name} ratio"] = median(pairs)
    print(f"\n{data} {N} x {d}, {dtype}, {benchmark.extra_info['passes']} passes: {'; '.join(words)}")
