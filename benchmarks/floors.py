"""Times that no implementation by library calls on tiles undercuts, on a machine whose ceilings are known.

A machine, host or card, is a table of rates: large products, exponentials, copies of a tile where tiles live between
their uses (a core's cache, or the memory of a card), and copies in memory. A pass over K, n samples, d features,
b columns, every tile of the upper triangle used twice:

- operations n² d + 2 n² b: inner products of half the pairs, and both products of every tile;
- n²/2 exponentials;
- 3 n²/2 items of tiles: written by the product, read by two products;
- of a stored tile only its two products: 2 n² b operations, n²/2 items of memory and n²/2 of the tile.

PCA with the smaller side s and the larger side m: s² m operations for the symmetric half of the scatter matrix, X
read once, and the eigenproblem of s. Narrow float32 rows are multiplied at the rate measured for products of their
width, which includes that X is read: BLAS reaches half of the rate of large products there. Their seconds are added:
calls follow one another. (A kernel that fuses them could be faster.) Real calls have shapes at which a machine is
slower, so the sum of the calls as measured is reported beside the floor on a card.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.ceilings import Ceilings, rate
from benchmarks.peer import is_ours

GEMM = {"float32": "sgemm", "float64": "dgemm"}
# The reduction of a symmetric matrix to tridiagonal form, which every full eigensolver begins with.
TRIDIAGONAL = 4.0 / 3.0


def roofline(
    ceilings: Ceilings, dtype: str, operations: float, memory: float = 0.0, exps: float = 0.0, tiles: float = 0.0
) -> float:
    """Return the seconds of operations of large products, exponentials, and items of memory and of tiles.

    A rate that was not measured is that of copies.
    """
    item = np.dtype(dtype).itemsize
    bytes_at = {"copy": memory * item, f"exp {dtype}": 2.0 * exps * item, "tile copy": tiles * item}
    moved = sum(size / rate(ceilings, name if name in ceilings else "copy") for name, size in bytes_at.items())
    return operations / rate(ceilings, GEMM[dtype]) + moved


def pass_seconds(ceilings: Ceilings, n: int, d: int, b: float, dtype: str = "float32", cached: float = 0.0) -> float:
    """Return the floor of one product with b columns where the share `cached` of the tiles is stored."""
    half, new = 0.5 * n * n, 1.0 - cached
    operations = 2.0 * half * (new * d + 2.0 * b)
    return roofline(ceilings, dtype, operations, cached * half, new * half, (3.0 * new + cached) * half)


def full_seconds(ceilings: Ceilings, n: int, d: int, dtype: str = "float32") -> float:
    """Return the seconds to compute the upper triangle of K, and to make K tridiagonal."""
    half = 0.5 * n * n
    return roofline(ceilings, dtype, n * n * d + TRIDIAGONAL * n**3, half, half)


def nystrom_seconds(ceilings: Ceilings, n: int, d: int, rank: int, dtype: str = "float32") -> float:
    """Return the floor of columns of K, their orthogonalization, and the factor F (n, rank) written and read once."""
    return roofline(ceilings, dtype, 2.0 * n * rank * (d + rank), 2.0 * n * rank, n * rank)


def transform_seconds(ceilings: Ceilings, n: int, d: int, p: int, new: int, dtype: str = "float32") -> float:
    """Return the floor of kernel values between new points and n points, and their product with p columns."""
    pairs = float(n) * new
    return roofline(ceilings, dtype, 2.0 * pairs * (d + p), new * (d + p), pairs, 2.0 * pairs)


def pca_seconds(ceilings: Ceilings, entry: dict[str, Any]) -> float:
    """Return the floor of a PCA: scatter matrix and eigenproblem, or one product where no matrix is computed.

    The eigenproblem is the reduction to tridiagonal form where it is solved whole, else a product with p vectors; both
    in float64.
    """
    (side, longer), p = sorted((entry["n"], entry["d"])), entry["p"]
    method, _, solver = str(entry["facts"].get("solver", "")).partition(": ")
    dtype, items, iterates = entry["dtype"], float(entry["n"]) * entry["d"], solver.startswith("block Krylov")
    if method == "randomized" and iterates:
        return roofline(ceilings, dtype, 4.0 * items * p, items)
    eigen = roofline(ceilings, "float64", 2.0 * side**2 * p if iterates else TRIDIAGONAL * side**3)
    back = 2.0 * items * p if entry["d"] > entry["n"] else 0.0  # from vectors of samples to components
    if dtype == "float32" and not back and f"scatter {side}" in ceilings:
        return items * side / rate(ceilings, f"scatter {side}") + eigen
    return roofline(ceilings, dtype, float(side) ** 2 * longer + back, items) + eigen


def calls_seconds(ceilings: Ceilings, n: int, d: int) -> float | None:
    """Return one float32 product with nothing cached as the sum of the calls measured; None where d was not.

    Per tile of the upper triangle: its product, with two columns for the norms, its exponentials, and two products with
    a block.
    """
    tile, block = ceilings.get(f"tile {d + 2}"), ceilings.get("tile times block")
    if tile is None or block is None or "exp float32" not in ceilings:
        return None
    tiles = n * n / 2.0 / tile["edge"] ** 2
    exponentials = 8.0 * tile["edge"] ** 2 / rate(ceilings, "exp float32")
    return tiles * (
        tile["seconds"] + exponentials + block["seconds"] + ceilings["transposed tile times block"]["seconds"]
    )


def fit_seconds(ceilings: Ceilings, entry: dict[str, Any]) -> float | None:
    """Return the floor of all passes of a fit, the first of which fills the cache; None where K is not in tiles."""
    facts, n, d, dtype = entry["facts"], entry["n"], entry["d"], entry["dtype"]
    if str(facts.get("solver", "")).startswith("dense"):
        return full_seconds(ceilings, n, d, dtype)
    if not facts.get("passes") or "cached_tiles" not in facts:
        return None
    columns, cached = facts["columns"] / facts["passes"], facts["cached_tiles"] / facts["tiles"]
    again = pass_seconds(ceilings, n, d, columns, dtype, cached)
    return pass_seconds(ceilings, n, d, columns, dtype) + (facts["passes"] - 1) * again


def floor_seconds(ceilings: Ceilings, entry: dict[str, Any]) -> float | None:
    """Return the floor of an entry; None where its work or the machine is unknown."""
    known = entry["outcome"] == "ok" and {"copy", "sgemm", "dgemm"} <= set(ceilings)
    if not known or entry.get("kernel") != "rbf":
        return None
    n, d, dtype, facts = entry["n"], entry["d"], entry["dtype"], entry["facts"]
    if entry["task"] == "axes":  # no rate of products of sparse rows is measured
        return None if entry["data"] == "words" else pca_seconds(ceilings, entry)
    if entry["task"] == "transform":
        return transform_seconds(ceilings, n, d, entry["p"], entry["new"], dtype)
    if entry["task"] == "product":
        return pass_seconds(ceilings, n, d, entry["p"], dtype, facts["cached_tiles"] / facts["tiles"])
    if "Nystrom" in entry["contestant"]:
        return nystrom_seconds(ceilings, n, d, min(entry["rank"], n), dtype)
    if is_ours(entry["contestant"]):
        return fit_seconds(ceilings, entry)
    return full_seconds(ceilings, n, d, dtype)
