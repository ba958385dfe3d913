"""What a card can do: ``python -m benchmarks.ceilings [--quick]`` prints it as JSON.

Rates of single operations, measured in the same record as the figures that are judged by them. Bytes are those that an
operation must read and write, operations those of its arithmetic; GB and TFLOP are powers of ten.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.places import CUPY, Place, seconds_each

# Features of the tile shapes; the library's rows have two more columns, for the norms.
WIDTHS = (16, 100, 784)
NAMES = (
    *("copy", "sgemm", "dgemm"),
    *(f"tile {d}" for d in sorted({d + more for d in WIDTHS for more in (0, 2)})),
    *("tile times block", "transposed tile times block", "exp", "to device", "to host", "launch"),
)
# The relative error of a float32 product of random numbers is a few 1e-6 at these sizes; of one in TF32 some 1e-4.
WITHOUT_TF32 = 5e-5


@dataclass(frozen=True)
class Sizes:
    """How large the arrays are: bytes, or rows. Large beside caches, and beside what a launch and a wait take."""

    copy: int = 4 * 2**30
    transfer: int = 2**30
    exponentials: int = 2**30
    edge: int = 8192
    tile: int = 8192
    block: int = 64
    runs: int = 7

    def within(self, free: int) -> Sizes:
        """Return the same or smaller ones, so that no measurement takes more than half of `free` bytes."""
        sizes = self
        while 2 * max(2 * sizes.copy, 2 * sizes.transfer, 2 * sizes.exponentials, 24 * sizes.edge**2) > free:
            sizes = Sizes(
                sizes.copy // 2,
                sizes.transfer // 2,
                sizes.exponentials // 2,
                max(256, sizes.edge // 2),
                max(256, sizes.tile // 2),
                sizes.block,
                sizes.runs,
            )
            if sizes.copy < 2**20:
                break
        return sizes


QUICK = Sizes(copy=2**28, transfer=2**26, exponentials=2**26, edge=2048, tile=2048, runs=3)


def measured(place: Place, sizes: Sizes) -> dict[str, dict[str, Any]]:
    """Return name -> {what, value, unit, seconds, runs}, in the order measured; seconds are medians of one operation.

    What fails is told on the standard error, and the others are measured: a record may lack some.
    """
    found: dict[str, dict[str, Any]] = {}
    for measure in (_copy, _products, _tiles, _exponentials, _transfers, _launch):
        try:
            found |= measure(place, sizes)
        except Exception as error:
            print(f"{measure.__name__.strip('_')}: {type(error).__name__}: {error}", file=sys.stderr)
        place.release()
    return found


def rate(ceilings: dict[str, dict[str, Any]], name: str) -> float:
    """Bytes or operations a second."""
    return ceilings[name]["value"] * {"GB/s": 1e9, "TFLOP/s": 1e12}[ceilings[name]["unit"]]


# -- measurements ------------------------------------------------------------------------------------------------------


def _copy(place: Place, sizes: Sizes) -> dict[str, dict[str, Any]]:
    source = filled(place, sizes.copy // 4)
    target = namespace(source).empty_like(source)

    times = seconds_each(lambda: overwrite(target, source), place.wait, runs=sizes.runs)
    what = f"copy on the device, {sizes.copy / 2**30:.3g} GiB, bytes read and written"
    return {"copy": of_bytes(what, 2 * sizes.copy, times)}


def _products(place: Place, sizes: Sizes) -> dict[str, dict[str, Any]]:
    """Large products of both types.

    Raises
    ------
    RuntimeError
        float32 products are rounded to TF32: then no floor would mean what it says.
    """
    edge, found = sizes.edge, {}
    rng = np.random.default_rng(0)
    host = [rng.standard_normal((edge, edge), dtype=np.float32) for _ in range(2)]
    for dtype, name, letter in (("float32", "sgemm", "S"), ("float64", "dgemm", "D")):
        A, B = (place.put(M.astype(dtype)) for M in host)
        C = namespace(A).empty_like(A)
        times = product_seconds(place, A, B, C, sizes)
        found[name] = of_operations(f"{letter}GEMM {edge} × {edge} × {edge}", 2 * edge**3, times)
        if name == "sgemm":
            exact = host[0][:8].astype(np.float64) @ host[1].astype(np.float64)
            wrong = np.linalg.norm(on_host(C[:8, :]) - exact) / np.linalg.norm(exact)
            if not wrong < WITHOUT_TF32:
                raise RuntimeError(f"a float32 product has a relative error of {wrong:.1e}: is TF32 on?")
            found[name]["relative_error"] = float(wrong)
    return found


def _tiles(place: Place, sizes: Sizes) -> dict[str, dict[str, Any]]:
    """Tile X Yᵀ for d features, with and without the two columns of norms, and tile times block, both ways round."""
    edge, b = sizes.tile, sizes.block
    T = filled(place, edge * edge).reshape(edge, edge)
    xp, found = namespace(T), {}
    for d in sorted({d + more for d in WIDTHS for more in (0, 2)}):
        X, Y = (filled(place, edge * d).reshape(edge, d) for _ in range(2))
        out = xp.empty_like(T)
        times = product_seconds(place, X, Y.T, out, sizes)
        found[f"tile {d}"] = of_operations(f"SGEMM {edge} × {d} × {edge}", 2 * edge * edge * d, times)
        found[f"tile {d}"]["edge"] = edge
        del out
    V = filled(place, edge * b).reshape(edge, b)
    out = xp.empty_like(V)
    for name, left in (("tile times block", T), ("transposed tile times block", T.T)):
        times = product_seconds(place, left, V, out, sizes)
        found[name] = of_operations(f"{name}, SGEMM {edge} × {edge} × {b}", 2 * edge * edge * b, times)
    return found


def _exponentials(place: Place, sizes: Sizes) -> dict[str, dict[str, Any]]:
    source = filled(place, sizes.exponentials // 4)
    T = namespace(source).empty_like(source)
    xp = namespace(T)

    def before() -> None:  # exponentials of exponentials would overflow
        overwrite(T, source)

    times = seconds_each(lambda: xp.exp(T, out=T), place.wait, before=before, runs=sizes.runs)
    what = f"exp in place, float32, {sizes.exponentials / 2**30:.3g} GiB, bytes read and written"
    return {"exp": of_bytes(what, 2 * sizes.exponentials, times)}


def _transfers(place: Place, sizes: Sizes) -> dict[str, dict[str, Any]]:
    host = np.random.default_rng(0).random(sizes.transfer // 4, dtype=np.float32)
    device = place.put(host.copy())
    back = np.zeros_like(host)  # touched, so that no page is made while the clock runs
    size = f"{sizes.transfer / 2**30:.3g} GiB, pageable"
    up = seconds_each(put_into(device, host), place.wait, runs=sizes.runs)
    down = seconds_each(get_into(device, back), place.wait, runs=sizes.runs)
    return {
        "to device": of_bytes(f"host to device, {size}", sizes.transfer, up),
        "to host": of_bytes(f"device to host, {size}", sizes.transfer, down),
    }


def _launch(place: Place, sizes: Sizes) -> dict[str, dict[str, Any]]:
    """Measure one operation and a wait for it: no small problem is solved in less."""
    T = filled(place, 1024)
    xp = namespace(T)
    times = seconds_each(lambda: (xp.multiply(T, 1.0, out=T), place.wait()), place.wait, runs=sizes.runs)
    return {"launch": summary("an operation on 4 KiB, and waiting for it", median(times) * 1e6, "µs", times)}


# -- pieces ------------------------------------------------------------------------------------------------------------


def filled(place: Place, count: int) -> Any:
    """So many float32 numbers in (-1, 0), random: zeros can be faster than what will be computed."""
    piece = place.put(-np.random.default_rng(0).random(min(count, 2**22), dtype=np.float32))
    whole = namespace(piece).empty((count,), dtype=piece.dtype)
    for start in range(0, count, len(piece)):
        part = whole[start : start + len(piece)]
        part[...] = piece[: len(part)]
    return whole


def overwrite(target: Any, source: Any) -> None:
    """As one copy of memory, which is what a library makes of it for two whole arrays of one type."""
    xp = namespace(source)
    if hasattr(xp, "copyto"):
        xp.copyto(target, source)
    else:
        target[...] = source


def product_seconds(place: Place, A: Any, B: Any, out: Any, sizes: Sizes) -> list[float]:
    """Of ``out = A @ B``."""
    xp = namespace(A)
    return seconds_each(lambda: xp.matmul(A, B, out=out), place.wait, runs=sizes.runs)


def put_into(device: Any, host: np.ndarray) -> Callable[[], Any]:
    """Return a function that copies a host array into one on the device, which exists."""
    return (lambda: device.set(host)) if hasattr(device, "set") else (lambda: np.copyto(device, host))


def get_into(device: Any, host: np.ndarray) -> Callable[[], Any]:
    """Return a function that copies an array on the device into one on the host, which exists."""
    return (lambda: device.get(out=host)) if hasattr(device, "get") else (lambda: np.copyto(host, device))


def on_host(a: Any) -> np.ndarray:
    """As a NumPy array."""
    return a.get() if hasattr(a, "get") else np.asarray(a)


def namespace(a: Any) -> Any:
    """NumPy, or CuPy: what knows ``out=``."""
    from array_api_compat import array_namespace

    return array_namespace(a)


def of_bytes(what: str, size: int, seconds: list[float]) -> dict[str, Any]:
    """In GB/s."""
    return summary(what, size / median(seconds) / 1e9, "GB/s", seconds)


def of_operations(what: str, count: int, seconds: list[float]) -> dict[str, Any]:
    """In TFLOP/s."""
    return summary(what, count / median(seconds) / 1e12, "TFLOP/s", seconds)


def summary(what: str, value: float, unit: str, seconds: list[float]) -> dict[str, Any]:
    """One row of the record."""
    spread = (max(seconds) - min(seconds)) / median(seconds)
    found = {"what": what, "value": value, "unit": unit, "seconds": median(seconds), "spread": spread}
    return {key: float(f"{x:.4g}") if isinstance(x, float) else x for key, x in found.items()} | {"runs": len(seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ceilings", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller arrays, fewer runs")
    options = parser.parse_args()
    from gpukpca.cuda.device import probe

    works, found = probe()
    if not works:
        sys.exit(f"No CUDA device that CuPy can use: {found}.")
    import cupy

    sizes = (QUICK if options.quick else Sizes()).within(int(cupy.cuda.runtime.memGetInfo()[0]))
    print(json.dumps({"sizes": asdict(sizes), "ceilings": measured(CUPY, sizes)}))


if __name__ == "__main__":
    main()
