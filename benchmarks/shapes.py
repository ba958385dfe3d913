"""Time the shapes on which a fit on a card spends its time, a line each: ``python -m benchmarks.shapes [--quick]``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from benchmarks import tensor_cores
from benchmarks.first_contact import finish
from benchmarks.places import Cupy, Host, seconds_each
from benchmarks.report import duration

N, N_QUICK, D, BLOCK, COMPONENTS = 100_000, 1500, 100, 64, 10
# Copies of the rows that are uploaded together: more than 1 GB, and with --quick still more than one part.
UPLOADED = 30


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shapes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{N_QUICK} rows in place of {N}")
    n = N_QUICK if parser.parse_args().quick else N
    failed = timed(Cupy(), tensor_cores.products(n, D, BLOCK))
    finish(0, failed + timed(Cupy(), shapes(Cupy(), n)))


def timed(place: Host, runs: dict[str, Callable[[], Any]]) -> int:
    """Print the median seconds of each shape; return how many failed, which say so, too."""
    failed = 0
    for name, run in runs.items():
        try:
            text = duration(median(seconds_each(run, place, runs=3)))
        except Exception as error:
            text, failed = f"{type(error).__name__}: {error}", failed + 1
        print(f"{name:60s} {text}", flush=True)
        place.release()
    return failed


def shapes(place: Host, n: int) -> dict[str, Callable[[], Any]]:
    """Return the timed functions by name; float32 data of n rows, float64 where the name says so.

    "plain" is the call of the device's library; "gpukpca" is this library's own code for the same.
    """
    from gpukpca import KernelPCA, Nystrom
    from gpukpca.backend.device import placed_rows
    from gpukpca.backend.linalg import all_eigenpairs, inner_products
    from gpukpca.gram import CenteredGram
    from gpukpca.kernels import RBF, Laplacian

    host = np.random.default_rng(0).standard_normal((n, D), dtype=np.float32)
    large = np.tile(host, (UPLOADED, 1))
    X, V = place.put(host), place.put(host[:, :BLOCK].copy())
    xp, settings = array_namespace(X), {"kernel": "rbf", "gamma": 1.0 / D, "random_state": 0, "tol": 1e-5}
    W, symmetric = xp.astype(V, xp.float64), {m: X[:m, :] @ X[:m, :].T for m in (n // 100, n // 25)}
    fresh = CenteredGram.of_kernel(RBF(1.0 / D), X, cached_tiles=0).base
    cached = CenteredGram.of_kernel(RBF(1.0 / D), X).base
    laplacian = CenteredGram.of_kernel(Laplacian(1.0 / D), X, cached_tiles=0).base
    return {
        f"pass, {n} rows, {BLOCK} columns, nothing cached": lambda: fresh @ V,
        f"pass, {n} rows, {BLOCK} columns, Laplacian kernel": lambda: laplacian @ V,
        f"product Vᵀ V in float64, {n} rows, {BLOCK} columns, plain": lambda: W.T @ W,
        f"product Vᵀ V in float64, {n} rows, {BLOCK} columns, gpukpca": lambda: inner_products(W, W),
        **{f"full eigenproblem, {m} rows, plain": (lambda K=K: xp.linalg.eigh(K)) for m, K in symmetric.items()},
        **{
            f"full eigenproblem, {m} rows, gpukpca": (lambda K=K: all_eigenpairs(K.copy()))
            for m, K in symmetric.items()
        },
        **{
            f"whole fit, {m} rows": (lambda m=m: KernelPCA(COMPONENTS, **settings).fit_transform(X[:m, :]))
            for m in (n // 100, n // 25, n)
        },
        f"whole fit, {n} rows, NumPy in": lambda: KernelPCA(COMPONENTS, **settings, device="cuda").fit_transform(host),
        f"Nyström, {n} rows, rank {n // 100}": lambda: KernelPCA(
            COMPONENTS, **settings | {"tol": 0}, eigen_solver=Nystrom(rank=n // 100)
        ).fit_transform(X),
        f"upload of {len(large)} rows, plain": lambda: place.put(large),
        f"upload of {len(large)} rows, gpukpca": lambda: placed_rows(large, X[:0, :]),
        # Last, because the tiles stay on the card.
        f"pass, {n} rows, {BLOCK} columns, tiles cached where they fit": lambda: cached @ V,
    }


if __name__ == "__main__":
    main()
