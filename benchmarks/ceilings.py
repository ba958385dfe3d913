"""Rates of a card: ``python -m benchmarks.ceilings [--quick]`` prints them.

Rates of single operations, measured in the same record as the figures that are judged by them. Bytes are those that an
operation must read and write, operations those of its arithmetic; GB and TFLOP are powers of ten.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from benchmarks.places import Cupy, Host, on_host, seconds_each

Ceilings = dict[str, dict[str, Any]]

# The relative error of a float32 product of random numbers is a few 1e-6 at these sizes; of one in TF32 some 1e-4.
WITHOUT_TF32 = 5e-5
UNITS = {"GB/s": 1e9, "TFLOP/s": 1e12}


@dataclass(frozen=True)
class Sizes:
    """Bytes or rows of the arrays: large beside caches, and beside the time of a launch and a wait."""

    copy: int = 4 * 2**30
    edge: int = 8192  # of square products
    tile: int = 8192  # edge of a tile of K
    runs: int = 7

    def within(self, free: int) -> Sizes:
        """Return the same or smaller sizes, so that no measurement takes more than half of `free` bytes."""
        sizes = self
        while sizes.copy >= 2**20 and 4 * max(sizes.copy, 12 * sizes.edge**2) > free:
            edges = {name: max(256, getattr(sizes, name) // 2) for name in ("edge", "tile")}
            sizes = replace(sizes, copy=sizes.copy // 2, **edges)
        return sizes


QUICK_CARD = Sizes(copy=2**28, edge=2048, tile=2048, runs=3)


def measured(place: Host, sizes: Sizes) -> Ceilings:
    """Return name -> {what, value, unit, seconds, spread, runs}: rates of the fastest run, medians of the seconds.

    A failure is reported on the standard error, and the others are measured: a record may lack some.
    """
    found: Ceilings = {}
    for measure in (_elementwise, _products):
        try:
            found |= measure(place, sizes)
        except Exception as error:
            print(f"{measure.__name__.strip('_')}: {type(error).__name__}: {error}", file=sys.stderr)
        place.release()
    return found


def rate(ceilings: Ceilings, name: str) -> float:
    """Return bytes or operations a second."""
    return ceilings[name]["value"] * UNITS[ceilings[name]["unit"]]


# -- measurements ------------------------------------------------------------------------------------------------------


def _elementwise(place: Host, sizes: Sizes) -> Ceilings:
    """Measure copies in memory, copies of tiles, and exponentials of tiles."""
    tile = 4 * sizes.tile**2
    cases = (
        ("copy", sizes.copy, "float32"),
        ("tile copy", tile, "float32"),
        ("exp float32", tile, "float32"),
        ("exp float64", 2 * tile, "float64"),
    )
    found: Ceilings = {}
    for name, size, dtype in cases:
        source = filled(place, size // np.dtype(dtype).itemsize, dtype)
        xp, target = array_namespace(source), array_namespace(source).empty_like(source)
        run = partial(xp.copyto, target, source) if "copy" in name else partial(xp.exp, source, out=target)
        seconds = seconds_each(run, place, runs=sizes.runs)
        found[name] = row(f"{name}, {size / 2**20:.3g} MiB, bytes read and written", 2 * size, "GB/s", seconds)
    return found


def _products(place: Host, sizes: Sizes) -> Ceilings:
    """Measure large products of both types; raise where float32 products are rounded to TF32."""
    edge, found = sizes.edge, {}
    rng = np.random.default_rng(0)
    host = [rng.standard_normal((edge, edge), dtype=np.float32) for _ in range(2)]
    for dtype, name in (("float32", "sgemm"), ("float64", "dgemm")):
        A, B = (place.put(M.astype(dtype)) for M in host)
        xp, C = array_namespace(A), array_namespace(A).empty_like(A)
        seconds = seconds_each(partial(xp.matmul, A, B, out=C), place, runs=sizes.runs)
        found[name] = row(f"{name.upper()} {edge} × {edge} × {edge}", 2 * edge**3, "TFLOP/s", seconds)
        if name == "sgemm":
            exact = host[0][:8].astype(np.float64) @ host[1].astype(np.float64)
            wrong = np.linalg.norm(on_host(C[:8, :]) - exact) / np.linalg.norm(exact)
            if not wrong < WITHOUT_TF32:
                raise RuntimeError(f"a float32 product has a relative error of {wrong:.1e}: is TF32 on?")
            found[name]["relative_error"] = float(wrong)
    return found


# -- pieces ------------------------------------------------------------------------------------------------------------


def filled(place: Host, count: int, dtype: str = "float32") -> Any:
    """Return numbers in (-1, 0), random: zeros can be faster than real data."""
    piece = place.put(-np.random.default_rng(0).random(min(count, 2**22)).astype(dtype))
    whole = array_namespace(piece).empty((count,), dtype=piece.dtype)
    for start in range(0, count, len(piece)):
        part = whole[start : start + len(piece)]
        part[...] = piece[: len(part)]
    return whole


def row(what: str, amount: int, unit: str, seconds: list[float]) -> dict[str, Any]:
    """Return one row of the record, with an amount of bytes or operations for each of the seconds."""
    middle = median(seconds)
    figures = {"value": amount / min(seconds) / UNITS[unit], "seconds": middle}
    figures["spread"] = (max(seconds) - min(seconds)) / middle
    rounded = {name: float(f"{figure:.4g}") for name, figure in figures.items()}
    return {"what": what, "unit": unit, "runs": len(seconds)} | rounded


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ceilings", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller arrays")
    options = parser.parse_args()
    from gpukpca.cuda.device import probe

    works, reason = probe()
    if not works:
        sys.exit(f"No CUDA device that CuPy can use: {reason}.")
    import cupy

    sizes = (QUICK_CARD if options.quick else Sizes()).within(int(cupy.cuda.runtime.memGetInfo()[0]))
    print(json.dumps(measured(Cupy(), sizes)))


if __name__ == "__main__":
    main()
