"""Kernel PCA beside scikit-learn, both sides in one run.

MNIST is measured with "scale"'s gamma, 1 / (d Var(X)). Accuracy is asserted, speed is only recorded.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

from benchmarks.datasets import gaussian, mnist
from benchmarks.peers import PEERS, largest_residual

TOLERANCE = {"float32": 1e-5, "float64": 1e-8}


def compare(alternate: Any, X: np.ndarray, p: int, gamma: float, names: list[str], rounds: int = 3) -> dict[str, float]:
    """Fit with every named contestant, then show and return the residual of each one's answer."""
    tol = TOLERANCE[str(X.dtype)]
    models: dict[str, Any] = {}

    def runner(name: str) -> Any:
        def run() -> None:
            models[name] = PEERS[name](p, gamma, tol).fit(X)

        return run

    alternate({name: runner(name) for name in names}, rounds)
    residuals = {name: largest_residual(models[name], X, gamma) for name in names}
    for name, residual in residuals.items():
        print(f"  {name:30s} residual {residual:.1e}")
    assert residuals["gpukpca"] <= 3 * tol
    return residuals


def scale_gamma(X: np.ndarray) -> float:
    return float(1.0 / (X.shape[1] * X.astype(np.float64).var()))


ITERATIVE = ["gpukpca", "sklearn arpack, matched", "sklearn arpack, default", "sklearn randomized, default"]


def test_mnist_10000_float32_ten_components(alternate: Any) -> None:
    X = mnist(10_000)
    compare(alternate, X, 10, scale_gamma(X), ITERATIVE)


def test_mnist_10000_float32_twenty_components_against_auto(alternate: Any) -> None:
    X = mnist(10_000)
    compare(alternate, X, 20, scale_gamma(X), ["gpukpca", "sklearn auto"], rounds=1)


def test_gaussian_10000_float64_ten_components(alternate: Any) -> None:
    X = gaussian(10_000, 50)
    compare(alternate, X, 10, 1.0 / 50, ITERATIVE)


@pytest.mark.parametrize("n", [200, 500, 2000])
def test_small(alternate: Any, n: int) -> None:
    X = gaussian(n, 20)
    compare(alternate, X, 5, 1.0 / 20, ["gpukpca", "sklearn auto", "sklearn arpack, matched"], rounds=9)


def test_mnist_20000_tiled_nothing_cached_peak_memory() -> None:
    """In processes of their own: 20 000 × 784 float32, K never stored, under 600 MB in all; same answer as cached."""
    mnist(1)  # skips where the data are absent
    script = """
        import sys, time
        from benchmarks.datasets import mnist
        from gpukpca.cli.report import peak_memory_mib
        from gpukpca.eigen import BlockKrylov, top_eigh
        from gpukpca.gram import CenteredGram, TiledGram
        from gpukpca.kernels import RBF
        op = TiledGram(RBF(gamma="scale"), mnist(20_000), cached_tiles=int(sys.argv[1]), centered=True)
        start = time.perf_counter()
        result = top_eigh(CenteredGram(op), 10, solver=BlockKrylov(), rng=0)
        seconds = time.perf_counter() - start
        print(peak_memory_mib() * 1.048576, seconds, result.n_passes, *result.eigenvalues)
    """
    nothing, everything = _run(script, "0"), _run(script, "1000000")
    for what, run in (("nothing cached", nothing), ("all cached", everything)):
        print(f"  {what:15s} {run[0]:5.0f} MB in all, {run[1]:.1f} s, {run[2]:.0f} passes")
    assert nothing[0] < 600
    np.testing.assert_allclose(nothing[3:], everything[3:], rtol=1e-5)


def _run(script: str, argument: str) -> list[float]:
    command = [sys.executable, "-c", textwrap.dedent(script), argument]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(word) for word in answer.stdout.split()]
