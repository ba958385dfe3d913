"""Rates of a card: ``python -m benchmarks.ceilings [--quick]`` prints them as JSON.

Rates of single operations, measured in the same record as the figures that are judged by them. Bytes are those that an
operation must read and write, operations those of its arithmetic; GB and TFLOP are powers of ten.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from benchmarks.places import Cupy, Host, on_host, seconds_each

Rows = dict[str, dict[str, Any]]

# Features of the tile shapes; the library's rows have two more columns, for the norms.
TILE_COLUMNS = tuple(sorted(d + more for d in (16, 100, 784) for more in (0, 2)))
NAMES = (
    *("copy", "sgemm", "dgemm"),
    *(f"tile {d}" for d in TILE_COLUMNS),
    *("tile times block", "transposed tile times block", "exp", "to device", "to host", "launch"),
)
# The relative error of a float32 product of random numbers is a few 1e-6 at these sizes; of one in TF32 some 1e-4.
WITHOUT_TF32 = 5e-5
UNITS = {"GB/s": 1e9, "TFLOP/s": 1e12, "a second": 1.0}


@dataclass(frozen=True)
class Sizes:
    """Bytes or rows of the arrays: large beside caches, and beside the time of a launch and a wait."""

    copy: int = 4 * 2**30
    transfer: int = 2**30
    exponentials: int = 2**30
    edge: int = 8192
    block: int = 64
    runs: int = 7

    def within(self, free: int) -> Sizes:
        """Return the same or smaller sizes, so that no measurement takes more than half of `free` bytes."""
        sizes = self
        while sizes.copy >= 2**20 and 4 * max(sizes.copy, 12 * sizes.edge**2) > free:
            halves = {name: getattr(sizes, name) // 2 for name in ("copy", "transfer", "exponentials")}
            sizes = replace(sizes, edge=max(256, sizes.edge // 2), **halves)
        return sizes


QUICK = Sizes(copy=2**28, transfer=2**26, exponentials=2**26, edge=2048, runs=3)


def measured(place: Host, sizes: Sizes) -> Rows:
    """Return name -> {what, value, unit, seconds, spread, runs}; seconds are medians of one operation.

    A failure is reported on the standard error, and the others are measured: a record may lack some.
    """
    found: Rows = {}
    for measure in (_copy, _products, _tiles, _exponentials, _transfers, _launch):
        try:
            found |= measure(place, sizes)
        except Exception as error:
            print(f"{measure.__name__.strip('_')}: {type(error).__name__}: {error}", file=sys.stderr)
        place.release()
    return found


def rate(ceilings: Rows, name: str) -> float:
    """Return bytes or operations a second."""
    return ceilings[name]["value"] * UNITS[ceilings[name]["unit"]]


# -- measurements ------------------------------------------------------------------------------------------------------


def _copy(place: Host, sizes: Sizes) -> Rows:
    source = filled(place, sizes.copy // 4)
    xp = array_namespace(source)
    target = xp.empty_like(source)
    seconds = seconds_each(lambda: xp.copyto(target, source), place, runs=sizes.runs)
    what = f"copy on the device, {sizes.copy / 2**30:.3g} GiB, bytes read and written"
    return {"copy": row(what, 2 * sizes.copy, "GB/s", seconds)}


def _products(place: Host, sizes: Sizes) -> Rows:
    """Measure large products of both types; raise where float32 products are rounded to TF32."""
    edge, found = sizes.edge, {}
    rng = np.random.default_rng(0)
    host = [rng.standard_normal((edge, edge), dtype=np.float32) for _ in range(2)]
    for dtype, name in (("float32", "sgemm"), ("float64", "dgemm")):
        A, B = (place.put(M.astype(dtype)) for M in host)
        C = array_namespace(A).empty_like(A)
        found[name] = product_row(place, A, B, C, f"{name.upper()} {edge} × {edge} × {edge}", sizes)
        if name == "sgemm":
            exact = host[0][:8].astype(np.float64) @ host[1].astype(np.float64)
            wrong = np.linalg.norm(on_host(C[:8, :]) - exact) / np.linalg.norm(exact)
            if not wrong < WITHOUT_TF32:
                raise RuntimeError(f"a float32 product has a relative error of {wrong:.1e}: is TF32 on?")
            found[name]["relative_error"] = float(wrong)
    return found


def _tiles(place: Host, sizes: Sizes) -> Rows:
    """Measure X Yᵀ for d features, with and without the columns of norms, and tile and tileᵀ times block."""
    edge, b = sizes.edge, sizes.block
    T = filled(place, edge * edge).reshape(edge, edge)
    xp, found = array_namespace(T), {}
    for d in TILE_COLUMNS:
        X, Y = (filled(place, edge * d).reshape(edge, d) for _ in range(2))
        made = product_row(place, X, Y.T, xp.empty_like(T), f"SGEMM {edge} × {d} × {edge}", sizes)
        found[f"tile {d}"] = made | {"edge": edge}
    V = filled(place, edge * b).reshape(edge, b)
    out = xp.empty_like(V)
    for name, left in (("tile times block", T), ("transposed tile times block", T.T)):
        found[name] = product_row(place, left, V, out, f"{name}, SGEMM {edge} × {edge} × {b}", sizes)
    return found


def _exponentials(place: Host, sizes: Sizes) -> Rows:
    source = filled(place, sizes.exponentials // 4)
    xp = array_namespace(source)
    T = xp.empty_like(source)

    def before() -> None:  # exponentials of exponentials would overflow
        xp.copyto(T, source)

    seconds = seconds_each(lambda: xp.exp(T, out=T), place, before=before, runs=sizes.runs)
    what = f"exp in place, float32, {sizes.exponentials / 2**30:.3g} GiB, bytes read and written"
    return {"exp": row(what, 2 * sizes.exponentials, "GB/s", seconds)}


def _transfers(place: Host, sizes: Sizes) -> Rows:
    host = np.random.default_rng(0).random(sizes.transfer // 4, dtype=np.float32)
    device = place.put(host.copy())
    back = np.zeros_like(host)  # touched, so that no page is allocated while the clock runs
    size = f"{sizes.transfer / 2**30:.3g} GiB, pageable"
    up = seconds_each(lambda: place.upload(device, host), place, runs=sizes.runs)
    down = seconds_each(lambda: place.download(back, device), place, runs=sizes.runs)
    return {
        "to device": row(f"host to device, {size}", sizes.transfer, "GB/s", up),
        "to host": row(f"device to host, {size}", sizes.transfer, "GB/s", down),
    }


def _launch(place: Host, sizes: Sizes) -> Rows:
    """Measure one operation and a wait for it: no small problem is solved in less."""
    T = filled(place, 1024)
    xp = array_namespace(T)
    seconds = seconds_each(lambda: (xp.multiply(T, 1.0, out=T), place.wait()), place, runs=sizes.runs)
    return {"launch": row("an operation on 4 KiB, and waiting for it", 1, "a second", seconds)}


# -- pieces ------------------------------------------------------------------------------------------------------------


def filled(place: Host, count: int) -> Any:
    """Return float32 numbers in (-1, 0), random: zeros can be faster than real data."""
    piece = place.put(-np.random.default_rng(0).random(min(count, 2**22), dtype=np.float32))
    whole = array_namespace(piece).empty((count,), dtype=piece.dtype)
    for start in range(0, count, len(piece)):
        part = whole[start : start + len(piece)]
        part[...] = piece[: len(part)]
    return whole


def product_row(place: Host, A: Any, B: Any, out: Any, what: str, sizes: Sizes) -> dict[str, Any]:
    """Return the row of ``out = A @ B``."""
    xp = array_namespace(A)
    seconds = seconds_each(lambda: xp.matmul(A, B, out=out), place, runs=sizes.runs)
    return row(what, 2 * A.shape[0] * A.shape[1] * B.shape[1], "TFLOP/s", seconds)


def row(what: str, amount: int, unit: str, seconds: list[float]) -> dict[str, Any]:
    """Return one row of the record, with an amount of bytes or operations for each of the seconds."""
    middle = median(seconds)
    figures = {"value": amount / middle / UNITS[unit], "seconds": middle}
    figures["spread"] = (max(seconds) - min(seconds)) / middle
    rounded = {name: float(f"{figure:.4g}") for name, figure in figures.items()}
    return {"what": what, "unit": unit, "runs": len(seconds)} | rounded


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ceilings", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller arrays, fewer runs")
    options = parser.parse_args()
    from gpukpca.cuda.device import probe

    works, reason = probe()
    if not works:
        sys.exit(f"No CUDA device that CuPy can use: {reason}.")
    import cupy

    sizes = (QUICK if options.quick else Sizes()).within(int(cupy.cuda.runtime.memGetInfo()[0]))
    print(json.dumps(measured(Cupy(), sizes)))


if __name__ == "__main__":
    main()
