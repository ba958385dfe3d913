"""Rates of a machine: ``python -m benchmarks.ceilings [--card] [--quick]`` prints those of the host, or of the card.

Rates of single operations, measured in the same record as the figures that are judged by them. Bytes are those that an
operation must read and write, operations those of its arithmetic; GB and TFLOP are powers of ten. The host computes
with as many threads as BLAS has.
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
from gpukpca.backend.parallel import single_threaded_blas

Ceilings = dict[str, dict[str, Any]]

# Features of the tile shapes; the library's rows have two more columns, for the norms.
TILE_COLUMNS = tuple(sorted(d + more for d in (16, 100, 784) for more in (0, 2)))
# Features of narrow data, at which no product of BLAS reaches the rate of large ones, and rows of a panel.
NARROW, PANEL_ROWS = 100, 4096
HOST_NAMES = ("copy", "tile copy", "exp float32", "exp float64", "sgemm", "dgemm", f"scatter {NARROW}")
NAMES = (
    *HOST_NAMES,
    *(f"tile {d}" for d in TILE_COLUMNS),
    *("tile times block", "transposed tile times block"),
)
# The relative error of a float32 product of random numbers is a few 1e-6 at these sizes; of one in TF32 some 1e-4.
WITHOUT_TF32 = 5e-5
UNITS = {"GB/s": 1e9, "TFLOP/s": 1e12}


@dataclass(frozen=True)
class Sizes:
    """Bytes or rows of the arrays: large beside caches, and beside the time of a launch and a wait."""

    copy: int = 4 * 2**30
    edge: int = 8192  # of square products
    tile: int = 8192  # edge of a tile of K
    calls: int = 1  # on a tile without a pause
    block: int = 64
    runs: int = 7

    def within(self, free: int) -> Sizes:
        """Return the same or smaller sizes, so that no measurement takes more than half of `free` bytes."""
        sizes = self
        while sizes.copy >= 2**20 and 4 * max(sizes.copy, 12 * sizes.edge**2) > free:
            edges = {name: max(256, getattr(sizes, name) // 2) for name in ("edge", "tile")}
            sizes = replace(sizes, copy=sizes.copy // 2, **edges)
        return sizes


QUICK_CARD = Sizes(copy=2**28, edge=2048, tile=2048, runs=3)
# The tiles of the library are in a core's cache between their uses.
HOST = Sizes(copy=2**28, edge=3072, tile=640, calls=20, runs=5)
QUICK_HOST = replace(HOST, copy=2**27, edge=1024, calls=5, runs=3)
# Rates that differ more than this, as a share of the larger one, are those of a busy machine.
STEADY = 0.2


def measured(place: Host, sizes: Sizes) -> Ceilings:
    """Return name -> {what, value, unit, seconds, spread, runs}: rates of the fastest run, medians of the seconds.

    A failure is reported on the standard error, and the others are measured: a record may lack some.
    """
    found: Ceilings = {}
    for measure in (_elementwise, _products, _scatter, *[_tiles] * place.on_device):
        try:
            found |= measure(place, sizes)
        except Exception as error:
            print(f"{measure.__name__.strip('_')}: {type(error).__name__}: {error}", file=sys.stderr)
        place.release()
    return found


def rate(ceilings: Ceilings, name: str) -> float:
    """Return bytes or operations a second."""
    return ceilings[name]["value"] * UNITS[ceilings[name]["unit"]]


def changed(before: Ceilings, after: Ceilings) -> list[str]:
    """Return the rates that differ between two measurements as text: something else used the machine.

    A rate that could not be measured again is named too.
    """
    pairs = [(name, row, after[name]["value"]) for name, row in before.items() if name in after]
    return [f"{name} not measured again" for name in before if name not in after] + [
        f"{name} {row['value']:g}, then {value:g} {row['unit']}"
        for name, row, value in pairs
        if abs(row["value"] - value) > STEADY * max(row["value"], value)
    ]


# -- measurements ------------------------------------------------------------------------------------------------------


def _elementwise(place: Host, sizes: Sizes) -> Ceilings:
    """Measure copies in memory, copies of tiles, and exponentials of tiles, on all cores at once."""
    tile = 4 * sizes.tile**2
    cases = (
        ("copy", sizes.copy // place.cores, "float32", 1),
        ("tile copy", tile, "float32", sizes.calls),
        ("exp float32", tile, "float32", sizes.calls),
        ("exp float64", 2 * tile, "float64", sizes.calls),
    )
    found: Ceilings = {}
    for name, size, dtype, calls in cases:
        sources = [filled(place, size // np.dtype(dtype).itemsize, dtype) for _ in range(place.cores)]
        xp = array_namespace(sources[0])

        def repeated(
            source: Any, target: Any, xp: Any = xp, calls: int = calls, is_copy: bool = "copy" in name
        ) -> None:
            for _ in range(calls):
                xp.copyto(target, source) if is_copy else xp.exp(source, out=target)

        runs = [partial(repeated, source, xp.empty_like(source)) for source in sources]
        seconds = seconds_each(lambda runs=runs: place.at_once(runs), place, runs=sizes.runs)
        what = f"{name}, {place.cores} × {size / 2**20:.3g} MiB, bytes read and written"
        found[name] = row(what, 2 * size * place.cores * calls, "GB/s", seconds)
    return found


def _products(place: Host, sizes: Sizes) -> Ceilings:
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


def _scatter(place: Host, sizes: Sizes) -> Ceilings:
    """Measure products of panels of narrow rows with their transposes, read from memory, on all cores at once.

    Operations are those of the symmetric half. At this width BLAS multiplies all blocks of the matrix.
    """
    rows = max(1, sizes.copy // (4 * NARROW * place.cores))
    sources = [filled(place, rows * NARROW).reshape(rows, NARROW) for _ in range(place.cores)]
    xp = array_namespace(sources[0])

    def products(source: Any, out: Any) -> None:
        for start in range(0, rows, PANEL_ROWS):
            panel = source[start : start + PANEL_ROWS, :]
            xp.matmul(panel.T, panel, out=out)

    runs = [partial(products, source, xp.empty((NARROW, NARROW), dtype=source.dtype)) for source in sources]
    with single_threaded_blas():
        seconds = seconds_each(lambda: place.at_once(runs), place, runs=sizes.runs)
    what = f"XᵀX of {place.cores} × {rows} rows of {NARROW} float32, by panels of {PANEL_ROWS}"
    return {f"scatter {NARROW}": row(what, NARROW**2 * rows * place.cores, "TFLOP/s", seconds)}


def _tiles(place: Host, sizes: Sizes) -> Ceilings:
    """Measure X Yᵀ for d features, with and without the columns of norms, and tile and tileᵀ times block."""
    edge, b = sizes.tile, sizes.block
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


# -- pieces ------------------------------------------------------------------------------------------------------------


def filled(place: Host, count: int, dtype: str = "float32") -> Any:
    """Return numbers in (-1, 0), random: zeros can be faster than real data."""
    piece = place.put(-np.random.default_rng(0).random(min(count, 2**22)).astype(dtype))
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
    figures = {"value": amount / min(seconds) / UNITS[unit], "seconds": middle}
    figures["spread"] = (max(seconds) - min(seconds)) / middle
    rounded = {name: float(f"{figure:.4g}") for name, figure in figures.items()}
    return {"what": what, "unit": unit, "runs": len(seconds)} | rounded


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ceilings", description=__doc__)
    parser.add_argument("--card", action="store_true", help="of the CUDA device in place of the host")
    parser.add_argument("--quick", action="store_true", help="smaller arrays")
    options = parser.parse_args()
    if not options.card:
        print(json.dumps(measured(Host(), QUICK_HOST if options.quick else HOST)))
        return
    from gpukpca.cuda.device import probe

    works, reason = probe()
    if not works:
        sys.exit(f"No CUDA device that CuPy can use: {reason}.")
    import cupy

    sizes = (QUICK_CARD if options.quick else Sizes()).within(int(cupy.cuda.runtime.memGetInfo()[0]))
    print(json.dumps(measured(Cupy(), sizes)))


if __name__ == "__main__":
    main()
