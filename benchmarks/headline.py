"""Exact kernel PCA where K fits nowhere: ``python -m benchmarks.headline mnist`` or ``... million``, one fit each.

`mnist` fits all 70 000 digits within 1 GiB, where K takes 19.6 GB. `million` fits 10⁶ rows within 12 GiB, where K takes
4 TB: landmarks, then two exact passes, with the residuals of K. Both write a record. The passes have a checkpoint, from
which the same command goes on after an interrupt.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import path_of
from benchmarks.machine import machine
from gpukpca import KernelPCA
from gpukpca.eigen import BlockKrylov, Nystrom
from gpukpca.kernels import RBF

# Columns of a pass that BLAS multiplies fastest for few components; a quarter of them is random.
BLOCK, OF_LANDMARKS = 16, 12


def digits(n: int) -> np.ndarray:
    """Return the first n of the 70 000 digits, shape (n, 784), float32 in [0, 1]."""
    with np.load(path_of("mnist")) as archive:
        squares = np.concatenate([archive["x_train"], archive["x_test"]])
    return squares[:n].reshape(-1, 784).astype(np.float32) / 255


def generated(n: int) -> np.ndarray:
    """Return normal rows of 20 columns, shape (n, 20), float32, each column 0.8 times as wide as the one before."""
    scales = (0.8 ** np.arange(20)).astype(np.float32)
    return np.random.default_rng(0).standard_normal((n, 20), dtype=np.float32) * scales


def mnist(X: np.ndarray, limit: str, passes: int | None) -> KernelPCA:
    """Return the model of ten components, planned by the library but for the passes."""
    return KernelPCA(10, kernel=RBF("scale"), memory_limit=limit, iterated_power=passes or "auto")


def million(X: np.ndarray, limit: str, passes: int | None) -> KernelPCA:
    """Return the model of five components whose passes start from Nyström's scores."""
    near = KernelPCA(OF_LANDMARKS, kernel=RBF(0.05), eigen_solver=Nystrom(rank=500), memory_limit=limit, random_state=0)
    # A function, which a fit that resumes does not call.
    solver = BlockKrylov(start=lambda: near.fit_transform(X), block_size=BLOCK, passes=passes)
    return KernelPCA(5, kernel=RBF(0.05), eigen_solver=solver, memory_limit=limit)


# The model, the rows, how many, the memory limit, and the passes; None: as many as the residuals need, three at least.
CASES = {"mnist": (mnist, digits, 70_000, "1GiB", None), "million": (million, generated, 1_000_000, "12GiB", 2)}


def main() -> None:
    """Fit a case, print its figures, and write its record."""
    parser = argparse.ArgumentParser(description="Exact kernel PCA where K fits nowhere.")
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--rows", type=int, help="fewer rows, to try the command")
    parser.add_argument("--memory-limit", help="in place of that of the case")
    parser.add_argument("--passes", type=int, help="in place of those of the case; 0: as many as the residuals need")
    parser.add_argument("--folder", type=Path, default=Path(".benchmarks"), help="of the record and the checkpoint")
    options = parser.parse_args()
    model_of, rows_of, n, limit, passes = CASES[options.case]
    n, name = options.rows or n, f"headline-{options.case}-{options.rows or n}"
    if options.case == "mnist" and not path_of("mnist").exists():
        sys.exit(f"{path_of('mnist')} does not exist: set GPUKPCA_DATA to the folder that holds mnist/mnist.npz.")
    options.folder.mkdir(parents=True, exist_ok=True)
    X, passes = rows_of(n), passes if options.passes is None else options.passes or None
    model = model_of(X, options.memory_limit or limit, passes)
    model.set_params(checkpoint=options.folder / name, random_state=0, verbose=1)
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(X)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    largest = float(model.eigenvalues_[0])
    facts: dict[str, Any] = {
        "case": name,
        "seconds": round(wall, 1),  # of this run: a fit that was resumed took more
        "cpu_seconds": round(cpu, 1),
        "planned_seconds": model.plan_.estimated_seconds,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "bytes_of_K": n * n * X.itemsize,
        "passes": int(model.n_passes_),
        "eigenvalues": np.asarray(model.eigenvalues_, dtype=float).tolist(),
        "relative_residuals": (np.asarray(model.residual_norms_, dtype=float) / largest).tolist(),
        "plan": str(model.plan_).splitlines(),
        "machine": machine(),
    }
    (record := options.folder / f"{name}.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    worst, peak = max(facts["relative_residuals"]), facts["peak_bytes"] / 2**30
    print(
        f"{name}: {wall:.0f} s, {cpu:.0f} CPU s, {facts['passes']} passes, residuals at most {worst:.1e} of the largest"
    )
    print(f"eigenvalue; {peak:.1f} GiB at the peak of the process. {record}")


if __name__ == "__main__":
    main()
